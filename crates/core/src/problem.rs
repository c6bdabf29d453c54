//! The public part of the learning problem.

use crate::loss::AnyLoss;
use crate::records::{Records, Scratch};
use crate::regularizer::Regularizer;

/// What counts the same in the pooled problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Every record: D_k is the public mean number of records of a client, (1/K) sum_k M_k.
    Records,
    /// Every client, whatever the number of its records: D_k = M_k, as in the paper.
    Clients,
}

/// Minimise sum_k f_k(w_k) subject to all w_k being equal, with
///
/// f_k(w) = (1/D_k) sum_j loss(x_kj, y_kj; w) + (lambda/K) R(w).
///
/// D_k is kept with the records; [`Weights`] says what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The loss of one record.
    pub loss: AnyLoss,
    /// R.
    pub regularizer: Regularizer,
    /// lambda.
    pub lambda: f64,
    /// Whether the last feature is an intercept, which R does not penalise.
    pub intercept: bool,
}

impl Problem {
    /// The coordinates that R penalises.
    pub fn penalized<'a>(&self, w: &'a [f64]) -> &'a [f64] {
        self.penalized_of(w, 1)
    }

    /// The same of so many trials side by side, coordinate by coordinate.
    fn penalized_of<'a>(&self, w: &'a [f64], trials: usize) -> &'a [f64] {
        &w[..w.len() - trials * usize::from(self.intercept)]
    }

    /// Adds `scale` (lambda/K) R'(w) to `gradient`, for so many trials side by side.
    pub fn add_regularizer_subgradient(
        &self,
        scale: f64,
        clients: usize,
        w: &[f64],
        trials: usize,
        gradient: &mut [f64],
    ) {
        let w = self.penalized_of(w, trials);
        self.regularizer.add_subgradient(scale * self.lambda / clients as f64, w, gradient);
    }

    /// Replaces u by argmin_w `scale` (lambda/K) R(w) + ||w - u||^2/2, the exact step for R, for so many trials side by side.
    pub fn prox(&self, scale: f64, clients: usize, trials: usize, u: &mut [f64]) {
        let penalized = self.penalized_of(u, trials).len();
        self.regularizer.prox(scale * self.lambda / clients as f64, &mut u[..penalized]);
    }

    /// f_k(w).
    pub fn local_objective(&self, records: Records, clients: usize, w: &[f64], scratch: &mut Scratch) -> f64 {
        let penalty = self.lambda / clients as f64 * self.regularizer.value(self.penalized(w));
        records.mean_loss(self.loss, w, scratch) + penalty
    }
}
