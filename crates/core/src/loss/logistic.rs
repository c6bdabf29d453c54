use super::{Loss, Shape};
use crate::knob::Settings;

/// The logistic loss ln(1 + exp(-y z)) for labels y = -1 and 1.
///
/// `libm` rather than the system's mathematics library, so that every machine gets the same bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logistic;

impl Loss for Logistic {
    const NAME: &'static str = "logistic";
    const SMOOTH: bool = true;
    const CLASSIFICATION: bool = true;

    fn new(_: &Settings) -> Self {
        Self
    }

    fn shape(self) -> Shape {
        Shape::Logistic
    }

    #[inline(always)]
    fn value(self, z: f64, y: f64) -> f64 {
        let m = -y * z;
        // ln(1 + e^m) = max(m, 0) + ln(1 + e^-|m|), which neither overflows nor cancels.
        m.max(0.0) + libm::log1p(libm::exp(-m.abs()))
    }

    #[inline(always)]
    fn slope(self, z: f64, y: f64) -> f64 {
        -y / (1.0 + libm::exp(y * z))
    }

    #[inline(always)]
    fn curvature(self, z: f64, y: f64) -> f64 {
        let e = libm::exp(-(y * z).abs());
        y * y * e / ((1.0 + e) * (1.0 + e))
    }
}
