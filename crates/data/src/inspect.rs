//! A look at one party's file: every column against its public facts, and everything that is wrong, at once.

use std::collections::BTreeMap;

use undertone_core::csv_format::parse_number;
use undertone_core::schema::{Cell, Column, ColumnKind};

use crate::{DataError, Encoder, Rows};

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ColumnSummary {
    /// Its name.
    pub name: String,
    /// Empty cells.
    pub missing: usize,
    /// Cells that are not what they should be: no number, or no word of the list.
    pub wrong: usize,
    /// Numbers: how many, least, largest, mean and standard deviation.
    pub numbers: Option<[f64; 5]>,
    /// Numbers below and above the public bounds.
    pub outside: (usize, usize),
    /// Numbers so far from what is typical that they are learned as if they were nearer.
    pub limited: usize,
    /// How often each word of the list occurs.
    pub words: Vec<(String, usize)>,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inspection {
    /// Rows.
    pub rows: usize,
    /// Rows that would be kept out of training.
    pub held: usize,
    /// The features and the target.
    pub columns: Vec<ColumnSummary>,
    /// The first problems, with their places.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub found: usize,
}

/// How many problems are told in full.
const TOLD: usize = 20;

/// Reads all rows and goes on after what is wrong.
pub fn inspect(encoder: &Encoder, rows: Rows) -> Result<Inspection, DataError> {
    let schema = encoder.schema;
    let columns: Vec<&Column> = schema.features.iter().chain([&schema.target]).collect();
    let mut tallies: Vec<Tally> = columns.iter().map(|_| Tally::default()).collect();
    let mut found = Inspection::default();
    let mut x = Vec::new();
    rows.read(&encoder.wanted(&[]), &mut |row, place| {
        found.rows += 1;
        for ((cell, column), tally) in row.iter().zip(&columns).zip(&mut tallies) {
            tally.add(cell, column, schema.typical_range(column));
        }
        match schema.encode(row, encoder.classification, &mut x) {
            Ok(_) => found.held += usize::from(schema.holds_out(row)),
            Err(error) => {
                found.found += 1;
                if found.problems.len() < TOLD {
                    found.problems.push(format!("{}: {error}", place()));
                }
            }
        }
        Ok(())
    })?;
    found.columns = columns.iter().zip(tallies).map(|(column, tally)| tally.summary(column)).collect();
    Ok(found)
}

#[derive(Default)]
struct Tally {
    missing: usize,
    wrong: usize,
    outside: (usize, usize),
    limited: usize,
    count: f64,
    mean: f64,
    squares: f64,
    least: f64,
    largest: f64,
    words: BTreeMap<usize, usize>,
}

impl Tally {
    fn add(&mut self, cell: &Cell, column: &Column, typical: Option<(f64, f64)>) {
        let text = cell.text().unwrap_or_default();
        if text.is_empty() && !matches!(&column.kind, ColumnKind::Category(words) if words.iter().any(String::is_empty))
        {
            self.missing += 1;
            return;
        }
        match &column.kind {
            ColumnKind::Category(words) => {
                let same = |word: &String| *word == text || undertone_core::schema::same_number(word, &text);
                match words.iter().position(same) {
                    Some(index) => *self.words.entry(index).or_default() += 1,
                    None => self.wrong += 1,
                }
            }
            ColumnKind::Number { low, high } => {
                let decimal = if matches!(cell, Cell::CommaText(_)) { ',' } else { '.' };
                match parse_number(&text, decimal).ok().filter(|value| value.is_finite()) {
                    Some(value) => {
                        self.outside.0 += usize::from(value < *low);
                        self.outside.1 += usize::from(value > *high);
                        self.limited += usize::from(typical.is_some_and(|(low, high)| value < low || value > high));
                        (self.least, self.largest) = match self.count {
                            0.0 => (value, value),
                            _ => (self.least.min(value), self.largest.max(value)),
                        };
                        self.count += 1.0;
                        let off = value - self.mean;
                        self.mean += off / self.count;
                        self.squares += off * (value - self.mean);
                    }
                    None => self.wrong += 1,
                }
            }
        }
    }

    fn summary(self, column: &Column) -> ColumnSummary {
        let spread = (self.squares / (self.count - 1.0).max(1.0)).sqrt();
        let words = match &column.kind {
            ColumnKind::Category(words) => {
                words.iter().enumerate().map(|(i, w)| (w.clone(), self.words.get(&i).copied().unwrap_or(0))).collect()
            }
            ColumnKind::Number { .. } => Vec::new(),
        };
        ColumnSummary {
            name: column.name.clone(),
            missing: self.missing,
            wrong: self.wrong,
            numbers: (self.count > 0.0).then_some([self.count, self.least, self.largest, self.mean, spread]),
            outside: self.outside,
            limited: self.limited,
            words,
        }
    }
}
