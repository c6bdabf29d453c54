use super::{Loss, Shape};
use crate::knob::{Domain, Knob, Settings, Value};
use crate::rule;

/// The Huber loss: r^2/2 for |r| <= threshold, else threshold (|r| - threshold/2), r = z - y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Huber {
    /// Where the loss turns from quadratic to linear.
    pub threshold: f64,
}

impl Loss for Huber {
    const NAME: &'static str = "huber";
    const KNOBS: &'static [Knob] =
        &[Knob { name: "threshold", domain: Domain::Number(rule::POSITIVE), default: None, search: None }];
    const SMOOTH: bool = true;

    fn new(settings: &Settings) -> Self {
        Self { threshold: settings.number("threshold") }
    }

    fn settings(self) -> Settings {
        Settings::new().with("threshold", Value::Number(self.threshold))
    }

    fn shape(self) -> Shape {
        Shape::Residual { curvature: Some(1.0), above: self.threshold, below: self.threshold }
    }

    fn rescaled(self, factor: f64) -> Self {
        Self { threshold: self.threshold * factor }
    }

    #[inline(always)]
    fn value(self, z: f64, y: f64) -> f64 {
        let r = (z - y).abs();
        if r <= self.threshold { 0.5 * r * r } else { self.threshold * (r - 0.5 * self.threshold) }
    }

    #[inline(always)]
    fn slope(self, z: f64, y: f64) -> f64 {
        (z - y).max(-self.threshold).min(self.threshold)
    }

    #[inline(always)]
    fn curvature(self, z: f64, y: f64) -> f64 {
        f64::from((z - y).abs() <= self.threshold)
    }
}
