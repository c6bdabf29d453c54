//! What a private model loses against one of pooled data, in numbers and in words.

use crate::made_up::Lost;

/// Added to a regret before its logarithm is taken: differences below this do not matter.
const NEGLIGIBLE: f64 = 0.003;

/// What a model loses against pooled data in the objective on new records, as a share of what pooled data gains over a model without
/// features, over made-up data sets: 0 is as good as pooled data, 1 no better than the mean. One less the regret is the *skill*.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regret {
    /// One in ten is better.
    pub q10: f64,
    /// Half are better.
    pub median: f64,
    /// One in ten is worse.
    pub q90: f64,
    /// The mean of ln(regret + 0.003) + min(regret, 3) on the records themselves, by which algorithms are compared.
    pub score: f64,
}

impl Regret {
    pub(crate) fn of(lost: &[Lost]) -> Self {
        let score = score(lost);
        let mut regrets: Vec<f64> = lost.iter().map(|lost| lost.new).collect();
        regrets.sort_by(f64::total_cmp);
        let quantile = |level: f64| regrets[(level * (regrets.len() - 1) as f64).round() as usize];
        Self { q10: quantile(0.1), median: quantile(0.5), q90: quantile(0.9), score }
    }

    /// The skill in one in ten of the cases or worse, typically, and in one in ten or better, with two digits each.
    pub fn skills(&self) -> [String; 3] {
        [self.q90, self.median, self.q10].map(skill)
    }

    /// What that means.
    pub fn verdict(&self) -> &'static str {
        match (self.median, self.q90) {
            (..=0.1, ..=0.3) => "Privacy costs little here.",
            (..=0.4, ..=0.8) => "The model will be useful, and less precise than one from pooled data.",
            (..=0.8, _) => {
                "The model may be useful or not: more records, a larger epsilon, fewer features or typical values of the columns \
                 would help."
            }
            _ => {
                "Do not expect a useful model: more records, a larger epsilon, fewer features or typical values of the columns would \
                 help."
            }
        }
    }
}

/// One less a regret, with two digits; a model can be far worse than the mean, and how far does not matter.
fn skill(regret: f64) -> String {
    let skill = 1.0 - regret;
    if skill < -1.0 { "<-1".into() } else { format!("{skill:.2}") }
}

/// The mean of ln(r + 0.003) + min(r, 3): where regrets are small it is their relative size that counts, and where they are large
/// a model that is worse than the mean is not made up for by one that is better.
pub(crate) fn score(lost: &[Lost]) -> f64 {
    let one = |lost: &Lost| libm::log(lost.here.max(0.0) + NEGLIGIBLE) + lost.here.clamp(0.0, 3.0);
    lost.iter().map(one).sum::<f64>() / lost.len() as f64
}
