//! The experiments of the paper's section V: its problems, its methods and their tuned parameters.

pub mod figures;
pub mod report;
pub mod tune;
pub mod verdict;

use std::fmt::Write;

use undertone_core::study::Study;

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

    /// The methods shown for this problem.
    pub fn methods(self) -> &'static [Method] {
        use Method::*;
        match self {
            Problem::Ridge => &[Zcdp, Dp, GradConstant, GradSqrt, PAdmm, PAdmmUnclipped],
            _ => &[Zcdp, Dp, GradConstant, GradSqrt],
        }
    }
}

/// The methods that section V compares, and the stronger forms of two of them.
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
}

impl Method {
    /// All of them; the position is also the position of its colour.
    pub const ALL: [Method; 6] =
        [Method::Zcdp, Method::Dp, Method::GradConstant, Method::GradSqrt, Method::PAdmm, Method::PAdmmUnclipped];

    /// The word in file names and in the table of tuned parameters.
    pub fn name(self) -> &'static str {
        match self {
            Method::Zcdp => "zcdp-nfl",
            Method::Dp => "dp-nfl",
            Method::GradConstant => "zcdp-grad-nfl-constant",
            Method::GradSqrt => "zcdp-grad-nfl-sqrt",
            Method::PAdmm => "p-admm",
            Method::PAdmmUnclipped => "p-admm-unclipped",
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
        }
    }

    /// The name in the registry of algorithms.
    fn algorithm(self) -> &'static str {
        match self {
            Method::GradConstant | Method::GradSqrt => "zcdp-grad-nfl",
            other => other.name(),
        }
    }

    /// Whether it has a penalty rho, and whether it has a step size.
    fn has(self) -> (bool, bool) {
        match self {
            Method::Zcdp | Method::Dp => (true, true),
            Method::GradConstant | Method::GradSqrt => (false, true),
            Method::PAdmm | Method::PAdmmUnclipped => (true, false),
        }
    }
}

/// What tuning decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// The penalty; unused by the subgradient method.
    pub rho: f64,
    /// The step size; unused by P-ADMM.
    pub eta: f64,
    /// Whether zCDP-NFL's step shrinks with 1/sqrt(n).
    pub shrinking: bool,
    /// c1.
    pub clip: f64,
    /// Growth of the budget from round to round.
    pub tau: f64,
}

/// Whether this method's step shrinks with 1/sqrt(n).
fn is_shrinking(method: Method, parameters: &Parameters) -> bool {
    match method {
        Method::GradConstant => false,
        Method::GradSqrt => true,
        _ => parameters.shrinking,
    }
}

/// The study of one curve.
pub fn study(problem: Problem, method: Method, epsilon: f64, parameters: &Parameters, seed: u64, trials: u32) -> Study {
    let (has_rho, has_eta) = method.has();
    let mut algorithm = format!("name = \"{}\"\n", method.algorithm());
    if has_rho {
        let _ = writeln!(algorithm, "rho = {}", parameters.rho);
    }
    if has_eta {
        let decay = if is_shrinking(method, parameters) { "sqrt" } else { "constant" };
        let _ = writeln!(algorithm, "eta = {}\ndecay = \"{decay}\"", parameters.eta);
    }
    let text = format!(
        "name = \"{}-{}-eps{epsilon}\"\nseed = {seed}\nrounds = {ROUNDS}\n[problem]\n{}\
         [data]\nsource = \"synthetic\"\nclients = 50\nrecords = 50\nfeatures = 8\nnoise = 0.1\n\
         [graph]\nkind = \"random\"\nmean_degree = 3\n[algorithm]\n{algorithm}\
         [privacy]\nepsilon = {epsilon}\ndelta = {DELTA}\ntau = {}\nclip = {}\naccountant = \"paper\"\n\
         [simulation]\ntrials = {trials}\nredraw = \"all\"\n",
        problem.name(),
        method.name(),
        problem.table(),
        parameters.tau,
        parameters.clip,
    );
    Study::parse(&text, "experiment").expect("parameters come from ranges that are valid")
}
