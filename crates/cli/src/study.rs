//! Reading a study, the same way for every verb.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use undertone_core::study::{DataSpec, Document, Study};
use undertone_plan::PlanError;

use crate::{Failure, planning, tell};

/// The document in a file, with its `--set`s.
pub fn document(path: &Path, set: &[String]) -> Result<Document, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        let remedy = if e.kind() == ErrorKind::InvalidData { "save it as UTF-8 text" } else { "check the path" };
        Failure::input(format!("{}: cannot be read ({e}); {remedy}", path.display()))
    })?;
    parse(&text, &path.display().to_string(), set)
}

/// The document in a text, with its `--set`s.
pub fn parse(text: &str, origin: &str, set: &[String]) -> Result<Document, Failure> {
    let mut document = Document::parse(text, origin).map_err(Failure::input)?;
    for assignment in set {
        document.set(assignment).map_err(Failure::input)?;
    }
    Ok(document)
}

/// The study of a document, and what was chosen for it. `algorithm = "auto"` is planned first, which takes a while and reads
/// no data.
pub fn resolve(document: &Document) -> Result<(Study, Option<String>), Failure> {
    if !is_auto(document)? {
        return Ok((Study::read(document).map_err(Failure::input)?, None));
    }
    let study = planning(|watch| undertone_plan::resolve(document, watch)).map_err(failed)?;
    let chosen = format!("algorithm = \"auto\" is {}", undertone_plan::chosen(&study).join(", "));
    Ok((study, Some(chosen)))
}

/// Looks at the files of a study before it is planned.
pub fn check_files(document: &mut Document, path: &Path) -> Result<(), Failure> {
    undertone_plan::check_files(document, path).map_err(failed)
}

/// Where the study's own files are, if it says so: a path in a study is relative to the study.
pub fn own_path(study: Option<&Path>, data: &DataSpec) -> Option<PathBuf> {
    let folder = study.and_then(Path::parent).unwrap_or(Path::new(""));
    match data {
        DataSpec::Files { path: Some(path), .. } => Some(folder.join(path)),
        _ => None,
    }
}

/// Whether the planner is to choose the algorithm.
pub fn is_auto(document: &Document) -> Result<bool, Failure> {
    undertone_plan::is_auto(document).map_err(Failure::input)
}

/// Says what is odd before anything runs.
pub fn tell_oddities(document: &Document) {
    undertone_plan::oddities(document).iter().for_each(|odd| tell(&format!("note: {odd}")));
}

/// A plan can only fail because of the study.
pub fn failed(error: PlanError) -> Failure {
    Failure::input(error)
}
