//! Losses of linear models: each is a function of the prediction z = x.w and the target y.
//!
//! The gradient of one record's loss in w is slope(z, y) x, so clipping its norm to c1 is clamping the slope to
//! c1/||x||: one comparison per record. To add a loss, write its file and add its line to the list below.

use crate::knob::{Knob, Settings};

/// A convex loss of one prediction.
pub trait Loss: Copy + Send + Sync {
    /// The name in a study.
    const NAME: &'static str;
    /// Its parameters.
    const KNOBS: &'static [Knob] = &[];
    /// Whether it is differentiable everywhere.
    const SMOOTH: bool;
    /// Whether targets are labels -1 and 1.
    const CLASSIFICATION: bool = false;

    /// From values of its parameters that were checked.
    fn new(settings: &Settings) -> Self;

    /// The values of its parameters.
    fn settings(self) -> Settings {
        Settings::new()
    }

    /// loss(z, y).
    fn value(self, z: f64, y: f64) -> f64;

    /// A subgradient of the loss in z; where it has a kink, the one of least magnitude or the midpoint.
    fn slope(self, z: f64, y: f64) -> f64;

    /// The second derivative in z where it exists, else 0.
    fn curvature(self, z: f64, y: f64) -> f64;

    /// The loss in terms that a cone solver knows.
    fn shape(self) -> Shape;

    /// The same loss where targets and predictions are `factor` times as large, up to a constant factor of its value.
    fn rescaled(self, _factor: f64) -> Self {
        self
    }
}

/// The shapes of which a cone program is made. The clipped loss has the same shape with its slopes clamped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// A function of the residual r = y - z: curvature r^2/2 as long as its slope stays within the limits, linear beyond
    /// them. Without curvature it is linear on both sides of zero.
    Residual {
        /// The second derivative at zero.
        curvature: Option<f64>,
        /// The largest slope where r is above zero.
        above: f64,
        /// The largest slope where r is below zero.
        below: f64,
    },
    /// max(0, 1 - y z)
    Hinge,
    /// ln(1 + exp(-y z))
    Logistic,
}

/// Makes of the list of losses everything that has to know all of them. `$d` is a dollar sign, for the macro inside.
macro_rules! losses {
    ($d:tt $($(#[$doc:meta])* $module:ident::$Loss:ident),* $(,)?) => {
        $(mod $module;)*
        $(pub use $module::$Loss;)*

        /// The losses that a study can name.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[non_exhaustive]
        pub enum AnyLoss {
            $($(#[$doc])* $Loss($Loss),)*
        }

        /// Runs `$body` with `$loss` bound to the concrete loss, so that inner loops are compiled once for each.
        macro_rules! with_loss {
            ($d any:expr, $d loss:ident => $d body:expr) => {
                match $d any {
                    $($crate::loss::AnyLoss::$Loss($d loss) => $d body,)*
                }
            };
        }

        impl AnyLoss {
            /// The names that a study can use, with the parameters of each.
            pub const ALL: &'static [(&'static str, &'static [Knob])] = &[$(($Loss::NAME, $Loss::KNOBS)),*];

            /// The loss of that name, from values of its parameters; `None` if there is no such loss or a value is not
            /// allowed.
            pub fn named(name: &str, settings: &Settings) -> Option<Self> {
                $(if name == $Loss::NAME {
                    return Some(AnyLoss::$Loss($Loss::new(&settings.complete($Loss::KNOBS).ok()?)));
                })*
                None
            }
        }

        $(impl From<$Loss> for AnyLoss {
            fn from(loss: $Loss) -> Self {
                AnyLoss::$Loss(loss)
            }
        })*
    };
}

losses! { $
    /// (z - y)^2
    squared::Squared,
    /// |z - y|
    absolute::Absolute,
    /// quadratic near zero, linear beyond a threshold
    huber::Huber,
    /// the pinball loss
    quantile::Quantile,
    /// ln(1 + exp(-y z)), y = -1 or 1
    logistic::Logistic,
    /// max(0, 1 - y z), y = -1 or 1
    hinge::Hinge,
}

pub(crate) use with_loss;

impl AnyLoss {
    /// The name of this one.
    pub fn name(self) -> &'static str {
        fn name<L: Loss>(_: L) -> &'static str {
            L::NAME
        }
        with_loss!(self, loss => name(loss))
    }

    /// Its parameters.
    pub fn knobs(self) -> &'static [Knob] {
        fn knobs<L: Loss>(_: L) -> &'static [Knob] {
            L::KNOBS
        }
        with_loss!(self, loss => knobs(loss))
    }

    /// The values of its parameters.
    pub fn settings(self) -> Settings {
        with_loss!(self, loss => loss.settings())
    }

    /// Whether the loss is differentiable everywhere.
    pub fn is_smooth(self) -> bool {
        fn smooth<L: Loss>(_: L) -> bool {
            L::SMOOTH
        }
        with_loss!(self, loss => smooth(loss))
    }

    /// Whether targets are labels -1 and 1.
    pub fn is_classification(self) -> bool {
        fn classification<L: Loss>(_: L) -> bool {
            L::CLASSIFICATION
        }
        with_loss!(self, loss => classification(loss))
    }

    /// loss(z, y).
    pub fn value(self, z: f64, y: f64) -> f64 {
        with_loss!(self, loss => loss.value(z, y))
    }

    /// See [`Loss::slope`].
    pub fn slope(self, z: f64, y: f64) -> f64 {
        with_loss!(self, loss => loss.slope(z, y))
    }

    /// See [`Loss::curvature`].
    pub fn curvature(self, z: f64, y: f64) -> f64 {
        with_loss!(self, loss => loss.curvature(z, y))
    }

    /// The loss in terms that a cone solver knows.
    pub fn shape(self) -> Shape {
        with_loss!(self, loss => loss.shape())
    }

    /// See [`Loss::rescaled`].
    pub fn rescaled(self, factor: f64) -> Self {
        with_loss!(self, loss => loss.rescaled(factor).into())
    }
}
