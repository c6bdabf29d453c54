//! `undertone plan`: the cost and the expected error of a study, without reading any records.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use undertone_core::study::{Study, StudySpec};
use undertone_plan::{self as plan, Plan, Row};

use crate::{Failure, digits, print, study, with_bar};

#[derive(clap::Args)]
pub struct Arguments {
    /// The study; its algorithm may be "auto"
    study: PathBuf,

    /// Where to write the recommended study; without it the first free one of planned.toml, planned-2.toml, ... beside the study
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace one key of the study, such as privacy.epsilon=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut document = study::document(&arguments.study, &arguments.set)?;
    let out = arguments.out.clone().unwrap_or_else(|| free_file(&arguments.study));
    if out.exists() {
        return Err(Failure::input(format!("{}: there is already a file; choose another name", out.display())));
    }
    let data = document.spec().map_err(Failure::input)?.data;
    // Whoever plans need not have the data.
    if let Some(path) = study::own_path(Some(&arguments.study), &data).filter(|path| path.exists()) {
        study::check_files(&mut document, &path)?;
    }
    let plan = with_bar("planning", |watch| plan::plan_document(&document, watch)).map_err(study::failed)?;
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!("{}: there is already a file", out.display())),
        _ => Failure::input(format!("{}: cannot be written ({e}); check the folder", out.display())),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&out).map_err(failed)?;
    file.write_all(found_from_anywhere(&plan.recommended().study, arguments)?.to_toml().as_bytes()).map_err(failed)?;
    print(&if arguments.json { as_json(&plan, &out).to_string() } else { report(&plan, &out) })
}

/// A study that is written elsewhere must still find its data.
fn found_from_anywhere(planned: &Study, arguments: &Arguments) -> Result<StudySpec, Failure> {
    let spec = planned.spec().clone();
    if let (Some(_), Some(path)) = (&arguments.out, study::own_path(Some(&arguments.study), &spec.data)) {
        let path = std::path::absolute(path).map_err(|e| Failure::input(format!("data.path: {e}")))?;
        return Ok(spec.data_path(path.display().to_string()));
    }
    Ok(spec)
}

/// The first of planned.toml, planned-2.toml, ... beside the study that is free.
fn free_file(study: &Path) -> PathBuf {
    let folder = study.parent().unwrap_or(Path::new(""));
    let names = std::iter::once("planned.toml".to_string()).chain((2..).map(|i| format!("planned-{i}.toml")));
    names.map(|name| folder.join(name)).find(|path| !path.exists()).expect("the numbers do not end")
}

fn report(plan: &Plan, out: &Path) -> String {
    let study = &plan.recommended().study;
    let (clients, features) = (plan.graph.clients(), study.features());
    let degrees: Vec<usize> = (0..clients).map(|k| plan.graph.degree(k)).collect();
    let range = |values: &[usize]| match (values.iter().min(), values.iter().max()) {
        (Some(low), Some(high)) if low != high => format!("{low} to {high}"),
        (Some(one), _) => one.to_string(),
        _ => String::new(),
    };
    let spectrum = plan.spectrum;
    let mut text = format!(
        "{}: {clients} clients with {} records of {features} features, {} rounds; no data was read\n\n\
         graph      {} edges, {} neighbours each, connected\n\
         \x20          Phi_min(L-) {:.4}, Phi_max(L-) {:.4}, Phi_min(L+) {:.4}, Phi_max(L+) {:.4}\n\
         \x20          Metropolis weights: other eigenvalues {:.4} to {:.4}\n",
        study.name(),
        range(&plan.records),
        study.rounds(),
        plan.graph.edges(),
        range(&degrees),
        spectrum.laplacian_min,
        spectrum.laplacian_max,
        spectrum.signless_min,
        spectrum.signless_max,
        spectrum.metropolis.0,
        spectrum.metropolis.1,
    );
    if let Some(bound) = plan.bound() {
        let factor = spectrum.noise_factor();
        let _ = writeln!(
            text,
            "           the paper's bound multiplies the noise by {factor:.4}; by it, noise adds {bound:.3e} to the objective of \
             zcdp-nfl below"
        );
    }
    match (plan.spent(), study.privacy()) {
        (Some((rho, epsilons)), Some(privacy)) => {
            let by: Vec<String> = epsilons.iter().map(|(a, e)| format!("{} {}", a.name(), digits(*e, true))).collect();
            let _ = writeln!(
                text,
                "budget     rho {}; epsilon at delta {:e} by accountant: {} (the study counts by {})",
                digits(rho.get(), true),
                privacy.delta().get(),
                by.join(", "),
                privacy.accountant().name()
            );
        }
        _ => text += "budget     none: privacy is off, and nothing below is private\n",
    }
    let (frame, all) = plan.bytes();
    let _ = writeln!(
        text,
        "messages   {frame} bytes to each neighbour in each round, before encryption and headers; at most {} in all from one client",
        bytes(all)
    );
    text += "\nexpected error of a client's model after the last round, relative to pooled data (1: as bad as the zero model),\n\
             on 20 generated data sets of this shape, each algorithm with the best parameters found:\n\n";
    for row in &plan.rows {
        let _ = writeln!(text, "{:14} {:>9}   {}", row.algorithm, format!("{:.2e}", row.error), row.parameters.text());
    }
    text += &noise(plan, plan.recommended());
    if plan.recommended().error > 0.5 {
        text += "\nEvery model would be mostly noise: more records, a larger epsilon or fewer features would help.\n";
    }
    let _ = write!(text, "\nwritten to {}: the study with {}", out.display(), plan.recommended().algorithm);
    text
}

/// Budget and noise of a few rounds.
fn noise(plan: &Plan, row: &Row) -> String {
    let rounds = plan.noise(row);
    let (Some(first), Some(last)) = (rounds.first(), rounds.last()) else { return String::new() };
    let mut text = format!(
        "\nnoise of {}: {} of {} rounds are data rounds and are noised, the others cost nothing\n\
         \x20 round     phi          sigma per coordinate\n",
        row.algorithm,
        rounds.len(),
        row.study.rounds()
    );
    let shown = [first, &rounds[rounds.len() / 2], last];
    for (i, r) in shown.iter().enumerate() {
        if i == 0 || shown[i - 1].round != r.round {
            let _ = writeln!(text, "  {:<9} {:<12} {:.4e}", r.round, digits(r.phi, true), r.sigma);
        }
    }
    text
}

fn bytes(count: usize) -> String {
    match count {
        0..10_000 => format!("{count} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        _ => format!("{:.0} MB", count as f64 / 1e6),
    }
}

fn as_json(plan: &Plan, out: &Path) -> serde_json::Value {
    let row = |row: &Row| {
        let noise = plan.noise(row);
        let rounds: Vec<_> = noise.iter().map(|r| json!({"round": r.round, "phi": r.phi, "sigma": r.sigma})).collect();
        let parameters: serde_json::Map<_, _> =
            row.parameters.0.iter().map(|(dial, value)| (dial.key(), value.to_string().into())).collect();
        json!({ "algorithm": row.algorithm, "error": row.error, "parameters": parameters, "noised_rounds": rounds })
    };
    let s = plan.spectrum;
    let spent = plan.spent();
    let epsilons: Option<serde_json::Map<_, _>> =
        spent.map(|(_, by)| by.iter().map(|(a, e)| (a.name().into(), (*e).into())).collect());
    json!({
        "clients": plan.graph.clients(),
        "edges": plan.graph.edges(),
        "laplacian": [s.laplacian_min, s.laplacian_max],
        "signless_laplacian": [s.signless_min, s.signless_max],
        "metropolis": [s.metropolis.0, s.metropolis.1],
        "noise_factor": s.noise_factor(),
        "bound": plan.bound(),
        "rho": spent.map(|(rho, _)| rho.get()),
        "epsilon": epsilons,
        "frame_bytes": plan.bytes().0,
        "bytes_per_client": plan.bytes().1,
        "algorithms": plan.rows.iter().map(row).collect::<Vec<_>>(),
        "study": out.display().to_string(),
    })
}
