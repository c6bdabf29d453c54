//! Fair tuning: one search for all methods, so that each gets the same effort.
//!
//! The cross-entropy method (Rubinstein 1999): points are drawn all over the box of a method's parameters, in logarithms where
//! that is natural; then, stage by stage, from a normal law fitted to the best sixth of the stage before, fewer of them in
//! more trials, every stage on data of its own. In the end the centre of the best and the five best themselves compete on
//! data that the search has not seen. What is minimised is the error after the last round, summed over clients, as the
//! mean over trials.

use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use undertone_core::privacy::Stream;
use undertone_core::study::{Document, Reader, Redraw, Study, StudyError};

use undertone_sim::run::{Shared, run_sharing};

/// A parameter that tuning decides, and the range in which it looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knob {
    /// The key in a study, such as `algorithm.eta`.
    pub key: &'static str,
    range: Range,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Range {
    /// Evenly in logarithms.
    Log(f64, f64),
    /// The same, rounded to whole numbers.
    Whole(f64, f64),
    /// Evenly.
    Linear(f64, f64),
    /// 1 less a number that is spread evenly in logarithms.
    BelowOne(f64, f64),
    /// One of a few words.
    Words(&'static [&'static str]),
}

impl Knob {
    /// The penalty of ADMM.
    pub const RHO: Knob = Knob { key: "algorithm.rho", range: Range::Log(0.03, 100.0) };
    /// A step size.
    pub const ETA: Knob = Knob { key: "algorithm.eta", range: Range::Log(0.003, 10.0) };
    /// A step size in few rounds, which may be larger.
    pub const LARGE_ETA: Knob = Knob { key: "algorithm.eta", range: Range::Log(0.01, 30.0) };
    /// Whether steps shrink with 1/sqrt(n).
    pub const DECAY: Knob = Knob { key: "algorithm.decay", range: Range::Words(&["constant", "sqrt"]) };
    /// How steps shrink in few rounds.
    pub const ANY_DECAY: Knob = Knob { key: "algorithm.decay", range: Range::Words(&["constant", "sqrt", "inverse"]) };
    /// c1.
    pub const CLIP: Knob = Knob { key: "privacy.clip", range: Range::Log(0.1, 30.0) };
    /// Growth of the budget over many rounds.
    pub const TAU: Knob = Knob { key: "privacy.tau", range: Range::BelowOne(1e-4, 0.1) };
    /// Growth of the budget over few rounds.
    pub const STEEP_TAU: Knob = Knob { key: "privacy.tau", range: Range::BelowOne(1e-3, 0.5) };
    /// S, in the 200 rounds of the paper.
    pub const DATA_ROUNDS: Knob = Knob { key: "algorithm.data_rounds", range: Range::Whole(1.0, 199.0) };
    /// S where the rounds do not suffice to mix even once, so that waiting for it is in vain.
    pub const MANY_DATA_ROUNDS: Knob = Knob { key: "algorithm.data_rounds", range: Range::Whole(50.0, 199.0) };
    /// Momentum.
    pub const MOMENTUM: Knob = Knob { key: "algorithm.momentum", range: Range::Linear(0.0, 0.9) };
    /// The share of rounds that are averaged.
    pub const AVERAGE: Knob = Knob { key: "algorithm.average", range: Range::Linear(0.0, 1.0) };

    /// The same knob where there are only so many rounds: S must be less.
    pub fn within(self, rounds: u32) -> Self {
        match self {
            Knob::DATA_ROUNDS => Knob { range: Range::Whole(1.0, f64::from(rounds.max(2) - 1)), ..self },
            _ => self,
        }
    }

    /// The key without its table.
    pub fn name(&self) -> &'static str {
        self.key.rsplit('.').next().expect("a key has a last part")
    }

    /// The value at `share` of the range, with the three digits that tuning can tell, as it is written in a study.
    fn at(&self, share: f64) -> String {
        match self.range {
            Range::Log(low, high) => three_digits(low * (high / low).powf(share)),
            Range::Whole(low, high) => format!("{}", (low * (high / low).powf(share)).round()),
            Range::Linear(low, high) => decimals(low + (high - low) * share, 2),
            Range::BelowOne(low, high) => decimals(1.0 - low * (high / low).powf(share), 6),
            Range::Words(words) => word(words, share).to_string(),
        }
    }

    /// Where in the range a value stands: the inverse of `at`, up to rounding.
    fn share(&self, value: &str) -> f64 {
        let number = || value.parse::<f64>().unwrap_or(f64::NAN);
        let log = |v: f64, low: f64, high: f64| (v / low).ln() / (high / low).ln();
        let share = match self.range {
            Range::Log(low, high) | Range::Whole(low, high) => log(number(), low, high),
            Range::Linear(low, high) => (number() - low) / (high - low),
            Range::BelowOne(low, high) => log(1.0 - number(), low, high),
            Range::Words(words) => {
                let index = words.iter().position(|w| *w == value).unwrap_or(0);
                (index as f64 + 0.5) / words.len() as f64
            }
        };
        if share.is_nan() { 0.5 } else { share.clamp(0.0, 1.0) }
    }

    /// Reads the value from a table of tuned parameters.
    pub fn read(&self, table: &mut Reader) -> Result<String, StudyError> {
        match self.range {
            Range::Words(words) => {
                let choices: Vec<(&str, &str)> = words.iter().map(|w| (*w, *w)).collect();
                table.choice_required(self.name(), &choices).map(str::to_string)
            }
            _ => table.required(self.name(), "write a number", |v| v >= 0.0).map(|v| v.to_string()),
        }
    }

    /// As it stands in a table of tuned parameters.
    pub fn written(&self, value: &str) -> String {
        match self.range {
            Range::Words(_) => format!("{} = \"{value}\"", self.name()),
            _ => format!("{} = {value}", self.name()),
        }
    }
}

fn word(words: &'static [&'static str], share: f64) -> &'static str {
    words[((share * words.len() as f64) as usize).min(words.len() - 1)]
}

fn three_digits(value: f64) -> String {
    let unit = 10f64.powf(value.log10().floor() - 2.0);
    decimals((value / unit).round() * unit, 6)
}

/// Rounded to so many decimals, without zeros at the end.
fn decimals(value: f64, count: usize) -> String {
    format!("{value:.count$}").parse().map_or(value, |rounded: f64| rounded).to_string()
}

/// A method that can be tuned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Assignments that make a study use it, the `algorithm` table first.
    pub fixed: &'static [&'static str],
    /// What is left to tune.
    pub knobs: &'static [Knob],
}

/// Tuned values, one for each knob of a candidate, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters(pub Vec<(Knob, String)>);

impl Parameters {
    /// The value of a key, if there is such a knob.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(knob, _)| knob.key == key).map(|(_, value)| value.as_str())
    }

    /// The same with the knob of this key set to `share` of its range; without that knob, the same.
    pub fn with(&self, key: &str, share: f64) -> Self {
        let turn = |(knob, value): &(Knob, String)| {
            (*knob, if knob.key == key { knob.at(share.clamp(0.0, 1.0)) } else { value.clone() })
        };
        Self(self.0.iter().map(turn).collect())
    }

    /// For readers.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(knob, value)| format!("{} {value}", knob.name())).collect();
        parts.join(", ")
    }

    /// Turns a study into one that uses `candidate` with these values.
    pub fn apply(&self, candidate: &Candidate, document: &mut Document) -> Result<(), StudyError> {
        let values = self.0.iter().map(|(knob, value)| format!("{}={value}", knob.key));
        for assignment in candidate.fixed.iter().map(|text| text.to_string()).chain(values) {
            document.assign(&assignment, format!("chosen by tuning, {assignment}"))?;
        }
        Ok(())
    }
}

/// A part of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Points tried.
    pub points: usize,
    /// Trials of each.
    pub trials: u32,
}

const fn stage(points: usize, trials: u32) -> Stage {
    Stage { points, trials }
}

/// The search behind the figures: 360 points, 1560 trials, and 144 for the last choice.
pub const THOROUGH: [Stage; 4] = [stage(200, 2), stage(80, 5), stage(50, 8), stage(30, 12)];

/// The search from where a smaller network was tuned: 50 points, 248 trials, and 96 for the last choice.
pub const NEARBY: [Stage; 3] = [stage(24, 3), stage(16, 6), stage(10, 8)];

/// The search for a large network that a smaller one says nothing about: 96 points, 288 trials, and 72 for the last choice.
pub const WIDE: [Stage; 3] = [stage(60, 2), stage(24, 4), stage(12, 6)];

/// Points in the last choice besides the centre; it has twice the trials of the last stage.
const FINALISTS: usize = 5;
/// Standard deviation of the first draws around a start, as a share of the range.
const NEAR: f64 = 0.12;
/// Added to every variance, so that no direction is given up too early.
const RESTLESSNESS: f64 = 0.02 * 0.02;

/// Which model is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// w_k before its noise, as in the paper's figures: known to client k alone.
    Own,
    /// What was released, and becomes the model.
    Released,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best parameters.
    pub parameters: Parameters,
    /// Their mean error in the last stage.
    pub error: f64,
}

/// Searches for the best parameters of a candidate. `build` makes a study of them on the data of a given draw; a study that
/// cannot be made or run counts as the worst there is. Without a `start`, the search begins everywhere.
pub fn tune(
    knobs: &[Knob],
    stages: &[Stage],
    start: Option<&Parameters>,
    build: &(dyn Fn(&Parameters, u64) -> Option<Study> + Sync),
    judged: Judged,
    shared: &Shared,
) -> Found {
    let parameters =
        |point: &[f64]| Parameters(knobs.iter().zip(point).map(|(knob, share)| (*knob, knob.at(*share))).collect());
    let ranked = |points: Vec<Vec<f64>>, trials: u32, draw: u64| -> Vec<(f64, Vec<f64>)> {
        let evaluate = |point: &Vec<f64>| {
            build(&parameters(point), draw).map_or(f64::INFINITY, |study| error(study, trials, judged, shared))
        };
        let errors: Vec<f64> = points.par_iter().map(evaluate).collect();
        let mut ranked: Vec<(f64, Vec<f64>)> = errors.into_iter().zip(points).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked
    };
    let mut law = start.map(|start| {
        Law::around(knobs.iter().map(|knob| start.get(knob.key).map_or(0.5, |value| knob.share(value))).collect())
    });
    let mut finalists = vec![law.as_ref().map_or(vec![0.5; knobs.len()], |law| law.mean.clone())];
    for (index, stage) in (0u32..).zip(stages) {
        let points = (0..stage.points).map(|i| match &law {
            None => halton(i + 1, knobs.len()),
            Some(law) => law.draw(Stream { trial: index, client: i as u32, round: 0 }),
        });
        let ranked = ranked(points.collect(), stage.trials, index.into());
        let best: Vec<&[f64]> = ranked.iter().take((stage.points / 6).max(4)).map(|(_, point)| &point[..]).collect();
        let fitted = Law::fit(&best);
        finalists = best.iter().take(FINALISTS).map(|point| point.to_vec()).chain([fitted.mean.clone()]).collect();
        law = Some(fitted);
    }
    let trials = stages.last().map_or(1, |stage| 2 * stage.trials);
    let (error, best) = ranked(finalists, trials, stages.len() as u64).swap_remove(0);
    Found { parameters: parameters(&best), error }
}

/// A normal law on the unit cube.
struct Law {
    mean: Vec<f64>,
    /// The lower triangle whose product with its transpose is the covariance.
    root: Vec<Vec<f64>>,
}

impl Law {
    fn around(mean: Vec<f64>) -> Self {
        let n = mean.len();
        let root = (0..n).map(|i| (0..n).map(|j| if i == j { NEAR } else { 0.0 }).collect()).collect();
        Self { mean, root }
    }

    /// Mean and covariance of some points.
    fn fit(points: &[&[f64]]) -> Self {
        let (n, count) = (points[0].len(), points.len() as f64);
        let mean: Vec<f64> = (0..n).map(|i| points.iter().map(|p| p[i]).sum::<f64>() / count).collect();
        let covariance = |i: usize, j: usize| {
            let sum: f64 = points.iter().map(|p| (p[i] - mean[i]) * (p[j] - mean[j])).sum();
            sum / count + if i == j { RESTLESSNESS } else { 0.0 }
        };
        // Cholesky's factorisation; what is added to the diagonal keeps it positive.
        let mut root = vec![vec![0.0f64; n]; n];
        for i in 0..n {
            for j in 0..=i {
                let known: f64 = (0..j).map(|k| root[i][k] * root[j][k]).sum();
                let rest = covariance(i, j) - known;
                root[i][j] = if i == j { rest.max(RESTLESSNESS / 2.0).sqrt() } else { rest / root[j][j] };
            }
        }
        Self { mean, root }
    }

    fn draw(&self, stream: Stream) -> Vec<f64> {
        let mut rng = stream.fast(0);
        let z: Vec<f64> = self.mean.iter().map(|_| StandardNormal.sample(&mut rng)).collect();
        let moved = self.root.iter().map(|row| row.iter().zip(&z).map(|(a, z)| a * z).sum::<f64>());
        self.mean.iter().zip(moved).map(|(mean, moved)| (mean + moved).clamp(0.0, 1.0)).collect()
    }
}

/// The mean error after the last round, over trials with their own data, graph and noise.
pub fn error(mut study: Study, trials: u32, judged: Judged, shared: &Shared) -> f64 {
    study.simulation.trials = trials;
    study.simulation.redraw = Redraw::All;
    study.simulation.metrics_every = study.rounds;
    match run_sharing(&study, shared, &|_| {}) {
        Ok(outcome) => outcome.last().error.map_or(f64::INFINITY, |[own, released, _]| match judged {
            Judged::Own => own.mean,
            Judged::Released => released.mean,
        }),
        // A diverged run is the worst there is.
        Err(_) => f64::INFINITY,
    }
}

/// Point `index` of the Halton sequence in so many dimensions.
fn halton(index: usize, dimensions: usize) -> Vec<f64> {
    const BASES: [usize; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let coordinate = |&base: &usize| {
        let (mut rest, mut unit, mut sum) = (index, 1.0, 0.0);
        while rest > 0 {
            unit /= base as f64;
            sum += unit * (rest % base) as f64;
            rest /= base;
        }
        sum
    };
    BASES[..dimensions].iter().map(coordinate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_shares_are_inverse() {
        let knobs = [Knob::RHO, Knob::CLIP, Knob::TAU, Knob::DATA_ROUNDS, Knob::MOMENTUM, Knob::ANY_DECAY];
        for knob in knobs {
            for share in [0.0, 0.2, 0.5, 0.77, 1.0] {
                let value = knob.at(share);
                let again = knob.at(knob.share(&value));
                assert_eq!(value, again, "{}", knob.key);
            }
        }
        assert_eq!(Knob::ANY_DECAY.at(1.0), "inverse");
        assert_eq!(Knob::DATA_ROUNDS.at(0.0), "1");
    }
}
