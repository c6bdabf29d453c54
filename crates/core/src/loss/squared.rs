use super::Loss;

/// The squared loss (z - y)^2, without the half, as in the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Squared;

impl Loss for Squared {
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
