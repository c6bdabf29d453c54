//! Parameters as data: what each is called, what it may be, and where tuning looks for it.
//!
//! An algorithm lists its parameters as [`Knob`]s. Reading a study, printing it, tuning and planning all go by that list, so
//! a parameter is described in one place.

use std::fmt;

use crate::rule::{self, Rule};

/// A parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knob {
    /// Its key in a study.
    pub name: &'static str,
    /// What it may be.
    pub domain: Domain,
    /// What it is where a study does not say; without one it must be given.
    pub default: Option<Value>,
    /// Where tuning looks for it; `None` for what is not tuned.
    pub search: Option<Scale>,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Domain {
    /// A number that keeps a rule.
    Number(Rule),
    /// A whole number from 1 to this.
    Count(u32),
    /// true or false.
    Flag,
    /// One of these words.
    Words(&'static [&'static str]),
}

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A whole number.
    Count(u32),
    /// true or false.
    Flag(bool),
    /// A word.
    Word(&'static str),
}

/// How a range is searched: where in it a share from 0 to 1 lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Evenly in logarithms.
    Log(f64, f64),
    /// The same, rounded to whole numbers.
    Count(f64, f64),
    /// Evenly.
    Linear(f64, f64),
    /// 1 less a number that is spread evenly in logarithms.
    BelowOne(f64, f64),
    /// One of a few words.
    Words(&'static [&'static str]),
}

/// c1, the norm to which every record's gradient is clipped: a parameter of every study with privacy.
pub const CLIP: Knob =
    Knob { name: "clip", domain: Domain::Number(rule::POSITIVE), default: None, search: Some(Scale::Log(0.1, 30.0)) };

/// tau, by which the budget grows: phi(n+1) = phi(n)/tau. Where tuning looks depends on the algorithm.
pub const fn tau(search: Scale) -> Knob {
    Knob {
        name: "tau",
        domain: Domain::Number(rule::ABOVE_ZERO_TO_ONE),
        default: Some(Value::Number(1.0)),
        search: Some(search),
    }
}

/// theta, how near a client's own noise is to the least that masks allow, among so many clients that do not collude.
pub fn theta(honest: usize) -> Knob {
    let most = 1.0 - 1.0 / honest as f64;
    Knob {
        name: "theta",
        domain: Domain::Number(rule::THETA),
        default: None,
        search: Some(Scale::BelowOne(0.01, 0.97 * most)),
    }
}

impl Knob {
    /// The value if it is allowed; else what is expected.
    pub fn check(&self, value: Value) -> Result<Value, String> {
        let allowed = match (self.domain, value) {
            (Domain::Number(rule), Value::Number(v)) => rule.holds(v),
            (Domain::Count(most), Value::Count(v)) => (1..=most).contains(&v),
            (Domain::Flag, Value::Flag(_)) => true,
            (Domain::Words(words), Value::Word(word)) => words.contains(&word),
            _ => false,
        };
        if allowed { Ok(value) } else { Err(self.domain.expected()) }
    }
}

impl Domain {
    /// What would be right, as an instruction.
    pub fn expected(self) -> String {
        match self {
            Domain::Number(rule) => rule.expected.into(),
            Domain::Count(most) => format!("write a whole number from 1 to {most}"),
            Domain::Flag => "write true or false".into(),
            Domain::Words(words) => format!("write one of {}", quoted(words)),
        }
    }
}

/// The words in quotes, separated by commas.
pub(crate) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// As it is printed for people; in TOML, words have quotes.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(v) => write!(f, "{v}"),
            Value::Count(v) => write!(f, "{v}"),
            Value::Flag(v) => write!(f, "{v}"),
            Value::Word(v) => f.write_str(v),
        }
    }
}

impl Scale {
    /// The value at `share` of the range, with the three digits that tuning can tell apart.
    pub fn at(self, share: f64) -> Value {
        match self {
            Scale::Log(low, high) => Value::Number(three_digits(low * (high / low).powf(share))),
            Scale::Count(low, high) => Value::Count((low * (high / low).powf(share)).round() as u32),
            Scale::Linear(low, high) => Value::Number(rounded(low + (high - low) * share, 2)),
            Scale::BelowOne(low, high) => Value::Number(rounded(1.0 - low * (high / low).powf(share), 6)),
            Scale::Words(words) => Value::Word(words[((share * words.len() as f64) as usize).min(words.len() - 1)]),
        }
    }

    /// Where in the range a value is: the inverse of [`Scale::at`], up to rounding. The middle for a value of another type.
    pub fn share(self, value: Value) -> f64 {
        let log = |v: f64, low: f64, high: f64| (v / low).ln() / (high / low).ln();
        let share = match (self, value) {
            (Scale::Log(low, high), Value::Number(v)) => log(v, low, high),
            (Scale::Count(low, high), Value::Count(v)) => log(f64::from(v), low, high),
            (Scale::Linear(low, high), Value::Number(v)) => (v - low) / (high - low),
            (Scale::BelowOne(low, high), Value::Number(v)) => log(1.0 - v, low, high),
            (Scale::Words(words), Value::Word(word)) => {
                let index = words.iter().position(|w| *w == word).unwrap_or(0);
                (index as f64 + 0.5) / words.len() as f64
            }
            _ => f64::NAN,
        };
        if share.is_nan() { 0.5 } else { share.clamp(0.0, 1.0) }
    }

    /// The same range where there are only so many rounds: a count of rounds must be less.
    pub fn within(self, rounds: u32) -> Self {
        match self {
            Scale::Count(low, _) => Scale::Count(low, f64::from(rounds.max(2) - 1)),
            other => other,
        }
    }
}

fn three_digits(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 2.0);
    rounded((value / unit).round() * unit, 6)
}

/// Rounded to so many decimals, as the text of the number would be.
fn rounded(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

/// Values of an algorithm's parameters, by name, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings(Vec<(&'static str, Value)>);

impl Settings {
    /// No values yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one value set; a value of that name is replaced.
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.set(name, value);
        self
    }

    /// Sets one value; a value of that name is replaced.
    pub fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.0.iter().copied()
    }

    /// These values checked against a list of knobs, with defaults filled in, in the order of the knobs.
    pub fn complete(&self, knobs: &[Knob]) -> Result<Self, SettingError> {
        if let Some((name, _)) = self.iter().find(|(name, _)| knobs.iter().all(|knob| knob.name != *name)) {
            let known: Vec<&str> = knobs.iter().map(|knob| knob.name).collect();
            return Err(SettingError { name, message: format!("is not a parameter; there are {}", quoted(&known)) });
        }
        let value = |knob: &Knob| {
            let wrong = |message: String| SettingError { name: knob.name, message };
            match self.get(knob.name).or(knob.default) {
                None => Err(wrong(format!("is missing; {}", knob.domain.expected()))),
                Some(value) => match knob.check(value) {
                    Ok(value) => Ok((knob.name, value)),
                    Err(expected) => Err(wrong(format!("= {value} is not possible; {expected}"))),
                },
            }
        };
        knobs.iter().map(value).collect::<Result<_, _>>().map(Self)
    }

    /// A number that is there.
    pub(crate) fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Number(v)) => v,
            _ => unreachable!("settings are checked against the knobs before an algorithm is made"),
        }
    }

    /// A whole number that is there.
    pub(crate) fn count(&self, name: &str) -> u32 {
        match self.get(name) {
            Some(Value::Count(v)) => v,
            _ => unreachable!("settings are checked against the knobs before an algorithm is made"),
        }
    }

    /// A flag that is there.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(Value::Flag(true))
    }

    /// What a word that is there stands for.
    pub(crate) fn word<T: Copy>(&self, name: &str, meanings: &[(&'static str, T)]) -> T {
        let meaning = |value: Value| meanings.iter().find(|(word, _)| value == Value::Word(word)).map(|(_, m)| *m);
        self.get(name).and_then(meaning).unwrap_or_else(|| unreachable!("every word of the knob has a meaning"))
    }
}

/// A parameter that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// Its name.
    pub name: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_shares_are_inverse() {
        let scales = [
            Scale::Log(0.03, 100.0),
            Scale::BelowOne(1e-4, 0.1),
            Scale::Count(1.0, 199.0),
            Scale::Linear(0.0, 0.9),
            Scale::Words(&["constant", "sqrt", "inverse"]),
        ];
        for scale in scales {
            for share in [0.0, 0.2, 0.5, 0.77, 1.0] {
                let value = scale.at(share);
                assert_eq!(value, scale.at(scale.share(value)), "{scale:?}");
            }
        }
        assert_eq!(scales[4].at(1.0), Value::Word("inverse"));
        assert_eq!(scales[2].at(0.0), Value::Count(1));
    }

    #[test]
    fn settings_are_complete_and_allowed_or_refused_by_name() {
        let knobs = [CLIP, tau(Scale::BelowOne(1e-4, 0.1))];
        let full = Settings::new().with("clip", Value::Number(2.0)).complete(&knobs).unwrap();
        assert_eq!(full.get("tau"), Some(Value::Number(1.0)));
        let refused = |settings: Settings| settings.complete(&knobs).unwrap_err();
        assert!(refused(Settings::new()).message.starts_with("is missing"));
        assert!(refused(Settings::new().with("clip", Value::Number(f64::NAN))).message.contains("is not possible"));
        assert!(refused(Settings::new().with("clip", Value::Word("two"))).message.contains("above 0"));
        assert_eq!(refused(full.with("eta", Value::Number(1.0))).name, "eta");
    }
}
