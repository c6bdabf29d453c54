use super::Loss;

/// The pinball loss of the `level` quantile: level (y - z) where z falls short of y, (1 - level)(z - y) where it
/// exceeds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// The quantile to estimate, in (0, 1).
    pub level: f64,
}

impl Loss for Quantile {
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
