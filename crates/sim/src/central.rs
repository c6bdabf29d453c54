//! The central solution: what one party holding all records would compute, by an interior-point solver.
//!
//! ```text
//! minimise  sum_k (1/D_k) sum_j loss(x_kj, y_kj; w) + lambda R(w)
//! ```
//!
//! Clipping a record's gradient to c1 replaces its loss by one whose slope is clamped to t_j = c1/||x_j||. That is
//! the infimal convolution of the loss with t_j |.|, so the clipped problem is a cone program too; its solution is
//! what a noise-free clipped run converges to.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, ExponentialConeT, IPSolver, NonnegativeConeT, SolverStatus, SupportedConeT,
    ZeroConeT,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use undertone_core::loss::Shape;
use undertone_core::problem::Problem;
use undertone_core::records::Scratch;

use crate::caveat::{Caveat, GAP, Gain, View};
use crate::data::Population;

/// Pooled problems beyond these are not solved: a factorisation would take minutes.
const MOST_ENTRIES: usize = 4_000_000;
const MOST_WORK: usize = 500_000_000;

/// A minimiser of the pooled problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Central {
    /// w_c.
    pub w: Vec<f64>,
    /// The study's objective at w_c, for either choice of pooled losses.
    pub objective: f64,
    /// What to know before anything is compared with it; empty for a well-posed problem.
    pub caveats: Vec<Caveat>,
}

impl Central {
    /// ||w_c||^2, by which distances are normalised; none if w_c cannot be told from zero.
    pub fn size(&self) -> Option<f64> {
        (!self.caveats.contains(&Caveat::Zero)).then(|| square(&self.w)).filter(|size| *size > 0.0)
    }
}

fn square(w: &[f64]) -> f64 {
    w.iter().map(|v| v * v).sum()
}

/// Why there is no central solution.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CentralError {
    /// The study did not ask for it.
    #[error("simulation.central is false")]
    NotAsked,
    /// A factorisation would take minutes.
    #[error("the pooled problem has {records} records of {features} features, too many to solve centrally")]
    TooLarge {
        /// Records of all clients.
        records: usize,
        /// P.
        features: usize,
    },
    /// The solver found the problem malformed.
    #[error("the central solver refused the problem ({0})")]
    Refused(String),
    /// The solver did not converge.
    #[error("the central solver ended with {0}")]
    Unsolved(String),
    /// The solver stopped at a model that is worse than none.
    #[error(
        "the central solver ended at a model that is worse than zero; bring lambda and the ranges of the columns closer to 1"
    )]
    WorseThanZero,
    /// The solution has no finite length.
    #[error("the central solution is not finite; bring the ranges of the columns closer to 1, or raise lambda")]
    NotFinite,
}

/// Which losses to pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// The study's.
    Exact,
    /// Those whose gradients are the clipped ones.
    Clipped,
}

/// Whether the pooled problem can be solved in a few seconds.
pub(crate) fn is_small_enough(population: &Population) -> Result<(), CentralError> {
    let (records, features) = (population.total_records(), population.features());
    let entries = records * (features + 4);
    let is_small = entries <= MOST_ENTRIES && entries.saturating_mul(features) <= MOST_WORK;
    if is_small { Ok(()) } else { Err(CentralError::TooLarge { records, features }) }
}

/// Solves the pooled problem, or returns why it cannot.
pub fn solve(population: &Population, problem: &Problem, losses: Losses) -> Result<Central, CentralError> {
    is_small_enough(population)?;
    let mut program = Program::new(population.features());
    program.add_regularizer(problem);
    for k in 0..population.clients() {
        let records = population.records(k);
        let mut x = vec![0.0; population.features()];
        for j in 0..records.len() {
            let (y, limit) = records.read(j, &mut x);
            let limit = if losses == Losses::Clipped { limit } else { f64::INFINITY };
            program.add_record(problem.loss.shape(), &x, y, 1.0 / records.divisor(), limit);
        }
    }
    let w = program.solve()?;
    let objective = objective(population, problem, &w);
    if !square(&w).is_finite() || !objective.is_finite() {
        return Err(CentralError::NotFinite);
    }
    let view = View::new(population, problem, losses == Losses::Clipped, &w);
    match view.gain() {
        Gain::Worse => Err(CentralError::WorseThanZero),
        Gain::Better | Gain::None => Ok(Central { w, objective, caveats: view.caveats() }),
    }
}

/// sum_k f_k(w).
pub fn objective(population: &Population, problem: &Problem, w: &[f64]) -> f64 {
    let mut scratch = Scratch::default();
    let local = |k: usize| problem.local_objective(population.records(k), population.clients(), w, &mut scratch);
    (0..population.clients()).map(local).sum()
}

/// The least objective of a model without features.
pub fn null_objective(population: &Population, problem: &Problem) -> f64 {
    objective(population, problem, &null_model(population, problem))
}

/// The model without features that has the least objective: the best constant where there is an intercept, else zero.
pub fn null_model(population: &Population, problem: &Problem) -> Vec<f64> {
    let features = population.features();
    let mut w = vec![0.0; features];
    if !problem.intercept {
        return w;
    }
    let mut targets = (f64::INFINITY, f64::NEG_INFINITY);
    for k in 0..population.clients() {
        let records = population.records(k);
        for j in 0..records.len() {
            let y = records.target(j);
            targets = (targets.0.min(y), targets.1.max(y));
        }
    }
    // Labels are -1 and 1, and the odds of a rare one are not beyond e^30. A constant outside the targets is never better.
    let (mut low, mut high) = if problem.loss.is_classification() { (-30.0, 30.0) } else { targets };
    let mut at = |constant: f64| {
        w[features - 1] = constant;
        objective(population, problem, &w)
    };
    // The objective is convex: of three parts, one end part can be left out.
    for _ in 0..60 {
        let third = (high - low) / 3.0;
        if at(low + third) <= at(high - third) { high -= third } else { low += third }
    }
    w[features - 1] = (low + high) / 2.0;
    w
}

/// minimise x.P x/2 + q.x subject to rows of b - A x in cones, collected piece by piece.
struct Program {
    /// The quadratic cost of w alone, dense, by rows; only the upper triangle counts.
    gram: Vec<f64>,
    features: usize,
    quadratic: Entries,
    linear: Vec<f64>,
    equal: Rows,
    nonnegative: Rows,
    exponential: Rows,
}

/// Row, column and value.
type Entries = Vec<(usize, usize, f64)>;

/// Rows of b - A x.
#[derive(Default)]
struct Rows {
    entries: Entries,
    right: Vec<f64>,
}

impl Rows {
    /// Adds the row `right` - sum of coefficient times variable.
    fn push(&mut self, coefficients: impl IntoIterator<Item = (usize, f64)>, right: f64) {
        let row = self.right.len();
        self.entries.extend(coefficients.into_iter().filter(|(_, v)| *v != 0.0).map(|(column, v)| (row, column, v)));
        self.right.push(right);
    }
}

/// The weights with their columns, times a factor.
fn scaled(x: &[f64], factor: f64) -> impl Iterator<Item = (usize, f64)> {
    x.iter().map(move |v| factor * v).enumerate()
}

impl Program {
    fn new(features: usize) -> Self {
        Self {
            gram: vec![0.0; features * features],
            features,
            quadratic: Vec::new(),
            linear: vec![0.0; features],
            equal: Rows::default(),
            nonnegative: Rows::default(),
            exponential: Rows::default(),
        }
    }

    /// A new variable with that linear cost.
    fn variable(&mut self, cost: f64) -> usize {
        self.linear.push(cost);
        self.linear.len() - 1
    }

    /// A new variable that is at least zero.
    fn nonnegative_variable(&mut self, cost: f64) -> usize {
        let variable = self.variable(cost);
        self.nonnegative.push([(variable, -1.0)], 0.0);
        variable
    }

    fn add_regularizer(&mut self, problem: &Problem) {
        let (l1, l2) = problem.regularizer.weights();
        let penalized = problem.penalized(&self.linear).len();
        for p in 0..penalized {
            if l2 * problem.lambda > 0.0 {
                self.gram[p * self.features + p] += 2.0 * l2 * problem.lambda;
            }
            if l1 * problem.lambda > 0.0 {
                let size = self.variable(l1 * problem.lambda);
                self.nonnegative.push([(p, 1.0), (size, -1.0)], 0.0);
                self.nonnegative.push([(p, -1.0), (size, -1.0)], 0.0);
            }
        }
    }

    /// Adds `weight` times the loss of one record, its slope clamped to `limit`.
    fn add_record(&mut self, shape: Shape, x: &[f64], y: f64, weight: f64, limit: f64) {
        match shape {
            Shape::Residual { curvature: Some(curvature), above, below }
                if above.min(below).min(limit).is_infinite() =>
            {
                self.add_square(x, y, curvature * weight);
            }
            Shape::Residual { curvature, above, below } => {
                let (above, below) = (weight * above.min(limit), weight * below.min(limit));
                self.add_residual(x, y, curvature.map(|curvature| curvature * weight), above, below);
            }
            Shape::Hinge => {
                let short = self.nonnegative_variable(weight * limit.min(1.0));
                self.nonnegative.push(scaled(x, -y).chain([(short, -1.0)]), -1.0);
            }
            Shape::Logistic => self.add_logistic(x, y, weight, limit),
        }
    }

    /// curvature (y - x.w)^2/2 without any limit to its slope: a quadratic cost of w itself.
    fn add_square(&mut self, x: &[f64], y: f64, curvature: f64) {
        for p in 0..x.len() {
            self.linear[p] -= curvature * y * x[p];
            for q in p..x.len() {
                self.gram[p * x.len() + q] += curvature * x[p] * x[q];
            }
        }
    }

    /// y - x.w = z + above - below, at cost curvature z^2/2 + up above + down below.
    fn add_residual(&mut self, x: &[f64], y: f64, curvature: Option<f64>, up: f64, down: f64) {
        let above = self.nonnegative_variable(up);
        let below = self.nonnegative_variable(down);
        let mut parts = vec![(above, 1.0), (below, -1.0)];
        if let Some(curvature) = curvature {
            let z = self.variable(0.0);
            self.quadratic.push((z, z, curvature));
            parts.push((z, 1.0));
        }
        self.equal.push(scaled(x, 1.0).chain(parts), y);
    }

    /// s >= ln(1 + exp(-m)), m = y x.w + ease: exp(-m - s) <= p, exp(-s) <= q, p + q <= 1. `ease` costs the slope
    /// limit.
    fn add_logistic(&mut self, x: &[f64], y: f64, weight: f64, limit: f64) {
        let s = self.variable(weight);
        let p = self.variable(0.0);
        let q = self.variable(0.0);
        self.nonnegative.push([(p, 1.0), (q, 1.0)], 1.0);
        let mut exponent: Vec<(usize, f64)> = scaled(x, y).chain([(s, 1.0)]).collect();
        if limit < 1.0 {
            let ease = self.nonnegative_variable(weight * limit);
            exponent.push((ease, 1.0));
        }
        for (exponent, bound) in [(exponent, p), (vec![(s, 1.0)], q)] {
            self.exponential.push(exponent, 0.0);
            self.exponential.push([], 1.0);
            self.exponential.push([(bound, -1.0)], 0.0);
        }
    }

    /// w at the minimum.
    fn solve(mut self) -> Result<Vec<f64>, CentralError> {
        let features = self.features;
        let upper = (0..features).flat_map(|p| (p..features).map(move |q| (p, q)));
        self.quadratic.extend(upper.map(|(p, q)| (p, q, self.gram[p * features + q])).filter(|e| e.2 != 0.0));
        let variables = self.linear.len();
        let quadratic = matrix(variables, variables, &[(0, &self.quadratic)]);
        let counts = [&self.equal, &self.nonnegative, &self.exponential].map(|rows| rows.right.len());
        let constraints = matrix(
            counts.iter().sum(),
            variables,
            &[
                (0, &self.equal.entries),
                (counts[0], &self.nonnegative.entries),
                (counts[0] + counts[1], &self.exponential.entries),
            ],
        );
        let right = [self.equal.right, self.nonnegative.right, self.exponential.right].concat();
        let mut cones: Vec<SupportedConeT<f64>> = vec![ZeroConeT(counts[0]), NonnegativeConeT(counts[1])];
        cones.extend((0..counts[2] / 3).map(|_| ExponentialConeT()));
        // The limit of double precision; the solver stops when it makes no further progress.
        let settings = DefaultSettings {
            verbose: false,
            tol_gap_abs: GAP,
            tol_gap_rel: GAP,
            tol_feas: 1e-13,
            reduced_tol_gap_abs: 1e-9,
            reduced_tol_gap_rel: 1e-9,
            reduced_tol_feas: 1e-9,
            ..DefaultSettings::default()
        };
        let mut solver = DefaultSolver::new(&quadratic, &self.linear, &constraints, &right, &cones, settings)
            .map_err(|e| CentralError::Refused(e.to_string()))?;
        solver.solve();
        match solver.solution.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved | SolverStatus::InsufficientProgress => {
                Ok(solver.solution.x[..features].to_vec())
            }
            status => Err(CentralError::Unsolved(format!("{status:?}"))),
        }
    }
}

/// Upper-triangular or general entries as a sparse matrix; entries at the same place add up.
fn matrix(rows: usize, columns: usize, parts: &[(usize, &Entries)]) -> CscMatrix<f64> {
    let entries = || parts.iter().flat_map(|(offset, part)| part.iter().map(move |&(r, c, v)| (r + offset, c, v)));
    CscMatrix::new_from_triplets(
        rows,
        columns,
        entries().map(|e| e.0).collect(),
        entries().map(|e| e.1).collect(),
        entries().map(|e| e.2).collect(),
    )
}
