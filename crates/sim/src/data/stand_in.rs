//! Records in the form of a study's, drawn from the public facts about its columns.
//!
//! Planning must not read the records. Only the schema is known: every number is inside its bounds, every
//! word on its list. Numbers are drawn around their typical mean with their typical spread, or with a third of the half-width as standard deviation
//! around the middle of the bounds, words by their typical shares, or evenly; the target follows from them by an unknown linear rule and noise, and is
//! moved into its bounds.

use rand::RngExt;
use rand::distr::Distribution;
use undertone_core::normal::Normal;
use undertone_core::privacy::Stream;
use undertone_core::schema::{Cell, Column, ColumnKind, Schema};
use undertone_data::Loaded;

use super::{DATA, TRUTH};

/// Standard deviation of numbers around the middle of their bounds, as a share of the half-width.
const SPREAD: f64 = 1.0 / 3.0;

/// How the records of one trial are drawn.
pub struct StandInLaw<'a> {
    seed: u64,
    trial: u32,
    schema: &'a Schema,
    noise: f64,
    classification: bool,
    truth: Vec<f64>,
}

impl<'a> StandInLaw<'a> {
    pub fn new(seed: u64, trial: u32, schema: &'a Schema, noise: f64, classification: bool) -> Self {
        let mut rng = Stream { trial, client: TRUTH, round: DATA }.fast(seed);
        let mut truth: Vec<f64> = (0..schema.features.len()).map(|_| Normal.sample(&mut rng)).collect();
        // Columns in units of their spread then give a target with the same spread.
        let norm = truth.iter().map(|v| v * v).sum::<f64>().sqrt();
        truth.iter_mut().for_each(|v| *v *= SPREAD / norm);
        // Separable labels are rare: noise as strong as the signal flips one in four.
        let noise = if classification { noise.max(SPREAD) } else { noise };
        Self { seed, trial, schema, noise, classification, truth }
    }

    /// The records of one client.
    pub fn draw(&self, client: usize, name: &str, count: usize) -> Loaded {
        let mut rng = Stream { trial: self.trial, client: client as u32, round: DATA }.fast(self.seed);
        let mut loaded = Loaded::empty(name);
        let mut x = Vec::new();
        for _ in 0..count {
            let mut signal = 0.0;
            let mut cells = Vec::with_capacity(self.schema.features.len() + 1);
            for (column, weight) in self.schema.features.iter().zip(&self.truth) {
                match &column.kind {
                    ColumnKind::Number { low, high } => {
                        let normal: f64 = Normal.sample(&mut rng);
                        let stray = (SPREAD * normal).clamp(-1.0, 1.0);
                        signal += weight * stray / SPREAD;
                        cells.push(Cell::Number(place(column, *low, *high, stray)));
                    }
                    ColumnKind::Category(words) => {
                        let index = match &column.typical {
                            Some(shares) => weighted(shares, rng.random()),
                            None => rng.random_range(0..words.len()),
                        };
                        // Evenly spaced in one direction; any rule would do.
                        signal += weight * (2.0 * index as f64 / (words.len() - 1) as f64 - 1.0);
                        cells.push(Cell::Text(words[index].as_str().into()));
                    }
                }
            }
            let normal: f64 = Normal.sample(&mut rng);
            cells.push(self.target(signal + self.noise * normal));
            let y = self.schema.encode(&cells, self.classification, &mut x).expect("drawn inside the public bounds");
            loaded.rows.extend(&x);
            loaded.targets.push(y);
        }
        loaded
    }

    /// The cell of a target at this distance from the middle.
    fn target(&self, stray: f64) -> Cell<'_> {
        match (&self.schema.target.kind, self.classification) {
            (ColumnKind::Category(words), _) => Cell::Text(words[usize::from(stray > 0.0)].as_str().into()),
            (ColumnKind::Number { low, high }, true) => Cell::Number(if stray > 0.0 { *high } else { *low }),
            (ColumnKind::Number { low, high }, false) => {
                Cell::Number(place(&self.schema.target, *low, *high, stray.clamp(-1.0, 1.0)))
            }
        }
    }
}

/// The number of a column at this distance from its middle, where a spread is [`SPREAD`].
fn place(column: &Column, low: f64, high: f64, stray: f64) -> f64 {
    match column.typical.as_deref() {
        Some(&[mean, spread]) => (mean + spread * stray / SPREAD).clamp(low, high),
        _ => within(low, high, stray),
    }
}

/// Which of some shares, added up one after the other, reaches `at` of their sum.
fn weighted(shares: &[f64], at: f64) -> usize {
    let total: f64 = shares.iter().sum();
    let mut sum = 0.0;
    let reached = |share: &f64| {
        sum += share;
        sum > at * total
    };
    shares.iter().position(reached).unwrap_or(shares.len() - 1)
}

/// The number at `share` of the way from the middle of [low, high] to one of its ends.
fn within(low: f64, high: f64, share: f64) -> f64 {
    (low + (high - low) * (0.5 + 0.5 * share)).clamp(low, high)
}
