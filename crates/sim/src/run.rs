//! Runs a study: many clients, round by round, in as many trials as asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rayon::prelude::*;
use thiserror::Error;
use undertone_core::algorithm::Run;
use undertone_core::client::{RoundError, Rules};
use undertone_core::graph::{Graph, GraphError};
use undertone_core::privacy::{ClientBudget, Noise};
use undertone_core::problem::Problem;
use undertone_core::study::{Redraw, Study};
use undertone_data::{DataError, Model, mean};

use crate::central::{self, Central, CentralError, Losses};
use crate::data::Population;
use crate::metrics::{Band, Metrics, Models, PerModel, Yardstick};
use crate::network::{ClientVectors, Ground, Special, Stuck};
use crate::outcome::{Outcome, Point};
use undertone_core::watch::Watch;

/// A study that could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
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
    run_with(study, shared, watch, &|trial| Ok(Arc::new(Population::load(study, trial)?)))
}

/// Runs a study on records in memory, which [`Population::from_tables`] made for it, in place of its data source.
pub fn run_on(study: &Study, population: Population, watch: &dyn Watch) -> Result<Outcome, SimError> {
    if !population.is_for(study) {
        return Err(SimError::OtherStudy);
    }
    let population = Arc::new(population);
    run_with(study, &Shared::default(), watch, &|_| Ok(population.clone()))
}

/// Where the records of a trial come from.
type Load<'a> = &'a (dyn Fn(u32) -> Result<Arc<Population>, SimError> + Sync);

fn run_with(study: &Study, shared: &Shared, watch: &dyn Watch, load: Load) -> Result<Outcome, SimError> {
    let started = Instant::now();
    let guard = Guard::new(study);
    let first = Trial::new(study, shared, 0, load)?;
    let setup_seconds = started.elapsed().as_secs_f64();
    let simulation = study.spec().simulation;
    let total = u64::from(simulation.trials) * u64::from(study.rounds());
    let work = Work { done: AtomicU64::new(0), total, watch };
    let results: Result<Vec<Measured>, SimError> = (0..simulation.trials)
        .into_par_iter()
        .map(|trial| {
            if trial == 0 || simulation.redraw == Redraw::Noise {
                first.run(study, &guard, trial, &work)
            } else {
                Trial::new(study, shared, trial, load)?.run(study, &guard, trial, &work)
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
        let key = format!("{:?} {problem:?} {clip:?} {} {trial}", spec.data, spec.seed);
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
}

impl Guard {
    fn new(study: &Study) -> Self {
        Self { noise: study.noise(), budget: study.privacy().map(|privacy| privacy.client_budget(None)) }
    }
}

/// What a trial runs on.
struct Trial {
    population: Arc<Population>,
    graph: Graph,
    problem: Problem,
    central: Result<Central, CentralError>,
    surrogate: Option<Central>,
    special: HashMap<usize, Special>,
}

impl Trial {
    fn new(study: &Study, shared: &Shared, trial: u32, load: Load) -> Result<Self, SimError> {
        let population = load(trial)?;
        let graph = study.build_graph(population.names(), trial)?;
        let mut special = HashMap::new();
        for (name, client) in &study.spec().clients {
            let k = population.names().find(name).ok_or_else(|| SimError::UnknownClient {
                name: name.clone(),
                clients: population.names().to_string(),
            })?;
            special.insert(k, Special { eta: client.eta, budget: study.client_budget(name) });
        }
        let problem = study.problem(|| population.paper_lambda1());
        let solve = |losses| shared.solve(study, &population, &problem, losses, trial);
        let clipped = study.privacy().is_some() && study.algorithm().clips() && !shared.exact_only;
        let central = solve(Losses::Exact);
        let surrogate = if clipped && central.is_ok() { solve(Losses::Clipped).ok() } else { None };
        Ok(Self { population, graph, problem, central, surrogate, special })
    }

    fn run(&self, study: &Study, guard: &Guard, trial: u32, work: &Work) -> Result<Measured, SimError> {
        let ground = Ground {
            population: &self.population,
            run: Run { rounds: study.rounds(), graph: &self.graph, problem: &self.problem },
            rules: Rules { algorithm: study.algorithm() },
            special: &self.special,
            privacy: guard.budget.as_ref().zip(guard.noise.as_ref()),
            trial,
        };
        let yardstick = Yardstick {
            population: &self.population,
            problem: &self.problem,
            central: self.central.as_ref().ok(),
            surrogate: self.surrogate.as_ref(),
        };
        let mut vectors = ClientVectors::new(&self.population, study.algorithm());
        let mut metrics = Vec::new();
        for round in 1..=study.rounds() {
            let measured = is_measured(study, round);
            vectors.round(&ground, round, measured).map_err(|Stuck { client, reason }| SimError::Round {
                client: self.population.names().get(client).into_owned(),
                round,
                reason,
            })?;
            if measured {
                let ClientVectors { w, released, average, .. } = &vectors;
                let found = yardstick.measure(&Models { w, released, average });
                if !found.is_finite() {
                    return Err(SimError::Diverged { round });
                }
                metrics.push(found);
            }
            work.add_round()?;
        }
        Ok(Measured { metrics, vectors: (trial == 0).then_some(vectors) })
    }
}

fn is_measured(study: &Study, round: u32) -> bool {
    round.is_multiple_of(study.spec().simulation.metrics_every) || round == study.rounds()
}

/// What came of a trial.
struct Measured {
    metrics: Vec<Metrics>,
    /// Kept of the first trial.
    vectors: Option<ClientVectors>,
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
    let final_errors = trials.iter().filter_map(|t| t.metrics.last()?.error).collect();
    let vectors = trials.into_iter().find_map(|t| t.vectors).expect("the first trial keeps its vectors");
    let features = first.population.features();
    Outcome {
        points,
        final_errors,
        model: Model::new(study, mean(&vectors.released, features), Some(mean(&vectors.average, features))),
        names: first.population.names().clone(),
        clients: vectors.w.into_vec(),
        released: vectors.released.into_vec(),
        edges: first.graph.edges(),
        records: first.population.total_records(),
        regularizer: first.problem.regularizer,
        central: first.central.clone(),
        surrogate: first.surrogate.clone(),
        epsilon: promise.map(|privacy| privacy.promised().get()),
        study: study.clone(),
        setup_seconds: 0.0,
        seconds: 0.0,
    }
}

fn bands(rows: &[&Metrics], pick: impl Fn(&Metrics) -> Option<PerModel>) -> Option<PerModel<Band>> {
    let values: Vec<PerModel> = rows.iter().map(|m| pick(m)).collect::<Option<_>>()?;
    let band = |part: fn(&PerModel) -> f64| Band::of(values.iter().map(part).collect());
    Some(PerModel { w: band(|m| m.w), released: band(|m| m.released), average: band(|m| m.average) })
}
