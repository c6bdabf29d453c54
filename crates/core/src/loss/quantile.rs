use super::{Loss, Shape};
use crate::knob::{Domain, Knob, Settings, Value};
use crate::rule;

/// The pinball loss of the `level` quantile: level (y - z) where z falls short of y, (1 - level)(z - y) where it
/// exceeds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// The quantile to estimate, in (0, 1).
    pub level: f64,
}

impl Loss for Quantile {
    const NAME: &'static str = "quantile";
    const KNOBS: &'static [Knob] =
        &[Knob { name: "level", domain: Domain::Number(rule::BETWEEN_ZERO_AND_ONE), default: None, search: None }];
    const SMOOTH: bool = false;

    fn new(settings: &Settings) -> Self {
        Self { level: settings.number("level") }
    }

    fn settings(self) -> Settings {
        Settings::new().with("level", Value::Number(self.level))
    }

    fn shape(self) -> Shape {
        Shape::Residual { curvature: None, above: self.level, below: 1.0 - self.level }
    }

    #[inline(always)]
    fn value(self, z: f64, y: f64) -> f64 {
        f64::max(self.level * (y - z), (1.0 - self.level) * (z - y))
    }

    #[inline(always)]
    fn slope(self, z: f64, y: f64) -> f64 {
        (1.0 - self.level) * f64::from(z > y) - self.level * f64::from(z < y)
    }

    #[inline(always)]
    fn curvature(self, _: f64, _: f64) -> f64 {
        0.0
    }
}
