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
        let (mut found, columns) = tables::survey(self.reader());
        if found.is_empty()
            && let Ok(spec) = self.spec()
        {
            found = spec.problems().into_iter().map(|error| self.locate(error)).collect();
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
