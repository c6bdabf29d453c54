//! What tables may look like, for all that is public about them: a law of made-up data sets.
//!
//! A plan has to hold for records that nobody may look at, so it is made for many data sets that differ as real ones do: in where
//! their columns lie inside the public bounds and how wide they are, in correlation and shape, in how much the columns tell about the target.
//! The numbers below come from looking at public data sets, none of them a user's.

use rand::distr::Distribution;
use rand::{Rng, RngExt};
use undertone_core::normal::Normal;
use undertone_core::privacy::Stream;
use undertone_core::schema::{Cell, Column, ColumnKind, Schema};

/// The "client" whose stream draws the law of a set.
const LAW: u32 = u32::MAX - 3;

/// The shape of a column of numbers, as a function of a standard normal.
#[derive(Debug, Clone, Copy)]
enum Form {
    Normal,
    Skewed,
    Uniform,
    /// Whole steps, so many per spread.
    Discrete(f64),
}

impl Form {
    fn draw(rng: &mut impl Rng) -> Self {
        match rng.random_range(0..10) {
            0..5 => Form::Normal,
            5..7 => Form::Skewed,
            7..9 => Form::Uniform,
            _ => Form::Discrete(rng.random_range(0.5..2.0)),
        }
    }

    /// A number with mean 0 and spread 1, or nearly.
    fn of(self, z: f64) -> f64 {
        match self {
            Form::Normal => z,
            // A log-normal, centred and scaled; its sigma of 0.7 gives a skewness of about 3.
            Form::Skewed => {
                const SIGMA: f64 = 0.7;
                let mean = libm::exp(SIGMA * SIGMA / 2.0);
                (libm::exp(SIGMA * z) - mean) / (mean * (libm::exp(SIGMA * SIGMA) - 1.0).sqrt())
            }
            // The logistic function with slope 1.7 is the normal distribution function up to 0.01.
            Form::Uniform => 12f64.sqrt() * (1.0 / (1.0 + libm::exp(-1.702 * z)) - 0.5),
            Form::Discrete(steps) => (z * steps).round() / steps,
        }
    }
}

/// How the cells of one column are drawn.
#[derive(Debug, Clone)]
enum Part {
    /// centre + spread times a form, in the units of the table, moved into the bounds.
    Number { centre: f64, spread: f64, form: Form, loadings: Vec<f64>, own: f64 },
    /// A word each, with these probabilities, added up.
    Words(Vec<f64>),
}

/// How one made-up data set is drawn.
pub(crate) struct TableLaw<'a> {
    seed: u64,
    set: u32,
    schema: &'a Schema,
    parts: Vec<Part>,
    /// What a column adds to the signal: per spread of numbers, or for each word.
    effects: Vec<Vec<f64>>,
    factors: usize,
    signal_spread: f64,
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    /// A number with this centre and spread, of which the signal explains a share.
    Number { centre: f64, spread: f64, explained: f64, heavy: bool },
    /// A label whose logit is slope times the signal plus offset.
    Label { slope: f64, offset: f64 },
}

fn normal(rng: &mut impl Rng) -> f64 {
    Normal.sample(rng)
}

fn log_uniform(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    libm::exp(rng.random_range(libm::log(low)..libm::log(high)))
}

/// Where a column lies: around what is typical, or anywhere inside the bounds.
fn place(rng: &mut impl Rng, column: &Column, low: f64, high: f64, centres: f64, spreads: (f64, f64)) -> (f64, f64) {
    let (middle, half) = (low + (high - low) / 2.0, (high - low) / 2.0);
    let anywhere = (middle + half * rng.random_range(-centres..centres), half * log_uniform(rng, spreads.0, spreads.1));
    let (off, wide) = (normal(rng), normal(rng));
    match column.typical.as_deref() {
        Some(&[mean, spread]) => (mean + 0.25 * spread * off, spread * libm::exp(0.2 * wide)),
        _ => anywhere,
    }
}

impl<'a> TableLaw<'a> {
    pub fn new(seed: u64, set: u32, schema: &'a Schema, classification: bool) -> Self {
        let mut rng = Stream { trial: set, client: LAW, round: 0 }.fast(seed);
        let factors = rng.random_range(1..=3);
        let shared: f64 = rng.random_range(0.0..0.9);
        let parts: Vec<Part> = schema.features.iter().map(|column| part(&mut rng, column, factors, shared)).collect();
        // What columns have in common often tells about the target too: they then have effects in the same direction.
        let aligned: f64 = rng.random_range(0.0..1.0);
        let causes: [f64; 3] = std::array::from_fn(|_| normal(&mut rng));
        let effects = parts.iter().map(|part| match part {
            Part::Number { loadings, .. } => {
                let common: f64 = loadings.iter().zip(&causes).map(|(l, c)| l * c).sum();
                vec![(aligned / shared.max(1e-9)).sqrt() * common + (1.0 - aligned).sqrt() * normal(&mut rng)]
            }
            Part::Words(shares) => shares.iter().map(|_| normal(&mut rng)).collect(),
        });
        let effects = effects.collect();
        let target = match (&schema.target.kind, classification) {
            (ColumnKind::Number { low, high }, false) => {
                let (centre, spread) = place(&mut rng, &schema.target, *low, *high, 0.7, (0.025, 0.45));
                Target::Number { centre, spread, explained: rng.random_range(0.1..0.9), heavy: rng.random_bool(0.5) }
            }
            _ => Target::Label { slope: log_uniform(&mut rng, 0.5, 5.0), offset: normal(&mut rng) },
        };
        let mut law = Self { seed, set, schema, parts, effects, factors, signal_spread: 1.0, target };
        law.signal_spread = law.spread_of_signal(&mut rng);
        law
    }

    /// The spread of the signal, from a few hundred records.
    fn spread_of_signal(&self, rng: &mut impl Rng) -> f64 {
        let mut cells = Vec::new();
        let signals: Vec<f64> = (0..400).map(|_| self.features(rng, &mut cells)).collect();
        let mean = signals.iter().sum::<f64>() / signals.len() as f64;
        let variance = signals.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / signals.len() as f64;
        variance.sqrt().max(1e-6)
    }

    /// The features of one record, and their signal.
    fn features(&self, rng: &mut impl Rng, cells: &mut Vec<Cell<'a>>) -> f64 {
        cells.clear();
        let factors: [f64; 3] = std::array::from_fn(|_| normal(rng));
        let mut signal = 0.0;
        for ((column, part), effects) in self.schema.features.iter().zip(&self.parts).zip(&self.effects) {
            match (part, &column.kind) {
                (Part::Number { centre, spread, form, loadings, own }, ColumnKind::Number { low, high }) => {
                    let common: f64 = loadings.iter().zip(&factors[..self.factors]).map(|(l, f)| l * f).sum();
                    let value = form.of(common + own * normal(rng));
                    signal += effects[0] * value;
                    cells.push(Cell::Number((centre + spread * value).clamp(*low, *high)));
                }
                (Part::Words(sums), ColumnKind::Category(words)) => {
                    let at: f64 = rng.random();
                    let index = sums.iter().position(|sum| at < *sum).unwrap_or(words.len() - 1);
                    signal += effects[index];
                    cells.push(Cell::Text(words[index].as_str().into()));
                }
                _ => unreachable!("parts are made of the columns"),
            }
        }
        signal / self.signal_spread
    }

    /// Hands the records of one client to `each`, features first and target last.
    pub fn draw(&self, client: usize, count: usize, mut each: impl FnMut(&[Cell<'a>])) {
        let mut rng = Stream { trial: self.set, client: client as u32, round: 0 }.fast(self.seed);
        let mut cells = Vec::new();
        for _ in 0..count {
            let signal = self.features(&mut rng, &mut cells);
            cells.push(self.target_cell(&mut rng, signal));
            each(&cells);
        }
    }

    fn target_cell(&self, rng: &mut impl Rng, signal: f64) -> Cell<'a> {
        match (self.target, &self.schema.target.kind) {
            (Target::Number { centre, spread, explained, heavy }, ColumnKind::Number { low, high }) => {
                let noise = normal(rng);
                // Residuals of real tables often have longer tails than a normal; this one has the same variance.
                let tail = if heavy { libm::exp(0.8 * normal(rng) - 0.64) } else { 1.0 };
                let value = explained.sqrt() * signal + (1.0 - explained).sqrt() * noise * tail;
                Cell::Number((centre + spread * value).clamp(*low, *high))
            }
            (Target::Label { slope, offset }, kind) => {
                let is_second = rng.random::<f64>() < 1.0 / (1.0 + libm::exp(-slope * signal - offset));
                match kind {
                    ColumnKind::Number { low, high } => Cell::Number(if is_second { *high } else { *low }),
                    ColumnKind::Category(words) => Cell::Text(words[usize::from(is_second)].as_str().into()),
                }
            }
            _ => unreachable!("a target that is not a label is a number"),
        }
    }
}

fn part(rng: &mut impl Rng, column: &Column, factors: usize, shared: f64) -> Part {
    match &column.kind {
        ColumnKind::Number { low, high } => {
            let (centre, spread) = place(rng, column, *low, *high, 0.8, (0.025, 0.5));
            let mut loadings: Vec<f64> = (0..factors).map(|_| normal(rng)).collect();
            let norm = loadings.iter().map(|l| l * l).sum::<f64>().sqrt().max(1e-9);
            loadings.iter_mut().for_each(|l| *l *= shared.sqrt() / norm);
            Part::Number { centre, spread, form: Form::draw(rng), loadings, own: (1.0 - shared).sqrt() }
        }
        ColumnKind::Category(words) => {
            let weight = |i: usize, z: f64| match &column.typical {
                Some(shares) => (shares[i] + 0.02) * libm::exp(0.3 * z),
                None => libm::exp(z),
            };
            let weights: Vec<f64> = (0..words.len()).map(|i| weight(i, normal(rng))).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = 0.0;
            Part::Words(
                weights
                    .iter()
                    .map(|w| {
                        sum += w / total;
                        sum
                    })
                    .collect(),
            )
        }
    }
}
