//! Tables in, models out: what the simulator and a real peer have in common on disk.
//!
//! - [`table`] reads CSV and Parquet files row by row;
//! - [`Encoder`] turns rows into records inside the study's public bounds;
//! - [`Model`] is `model.json`, and predicts from it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod model;
pub mod table;

use std::path::Path;

use thiserror::Error;
use undertone_core::schema::{Cell, Schema};

pub use model::{FittedModel, Model, Prediction, mean};

/// Data that cannot be used.
#[derive(Debug, Error)]
#[error("{place}: {message}")]
pub struct DataError {
    /// File, and line where there is one.
    pub place: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl DataError {
    /// Something wrong at a place.
    pub fn new(place: impl ToString, message: impl ToString) -> Self {
        Self { place: place.to_string(), message: message.to_string() }
    }

    /// A client without records.
    pub fn no_records(place: impl ToString) -> Self {
        Self::new(place, "holds no records; every client needs at least one")
    }
}

/// One client's records as they are read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// What people call the client.
    pub name: String,
    /// Features, record after record.
    pub rows: Vec<f64>,
    /// Targets.
    pub targets: Vec<f64>,
}

impl Loaded {
    /// No records yet.
    pub fn empty(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// Turns rows into records.
#[derive(Debug, Clone, Copy)]
pub struct Encoder<'a> {
    /// What is public about the columns.
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
        let encoded = self.schema.encode(row, self.classification, &mut x);
        client.targets.push(encoded.map_err(|e| DataError::new(place(), e))?);
        client.rows.append(&mut x);
        Ok(())
    }

    /// All records of a file, for the client `name`.
    pub fn read(&self, file: &Path, name: impl Into<String>) -> Result<Loaded, DataError> {
        let mut client = Loaded::empty(name);
        table::read(file, &self.wanted(&[]), &mut |row, place| self.push(row, place, &mut client))?;
        if client.targets.is_empty() { Err(DataError::no_records(file.display())) } else { Ok(client) }
    }
}
