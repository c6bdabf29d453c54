//! Two methods compared on the same data, and how their errors are averaged.
//!
//! Three numbers, because no one of them is enough. The geometric mean of the ratios, trial by trial, shows the typical trial
//! and has the least variance, but hides a method that fails on rare data. The ratio of the mean errors shows such failures. The
//! worst trial of each method, divided by its median, shows which of the two fails.

use crate::runs::Runs;
use crate::{Case, Method};

/// A ratio of errors, trial by trial, and its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Geometric mean over trials.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Ratio {
    /// Of paired errors.
    pub fn of(numerator: &[f64], denominator: &[f64]) -> Self {
        let logs: Vec<f64> = numerator.iter().zip(denominator).map(|(a, b)| (a / b).ln()).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|l| (l - mean) * (l - mean)).sum::<f64>() / (n - 1.0).max(1.0);
        // One value gives no information about its spread.
        let half = if logs.len() < 2 { f64::INFINITY } else { student_975(logs.len()) * (variance / n).sqrt() };
        Self { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
    }

    /// For display.
    pub fn text(self) -> String {
        format!("{:.2} times the error ({:.2} to {:.2})", self.mean, self.low, self.high)
    }
}

/// The 97.5% point of Student's t for the mean of `n` values: tabled where there are few, by the usual expansion in 1/(n-1)
/// beyond, where it is good to a hundredth.
fn student_975(n: usize) -> f64 {
    const FEW: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    const Z: f64 = 1.959_964;
    if let Some(&tabled) = FEW.get(n - 2) {
        return tabled;
    }
    let v = (n - 1) as f64;
    let z3 = Z.powi(3);
    Z + (z3 + Z) / (4.0 * v) + (5.0 * Z.powi(5) + 16.0 * z3 + 3.0 * Z) / (96.0 * v * v)
}

/// The error of a case divided by that of another method in its place, trial by trial.
pub fn ratio(runs: &Runs, case: &Case, to: Method) -> Option<Ratio> {
    Some(Ratio::of(&runs.errors(case)?, &runs.errors(&Case { method: to, ..*case })?))
}

/// A rival compared with a method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// The rival's error divided by the method's: the geometric mean over trials, each compared with itself.
    pub pairs: Ratio,
    /// The rival's mean error divided by the method's.
    pub means: f64,
    /// The rival's largest error divided by its median.
    pub worst_of_rival: f64,
    /// The method's largest error divided by its median.
    pub worst_of_method: f64,
    /// The number of trials behind it.
    pub trials: usize,
}

impl Gain {
    /// Of paired errors.
    pub fn of(rival: &[f64], method: &[f64]) -> Self {
        let sum = |errors: &[f64]| errors.iter().sum::<f64>();
        Self {
            pairs: Ratio::of(rival, method),
            means: sum(rival) / sum(method),
            worst_of_rival: worst(rival),
            worst_of_method: worst(method),
            trials: method.len(),
        }
    }

    /// For display.
    pub fn text(&self) -> String {
        format!("{}; ratio of the mean errors {:.2}", self.pairs.text(), self.means)
    }
}

/// What a method gains over a rival, in the place of a case.
pub fn gain(runs: &Runs, case: &Case, rival: Method, method: Method) -> Option<Gain> {
    let errors = |method| runs.errors(&Case { method, ..*case });
    Some(Gain::of(&errors(rival)?, &errors(method)?))
}

/// The largest error divided by the median.
fn worst(errors: &[f64]) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { 0.5 * (sorted[middle - 1] + sorted[middle]) };
    sorted[sorted.len() - 1] / median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_geometric_means_with_student_intervals() {
        let ratio = Ratio::of(&[2.0, 8.0, 4.0], &[1.0, 1.0, 1.0]);
        assert!((ratio.mean - 4.0).abs() < 1e-12);
        let half = (ratio.high / ratio.mean).ln();
        assert!((half - 2f64.ln() * 4.303 / 3f64.sqrt()).abs() < 1e-12, "{half}");
        // Published values for 5, 9 and 19 degrees of freedom.
        for (n, t) in [(6, 2.571), (10, 2.262), (20, 2.093)] {
            assert!((student_975(n) - t).abs() < 0.03, "{n}: {}", student_975(n));
        }
        assert_eq!(Ratio::of(&[2.0], &[1.0]).low, 0.0, "one trial proves nothing");
    }

    #[test]
    fn a_rare_failure_shows_in_the_means_and_in_the_worst_trial() {
        let rival = [3.0; 10];
        let mut method = [1.0; 10];
        method[7] = 91.0;
        let gain = Gain::of(&rival, &method);
        assert!(gain.pairs.mean > 1.9, "the geometric mean hides it: {}", gain.pairs.mean);
        assert!((gain.means - 0.3).abs() < 1e-12);
        assert_eq!((gain.worst_of_rival, gain.worst_of_method, gain.trials), (1.0, 91.0, 10));
        assert_eq!(worst(&[1.0, 3.0]), 1.5, "the median of an even number is the mean of the middle two");
    }
}
