use super::Loss;

/// The Huber loss: r^2/2 for |r| <= threshold, else threshold (|r| - threshold/2), r = z - y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Huber {
    /// Where the loss turns from quadratic to linear.
    pub threshold: f64,
}

impl Loss for Huber {
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
