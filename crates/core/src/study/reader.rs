//! Reads TOML with errors that name the line, the key and the remedy.
//!
//! A [`Reader`] remembers which keys it was asked for; what is left over at the end is a mistake, and the nearest key
//! that was asked for is the likely meaning.

use std::collections::BTreeMap;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// A mistake in a study: where it is, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {message}")]
pub struct StudyError {
    /// File and line, or the command-line option.
    pub place: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Numbers beyond this are taken for mistakes.
pub const LARGEST: f64 = 1e12;

#[derive(Debug, Clone)]
enum Value {
    Integer(i64),
    Number(f64),
    Text(String),
    Flag(bool),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

#[derive(Debug, Clone)]
struct Node {
    value: Value,
    place: String,
}

impl Node {
    /// The value as an error message shows it.
    fn shown(&self) -> String {
        match &self.value {
            Value::Integer(v) => v.to_string(),
            Value::Number(v) => v.to_string(),
            Value::Text(v) => format!("\"{v}\""),
            Value::Flag(v) => v.to_string(),
            Value::List(items) if items.len() <= 4 => {
                format!("[{}]", items.iter().map(Node::shown).collect::<Vec<_>>().join(", "))
            }
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// A TOML document with the place of every value.
#[derive(Debug, Clone)]
pub struct Document {
    root: BTreeMap<String, Node>,
    origin: String,
}

impl Document {
    /// Parses `text`; `origin` is the file's name in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, StudyError> {
        let line = |at: usize| 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
        let table = DeTable::parse(text).map_err(|e| StudyError {
            place: match e.span() {
                Some(span) => format!("{origin}:{}", line(span.start)),
                None => origin.into(),
            },
            message: format!("this is not valid TOML: {}", e.message().replace('\n', ", ")),
        })?;
        let place = |at: usize| format!("{origin}:{}", line(at));
        Ok(Self { root: convert_table(table.get_ref(), &place)?, origin: origin.into() })
    }

    /// Applies one `key=value` from the command line. What is not TOML is taken as text.
    pub fn set(&mut self, assignment: &str) -> Result<(), StudyError> {
        self.assign(assignment, format!("--set {assignment}"))
    }

    /// Applies one `key=value`; `place` is where messages say it stands.
    pub fn assign(&mut self, assignment: &str, place: String) -> Result<(), StudyError> {
        let wrong = |message: &str| StudyError { place: place.clone(), message: message.into() };
        let (key, value) = assignment.split_once('=').ok_or_else(|| wrong("write it as key=value"))?;
        let path = key_path(key).ok_or_else(|| wrong("the key cannot be read; write it as table.key=value"))?;
        let value = value.trim();
        let convert = |v: &DeValue| convert_value(v, 0, &|_| place.clone());
        let value = match DeValue::parse(value) {
            Ok(parsed) => convert(parsed.get_ref())?,
            Err(_) => Node { value: Value::Text(value.into()), place: place.clone() },
        };
        let (last, tables) = path.split_last().expect("split gives at least one part");
        let mut table = &mut self.root;
        for part in tables {
            let node = table
                .entry(part.clone())
                .or_insert_with(|| Node { value: Value::Table(BTreeMap::new()), place: place.clone() });
            // A table given in place of a plain value, such as privacy = "off", replaces it.
            if !matches!(node.value, Value::Table(_)) {
                *node = Node { value: Value::Table(BTreeMap::new()), place: place.clone() };
            }
            let Value::Table(inner) = &mut node.value else { unreachable!("made a table above") };
            table = inner;
        }
        table.insert(last.clone(), value);
        Ok(())
    }

    /// Whether a key, such as `privacy.clip`, is given.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Whether a key holds this very word.
    pub fn is_word(&self, key: &str, word: &str) -> bool {
        matches!(self.find(key), Some(Node { value: Value::Text(v), .. }) if v == word)
    }

    fn find(&self, key: &str) -> Option<&Node> {
        let mut parts = key.split('.');
        let mut node = self.root.get(parts.next()?)?;
        for part in parts {
            let Value::Table(table) = &node.value else { return None };
            node = table.get(part)?;
        }
        Some(node)
    }

    /// A reader of the whole document.
    pub fn reader(&self) -> Reader<'_> {
        Reader { table: &self.root, path: String::new(), place: self.origin.clone(), asked: Vec::new() }
    }
}

/// The parts of a dotted key, which may be quoted as in TOML.
fn key_path(key: &str) -> Option<Vec<String>> {
    let text = format!("{key} = 0");
    let parsed = DeTable::parse(&text).ok()?;
    let mut table = parsed.get_ref();
    let mut path = Vec::new();
    loop {
        let (key, value) = table.iter().next()?;
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}

fn convert_table(table: &DeTable, place: &dyn Fn(usize) -> String) -> Result<BTreeMap<String, Node>, StudyError> {
    table
        .iter()
        .map(|(key, value)| Ok((key.get_ref().to_string(), convert_value(value.get_ref(), value.span().start, place)?)))
        .collect()
}

fn convert_value(value: &DeValue, at: usize, place: &dyn Fn(usize) -> String) -> Result<Node, StudyError> {
    let wrong = |message: &str| StudyError { place: place(at), message: message.into() };
    let value = match value {
        DeValue::String(v) => Value::Text(v.to_string()),
        DeValue::Boolean(v) => Value::Flag(*v),
        DeValue::Integer(v) => {
            let parsed = i64::from_str_radix(v.as_str(), v.radix());
            Value::Integer(parsed.map_err(|_| wrong("this whole number is too large to be meant"))?)
        }
        DeValue::Float(v) => Value::Number(v.as_str().parse().map_err(|_| wrong("this number cannot be read"))?),
        DeValue::Datetime(_) => return Err(wrong("a study has no dates; write a number or text")),
        DeValue::Array(items) => {
            let items: Result<_, _> = items.iter().map(|v| convert_value(v.get_ref(), v.span().start, place)).collect();
            Value::List(items?)
        }
        DeValue::Table(table) => Value::Table(convert_table(table, place)?),
    };
    Ok(Node { value, place: place(at) })
}

/// Reads one table of a study.
pub struct Reader<'a> {
    table: &'a BTreeMap<String, Node>,
    path: String,
    place: String,
    asked: Vec<String>,
}

impl<'a> Reader<'a> {
    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    fn find(&mut self, key: &str) -> Option<&'a Node> {
        self.asked.push(key.into());
        self.table.get(key)
    }

    /// An error about a key of this table.
    pub fn error(&self, key: &str, message: impl std::fmt::Display) -> StudyError {
        let place = self.table.get(key).map_or(&self.place, |node| &node.place);
        StudyError { place: place.clone(), message: format!("{} {message}", self.full(key)) }
    }

    fn missing(&self, key: &str, expected: &str) -> StudyError {
        self.error(key, format!("is missing; {expected}"))
    }

    fn mistake(&self, key: &str, node: &Node, expected: &str) -> StudyError {
        self.error(key, format!("= {} is not possible; {expected}", node.shown()))
    }

    /// A number for which `valid` holds; `expected` says what that means.
    pub fn number(&mut self, key: &str, expected: &str, valid: fn(f64) -> bool) -> Result<Option<f64>, StudyError> {
        let Some(node) = self.find(key) else { return Ok(None) };
        let number = match node.value {
            Value::Integer(v) => v as f64,
            Value::Number(v) => v,
            _ => return Err(self.mistake(key, node, expected)),
        };
        if valid(number) { Ok(Some(number)) } else { Err(self.mistake(key, node, expected)) }
    }

    /// A number that must be there.
    pub fn required(&mut self, key: &str, expected: &str, valid: fn(f64) -> bool) -> Result<f64, StudyError> {
        self.number(key, expected, valid)?.ok_or_else(|| self.missing(key, expected))
    }

    /// A number above zero, or nothing.
    pub fn positive_or_none(&mut self, key: &str) -> Result<Option<f64>, StudyError> {
        self.number(key, "write a number above 0 and at most 1e12", |v| v > 0.0 && v <= LARGEST)
    }

    /// A number above zero that must be there.
    pub fn positive(&mut self, key: &str) -> Result<f64, StudyError> {
        self.positive_or_none(key)?.ok_or_else(|| self.missing(key, "write a number above 0 and at most 1e12"))
    }

    /// A whole number from `low` to `high`, or nothing.
    pub fn integer(&mut self, key: &str, low: i64, high: i64) -> Result<Option<i64>, StudyError> {
        let expected = format!("write a whole number from {low} to {high}");
        match self.find(key) {
            None => Ok(None),
            Some(Node { value: Value::Integer(v), .. }) if (low..=high).contains(v) => Ok(Some(*v)),
            Some(node) => Err(self.mistake(key, node, &expected)),
        }
    }

    /// A whole number that must be there.
    pub fn integer_required(&mut self, key: &str, low: i64, high: i64) -> Result<i64, StudyError> {
        let expected = format!("write a whole number from {low} to {high}");
        self.integer(key, low, high)?.ok_or_else(|| self.missing(key, &expected))
    }

    /// true or false.
    pub fn flag_or(&mut self, key: &str, default: bool) -> Result<bool, StudyError> {
        match self.find(key) {
            None => Ok(default),
            Some(Node { value: Value::Flag(v), .. }) => Ok(*v),
            Some(node) => Err(self.mistake(key, node, "write true or false")),
        }
    }

    /// Text, or nothing.
    pub fn text(&mut self, key: &str) -> Result<Option<&'a str>, StudyError> {
        match self.find(key) {
            None => Ok(None),
            Some(Node { value: Value::Text(v), .. }) => Ok(Some(v)),
            Some(node) => Err(self.mistake(key, node, "write text in quotes")),
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
                let expected = format!("did you mean \"{near}\"? The choices are {}", words(&names));
                return Err(self.mistake(key, node, &expected));
            }
        }
        Err(self.mistake(key, node, &one_of(choices)))
    }

    /// One of a few words, or the default.
    pub fn choice_or<T: Clone>(&mut self, key: &str, choices: &[(&str, T)], default: T) -> Result<T, StudyError> {
        Ok(self.choice(key, choices)?.unwrap_or(default))
    }

    /// One of a few words that must be there.
    pub fn choice_required<T: Clone>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<T, StudyError> {
        self.choice(key, choices)?.ok_or_else(|| self.missing(key, &one_of(choices)))
    }

    /// A table, or nothing; `expected` says what else may stand there.
    pub fn table(&mut self, key: &str) -> Result<Option<Reader<'a>>, StudyError> {
        let path = self.full(key);
        match self.find(key) {
            None => Ok(None),
            Some(Node { value: Value::Table(table), place }) => {
                Ok(Some(Reader { table, path, place: place.clone(), asked: Vec::new() }))
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
        matches!(self.table.get(key), Some(Node { value: Value::Text(v), .. }) if v == word)
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
        let pair = |item: &Node| match &item.value {
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
        let whole = |item: &Node| match item.value {
            Value::Integer(v) if (low..=high).contains(&v) => Some(v),
            _ => None,
        };
        let numbers = match &node.value {
            Value::List(items) if !items.is_empty() => items.iter().map(whole).collect(),
            Value::List(_) => None,
            _ => whole(node).map(|v| vec![v]),
        };
        numbers.map(Some).ok_or_else(|| self.mistake(key, node, &expected))
    }

    /// A pair of numbers, low before high.
    pub fn bounds(&mut self, key: &str) -> Result<Option<(f64, f64)>, StudyError> {
        let expected = "write [low, high], two numbers from -1e12 to 1e12 with low clearly below high";
        let Some(node) = self.find(key) else { return Ok(None) };
        let number = |item: &Node| match item.value {
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
            _ => Err(self.mistake(key, node, expected)),
        }
    }

    /// Ends the table: a key nobody asked for is a mistake.
    pub fn finish(self) -> Result<(), StudyError> {
        let Some(key) = self.table.keys().find(|key| !self.asked.contains(key)) else { return Ok(()) };
        let mut known: Vec<&str> = self.asked.iter().map(String::as_str).collect();
        known.sort_unstable();
        known.dedup();
        let hint = match nearest(key, &known) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the keys here are {}", words(&known)),
        };
        Err(self.error(key, format!("is not a key of this study; {hint}")))
    }
}

fn as_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(v) => Some(v.clone()),
        Value::Integer(v) => Some(v.to_string()),
        _ => None,
    }
}

fn one_of<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    format!("write one of {}", words(&names))
}

fn words(names: &[&str]) -> String {
    names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
}

/// The known word that was probably meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (near, score) = known.iter().map(|k| (*k, strsim::jaro_winkler(word, k))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (score > 0.8).then_some(near)
}
