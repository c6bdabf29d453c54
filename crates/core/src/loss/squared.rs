use super::{Loss, Shape};
use crate::knob::Settings;

/// The squared loss (z - y)^2, without the half, as in the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Squared;

impl Loss for Squared {
    const NAME: &'static str = "squared";
    const SMOOTH: bool = true;

    fn new(_: &Settings) -> Self {
        Self
    }

    fn shape(self) -> Shape {
        Shape::Residual { curvature: Some(2.0), above: f64::INFINITY, below: f64::INFINITY }
    }

    #[inline(always)]
    fn value(self, z: f64, y: f64) -> f64 {
        (z - y) * (z - y)
    }

    #[inline(always)]
    fn slope(self, z: f64, y: f64) -> f64 {
        2.0 * (z - y)
    }

    #[inline(always)]
    fn curvature(self, _: f64, _: f64) -> f64 {
        2.0
    }
}
