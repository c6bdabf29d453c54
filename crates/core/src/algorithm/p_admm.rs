//! P-ADMM (Ding, Gong, Zhang, Pan, Han 2019): ADMM with the exact minimiser in the primal step, for smooth problems.
//!
//! ```text
//! w_k(n) = argmin_w f_k(w) + gamma_k(n-1).w + rho sum_l || w - (w~_k(n-1) + w~_l(n-1))/2 ||^2
//! ```
//!
//! The minimiser moves by at most 2 c1/(M mu), mu = 2 rho d + 2 lambda l2/K the strong convexity, *if* every
//! per-sample gradient is at most c1 at the minimiser. The closed form for ridge regression does not ensure that. So
//! here the clipped losses are minimised: those whose derivative is the clamped slope (for the squared loss, a Huber
//! loss with its own threshold for every record), by a semismooth Newton method. Where nothing is clipped the result
//! is the closed form.
//!
//! `p-admm-unclipped` is that closed form with the noise of the clipped one. It adds noise for a clip that it does not enforce; it
//! is here as a reference for published curves and is not private.

use std::sync::Arc;

use super::zcdp_nfl::RHO;
use super::{Algorithm, Entry, Round, Step, StepError};
use crate::cholesky::{Cholesky, dot};
use crate::knob::{Scale, Settings, Value};
use crate::privacy::Sensitivity;
use crate::problem::Problem;
use crate::records::{Records, Scratch};

/// The registry line.
const ENTRY: Entry = Entry {
    name: "p-admm",
    knobs: &[RHO],
    tau: Scale::BelowOne(1e-4, 0.1),
    bounds_liars: false,
    build: |settings| Arc::new(PAdmm { rho: settings.number("rho"), clipped: true }),
};

/// The registry line of the reference that is not private.
const UNCLIPPED_ENTRY: Entry = Entry {
    name: "p-admm-unclipped",
    build: |settings| Arc::new(PAdmm { rho: settings.number("rho"), clipped: false }),
    ..ENTRY
};

/// The registry lines.
pub const ENTRIES: &[Entry] = &[ENTRY, UNCLIPPED_ENTRY];

/// The inner solver ends when the gradient is shorter than this; the sensitivity includes the error it leaves.
const TOLERANCE: f64 = 1e-9;
const MOST_ITERATIONS: usize = 100;
/// A dense system of more equations takes too much memory and time.
const MOST_FEATURES: usize = 2000;

/// P-ADMM and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct PAdmm {
    /// The penalty rho of the augmented Lagrangian.
    pub rho: f64,
    /// Whether the clip is enforced.
    pub clipped: bool,
}

impl Algorithm for PAdmm {
    fn name(&self) -> &'static str {
        if self.clipped { ENTRY.name } else { UNCLIPPED_ENTRY.name }
    }

    fn dual_weight(&self) -> f64 {
        self.rho
    }

    fn settings(&self) -> Settings {
        Settings::new().with("rho", Value::Number(self.rho))
    }

    fn refuses(&self, problem: &Problem, features: usize, _: u32) -> Option<String> {
        let name = self.name();
        if features > MOST_FEATURES {
            return Some(format!(
                "{name} solves a system of {features} equations in every step; use zcdp-nfl above {MOST_FEATURES} features"
            ));
        }
        if !problem.loss.is_smooth() {
            return Some(format!(
                "{name} needs a differentiable loss (squared, huber or logistic), and {} is not; use zcdp-nfl",
                problem.loss.name()
            ));
        }
        if !problem.regularizer.is_smooth() {
            return Some(format!(
                "{name} needs a differentiable regularizer (none or l2), and {} is not; use zcdp-nfl",
                problem.regularizer.name()
            ));
        }
        None
    }

    /// A neighbour that releases a huge value in one coordinate makes the solver fail exactly where a record is nonzero
    /// in that coordinate.
    fn refuses_peers(&self) -> Option<&'static str> {
        Some(
            "is for simulation only: its solver may fail, and whether it does depends on the records without noise, so a \
             neighbour could learn about a record from a peer that stops; use zcdp-nfl or free-rounds",
        )
    }

    fn refuses_masks(&self) -> Option<&'static str> {
        Some(
            "its step is the minimiser of a local problem and not a public factor times a gradient, so masks would not cancel \
             in any sum; use free-rounds, zcdp-nfl or zcdp-grad-nfl, or leave privacy.colluders out",
        )
    }

    fn clips(&self) -> bool {
        self.clipped
    }

    /// A minimiser is found for one trial at a time.
    fn takes_trials(&self) -> bool {
        false
    }

    /// 2 c1/(M mu), plus the error of the inner solver: a gradient of TOLERANCE is TOLERANCE/mu of distance.
    fn sensitivity(&self, round: &Round, gradient: Sensitivity) -> Sensitivity {
        let problem = round.run.problem;
        // An intercept is not penalised, so it alone would move further.
        let ridge = if problem.intercept { 0.0 } else { ridge(problem, round.clients()) };
        let mu = 2.0 * self.rho * round.degree() as f64 + ridge;
        gradient.scaled(1.0 / mu).widened(TOLERANCE / mu)
    }

    fn step(
        &self,
        round: &Round,
        records: Records,
        gamma: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        // The minimiser depends on records as a whole.
        let w = step.private;
        step.public.fill(0.0);
        let degree = round.degree() as f64;
        // The gradient of all but the data and the ridge is 2 rho d w + pull.
        let mut pull = vec![0.0; w.len()];
        for (p, disagreement) in round.disagreement(&mut scratch.vector).iter().enumerate() {
            gamma[p] += self.rho * disagreement;
            // sum_l (w~_k + w~_l) = 2 d w~_k - sum_l (w~_k - w~_l)
            pull[p] = gamma[p] - self.rho * (2.0 * degree * round.own[p] - disagreement);
        }
        w.copy_from_slice(round.own);
        Local { round, records, pull, penalty: 2.0 * self.rho * degree }.minimize(scratch, w)
    }
}

/// The second derivative of (lambda/K) R for smooth R.
fn ridge(problem: &Problem, clients: usize) -> f64 {
    2.0 * problem.lambda * problem.regularizer.weights().1 / clients as f64
}

/// The strongly convex problem of one step.
struct Local<'a> {
    round: &'a Round<'a>,
    records: Records<'a>,
    pull: Vec<f64>,
    penalty: f64,
}

impl Local<'_> {
    fn gradient(&self, w: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        let problem = self.round.run.problem;
        self.records.gradient(problem.loss, w, 1.0, scratch, out);
        problem.add_regularizer_subgradient(1.0, self.round.clients(), w, 1, out);
        for ((out, pull), w) in out.iter_mut().zip(&self.pull).zip(w) {
            *out += self.penalty * w + pull;
        }
    }

    /// (1/D) sum of curvature_j x_j x_j^T over the records that are not clipped, plus the diagonal, by rows.
    fn hessian(&self, w: &[f64]) -> Vec<f64> {
        let problem = self.round.run.problem;
        let records = self.records;
        let n = w.len();
        let mut hessian = vec![0.0; n * n];
        let mut x = vec![0.0; n];
        for j in 0..records.len() {
            let (y, limit) = records.read(j, &mut x);
            let z: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            let clipped = problem.loss.slope(z, y).abs() > limit;
            let curvature = if clipped { 0.0 } else { problem.loss.curvature(z, y) };
            let scale = curvature / records.divisor();
            for (row, &xi) in hessian.chunks_exact_mut(n).zip(&x) {
                for (h, &xj) in row.iter_mut().zip(&x) {
                    *h += scale * xi * xj;
                }
            }
        }
        let ridge = ridge(problem, self.round.clients());
        let penalized = problem.penalized(w).len();
        for p in 0..n {
            hessian[p * n + p] += self.penalty + if p < penalized { ridge } else { 0.0 };
        }
        hessian
    }

    /// Newton's method; along each direction the step is halved until the slope no longer overshoots.
    fn minimize(&self, scratch: &mut Scratch, w: &mut [f64]) -> Result<(), StepError> {
        let n = w.len();
        let mut gradient = vec![0.0; n];
        let mut trial = vec![0.0; n];
        self.gradient(w, scratch, &mut gradient);
        for _ in 0..MOST_ITERATIONS {
            if norm(&gradient) <= TOLERANCE {
                return Ok(());
            }
            let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
            Cholesky::new(self.hessian(w), n, f64::MIN_POSITIVE).solve(&mut direction);
            let downhill = -dot(&gradient, &direction);
            let mut length = 1.0;
            for _ in 0..40 {
                for ((t, w), d) in trial.iter_mut().zip(&*w).zip(&direction) {
                    *t = w + length * d;
                }
                self.gradient(&trial, scratch, &mut gradient);
                if dot(&gradient, &direction) <= 0.1 * downhill {
                    break;
                }
                length *= 0.5;
            }
            w.copy_from_slice(&trial);
        }
        let reached = norm(&gradient);
        if reached <= TOLERANCE { Ok(()) } else { Err(StepError::Inexact { reached, assumed: TOLERANCE }) }
    }
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}
