//! The experiments of the paper's section V, what goes beyond it, and the parameters that tuning found for them.

use undertone_core::graph::GraphSpec;
use undertone_core::knob::Value;
use undertone_core::loss::{Absolute, Squared};
use undertone_core::privacy::Accountant;
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{DataSpec, PrivacySpec, Redraw, RegularizerSpec, Study, StudyError, StudySpec};
use undertone_plan::tune::{Candidate, Parameters};

/// The delta of every experiment.
pub const DELTA: f64 = 1e-5;
/// The total epsilons of the trade-off curves.
pub const EPSILONS: [f64; 5] = [0.5, 1.0, 2.0, 5.0, 10.0];
/// The total epsilon of the learning curves.
pub const LEARNING_EPSILON: f64 = 5.0;
/// The factor by which the size of w varies up and down while parameters are tuned.
const SPREAD: f64 = 1.3;
/// T.
pub const ROUNDS: u32 = 200;

/// The tasks of section V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Squared loss with l1 and squared l2 regularisers.
    ElasticNet,
    /// Least absolute deviations.
    Lad,
    /// Squared loss with a squared l2 regulariser.
    Ridge,
}

impl Task {
    /// All of them, in the order of the paper.
    pub const ALL: [Task; 3] = [Task::ElasticNet, Task::Lad, Task::Ridge];

    /// The word in file names.
    pub fn name(self) -> &'static str {
        match self {
            Task::ElasticNet => "elastic-net",
            Task::Lad => "lad",
            Task::Ridge => "ridge",
        }
    }

    /// The words in titles.
    pub fn title(self) -> &'static str {
        match self {
            Task::ElasticNet => "Elastic net",
            Task::Lad => "Least absolute deviations",
            Task::Ridge => "Ridge regression",
        }
    }

    /// The loss and the regulariser, on data and a graph.
    fn spec(self, data: DataSpec, graph: GraphSpec) -> StudySpec {
        match self {
            Task::ElasticNet => StudySpec {
                regularizer: RegularizerSpec::PaperRule { l2: 1.0 },
                lambda: 1.0,
                ..StudySpec::new(Squared, data, graph)
            },
            Task::Lad => StudySpec::new(Absolute, data, graph),
            Task::Ridge => StudySpec::new(Squared, data, graph).regularizer(Regularizer::SquaredL2, 1.0),
        }
    }

    /// The methods shown in the figures of this task.
    pub fn methods(self) -> &'static [Method] {
        use Method::*;
        match self {
            Task::Ridge => &[Zcdp, Dp, GradConstant, GradSqrt, PAdmm, PAdmmUnclipped, FreeRounds],
            _ => &[Zcdp, Dp, GradConstant, GradSqrt, FreeRounds],
        }
    }
}

/// The methods that section V compares, the stronger forms of two of them, and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// zCDP-NFL.
    Zcdp,
    /// (eps,delta)DP-NFL.
    Dp,
    /// zCDP-grad-NFL with a constant step, the paper's baseline.
    GradConstant,
    /// zCDP-grad-NFL with a step of 1/sqrt(n).
    GradSqrt,
    /// P-ADMM with the clip enforced.
    PAdmm,
    /// P-ADMM in closed form: not private.
    PAdmmUnclipped,
    /// Free rounds.
    FreeRounds,
    /// zCDP-NFL with what free rounds has besides its free rounds: exact accounting, averaging, choice of clip and budget.
    ZcdpEqual,
    /// Free rounds without one of its ingredients.
    Without(Ingredient),
}

/// The parts of free rounds, besides its free rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingredient {
    /// The exact accountant; without it, the paper's.
    Accounting,
    /// The mean of the latest points; without it, the last.
    Averaging,
    /// A budget that grows from data round to data round; without it, the same for each.
    Allocation,
    /// Momentum.
    Momentum,
    /// The exact prox of R; without it, its subgradient.
    Prox,
    /// Chebyshev's acceleration of the mixing; without it, plain Metropolis weights.
    Acceleration,
}

impl Ingredient {
    /// All of them.
    pub const ALL: [Ingredient; 6] = [
        Ingredient::Accounting,
        Ingredient::Averaging,
        Ingredient::Allocation,
        Ingredient::Momentum,
        Ingredient::Prox,
        Ingredient::Acceleration,
    ];

    /// The words in tables.
    pub fn title(self) -> &'static str {
        match self {
            Ingredient::Accounting => "exact accounting",
            Ingredient::Averaging => "averaging of released points",
            Ingredient::Allocation => "growing budget",
            Ingredient::Momentum => "momentum",
            Ingredient::Prox => "exact prox",
            Ingredient::Acceleration => "accelerated mixing",
        }
    }
}

/// What zCDP-NFL tunes.
const ADMM: &[&str] = &["rho", "eta", "clip", "tau", "decay"];
/// What the subgradient method tunes.
const GRADIENT: &[&str] = &["eta", "clip", "tau"];
/// What P-ADMM tunes.
const EXACT_ADMM: &[&str] = &["rho", "clip", "tau"];

/// What free rounds tunes, with the parts named.
macro_rules! free_rounds {
    ($($name:literal),*) => { &["data_rounds", "eta", "clip", "decay" $(, $name)*] };
}

impl Method {
    /// All that figures show; the position is also the position of its colour.
    pub const ALL: [Method; 7] = [
        Method::Zcdp,
        Method::Dp,
        Method::GradConstant,
        Method::GradSqrt,
        Method::PAdmm,
        Method::PAdmmUnclipped,
        Method::FreeRounds,
    ];

    /// The word in file names and in the table of tuned parameters.
    pub fn name(self) -> &'static str {
        match self {
            Method::Zcdp => "zcdp-nfl",
            Method::Dp => "dp-nfl",
            Method::GradConstant => "zcdp-grad-nfl-constant",
            Method::GradSqrt => "zcdp-grad-nfl-sqrt",
            Method::PAdmm => "p-admm",
            Method::PAdmmUnclipped => "p-admm-unclipped",
            Method::FreeRounds => "free-rounds",
            Method::ZcdpEqual => "zcdp-nfl-equal",
            Method::Without(Ingredient::Accounting) => "without-accounting",
            Method::Without(Ingredient::Averaging) => "without-averaging",
            Method::Without(Ingredient::Allocation) => "without-allocation",
            Method::Without(Ingredient::Momentum) => "without-momentum",
            Method::Without(Ingredient::Prox) => "without-prox",
            Method::Without(Ingredient::Acceleration) => "without-acceleration",
        }
    }

    /// The words in legends.
    pub fn label(self) -> &'static str {
        match self {
            Method::Zcdp => "zCDP-NFL",
            Method::Dp => "(eps,delta)DP-NFL",
            Method::GradConstant => "zCDP-grad-NFL",
            Method::GradSqrt => "zCDP-grad-NFL, 1/sqrt(n)",
            Method::PAdmm => "P-ADMM",
            Method::PAdmmUnclipped => "P-ADMM unclipped, not private",
            Method::FreeRounds => "free rounds",
            Method::ZcdpEqual => "zCDP-NFL, equal terms",
            Method::Without(_) => "free rounds without one part",
        }
    }

    /// How it is tuned.
    pub fn candidate(self) -> Candidate {
        let of =
            |algorithm, searched| Candidate { name: self.name(), algorithm, accountant: None, fixed: &[], searched };
        let by_paper = |candidate| Candidate { accountant: Some(Accountant::Paper), ..candidate };
        const ALL: &[&str] = free_rounds!("tau", "momentum", "average");
        let free = of("free-rounds", ALL);
        match self {
            Method::Zcdp => by_paper(of("zcdp-nfl", ADMM)),
            Method::Dp => Candidate { accountant: Some(Accountant::Classic), ..of("zcdp-nfl", ADMM) },
            Method::GradConstant => {
                Candidate { fixed: &[("decay", Value::Word("constant"))], ..by_paper(of("zcdp-grad-nfl", GRADIENT)) }
            }
            Method::GradSqrt => {
                Candidate { fixed: &[("decay", Value::Word("sqrt"))], ..by_paper(of("zcdp-grad-nfl", GRADIENT)) }
            }
            Method::PAdmm => by_paper(of("p-admm", EXACT_ADMM)),
            Method::PAdmmUnclipped => by_paper(of("p-admm-unclipped", EXACT_ADMM)),
            Method::ZcdpEqual => of("zcdp-nfl", &["rho", "eta", "clip", "tau", "decay", "average"]),
            Method::FreeRounds => free,
            Method::Without(Ingredient::Accounting) => by_paper(free),
            Method::Without(Ingredient::Averaging) => {
                let fixed = &[("average", Value::Number(0.0))];
                Candidate { fixed, searched: free_rounds!("tau", "momentum"), ..free }
            }
            Method::Without(Ingredient::Allocation) => {
                Candidate { searched: free_rounds!("momentum", "average"), ..free }
            }
            Method::Without(Ingredient::Momentum) => Candidate { searched: free_rounds!("tau", "average"), ..free },
            Method::Without(Ingredient::Prox) => Candidate { fixed: &[("prox", Value::Flag(false))], ..free },
            Method::Without(Ingredient::Acceleration) => {
                Candidate { fixed: &[("mixing", Value::Word("metropolis"))], ..free }
            }
        }
    }
}

/// The network and the data on which methods are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// K.
    pub clients: usize,
    /// The communication graph.
    pub topology: Topology,
    /// Ratio of the largest to the least variance of a feature.
    pub condition: f64,
}

/// The communication graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// Random, with this mean degree.
    Degree(u32),
    /// Each client with the previous and the next one.
    Ring,
}

impl Topology {
    /// The word in tables.
    pub fn name(self) -> String {
        match self {
            Topology::Degree(degree) => format!("degree{degree}"),
            Topology::Ring => "ring".into(),
        }
    }
}

impl Setting {
    /// The paper's: 50 clients, 3 neighbours on average, equal feature variances.
    pub const PAPER: Setting = Setting { clients: 50, topology: Topology::Degree(3), condition: 1.0 };

    /// The word in tables of tuned parameters.
    pub fn name(self) -> String {
        format!("k{}-{}-condition{}", self.clients, self.topology.name(), self.condition)
    }
}

/// One comparison: what is solved, where, by which method, at which total epsilon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// The network and the data.
    pub setting: Setting,
    /// What is solved.
    pub task: Task,
    /// The method.
    pub method: Method,
    /// The total epsilon.
    pub epsilon: f64,
}

impl Case {
    /// The study of this case, if these parameters can be used together.
    pub fn study(&self, parameters: &Parameters, seed: u64, trials: u32) -> Result<Study, StudyError> {
        self.on_data_of(1.0, parameters, seed, trials)
    }

    /// The same on data for tuning, in which the size of w varies: by the law of the figures a large w is too rare to be seen
    /// by a search, and parameters that fail on it would look best.
    pub fn varied(&self, parameters: &Parameters, seed: u64, trials: u32) -> Result<Study, StudyError> {
        self.on_data_of(SPREAD, parameters, seed, trials)
    }

    fn on_data_of(&self, spread: f64, parameters: &Parameters, seed: u64, trials: u32) -> Result<Study, StudyError> {
        let Case { setting, task, method, epsilon } = *self;
        let Setting { clients, condition, .. } = setting;
        let data = DataSpec::Synthetic { clients, records: vec![50], features: 8, noise: 0.1, condition, spread };
        let graph = match setting.topology {
            Topology::Degree(degree) => GraphSpec::Random { mean_degree: degree.into() },
            Topology::Ring => GraphSpec::Ring,
        };
        let place = if setting == Setting::PAPER { String::new() } else { format!("-{}", setting.name()) };
        let mut spec = task
            .spec(data, graph)
            .name(format!("{}-{}-eps{epsilon}{place}", task.name(), method.name()))
            .seed(seed)
            .rounds(ROUNDS)
            .privacy(PrivacySpec::epsilon(epsilon, DELTA))
            .trials(trials);
        spec.simulation.redraw = Redraw::All;
        method.candidate().apply(parameters, &mut spec);
        spec.check()
    }
}
