//! Studies as TOML: in, with errors that name the line, and out, with every default written out.

mod document;
pub(super) mod print;
mod reader;
mod tables;

pub use document::Document;
pub use reader::Reader;

pub(super) use reader::{BOUNDS, TYPICAL};

use super::{StudyError, StudySpec};

impl Document {
    /// The study that the document describes, not checked as a whole yet.
    pub fn spec(&self) -> Result<StudySpec, StudyError> {
        let mut top = self.reader();
        let spec = tables::read(&mut top)?;
        top.finish()?;
        Ok(spec)
    }

    /// Everything that cannot be read, table by table; what is wrong with the whole is told by the check of a study.
    pub fn problems(&self) -> Vec<StudyError> {
        tables::problems(&mut self.reader())
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
