//! Tables in, models out.
//!
//! A study says what is public about the columns of a table: bounds of numbers, lists of words. An [`Encoder`] turns rows into
//! records inside these bounds, and refuses what is outside with the place and a remedy. Rows come from CSV and Parquet files
//! ([`table`]), from slices in memory, or, with the feature `arrow`, from Arrow record batches ([`MemoryTable`]). [`Model`] is
//! `model.json`, in the units of the table; [`FittedModel`] reads it back and predicts.
//!
//! ```
//! use undertone_core::schema::{Column, Schema};
//! use undertone_data::{Encoder, MemoryTable};
//!
//! let schema = Schema::new([Column::number("age", 0.0, 100.0), Column::words("sex", ["f", "m"])])
//!     .target(Column::number("days", 0.0, 60.0));
//! let ages: [f32; 3] = [20.0, 50.0, 75.0];
//! let days = [12, 30, 41];
//! let table = MemoryTable::from_columns(&[("age", &ages)])?
//!     .with_numbers("days", &days)?
//!     .with_words("sex", &["f", "m", "f"])?;
//! let loaded = Encoder { schema: &schema, classification: false }.encode(&table, "lakeside")?;
//! assert_eq!(loaded.rows[..3], [-0.6, 1.0, 0.0], "age scaled to [-1, 1], then one feature for each word");
//!
//! let wrong = MemoryTable::from_columns(&[("age", &[130.0])])?.with_numbers("days", &[5])?.with_words("sex", &["m"])?;
//! let error = Encoder { schema: &schema, classification: false }.encode(&wrong, "lakeside").unwrap_err();
//! assert!(error.to_string().starts_with("lakeside: row 1: column \"age\": the cell is outside the public bounds [0, 100]"));
//! # Ok::<(), undertone_data::DataError>(())
//! ```

#![forbid(unsafe_code)]

mod closed;
mod inspect;
mod memory;
mod model;
pub mod report;
mod scores;
pub mod table;

use std::path::Path;

use thiserror::Error;
use undertone_core::csv_format::CsvFormat;
use undertone_core::records::{Dataset, RecordLayout};
use undertone_core::schema::{Cell, Schema};
use undertone_core::study::Study;

pub use closed::{Closed, Interval, PrivateScore};
pub use inspect::{ColumnSummary, Inspection, inspect};
pub use memory::MemoryTable;
pub use model::{Background, FittedModel, Model, Prediction, mean, promise, trimmed_mean};
pub use scores::{Score, Scored};
pub use table::Rows;

/// Data that cannot be used.
#[derive(Debug, Error)]
#[error("{place}: {message}")]
pub struct DataError {
    /// File, and line where there is one.
    pub place: String,
    /// What is wrong and what is expected.
    pub message: String,
}

impl DataError {
    /// Something wrong at a place.
    pub fn new(place: impl ToString, message: impl ToString) -> Self {
        Self { place: place.to_string(), message: message.to_string() }
    }

    /// A study that reads files and does not say where they are.
    pub fn no_path() -> Self {
        Self::new("data.path", "is missing; write it in the study or give --data PATH")
    }

    /// A client without records.
    pub fn no_records(place: impl ToString) -> Self {
        Self::new(place, "holds no records; every client needs at least one")
    }
}

/// One client's records as they are read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// The name of the client.
    pub name: String,
    /// Features, record after record.
    pub rows: Vec<f64>,
    /// Targets.
    pub targets: Vec<f64>,
    /// What is kept out of training.
    pub held: Held,
}

/// Records that are kept out of training, to score a model on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Held {
    /// Features as they are learned from, record after record.
    pub rows: Vec<f64>,
    /// Targets in the units of the table, or labels -1 and 1.
    pub truths: Vec<f64>,
}

impl Held {
    /// How well a model in the units that it was learned in predicts these records.
    pub fn score(&self, study: &Study, w: &[f64], scored: &mut Scored) {
        let classification = study.spec().loss.is_classification();
        let Some(schema) = study.spec().schema() else { return };
        for (x, truth) in self.rows.chunks_exact(w.len()).zip(&self.truths) {
            let z: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            scored.push(schema.predicted(z, classification), *truth);
        }
    }
}

impl Loaded {
    /// No records yet.
    pub fn empty(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// How many records there are, with those that are kept out of training.
    pub fn total(&self) -> usize {
        self.targets.len() + self.held.truths.len()
    }

    /// All numbers of all records, those that are kept out of training last.
    pub fn numbers(&self) -> impl Iterator<Item = &[f64]> {
        let held = [&self.held.rows[..], &self.held.truths[..]].into_iter().filter(|part| !part.is_empty());
        [&self.rows[..], &self.targets[..]].into_iter().chain(held)
    }

    /// The vectors of a closing study in place of the records, those that were held out too; what it was in any other study.
    pub fn closed(self, study: &Study) -> Self {
        let spec = study.spec();
        let (Some(closing), Some(schema)) = (&spec.closing, spec.schema()) else { return self };
        let (features, classification) = (closing.w.len(), spec.loss.is_classification());
        let trained = self.rows.chunks_exact(features).zip(&self.targets).map(|(x, y)| closing.trained(x, *y));
        let held = self.held.rows.chunks_exact(features).zip(&self.held.truths);
        let held = held.map(|(x, truth)| closing.held(x, schema.learned(*truth, classification)));
        let rows: Vec<f64> = trained.chain(held).flatten().collect();
        // The slope at 0 is -1, so the release is the mean of the vectors.
        Self { targets: vec![1.0; self.total()], rows, name: self.name, held: Held::default() }
    }

    /// The records laid out for the gradient kernel and stored with the study's clip and divisor, as one peer needs them.
    pub fn dataset(&self, study: &Study) -> Dataset {
        let (features, clipping) = (study.features(), study.clipping());
        // All rows may be kept out of training, and that must not show: a row of zeros has a gradient of zero.
        let nothing = (vec![0.0; features], vec![1.0]);
        let (numbers, targets) = match self.targets.is_empty() {
            true => (&nothing.0, &nothing.1),
            false => (&self.rows, &self.targets),
        };
        let records = targets.len();
        let divisor = study.divisor(records, || records as f64);
        let precision = study.spec().precision;
        let layout = RecordLayout { records, features, clipping, precision, divisor, rows: self.total().max(1) };
        Dataset::with_layout(numbers, targets, layout)
    }
}

/// Turns rows into records.
#[derive(Debug, Clone, Copy)]
pub struct Encoder<'a> {
    /// The public facts about the columns.
    pub schema: &'a Schema,
    /// Whether targets are labels.
    pub classification: bool,
}

impl Encoder<'_> {
    /// The schema's columns: features, then the target, then `more`.
    pub fn wanted<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let columns = self.schema.features.iter().chain([&self.schema.target]);
        columns.map(|c| c.name.as_str()).chain(more.iter().copied()).collect()
    }

    /// Adds one row to a client.
    pub fn push(&self, row: &[Cell], place: &dyn Fn() -> String, client: &mut Loaded) -> Result<(), DataError> {
        let mut x = Vec::new();
        let wrong = |e| DataError::new(place(), e);
        let encoded = self.schema.encode(row, self.classification, &mut x).map_err(wrong)?;
        if self.schema.holds_out(&row[..=self.schema.features.len()]) {
            client.held.truths.push(self.schema.truth(row, self.classification).map_err(wrong)?);
            client.held.rows.append(&mut x);
        } else {
            client.targets.push(encoded);
            client.rows.append(&mut x);
        }
        Ok(())
    }

    /// All records of a table in memory, for the client `name`.
    pub fn encode(&self, table: &MemoryTable, name: impl Into<String>) -> Result<Loaded, DataError> {
        let name = name.into();
        self.load(Rows::Table(table, &name), &name)
    }

    /// All records of a file, for the client `name`; `csv` says how it is written if it is a CSV file.
    pub fn read(&self, file: &Path, csv: CsvFormat, name: impl Into<String>) -> Result<Loaded, DataError> {
        self.load(Rows::File(file, csv), name)
    }

    /// All of these records, for the client `name`.
    pub fn load(&self, rows: Rows, name: impl Into<String>) -> Result<Loaded, DataError> {
        let mut client = Loaded::empty(name);
        rows.read(&self.wanted(&[]), &mut |row, place| self.push(row, place, &mut client))?;
        if client.total() == 0 { Err(DataError::no_records(rows)) } else { Ok(client) }
    }
}
