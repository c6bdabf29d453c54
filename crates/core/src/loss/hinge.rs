use super::{Loss, Shape};
use crate::knob::Settings;

/// The hinge loss max(0, 1 - y z) of the support vector machine, for labels y = -1 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hinge;

impl Loss for Hinge {
    const NAME: &'static str = "hinge";
    const SMOOTH: bool = false;
    const CLASSIFICATION: bool = true;

    fn new(_: &Settings) -> Self {
        Self
    }

    fn shape(self) -> Shape {
        Shape::Hinge
    }

    #[inline(always)]
    fn value(self, z: f64, y: f64) -> f64 {
        (1.0 - y * z).max(0.0)
    }

    #[inline(always)]
    fn slope(self, z: f64, y: f64) -> f64 {
        -y * f64::from(y * z < 1.0)
    }

    #[inline(always)]
    fn curvature(self, _: f64, _: f64) -> f64 {
        0.0
    }
}
