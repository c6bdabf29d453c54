//! Studies as TOML: in, with errors that name the line, and out, with every default written out.

mod document;
pub(super) mod print;
mod reader;
mod tables;

pub use document::Document;
pub use reader::Reader;

pub(super) use reader::{BOUNDS, TYPICAL};

use super::{DataSpec, StudyError, StudySpec};
use crate::loss::AnyLoss;

impl Document {
    /// The study that the document describes, not checked as a whole yet.
    pub fn spec(&self) -> Result<StudySpec, StudyError> {
        let mut top = self.reader();
        let spec = tables::read(&mut top)?;
        top.finish()?;
        Ok(spec)
    }

    /// Everything that is wrong, and the columns with the loss that they are for, if these can be read.
    pub fn survey(&self) -> (Vec<StudyError>, Option<(DataSpec, AnyLoss)>) {
        let (mut found, columns, spec) = tables::survey(self.reader());
        if let Some(spec) = spec {
            let table = |key: &str| key.split('.').next().unwrap_or_default().to_string();
            let wrong: Vec<String> = found.iter().map(|error| table(&error.key)).collect();
            // In a table with a mistake other values were read than are written, so nothing more is said about it.
            let more = spec.problems().into_iter().filter(|error| !wrong.contains(&table(&error.key)));
            found.extend(more.map(|error| self.locate(error)));
        }
        (found, columns)
    }
}

impl StudySpec {
    /// Reads a study; `origin` is its file's name in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, StudyError> {
        Document::parse(text, origin)?.spec()
    }

    /// The study as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(&print::table(self)).expect("a study has only plain values")
    }
}
