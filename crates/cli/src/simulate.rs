//! `undertone simulate`: a study with all clients in this process.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use undertone_core::study::{DataSpec, Document, Study};
use undertone_data::DataError;
use undertone_sim::checkpoint::Checkpoint;
use undertone_sim::ranks::{Ranks, helped_by};
use undertone_sim::{Outcome, SimError, Spread, Watch, folder};

use crate::new::EXAMPLE;
use crate::ranks;
use crate::{Failure, digits, free_folder, print, study, tell, with_bar};

#[derive(clap::Args)]
pub struct Arguments {
    /// The study; without one, the example that `undertone new` writes
    study: Option<PathBuf>,

    /// File or folder with the data, in place of the study's data.path
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Run folder; without it the first free one of undertone-run, undertone-run-2, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Replace one key of the study, such as privacy.epsilon=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Number of threads; without it, one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,

    /// Folder for the state of the run, from which the same command goes on after it was ended
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,

    /// Time between two states
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "10min", requires = "checkpoint")]
    every: Duration,

    /// What processes that mpirun started divide among them: the clients of one large network, or the trials
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Divided::Clients)]
    spread: Divided,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Divided {
    Clients,
    Trials,
}

pub fn run(arguments: &Arguments, helpers: &Rc<dyn Ranks>) -> Result<(), Failure> {
    let ranks = &**helpers;
    let (document, path) = ranks::agree(ranks, read(arguments))?;
    // Before anything is done together: processes that do other things would wait for each other for ever.
    let asked = ranks::agree(ranks, document.spec().map(|spec| spec.to_toml()).map_err(Failure::input))?;
    let together = (arguments.checkpoint.is_some(), arguments.spread == Divided::Trials, path.is_some());
    ranks::same_everywhere(ranks, &format!("{asked}\ncheckpoint, trials, data: {together:?}"))?;
    let study = helped_by(helpers, || resolve(&document, path))?;
    let out = arguments.out.clone().unwrap_or_else(|| free_folder("undertone-run"));
    let prepared = if ranks.is_first() { prepare(arguments, &out) } else { Ok(()) };
    ranks::agree(ranks, prepared)?;
    let checkpoint = arguments.checkpoint.clone().map(|folder| Checkpoint { folder, every: arguments.every });
    let spread = if arguments.spread == Divided::Trials { Spread::Trials } else { Spread::Clients };
    let run = |watch: &dyn Watch| undertone_sim::run_across(&study, ranks, spread, checkpoint.as_ref(), watch);
    let outcome = match with_bar(study.name(), run) {
        Ok(Some(outcome)) => Ok(Outcome { spread: undertone_plan::spread_of(&study, &outcome), ..outcome }),
        // The first process writes what came of it.
        Ok(None) => return ranks::agree(ranks, Ok(())),
        Err(error) => Err(error),
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            // Nothing was written: remove the empty folder.
            if ranks.is_first() {
                let _ = std::fs::remove_dir(&out);
            }
            return Err(failed(error));
        }
    };
    ranks::agree(ranks, folder::write(&outcome, &out).map_err(Failure::machine))?;
    if let Some(checkpoint) = &checkpoint {
        // What is left of it is only in the way of the next run, which will say so.
        let _ = checkpoint.clear();
    }
    for notice in outcome.notices() {
        tell(&format!("note: {notice}"));
    }
    if arguments.json { print(&outcome.to_json().to_string()) } else { print(&report(&outcome, &out)) }
}

/// Makes the run folder. A run that was ended while it wrote its folder, and goes on, writes it again.
fn prepare(arguments: &Arguments, out: &Path) -> Result<(), Failure> {
    let Some(state) = &arguments.checkpoint else { return folder::prepare(out).map_err(Failure::input) };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    if absolute(state).starts_with(absolute(out)) {
        let message =
            format!("--checkpoint {}: is in the run folder {}; choose another place", state.display(), out.display());
        return Err(Failure::input(message));
    }
    let goes_on = Checkpoint { folder: state.clone(), every: arguments.every }.has_state();
    if goes_on && folder::is_run(out) { Ok(()) } else { folder::prepare(out).map_err(Failure::input) }
}

/// The study with its `--set`s, and where its data is.
fn read(arguments: &Arguments) -> Result<(Document, Option<PathBuf>), Failure> {
    if arguments.checkpoint.is_some() && arguments.spread == Divided::Trials {
        return Err(Failure::input("--checkpoint keeps the state of clients; leave out --spread trials"));
    }
    let mut document = match &arguments.study {
        None => study::parse(EXAMPLE, "the example study", &arguments.set)?,
        Some(path) => study::document(path, &arguments.set)?,
    };
    let path = data_path(arguments, &document.spec().map_err(Failure::input)?.data)?;
    if let Some(path) = &path
        && study::is_auto(&document)?
    {
        study::check_files(&mut document, path)?;
    }
    study::tell_oddities(&document);
    Ok((document, path))
}

/// What is run. The data path is made absolute, so that the resolved study finds the data from
/// anywhere: `--data` is relative to the current folder, the study's own path to the study.
fn resolve(document: &Document, path: Option<PathBuf>) -> Result<Study, Failure> {
    let (study, chosen) = study::resolve(document)?;
    if let Some(chosen) = chosen {
        tell(&format!("note: {chosen}"));
    }
    match path {
        Some(path) => study.spec().clone().data_path(path.display().to_string()).check().map_err(Failure::input),
        None => Ok(study),
    }
}

/// Where the files are; none for a study that generates its data.
fn data_path(arguments: &Arguments, data: &DataSpec) -> Result<Option<PathBuf>, Failure> {
    if data.is_made_up() {
        return match arguments.data {
            None => Ok(None),
            Some(_) => {
                let message = "--data: the study generates its data; set data.source to folder, column or split";
                Err(Failure::input(message))
            }
        };
    }
    let path = arguments.data.clone().or_else(|| study::own_path(arguments.study.as_deref(), data));
    let path = path.ok_or_else(|| Failure::input(DataError::no_path()))?;
    std::path::absolute(&path).map(Some).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}

fn failed(error: SimError) -> Failure {
    if error.is_of_the_machine() { Failure::machine(error) } else { Failure::input(error) }
}

fn report(outcome: &Outcome, out: &Path) -> String {
    let last = outcome.last();
    let study = &outcome.study;
    let mut lines = vec![format!(
        "{}: {} over {} rounds, {} clients, {} edges, {} records, {} trial(s), {:.2} s",
        study.name(),
        study.algorithm().name(),
        study.rounds(),
        outcome.names.len(),
        outcome.edges,
        outcome.records.iter().sum::<usize>(),
        study.spec().simulation.trials,
        outcome.seconds
    )];
    if let Some(regret) = outcome.regret {
        let range = match study.spec().simulation.trials {
            1 => String::new(),
            _ => format!(" (in trials {:.2} to {:.2})", 1.0 - regret.q90, 1.0 - regret.q10),
        };
        lines.push(format!(
            "skill {:.2}{range}: 1 is as good as pooled data without privacy, 0 no better than the mean of the target{}",
            1.0 - regret.mean,
            match study.spec().plan.as_ref().and_then(|plan| plan.skill) {
                Some((worse, better)) => format!("\n  on the records learned from; planned on new ones: {worse:.2} to {better:.2}"),
                None => "; on the records learned from".into(),
            }
        ));
    }
    if let Some(error) = &last.error {
        lines.push("normalised error, summed over clients (mean of trials, 10% to 90%)".into());
        let rows =
            [("w, before the noise", error.w), ("released", error.released), ("average of released", error.average)];
        for (name, band) in rows {
            lines.push(format!("  {name:<22}{:>12.4e}   {:.2e} to {:.2e}", band.mean, band.q10, band.q90));
        }
    }
    if let Some(held) = &outcome.held_out {
        let rows = held.private.len();
        lines.push(format!("on {rows} records that were kept out of training:"));
        lines.push(format!("  {:<26}{:>12}{:>12}{:>14}", "", "private", "pooled", "no features"));
        let pooled = held.pooled.as_ref().map(|scored| scored.scores()).unwrap_or_default();
        for score in held.private.scores() {
            let other = pooled.iter().find(|other| other.name == score.name).map(|other| other.model);
            let shown = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
            let (own, other, null) = (shown(Some(score.model)), shown(other), shown(score.null));
            lines.push(format!("  {:<26}{own:>12}{other:>12}{null:>14}", score.name));
        }
    }
    if let Some(closed) = outcome.closed.first() {
        lines.extend(crate::uncertainty::lines(&closed.to_json()));
    }
    lines.push(format!("objective {:.6}, consensus distance {:.3e}", last.objective.mean, last.consensus.mean));
    if let (Some(privacy), Some(rho), Some(epsilon)) = (study.privacy(), last.rho, outcome.epsilon) {
        let others: Vec<String> = outcome
            .epsilons()
            .unwrap_or_default()
            .iter()
            .map(|(accountant, e)| format!("{} {}", accountant.name(), digits(*e, true)))
            .collect();
        lines.push(format!(
            "privacy spent: epsilon {} at delta {:e}, rho {} (by accountant: {})",
            digits(epsilon, true),
            privacy.delta().get(),
            digits(rho, true),
            others.join(", ")
        ));
        if let Some(colluders) = privacy.colluders() {
            lines.push(format!(
                "  as long as at most {colluders} of {} clients pool what they know; if all others of a client do: epsilon {}",
                outcome.names.len(),
                outcome.epsilon_alone.map_or("without bound".into(), |alone| digits(alone, true))
            ));
        }
    }
    lines.push(format!("written to {}", out.display()));
    lines.join("\n")
}
