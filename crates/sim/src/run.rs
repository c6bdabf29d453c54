//! Runs a study: many clients, round by round, in as many trials as asked for.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use rayon::prelude::*;
use undertone_core::privacy::Epsilon;
use undertone_core::records::TRIALS;
use undertone_core::study::{NoiseKind, Privacy, Redraw, Study};
use undertone_core::watch::Watch;
use undertone_data::{Closed, Held, Model};

use crate::checkpoint::{Checkpoint, Done, fingerprint};
use crate::data::Population;
pub use crate::error::SimError;
use crate::metrics::{Band, Metrics, PerModel};
use crate::outcome::{HeldOut, Outcome, Point};
use crate::ranks::{Alone, Ranks, packed, unpacked};
use crate::trial::{Guard, Kept, Load, Measured, Source, Trial, Work, is_measured};
pub use crate::trial::{Shared, last_release};

/// Runs a study.
pub fn run(study: &Study, watch: &dyn Watch) -> Result<Outcome, SimError> {
    run_sharing(study, &Shared::default(), watch)
}

/// Runs a study that shares its central solutions with others on the same data.
pub fn run_sharing(study: &Study, shared: &Shared, watch: &dyn Watch) -> Result<Outcome, SimError> {
    run_with(study, shared, watch, &load)
}

/// Runs a study on records in memory, which [`Population::from_tables`] made for it, in place of its data source.
pub fn run_on(study: &Study, population: Population, watch: &dyn Watch) -> Result<Outcome, SimError> {
    if !population.is_for(study) {
        return Err(SimError::OtherStudy);
    }
    if study.moments().is_some() || study.privacy().is_some_and(|privacy| privacy.after().get() > 0.0) {
        return run_with(study, &Shared::default(), watch, &|stage, _| Ok(Arc::new(population.again(stage)?)));
    }
    let population = Arc::new(population);
    run_with(study, &Shared::default(), watch, &|_, _| Ok(population.clone()))
}

/// Runs a study on records that are loaded already: `populations[trial]` for each trial where trials have records of their own, else the first.
///
/// # Panics
/// If there are too few.
pub fn run_on_loaded(study: &Study, populations: &[Arc<Population>], watch: &dyn Watch) -> Result<Outcome, SimError> {
    run_with(study, &Shared::default(), watch, &|_, trial| Ok(populations[trial as usize].clone()))
}

/// What several processes divide among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// The clients of a network that does not fit one machine.
    #[default]
    Clients,
    /// The trials of a study: every process has all clients.
    Trials,
}

/// Runs a study together with other processes, which all call this. The first of them gets the outcome. Its bits are those of [`run`].
pub fn run_across(
    study: &Study,
    ranks: &dyn Ranks,
    spread: Spread,
    checkpoint: Option<&Checkpoint>,
    watch: &dyn Watch,
) -> Result<Option<Outcome>, SimError> {
    run_spread(study, &Shared::default(), watch, &load, ranks, (spread, checkpoint))
}

fn load(study: &Study, trial: u32) -> Result<Arc<Population>, SimError> {
    Ok(Arc::new(Population::load(study, trial)?))
}

fn run_with(study: &Study, shared: &Shared, watch: &dyn Watch, load: Load) -> Result<Outcome, SimError> {
    let outcome = run_spread(study, shared, watch, load, &Alone, (Spread::Clients, None))?;
    Ok(outcome.expect("one process is the first"))
}

fn run_spread(
    study: &Study,
    shared: &Shared,
    watch: &dyn Watch,
    load: Load,
    ranks: &dyn Ranks,
    (spread, checkpoint): (Spread, Option<&Checkpoint>),
) -> Result<Option<Outcome>, SimError> {
    let started = Instant::now();
    // Where trials are divided, each process computes its own as if it were the only one.
    let is_secure = study.privacy().is_some_and(|privacy| privacy.noise() == NoiseKind::Secure);
    if is_secure && spread == Spread::Clients {
        let is_masked = study.privacy().is_some_and(|privacy| privacy.colluders().is_some());
        if is_masked && !ranks.is_alone() {
            return Err(SimError::DrawnAnew("other masks in every process, which do not cancel"));
        }
        if checkpoint.is_some() && study.moments().is_some() {
            return Err(SimError::DrawnAnew("other typical values at every start, which a state cannot go on with"));
        }
    }
    let keeper = checkpoint.map(|checkpoint| checkpoint.open(study, ranks)).transpose()?;
    let keeper = keeper.as_ref();
    let source = Source { load, ranks: if spread == Spread::Trials { &Alone } else { ranks }, keeper };
    let ready = || {
        let first = Trial::new(study, shared, 0, source)?;
        let guard = Guard::new(study, &first.population)?;
        Ok((first, guard))
    };
    let (first, guard) = ranks.agree(ready())?;
    if let Some(keeper) = keeper {
        keeper.check_records(fingerprint(&first.population, ranks))?;
    }
    let setup_seconds = started.elapsed().as_secs_f64();
    let simulation = study.spec().simulation;
    // Where columns are standardised privately, the noise of a trial decides about its features too; and others are lost or lie.
    let anew =
        simulation.redraw == Redraw::All || study.moments().is_some() || simulation.losses + simulation.liars > 0;
    let most = if anew { 1 } else { first.most_side_by_side(&guard) };
    let mine = |index: usize| spread == Spread::Clients || index % ranks.size() == ranks.rank();
    let at_once = source.ranks.is_alone() && keeper.is_none();
    let workers = if at_once { ranks.size() * rayon::current_num_threads() } else { 1 };
    let groups = groups(simulation.trials, most, workers).into_iter().enumerate();
    let groups: Vec<Range<u32>> = groups.filter(|(index, _)| mine(*index)).map(|(_, trials)| trials).collect();
    let total = groups.iter().map(|trials| trials.len() as u64).sum::<u64>() * u64::from(study.rounds());
    let work = Work { done: AtomicU64::new(0), total, watch };
    let one = |trials: Range<u32>, source: Source| {
        let start = trials.start;
        let done = source.keeper.map(|keeper| source.ranks.agree(keeper.done(start))).transpose()?.flatten();
        if let Some(Done { measured, kept }) = done {
            let mut measured: Vec<Measured> = unpacked(&measured);
            measured[0].kept = kept.map(|kept| unpacked(&kept));
            return Ok((start, measured));
        }
        let measured = if start == 0 || !anew {
            first.run(&guard, trials, &work, source)
        } else {
            Trial::new(study, shared, start, source)?.run(&guard, trials, &work, source)
        };
        let measured = measured?;
        if let Some(keeper) = source.keeper {
            let kept = measured[0].kept.as_ref().map(packed);
            keeper.finish(start, packed(&measured), kept, source.ranks)?;
        }
        Ok((start, measured))
    };
    // Ranks that share clients compute the same trials at the same time; and a state is that of one group of trials.
    let results: Result<Vec<_>, SimError> = match at_once {
        true => {
            groups.into_par_iter().map(|trials| one(trials, Source { load, ranks: &Alone, keeper: None })).collect()
        }
        false => groups.into_iter().map(|trials| one(trials, source)).collect(),
    };
    let mut results = ranks.agree(results)?;
    if spread == Spread::Trials && !ranks.is_alone() {
        let own = if ranks.is_first() { Vec::new() } else { std::mem::take(&mut results) };
        results.extend(ranks.gather_first(&own).unwrap_or_default().into_iter().flatten());
        results.sort_by_key(|(start, _)| *start);
    }
    let held = first.held(source.ranks);
    let Some(held) = held.filter(|_| ranks.is_first()) else { return Ok(None) };
    let mut outcome = outcome(study, &first, &held, results.into_iter().flat_map(|(_, measured)| measured).collect());
    outcome.setup_seconds = setup_seconds;
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(Some(outcome))
}

/// All trials in groups of at most `most`, for so many workers. A result does not depend on them.
fn groups(trials: u32, most: usize, workers: usize) -> Vec<Range<u32>> {
    if most == 1 {
        return (0..trials).map(|trial| trial..trial + 1).collect();
    }
    let each = (trials as usize).div_ceil(workers).next_multiple_of(TRIALS).min(most);
    (0..trials).step_by(each).map(|first| first..(first + each as u32).min(trials)).collect()
}

fn outcome(study: &Study, first: &Trial, held: &[Held], trials: Vec<Measured>) -> Outcome {
    // Without clipping there is no privacy, whatever the noise.
    let promise = study.privacy().filter(|_| study.algorithm().clips());
    let measured = (1..=study.rounds()).filter(|&round| is_measured(study, round));
    let points = measured
        .enumerate()
        .map(|(i, round)| {
            let rows: Vec<&Metrics> = trials.iter().map(|t| &t.metrics[i]).collect();
            let spent = promise.map(|privacy| privacy.spent(round));
            Point {
                round,
                rho: spent.map(|s| s.0.get()),
                epsilon: spent.map(|s| s.1.get()),
                error: bands(&rows, |m| m.error),
                surrogate_error: bands(&rows, |m| m.surrogate_error),
                objective: Band::of(rows.iter().map(|m| m.objective).collect()),
                consensus: Band::of(rows.iter().map(|m| m.consensus).collect()),
            }
        })
        .collect();
    let overshoots = trials.iter().any(|t| t.overshoots);
    let regrets: Vec<f64> = trials.iter().filter_map(|t| t.regret).collect();
    let closed: Vec<Closed> = trials.iter().filter_map(|t| t.closed.clone()).collect();
    let final_errors = trials.iter().filter_map(|t| t.metrics.last()?.error).collect();
    let Kept { model, average, points: last } = trials.into_iter().find_map(|t| t.kept).expect("of the first trial");
    let pooled = first.central.as_ref().ok().map(|central| &central.w[..]);
    let held_out = HeldOut::new(&first.study, held, &model, pooled);
    Outcome {
        points,
        final_errors,
        regret: (!regrets.is_empty()).then(|| Band::of(regrets)),
        model: Model::new(&first.study, model),
        average,
        names: first.population.names().clone(),
        clients: last.w.into_owned(),
        released: last.released.into_owned(),
        edges: first.graph.edges(),
        records: first.population.records_of_clients(),
        held_out,
        closed,
        spread: None,
        overshoots,
        regularizer: first.problem.regularizer,
        central: first.central.clone(),
        surrogate: first.surrogate.clone(),
        null_objective: first.null,
        epsilon: promise.map(|privacy| privacy.promised().get()),
        epsilon_alone: promise.and_then(|privacy| epsilon_alone(study, privacy, &first.population)),
        study: study.clone(),
        fitted: first.study.clone(),
        setup_seconds: 0.0,
        seconds: 0.0,
    }
}

/// The epsilon of the most exposed client if all others collude.
fn epsilon_alone(study: &Study, privacy: &Privacy, population: &Population) -> Option<f64> {
    if privacy.colluders().is_none() {
        return Some(privacy.promised().get());
    }
    let spent = study.exposure(population.clients()).ok()??;
    privacy.epsilon(spent.alone).map(Epsilon::get)
}

fn bands(rows: &[&Metrics], pick: impl Fn(&Metrics) -> Option<PerModel>) -> Option<PerModel<Band>> {
    let values: Vec<PerModel> = rows.iter().map(|m| pick(m)).collect::<Option<_>>()?;
    let band = |part: fn(&PerModel) -> f64| Band::of(values.iter().map(part).collect());
    Some(PerModel { w: band(|m| m.w), released: band(|m| m.released), average: band(|m| m.average) })
}
