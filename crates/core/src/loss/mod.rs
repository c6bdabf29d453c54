//! Losses of linear models: each is a function of the prediction z = x.w and the target y.
//!
//! The gradient of one record's loss in w is slope(z, y) x, so clipping its norm to c1 is clamping the slope to
//! c1/||x||: one comparison per record.

mod absolute;
mod hinge;
mod huber;
mod logistic;
mod quantile;
mod squared;

pub use absolute::Absolute;
pub use hinge::Hinge;
pub use huber::Huber;
pub use logistic::Logistic;
pub use quantile::Quantile;
pub use squared::Squared;

/// A convex loss of one prediction.
pub trait Loss: Copy + Send + Sync {
    /// loss(z, y).
    fn value(self, z: f64, y: f64) -> f64;

    /// A subgradient of the loss in z; where it has a kink, the one of least magnitude or the midpoint.
    fn slope(self, z: f64, y: f64) -> f64;

    /// The second derivative in z where it exists, else 0.
    fn curvature(self, z: f64, y: f64) -> f64;
}

/// The losses a study can name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AnyLoss {
    /// (z - y)^2
    Squared(Squared),
    /// |z - y|
    Absolute(Absolute),
    /// quadratic near zero, linear beyond a threshold
    Huber(Huber),
    /// the pinball loss
    Quantile(Quantile),
    /// ln(1 + exp(-y z)), y = -1 or 1
    Logistic(Logistic),
    /// max(0, 1 - y z), y = -1 or 1
    Hinge(Hinge),
}

/// Runs `$body` with `$loss` bound to the concrete loss, so that inner loops are compiled once for each.
#[macro_export]
macro_rules! with_loss {
    ($any:expr, $loss:ident => $body:expr) => {
        match $any {
            $crate::loss::AnyLoss::Squared($loss) => $body,
            $crate::loss::AnyLoss::Absolute($loss) => $body,
            $crate::loss::AnyLoss::Huber($loss) => $body,
            $crate::loss::AnyLoss::Quantile($loss) => $body,
            $crate::loss::AnyLoss::Logistic($loss) => $body,
            $crate::loss::AnyLoss::Hinge($loss) => $body,
        }
    };
}

impl AnyLoss {
    /// The names a study can use.
    pub const NAMES: [&'static str; 6] = ["squared", "absolute", "huber", "quantile", "logistic", "hinge"];

    /// The name of this one.
    pub fn name(self) -> &'static str {
        match self {
            AnyLoss::Squared(_) => "squared",
            AnyLoss::Absolute(_) => "absolute",
            AnyLoss::Huber(_) => "huber",
            AnyLoss::Quantile(_) => "quantile",
            AnyLoss::Logistic(_) => "logistic",
            AnyLoss::Hinge(_) => "hinge",
        }
    }

    /// Whether the loss is differentiable everywhere.
    pub fn is_smooth(self) -> bool {
        matches!(self, AnyLoss::Squared(_) | AnyLoss::Huber(_) | AnyLoss::Logistic(_))
    }

    /// Whether targets are labels -1 and 1.
    pub fn is_classification(self) -> bool {
        matches!(self, AnyLoss::Logistic(_) | AnyLoss::Hinge(_))
    }
}
