//! A study as it is written: plain data, nothing checked yet.

use std::collections::BTreeMap;

use crate::closing::{Closing, ROUNDS_SHARE};
use crate::csv_format::CsvFormat;
use crate::graph::{Graph, GraphError, GraphSpec};
use crate::identity::PublicId;
use crate::knob::{Settings, Value};
use crate::loss::AnyLoss;
use crate::names::Names;
use crate::privacy::{Accountant, Stream};
use crate::problem::Weights;
use crate::records::Precision;
use crate::regularizer::Regularizer;
use crate::schema::Schema;

/// A study as a person or a program writes it. [`StudySpec::check`] makes a [`Study`](super::Study) of it.
///
/// ```
/// use undertone_core::graph::GraphSpec;
/// use undertone_core::loss::Absolute;
/// use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
///
/// let study = StudySpec::new(Absolute, DataSpec::synthetic(20, 50, 4), GraphSpec::Ring)
///     .rounds(100)
///     .algorithm(AlgorithmSpec::named("zcdp-nfl").number("rho", 0.5).number("eta", 0.5).word("decay", "sqrt"))
///     .privacy(PrivacySpec::epsilon(5.0, 1e-5).clip(2.0))
///     .check()?;
/// assert_eq!(study.features(), 4);
/// # Ok::<(), undertone_core::study::StudyError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct StudySpec {
    /// Its name.
    pub name: String,
    /// Fixes every random choice of a simulation except secure noise.
    pub seed: u64,
    /// T.
    pub rounds: u32,
    /// The loss of one record.
    pub loss: AnyLoss,
    /// R.
    pub regularizer: RegularizerSpec,
    /// lambda.
    pub lambda: f64,
    /// What counts the same: records, unless data is synthetic, or clients.
    pub weights: Weights,
    /// Where records come from.
    pub data: DataSpec,
    /// How many bits their numbers are stored with.
    pub precision: Precision,
    /// The communication graph.
    pub graph: GraphSpec,
    /// How w_k(n) is computed.
    pub algorithm: AlgorithmSpec,
    /// `None` for `privacy = "off"`.
    pub privacy: Option<PrivacySpec>,
    /// What only a simulation needs.
    pub simulation: Simulation,
    /// Clients that differ from the rest, by name.
    pub clients: BTreeMap<String, ClientSpec>,
    /// The relay for peers that cannot reach each other, if any.
    pub relay: Option<String>,
    /// How many peers must sign the same set of last releases for a model of the study; more than half of all and of `liars` if not given.
    pub quorum: Option<usize>,
    /// How many clients may lie, if any: what neighbours say is then bounded ([`Robust`](crate::algorithm::Robust)), and the last releases are trimmed.
    pub liars: Option<usize>,
    /// What only planning needs.
    pub plan: Option<PlanSpec>,
    /// The level of the intervals that are released after the last round, if any are.
    pub inference: Option<f64>,
    /// What the one release of a closing study is computed from; none in any other study.
    pub closing: Option<Closing>,
}

/// An algorithm as written in a study.
#[derive(Debug, Clone, PartialEq)]
pub enum AlgorithmSpec {
    /// The planner is to choose it, and the clip and tau with it.
    Auto,
    /// One of the registry, with values of its parameters.
    Named {
        /// Its name in the registry.
        name: String,
        /// The values that are given; the others have their defaults.
        settings: Settings,
    },
}

/// A regulariser as written in a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RegularizerSpec {
    /// Fully given.
    Public(Regularizer),
    /// Elastic net with the paper's lambda1 = 0.001 ||X^T y||_inf, which depends on private data.
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
        /// Ratio of the largest to the least variance of a feature: 1 for equal variances.
        condition: f64,
        /// The unknown w of every draw is multiplied by a random factor from 1/spread to spread, uniform in its logarithm: 1
        /// for the paper's w ~ N(0, I). For tuning, so that parameters do not rely on the size of w.
        spread: f64,
    },
    /// Read from files, or from memory.
    Files {
        /// How the files divide into clients.
        layout: Layout,
        /// File or folder; may be given on the command line instead.
        path: Option<String>,
        /// The public facts about the columns.
        schema: Schema,
        /// The public number of records: one number, the mean over the clients, or one for each in the order of their names. Empty
        /// where the study does not say, or says it client by client.
        records: Vec<usize>,
        /// How this party's CSV files are written; peers need not agree on it.
        csv: CsvFormat,
    },
}

/// How files divide into clients.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// A folder with one file per client.
    Folder,
    /// One file with a column that names the client.
    Column(String),
    /// One file split among this many clients in turn.
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

/// What planning needs where it does not follow from the rest of the study, and what it found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlanSpec {
    /// About how many clients there will be.
    pub clients: Option<usize>,
    /// How many clients may be lost on the way; 1 if it is not given and there are masks, else 0.
    pub losses: Option<usize>,
    /// The skill that the planner expects, from its worse end to its better one; 1 is as good as pooled data.
    pub skill: Option<(f64, f64)>,
}

/// The privacy that a study promises, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrivacySpec {
    /// c1; may be left to the planner.
    pub clip: Option<f64>,
    /// What may be spent.
    pub budget: BudgetSpec,
    /// phi(n+1) = phi(n)/tau; 1 if it is not given, or left to the planner.
    pub tau: Option<f64>,
    /// The delta at which epsilon is stated.
    pub delta: f64,
    /// How epsilon is accounted for.
    pub accountant: Accountant,
    /// Where noise comes from.
    pub noise: NoiseKind,
    /// q, how many clients pool what they know at most; all of them if it is not given, and there are no masks.
    pub colluders: Option<usize>,
    /// How near a client's own noise is to the least that masks allow; in the middle if it is not given, or left to the planner.
    pub theta: Option<f64>,
    /// The share of the rho that is spent on private means and spreads of the columns before the first round, if any is.
    pub standardise: Option<f64>,
    /// The share of the rho that was spent on them already: more than 0 only in a study that was standardised by it.
    pub spent_share: f64,
    /// The share of the rho for a private score on what was held out, if there is to be one.
    pub score_budget: Option<f64>,
}

/// What may be spent, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetSpec {
    /// A total epsilon.
    Epsilon(f64),
    /// phi(1), the rho of the first data round.
    First(f64),
}

/// Where noise comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseKind {
    /// Seeded and quick; simulation only.
    Fast,
    /// Exact, with a key from the operating system for every release.
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
    /// So many clients, others in every trial, are lost for good in the middle.
    pub losses: usize,
    /// So many clients, others in every trial, lie.
    pub liars: usize,
    /// What they say.
    pub attack: Attack,
}

/// What clients that lie say in a simulation, knowing what all honest ones release in the same round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// One more than they should in every coordinate.
    Shift,
    /// A million in every coordinate.
    Huge,
    /// A million in the last round, and the truth before.
    LastRound,
    /// The negative of what they should.
    Flip,
    /// Ten standard deviations of the honest away from their mean, on a random side in every coordinate.
    Noise,
    /// The mean of the honest less 1.5 of their standard deviations (Baruch, Baruch, Goldberg 2019).
    Little,
    /// Half of the mean of the honest, after the inner-product attack of Xie, Koyejo and Gupta (2019).
    Inner,
}

impl Attack {
    /// All, with their names in a study.
    pub const ALL: [(&'static str, Attack); 7] = [
        ("shift", Attack::Shift),
        ("huge", Attack::Huge),
        ("last-round", Attack::LastRound),
        ("flip", Attack::Flip),
        ("noise", Attack::Noise),
        ("little", Attack::Little),
        ("inner", Attack::Inner),
    ];

    /// Its name in a study.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, attack)| *attack == self).map_or("", |(name, _)| name)
    }
}

/// What is drawn anew in every trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redraw {
    /// The noise: the band over trials shows the effect of privacy on one data set.
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
    pub phi1: Option<f64>,
    /// Its public number of records.
    pub records: Option<usize>,
    /// Its public key, for peers.
    pub id: Option<PublicId>,
    /// Where it can be reached, as host:port.
    pub address: Option<String>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            trials: 1,
            redraw: Redraw::Noise,
            metrics_every: 1,
            central: true,
            losses: 0,
            liars: 0,
            attack: Attack::Flip,
        }
    }
}

impl StudySpec {
    /// A study without privacy, of 100 rounds, whose algorithm the planner is to choose; the methods below change that.
    pub fn new(loss: impl Into<AnyLoss>, data: DataSpec, graph: GraphSpec) -> Self {
        Self {
            weights: data.usual_weights(),
            name: "study".into(),
            seed: 1,
            rounds: 100,
            loss: loss.into(),
            regularizer: RegularizerSpec::Public(Regularizer::None),
            lambda: 0.0,
            data,
            precision: Precision::Double,
            graph,
            algorithm: AlgorithmSpec::Auto,
            privacy: None,
            simulation: Simulation::default(),
            clients: BTreeMap::new(),
            relay: None,
            quorum: None,
            liars: None,
            plan: None,
            inference: None,
            closing: None,
        }
    }

    /// The same with this name.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same with this seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with T rounds.
    pub fn rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// The same with lambda R.
    pub fn regularizer(self, regularizer: Regularizer, lambda: f64) -> Self {
        Self { regularizer: RegularizerSpec::Public(regularizer), lambda, ..self }
    }

    /// The same with records stored with so many bits.
    pub fn precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// The same with what counts the same: records or clients.
    pub fn weights(self, weights: Weights) -> Self {
        Self { weights, ..self }
    }

    /// The same with this public number of records: one number, the mean over the clients, or one for each in the order of their
    /// names.
    pub fn records(mut self, numbers: impl Into<Vec<usize>>) -> Self {
        match &mut self.data {
            DataSpec::Synthetic { records, .. }
            | DataSpec::Files { layout: Layout::StandIn { records, .. }, .. }
            | DataSpec::Files { records, .. } => *records = numbers.into(),
        }
        self
    }

    /// The same with this algorithm.
    pub fn algorithm(self, algorithm: AlgorithmSpec) -> Self {
        Self { algorithm, ..self }
    }

    /// The same with privacy.
    pub fn privacy(self, privacy: PrivacySpec) -> Self {
        Self { privacy: Some(privacy), ..self }
    }

    /// The same with so many repetitions in a simulation.
    pub fn trials(self, trials: u32) -> Self {
        Self { simulation: Simulation { trials, ..self.simulation }, ..self }
    }

    /// The same with a client that differs from the rest.
    pub fn client(mut self, name: impl Into<String>, client: ClientSpec) -> Self {
        self.clients.insert(name.into(), client);
        self
    }

    /// The same with data from `path`. Synthetic data has no path, and stays as it is.
    pub fn data_path(mut self, new: impl Into<String>) -> Self {
        if let DataSpec::Files { path, .. } = &mut self.data {
            *path = Some(new.into());
        }
        self
    }

    /// P, with the intercept if there is one.
    pub fn features(&self) -> usize {
        match &self.data {
            _ if self.closing.is_some() => self.closing.as_ref().map_or(0, Closing::size),
            DataSpec::Synthetic { features, .. } => *features,
            DataSpec::Files { schema, .. } => schema.feature_names().len(),
        }
    }

    /// The share of the total rho that is spent after the last round: on intervals all but what the rounds keep, on a score alone what it asks for. A score
    /// beside intervals costs nothing more, because a record is either trained on or held out.
    pub fn closing_share(&self) -> f64 {
        let Some(privacy) = &self.privacy else { return 0.0 };
        let left = 1.0 - privacy.standardise.unwrap_or(privacy.spent_share);
        let intervals = if self.inference.is_some() { left * (1.0 - ROUNDS_SHARE) } else { 0.0 };
        intervals.max(privacy.score_budget.unwrap_or(0.0))
    }

    /// What is public about the columns; synthetic data has none.
    pub fn schema(&self) -> Option<&Schema> {
        match &self.data {
            DataSpec::Synthetic { .. } => None,
            DataSpec::Files { schema, .. } => Some(schema),
        }
    }

    /// M_k as far as it is public: one number, the mean over the clients, or one for each in the order of their names.
    pub fn public_records(&self) -> Option<Vec<usize>> {
        match &self.data {
            DataSpec::Synthetic { records, .. } | DataSpec::Files { layout: Layout::StandIn { records, .. }, .. } => {
                Some(records.clone())
            }
            DataSpec::Files { records, .. } if !records.is_empty() => Some(records.clone()),
            DataSpec::Files { .. } if self.clients.is_empty() => None,
            DataSpec::Files { .. } => self.clients.values().map(|client| client.records).collect(),
        }
    }

    /// K, where the study says it itself.
    pub fn stated_clients(&self) -> Option<usize> {
        match &self.data {
            DataSpec::Synthetic { clients, .. } => Some(*clients),
            DataSpec::Files { layout: Layout::StandIn { clients, .. }, .. } => Some(clients.len()),
            DataSpec::Files { layout: Layout::Split(clients), .. } => Some(*clients),
            // Peers are all listed with their keys; in a simulation, only clients that differ from the rest are.
            DataSpec::Files { .. } if self.clients.values().any(|client| client.id.is_some()) => {
                Some(self.clients.len())
            }
            DataSpec::Files { .. } => None,
        }
    }

    /// How CSV files are written; without any, as usual.
    pub fn csv(&self) -> CsvFormat {
        match &self.data {
            DataSpec::Synthetic { .. } => CsvFormat::default(),
            DataSpec::Files { csv, .. } => *csv,
        }
    }

    /// The graph in repetition `trial` of a simulation; between peers there is only trial 0.
    pub fn build_graph(&self, names: &Names, trial: u32) -> Result<Graph, GraphError> {
        /// The "client" whose stream draws the graph.
        const GRAPH: u32 = u32::MAX - 1;
        self.graph.build(names, &mut Stream { trial, client: GRAPH, round: 0 }.fast(self.seed))
    }
}

impl AlgorithmSpec {
    /// An algorithm of the registry, with all parameters at their defaults.
    pub fn named(name: impl Into<String>) -> Self {
        AlgorithmSpec::Named { name: name.into(), settings: Settings::new() }
    }

    /// The same with one value set. Where the planner is to choose there is nothing to set.
    pub fn with(self, name: &'static str, value: Value) -> Self {
        match self {
            AlgorithmSpec::Auto => AlgorithmSpec::Auto,
            AlgorithmSpec::Named { name: algorithm, settings } => {
                AlgorithmSpec::Named { name: algorithm, settings: settings.with(name, value) }
            }
        }
    }

    /// The same with one number set.
    pub fn number(self, name: &'static str, value: f64) -> Self {
        self.with(name, Value::Number(value))
    }

    /// The same with one whole number set.
    pub fn count(self, name: &'static str, value: u32) -> Self {
        self.with(name, Value::Count(value))
    }

    /// The same with one word set.
    pub fn word(self, name: &'static str, value: &'static str) -> Self {
        self.with(name, Value::Word(value))
    }
}

impl PrivacySpec {
    /// A total epsilon at a delta, by the exact accountant, with noise for simulation.
    pub fn epsilon(epsilon: f64, delta: f64) -> Self {
        Self {
            clip: None,
            budget: BudgetSpec::Epsilon(epsilon),
            tau: None,
            delta,
            accountant: Accountant::Exact,
            noise: NoiseKind::Fast,
            colluders: None,
            theta: None,
            standardise: None,
            spent_share: 0.0,
            score_budget: None,
        }
    }

    /// The same with this share of the rho spent on private means and spreads of the columns.
    pub fn standardise(self, share: f64) -> Self {
        Self { standardise: Some(share), ..self }
    }

    /// The same under the assumption that at most so many clients pool what they know: noise is then masked.
    pub fn colluders(self, colluders: usize) -> Self {
        Self { colluders: Some(colluders), ..self }
    }

    /// The same with gradients clipped to this norm.
    pub fn clip(self, clip: f64) -> Self {
        Self { clip: Some(clip), ..self }
    }

    /// The same with a budget that grows by 1/tau from one data round to the next.
    pub fn tau(self, tau: f64) -> Self {
        Self { tau: Some(tau), ..self }
    }

    /// The same with noise that is safe to release.
    pub fn secure(self) -> Self {
        Self { noise: NoiseKind::Secure, ..self }
    }
}

impl DataSpec {
    /// K clients with M records of P features each, drawn at random.
    pub fn synthetic(clients: usize, records: usize, features: usize) -> Self {
        DataSpec::Synthetic { clients, records: vec![records], features, noise: 0.1, condition: 1.0, spread: 1.0 }
    }

    /// Tables with these columns, one for each client.
    pub fn tables(schema: Schema) -> Self {
        let csv = CsvFormat::default();
        DataSpec::Files { layout: Layout::Folder, path: None, schema, records: Vec::new(), csv }
    }

    /// What counts the same where a study does not say: clients in the paper's data, records in tables.
    pub(super) fn usual_weights(&self) -> Weights {
        match self {
            DataSpec::Synthetic { .. } => Weights::Clients,
            DataSpec::Files { .. } => Weights::Records,
        }
    }

    /// Whether the records are drawn at random and belong to no person.
    pub fn is_made_up(&self) -> bool {
        matches!(self, DataSpec::Synthetic { .. } | DataSpec::Files { layout: Layout::StandIn { .. }, .. })
    }
}
