//! The run folder: everything a run leaves on disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::outcome::Outcome;
use crate::plot::{Chart, Curve, PALETTE};

/// A run folder that cannot be written.
#[derive(Debug, Error)]
pub enum FolderError {
    /// There are already files in it.
    #[error("{0}: the folder already holds files; choose another with --out, or remove it")]
    Occupied(PathBuf),
    /// It cannot be written.
    #[error("{0}: cannot be written ({1}); choose another place with --out")]
    Io(PathBuf, io::Error),
    /// A plot cannot be written.
    #[error("{0}")]
    Plot(String),
}

/// Names of the three models, as in the trace.
const MODELS: [&str; 3] = ["w", "released", "average"];

/// Makes the folder, or takes an empty one. Called before anything is computed, so that no run is lost for want of a
/// place.
pub fn prepare(folder: &Path) -> Result<(), FolderError> {
    let io = |e| FolderError::Io(folder.into(), e);
    fs::create_dir_all(folder).map_err(io)?;
    match fs::read_dir(folder).map_err(io)?.next() {
        Some(_) => Err(FolderError::Occupied(folder.into())),
        None => Ok(()),
    }
}

/// Writes study.toml, trace.csv, clients.csv, model.json, summary.json, learning.svg and learning.png.
pub fn write(outcome: &Outcome, folder: &Path) -> Result<(), FolderError> {
    let write = |name: &str, body: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
        let path = folder.join(name);
        let result = File::create(&path).and_then(|file| {
            let mut file = BufWriter::new(file);
            body(&mut file)?;
            file.flush()
        });
        result.map_err(|e| FolderError::Io(path, e))
    };
    write("study.toml", &|f| f.write_all(outcome.study.to_toml().as_bytes()))?;
    write("trace.csv", &|f| trace(outcome, f))?;
    write("clients.csv", &|f| clients(outcome, f))?;
    write("model.json", &|f| json(&outcome.model.to_json(&outcome.study), f))?;
    write("summary.json", &|f| json(&outcome.to_json(), f))?;
    chart(outcome).save(&folder.join("learning")).map_err(FolderError::Plot)
}

fn json(value: &serde_json::Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(value).expect("plain values"))
}

/// One row per measured round. The columns without a suffix are means over trials.
fn trace(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "round,rho,epsilon")?;
    for kind in ["error", "surrogate_error"] {
        for model in MODELS {
            write!(out, ",{kind}_{model},{kind}_{model}_q10,{kind}_{model}_q90")?;
        }
    }
    writeln!(out, ",objective,objective_q10,objective_q90,consensus,consensus_q10,consensus_q90")?;
    let optional = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    for point in &outcome.points {
        write!(out, "{},{},{}", point.round, optional(point.rho), optional(point.epsilon))?;
        for bands in [&point.error, &point.surrogate_error] {
            for model in 0..MODELS.len() {
                match bands {
                    Some(bands) => write!(out, ",{},{},{}", bands[model].mean, bands[model].q10, bands[model].q90)?,
                    None => write!(out, ",,,")?,
                }
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
fn chart(outcome: &Outcome) -> Chart {
    let study = &outcome.study;
    let has_error = outcome.last().error.is_some();
    // Nobody can tell more points apart, and the file stays small.
    let stride = outcome.points.len().div_ceil(1000);
    let plotted = outcome.points.iter().rev().step_by(stride).rev();
    let curve = |name: &str, color, pick: &dyn Fn(&crate::outcome::Point) -> Option<crate::metrics::Band>| Curve {
        name: name.into(),
        color: PALETTE[color],
        points: plotted.clone().filter_map(|p| pick(p).map(|b| (f64::from(p.round), b.mean, b.q10, b.q90))).collect(),
    };
    let curves = if has_error {
        let names = ["w, before the noise", "released", "average of released"];
        (0..MODELS.len()).map(|i| curve(names[i], i, &move |p| p.error.map(|e| e[i]))).collect()
    } else {
        vec![curve("objective of the released models", 0, &|p| Some(p.objective))]
    };
    let budget = match (outcome.epsilon, &study.privacy) {
        (Some(epsilon), Some(p)) => {
            format!("({epsilon:.4}, {:e})-private", p.delta.get())
        }
        _ => "not private".into(),
    };
    Chart {
        title: format!("{}: {}, {budget}", study.name, study.algorithm.name()),
        x_label: "round".into(),
        x_names: Vec::new(),
        y_label: if has_error { "normalised error, summed over clients" } else { "objective" }.into(),
        curves,
    }
}
