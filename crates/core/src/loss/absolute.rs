use super::{Loss, Shape};
use crate::knob::Settings;

/// The absolute loss |z - y| of least absolute deviations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Absolute;

impl Loss for Absolute {
    const NAME: &'static str = "absolute";
    const SMOOTH: bool = false;

    fn new(_: &Settings) -> Self {
        Self
    }

    fn shape(self) -> Shape {
        Shape::Residual { curvature: None, above: 1.0, below: 1.0 }
    }

    #[inline(always)]
    fn value(self, z: f64, y: f64) -> f64 {
        (z - y).abs()
    }

    #[inline(always)]
    fn slope(self, z: f64, y: f64) -> f64 {
        let above = if z > y { 1.0 } else { 0.0 };
        let below = if z < y { 1.0 } else { 0.0 };
        above - below
    }

    #[inline(always)]
    fn curvature(self, _: f64, _: f64) -> f64 {
        0.0
    }
}
