//! Step sizes.

use std::sync::LazyLock;

use crate::knob::{Domain, Knob, Scale, Settings, Value};
use crate::rule;

/// How a step size shrinks with the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// eta
    Constant,
    /// eta/n^0.4
    Slow,
    /// eta/sqrt(n)
    Sqrt,
    /// eta/n
    Inverse,
}

/// A step size eta(n).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSize {
    /// eta(1), unless a client has its own.
    pub eta: f64,
    /// How it shrinks.
    pub decay: Decay,
}

const WORDS: &[&str] = &["constant", "slow", "sqrt", "inverse"];
const DECAYS: [(&str, Decay); 4] =
    [("constant", Decay::Constant), ("slow", Decay::Slow), ("sqrt", Decay::Sqrt), ("inverse", Decay::Inverse)];

impl StepSize {
    /// The knob `eta`, searched in this range.
    pub(super) const fn eta_knob(search: Scale) -> Knob {
        Knob { name: "eta", domain: Domain::Number(rule::POSITIVE), default: None, search: Some(search) }
    }

    /// The knob `decay`, searched among these words.
    pub(super) const fn decay_knob(search: &'static [&'static str]) -> Knob {
        Knob {
            name: "decay",
            domain: Domain::Words(WORDS),
            default: Some(Value::Word("constant")),
            search: Some(Scale::Words(search)),
        }
    }

    /// From the settings `eta` and `decay`.
    pub(super) fn new(settings: &Settings) -> Self {
        Self { eta: settings.number("eta"), decay: settings.word("decay", &DECAYS) }
    }

    /// Adds the settings `eta` and `decay`.
    pub(super) fn add_to(self, settings: Settings) -> Settings {
        let (word, _) = DECAYS.iter().find(|(_, decay)| *decay == self.decay).expect("every decay has a word");
        settings.with("eta", Value::Number(self.eta)).with("decay", Value::Word(word))
    }

    /// eta_k(n), with the client's own eta(1) if it has one.
    pub fn at(self, round: u32, own: Option<f64>) -> f64 {
        let n = f64::from(round);
        let eta = own.unwrap_or(self.eta);
        match self.decay {
            Decay::Constant => eta,
            Decay::Slow => eta / slow(round),
            Decay::Sqrt => eta / n.sqrt(),
            Decay::Inverse => eta / n,
        }
    }
}

/// n^0.4. Every client asks for it several times in every round, and a power takes as long as the step itself.
fn slow(round: u32) -> f64 {
    static KNOWN: LazyLock<Vec<f64>> = LazyLock::new(|| (0..2048).map(|n| libm::pow(f64::from(n), 0.4)).collect());
    KNOWN.get(round as usize).copied().unwrap_or_else(|| libm::pow(f64::from(round), 0.4))
}

/// The knob `average`, a share of the rounds.
pub(super) const fn average_knob(default: f64) -> Knob {
    Knob {
        name: "average",
        domain: Domain::Number(rule::SHARE_OF_ROUNDS),
        default: Some(Value::Number(default)),
        search: Some(Scale::Linear(0.0, 1.0)),
    }
}
