//! A TOML text as values that know their place.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::Reader;
use crate::study::StudyError;

/// What TOML has that a study needs.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Integer(i64),
    Number(f64),
    Text(String),
    Flag(bool),
    List(Vec<Located>),
    Table(BTreeMap<String, Located>),
}

/// A value with its place.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub value: Value,
    pub place: String,
}

impl Located {
    /// The value as an error message shows it.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Integer(v) => v.to_string(),
            Value::Number(v) => v.to_string(),
            Value::Text(v) => format!("\"{v}\""),
            Value::Flag(v) => v.to_string(),
            Value::List(items) if items.len() <= 4 => {
                format!("[{}]", items.iter().map(Located::shown).collect::<Vec<_>>().join(", "))
            }
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// A TOML document with the place of every value.
#[derive(Debug, Clone)]
pub struct Document {
    root: BTreeMap<String, Located>,
    origin: String,
}

impl Document {
    /// Parses `text`; `origin` is the file's name in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, StudyError> {
        let line = |at: usize| 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
        let table = DeTable::parse(text).map_err(|e| StudyError {
            key: String::new(),
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
        let wrong = |message: &str| StudyError { place: place.clone(), key: String::new(), message: message.into() };
        let (key, value) = assignment.split_once('=').ok_or_else(|| wrong("write it as key=value"))?;
        let path = key_path(key).ok_or_else(|| wrong("the key cannot be read; write it as table.key=value"))?;
        let value = value.trim();
        let convert = |v: &DeValue| convert_value(v, 0, &|_| place.clone());
        let value = match DeValue::parse(value) {
            Ok(parsed) => convert(parsed.get_ref())?,
            Err(_) => Located { value: Value::Text(value.into()), place: place.clone() },
        };
        let (last, tables) = path.split_last().expect("split gives at least one part");
        let mut table = &mut self.root;
        for part in tables {
            let node = table
                .entry(part.clone())
                .or_insert_with(|| Located { value: Value::Table(BTreeMap::new()), place: place.clone() });
            // A table given in place of a plain value, such as privacy = "off", replaces it.
            if !matches!(node.value, Value::Table(_)) {
                *node = Located { value: Value::Table(BTreeMap::new()), place: place.clone() };
            }
            let Value::Table(inner) = &mut node.value else { unreachable!("made a table above") };
            table = inner;
        }
        table.insert(last.clone(), value);
        Ok(())
    }

    /// The same error at the place of its key in this document, or of the table that should have held it.
    pub fn locate(&self, error: StudyError) -> StudyError {
        StudyError { place: locate(&self.root, &self.origin, &error.key).into(), ..error }
    }

    /// Whether a table of the document has a key.
    pub fn has(&self, table: &str, key: &str) -> bool {
        matches!(self.root.get(table).map(|found| &found.value), Some(Value::Table(inside)) if inside.contains_key(key))
    }

    /// A reader of the whole document.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.root, String::new(), self.origin.clone())
    }
}

/// The place of a dotted key in a table, or of the innermost table on the way to it that exists.
pub(super) fn locate<'a>(table: &'a BTreeMap<String, Located>, origin: &'a str, key: &str) -> &'a str {
    let mut place = origin;
    let mut table = Some(table);
    let mut rest = key;
    // Names of clients and columns may hold dots, so the longest known key is taken at each step.
    while let Some((node, after)) = table.and_then(|table| step(table, rest)) {
        place = &node.place;
        rest = after;
        table = match &node.value {
            Value::Table(inner) => Some(inner),
            _ => None,
        };
    }
    place
}

/// The node of the longest key of a table with which `path` begins, and what is left of the path.
fn step<'a, 'b>(table: &'a BTreeMap<String, Located>, path: &'b str) -> Option<(&'a Located, &'b str)> {
    let matching = table.iter().filter_map(|(key, node)| {
        let rest = path.strip_prefix(key.as_str())?;
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix('.')? };
        Some((key.len(), node, rest))
    });
    matching.max_by_key(|(length, ..)| *length).map(|(_, node, rest)| (node, rest))
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

fn convert_table(table: &DeTable, place: &dyn Fn(usize) -> String) -> Result<BTreeMap<String, Located>, StudyError> {
    table
        .iter()
        .map(|(key, value)| Ok((key.get_ref().to_string(), convert_value(value.get_ref(), value.span().start, place)?)))
        .collect()
}

fn convert_value(value: &DeValue, at: usize, place: &dyn Fn(usize) -> String) -> Result<Located, StudyError> {
    let wrong = |message: &str| StudyError { place: place(at), key: String::new(), message: message.into() };
    let value = match value {
        DeValue::String(v) => Value::Text(v.to_string()),
        DeValue::Boolean(v) => Value::Flag(*v),
        DeValue::Integer(v) => {
            let parsed = i64::from_str_radix(v.as_str(), v.radix());
            Value::Integer(parsed.map_err(|_| wrong("this whole number is too large; write a smaller one"))?)
        }
        DeValue::Float(v) => Value::Number(v.as_str().parse().map_err(|_| wrong("this number cannot be read"))?),
        DeValue::Datetime(_) => return Err(wrong("a study has no dates; write a number or text")),
        DeValue::Array(items) => {
            let items: Result<_, _> = items.iter().map(|v| convert_value(v.get_ref(), v.span().start, place)).collect();
            Value::List(items?)
        }
        DeValue::Table(table) => Value::Table(convert_table(table, place)?),
    };
    Ok(Located { value, place: place(at) })
}
