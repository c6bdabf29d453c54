//! What all peers agree on: problem, public bounds, graph, algorithm and budget, in one TOML file.

mod digest;
mod print;
mod reader;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use digest::StudyDigest;
pub use reader::{Document, Reader, StudyError};

use crate::algorithm::{Algorithm, REGISTRY};
use crate::graph::{Graph, GraphError, GraphSpec};
use crate::identity::PublicId;
use crate::loss::AnyLoss;
use crate::names::Names;
use crate::privacy::{Accountant, Budget, BudgetError, Clip, Delta, Epsilon, Rho, Schedule, Stream};
use crate::problem::Problem;
use crate::regularizer::Regularizer;
use crate::schema::Schema;

/// Most clients, records per client, features and rounds that a study may ask for.
pub const MOST_CLIENTS: i64 = 100_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_RECORDS: i64 = 1_000_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_FEATURES: i64 = 1_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_ROUNDS: i64 = 10_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_TRIALS: i64 = 1_000_000;

/// Most measured rounds of all trials together.
pub const MOST_MEASUREMENTS: u64 = 20_000_000;

/// A checked study.
#[derive(Debug, Clone)]
pub struct Study {
    /// What people call it.
    pub name: String,
    /// Fixes every random choice of a simulation except secure noise.
    pub seed: u64,
    /// T.
    pub rounds: u32,
    /// What is minimised; the intercept flag follows from the data.
    pub loss: AnyLoss,
    /// R and lambda.
    pub regularizer: RegularizerSpec,
    /// lambda.
    pub lambda: f64,
    /// Where records come from.
    pub data: DataSpec,
    /// Who speaks with whom.
    pub graph: GraphSpec,
    /// How w_k(n) is computed.
    pub algorithm: Arc<dyn Algorithm>,
    /// `None` for `privacy = "off"`.
    pub privacy: Option<Privacy>,
    /// What only a simulation needs.
    pub simulation: Simulation,
    /// Clients that differ from the rest, by name.
    pub clients: BTreeMap<String, ClientSpec>,
    /// Where peers that cannot reach each other meet, if anywhere.
    pub relay: Option<String>,
    /// What only planning needs.
    pub plan: Option<PlanSpec>,
}

/// A regulariser as written in a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RegularizerSpec {
    /// Fully given.
    Public(Regularizer),
    /// Elastic net with the paper's lambda1 = 0.001 ||X^T y||_inf, which looks at private data.
    PaperRule {
        /// lambda2.
        l2: f64,
    },
}

/// Where records come from.
#[derive(Debug, Clone, PartialEq)]
pub enum DataSpec {
    /// Drawn at random, as in the paper's experiments.
    Synthetic {
        /// K.
        clients: usize,
        /// M_k: one number for all, or one for each.
        records: Vec<usize>,
        /// P.
        features: usize,
        /// Standard deviation of the observation noise.
        noise: f64,
        /// Ratio of the largest to the least variance of a feature: 1 for features alike.
        condition: f64,
    },
    /// Read from files.
    Files {
        /// How the files divide into clients.
        layout: Layout,
        /// File or folder; may be given on the command line instead.
        path: Option<String>,
        /// What is public about the columns.
        schema: Schema,
    },
}

impl DataSpec {
    /// Whether the records are drawn at random and belong to nobody.
    pub fn is_made_up(&self) -> bool {
        matches!(self, DataSpec::Synthetic { .. } | DataSpec::Files { layout: Layout::StandIn { .. }, .. })
    }
}

/// How files divide into clients.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// A folder with one file per client.
    Folder,
    /// One file with a column that names the client.
    Column(String),
    /// One file dealt out to this many clients in turn.
    Split(usize),
    /// No files: records drawn at random inside the public bounds, to rehearse and to plan with.
    StandIn {
        /// K names.
        clients: Vec<String>,
        /// M_k: one number for all, or one for each.
        records: Vec<usize>,
        /// Standard deviation of the observation noise, in units of half the target's range.
        noise: f64,
    },
}

/// What planning has to be told where nothing else in the study says it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSpec {
    /// About how many clients there will be.
    pub clients: Option<usize>,
    /// About how many records each will have: one number for all, or one for each.
    pub records: Vec<usize>,
    /// The observation noise to expect, in units of half the target's range.
    pub noise: f64,
}

/// The privacy a study promises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Privacy {
    /// c1.
    pub clip: Clip,
    /// What may be spent.
    pub budget: Budget,
    /// phi(n+1) = phi(n)/tau.
    pub tau: f64,
    /// The delta at which epsilon is stated.
    pub delta: Delta,
    /// How rho becomes epsilon.
    pub accountant: Accountant,
    /// Where noise comes from.
    pub noise: NoiseKind,
}

/// Where noise comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseKind {
    /// Seeded and quick; simulation only.
    Fast,
    /// Exact and keyed by the operating system.
    Secure,
}

/// What only a simulation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simulation {
    /// Repetitions.
    pub trials: u32,
    /// What is drawn anew in every trial.
    pub redraw: Redraw,
    /// Metrics are taken every so many rounds, and in the last.
    pub metrics_every: u32,
    /// Whether to solve the pooled problem for comparison.
    pub central: bool,
}

/// What is drawn anew in every trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redraw {
    /// The noise: the band over trials shows what privacy does to one data set.
    Noise,
    /// Synthetic data, the graph and the noise.
    All,
}

/// What is special about one client.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientSpec {
    /// Its eta(1).
    pub eta: Option<f64>,
    /// Its phi(1).
    pub phi1: Option<Rho>,
    /// Its public key, between real machines.
    pub id: Option<PublicId>,
    /// Where it can be reached, as host:port.
    pub address: Option<String>,
}

impl Study {
    /// Reads and checks a study; `origin` is its file's name in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, StudyError> {
        Self::read(&Document::parse(text, origin)?)
    }

    /// Reads and checks a parsed document.
    pub fn read(document: &Document) -> Result<Self, StudyError> {
        let mut top = document.reader();
        let study = Self {
            name: top.text("name")?.unwrap_or("study").to_string(),
            seed: top.integer("seed", 0, i64::MAX)?.unwrap_or(1) as u64,
            rounds: top.integer_required("rounds", 1, MOST_ROUNDS)? as u32,
            ..tables::read(&mut top)?
        };
        study.check(&top)?;
        top.finish()?;
        Ok(study)
    }

    /// What can be checked only when all tables are read.
    fn check(&self, top: &Reader) -> Result<(), StudyError> {
        let nonsmooth = Regularizer::ElasticNet { l1: 1.0, l2: 0.0 };
        let regularizer = match self.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { .. } => nonsmooth,
        };
        if let Some(reason) = self.algorithm.refuses(&self.problem(regularizer), self.features(), self.rounds) {
            return Err(top.error("algorithm", format!("cannot solve this problem: {reason}")));
        }
        if let Some(privacy) = &self.privacy {
            self.schedule(privacy).map_err(|e| top.error("privacy", format!("cannot be kept: {e}")))?;
            self.check_client_budgets(top, privacy.tau)?;
        } else if let Some(name) = self.clients.iter().find(|(_, c)| c.phi1.is_some()).map(|(n, _)| n) {
            return Err(top.error("client", format!("\"{name}\" has a phi1, but privacy is off; remove one of them")));
        }
        let measured =
            u64::from(self.rounds.div_ceil(self.simulation.metrics_every)) * u64::from(self.simulation.trials);
        if measured > MOST_MEASUREMENTS {
            return Err(top.error(
                "simulation",
                format!("would measure {measured} rounds in all, more than {MOST_MEASUREMENTS}; raise metrics_every"),
            ));
        }
        if self.clients.values().any(|c| c.eta.is_some()) && !self.algorithm.takes_own_eta() {
            let name = self.algorithm.name();
            return Err(
                top.error("client", format!("gives a client its own eta, which {name} has no use for; remove it"))
            );
        }
        Ok(())
    }

    /// A client's own phi(1) must be as representable in every round as the common one.
    fn check_client_budgets(&self, top: &Reader, tau: f64) -> Result<(), StudyError> {
        for (name, client) in &self.clients {
            let Some(phi1) = client.phi1 else { continue };
            Schedule::geometric_from_first(phi1, self.data_rounds(), tau)
                .map_err(|e| top.error("client", format!("\"{name}\" has a phi1 that cannot be kept: {e}")))?;
        }
        Ok(())
    }

    /// Takes the data from `path` instead. Synthetic data has no path, and is left alone.
    pub fn set_data_path(&mut self, new: &str) {
        if let DataSpec::Files { path, .. } = &mut self.data {
            *path = Some(new.into());
        }
    }

    /// Who speaks with whom, in repetition `trial` of a simulation; between real machines there is only trial 0.
    pub fn build_graph(&self, names: &Names, trial: u32) -> Result<Graph, GraphError> {
        /// The "client" whose stream draws the graph.
        const GRAPH: u32 = u32::MAX - 1;
        self.graph.build(names, &mut Stream { trial, client: GRAPH, round: 0 }.fast(self.seed))
    }

    /// P, with the intercept if there is one.
    pub fn features(&self) -> usize {
        match &self.data {
            DataSpec::Synthetic { features, .. } => *features,
            DataSpec::Files { schema, .. } => schema.feature_names().len(),
        }
    }

    /// The problem with a resolved regulariser.
    pub fn problem(&self, regularizer: Regularizer) -> Problem {
        let intercept = matches!(&self.data, DataSpec::Files { schema, .. } if schema.intercept);
        Problem { loss: self.loss, regularizer, lambda: self.lambda, intercept }
    }

    /// phi(n) for all rounds.
    pub fn schedule(&self, privacy: &Privacy) -> Result<Schedule, BudgetError> {
        let Privacy { budget, accountant, delta, tau, .. } = *privacy;
        let costs = self.algorithm.schedule(budget, accountant, delta, self.data_rounds(), tau)?;
        Ok(costs.spread(self.rounds, |n| self.algorithm.touches_records(n, self.rounds)))
    }

    /// How many rounds touch the records.
    pub fn data_rounds(&self) -> u32 {
        (1..=self.rounds).filter(|&n| self.algorithm.touches_records(n, self.rounds)).count() as u32
    }

    /// By what a client's phi(n) differs from the schedule's.
    pub fn budget_factor(&self, schedule: &Schedule, client: &ClientSpec) -> f64 {
        client.phi1.map_or(1.0, |phi1| phi1.get() / schedule.phi(1).get())
    }

    /// The rho that the most exposed client has spent after `round` rounds, and the epsilon of it by the study's
    /// accountant.
    pub fn spent(&self, privacy: &Privacy, schedule: &Schedule, round: u32) -> (Rho, Epsilon) {
        let rho = Rho::new(schedule.spent(round).get() * self.exposure(schedule)).expect("checked with the study");
        (rho, privacy.accountant.epsilon(rho, privacy.delta))
    }

    /// The epsilon that the whole run promises: the accountant's, unless the algorithm brings a proof of its own.
    pub fn promised(&self, privacy: &Privacy, schedule: &Schedule) -> Epsilon {
        let own = self.algorithm.own_epsilon(privacy.budget, schedule, privacy.delta);
        let own = own.filter(|_| self.exposure(schedule) == 1.0);
        own.unwrap_or(self.spent(privacy, schedule, self.rounds).1)
    }

    /// How much more than the schedule the most exposed client spends: 1 if no client has a larger phi(1) of its own.
    fn exposure(&self, schedule: &Schedule) -> f64 {
        self.clients.values().map(|client| self.budget_factor(schedule, client)).fold(1.0, f64::max)
    }
}

/// The registry as the choices of `algorithm.name`.
fn algorithms() -> Vec<(&'static str, &'static crate::algorithm::Entry)> {
    REGISTRY.iter().map(|entry| (entry.name, entry)).collect()
}
