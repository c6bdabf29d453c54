//! Private standardisation: the moments of the columns, and the typical values that follow from them once they are released.
//!
//! The moments of a record are one vector z, a public function of it. For a number without typical values, u in [-1, 1] inside
//! its bounds, z holds u and b (u^2 - c). With c = (1 + b^2)/(2 b^2) its norm is at most r = (1 + b^2)/(2 b): t + b^2 (t - c)^2 is
//! convex in t = u^2, and r^2 at both ends of [0, 1]. For a number with typical values, z holds u, clamped, which is to have a mean
//! near 0 and a spread near 1. For words, z holds who is who less the expected share.
//!
//! z is clipped to the norm R of [`Schema::moment_clip`] like any gradient, so replacing one record moves the sum over a
//! client's records by at most 2 R. No other bound is used, and none is needed: that most z are shorter anyway only means that
//! little is clipped.

use super::{Cell, CellError, Column, ColumnKind, FEATURE_LIMIT, Scaling, Schema, TARGET_LIMIT, centre, scaled};

/// The target of every record of moments: the gradient of |1 - z.w| at w = 0 is -z.
pub(super) const TARGET: f64 = 1.0;

/// b, the weight of second moments: they become more precise and means less, as r grows.
const SECOND: f64 = 1.3;
/// c.
const CENTRE: f64 = (1.0 + SECOND * SECOND) / (2.0 * SECOND * SECOND);
/// r^2.
const RADIUS_SQUARED: f64 = (1.0 + SECOND * SECOND) * (1.0 + SECOND * SECOND) / (4.0 * SECOND * SECOND);
/// The part of R^2 of a number with typical values: its mean square if they are right, and something for the tails.
const TYPICAL_SQUARED: f64 = 1.3;

/// How much more the moments of the target count: a model without it in the right place is worse than none.
const TARGET_WEIGHT: f64 = 2.0;

/// What is expected before anything is released, by which releases are shrunk. In half-widths of the bounds: the variance of
/// a column's mean, its variance, and the variance of that.
const MEAN_VARIANCE: f64 = 0.2;
const USUAL_VARIANCE: f64 = 0.22 * 0.22;
const VARIANCE_VARIANCE: f64 = 0.065 * 0.065;
/// In typical spreads: the variance of a column's mean.
const TYPICAL_MEAN_VARIANCE: f64 = 0.25;
/// The variance of a word's share.
const SHARE_VARIANCE: f64 = 0.05;
/// Spreads that follow from releases stay in this range of half-widths: a release can be far off, a column is not constant.
const SPREADS: (f64, f64) = (0.05, 0.7);

/// A value known up to noise of this variance, shrunk towards what was expected.
fn shrunk(value: f64, noise: f64, expected: f64, variance: f64) -> f64 {
    expected + (value - expected) * variance / (variance + noise)
}

impl Schema {
    /// The same columns, of which the moments are encoded in place of features.
    pub fn moments(&self, classification: bool) -> Self {
        Self { scaling: Scaling::Moments { target: !classification }, ..self.clone() }
    }

    /// Names of the moments.
    pub(super) fn moment_names(&self, target: bool) -> Vec<String> {
        let columns = self.features.iter().chain(target.then_some(&self.target));
        columns.flat_map(|column| self.moment_names_of(column)).collect()
    }

    /// The kind comes last in each name, so they differ as the names of the columns do.
    fn moment_names_of(&self, column: &Column) -> Vec<String> {
        match &column.kind {
            ColumnKind::Number { .. } => {
                let square = column.typical.is_none().then(|| format!("{} (square)", column.name));
                std::iter::once(format!("{} (mean)", column.name)).chain(square).collect()
            }
            ColumnKind::Category(_) => self.names_of(column).iter().map(|name| format!("{name} (share)")).collect(),
        }
    }

    /// The words of a category that have a moment, and the share that is expected of each.
    fn expected_shares(&self, column: &Column, words: &[String]) -> Vec<(usize, f64)> {
        let even = 1.0 / words.len() as f64;
        let expected = |i: usize| column.share(i).unwrap_or(even);
        (words.len() - self.spread(words).len()..words.len()).map(|i| (i, expected(i))).collect()
    }

    /// The moments of the cell of the target, which is never filled.
    pub(super) fn push_target_moments(&self, cell: &Cell, z: &mut Vec<f64>) -> Result<(), CellError> {
        let first = z.len();
        if self.is_filled(cell) {
            return Err(self.target.empty());
        }
        self.push_moments(&self.target, cell, TARGET_LIMIT, z)?;
        z[first..].iter_mut().for_each(|moment| *moment *= TARGET_WEIGHT);
        Ok(())
    }

    /// The moments of one cell.
    pub(super) fn push_moments(
        &self,
        column: &Column,
        cell: &Cell,
        limit: f64,
        z: &mut Vec<f64>,
    ) -> Result<(), CellError> {
        match &column.kind {
            ColumnKind::Number { low, high } => {
                let u = match self.is_filled(cell) {
                    true => 0.0,
                    false => scaled(column, self.scaling, column.read_number(cell, *low, *high, self.outside)?, limit),
                };
                z.push(u);
                if column.typical.is_none() {
                    z.push(SECOND * (u * u - CENTRE));
                }
            }
            ColumnKind::Category(words) => {
                let index = match column.category(cell, words) {
                    Ok(index) => Some(index),
                    Err(_) if self.is_filled(cell) => None,
                    Err(e) => return Err(e),
                };
                let shares = self.expected_shares(column, words);
                z.extend(shares.iter().map(|(i, share)| index.map_or(0.0, |index| f64::from(*i == index) - share)));
            }
        }
        Ok(())
    }

    /// R, the norm to which moments are clipped; it follows from the columns alone.
    pub fn moment_clip(&self) -> f64 {
        let included = matches!(self.scaling, Scaling::Moments { target: true });
        let square = |column: &Column| match &column.kind {
            ColumnKind::Number { .. } if column.typical.is_some() => TYPICAL_SQUARED,
            ColumnKind::Number { .. } => RADIUS_SQUARED,
            ColumnKind::Category(words) => {
                let shares = self.expected_shares(column, words);
                let norm =
                    |word: usize| shares.iter().map(|(i, share)| (f64::from(*i == word) - share).powi(2)).sum::<f64>();
                (0..words.len()).map(norm).fold(0.0, f64::max)
            }
        };
        let target = if included { TARGET_WEIGHT * TARGET_WEIGHT * square(&self.target) } else { 0.0 };
        (self.features.iter().map(square).sum::<f64>() + target).sqrt()
    }

    /// These columns with the typical values that follow from released moments, each known up to noise of this standard
    /// deviation. Only what is public goes in, so all clients find the same.
    ///
    /// # Panics
    /// If there are not as many moments as [`Schema::moments`] has names.
    pub fn standardised(&self, classification: bool, moments: &[f64], sigma: f64) -> Self {
        let encoded = self.moments(classification);
        assert_eq!(moments.len(), encoded.feature_names().len(), "one value for each moment");
        let mut rest = moments;
        let mut take = |column: &Column| {
            let (own, tail) = rest.split_at(self.moment_names_of(column).len());
            rest = tail;
            own
        };
        let features: Vec<Column> = self.features.iter().map(|c| self.with_moments(c, take(c), sigma)).collect();
        let target = match classification {
            true => self.target.clone(),
            false => {
                let moments: Vec<f64> = take(&self.target).iter().map(|moment| moment / TARGET_WEIGHT).collect();
                self.with_moments(&self.target, &moments, sigma / TARGET_WEIGHT)
            }
        };
        Self { features, target, ..self.clone() }
    }

    fn with_moments(&self, column: &Column, moments: &[f64], sigma: f64) -> Column {
        let noise = sigma * sigma;
        let typical = match &column.kind {
            ColumnKind::Number { low, high } => {
                let (middle, half) = centre(column, Scaling::Bounds);
                let (mean, spread) = match *moments {
                    [mean, second] => {
                        let variance = second / SECOND + CENTRE - mean * mean + noise;
                        let mean = shrunk(mean, noise, 0.0, MEAN_VARIANCE);
                        let noise = noise / (SECOND * SECOND) + 4.0 * mean * mean * noise;
                        let variance = shrunk(variance, noise, USUAL_VARIANCE, VARIANCE_VARIANCE);
                        (mean, variance.max(0.0).sqrt().clamp(SPREADS.0, SPREADS.1))
                    }
                    _ => (
                        shrunk(moments[0], noise, 0.0, TYPICAL_MEAN_VARIANCE).clamp(-FEATURE_LIMIT, FEATURE_LIMIT),
                        1.0,
                    ),
                };
                vec![(middle + half * mean).clamp(*low, *high), half * spread]
            }
            ColumnKind::Category(words) => {
                let mut shares: Vec<f64> =
                    (0..words.len()).map(|i| column.typical.as_ref().map_or(0.0, |shares| shares[i])).collect();
                for ((i, expected), moment) in self.expected_shares(column, words).into_iter().zip(moments) {
                    shares[i] = shrunk(expected + moment, noise, expected, SHARE_VARIANCE).clamp(0.0, 1.0);
                }
                shares
            }
        };
        Column { typical: Some(typical), ..column.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No record is clipped whose columns have no typical values, and a smaller clip would cut some: R is exact.
    #[test]
    fn moments_of_bounded_columns_reach_the_clip_and_do_not_pass_it() {
        let schema = Schema::new([
            Column::number("age", 0.0, 100.0),
            Column::words("sex", ["f", "m"]),
            Column::words("ward", ["a", "b", "c", "d"]),
        ])
        .target(Column::number("days", -5.0, 60.0))
        .with_intercept();
        let encoded = schema.moments(false);
        let clip = encoded.moment_clip();
        let mut longest = 0.0f64;
        let mut z = Vec::new();
        for i in 0..=100 {
            for sex in ["f", "m"] {
                for ward in ["a", "b", "c", "d"] {
                    for j in 0..=20 {
                        let days = -5.0 + 65.0 * f64::from(j) / 20.0;
                        let row = [
                            Cell::Number(f64::from(i)),
                            Cell::Text(sex.into()),
                            Cell::Text(ward.into()),
                            Cell::Number(days),
                        ];
                        assert_eq!(encoded.encode(&row, false, &mut z), Ok(1.0));
                        longest = longest.max(z.iter().map(|v| v * v).sum::<f64>().sqrt());
                    }
                }
            }
        }
        assert!(longest <= clip * (1.0 + 1e-12) && longest > clip * (1.0 - 1e-12), "{longest} {clip}");
    }

    /// Exact moments give back mean and spread; with much noise, what is usual remains.
    #[test]
    fn typical_values_follow_from_moments() {
        let schema = Schema::new([Column::number("age", 0.0, 100.0), Column::words("sex", ["f", "m"])])
            .target(Column::number("days", 0.0, 60.0).typical([20.0, 5.0]))
            .with_intercept();
        // Ages 40 and 60 in equal parts: mean 50, spread 10, u = -0.2 and 0.2. One in four is "m". Days 25 and 15.
        let mut z = Vec::new();
        let mut sum = vec![0.0; schema.moments(false).feature_names().len()];
        for (age, sex, days) in [(40.0, "f", 25.0), (60.0, "m", 25.0), (40.0, "f", 25.0), (60.0, "f", 25.0)] {
            let row = [Cell::Number(age), Cell::Text(sex.into()), Cell::Number(days)];
            schema.moments(false).encode(&row, false, &mut z).unwrap();
            sum.iter_mut().zip(&z).for_each(|(sum, z)| *sum += z / 4.0);
        }
        let found = schema.standardised(false, &sum, 1e-9);
        let close = |values: &Option<Vec<f64>>, expected: [f64; 2]| {
            let values = values.as_ref().unwrap();
            assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{values:?} {expected:?}");
        };
        close(&found.features[0].typical, [50.0, 10.0]);
        close(&found.features[1].typical, [0.0, 0.25]);
        close(&found.target.typical, [25.0, 5.0]);
        let lost = schema.standardised(false, &sum, 1e6);
        let age = lost.features[0].typical.as_ref().unwrap();
        assert!((age[0] - 50.0).abs() < 1e-6 && (10.0..13.0).contains(&age[1]), "{age:?}");
        close(&lost.target.typical, [20.0, 5.0]);
    }
}
