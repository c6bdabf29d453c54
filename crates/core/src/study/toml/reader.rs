//! Reads TOML with errors that name the line, the key and the remedy.
//!
//! A [`Reader`] remembers which keys it was asked for; what is left over at the end is a mistake, and the nearest key
//! that was asked for is the likely meaning.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::document::{Located, Value, locate};
use crate::knob::{self, Domain, Knob};
use crate::rule::{self, LARGEST, Rule};
use crate::study::StudyError;

/// What a pair of bounds must be.
pub(in crate::study) const BOUNDS: &str =
    "write [low, high], two numbers from -1e12 to 1e12 with low clearly below high";

/// What typical values must be.
pub(in crate::study) const TYPICAL: &str =
    "write [mean, spread] of a number, with the mean inside its bounds and a spread above 0, or the share of each word";

/// Reads one table of a study.
pub struct Reader<'a> {
    table: &'a BTreeMap<String, Located>,
    path: String,
    place: String,
    asked: Vec<String>,
    /// Where mistakes go, if all are wanted and not the first alone.
    found: Option<Mistakes>,
}

/// Mistakes that were found so far, in the order of reading.
pub(super) type Mistakes = Rc<RefCell<Vec<StudyError>>>;

impl<'a> Reader<'a> {
    /// Reads a table; `path` is its key, `place` where messages say it stands.
    pub(super) fn new(table: &'a BTreeMap<String, Located>, path: String, place: String) -> Self {
        Self { table, path, place, asked: Vec::new(), found: None }
    }

    /// The same table, of which nothing was read yet.
    pub(super) fn again(&self) -> Self {
        Self::new(self.table, self.path.clone(), self.place.clone())
    }

    /// The same, but a value that is not possible is noted and another one taken in its place, so that reading goes on.
    pub(super) fn noting(self, found: &Mistakes) -> Self {
        Self { found: Some(found.clone()), ..self }
    }

    /// What follows from a mistake: the end, or if all mistakes are wanted, a note and something to go on with.
    pub(super) fn wrong<T>(&self, error: StudyError, instead: T) -> Result<T, StudyError> {
        match &self.found {
            None => Err(error),
            Some(found) => {
                note(found, error);
                Ok(instead)
            }
        }
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    fn find(&mut self, key: &str) -> Option<&'a Located> {
        self.asked.push(key.into());
        self.table.get(key)
    }

    /// An error about a key of this table.
    pub fn error(&self, key: &str, message: impl std::fmt::Display) -> StudyError {
        let place = self.table.get(key).map_or(&self.place, |node| &node.place);
        StudyError { place: place.clone(), key: self.full(key), message: format!("{} {message}", self.full(key)) }
    }

    /// The same error at the place of its key, which is one of this table.
    pub fn locate(&self, error: StudyError) -> StudyError {
        let key = error.key.strip_prefix(&self.path).map_or("", |key| key.trim_start_matches('.'));
        StudyError { place: locate(self.table, &self.place, key).into(), ..error }
    }

    /// Whether a mistake at this key was noted.
    pub(super) fn has_mistake(&self, key: &str) -> bool {
        self.found.as_ref().is_some_and(|found| found.borrow().iter().any(|known| known.key == key))
    }

    /// A mistake at a key of this table that was found after reading it.
    pub(super) fn refuse(&self, error: StudyError) -> Result<(), StudyError> {
        self.wrong(self.locate(error), ())
    }

    fn missing(&self, key: &str, expected: &str) -> StudyError {
        self.error(key, format!("is missing; {expected}"))
    }

    fn mistake(&self, key: &str, node: &Located, expected: &str) -> StudyError {
        self.error(key, format!("= {} is not possible; {expected}", node.shown()))
    }

    /// A number that keeps a rule, or nothing.
    pub fn number(&mut self, key: &str, rule: Rule) -> Result<Option<f64>, StudyError> {
        let Some(node) = self.find(key) else { return Ok(None) };
        let number = match node.value {
            Value::Integer(v) => v as f64,
            Value::Number(v) => v,
            _ => return self.wrong(self.mistake(key, node, rule.expected), Some(rule.example())),
        };
        match rule.holds(number) {
            true => Ok(Some(number)),
            false => self.wrong(self.mistake(key, node, rule.expected), Some(rule.example())),
        }
    }

    /// A number that must be there.
    pub fn required(&mut self, key: &str, rule: Rule) -> Result<f64, StudyError> {
        match self.number(key, rule)? {
            Some(number) => Ok(number),
            None => self.wrong(self.missing(key, rule.expected), rule.example()),
        }
    }

    /// A number above zero, or nothing.
    pub fn positive(&mut self, key: &str) -> Result<Option<f64>, StudyError> {
        self.number(key, rule::POSITIVE)
    }

    /// The value of a parameter, or nothing.
    pub fn knob(&mut self, knob: &Knob) -> Result<Option<knob::Value>, StudyError> {
        Ok(match knob.domain {
            Domain::Number(rule) => self.number(knob.name, rule)?.map(knob::Value::Number),
            Domain::Count(most) => {
                self.integer(knob.name, 1, most.into())?.map(|count| knob::Value::Count(count as u32))
            }
            Domain::Flag => self.flag(knob.name)?.map(knob::Value::Flag),
            Domain::Words(words) => {
                let choices: Vec<_> = words.iter().map(|word| (*word, knob::Value::Word(word))).collect();
                self.choice(knob.name, &choices)?
            }
        })
    }

    /// The values of some parameters that are given.
    pub fn knobs(&mut self, knobs: &[Knob]) -> Result<knob::Settings, StudyError> {
        let mut settings = knob::Settings::new();
        for knob in knobs {
            if let Some(value) = self.knob(knob)? {
                settings.set(knob.name, value);
            }
        }
        Ok(settings)
    }

    /// A whole number from `low` to `high`, or nothing.
    pub fn integer(&mut self, key: &str, low: i64, high: i64) -> Result<Option<i64>, StudyError> {
        let expected = format!("write a whole number from {low} to {high}");
        match self.find(key) {
            None => Ok(None),
            Some(Located { value: Value::Integer(v), .. }) if (low..=high).contains(v) => Ok(Some(*v)),
            Some(node) => self.wrong(self.mistake(key, node, &expected), Some(low)),
        }
    }

    /// A whole number that must be there.
    pub fn integer_required(&mut self, key: &str, low: i64, high: i64) -> Result<i64, StudyError> {
        let expected = format!("write a whole number from {low} to {high}");
        match self.integer(key, low, high)? {
            Some(number) => Ok(number),
            None => self.wrong(self.missing(key, &expected), low),
        }
    }

    /// true or false, or nothing.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>, StudyError> {
        match self.find(key) {
            None => Ok(None),
            Some(Located { value: Value::Flag(v), .. }) => Ok(Some(*v)),
            Some(node) => self.wrong(self.mistake(key, node, "write true or false"), None),
        }
    }

    /// Text, or nothing.
    pub fn text(&mut self, key: &str) -> Result<Option<&'a str>, StudyError> {
        match self.find(key) {
            None => Ok(None),
            Some(Located { value: Value::Text(v), .. }) => Ok(Some(v)),
            Some(node) => self.wrong(self.mistake(key, node, "write text in quotes"), None),
        }
    }

    /// Text that must be there; `what` says what it is for.
    pub fn text_required(&mut self, key: &str, what: &str) -> Result<&'a str, StudyError> {
        self.text(key)?.ok_or_else(|| self.missing(key, &format!("write {what} in quotes")))
    }

    /// One of a few words.
    pub fn choice<T: Clone>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, StudyError> {
        let Some(node) = self.find(key) else { return Ok(None) };
        if let Value::Text(word) = &node.value {
            if let Some((_, choice)) = choices.iter().find(|(name, _)| name == word) {
                return Ok(Some(choice.clone()));
            }
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            if let Some(near) = nearest(word, &names) {
                let expected = format!("did you mean \"{near}\"? The choices are {}", knob::quoted(&names));
                return self.wrong(self.mistake(key, node, &expected), None);
            }
        }
        self.wrong(self.mistake(key, node, &one_of(choices)), None)
    }

    /// One of a few words, or the default.
    pub fn choice_or<T: Clone>(&mut self, key: &str, choices: &[(&str, T)], default: T) -> Result<T, StudyError> {
        Ok(self.choice(key, choices)?.unwrap_or(default))
    }

    /// One of a few words that must be there.
    pub fn choice_required<T: Clone>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<T, StudyError> {
        self.choice(key, choices)?.ok_or_else(|| self.missing(key, &one_of(choices)))
    }

    /// A table, or nothing.
    pub fn table(&mut self, key: &str) -> Result<Option<Reader<'a>>, StudyError> {
        let path = self.full(key);
        match self.find(key) {
            None => Ok(None),
            Some(Located { value: Value::Table(table), place }) => {
                Ok(Some(Reader { found: self.found.clone(), ..Reader::new(table, path, place.clone()) }))
            }
            Some(node) => Err(self.mistake(key, node, &format!("it must be a table, written as [{path}]"))),
        }
    }

    /// A table that must be there.
    pub fn table_required(&mut self, key: &str) -> Result<Reader<'a>, StudyError> {
        let expected = format!("write a table [{}]", self.full(key));
        self.table(key)?.ok_or_else(|| self.missing(key, &expected))
    }

    /// Whether the key holds this very word, as in `privacy = "off"`.
    pub fn is_word(&mut self, key: &str, word: &str) -> bool {
        matches!(self.table.get(key), Some(Located { value: Value::Text(v), .. }) if v == word)
    }

    /// The keys of this table, for tables whose keys are names.
    pub fn names(&self) -> Vec<&'a str> {
        self.table.keys().map(String::as_str).collect()
    }

    /// A list of texts; whole numbers count as their text.
    pub fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, StudyError> {
        let expected = "write a list of texts in quotes";
        let Some(node) = self.find(key) else { return Ok(None) };
        let Value::List(items) = &node.value else { return Err(self.mistake(key, node, expected)) };
        let texts: Option<Vec<String>> = items.iter().map(as_text).collect();
        texts.map(Some).ok_or_else(|| self.mistake(key, node, expected))
    }

    /// A list of pairs of texts.
    pub fn pairs(&mut self, key: &str) -> Result<Option<Vec<(String, String)>>, StudyError> {
        let expected = "write a list of pairs, such as [[\"1\", \"2\"], [\"2\", \"3\"]]";
        let Some(node) = self.find(key) else { return Ok(None) };
        let Value::List(items) = &node.value else { return Err(self.mistake(key, node, expected)) };
        let pair = |item: &Located| match &item.value {
            Value::List(ends) if ends.len() == 2 => Some((as_text(&ends[0])?, as_text(&ends[1])?)),
            _ => None,
        };
        let pairs: Option<Vec<_>> = items.iter().map(pair).collect();
        pairs.map(Some).ok_or_else(|| self.mistake(key, node, expected))
    }

    /// A list of whole numbers, or a single one.
    pub fn integers(&mut self, key: &str, low: i64, high: i64) -> Result<Option<Vec<i64>>, StudyError> {
        let expected = format!("write a whole number from {low} to {high}, or a list of them, one per client");
        let Some(node) = self.find(key) else { return Ok(None) };
        let whole = |item: &Located| match item.value {
            Value::Integer(v) if (low..=high).contains(&v) => Some(v),
            _ => None,
        };
        let numbers = match &node.value {
            Value::List(items) if !items.is_empty() => items.iter().map(whole).collect(),
            Value::List(_) => None,
            _ => whole(node).map(|v| vec![v]),
        };
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => self.wrong(self.mistake(key, node, &expected), Some(vec![low])),
        }
    }

    /// A pair of numbers, low before high.
    pub fn bounds(&mut self, key: &str) -> Result<Option<(f64, f64)>, StudyError> {
        let expected = BOUNDS;
        let Some(node) = self.find(key) else { return Ok(None) };
        let number = |item: &Located| match item.value {
            Value::Integer(v) => Some(v as f64),
            Value::Number(v) => Some(v),
            _ => None,
        };
        let pair = match &node.value {
            Value::List(items) if items.len() == 2 => number(&items[0]).zip(number(&items[1])),
            _ => None,
        };
        match pair {
            // A range so narrow that scaling by its width would lose all digits is a mistake too.
            Some((low, high))
                if low >= -LARGEST
                    && high <= LARGEST
                    && high - low > (1e-9 * low.abs().max(high.abs())).max(1e-100) =>
            {
                Ok(Some((low, high)))
            }
            // So wide that everything else about the column fits it.
            _ => self.wrong(self.mistake(key, node, expected), Some((-LARGEST, LARGEST))),
        }
    }

    /// A list of numbers.
    pub fn numbers(&mut self, key: &str) -> Result<Option<Vec<f64>>, StudyError> {
        let Some(node) = self.find(key) else { return Ok(None) };
        let number = |item: &Located| match item.value {
            Value::Integer(v) => Some(v as f64),
            Value::Number(v) => Some(v),
            _ => None,
        };
        let numbers = match &node.value {
            Value::List(items) => items.iter().map(number).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => self.wrong(self.mistake(key, node, TYPICAL), None),
        }
    }

    /// Ends the table: a key that was not read is a mistake.
    pub fn finish(self) -> Result<(), StudyError> {
        let mut known: Vec<&str> = self.asked.iter().map(String::as_str).collect();
        known.sort_unstable();
        known.dedup();
        for key in self.table.keys().filter(|key| !self.asked.contains(key)) {
            let hint = match nearest(key, &known) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("the keys here are {}", knob::quoted(&known)),
            };
            self.wrong(self.error(key, format!("is not a key of this study; {hint}")), ())?;
        }
        Ok(())
    }
}

/// Adds a mistake, unless one at the same key is known: the second would only follow from the first.
pub(super) fn note(found: &Mistakes, error: StudyError) {
    let mut found = found.borrow_mut();
    if found.iter().all(|known| known.key != error.key) {
        found.push(error);
    }
}

fn as_text(node: &Located) -> Option<String> {
    match &node.value {
        Value::Text(v) => Some(v.clone()),
        Value::Integer(v) => Some(v.to_string()),
        Value::Number(v) => Some(v.to_string()),
        _ => None,
    }
}

fn one_of<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    format!("write one of {}", knob::quoted(&names))
}

/// The known word that was probably meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (near, score) = known.iter().map(|k| (*k, strsim::jaro_winkler(word, k))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (score > 0.8).then_some(near)
}
