//! The closing release: what a study makes public after its last round, for intervals and for a score.
//!
//! Every client releases, once, the sum of a vector z_j over its records, divided by D and noised like a gradient. It has up to three blocks.
//! With the final model w, z = x.w, slope s and curvature h of the loss, and the weight omega = min(1, (r/||x||)^2),
//!
//! ```text
//! a record that was trained on:   a_H omega h x x^T (upper triangle, sqrt 2 off the diagonal),  a_g omega s x,  a_s (omega s^2, omega h), a_v omega s^2 x^2
//! a record that was held out:     what scores are made of: 1, clipped squares and absolute values of the error, the target
//! ```
//!
//! The factors a make ||z|| <= 1 for every record, whatever it holds: the blocks of one record share the budget as the squares of their bounds, and a record
//! is either trained on or held out. So one record moves the sum by at most 2/D, as a gradient that is clipped to 1 does.
//!
//! **Intervals.** The mean over clients gives H, g and noise of known size. One Newton step, b = w - H^-1 g, has the covariance
//!
//! ```text
//! H^-1 (sigma_g^2 I + J/N + (sigma_H^2/2)(||step||^2 I + step step^T)) H^-1
//! ```
//!
//! with J the variance of s x: noise of g, sampling, and noise of H times the step. The weights omega depend on features alone, so they do not
//! move what a right model estimates; a slope beyond its limit counts as the limit, in g and, by a curvature of 0, in H. J is H itself for the logistic loss, and
//! (mean of omega s^2)/(mean of omega h) H for the others, if errors vary alike everywhere; the means of omega s^2 x_p^2 correct it where they do not, as
//! far as their own noise allows.

use crate::cholesky::{Cholesky, dot};
use crate::loss::AnyLoss;
use crate::problem::Problem;

/// The shares of the total rho of a study with intervals: what the rounds keep.
pub const ROUNDS_SHARE: f64 = 0.35;
/// The part of the closing release that goes to the two scalars; the matrix gets what it needs, the gradient the rest.
const SCALARS: f64 = 0.02;
/// The part that goes to the variance of the slope along each feature.
const SPREADS: f64 = 0.04;

/// What a closing release is computed from: public, and the same at all clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Closing {
    /// The loss that was minimised.
    pub loss: AnyLoss,
    /// The final model, in the units in which it was learned.
    pub w: Vec<f64>,
    /// The part of the budget that goes to H; none if there are no intervals.
    pub hessian: Option<f64>,
    /// Whether records that were held out give a score.
    pub scores: bool,
    /// r, to which features are weighted down.
    pub radius: f64,
    /// The largest slope that counts in full.
    pub slope: f64,
    /// The largest error and target that scores see, in the units of learning.
    pub range: f64,
}

/// Why intervals are not possible for a loss, if they are not.
pub fn refuses(loss: AnyLoss) -> Option<&'static str> {
    match loss {
        AnyLoss::Squared(_) | AnyLoss::Huber(_) | AnyLoss::Logistic(_) => None,
        AnyLoss::Absolute(_) | AnyLoss::Quantile(_) => Some(
            "needs the density of the target at the model for this loss, which would cost more budget than it is worth; use squared or huber, or remove it",
        ),
        AnyLoss::Hinge(_) => {
            Some("is not defined for the hinge loss, whose minimiser has no normal law; use logistic, or remove it")
        }
    }
}

/// What a closing release says, once the mean over clients is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Uncertainty {
    /// b, in the units of learning.
    pub estimate: Vec<f64>,
    /// Its covariance, by rows: sampling and privacy noise.
    pub covariance: Vec<f64>,
    /// The same of sampling alone.
    pub sampling: Vec<f64>,
}

/// What is public about the noise and the number of records of a closing release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosingNoise {
    /// The standard deviation of the noise in the mean over clients, in every coordinate.
    pub sigma: f64,
    /// N, how many records were trained on.
    pub records: f64,
    /// K.
    pub clients: usize,
}

/// A mean over the records that were held out, with its standard error: sampling and privacy noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldMean {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
}

/// Private scores, from records that were held out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrivateScores {
    /// About how many records were held out.
    pub records: f64,
    /// Mean of the squared error over the squared range; for labels, of the log loss over 4.
    pub square: HeldMean,
    /// Mean of the absolute error over the range; for labels, the share of right ones.
    pub absolute: HeldMean,
    /// Mean of the target over the range; for labels, the share of the second.
    pub target: HeldMean,
    /// Mean of the squared target over the squared range; not for labels.
    pub target_square: HeldMean,
}

/// Variances are larger by this, for what is left out: the square of the noise in H, the noise in J, and curvature that changes along the step.
const SECOND_ORDER: f64 = 1.1;
/// Log losses above this count as this.
const LARGEST_LOG_LOSS: f64 = 4.0;
/// How many numbers a score is made of.
const SCORE: usize = 5;

impl Closing {
    /// P.
    fn features(&self) -> usize {
        self.w.len()
    }

    /// The length of the block for intervals.
    fn interval_size(&self) -> usize {
        let p = self.features();
        if self.hessian.is_some() { p * (p + 1) / 2 + 2 * p + 2 } else { 0 }
    }

    /// How many numbers are released.
    pub fn size(&self) -> usize {
        self.interval_size() + if self.scores { SCORE } else { 0 }
    }

    /// The largest curvature of the loss.
    fn curvature(&self) -> f64 {
        largest_curvature(self.loss)
    }

    /// a_H, a_g, the two a_s, and a_v.
    fn factors(&self) -> (f64, f64, [f64; 2], f64) {
        let hessian = self.hessian.unwrap_or(0.0);
        let (r, h, s) = (self.radius, self.curvature(), self.slope);
        let gradient = 1.0 - hessian - SCALARS - SPREADS;
        let scalar = (SCALARS / 2.0).sqrt();
        let spread = SPREADS.sqrt() / (s * s * r * r);
        (hessian.sqrt() / (h * r * r), gradient.sqrt() / (s * r), [scalar / (s * s), scalar / h], spread)
    }

    /// z of a record that was trained on.
    pub fn trained(&self, x: &[f64], y: f64) -> Vec<f64> {
        let mut out = Vec::with_capacity(self.size());
        if self.hessian.is_some() {
            let square = dot(x, x);
            let weight = if square > self.radius * self.radius { self.radius * self.radius / square } else { 1.0 };
            let z = dot(x, &self.w);
            let slope = self.loss.slope(z, y);
            let limited = slope.clamp(-self.slope, self.slope);
            let curvature = if slope.abs() > self.slope { 0.0 } else { self.loss.curvature(z, y) };
            let (a_h, a_g, [a_s, a_c], a_v) = self.factors();
            for (i, xi) in x.iter().enumerate() {
                for (j, xj) in x.iter().enumerate().skip(i) {
                    out.push(a_h * weight * curvature * xi * xj * if i == j { 1.0 } else { std::f64::consts::SQRT_2 });
                }
            }
            out.extend(x.iter().map(|x| a_g * weight * limited * x));
            out.extend([a_s * weight * limited * limited, a_c * weight * curvature]);
            out.extend(x.iter().map(|x| a_v * weight * limited * limited * x * x));
        }
        out.resize(self.size(), 0.0);
        out
    }

    /// z of a record that was held out.
    pub fn held(&self, x: &[f64], y: f64) -> Vec<f64> {
        let mut out = vec![0.0; self.interval_size()];
        if self.scores {
            let z = dot(x, &self.w);
            let share = (1.0 / SCORE as f64).sqrt();
            let parts = match self.loss.is_classification() {
                true => {
                    let m = -y * z;
                    let log_loss = m.max(0.0) + libm::log1p(libm::exp(-m.abs()));
                    let (right, positive) = (f64::from((z >= 0.0) == (y > 0.0)), f64::from(y > 0.0));
                    [1.0, (log_loss / LARGEST_LOG_LOSS).min(1.0), right, positive, 0.0]
                }
                false => {
                    let (error, target) = ((z - y) / self.range, (y / self.range).clamp(-1.0, 1.0));
                    let error = error.abs().min(1.0);
                    [1.0, error * error, error, target, target * target]
                }
            };
            out.extend(parts.map(|part| part * share));
        }
        out
    }

    /// The intervals that the mean over clients of the releases gives; or why it gives none.
    pub fn uncertainty(&self, mean: &[f64], noise: ClosingNoise, problem: &Problem) -> Result<Uncertainty, String> {
        let p = self.features();
        let (a_h, a_g, [a_s, a_c], a_v) = self.factors();
        let (triangle, rest) = mean.split_at(p * (p + 1) / 2);
        let (sigma_h, sigma_g) = (noise.sigma / a_h, noise.sigma / a_g);
        let mut hessian = vec![0.0; p * p];
        let mut entries = triangle.iter();
        for i in 0..p {
            for j in i..p {
                let entry = entries.next().expect("a triangle") / a_h;
                let entry = if i == j { entry } else { entry / std::f64::consts::SQRT_2 };
                (hessian[i * p + j], hessian[j * p + i]) = (entry, entry);
            }
        }
        let mut gradient: Vec<f64> = rest[..p].iter().map(|v| v / a_g).collect();
        problem.add_regularizer_subgradient(1.0, noise.clients, &self.w, 1, &mut gradient);
        let data = hessian.clone();
        let ridge = 2.0 * problem.lambda * problem.regularizer.weights().1 / noise.clients as f64;
        (0..problem.penalized(&self.w).len()).for_each(|i| hessian[i * p + i] += ridge);
        // The noise matrix has about this norm; a matrix that is no larger in some direction says nothing there.
        let least = sigma_h * (2.0 * p as f64).sqrt();
        let mut shifted = hessian.clone();
        (0..p).for_each(|i| shifted[i * p + i] -= least);
        if !is_positive(&shifted, p) {
            return Err("the noise of the second derivatives is as large as they are: intervals need more records, a larger epsilon, masks, typical values of the columns or fewer features".into());
        }
        let cholesky = Cholesky::new(hessian, p, f64::MIN_POSITIVE);
        let mut step = gradient;
        cholesky.solve(&mut step);
        let square = (rest[p] / a_s).max(0.0);
        let curvature = rest[p + 1] / a_c;
        let ratio = match self.loss {
            AnyLoss::Logistic(_) => 1.0,
            // Noise in the scalars is small beside what they are; a floor keeps the interval from vanishing.
            _ => square.max(noise.sigma / a_s) / curvature.max(noise.sigma / a_c),
        };
        // By how much the variance along each feature differs from that, shrunk as far as it is noise.
        let correction: Vec<f64> = (0..p)
            .map(|i| {
                let (plain, seen) = ((data[i * p + i] * ratio).max(f64::MIN_POSITIVE), rest[p + 2 + i] / a_v);
                let off = noise.sigma / a_v / plain;
                (1.0 + (seen / plain - 1.0) / (1.0 + off * off)).max(0.5).sqrt()
            })
            .collect();
        let sampled: Vec<f64> =
            (0..p * p).map(|at| data[at] * ratio / noise.records * correction[at / p] * correction[at % p]).collect();
        let length = dot(&step, &step);
        let mut all = sampled.clone();
        for i in 0..p {
            all[i * p + i] += sigma_g * sigma_g;
            for j in 0..p {
                let own = if i == j { length } else { 0.0 };
                all[i * p + j] += sigma_h * sigma_h / 2.0 * (own + step[i] * step[j]);
            }
        }
        Ok(Uncertainty {
            estimate: self.w.iter().zip(&step).map(|(w, step)| w - step).collect(),
            covariance: sandwich(&cholesky, &all, p).iter().map(|v| v * SECOND_ORDER).collect(),
            sampling: sandwich(&cholesky, &sampled, p),
        })
    }

    /// The standard error to expect for the coefficient of a feature whose mean square is `square`, uncorrelated with the others, and the same without privacy; all
    /// in the units of learning. None if noise is likely to be too large for intervals.
    pub fn expected_error(&self, noise: ClosingNoise, square: f64) -> Option<(f64, f64)> {
        self.hessian?;
        let (a_h, a_g, ..) = self.factors();
        // Half of the variance of the target is explained; labels are equally likely; a third of the errors is beyond a Huber threshold.
        let (curvature, slope) = match self.loss {
            AnyLoss::Squared(_) => (2.0, 2.0 * (self.range / 4.0).powi(2)),
            AnyLoss::Logistic(_) => (0.2, 0.2),
            _ => (0.7, 0.5 * self.slope * self.slope),
        };
        let hessian = curvature * square;
        // Some direction has a third of that.
        if hessian / 3.0 < noise.sigma / a_h * (2.0 * self.features() as f64).sqrt() {
            return None;
        }
        let sampling = slope * square / noise.records;
        let all = (noise.sigma / a_g).powi(2) + sampling;
        Some(((SECOND_ORDER * all).sqrt() / hessian, sampling.sqrt() / hessian))
    }

    /// The scores that the mean over clients gives; none if noise hides how many records were held out.
    pub fn private_scores(&self, mean: &[f64], noise: ClosingNoise) -> Option<PrivateScores> {
        let share = (1.0 / SCORE as f64).sqrt();
        let parts: Vec<f64> = mean[self.interval_size()..].iter().map(|v| v / share).collect();
        let sigma = noise.sigma / share;
        let [count, ref rest @ ..] = parts[..] else { return None };
        if count < 4.0 * sigma {
            return None;
        }
        let records = count * noise.records;
        let of = |i: usize, least: f64| {
            let mean = (rest[i] / count).clamp(least, 1.0);
            // Numbers from -1 to 1 vary by at most 1 - mean^2, from 0 to 1 by at most mean (1 - mean).
            let spread = if least < 0.0 { 1.0 - mean * mean } else { mean * (1.0 - mean) };
            let noised = sigma / count * (1.0 + mean * mean).sqrt();
            HeldMean { mean, error: (noised * noised + spread / records).sqrt() }
        };
        let least = if self.loss.is_classification() { 0.0 } else { -1.0 };
        Some(PrivateScores {
            records,
            square: of(0, 0.0),
            absolute: of(1, 0.0),
            target: of(2, least),
            target_square: of(3, 0.0),
        })
    }
}

/// The largest curvature of a smooth loss.
pub(crate) fn largest_curvature(loss: AnyLoss) -> f64 {
    match loss {
        AnyLoss::Squared(_) => 2.0,
        AnyLoss::Logistic(_) => 0.25,
        _ => 1.0,
    }
}

/// H^-1 A H^-1 for a symmetric A.
fn sandwich(cholesky: &Cholesky, a: &[f64], p: usize) -> Vec<f64> {
    let half: Vec<f64> = a
        .chunks_exact(p)
        .flat_map(|row| {
            let mut row = row.to_vec();
            cholesky.solve(&mut row);
            row
        })
        .collect();
    let column = |j: usize| {
        let mut column: Vec<f64> = (0..p).map(|i| half[i * p + j]).collect();
        cholesky.solve(&mut column);
        column
    };
    let columns: Vec<Vec<f64>> = (0..p).map(column).collect();
    (0..p * p).map(|at| columns[at % p][at / p]).collect()
}

/// Whether a symmetric matrix has positive pivots, and so eigenvalues.
fn is_positive(matrix: &[f64], p: usize) -> bool {
    let factored = Cholesky::new(matrix.to_vec(), p, 0.0);
    (0..p).all(|i| factored.row(i)[i] > 0.0 && factored.row(i)[i].is_finite())
}

/// The z with P(|N(0, 1)| <= z) = level.
pub fn normal_range(level: f64) -> f64 {
    crate::privacy::bisect(0.0, 40.0, |z| libm::erf(z / std::f64::consts::SQRT_2) < level).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Huber, Logistic, Squared};
    use crate::regularizer::Regularizer;

    fn closing(loss: AnyLoss) -> Closing {
        let slope = match loss {
            AnyLoss::Logistic(_) => 1.0,
            AnyLoss::Huber(_) => 0.7,
            _ => 3.0,
        };
        Closing { loss, w: vec![0.3, -0.2, 0.1], hessian: Some(0.2), scores: true, radius: 2.0, slope, range: 4.0 }
    }

    fn problem(loss: AnyLoss) -> Problem {
        Problem { loss, regularizer: Regularizer::None, lambda: 0.0, intercept: true }
    }

    /// Whatever a record holds, its vector is no longer than 1, and the worst come near it.
    #[test]
    fn no_record_is_longer_than_the_clip() {
        let mut state = 3u64;
        let mut number = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for loss in [Squared.into(), Huber { threshold: 0.7 }.into(), Logistic.into()] {
            let closing = closing(loss);
            let mut longest: f64 = 0.0;
            for trial in 0..20_000 {
                let scale = [0.1, 1.0, 3.0, 1e3][trial % 4];
                let x: Vec<f64> = (0..3).map(|_| scale * number()).collect();
                let y = if closing.loss.is_classification() { number().signum() } else { 5.0 * scale * number() };
                let (trained, held) = (closing.trained(&x, y), closing.held(&x, y));
                assert!(trained.len() == closing.size() && held.len() == closing.size());
                for z in [&trained, &held] {
                    assert!(dot(z, z) <= 1.0 + 1e-12, "{}", dot(z, z));
                }
                assert_eq!(dot(&trained, &held), 0.0, "a record is in one block or in the other");
                longest = longest.max(dot(&trained, &trained));
            }
            // The slope and the curvature of the logistic loss are not at their largest together.
            let least = if closing.loss.is_classification() { 0.45 } else { 0.7 };
            assert!(longest > least, "{longest}: a budget that no record uses is wasted");
        }
    }

    /// Without noise a Newton step from anywhere solves least squares, and the covariance is the textbook's.
    #[test]
    fn without_noise_intervals_are_those_of_least_squares() {
        let rows =
            [[0.5, -1.0, 1.0], [-0.3, 0.2, 1.0], [1.1, 0.4, 1.0], [-0.9, -0.6, 1.0], [0.2, 0.9, 1.0], [-0.4, 0.8, 1.0]];
        let targets = [0.4, -0.1, 0.9, -0.8, 0.3, 0.1];
        let closing = Closing { radius: 10.0, slope: 100.0, ..closing(Squared.into()) };
        let mut mean = vec![0.0; closing.size()];
        for (x, y) in rows.iter().zip(targets) {
            mean.iter_mut().zip(closing.trained(x, y)).for_each(|(m, z)| *m += z / 6.0);
        }
        let noise = ClosingNoise { sigma: 1e-12, records: 6.0, clients: 2 };
        let found = closing.uncertainty(&mean, noise, &problem(Squared.into())).unwrap();
        // X^T X b = X^T y, and (X^T X)^-1 (s^2 C X^T X C) (X^T X)^-1 with s^2 = RSS(w)/n at the point w at which J is taken and the diagonal C that gives J the
        // diagonal of sum_j r_j^2 x_j x_j^T.
        let mut gram = vec![0.0; 9];
        let mut right = vec![0.0; 3];
        for (x, y) in rows.iter().zip(targets) {
            (0..9).for_each(|at| gram[at] += x[at / 3] * x[at % 3]);
            (0..3).for_each(|i| right[i] += x[i] * y);
        }
        let cholesky = Cholesky::new(gram.clone(), 3, 0.0);
        let mut b = right;
        cholesky.solve(&mut b);
        assert!(found.estimate.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9), "{:?} {b:?}", found.estimate);
        let rss: f64 = rows.iter().zip(targets).map(|(x, y)| (dot(x, &closing.w) - y).powi(2)).sum::<f64>() / 6.0;
        let own =
            |i: usize| rows.iter().zip(targets).map(|(x, y)| ((dot(x, &closing.w) - y) * x[i]).powi(2)).sum::<f64>();
        let factor: Vec<f64> = (0..3).map(|i| (own(i) / (rss * gram[i * 4])).sqrt()).collect();
        let variance: Vec<f64> = (0..9).map(|at| rss * gram[at] * factor[at / 3] * factor[at % 3]).collect();
        for i in 0..3 {
            let mut unit = vec![0.0; 3];
            unit[i] = 1.0;
            cholesky.solve(&mut unit);
            let expected: f64 = (0..9).map(|at| unit[at / 3] * variance[at] * unit[at % 3]).sum();
            assert!((found.sampling[i * 4] / expected - 1.0).abs() < 1e-6, "{i}");
            assert!((found.covariance[i * 4] / found.sampling[i * 4] / SECOND_ORDER - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn too_much_noise_is_said() {
        let closing = closing(Squared.into());
        let mean = closing.trained(&[0.5, 0.5, 1.0], 0.2);
        let noise = ClosingNoise { sigma: 0.2, records: 100.0, clients: 2 };
        assert!(closing.uncertainty(&mean, noise, &problem(Squared.into())).unwrap_err().contains("more records"));
        assert!(closing.private_scores(&mean, noise).is_none());
    }

    #[test]
    fn scores_come_back() {
        let closing = Closing { hessian: None, ..closing(Squared.into()) };
        let rows = [([1.0, 0.0, 1.0], 0.9), ([0.0, 1.0, 1.0], -0.4), ([0.5, 0.5, 1.0], 0.1)];
        let mut mean = vec![0.0; closing.size()];
        for (x, y) in &rows {
            // Three of twelve records are held out.
            mean.iter_mut().zip(closing.held(x, *y)).for_each(|(m, z)| *m += z / 12.0);
        }
        let found = closing.private_scores(&mean, ClosingNoise { sigma: 1e-9, records: 12.0, clients: 3 }).unwrap();
        let expected: f64 = rows.iter().map(|(x, y)| (dot(x, &closing.w) - y).powi(2)).sum::<f64>() / 3.0;
        assert!((found.records - 3.0).abs() < 1e-6 && (found.square.mean * 16.0 - expected).abs() < 1e-6);
        assert!((found.target.mean * 4.0 - 0.2).abs() < 1e-6);
    }

    #[test]
    fn the_normal_range_is_the_usual_one() {
        assert!((normal_range(0.95) - 1.959963984540054).abs() < 1e-9);
        assert!((normal_range(0.99) - 2.5758293035489004).abs() < 1e-9);
    }
}
