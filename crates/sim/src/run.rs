//! Runs a study: many clients, round by round, in as many trials as asked for.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rayon::prelude::*;
use thiserror::Error;
use undertone_core::client::{Protection, RoundError, Rules};
use undertone_core::graph::{Graph, GraphError};
use undertone_core::privacy::{Noise, NoiseError, Schedule};
use undertone_core::problem::Problem;
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{NoiseKind, Redraw, RegularizerSpec, Study};
use undertone_data::{DataError, Model, mean};

use crate::central::{self, Central, Losses};
use crate::data::Population;
use crate::metrics::{Band, Metrics, Models, PerModel, Yardstick};
use crate::network::{Network, Special, Stuck, World};
use crate::outcome::{Outcome, Point};

/// A study that could not be run.
#[derive(Debug, Error)]
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
    /// No secure noise.
    #[error(transparent)]
    Noise(#[from] NoiseError),
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
    /// The models went to infinity.
    #[error(
        "the run diverged: in round {round} the models are no longer finite; lower eta, raise rho, or raise lambda"
    )]
    Diverged {
        /// The first measured round with infinite models.
        round: u32,
    },
}

/// Called now and then with the share of the work that is done, from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(f64) + Sync);

/// Runs a study.
pub fn run(study: &Study, progress: Progress) -> Result<Outcome, SimError> {
    run_sharing(study, &Shared::default(), progress)
}

/// Runs a study that shares its central solutions with others on the same data.
pub fn run_sharing(study: &Study, shared: &Shared, progress: Progress) -> Result<Outcome, SimError> {
    let started = Instant::now();
    let guard = Guard::new(study)?;
    let first = Setup::new(study, &guard, shared, 0)?;
    let setup_seconds = started.elapsed().as_secs_f64();
    let trials = study.simulation.trials;
    let work = Work { done: AtomicU64::new(0), total: u64::from(trials) * u64::from(study.rounds), report: progress };
    let results: Result<Vec<Trial>, SimError> = (0..trials)
        .into_par_iter()
        .map(|trial| {
            if trial == 0 || study.simulation.redraw == Redraw::Noise {
                first.run(study, &guard, trial, &work)
            } else {
                Setup::new(study, &guard, shared, trial)?.run(study, &guard, trial, &work)
            }
        })
        .collect();
    let mut outcome = outcome(study, &guard, &first, results?);
    outcome.setup_seconds = setup_seconds;
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Central solutions, which depend on the data and the problem but not on the algorithm: found once, used by every run
/// that is given the same `Shared`.
#[derive(Debug, Default)]
pub struct Shared {
    solved: Mutex<HashMap<String, Result<Central, String>>>,
    exact_only: bool,
}

impl Shared {
    /// Leaves the clipped problems alone, for runs whose distance to them nobody asks for.
    pub fn exact_only() -> Self {
        Self { exact_only: true, ..Self::default() }
    }

    /// The solution of a study's pooled problem, found now if it was not found before.
    fn solve(
        &self,
        study: &Study,
        population: &Population,
        problem: &Problem,
        losses: Losses,
        trial: u32,
    ) -> Result<Central, String> {
        if !study.simulation.central {
            return Err("simulation.central is false".into());
        }
        let clip = study.privacy.filter(|_| losses == Losses::Clipped).map(|p| p.clip);
        let key = format!("{:?} {problem:?} {clip:?} {} {trial}", study.data, study.seed);
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
    report: Progress<'a>,
}

impl Work<'_> {
    fn add_round(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // A thousand reports are enough for any bar.
        if done.is_multiple_of((self.total / 1000).max(1)) || done == self.total {
            (self.report)(done as f64 / self.total as f64);
        }
    }
}

/// The study's promise of privacy, ready to use.
struct Guard {
    noise: Noise,
    schedule: Option<Schedule>,
}

impl Guard {
    fn new(study: &Study) -> Result<Self, SimError> {
        let Some(privacy) = &study.privacy else { return Ok(Self { noise: Noise::off(), schedule: None }) };
        let noise = match privacy.noise {
            NoiseKind::Fast => Noise::fast(study.seed),
            NoiseKind::Secure => Noise::secure(),
        };
        Ok(Self { noise, schedule: Some(study.schedule(privacy).expect("checked with the study")) })
    }
}

/// What a trial runs on.
struct Setup {
    population: Population,
    graph: Graph,
    problem: Problem,
    central: Result<Central, String>,
    surrogate: Option<Central>,
    special: HashMap<usize, Special>,
}

impl Setup {
    fn new(study: &Study, guard: &Guard, shared: &Shared, trial: u32) -> Result<Self, SimError> {
        let population = Population::load(study, trial)?;
        let graph = study.build_graph(population.names(), trial)?;
        let mut special = HashMap::new();
        for (name, client) in &study.clients {
            let k = population.names().find(name).ok_or_else(|| SimError::UnknownClient {
                name: name.clone(),
                clients: population.names().to_string(),
            })?;
            let budget_factor = guard.schedule.as_ref().map_or(1.0, |s| study.budget_factor(s, client));
            special.insert(k, Special { eta: client.eta, budget_factor });
        }
        let regularizer = match study.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { l2 } => Regularizer::ElasticNet { l1: population.paper_lambda1(), l2 },
        };
        let problem = study.problem(regularizer);
        let solve = |losses| shared.solve(study, &population, &problem, losses, trial);
        let clipped = study.privacy.is_some() && study.algorithm.clips() && !shared.exact_only;
        let central = solve(Losses::Exact);
        let surrogate = if clipped && central.is_ok() { solve(Losses::Clipped).ok() } else { None };
        Ok(Self { population, graph, problem, central, surrogate, special })
    }

    fn run(&self, study: &Study, guard: &Guard, trial: u32, work: &Work) -> Result<Trial, SimError> {
        let protection = match (&study.privacy, &guard.schedule) {
            (Some(privacy), Some(schedule)) => Protection::On { clip: privacy.clip, schedule, noise: &guard.noise },
            _ => Protection::Off,
        };
        let world = World {
            population: &self.population,
            graph: &self.graph,
            problem: &self.problem,
            special: &self.special,
            rules: Rules { algorithm: &*study.algorithm, protection },
            rounds: study.rounds,
            trial,
        };
        let yardstick = Yardstick {
            population: &self.population,
            problem: &self.problem,
            central: self.central.as_ref().ok(),
            surrogate: self.surrogate.as_ref(),
        };
        let mut network = Network::new(&self.population, &*study.algorithm);
        let mut metrics = Vec::new();
        for round in 1..=study.rounds {
            let measured = is_measured(study, round);
            network.round(&world, round, measured).map_err(|Stuck { client, reason }| SimError::Round {
                client: self.population.names().get(client).into_owned(),
                round,
                reason,
            })?;
            if measured {
                let Network { w, released, average, .. } = &network;
                let found = yardstick.measure(&Models { w, released, average });
                if !found.is_finite() {
                    return Err(SimError::Diverged { round });
                }
                metrics.push(found);
            }
            work.add_round();
        }
        Ok(Trial { metrics, network: (trial == 0).then_some(network) })
    }
}

fn is_measured(study: &Study, round: u32) -> bool {
    round.is_multiple_of(study.simulation.metrics_every) || round == study.rounds
}

struct Trial {
    metrics: Vec<Metrics>,
    network: Option<Network>,
}

fn outcome(study: &Study, guard: &Guard, setup: &Setup, trials: Vec<Trial>) -> Outcome {
    // What does not clip promises nothing, whatever its noise.
    let promise = study.privacy.as_ref().zip(guard.schedule.as_ref()).filter(|_| study.algorithm.clips());
    let measured = (1..=study.rounds).filter(|&round| is_measured(study, round));
    let points = measured
        .enumerate()
        .map(|(i, round)| {
            let rows: Vec<&Metrics> = trials.iter().map(|t| &t.metrics[i]).collect();
            let spent = promise.map(|(privacy, schedule)| study.spent(privacy, schedule, round));
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
    let network = trials.into_iter().find_map(|t| t.network).expect("the first trial keeps its network");
    let features = setup.population.features();
    Outcome {
        points,
        final_errors,
        model: Model::new(study, mean(&network.released, features), Some(mean(&network.average, features))),
        names: setup.population.names().clone(),
        clients: network.w.into_vec(),
        released: network.released.into_vec(),
        edges: setup.graph.edges(),
        records: setup.population.total_records(),
        regularizer: setup.problem.regularizer,
        central: setup.central.clone(),
        surrogate: setup.surrogate.clone(),
        epsilon: promise.map(|(privacy, schedule)| study.promised(privacy, schedule).get()),
        study: study.clone(),
        setup_seconds: 0.0,
        seconds: 0.0,
    }
}

fn bands(rows: &[&Metrics], pick: impl Fn(&Metrics) -> Option<PerModel>) -> Option<[Band; 3]> {
    let values: Vec<PerModel> = rows.iter().map(|m| pick(m)).collect::<Option<_>>()?;
    let band = |part: fn(&PerModel) -> f64| Band::of(values.iter().map(part).collect());
    Some([band(|m| m.w), band(|m| m.released), band(|m| m.average)])
}
