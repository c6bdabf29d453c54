//! Synthetic data as in the paper: every client observes the same unknown w through noise.

use rand::RngExt;
use rand::distr::Distribution;
use undertone_core::normal::Normal;
use undertone_core::privacy::Stream;
use undertone_core::records::RecordLayout;

use super::{DATA, SIZE, TRUTH};

/// x ~ N(0, D), y = x.w + noise (or its sign, for classification), w ~ N(0, I). The variances in D fall evenly, in
/// logarithms, from 1 to 1/condition.
pub struct SyntheticLaw {
    seed: u64,
    trial: u32,
    noise: f64,
    classification: bool,
    truth: Vec<f64>,
    /// Standard deviations of the features.
    scales: Vec<f64>,
}

impl SyntheticLaw {
    pub fn new(seed: u64, trial: u32, features: usize, noise: f64, condition: f64, classification: bool) -> Self {
        let mut rng = Stream { trial, client: TRUTH, round: DATA }.fast(seed);
        let truth = (0..features).map(|_| Normal.sample(&mut rng)).collect();
        let last = (features.max(2) - 1) as f64;
        let scales = (0..features).map(|p| condition.powf(-0.5 * p as f64 / last)).collect();
        Self { seed, trial, noise, classification, truth, scales }
    }

    /// The same with w multiplied by a random factor from 1/spread to spread, uniform in its logarithm.
    pub fn with_spread(mut self, spread: f64) -> Self {
        // Its own stream: the direction of w, the features and the noise stay as they are.
        let mut rng = Stream { trial: self.trial, client: SIZE, round: DATA }.fast(self.seed);
        let factor = spread.powf(rng.random_range(-1.0..=1.0));
        self.truth.iter_mut().for_each(|w| *w *= factor);
        self
    }

    /// w.
    pub fn into_truth(self) -> Vec<f64> {
        self.truth
    }

    /// Fills the storage of one client.
    pub fn draw(&self, client: usize, layout: RecordLayout, storage: &mut [f64]) {
        let mut rng = Stream { trial: self.trial, client: client as u32, round: DATA }.fast(self.seed);
        let mut normal = || -> f64 { Normal.sample(&mut rng) };
        let mut x = vec![0.0; self.truth.len()];
        for j in 0..layout.records {
            x.iter_mut().zip(&self.scales).for_each(|(x, scale)| *x = scale * normal());
            let clean: f64 = x.iter().zip(&self.truth).map(|(x, w)| x * w).sum();
            let observed = clean + self.noise * normal();
            let y = match (self.classification, observed > 0.0) {
                (false, _) => observed,
                (true, true) => 1.0,
                (true, false) => -1.0,
            };
            layout.store(storage, j, &x, y);
        }
    }
}
