//! P-ADMM (Ding, Gong, Zhang, Pan, Han 2019): ADMM with the exact minimiser in the primal step, for smooth problems.
//!
//! ```text
//! w_k(n) = argmin_w f_k(w) + gamma_k(n-1).w + rho sum_l || w - (w~_k(n-1) + w~_l(n-1))/2 ||^2
//! ```
//!
//! The minimiser moves by at most 2 c1/(M mu), mu = 2 rho d + 2 lambda l2/K the strong convexity, *if* every
//! per-sample gradient is at most c1 at the minimiser. The closed form for ridge regression does not see to that. So
//! here the clipped losses are minimised: those whose derivative is the clamped slope (for the squared loss, a Huber
//! loss with its own threshold for every record), by a semismooth Newton method. Where nothing is clipped the result
//! is the closed form.
//!
//! `p-admm-unclipped` is that closed form with the noise of the clipped one. It promises what it does not enforce; it
//! is here as a reference for published curves and is not private.

use std::sync::Arc;

use super::{Algorithm, Entry, Facts, Step, StepError, View};
use crate::loss::Loss;
use crate::privacy::Sensitivity;
use crate::problem::Problem;
use crate::records::{Records, Scratch};
use crate::with_loss;

/// The registry line.
pub const ENTRY: Entry =
    Entry { name: "p-admm", read: |reader| Ok(Arc::new(PAdmm { rho: reader.positive("rho")?, clipped: true })) };

/// The registry line of the reference that is not private.
pub const UNCLIPPED_ENTRY: Entry = Entry {
    name: "p-admm-unclipped",
    read: |reader| Ok(Arc::new(PAdmm { rho: reader.positive("rho")?, clipped: false })),
};

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

    fn settings(&self) -> toml::Table {
        let mut table = toml::Table::new();
        table.insert("rho".into(), self.rho.into());
        table
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

    /// A neighbour that releases a huge value in one coordinate makes the solver fail exactly where a record has something
    /// in that coordinate.
    fn refuses_peers(&self) -> Option<&'static str> {
        Some(
            "is for simulation only: its solver may fail, and whether it does depends on the records without noise, so a \
             neighbour could learn about a record from a peer that stops; use zcdp-nfl or free-rounds",
        )
    }

    fn clips(&self) -> bool {
        self.clipped
    }

    /// 2 c1/(M mu), widened by what the inner solver may be off: a gradient of TOLERANCE is TOLERANCE/mu of distance.
    fn sensitivity(&self, facts: Facts, _: u32) -> Sensitivity {
        // An intercept is not penalised, so it alone would move further.
        let ridge = if facts.problem.intercept { 0.0 } else { ridge(facts.problem, facts.clients) };
        let mu = 2.0 * self.rho * facts.degree as f64 + ridge;
        Sensitivity::of_clipped_mean(facts.clip, facts.records).scaled(1.0 / mu).widened(TOLERANCE / mu)
    }

    fn step(
        &self,
        view: &View,
        records: Records,
        gamma: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        // The minimiser depends on records as a whole.
        let w = step.private;
        step.public.fill(0.0);
        let degree = view.slots.len() as f64;
        // The gradient of all but the data and the ridge is 2 rho d w + pull.
        let mut pull = vec![0.0; w.len()];
        for (p, disagreement) in view.disagreement(&mut scratch.vector).iter().enumerate() {
            gamma[p] += self.rho * disagreement;
            // sum_l (w~_k + w~_l) = 2 d w~_k - sum_l (w~_k - w~_l)
            pull[p] = gamma[p] - self.rho * (2.0 * degree * view.own[p] - disagreement);
        }
        w.copy_from_slice(view.own);
        Local { view, records, pull, penalty: 2.0 * self.rho * degree }.minimize(scratch, w)
    }
}

/// The second derivative of (lambda/K) R for smooth R.
fn ridge(problem: &Problem, clients: usize) -> f64 {
    2.0 * problem.lambda * problem.regularizer.weights().1 / clients as f64
}

/// The strongly convex problem of one step.
struct Local<'a> {
    view: &'a View<'a>,
    records: Records<'a>,
    pull: Vec<f64>,
    penalty: f64,
}

impl Local<'_> {
    fn gradient(&self, w: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        let View { problem, graph, .. } = *self.view;
        self.records.gradient(problem.loss, w, 1.0, scratch, out);
        problem.add_regularizer_subgradient(1.0, graph.clients(), w, out);
        for ((out, pull), w) in out.iter_mut().zip(&self.pull).zip(w) {
            *out += self.penalty * w + pull;
        }
    }

    /// (1/M) sum of curvature_j x_j x_j^T over the records that are not clipped, plus the diagonal, by rows.
    fn hessian(&self, w: &[f64]) -> Vec<f64> {
        let View { problem, graph, .. } = *self.view;
        let records = self.records;
        let n = w.len();
        let mut hessian = vec![0.0; n * n];
        let mut x = vec![0.0; n];
        for j in 0..records.len() {
            let (y, limit) = records.read(j, &mut x);
            let z: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            let curvature = with_loss!(problem.loss, loss => {
                if loss.slope(z, y).abs() <= limit { loss.curvature(z, y) } else { 0.0 }
            });
            let scale = curvature / records.len() as f64;
            for (row, &xi) in hessian.chunks_exact_mut(n).zip(&x) {
                for (h, &xj) in row.iter_mut().zip(&x) {
                    *h += scale * xi * xj;
                }
            }
        }
        let ridge = ridge(problem, graph.clients());
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
            solve_cholesky(self.hessian(w), &mut direction);
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

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Solves A x = b in place for a positive definite A by rows: A = L L^T, then two triangular solves.
fn solve_cholesky(mut a: Vec<f64>, b: &mut [f64]) {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let inner = dot(&a[i * n..i * n + j], &a[j * n..j * n + j]);
            let rest = a[i * n + j] - inner;
            a[i * n + j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / a[j * n + j] };
        }
    }
    for i in 0..n {
        b[i] = (b[i] - dot(&a[i * n..i * n + i], &b[..i])) / a[i * n + i];
    }
    for i in (0..n).rev() {
        let below: f64 = (i + 1..n).map(|j| a[j * n + i] * b[j]).sum();
        b[i] = (b[i] - below) / a[i * n + i];
    }
}
