//! The experiments of the paper's section V, what goes beyond it, and the parameters that tuning found for them.

use undertone_core::study::{Document, Study, StudyError};

use undertone_plan::tune::{Candidate, Knob, Parameters};

/// The delta of every experiment.
pub const DELTA: f64 = 1e-5;
/// The total epsilons of the trade-off curves.
pub const EPSILONS: [f64; 5] = [0.5, 1.0, 2.0, 5.0, 10.0];
/// The total epsilon of the learning curves.
pub const LEARNING_EPSILON: f64 = 5.0;
/// T.
pub const ROUNDS: u32 = 200;

/// The problems of section V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// Squared loss with l1 and squared l2 regularisers.
    ElasticNet,
    /// Least absolute deviations.
    Lad,
    /// Squared loss with a squared l2 regulariser.
    Ridge,
}

impl Problem {
    /// All of them, in the order of the paper.
    pub const ALL: [Problem; 3] = [Problem::ElasticNet, Problem::Lad, Problem::Ridge];

    /// The word in file names.
    pub fn name(self) -> &'static str {
        match self {
            Problem::ElasticNet => "elastic-net",
            Problem::Lad => "lad",
            Problem::Ridge => "ridge",
        }
    }

    /// The words in titles.
    pub fn title(self) -> &'static str {
        match self {
            Problem::ElasticNet => "Elastic net",
            Problem::Lad => "Least absolute deviations",
            Problem::Ridge => "Ridge regression",
        }
    }

    fn table(self) -> &'static str {
        match self {
            Problem::ElasticNet => {
                "loss = \"squared\"\nregularizer = \"elastic-net\"\nlambda1 = \"paper\"\nlambda2 = 1.0\n"
            }
            Problem::Lad => "loss = \"absolute\"\n",
            Problem::Ridge => "loss = \"squared\"\nregularizer = \"l2\"\n",
        }
    }

    /// The methods shown in the figures of this problem.
    pub fn methods(self) -> &'static [Method] {
        use Method::*;
        match self {
            Problem::Ridge => &[Zcdp, Dp, GradConstant, GradSqrt, PAdmm, PAdmmUnclipped, FreeRounds],
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

/// What free rounds is made of, besides its free rounds.
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
const ADMM: &[Knob] = &[Knob::RHO, Knob::ETA, Knob::CLIP, Knob::TAU, Knob::DECAY];
/// What the subgradient method tunes.
const GRADIENT: &[Knob] = &[Knob::ETA, Knob::CLIP, Knob::TAU];
/// What P-ADMM tunes.
const EXACT_ADMM: &[Knob] = &[Knob::RHO, Knob::CLIP, Knob::TAU];

/// The knobs of free rounds but for those named.
macro_rules! free_rounds {
    ($($knob:ident),*) => { &[Knob::DATA_ROUNDS, Knob::LARGE_ETA, Knob::CLIP, Knob::ANY_DECAY $(, Knob::$knob)*] };
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
        const PAPER: &str = "privacy.accountant=paper";
        const FREE: &str = "algorithm={name=\"free-rounds\"}";
        let (fixed, knobs): (&'static [&'static str], &'static [Knob]) = match self {
            Method::Zcdp => (&["algorithm={name=\"zcdp-nfl\"}", PAPER], ADMM),
            Method::Dp => (&["algorithm={name=\"dp-nfl\"}", PAPER], ADMM),
            Method::GradConstant => (&["algorithm={name=\"zcdp-grad-nfl\", decay=\"constant\"}", PAPER], GRADIENT),
            Method::GradSqrt => (&["algorithm={name=\"zcdp-grad-nfl\", decay=\"sqrt\"}", PAPER], GRADIENT),
            Method::PAdmm => (&["algorithm={name=\"p-admm\"}", PAPER], EXACT_ADMM),
            Method::PAdmmUnclipped => (&["algorithm={name=\"p-admm-unclipped\"}", PAPER], EXACT_ADMM),
            Method::ZcdpEqual => (
                &["algorithm={name=\"zcdp-nfl\"}"],
                &[Knob::RHO, Knob::ETA, Knob::CLIP, Knob::TAU, Knob::DECAY, Knob::AVERAGE],
            ),
            Method::FreeRounds => (&[FREE], free_rounds!(STEEP_TAU, MOMENTUM, AVERAGE)),
            Method::Without(Ingredient::Accounting) => (&[FREE, PAPER], free_rounds!(STEEP_TAU, MOMENTUM, AVERAGE)),
            Method::Without(Ingredient::Averaging) => {
                (&[FREE, "algorithm.average=0"], free_rounds!(STEEP_TAU, MOMENTUM))
            }
            Method::Without(Ingredient::Allocation) => (&[FREE], free_rounds!(MOMENTUM, AVERAGE)),
            Method::Without(Ingredient::Momentum) => (&[FREE], free_rounds!(STEEP_TAU, AVERAGE)),
            Method::Without(Ingredient::Prox) => {
                (&[FREE, "algorithm.prox=false"], free_rounds!(STEEP_TAU, MOMENTUM, AVERAGE))
            }
            Method::Without(Ingredient::Acceleration) => {
                (&[FREE, "algorithm.mixing=metropolis"], free_rounds!(STEEP_TAU, MOMENTUM, AVERAGE))
            }
        };
        Candidate { fixed, knobs }
    }
}

/// The network and the data on which methods are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// K.
    pub clients: usize,
    /// Who speaks with whom.
    pub topology: Topology,
    /// Ratio of the largest to the least variance of a feature.
    pub condition: f64,
}

/// Who speaks with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// Random, with this mean degree.
    Degree(u32),
    /// Each with the one before and the one after.
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
    /// The paper's: 50 clients, 3 neighbours on average, features alike.
    pub const PAPER: Setting = Setting { clients: 50, topology: Topology::Degree(3), condition: 1.0 };

    /// The word in tables of tuned parameters.
    pub fn name(self) -> String {
        format!("k{}-{}-condition{}", self.clients, self.topology.name(), self.condition)
    }
}

/// One comparison: what is solved, where, by which method, at which total epsilon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Where.
    pub setting: Setting,
    /// What is solved.
    pub problem: Problem,
    /// By which method.
    pub method: Method,
    /// At which total epsilon.
    pub epsilon: f64,
}

impl Case {
    /// The study of this case, if these parameters can be used together.
    pub fn study(&self, parameters: &Parameters, seed: u64, trials: u32) -> Result<Study, StudyError> {
        let Case { setting, problem, method, epsilon } = *self;
        let graph = match setting.topology {
            Topology::Degree(degree) => format!("kind = \"random\"\nmean_degree = {degree}"),
            Topology::Ring => "kind = \"ring\"".into(),
        };
        let place = if setting == Setting::PAPER { String::new() } else { format!("-{}", setting.name()) };
        let text = format!(
            "name = \"{}-{}-eps{epsilon}{place}\"\nseed = {seed}\nrounds = {ROUNDS}\n[problem]\n{}\
             [data]\nsource = \"synthetic\"\nclients = {}\nrecords = 50\nfeatures = 8\nnoise = 0.1\ncondition = {}\n\
             [graph]\n{graph}\n[privacy]\nepsilon = {epsilon}\ndelta = {DELTA}\n\
             [simulation]\ntrials = {trials}\nredraw = \"all\"\n",
            problem.name(),
            method.name(),
            problem.table(),
            setting.clients,
            setting.condition,
        );
        let mut document = Document::parse(&text, "experiment")?;
        parameters.apply(&method.candidate(), &mut document)?;
        Study::read(&document)
    }
}
