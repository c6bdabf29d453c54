//! What is measured in a round, and statistics over trials.

use std::ops::Range;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undertone_core::exact_sum::{ExactSum, of_columns};
use undertone_core::problem::Problem;
use undertone_core::records::Scratch;

use crate::central::Central;
use crate::data::{CHUNK, Population};
use crate::liars::Liars;
use crate::losses::LostClients;
use crate::network::Points;
use crate::ranks::Ranks;

/// Something about each of the three models that a client has after round n.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PerModel<T = f64> {
    /// w_k(n): before the noise, known only to client k.
    pub w: T,
    /// w~_k(n): what was released.
    pub released: T,
    /// The mean of w~_k(1), ..., w~_k(n).
    pub average: T,
}

impl<T> PerModel<T> {
    /// The same of each.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> PerModel<U> {
        PerModel { w: f(self.w), released: f(self.released), average: f(self.average) }
    }

    /// All three with the words that files use for them.
    pub fn named(&self) -> [(&'static str, &T); 3] {
        [("w", &self.w), ("released", &self.released), ("average", &self.average)]
    }
}

/// The metrics of one round of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// sum_k ||w_k - w_c||^2/||w_c||^2 against the central solution.
    pub error: Option<PerModel>,
    /// The same against the solution of the clipped problem.
    pub surrogate_error: Option<PerModel>,
    /// sum_k f_k(w~_k(n)).
    pub objective: f64,
    /// Root mean square distance of the released models from their mean.
    pub consensus: f64,
}

impl Metrics {
    /// Whether no number is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        let errors = self.error.iter().chain(&self.surrogate_error).flat_map(|e| [e.w, e.released, e.average]);
        errors.chain([self.objective, self.consensus]).all(f64::is_finite)
    }
}

/// What models are measured against.
pub struct Yardstick<'a> {
    /// The data.
    pub population: &'a Population,
    /// The problem.
    pub problem: &'a Problem,
    /// The central solution, if there is one.
    pub central: Option<&'a Central>,
    /// The solution of the clipped problem, if there is one.
    pub surrogate: Option<&'a Central>,
    /// Clients that are lost on the way, if there are any: their models count no more.
    pub losses: Option<&'a LostClients>,
    /// Clients that lie, if there are any: their models do not count.
    pub liars: Option<&'a Liars>,
}

/// Sums over clients: three errors, the same against the clipped solution, the objective, and squared distances from the mean.
const SUMS: usize = 8;

/// The sums over all clients of this process of numbers that each has, on all threads.
fn sums_over(places: usize, count: usize, of: impl Fn(Range<usize>) -> Vec<ExactSum> + Sync) -> Vec<ExactSum> {
    if places <= CHUNK {
        return of(0..places);
    }
    let chunk = |index: usize| of(index * CHUNK..((index + 1) * CHUNK).min(places));
    let merge = |mut all: Vec<ExactSum>, more: Vec<ExactSum>| {
        all.iter_mut().zip(more).for_each(|(all, more)| all.merge(more));
        all
    };
    (0..places.div_ceil(CHUNK)).into_par_iter().map(chunk).reduce(|| vec![ExactSum::default(); count], merge)
}

/// The mean over all clients of points that lie one after the other.
pub fn mean_point(points: &[f64], population: &Population, ranks: &dyn Ranks) -> Vec<f64> {
    let features = population.features();
    let rows = |range: Range<usize>| points[range.start * features..range.end * features].chunks_exact(features);
    let mut sums = sums_over(population.places(), features, |range| of_columns(rows(range), features));
    ranks.total(&mut sums);
    sums.iter().map(|sum| sum.value() / population.clients() as f64).collect()
}

impl Yardstick<'_> {
    /// Takes all metrics after `round`.
    pub fn measure(&self, models: &Points, round: u32, ranks: &dyn Ranks) -> Metrics {
        let features = self.population.features();
        let losses = self.losses.filter(|losses| round > losses.after);
        let counts = |place: &usize| {
            let client = self.population.client(*place);
            !losses.is_some_and(|losses| losses.is_lost(client))
                && !self.liars.is_some_and(|liars| liars.is_liar(client))
        };
        let places = self.population.places();
        let mean = if losses.is_some() || self.liars.is_some() {
            let counted = (0..places).filter(counts).map(|place| &models.released[place * features..][..features]);
            ranks.mean(counted, features).0
        } else {
            mean_point(&models.released, self.population, ranks)
        };
        let mut sums = sums_over(places, SUMS, |range| self.measure_some(models, &mean, range.filter(counts)));
        ranks.total(&mut sums);
        let mut sums = sums.iter().map(ExactSum::value);
        let mut next = || sums.next().expect("eight sums");
        let mut relative = |central: Option<&Central>| {
            let sums = PerModel { w: next(), released: next(), average: next() };
            let size = central?.size()?;
            Some(sums.map(|v| v / size))
        };
        let (error, surrogate_error) = (relative(self.central), relative(self.surrogate));
        let objective = next();
        let consensus = (next() / self.population.clients() as f64).sqrt();
        Metrics { error, surrogate_error, objective, consensus }
    }

    fn measure_some(&self, models: &Points, mean: &[f64], places: impl Iterator<Item = usize>) -> Vec<ExactSum> {
        let features = self.population.features();
        let mut scratch = Scratch::default();
        let mut sums = vec![ExactSum::default(); SUMS];
        for place in places {
            let own = |all: &[f64], centre: &[f64]| distance(&all[place * features..][..features], centre);
            let from = |central: Option<&Central>| {
                let models = [&models.w, &models.released, &models.average];
                models.map(|all| central.map_or(0.0, |central| own(all, &central.w)))
            };
            let released = &models.released[place * features..][..features];
            let records = self.population.records(place);
            let objective = self.problem.local_objective(records, self.population.clients(), released, &mut scratch);
            let errors = [from(self.central), from(self.surrogate)].concat();
            let terms = errors.into_iter().chain([objective, distance(released, mean)]);
            sums.iter_mut().zip(terms).for_each(|(sum, term)| sum.add(term));
        }
        sums
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The mean over trials and the band of the middle 80% of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Band {
    /// Arithmetic mean.
    pub mean: f64,
    /// Tenth percentile.
    pub q10: f64,
    /// Ninetieth percentile.
    pub q90: f64,
}

impl Band {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.sort_by(f64::total_cmp);
        let quantile = |level: f64| {
            let at = level * (values.len() - 1) as f64;
            let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
            low + (high - low) * at.fract()
        };
        Self { mean, q10: quantile(0.1), q90: quantile(0.9) }
    }
}
