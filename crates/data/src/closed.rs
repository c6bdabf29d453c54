//! What a closing release says, in the units of the table.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use undertone_core::closing::{ClosingNoise, HeldMean, PrivateScores, Uncertainty, normal_range};
use undertone_core::loss::AnyLoss;
use undertone_core::study::Study;

/// A coefficient with its interval, in the units of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The feature, or "intercept".
    pub name: String,
    /// The estimate on which the interval is centred. The model itself keeps its own coefficient.
    pub estimate: f64,
    /// Its standard error: sampling and privacy noise.
    pub error: f64,
    /// The ends of the interval.
    pub range: (f64, f64),
    /// How many times wider it is than one without privacy noise.
    pub widening: f64,
}

/// A score over all parties that was released privately: its name, its value, and the ends of its interval.
pub type PrivateScore = (String, f64, (f64, f64));

/// What was released after the last round, read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The level of the intervals.
    pub level: f64,
    /// One interval for each coefficient, the intercept first if there is one; or why there is none. None if none was asked for.
    pub intervals: Option<Result<Vec<Interval>, String>>,
    /// Scores over all parties, with their intervals; or why there are none. None if none were asked for.
    pub scores: Option<Result<Vec<PrivateScore>, String>>,
}

impl Closed {
    /// From the mean of the releases of `present` of `clients` clients in the closing study of a study, each dividing by `divisor`.
    pub fn new(
        study: &Study,
        closing: &Study,
        mean: &[f64],
        (clients, present): (usize, usize),
        divisor: f64,
    ) -> Option<Self> {
        let parts = closing.spec().closing.as_ref()?;
        let sigma = study.closing_sigma(clients, present, divisor)?;
        let noise = ClosingNoise { sigma, records: divisor * present as f64, clients };
        let level = study.spec().inference.unwrap_or(0.95);
        let problem = study.public_problem()?;
        let intervals = parts
            .hessian
            .map(|_| parts.uncertainty(mean, noise, &problem).map(|found| in_table_units(study, &found, level)));
        let scores = parts.scores.then(|| {
            let found = parts.private_scores(mean, noise);
            let found = found.map(|scores| readable(study, &scores, parts.range, normal_range(level)));
            found.filter(|scores| !scores.is_empty()).ok_or_else(|| {
                "the noise is as large as the scores: they need more records, a larger hold-out, a larger epsilon or masks".into()
            })
        });
        Some(Self { level, intervals, scores })
    }

    /// As in model.json and statements.
    pub fn to_json(&self) -> Value {
        let interval = |i: &Interval| {
            let numbers = json!({
                "estimate": i.estimate, "standard_error": i.error, "low": i.range.0, "high": i.range.1, "widening": i.widening,
            });
            (i.name.clone(), numbers)
        };
        let intervals = self.intervals.as_ref().map(|found| match found {
            Ok(intervals) => json!({
                "level": self.level,
                "coefficients": Value::Object(intervals.iter().map(interval).collect()),
            }),
            Err(reason) => json!({ "level": self.level, "coefficients": null, "reason": reason }),
        });
        let score = |(name, value, (low, high)): &PrivateScore| {
            (name.clone(), json!({ "value": value, "low": low, "high": high }))
        };
        let told = self.scores.as_ref().and_then(|scores| scores.as_ref().ok());
        let told = told.map(|scores| Value::Object(scores.iter().map(score).collect()));
        let mut json = json!({ "intervals": intervals, "private_scores": told });
        if let Some(Err(reason)) = &self.scores {
            json["private_scores_reason"] = json!(reason);
        }
        json
    }
}

/// The map from learned to original units is affine: its columns are what unit vectors become.
fn in_table_units(study: &Study, found: &Uncertainty, level: f64) -> Vec<Interval> {
    let (Some(schema), p) = (study.spec().schema(), found.estimate.len()) else { return Vec::new() };
    let classification = study.spec().loss.is_classification();
    let flat = |w: &[f64]| {
        let units = schema.original_units(w, classification);
        let names = std::iter::once("intercept".to_string()).chain(units.coefficients.iter().map(|c| c.0.clone()));
        let values = std::iter::once(units.intercept).chain(units.coefficients.iter().map(|c| c.1));
        (names.collect::<Vec<_>>(), values.collect::<Vec<f64>>())
    };
    let (names, origin) = flat(&vec![0.0; p]);
    let unit = |i: usize| {
        let mut w = vec![0.0; p];
        w[i] = 1.0;
        flat(&w).1.iter().zip(&origin).map(|(v, o)| v - o).collect::<Vec<f64>>()
    };
    let columns: Vec<Vec<f64>> = (0..p).map(unit).collect();
    let (_, estimate) = flat(&found.estimate);
    let variance = |covariance: &[f64], at: usize| -> f64 {
        let pairs = (0..p).flat_map(|i| (0..p).map(move |j| (i, j)));
        pairs.map(|(i, j)| columns[i][at] * covariance[i * p + j] * columns[j][at]).sum()
    };
    let z = normal_range(level);
    // Without an intercept of its own the constant follows from the bounds and the other coefficients.
    let first = usize::from(!schema.intercept);
    (first..names.len())
        .map(|at| {
            let (all, sampling) = (variance(&found.covariance, at).sqrt(), variance(&found.sampling, at).sqrt());
            let (name, estimate) = (names[at].clone(), estimate[at]);
            Interval {
                name,
                estimate,
                error: all,
                range: (estimate - z * all, estimate + z * all),
                widening: all / sampling,
            }
        })
        .collect()
}

/// Whether a mean of numbers from 0 up is more than its error.
fn is_more_than_noise(mean: &HeldMean) -> bool {
    mean.mean > 2.0 * mean.error
}

/// Scores in the units of the table, each with its interval; none that noise hides.
fn readable(study: &Study, scores: &PrivateScores, range: f64, z: f64) -> Vec<PrivateScore> {
    let ends = |mean: &HeldMean| ((mean.mean - z * mean.error).max(0.0), mean.mean + z * mean.error);
    if study.spec().loss.is_classification() {
        const LOG_LOSS: f64 = 4.0;
        let (low, high) = ends(&scores.square);
        let (worse, better) = ends(&scores.absolute);
        let mut found = Vec::new();
        if scores.absolute.error < 0.25 {
            found.push(("accuracy".into(), scores.absolute.mean, (worse, better.min(1.0))));
        }
        // The hinge loss gives no probabilities.
        if matches!(study.spec().loss, AnyLoss::Logistic(_)) && is_more_than_noise(&scores.square) {
            found.push(("log loss".into(), LOG_LOSS * scores.square.mean, (LOG_LOSS * low, LOG_LOSS * high)));
        }
        return found;
    }
    let unit = study.spec().schema().map_or(1.0, |schema| schema.target_unit()) * range;
    let (low, high) = ends(&scores.square);
    let (nearer, farther) = ends(&scores.absolute);
    // The mean of squares is at least the square of the mean, whatever noise says.
    let square = scores.square.mean.max(scores.absolute.mean * scores.absolute.mean);
    let mut found = Vec::new();
    if is_more_than_noise(&scores.square) {
        found.push(("RMSE".into(), unit * square.sqrt(), (unit * low.sqrt(), unit * high.max(square).sqrt())));
    }
    if is_more_than_noise(&scores.absolute) {
        found.push(("MAE".into(), unit * scores.absolute.mean, (unit * nearer, unit * farther)));
    }
    let variance = scores.target_square.mean - scores.target.mean * scores.target.mean;
    let wobble = scores.target_square.error.hypot(2.0 * scores.target.mean * scores.target.error);
    // R^2 = 1 - square/variance, by the delta method; meaningless where noise hides the variance.
    let share = square / variance;
    let error = scores.square.error.hypot(share * wobble) / variance;
    if variance > 2.0 * wobble && error < 0.25 {
        found.insert(0, ("R^2".into(), 1.0 - share, (1.0 - share - z * error, (1.0 - share + z * error).min(1.0))));
    }
    found
}
