//! The experiments of the paper's section V, what goes beyond it, and the parameters that tuning found for them.

use undertone_core::graph::GraphSpec;
use undertone_core::knob::Value;
use undertone_core::loss::{Absolute, Squared};
use undertone_core::privacy::Accountant;
use undertone_core::privacy::trust::LARGEST_THETA;
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{DataSpec, PrivacySpec, Redraw, RegularizerSpec, Study, StudyError, StudySpec};
use undertone_plan::tune::{Candidate, Dial, Parameters};

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
    /// Free rounds with masks, if at most so many clients collude.
    Masked(Assumed),
    /// The same if at most a tenth collude (at least one), tuned for clients that are lost at half time, and so many are.
    MaskedLosing(Lost),
    /// A trusted centre that holds all records: one noise for the gradient of all.
    Centre,
}

/// How many clients are assumed to collude at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assumed {
    /// One: the paper's adversary, an eavesdropper and a curious client.
    One,
    /// A tenth of them, at least one.
    Tenth,
    /// A fifth of them, at least one.
    Fifth,
    /// Half of them.
    Half,
    /// Nine tenths of them.
    Most,
}

impl Assumed {
    /// All of them, from most trust to least.
    pub const ALL: [Assumed; 5] = [Assumed::One, Assumed::Tenth, Assumed::Fifth, Assumed::Half, Assumed::Most];

    /// q among K clients.
    pub fn colluders(self, clients: usize) -> usize {
        match self {
            Assumed::One => 1,
            Assumed::Tenth => (clients / 10).max(1),
            Assumed::Fifth => (clients / 5).max(1),
            Assumed::Half => clients / 2,
            Assumed::Most => clients * 9 / 10,
        }
    }
}

/// How many clients are lost at half time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// One.
    One,
    /// Three.
    Three,
}

impl Lost {
    /// The number.
    pub fn count(self) -> usize {
        match self {
            Lost::One => 1,
            Lost::Three => 3,
        }
    }
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
            Method::Masked(Assumed::One) => "masks-one",
            Method::Masked(Assumed::Tenth) => "masks-tenth",
            Method::Masked(Assumed::Fifth) => "masks-fifth",
            Method::Masked(Assumed::Half) => "masks-half",
            Method::Masked(Assumed::Most) => "masks-most",
            Method::MaskedLosing(Lost::One) => "masks-losing-one",
            Method::MaskedLosing(Lost::Three) => "masks-losing-three",
            Method::Centre => "trusted-centre",
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
            Method::Masked(Assumed::One) => "masks, one colludes",
            Method::Masked(Assumed::Tenth) => "masks, a tenth collude",
            Method::Masked(Assumed::Fifth) => "masks, a fifth collude",
            Method::Masked(Assumed::Half) => "masks, half collude",
            Method::Masked(Assumed::Most) => "masks, nine tenths collude",
            Method::MaskedLosing(Lost::One) => "masks, one client is lost",
            Method::MaskedLosing(Lost::Three) => "masks, three clients are lost",
            Method::Centre => "trusted centre",
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
            Method::FreeRounds | Method::Masked(_) | Method::MaskedLosing(_) | Method::Centre => free,
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
    /// M_k.
    pub records: usize,
    /// P.
    pub features: usize,
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
    pub const PAPER: Setting =
        Setting { clients: 50, topology: Topology::Degree(3), condition: 1.0, records: 50, features: 8 };
    /// Ten clients with 200 records of 5 features.
    pub const TEN: Setting = Setting { clients: 10, records: 200, features: 5, ..Setting::PAPER };
    /// Five clients with 200 records of 5 features.
    pub const FIVE: Setting = Setting { clients: 5, ..Setting::TEN };

    /// The word in tables of tuned parameters.
    pub fn name(self) -> String {
        let size = match (self.records, self.features) {
            (50, 8) => String::new(),
            (records, features) => format!("-m{records}-p{features}"),
        };
        format!("k{}-{}-condition{}{size}", self.clients, self.topology.name(), self.condition)
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
        let Setting { clients, condition, records, features, .. } = setting;
        // A trusted centre is two clients with half of all records each, which trust each other and hear each other in every round: their
        // noise together is that of one gradient of all records, but for half a percent.
        let (held, each) = if method == Method::Centre { (2, clients * records / 2) } else { (clients, records) };
        let data = DataSpec::Synthetic { clients: held, records: vec![each], features, noise: 0.1, condition, spread };
        let graph = match setting.topology {
            _ if method == Method::Centre => GraphSpec::Complete,
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
        // The losses of fewer clients add up to less, so the regulariser counts less too.
        spec.lambda *= held as f64 / clients as f64;
        method.candidate().apply(parameters, &mut spec);
        if let (Some(colluders), Some(privacy)) = (self.colluders(), &mut spec.privacy) {
            privacy.colluders = Some(colluders);
        }
        match (method, &mut spec.privacy) {
            (Method::Centre, Some(privacy)) => privacy.theta = Some(LARGEST_THETA),
            (Method::MaskedLosing(lost), _) => spec.simulation.losses = lost.count(),
            _ => {}
        }
        spec.check()
    }

    /// How many clients are assumed to collude at most; none if all may.
    pub fn colluders(&self) -> Option<usize> {
        match self.method {
            Method::Masked(assumed) => Some(assumed.colluders(self.setting.clients)),
            Method::MaskedLosing(_) => Some(Assumed::Tenth.colluders(self.setting.clients)),
            Method::Centre => Some(0),
            _ => None,
        }
    }

    /// How many clients an error is the sum over.
    pub fn summed(&self) -> usize {
        match self.method {
            Method::Centre => 2,
            Method::MaskedLosing(lost) => self.setting.clients - lost.count(),
            _ => self.setting.clients,
        }
    }

    /// What is tuned.
    pub fn dials(&self) -> Vec<Dial> {
        let candidate = self.method.candidate();
        match (self.method, self.colluders()) {
            (Method::Centre, _) | (_, None) => candidate.dials(),
            (_, Some(colluders)) => candidate.masked_dials(self.setting.clients, colluders),
        }
    }
}
