//! Reading a study, the same way for every verb.

use std::io::ErrorKind;
use std::path::Path;

use undertone_core::study::{Document, Study};
use undertone_plan::{self as plan, PlanError};

use crate::{Failure, with_bar};

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

/// The study of a document, and what was chosen for it. `algorithm = "auto"` is planned first, which takes a while and looks
/// at no data.
pub fn resolve(document: &Document) -> Result<(Study, Option<String>), Failure> {
    if !plan::is_auto(document) {
        return Ok((Study::read(document).map_err(Failure::input)?, None));
    }
    let study = with_bar("planning", |progress| plan::resolve(document, progress)).map_err(failed)?;
    let chosen = format!("algorithm = \"auto\" is {}", chosen(&study).join(", "));
    Ok((study, Some(chosen)))
}

/// What planning chose, as assignments.
pub fn chosen(study: &Study) -> Vec<String> {
    let settings = study.algorithm.settings();
    let mut parts = vec![format!("name = \"{}\"", study.algorithm.name())];
    parts.extend(settings.iter().map(|(key, value)| format!("{key} = {value}")));
    let mut chosen = vec![format!("algorithm={{{}}}", parts.join(", "))];
    if let Some(privacy) = &study.privacy {
        chosen.push(format!("privacy.clip={}", privacy.clip.get()));
        chosen.push(format!("privacy.tau={}", privacy.tau));
    }
    chosen
}

/// Whether an assignment is one of those that planning makes: nothing else may come from what it left behind.
pub fn may_be_chosen(assignment: &str) -> bool {
    let key = assignment.split('=').next().unwrap_or_default().trim();
    ["algorithm", "privacy.clip", "privacy.tau"].contains(&key)
}

/// Whatever stops a plan is something in the study.
pub fn failed(error: PlanError) -> Failure {
    Failure::input(error)
}
