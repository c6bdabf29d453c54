//! What an audit found.

use serde::Serialize;
use undertone_core::privacy::Delta;
use undertone_core::study::Study;

use crate::bound::{best_threshold, epsilon_from_tails, epsilon_of, mu_from_errors, mu_of};
use crate::repeats::Repeats;
use crate::stops::Stops;
use crate::subject::{Seen, Subject};

/// One way to guess the bits.
#[derive(Debug, Clone, Serialize)]
pub struct Attack {
    /// What is guessed by.
    pub name: &'static str,
    /// Guesses.
    pub trials: u64,
    /// Of those the wrong ones.
    pub wrong: u64,
    /// mu is at least this.
    pub mu: f64,
    /// The epsilon of that mu.
    pub epsilon: f64,
    /// A lower bound of epsilon that assumes no law, from the tails beyond `threshold`.
    pub epsilon_of_tails: f64,
    /// In standard deviations of the claimed noise.
    pub threshold: f64,
}

/// One study at one budget.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// Which.
    pub name: String,
    /// How many clients' records were attacked, of how many.
    pub clients: (usize, usize),
    /// P.
    pub features: usize,
    /// The mu and the epsilon that the code claims for what an attacked client spends, by the exact curve.
    pub claimed_mu: f64,
    /// The same as epsilon.
    pub claimed: f64,
    /// The delta of both.
    pub delta: f64,
    /// The mean square of what the records moved, relative to the sensitivity: below 1 the attack had less than the worst records.
    pub reach: f64,
    /// The guesses.
    pub attacks: Vec<Attack>,
    /// Noise that repeats; not with masks, which hide it.
    pub repeats: Option<Repeats>,
    /// Stops.
    pub stops: Stops,
    /// Scores by bit, for pictures.
    #[serde(skip)]
    pub scores: Vec<(bool, f64)>,
}

impl Part {
    /// What was seen of a subject, judged; `alpha` is the probability of a false alarm, and `stops` what is known of stops.
    pub(crate) fn new(name: &str, subject: &Subject, seen: &Seen, stops: Stops, alpha: f64) -> Self {
        let (delta, mu) = (subject.delta(), mu_of(subject.rho()));
        let threshold = best_threshold(mu, seen.bits.len() as u64, delta, alpha);
        let squares: f64 = seen.signals.iter().map(|s| s * s).sum();
        Self {
            name: name.to_string(),
            clients: (subject.attacked.len(), subject.names.len()),
            features: subject.features,
            claimed_mu: mu,
            claimed: epsilon_of(mu, delta),
            delta: delta.get(),
            reach: squares / seen.signals.len().max(1) as f64 / (mu * mu / 4.0),
            attacks: attacks(subject, seen, threshold, delta, alpha),
            repeats: (!seen.noise.is_empty()).then(|| Repeats::count(&seen.noise)),
            stops,
            scores: seen.bits.iter().copied().zip(seen.scores.iter().copied()).collect(),
        }
    }

    /// The largest epsilon that was proven.
    pub fn proven(&self) -> f64 {
        let guesses = self.attacks.iter().map(|attack| attack.epsilon.max(attack.epsilon_of_tails));
        guesses.fold(self.stops.epsilon, f64::max)
    }

    /// Whether the claim is refuted.
    pub fn is_violated(&self) -> bool {
        self.proven() > self.claimed || self.repeats.is_some_and(|repeats| repeats.is_violated())
    }
}

/// All parts.
#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    /// The study's name.
    pub study: String,
    /// Its digest.
    pub digest: String,
    /// Its algorithm.
    pub algorithm: &'static str,
    /// Its loss.
    pub loss: &'static str,
    /// Its noise.
    pub noise: &'static str,
    /// q, if there are masks.
    pub colluders: Option<usize>,
    /// The probability of a false alarm.
    pub alpha: f64,
    /// One for each budget and stage.
    pub parts: Vec<Part>,
}

impl Findings {
    pub(crate) fn new(study: &Study, alpha: f64, parts: Vec<Part>) -> Self {
        let privacy = study.privacy();
        let safe = study.noise().is_some_and(|noise| noise.is_safe());
        Self {
            study: study.name().to_string(),
            digest: hex::encode(study.digest().whole()),
            algorithm: study.algorithm().name(),
            loss: study.spec().loss.name(),
            noise: if safe { "secure" } else { "fast" },
            colluders: privacy.and_then(|privacy| privacy.colluders()),
            alpha,
            parts,
        }
    }

    /// Whether some claim is refuted.
    pub fn is_violated(&self) -> bool {
        self.parts.iter().any(Part::is_violated)
    }
}

/// All guesses.
fn attacks(subject: &Subject, seen: &Seen, threshold: f64, delta: Delta, alpha: f64) -> Vec<Attack> {
    let features = subject.features;
    let judge = |name, scores: &[f64]| {
        let right = |score: &f64, bit: &bool| if *bit { *score } else { -*score };
        let pairs = || scores.iter().zip(&seen.bits).map(|(score, bit)| right(score, bit));
        let count = |is: &dyn Fn(f64) -> bool| pairs().filter(|v| is(*v)).count() as u64;
        let (trials, wrong) = (scores.len() as u64, count(&|v| v <= 0.0));
        let (hits, misses) = (count(&|v| v > threshold), count(&|v| v < -threshold));
        let mu = mu_from_errors(wrong, trials, alpha);
        let epsilon_of_tails = epsilon_from_tails(hits, misses, trials, delta, alpha);
        Attack { name, trials, wrong, mu, epsilon: epsilon_of(mu, delta), epsilon_of_tails, threshold }
    };
    // What another draw of noise would leave if it were the same: the adversary knows that other bit.
    let minus = |other: &dyn Fn(usize) -> usize| -> Vec<f64> {
        let noise = |i: usize| seen.scores[i] - if seen.bits[i] { seen.signals[i] } else { -seen.signals[i] };
        (0..seen.scores.len()).map(|i| (seen.scores[i] - noise(other(i))) / std::f64::consts::SQRT_2).collect()
    };
    let mut attacks = vec![judge("the sum over all rounds", &seen.scores)];
    if features > 1 {
        let next = |i: usize| i - i % features + (i + 1) % features;
        attacks.push(judge("less the noise of the next coordinate", &minus(&next)));
    }
    let run = subject.bits();
    if run > features {
        let other = |i: usize| i - i % run + (i + features) % run;
        attacks.push(judge("less the noise of another client", &minus(&other)));
    }
    attacks
}
