//! Noise that was used before: whoever hears it twice over other values can subtract it.

use serde::Serialize;

/// How often two draws of noise are the same.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Repeats {
    /// How many draws were compared.
    pub draws: usize,
    /// Pairs of neighbours in order of size that are closer than chance allows.
    pub pairs: usize,
    /// How many there would be by chance.
    pub expected: f64,
}

/// In standard deviations. The public part of a release has rounding errors far below it.
const SAME: f64 = 1e-11;

impl Repeats {
    /// Of draws in units of their standard deviation, at most 20,000 of them.
    pub(crate) fn count(noise: &[f64]) -> Self {
        let step = noise.len().div_ceil(20_000).max(1);
        // Blocks of neighbouring draws, so that coordinates, clients and rounds next to each other are compared.
        let block = 500;
        let kept = noise.chunks(block).step_by(step).flatten();
        let mut sorted: Vec<f64> = kept.copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let pairs = sorted.windows(2).filter(|pair| pair[1] - pair[0] < SAME).count();
        let count = sorted.len() as f64;
        // Two normal draws are within s of each other with probability s/sqrt(pi).
        Self { draws: sorted.len(), pairs, expected: count * count / 2.0 * SAME / std::f64::consts::PI.sqrt() }
    }

    /// Whether there are more than chance explains: three, where a thousandth is expected, happen once in 10^9 audits.
    pub fn is_violated(&self) -> bool {
        self.pairs >= 3
    }
}
