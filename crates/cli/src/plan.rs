//! `undertone plan`: the cost and the expected error of a study, without reading any records.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use undertone_core::closing::normal_range;
use undertone_core::study::{Study, StudySpec};
use undertone_plan::{self as plan, Plan, Regret, Row, TrustRow};
use undertone_sim::burden::burden;

use crate::{Failure, digits, planning, print, study};

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

    /// Leave out what trust is worth, which takes most of the time of a study with privacy.colluders
    #[arg(long)]
    quick: bool,

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
    study::tell_oddities(&document);
    let spec = document.spec().map_err(Failure::input)?;
    let masked = spec.privacy.is_some_and(|privacy| privacy.colluders.is_some());
    let planned = planning(|watch| {
        let plan = plan::plan_document(&document, watch)?;
        let trust = if masked && !arguments.quick { plan::trust(&spec, &plan, watch)? } else { Vec::new() };
        Ok((plan, trust))
    });
    let (plan, trust) = planned.map_err(study::failed)?;
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!("{}: there is already a file", out.display())),
        _ => Failure::input(format!("{}: cannot be written ({e}); check the folder", out.display())),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&out).map_err(failed)?;
    file.write_all(found_from_anywhere(&plan.recommended().study, arguments)?.to_toml().as_bytes()).map_err(failed)?;
    print(&if arguments.json { json(&plan, &trust, &out) } else { report(&plan, &trust, &out) })
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

fn report(plan: &Plan, trust: &[TrustRow], out: &Path) -> String {
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
        "{}: {clients} clients with {} records of {features} features, {} rounds; no record was read\n\n\
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
            if privacy.colluders().is_none() && clients > 2 {
                text += "           whoever colludes; if at most some of the others do, privacy.colluders gives the same epsilon with less noise\n";
            }
            if let Some(colluders) = privacy.colluders() {
                let _ = writeln!(
                    text,
                    "           as long as at most {colluders} of the {clients} clients pool what they know; if all others of a client do: epsilon {}",
                    plan.epsilon_alone().map_or("without bound".into(), |alone| digits(alone, true))
                );
            }
        }
        _ => text += "budget     none: privacy is off, and nothing below is private\n",
    }
    let (frame, all) = plan.bytes();
    let _ = writeln!(
        text,
        "messages   {frame} bytes to each neighbour in each round, before encryption and headers; at most {} in all from one client",
        bytes(all)
    );
    text += &intervals(study, clients);
    text += &expectation(plan);
    text += &worth(plan, trust);
    let each: Vec<usize> = (0..clients).map(|k| plan.records[k % plan.records.len()]).collect();
    if let Some(burden) = study.privacy().and_then(|_| burden(&each, study.spec())) {
        let _ = writeln!(text, "\n{}", burden.sentence(|k| plan.names.get(k).into_owned(), &each));
    }
    text += &noise(plan, plan.recommended());
    let _ = write!(text, "\nwritten to {}: the study with {}", out.display(), plan.recommended().algorithm);
    text
}

/// How wide intervals will be.
fn intervals(study: &Study, clients: usize) -> String {
    let Some(expected) = study.expected_error(clients) else { return String::new() };
    let level = study.spec().inference.unwrap_or(0.95);
    let Some((all, sampling)) = expected else {
        return "intervals  none: the noise of the second derivatives would be as large as they are; more records, a larger epsilon, masks, typical values or \
                fewer features would help\n"
            .into();
    };
    let unit = if study.spec().loss.is_classification() { "in log odds" } else { "in spreads of the target" };
    let z = normal_range(level);
    format!(
        "intervals  {:.0}%: a coefficient plus or minus about {} {unit} for a spread of its feature, {:.1} times as wide as without privacy\n",
        100.0 * level,
        crate::short(z * all),
        all / sampling
    )
}

/// What to expect of each algorithm, in words and numbers.
fn expectation(plan: &Plan) -> String {
    let Regret { q10, median, q90, .. } = plan.recommended().regret;
    let mut text = format!(
        "\nexpected skill {} to {}, typically {}: the part of what pooled data would teach that this study will learn\n\
         (1: as good as a model from pooled data without privacy; 0: no better than the mean of the target). {}\n\n\
         {}on new records of {} made-up data sets of this shape that no parameter was chosen on, one in ten below the first and above the last:\n\n\
         \x20                                 skill\n",
        skill(q90),
        skill(q10),
        skill(median),
        verdict(median, q90),
        match plan.losses {
            0 => "",
            _ => "planned for clients that are lost: they are in every second set below\n",
        },
        plan.sets()
    );
    for row in &plan.rows {
        let Regret { q10, median, q90, .. } = row.regret;
        let _ = writeln!(
            text,
            "{:31} {:>5} {:>5} {:>5}   {}",
            title(row),
            skill(q90),
            skill(median),
            skill(q10),
            row.parameters.text()
        );
    }
    text
}

/// What trust is worth.
fn worth(plan: &Plan, rows: &[TrustRow]) -> String {
    let clients = plan.graph.clients();
    if rows.is_empty() {
        return String::new();
    }
    let losses = plan.losses;
    let mut text = format!(
        "\nwhat trust is worth: if at most so many of the {clients} clients pool what they know{}\n\n\
         colluders           skill         median regret  epsilon if all others collude\n",
        match losses {
            0 => String::new(),
            1 => ", and one client is lost on the way in half of the sets".into(),
            some => format!(", and {some} clients are lost on the way in half of the sets"),
        }
    );
    let stated = plan.recommended().study.privacy().and_then(|privacy| privacy.colluders());
    for TrustRow { colluders, regret: Regret { q10, median, q90, .. }, epsilon_alone } in rows {
        let who = colluders.map_or("all".into(), |q| q.to_string());
        let _ = writeln!(
            text,
            "{who:<15}{:>5} {:>5} {:>5}   {:<14} {}{}",
            skill(*q90),
            skill(*median),
            skill(*q10),
            format!("{median:.4}"),
            epsilon_alone.map_or("without bound".into(), |epsilon| digits(epsilon, true)),
            if *colluders == stated { "   this study" } else { "" }
        );
    }
    text
}

/// An algorithm, and whether columns are standardised privately before it.
fn title(row: &Row) -> String {
    match row.study.spec().privacy.and_then(|privacy| privacy.standardise) {
        Some(share) => format!("{}, standardised {share}", row.algorithm),
        None => row.algorithm.into(),
    }
}

/// One less a regret, with two digits; a model can be far worse than the mean, and how far does not matter.
fn skill(regret: f64) -> String {
    let skill = 1.0 - regret;
    if skill < -1.0 { "<-1".into() } else { format!("{skill:.2}") }
}

/// What that means.
fn verdict(median: f64, worse: f64) -> &'static str {
    match (median, worse) {
        (..=0.1, ..=0.3) => "Privacy costs little here.",
        (..=0.4, ..=0.8) => "The model will be useful, and less precise than one from pooled data.",
        (..=0.8, _) => {
            "The model may be useful or not: more records, a larger epsilon, fewer features or typical values of the columns \
             would help."
        }
        _ => {
            "Do not expect a useful model: more records, a larger epsilon, fewer features or typical values of the columns would \
             help."
        }
    }
}

/// Budget and noise of a few rounds.
fn noise(plan: &Plan, row: &Row) -> String {
    let rounds = plan.noise(row);
    let (Some(first), Some(last)) = (rounds.first(), rounds.last()) else { return String::new() };
    let masked = first.masks > 0.0;
    let mut text = format!(
        "\nnoise of {}: {} of {} rounds are data rounds and are noised, the others cost nothing\n\
         \x20 round     phi          sigma per coordinate{}\n",
        row.algorithm,
        rounds.len(),
        row.study.rounds(),
        if masked { ", and of all masks of a client, which cancel between the clients" } else { "" }
    );
    let shown = [first, &rounds[rounds.len() / 2], last];
    for (i, r) in shown.iter().enumerate() {
        if i == 0 || shown[i - 1].round != r.round {
            let masks = if masked { format!("           {:.4e}", r.masks) } else { String::new() };
            let _ = writeln!(text, "  {:<9} {:<12} {:.4e}{masks}", r.round, digits(r.phi, true), r.sigma);
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

/// The plan as JSON, with the place of the study.
fn json(plan: &Plan, trust: &[TrustRow], out: &Path) -> String {
    let mut json = plan::to_json(plan, trust);
    json["study"] = out.display().to_string().into();
    json.to_string()
}
