//! How well a model predicts, beside the best model without features.

use serde_json::{Map, Value, json};
use undertone_core::loss::{AnyLoss, Quantile};

/// One measure of a model, and the same of a constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// What it is, in a few words.
    pub name: &'static str,
    /// Of the model.
    pub model: f64,
    /// Of the best constant for these rows; none where it has no meaning.
    pub null: Option<f64>,
    /// Whether more is better.
    pub up: bool,
}

/// Predictions and what was true, row by row, and the loss that says how to compare them.
#[derive(Debug, Clone)]
pub struct Scored {
    loss: AnyLoss,
    /// Prediction and truth: numbers in the same units, or a score and a label -1 or 1.
    pairs: Vec<(f64, f64)>,
}

impl Scored {
    /// Nothing yet.
    pub fn new(loss: AnyLoss) -> Self {
        Self { loss, pairs: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, prediction: f64, truth: f64) {
        self.pairs.push((prediction, truth));
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The measures that suit the loss. None that needs more rows, or rows of both labels, than there are.
    pub fn scores(&self) -> Vec<Score> {
        if self.pairs.is_empty() {
            return Vec::new();
        }
        match self.loss.is_classification() {
            true => self.of_labels(),
            false => self.of_numbers(),
        }
    }

    fn mean(&self, f: impl Fn(f64, f64) -> f64) -> f64 {
        self.pairs.iter().map(|(z, y)| f(*z, *y)).sum::<f64>() / self.pairs.len() as f64
    }

    fn of_numbers(&self) -> Vec<Score> {
        let level = match self.loss {
            AnyLoss::Quantile(Quantile { level }) => level,
            _ => 0.5,
        };
        let mut sorted: Vec<f64> = self.pairs.iter().map(|(_, y)| *y).collect();
        sorted.sort_by(f64::total_cmp);
        let mean = self.mean(|_, y| y);
        let (median, quantile) = (at_level(&sorted, 0.5), at_level(&sorted, level));
        let square = |of: &dyn Fn(f64) -> f64| self.mean(|z, y| (of(z) - y) * (of(z) - y));
        let (own, null) = (square(&|z| z), square(&|_| mean));
        let pinball = |z: f64, y: f64| if y >= z { level * (y - z) } else { (1.0 - level) * (z - y) };
        let mut scores = Vec::new();
        if null > 0.0 {
            scores.push(Score { name: "R^2", model: 1.0 - own / null, null: Some(0.0), up: true });
        }
        scores.push(Score { name: "RMSE", model: own.sqrt(), null: Some(null.sqrt()), up: false });
        let absolute = |of: &dyn Fn(f64) -> f64| self.mean(|z, y| (of(z) - y).abs());
        scores.push(Score { name: "MAE", model: absolute(&|z| z), null: Some(absolute(&|_| median)), up: false });
        if matches!(self.loss, AnyLoss::Quantile(_)) {
            let (model, null) = (self.mean(pinball), self.mean(|_, y| pinball(quantile, y)));
            scores.push(Score { name: "pinball loss", model, null: Some(null), up: false });
            let below = self.mean(|z, y| f64::from(y <= z));
            scores.push(Score { name: "share below", model: below, null: Some(level), up: false });
        }
        let bias = self.mean(|z, y| z - y);
        scores.push(Score { name: "mean error", model: bias, null: None, up: false });
        scores
    }

    fn of_labels(&self) -> Vec<Score> {
        let rate = self.mean(|_, y| f64::from(y > 0.0));
        let mut scores = Vec::new();
        if let Some(auc) = auc(&self.pairs) {
            scores.push(Score { name: "AUC", model: auc, null: Some(0.5), up: true });
        }
        let right = self.mean(|z, y| f64::from((z >= 0.0) == (y > 0.0)));
        scores.push(Score { name: "accuracy", model: right, null: Some(rate.max(1.0 - rate)), up: true });
        if matches!(self.loss, AnyLoss::Logistic(_)) {
            // -ln of the probability of what happened, without overflow.
            let log_loss = |z: f64, y: f64| {
                let m = -y * z;
                m.max(0.0) + libm::log1p(libm::exp(-m.abs()))
            };
            let entropy = |p: f64| if p > 0.0 { -p * libm::log(p) } else { 0.0 };
            let null = entropy(rate) + entropy(1.0 - rate);
            scores.push(Score { name: "log loss", model: self.mean(log_loss), null: Some(null), up: false });
            let predicted = self.mean(|z, _| 1.0 / (1.0 + libm::exp(-z)));
            scores.push(Score { name: "mean probability", model: predicted, null: Some(rate), up: false });
            scores.push(Score {
                name: "calibration in the large",
                model: predicted - rate,
                null: Some(0.0),
                up: false,
            });
        }
        scores
    }

    /// The scores as a JSON object, each with that of the constant.
    pub fn to_json(&self) -> Value {
        let each = self.scores().into_iter().map(|s| (s.name.to_string(), json!({ "model": s.model, "null": s.null })));
        let scores: Map<String, Value> = each.collect();
        json!({ "rows": self.len(), "scores": scores })
    }
}

/// The value below which a share of the sorted numbers lies.
fn at_level(sorted: &[f64], level: f64) -> f64 {
    let at = ((sorted.len() as f64 * level).ceil() as usize).clamp(1, sorted.len());
    // Between two numbers every one is a median; the middle is the usual choice.
    let next = if (sorted.len() as f64 * level).fract() == 0.0 { at.min(sorted.len() - 1) } else { at - 1 };
    0.5 * (sorted[at - 1] + sorted[next])
}

/// The probability that a row of the second label has the larger score, ties counting half; none without both labels.
fn auc(pairs: &[(f64, f64)]) -> Option<f64> {
    let mut sorted = pairs.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positive = sorted.iter().filter(|(_, y)| *y > 0.0).count() as f64;
    let negative = sorted.len() as f64 - positive;
    let mut ranks = 0.0;
    let mut start = 0;
    while start < sorted.len() {
        let end = start + sorted[start..].iter().take_while(|(z, _)| *z == sorted[start].0).count();
        let rank = (start + end + 1) as f64 / 2.0;
        ranks += rank * sorted[start..end].iter().filter(|(_, y)| *y > 0.0).count() as f64;
        start = end;
    }
    let wins = ranks - positive * (positive + 1.0) / 2.0;
    (positive > 0.0 && negative > 0.0).then(|| wins / (positive * negative))
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_core::loss::{Logistic, Squared};

    fn value(scored: &Scored, name: &str) -> (f64, Option<f64>) {
        let found = scored.scores().into_iter().find(|score| score.name == name).unwrap();
        (found.model, found.null)
    }

    /// Against numbers of scikit-learn 1.5: r2_score, root_mean_squared_error, mean_absolute_error, mean_pinball_loss.
    #[test]
    fn numbers_match_sklearn() {
        let mut scored = Scored::new(Quantile { level: 0.8 }.into());
        for (z, y) in [(2.5, 3.0), (0.0, -0.5), (2.0, 2.0), (8.0, 7.0)] {
            scored.push(z, y);
        }
        assert!((value(&scored, "R^2").0 - 0.9486081370449679).abs() < 1e-12);
        assert!((value(&scored, "RMSE").0 - 0.6123724356957945).abs() < 1e-12);
        assert!((value(&scored, "MAE").0 - 0.5).abs() < 1e-12);
        assert!((value(&scored, "pinball loss").0 - (0.8 * 0.5 + 0.2 * 1.5) / 4.0).abs() < 1e-12);
        assert_eq!(value(&scored, "MAE").1, Some(2.125), "of the median, 2.5");
    }

    /// Against roc_auc_score and log_loss.
    #[test]
    fn labels_match_sklearn() {
        let mut scored = Scored::new(Logistic.into());
        for (z, y) in [(0.1, -1.0), (0.4, -1.0), (0.35, 1.0), (0.8, 1.0)] {
            scored.push(z, y);
        }
        assert!((value(&scored, "AUC").0 - 0.75).abs() < 1e-12);
        let by_hand = [(0.1, -1.0), (0.4, -1.0), (0.35, 1.0), (0.8, 1.0)];
        let expected: f64 = by_hand.iter().map(|(z, y): &(f64, f64)| (1.0 + (-y * z).exp()).ln()).sum::<f64>() / 4.0;
        assert!((value(&scored, "log loss").0 - expected).abs() < 1e-12);
        assert_eq!(value(&scored, "log loss").1, Some(2f64.ln()));
        assert_eq!(value(&scored, "accuracy"), (0.5, Some(0.5)));
        scored.push(0.35, -1.0);
        assert!((value(&scored, "AUC").0 - 4.5 / 6.0).abs() < 1e-12, "a tie counts half");
    }

    #[test]
    fn too_few_rows_give_fewer_scores_and_no_nonsense() {
        let mut scored = Scored::new(Squared.into());
        assert!(scored.scores().is_empty() && scored.is_empty());
        scored.push(1.0, 2.0);
        assert!(scored.scores().iter().all(|score| score.name != "R^2" && score.model.is_finite()));
        let mut one_label = Scored::new(Logistic.into());
        one_label.push(3.0, 1.0);
        assert!(one_label.scores().iter().all(|score| score.name != "AUC" && score.model.is_finite()));
    }
}
