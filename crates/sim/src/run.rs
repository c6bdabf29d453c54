//! Runs a study: many clients, round by round, in as many trials as asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rayon::prelude::*;
use thiserror::Error;
use undertone_core::algorithm::{Robust, Run};
use undertone_core::client::{RoundError, Rules};
use undertone_core::graph::{Graph, GraphError};
use undertone_core::names::Names;
use undertone_core::privacy::{ClientBudget, Epsilon, Masking, Masks, Noise};
use undertone_core::problem::Problem;
use undertone_core::study::{ClientSpec, Privacy, Redraw, Study, StudyError};
use undertone_core::swing::Swing;
use undertone_data::{Closed, DataError, Model, mean, trimmed_mean};

use crate::central::{self, Central, CentralError, Losses};
use crate::data::Population;
use crate::liars::Liars;
use crate::losses::LostClients;
use crate::metrics::{Band, Metrics, Models, PerModel, Yardstick};
use crate::network::{ClientVectors, Ground, Special, Stuck};
use crate::outcome::{HeldOut, Outcome, Point};
use undertone_core::watch::Watch;

/// A study that could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The columns cannot be standardised.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The graph cannot be used.
    #[error("graph: {0}")]
    Graph(#[from] GraphError),
    /// The study names a client that does not exist.
    #[error("client.{name}: there is no client of that name; the clients are {clients}")]
    UnknownClient {
        /// The name in the study.
        name: String,
        /// The names there are.
        clients: String,
    },
    /// The records were stored for a study with another clip or other features.
    #[error(
        "the records were stored for another study: its columns, loss or clip differ; make the population for this one"
    )]
    OtherStudy,
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A client could not finish a round.
    #[error("client \"{client}\" could not finish round {round}: {reason}")]
    Round {
        /// Which client.
        client: String,
        /// Which round.
        round: u32,
        /// Why.
        reason: RoundError,
    },
    /// The models diverged.
    #[error(
        "the run diverged: in round {round} the models are no longer finite; lower eta, raise rho, or raise lambda"
    )]
    Diverged {
        /// The first measured round with infinite models.
        round: u32,
    },
}

/// Runs a study.
pub fn run(study: &Study, watch: &dyn Watch) -> Result<Outcome, SimError> {
    run_sharing(study, &Shared::default(), watch)
}

/// Runs a study that shares its central solutions with others on the same data.
pub fn run_sharing(study: &Study, shared: &Shared, watch: &dyn Watch) -> Result<Outcome, SimError> {
    run_with(study, shared, watch, &|study, trial| Ok(Arc::new(Population::load(study, trial)?)))
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

/// The mean over clients of what they release last, on these records and this graph: what becomes the model. Nothing is measured.
pub fn last_release(
    study: &Study,
    problem: &Problem,
    population: &Population,
    graph: &Graph,
    trial: u32,
) -> Result<Vec<f64>, SimError> {
    last_releases(study, problem, population, graph, trial).map(|(_, model)| model)
}

/// What all clients release last, flat, and the mean of it over those that are left.
fn last_releases(
    study: &Study,
    problem: &Problem,
    population: &Population,
    graph: &Graph,
    trial: u32,
) -> Result<(Vec<f64>, Vec<f64>), SimError> {
    let guard = Guard::new(study, population)?;
    let special = special(study, population.names(), &guard)?;
    let losses = LostClients::draw(study, graph, trial)?;
    let liars = Liars::draw(study, graph, trial)?;
    let mut vectors = ClientVectors::new(population, study, graph);
    let (losses, liars) = (losses.as_ref(), liars.as_ref());
    let robust = study.robust(graph);
    let robust = robust.as_ref();
    let setting = Setting { study, population, graph, problem, special: &special, losses, liars, robust };
    let ground = setting.ground(&guard, trial);
    for round in 1..=study.rounds() {
        vectors.round(&ground, round, false).map_err(|stuck| stuck.in_round(round, population.names()))?;
    }
    let model = setting.mean(&vectors.released);
    match model.iter().all(|v| v.is_finite()) {
        true => Ok((vectors.released.into_vec(), model)),
        false => Err(SimError::Diverged { round: study.rounds() }),
    }
}

/// Where the records of a trial come from.
type Load<'a> = &'a (dyn Fn(&Study, u32) -> Result<Arc<Population>, SimError> + Sync);

fn run_with(study: &Study, shared: &Shared, watch: &dyn Watch, load: Load) -> Result<Outcome, SimError> {
    let started = Instant::now();
    let first = Trial::new(study, shared, 0, load)?;
    let guard = Guard::new(study, &first.population)?;
    let setup_seconds = started.elapsed().as_secs_f64();
    let simulation = study.spec().simulation;
    let total = u64::from(simulation.trials) * u64::from(study.rounds());
    let work = Work { done: AtomicU64::new(0), total, watch };
    let results: Result<Vec<Measured>, SimError> = (0..simulation.trials)
        .into_par_iter()
        .map(|trial| {
            // Where columns are standardised privately, the noise of a trial decides about its features too; and others are lost or lie.
            let anew = simulation.redraw == Redraw::All
                || study.moments().is_some()
                || simulation.losses + simulation.liars > 0;
            if trial == 0 || !anew {
                first.run(&guard, trial, &work, load)
            } else {
                Trial::new(study, shared, trial, load)?.run(&guard, trial, &work, load)
            }
        })
        .collect();
    let mut outcome = outcome(study, &first, results?);
    outcome.setup_seconds = setup_seconds;
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Central solutions, which depend on the data and the problem but not on the algorithm: found once, used by every run
/// that is given the same `Shared`.
#[derive(Debug, Default)]
pub struct Shared {
    solved: Mutex<HashMap<String, Result<Central, CentralError>>>,
    exact_only: bool,
}

impl Shared {
    /// Does not solve the clipped problems, for runs whose distance to them is not needed.
    pub fn exact_only() -> Self {
        Self { exact_only: true, ..Self::default() }
    }

    /// The solution of a study's pooled problem, computed now if it is not known.
    fn solve(
        &self,
        study: &Study,
        population: &Population,
        problem: &Problem,
        losses: Losses,
        trial: u32,
    ) -> Result<Central, CentralError> {
        let spec = study.spec();
        if !spec.simulation.central {
            return Err(CentralError::NotAsked);
        }
        let clip = study.privacy().filter(|_| losses == Losses::Clipped).map(|p| p.clip());
        let key = format!("{:?} {:?} {problem:?} {clip:?} {} {trial}", spec.data, spec.weights, spec.seed);
        if let Some(known) = self.solved.lock().expect("no solver panics").get(&key) {
            return known.clone();
        }
        let found = central::solve(population, problem, losses);
        self.solved.lock().expect("no solver panics").insert(key, found.clone());
        found
    }
}

/// How far a run is.
struct Work<'a> {
    done: AtomicU64,
    total: u64,
    watch: &'a dyn Watch,
}

impl Work<'_> {
    /// One round more is done.
    fn add_round(&self) -> Result<(), SimError> {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // A thousand reports are enough for a progress bar.
        if done.is_multiple_of((self.total / 1000).max(1)) || done == self.total {
            self.watch.progress(done as f64 / self.total as f64);
        }
        if self.watch.is_cancelled() { Err(SimError::Cancelled) } else { Ok(()) }
    }
}

/// The study's promise of privacy, ready to use; none of it without privacy.
struct Guard {
    noise: Option<Noise>,
    budget: Option<ClientBudget>,
    /// What masked noise is made for, and where masks come from; none if nobody is trusted.
    masking: Option<Masking>,
    masks: Option<Masks>,
    /// The largest value that peers would accept.
    largest: f64,
}

impl Guard {
    fn new(study: &Study, population: &Population) -> Result<Self, SimError> {
        let mean = || population.total_records() as f64 / population.clients() as f64;
        let masking = study.masking(population.clients(), mean)?;
        let no_masks = |reason| SimError::Round {
            client: population.names().get(0).into_owned(),
            round: 1,
            reason: RoundError::Noise(reason),
        };
        Ok(Self {
            noise: study.noise(),
            budget: study.privacy().map(|privacy| privacy.client_budget(None).masked(masking)),
            masking,
            masks: study.simulated_masks().map_err(no_masks)?,
            largest: study.reach(population.clients()),
        })
    }
}

/// What a trial runs on.
struct Trial {
    /// The study, with the typical values that private standardisation gave it.
    study: Study,
    population: Arc<Population>,
    graph: Graph,
    problem: Problem,
    central: Result<Central, CentralError>,
    surrogate: Option<Central>,
    /// The objective of the best model without features.
    null: Option<f64>,
    special: HashMap<usize, Special>,
    losses: Option<LostClients>,
    liars: Option<Liars>,
    robust: Option<Robust>,
    /// The trial whose data this is.
    draw: u32,
}

/// The study with the typical values that its clients' private moments give it, if it asks for that.
fn standardise(study: &Study, trial: u32, load: Load) -> Result<Option<Study>, SimError> {
    let Some(first) = study.moments() else { return Ok(None) };
    let population = load(&first, trial)?;
    let graph = first.build_graph(population.names(), trial)?;
    let moments = last_release(&first, &first.problem(|| 0.0), &population, &graph, trial)?;
    let divisor = population.divisor().expect("records count the same where columns are standardised");
    let trust = first.masking(population.clients(), || divisor)?.map(|masking| masking.trust);
    Ok(Some(study.standardised(&moments, population.clients(), divisor, trust.as_ref())?))
}

/// The clients that differ from the rest, by index.
fn special(study: &Study, names: &Names, guard: &Guard) -> Result<HashMap<usize, Special>, SimError> {
    let one = |(name, client): (&String, &ClientSpec)| {
        let k = names
            .find(name)
            .ok_or_else(|| SimError::UnknownClient { name: name.clone(), clients: names.to_string() })?;
        let budget = study.client_budget(name).map(|budget| budget.masked(guard.masking));
        Ok((k, Special { eta: client.eta, budget }))
    };
    study.spec().clients.iter().map(one).collect()
}

/// What a run goes on, whatever its noise.
struct Setting<'a> {
    study: &'a Study,
    population: &'a Population,
    graph: &'a Graph,
    problem: &'a Problem,
    special: &'a HashMap<usize, Special>,
    losses: Option<&'a LostClients>,
    liars: Option<&'a Liars>,
    robust: Option<&'a Robust>,
}

impl<'a> Setting<'a> {
    fn ground(&self, guard: &'a Guard, trial: u32) -> Ground<'a> {
        Ground {
            population: self.population,
            run: Run { rounds: self.study.rounds(), graph: self.graph, problem: self.problem, robust: self.robust },
            rules: Rules { algorithm: self.study.algorithm(), largest: guard.largest },
            special: self.special,
            privacy: guard.budget.as_ref().zip(guard.noise.as_ref()),
            masks: guard.masks.as_ref(),
            losses: self.losses,
            liars: self.liars,
            trial,
        }
    }

    /// The mean over the clients that are left at the end.
    fn mean(&self, all: &[f64]) -> Vec<f64> {
        let features = self.population.features();
        match self.losses {
            Some(losses) => trimmed_mean(&losses.left(all, features), features, self.study.liars()),
            None => trimmed_mean(all, features, self.study.liars()),
        }
    }
}

impl Stuck {
    fn in_round(self, round: u32, names: &Names) -> SimError {
        SimError::Round { client: names.get(self.client).into_owned(), round, reason: self.reason }
    }
}

impl Trial {
    fn new(study: &Study, shared: &Shared, trial: u32, load: Load) -> Result<Self, SimError> {
        let standardised = standardise(study, trial, load)?;
        let study = standardised.as_ref().unwrap_or(study);
        let population = load(study, trial)?;
        let graph = study.build_graph(population.names(), trial)?;
        let special = special(study, population.names(), &Guard::new(study, &population)?)?;
        let losses = LostClients::draw(study, &graph, trial)?;
        let liars = Liars::draw(study, &graph, trial)?;
        let robust = study.robust(&graph);
        let problem = study.problem(|| population.paper_lambda1());
        let solve = |losses| shared.solve(study, &population, &problem, losses, trial);
        let clipped = study.privacy().is_some() && study.algorithm().clips() && !shared.exact_only;
        let central = solve(Losses::Exact);
        let surrogate = if clipped && central.is_ok() { solve(Losses::Clipped).ok() } else { None };
        let null = central.is_ok().then(|| central::null_objective(&population, &problem));
        Ok(Self {
            study: study.clone(),
            population,
            graph,
            problem,
            central,
            surrogate,
            null,
            special,
            losses,
            liars,
            robust,
            draw: trial,
        })
    }

    fn setting(&self) -> Setting<'_> {
        Setting {
            study: &self.study,
            population: &self.population,
            graph: &self.graph,
            problem: &self.problem,
            special: &self.special,
            losses: self.losses.as_ref(),
            liars: self.liars.as_ref(),
            robust: self.robust.as_ref(),
        }
    }

    fn run(&self, guard: &Guard, trial: u32, work: &Work, load: Load) -> Result<Measured, SimError> {
        let study = &self.study;
        let setting = self.setting();
        let ground = setting.ground(guard, trial);
        let yardstick = Yardstick {
            population: &self.population,
            problem: &self.problem,
            central: self.central.as_ref().ok(),
            surrogate: self.surrogate.as_ref(),
            losses: self.losses.as_ref(),
            liars: self.liars.as_ref(),
        };
        let mut vectors = ClientVectors::new(&self.population, study, setting.graph);
        let mut metrics = Vec::new();
        let mut swing = Swing::default();
        for round in 1..=study.rounds() {
            // Of the first trial alone: the others have the same steps.
            if trial == 0 && round > 1 && study.algorithm().touches_records(round, study.rounds()) {
                swing.add(&mean(&vectors.released, self.population.features()));
            }
            let measured = is_measured(study, round);
            vectors.round(&ground, round, measured).map_err(|stuck| stuck.in_round(round, self.population.names()))?;
            if measured {
                let ClientVectors { w, released, average, .. } = &vectors;
                let found = yardstick.measure(&Models { w, released, average }, round);
                if !found.is_finite() {
                    return Err(SimError::Diverged { round });
                }
                metrics.push(found);
            }
            work.add_round()?;
        }
        let model = setting.mean(&vectors.released);
        let regret = self.regret(&model);
        let closed = self.close(trial, &model, load)?;
        let overshoots = swing.overshoots();
        let kept = (trial == 0).then(|| Kept { average: setting.mean(&vectors.average), model, vectors });
        Ok(Measured { metrics, regret, overshoots, closed, kept })
    }

    /// The closing release, if the study has one, and what it says.
    fn close(&self, trial: u32, model: &[f64], load: Load) -> Result<Option<Closed>, SimError> {
        let clients = self.population.clients();
        let Some(closing) = self.study.closing(model, clients) else { return Ok(None) };
        let population = load(&closing, self.draw)?;
        let all = last_releases(&closing, &closing.problem(|| 0.0), &population, &self.graph, trial)?.0;
        let left = self.losses.as_ref().map_or_else(|| all.to_vec(), |losses| losses.left(&all, population.features()));
        let divisor = population.divisor().expect("records count the same where there is a closing release");
        let (present, mean) = (left.len() / population.features(), mean(&left, population.features()));
        Ok(Closed::new(&self.study, &closing, &mean, (clients, present), divisor))
    }

    /// What a model loses against pooled data, as a share of what pooled data gains over no features at all; none where that is
    /// nothing.
    fn regret(&self, model: &[f64]) -> Option<f64> {
        let best = self.central.as_ref().ok()?.objective;
        let gain = self.null? - best;
        let lost = central::objective(&self.population, &self.problem, model) - best;
        (gain > 1e-9 * best.abs().max(gain)).then_some(lost / gain)
    }
}

fn is_measured(study: &Study, round: u32) -> bool {
    round.is_multiple_of(study.spec().simulation.metrics_every) || round == study.rounds()
}

/// What came of a trial.
struct Measured {
    metrics: Vec<Metrics>,
    regret: Option<f64>,
    overshoots: bool,
    /// What was released after the last round.
    closed: Option<Closed>,
    /// Of the first trial.
    kept: Option<Kept>,
}

/// What is reported of a trial besides its metrics.
struct Kept {
    /// The mean of the last releases.
    model: Vec<f64>,
    vectors: ClientVectors,
    /// The mean of the averages of releases.
    average: Vec<f64>,
}

fn outcome(study: &Study, first: &Trial, trials: Vec<Measured>) -> Outcome {
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
    let Kept { model, average, vectors } = trials.into_iter().find_map(|t| t.kept).expect("of the first trial");
    let pooled = first.central.as_ref().ok().map(|central| &central.w[..]);
    let held_out = HeldOut::new(&first.study, first.population.held(), &model, pooled);
    Outcome {
        points,
        final_errors,
        regret: (!regrets.is_empty()).then(|| Band::of(regrets)),
        model: Model::new(&first.study, model),
        average,
        names: first.population.names().clone(),
        clients: vectors.w.into_vec(),
        released: vectors.released.into_vec(),
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
