//! Regularisers R(w), their subgradients and their proximal maps; the study's lambda multiplies them.

/// The regulariser of the problem. An intercept, when there is one, is the last coordinate and is never penalised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Regularizer {
    /// R(w) = 0
    None,
    /// R(w) = ||w||_1
    L1,
    /// R(w) = ||w||^2, as in the paper, without the half
    SquaredL2,
    /// R(w) = l1 ||w||_1 + l2 ||w||^2
    ElasticNet {
        /// Weight of the l1 norm (lambda1 in the paper).
        l1: f64,
        /// Weight of the squared l2 norm (lambda2 in the paper).
        l2: f64,
    },
}

impl Regularizer {
    /// The names a study can use.
    pub const NAMES: [&'static str; 4] = ["none", "l1", "l2", "elastic-net"];

    /// The name of this one.
    pub fn name(self) -> &'static str {
        match self {
            Regularizer::None => "none",
            Regularizer::L1 => "l1",
            Regularizer::SquaredL2 => "l2",
            Regularizer::ElasticNet { .. } => "elastic-net",
        }
    }

    /// The weights of ||w||_1 and of ||w||^2.
    pub fn weights(self) -> (f64, f64) {
        match self {
            Regularizer::None => (0.0, 0.0),
            Regularizer::L1 => (1.0, 0.0),
            Regularizer::SquaredL2 => (0.0, 1.0),
            Regularizer::ElasticNet { l1, l2 } => (l1, l2),
        }
    }

    /// Whether R is differentiable everywhere.
    pub fn is_smooth(self) -> bool {
        self.weights().0 == 0.0
    }

    /// R(w).
    pub fn value(self, w: &[f64]) -> f64 {
        let (l1, l2) = self.weights();
        w.iter().map(|v| l1 * v.abs() + l2 * v * v).sum()
    }

    /// Adds scale * R'(w) to `gradient`; at zero the l1 norm contributes its subgradient 0.
    pub fn add_subgradient(self, scale: f64, w: &[f64], gradient: &mut [f64]) {
        if self == Regularizer::None {
            return;
        }
        let (l1, l2) = self.weights();
        for (g, &v) in gradient.iter_mut().zip(w) {
            let sign = f64::from(v > 0.0) - f64::from(v < 0.0);
            *g += scale * (l1 * sign + 2.0 * l2 * v);
        }
    }

    /// Replaces u by argmin_w scale R(w) + ||w - u||^2/2: in every coordinate
    /// sign(u) max(|u| - scale l1, 0)/(1 + 2 scale l2), which is zero where |u| is at most scale l1.
    pub fn prox(self, scale: f64, u: &mut [f64]) {
        let (l1, l2) = self.weights();
        for v in u {
            *v = v.signum() * (v.abs() - scale * l1).max(0.0) / (1.0 + 2.0 * scale * l2);
        }
    }
}
