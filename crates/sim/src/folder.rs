//! The run folder: everything a run writes to disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;
use undertone_data::{Background, promise};

use crate::metrics::PerModel;
use crate::outcome::Outcome;
#[cfg(feature = "plot")]
use crate::{
    metrics::Band,
    outcome::Point,
    plot::{Chart, Curve, PALETTE, PlotError},
};

/// A run folder that cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// There are already files in it.
    #[error("{0}: the folder already holds files; choose another with --out, or remove it")]
    Occupied(PathBuf),
    /// It cannot be written.
    #[error("{0}: cannot be written ({1}); choose another place with --out")]
    Io(PathBuf, io::Error),
    /// A plot cannot be written.
    #[cfg(feature = "plot")]
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Makes the folder, or takes an empty one. Called before anything is computed, so that the
/// result of a long run can be written.
pub fn prepare(folder: &Path) -> Result<(), FolderError> {
    let io = |e| FolderError::Io(folder.into(), e);
    fs::create_dir_all(folder).map_err(io)?;
    match fs::read_dir(folder).map_err(io)?.next() {
        Some(_) => Err(FolderError::Occupied(folder.into())),
        None => Ok(()),
    }
}

/// Whether a folder holds files of a run and nothing else.
pub fn is_run(folder: &Path) -> bool {
    const NAMES: [&str; 8] = [
        "study.toml",
        "trace.csv",
        "clients.csv",
        "model.json",
        "summary.json",
        "report.html",
        "learning.svg",
        "learning.png",
    ];
    let is_ours = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| NAMES.contains(&name)))
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_ours))
}

/// Writes study.toml, trace.csv, clients.csv, model.json, summary.json and report.html, and with the feature `plot` learning.svg and
/// learning.png.
pub fn write(outcome: &Outcome, folder: &Path) -> Result<(), FolderError> {
    each_file(outcome, &mut |name, body| {
        let path = folder.join(name);
        let result = File::create(&path).and_then(|file| {
            let mut file = BufWriter::new(file);
            body(&mut file)?;
            file.flush()
        });
        result.map_err(|e| FolderError::Io(path, e))
    })?;
    #[cfg(feature = "plot")]
    chart(outcome).save(&folder.join("learning"))?;
    Ok(())
}

/// The text of one of the files that [`write()`] writes; none if there is none of that name.
pub fn text(outcome: &Outcome, wanted: &str) -> Option<String> {
    let mut text = None;
    let _: Result<(), io::Error> = each_file(outcome, &mut |name, body| {
        if name == wanted {
            let mut bytes = Vec::new();
            body(&mut bytes)?;
            text = String::from_utf8(bytes).ok();
        }
        Ok(())
    });
    text
}

/// Writes a file.
type Body<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// Hands the name of each file, and what writes it, to `write`.
fn each_file<E>(outcome: &Outcome, write: &mut dyn FnMut(&str, Body) -> Result<(), E>) -> Result<(), E> {
    write("study.toml", &|f| f.write_all(outcome.study.to_toml().as_bytes()))?;
    write("trace.csv", &|f| trace(outcome, f))?;
    write("clients.csv", &|f| clients(outcome, f))?;
    let privacy = promise(&outcome.study, outcome.names.len(), outcome.epsilon, outcome.epsilon_alone);
    // Of many, the number says more than a list.
    let listed = if outcome.names.len() <= 100 { outcome.names.len() } else { 0 };
    let clients = (0..listed).map(|k| outcome.names.get(k)).collect();
    let model =
        outcome.model.to_json(&outcome.fitted, &Background { privacy, closed: outcome.closed.first(), clients });
    write("model.json", &|f| json(&model, f))?;
    write("summary.json", &|f| json(&outcome.to_json(), f))?;
    write("report.html", &|f| f.write_all(outcome.report().as_bytes()))
}

fn json(value: &serde_json::Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(value).expect("plain values"))
}

/// One row per measured round. The columns without a suffix are means over trials.
fn trace(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "round,rho,epsilon")?;
    for kind in ["error", "surrogate_error"] {
        for (model, ()) in PerModel::<()>::default().named() {
            write!(out, ",{kind}_{model},{kind}_{model}_q10,{kind}_{model}_q90")?;
        }
    }
    writeln!(out, ",objective,objective_q10,objective_q90,consensus,consensus_q10,consensus_q90")?;
    let optional = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    for point in &outcome.points {
        write!(out, "{},{},{}", point.round, optional(point.rho), optional(point.epsilon))?;
        for bands in [&point.error, &point.surrogate_error] {
            match bands {
                Some(bands) => bands
                    .named()
                    .into_iter()
                    .try_for_each(|(_, band)| write!(out, ",{},{},{}", band.mean, band.q10, band.q90))?,
                None => write!(out, ",,,,,,,,,")?,
            }
        }
        for band in [point.objective, point.consensus] {
            write!(out, ",{},{},{}", band.mean, band.q10, band.q90)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Final w of every client in the first trial.
fn clients(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let features = outcome.model.w.len();
    let mut writer = csv::Writer::from_writer(out);
    let head = std::iter::once("client".to_string()).chain((1..=features).map(|p| format!("w{p}")));
    writer.write_record(head)?;
    for (k, w) in outcome.clients.chunks_exact(features).enumerate() {
        let row = std::iter::once(outcome.names.get(k).into_owned()).chain(w.iter().map(f64::to_string));
        writer.write_record(row)?;
    }
    writer.flush()
}

/// The learning curve: normalised errors where there is a central solution, else the objective.
#[cfg(feature = "plot")]
fn chart(outcome: &Outcome) -> Chart {
    let study = &outcome.study;
    let has_error = outcome.last().error.is_some();
    // More points cannot be told apart in the plot, and the file stays small.
    let stride = outcome.points.len().div_ceil(1000);
    let plotted = outcome.points.iter().rev().step_by(stride).rev();
    let curve = |name: &str, color, pick: &dyn Fn(&Point) -> Option<Band>| Curve {
        name: name.into(),
        color: PALETTE[color],
        points: plotted.clone().filter_map(|p| pick(p).map(|b| (f64::from(p.round), b.mean, b.q10, b.q90))).collect(),
    };
    let curves = if has_error {
        vec![
            curve("w, before the noise", 0, &|p| p.error.map(|e| e.w)),
            curve("released", 1, &|p| p.error.map(|e| e.released)),
            curve("average of released", 2, &|p| p.error.map(|e| e.average)),
        ]
    } else {
        vec![curve("objective of the released models", 0, &|p| Some(p.objective))]
    };
    let budget = match (outcome.epsilon, study.privacy()) {
        (Some(epsilon), Some(p)) => format!("({epsilon:.4}, {:e})-private", p.delta().get()),
        _ => "not private".into(),
    };
    Chart {
        title: format!("{}: {}, {budget}", study.name(), study.algorithm().name()),
        x_label: "round".into(),
        x_names: Vec::new(),
        y_label: if has_error { "normalised error, summed over clients" } else { "objective" }.into(),
        curves,
    }
}
