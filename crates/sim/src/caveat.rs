//! What to know about a central solution before anything is compared with it.

use serde::{Deserialize, Serialize};
use undertone_core::cholesky::dot;
use undertone_core::loss::Shape;
use undertone_core::problem::Problem;

use crate::data::Population;

/// A reason to read distances to a central solution with care.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Caveat {
    /// The zero model is as good as far as the solver can tell: no distance is relative to it.
    Zero,
    /// Features are linearly dependent, so that other models predict the same.
    NotUnique {
        /// The features that take part in a linear dependence; empty where there are simply more features than records.
        columns: Vec<usize>,
        /// Whether the other models have the same objective. An l1 norm may still prefer one of them.
        certain: bool,
    },
    /// The records are separable and nothing penalises the separating direction: the objective falls along it for ever.
    Separable,
}

/// What the accuracy of the solver allows to say about w, compared with the zero model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gain {
    /// It is better.
    Better,
    /// It is neither better nor worse.
    None,
    /// It is worse: the solver has failed.
    Worse,
}

/// The gap between primal and dual objective, absolute and relative, at which the solver stops.
pub(crate) const GAP: f64 = 1e-13;

/// The share of the objective below which a gain is not a gain. Where rounding ends the solver's progress before it reaches
/// [`GAP`], its objective is still within this share of the least one. As a share it does not depend on the units of the targets.
const RESOLVED: f64 = 1e-11;

/// The solver is believed wherever it makes no further progress, but not if that leaves it above the zero model by this share.
const FAILED: f64 = 1e-6;

/// 1 - R^2 of a feature on others below which it counts as a linear combination of them. Rounding in the sums over
/// some million records is less; a larger value is a matter of conditioning, and the solution is unique.
const DEPENDENT: f64 = 1e-12;

/// A share in a linear combination, of columns of length one, that only rounding can cause.
const NO_PART: f64 = 1e-6;

/// The pooled problem as it looks from a point w, in one pass over the records.
pub(crate) struct View {
    /// The objective at w, and at zero.
    objectives: (f64, f64),
    /// Whether w separates the two labels by its part that is not penalised.
    separates: bool,
    /// X^T X with the weights of the problem; empty if it is not needed.
    gram: Vec<f64>,
    features: usize,
    records: usize,
    /// The curvature that the regulariser adds to each penalised feature.
    curvature: f64,
    penalized: usize,
    has_l1: bool,
}

impl View {
    /// Looks at the pooled problem; with `clipped`, at that of the clipped losses.
    pub fn new(population: &Population, problem: &Problem, clipped: bool, w: &[f64]) -> Self {
        let (features, records) = (population.features(), population.total_records());
        let (l1, l2) = problem.regularizer.weights();
        let (has_l1, curvature) = (l1 * problem.lambda > 0.0, 2.0 * l2 * problem.lambda);
        let penalized = problem.penalized(w).len();
        let free = if has_l1 || curvature > 0.0 { penalized } else { 0 };
        let shape = problem.loss.shape();
        // With fewer records than features the rank is known, and the matrix could be large.
        let mut gram = vec![0.0; if records < features { 0 } else { features * features }];
        let mut separates = shape == Shape::Logistic;
        let mut objectives = (problem.lambda * problem.regularizer.value(problem.penalized(w)), 0.0);
        let mut x = vec![0.0; features];
        for k in 0..population.clients() {
            let records = population.records(k);
            let weight = 1.0 / records.divisor();
            for j in 0..records.len() {
                let (y, limit) = records.read(j, &mut x);
                let limit = if clipped { limit } else { f64::INFINITY };
                objectives.0 += weight * clamped_loss(shape, dot(&x, w), y, limit);
                objectives.1 += weight * clamped_loss(shape, 0.0, y, limit);
                separates &= y * dot(&x[free..], &w[free..]) > 0.0;
                add_square(&mut gram, &x, weight);
            }
        }
        Self { objectives, separates, gram, features, records, curvature, penalized, has_l1 }
    }

    /// How w compares with the zero model.
    pub fn gain(&self) -> Gain {
        let (found, zero) = self.objectives;
        match zero - found {
            // No loss is negative, so nothing is better than zero.
            _ if zero == 0.0 => Gain::None,
            // The absolute bound is for targets that differ from zero by rounding only.
            gain if gain > GAP.max(RESOLVED * zero) => Gain::Better,
            gain if gain < -FAILED * (1.0 + zero) => Gain::Worse,
            _ => Gain::None,
        }
    }

    /// All that is to be said.
    pub fn caveats(&self) -> Vec<Caveat> {
        let zero = (self.gain() == Gain::None).then_some(Caveat::Zero);
        let separable = self.separates.then_some(Caveat::Separable);
        zero.into_iter().chain(self.not_unique()).chain(separable).collect()
    }

    fn not_unique(&self) -> Option<Caveat> {
        let certain = !self.has_l1;
        if self.records < self.features {
            return (self.curvature == 0.0).then_some(Caveat::NotUnique { columns: Vec::new(), certain });
        }
        let mut gram = self.gram.clone();
        (0..self.penalized).for_each(|p| gram[p * self.features + p] += self.curvature);
        let columns = dependent(&gram, self.features);
        (!columns.is_empty()).then_some(Caveat::NotUnique { columns, certain })
    }
}

/// Adds `weight` x x^T to a matrix, if there is one.
fn add_square(matrix: &mut [f64], x: &[f64], weight: f64) {
    for (row, a) in matrix.chunks_exact_mut(x.len()).zip(x) {
        row.iter_mut().zip(x).for_each(|(sum, b)| *sum += weight * a * b);
    }
}

/// A loss whose slope is clamped to `limit`: the infimal convolution of the loss with limit |.|.
fn clamped_loss(shape: Shape, z: f64, y: f64, limit: f64) -> f64 {
    match shape {
        Shape::Residual { curvature, above, below } => {
            let r = (y - z).abs();
            let slope = if y > z { above } else { below }.min(limit);
            match curvature {
                Some(curvature) if curvature * r <= slope => curvature * r * r / 2.0,
                Some(curvature) => slope * (r - slope / curvature / 2.0),
                None => slope * r,
            }
        }
        Shape::Hinge => limit.min(1.0) * (1.0 - y * z).max(0.0),
        // A record without any slope is one whose features are all zero.
        Shape::Logistic if limit == 0.0 => 0.0,
        Shape::Logistic => {
            // The margin at which the slope reaches the limit; below it the loss is linear.
            let reached = if limit < 1.0 { ((1.0 - limit) / limit).ln() } else { f64::NEG_INFINITY };
            let margin = (y * z).max(reached);
            let short = if y * z < reached { limit * (reached - y * z) } else { 0.0 };
            (-margin).max(0.0) + (-margin.abs()).exp().ln_1p() + short
        }
    }
}

/// The columns that take part in a linear dependence, from the matrix G = X^T X, in ascending order.
///
/// Columns are scaled to length one, so that their units do not matter, and G is factored with the largest pivot first: what
/// is left on the diagonal is then 1 - R^2 of a column on those already chosen.
fn dependent(gram: &[f64], size: usize) -> Vec<usize> {
    let length = |p: usize| gram[p * size + p].sqrt();
    let cosine = |p: usize, q: usize| gram[p * size + q] / (length(p) * length(q));
    let mut rest: Vec<usize> = (0..size).filter(|&p| length(p) > 0.0).collect();
    let mut involved: Vec<usize> = (0..size).filter(|&p| length(p) <= 0.0).collect();
    let mut left = vec![1.0f64; size];
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); size];
    let mut pivots = Vec::new();
    while let Some(at) = (0..rest.len()).max_by(|&a, &b| left[rest[a]].total_cmp(&left[rest[b]])) {
        if left[rest[at]] <= DEPENDENT {
            break;
        }
        let pivot = rest.remove(at);
        let root = left[pivot].sqrt();
        for &q in &rest {
            let entry = (cosine(pivot, q) - dot(&rows[pivot], &rows[q])) / root;
            left[q] -= entry * entry;
            rows[q].push(entry);
        }
        rows[pivot].push(root);
        pivots.push(pivot);
    }
    for &column in &rest {
        involved.push(column);
        let shares = combination(&pivots, &rows, &rows[column]);
        involved.extend(pivots.iter().zip(shares).filter(|(_, share)| share.abs() > NO_PART).map(|(pivot, _)| *pivot));
    }
    involved.sort_unstable();
    involved.dedup();
    involved
}

/// The shares of the pivot columns in a column whose row of the factor is given: the solution of L^T s = row.
fn combination(pivots: &[usize], rows: &[Vec<f64>], row: &[f64]) -> Vec<f64> {
    let mut shares = row.to_vec();
    for i in (0..pivots.len()).rev() {
        let later: f64 = (i + 1..pivots.len()).map(|j| rows[pivots[j]][i] * shares[j]).sum();
        shares[i] = (shares[i] - later) / rows[pivots[i]][i];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_core::loss::{Absolute, AnyLoss, Hinge, Huber, Logistic, Quantile, Squared};

    fn losses() -> [AnyLoss; 6] {
        [
            Squared.into(),
            Absolute.into(),
            Huber { threshold: 0.8 }.into(),
            Quantile { level: 0.3 }.into(),
            Logistic.into(),
            Hinge.into(),
        ]
    }

    #[test]
    fn a_loss_that_is_not_clamped_is_the_loss() {
        for loss in losses() {
            for (z, y) in [(0.0, 1.0), (0.3, -1.0), (-2.0, 1.0), (5.0, -1.0), (1.0, 1.0), (40.0, 1.0)] {
                let (clamped, plain) = (clamped_loss(loss.shape(), z, y, f64::INFINITY), loss.value(z, y));
                assert!((clamped - plain).abs() < 1e-12, "{}({z}, {y}) = {plain}, not {clamped}", loss.name());
            }
        }
    }

    #[test]
    fn the_slope_of_a_clamped_loss_is_the_clamped_slope() {
        let mut clamped = 0;
        for loss in losses() {
            for limit in [0.2, 0.45, 3.0] {
                for (z, y) in [(0.1, 1.0), (0.3, -1.0), (-2.0, 1.0), (5.0, -1.0), (0.9, 1.0)] {
                    let at = |z: f64| clamped_loss(loss.shape(), z, y, limit);
                    let (measured, slope) = ((at(z + 1e-6) - at(z - 1e-6)) / 2e-6, loss.slope(z, y));
                    let expected = slope.clamp(-limit, limit);
                    assert!((measured - expected).abs() < 1e-5, "{}: {measured} is not {expected}", loss.name());
                    clamped += usize::from(expected != slope);
                }
            }
        }
        assert!(clamped > 20, "the limits made a difference in {clamped} cases only");
    }

    /// X^T X of rows.
    fn gram(rows: &[&[f64]]) -> Vec<f64> {
        let mut gram = vec![0.0; rows[0].len() * rows[0].len()];
        rows.iter().for_each(|row| add_square(&mut gram, row, 0.25));
        gram
    }

    #[test]
    fn dependent_columns_are_found_whatever_their_units_and_others_are_not() {
        let [a, b, c]: [[f64; 5]; 3] =
            [[1.0, -2.0, 0.5, 3.0, 1.5], [0.3, 0.9, -1.1, 0.2, 0.7], [2.0, 0.1, 0.4, -0.6, 1.0]];
        let of = |row: &dyn Fn(usize) -> Vec<f64>| {
            let rows: Vec<Vec<f64>> = (0..5).map(row).collect();
            let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
            dependent(&gram(&rows), rows[0].len())
        };
        assert_eq!(of(&|j| vec![a[j], b[j], c[j]]), [0usize; 0]);
        assert_eq!(of(&|j| vec![1e9 * a[j], 1e-9 * b[j], c[j]]), [0usize; 0], "units do not matter");
        assert_eq!(of(&|j| vec![a[j], b[j], 1e9 * a[j]]), [0, 2]);
        assert_eq!(of(&|j| vec![a[j], c[j], b[j], 2.0 * c[j] - 1e-3 * b[j]]), [1, 2, 3]);
        assert_eq!(of(&|j| vec![a[j], 0.0, c[j]]), [1], "a column of zeros");
        assert_eq!(of(&|j| vec![a[j], b[j], a[j] * (1.0 + 1e-4 * b[j])]), [0usize; 0], "nearly is not quite");
    }
}
