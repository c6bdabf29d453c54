//! What is measured in a round, and statistics over trials.

use rayon::prelude::*;
use serde::Serialize;
use undertone_core::problem::Problem;
use undertone_core::records::Scratch;

use crate::central::Central;
use crate::data::{CHUNK, Population};
use crate::liars::Liars;
use crate::losses::LostClients;
use crate::network::Points;

/// Something about each of the three models that a client has after round n.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
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
    pub fn map<U>(self, f: impl Fn(T) -> U) -> PerModel<U> {
        PerModel { w: f(self.w), released: f(self.released), average: f(self.average) }
    }

    /// All three with the words that files use for them.
    pub fn named(&self) -> [(&'static str, &T); 3] {
        [("w", &self.w), ("released", &self.released), ("average", &self.average)]
    }
}

impl PerModel {
    fn plus(self, other: Self) -> Self {
        Self { w: self.w + other.w, released: self.released + other.released, average: self.average + other.average }
    }
}

/// The metrics of one round of one trial.
#[derive(Debug, Clone, Copy, PartialEq)]
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

#[derive(Default, Clone, Copy)]
struct Sums {
    error: PerModel,
    surrogate: PerModel,
    objective: f64,
    spread: f64,
}

impl Yardstick<'_> {
    /// Takes all metrics after `round`. Sums run over clients in chunks of fixed size, so they do not depend on the threads.
    pub fn measure(&self, models: &Points, round: u32) -> Metrics {
        let features = self.population.features();
        let clients = self.population.clients();
        let losses = self.losses.filter(|losses| round > losses.after);
        let gone = |k: usize| losses.is_some_and(|losses| losses.is_lost(k));
        let lies = |k: usize| self.liars.is_some_and(|liars| liars.is_liar(k));
        let counts = |k: &usize| !gone(*k) && !lies(*k);
        let mean = if losses.is_some() || self.liars.is_some() {
            let counted = (0..clients).filter(counts);
            let points: Vec<f64> =
                counted.flat_map(|k| &models.released[k * features..][..features]).copied().collect();
            undertone_data::mean(&points, features)
        } else {
            undertone_data::mean(&models.released, features)
        };
        let chunks = clients.div_ceil(CHUNK);
        let chunk = |index: usize| {
            let range = index * CHUNK..((index + 1) * CHUNK).min(clients);
            self.measure_chunk(models, &mean, range.filter(counts))
        };
        let parts: Vec<Sums> =
            if chunks == 1 { vec![chunk(0)] } else { (0..chunks).into_par_iter().map(chunk).collect() };
        let total = parts.iter().fold(Sums::default(), |a, b| Sums {
            error: a.error.plus(b.error),
            surrogate: a.surrogate.plus(b.surrogate),
            objective: a.objective + b.objective,
            spread: a.spread + b.spread,
        });
        let relative = |central: Option<&Central>, sums: PerModel| {
            let size = central?.size()?;
            Some(sums.map(|v| v / size))
        };
        Metrics {
            error: relative(self.central, total.error),
            surrogate_error: relative(self.surrogate, total.surrogate),
            objective: total.objective,
            consensus: (total.spread / clients as f64).sqrt(),
        }
    }

    fn measure_chunk(&self, models: &Points, mean: &[f64], clients: impl Iterator<Item = usize>) -> Sums {
        let features = self.population.features();
        let mut scratch = Scratch::default();
        let mut sums = Sums::default();
        for k in clients {
            let own = |all: &[f64], centre: &[f64]| distance(&all[k * features..][..features], centre);
            let all = |centre: &[f64]| PerModel {
                w: own(&models.w, centre),
                released: own(&models.released, centre),
                average: own(&models.average, centre),
            };
            if let Some(central) = self.central {
                sums.error = sums.error.plus(all(&central.w));
            }
            if let Some(surrogate) = self.surrogate {
                sums.surrogate = sums.surrogate.plus(all(&surrogate.w));
            }
            let released = &models.released[k * features..][..features];
            let records = self.population.records(k);
            sums.objective += self.problem.local_objective(records, self.population.clients(), released, &mut scratch);
            sums.spread += distance(released, mean);
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
