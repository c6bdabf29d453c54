//! Reading a study, the same way for every verb.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use undertone_core::graph::GraphSpec;
use undertone_core::study::{AlgorithmSpec, DataSpec, Document, Study};
use undertone_plan::PlanError;

use crate::{Failure, planning};

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

/// Looks at the files of a study before it is planned, which takes a while: a misspelt column is then found at once. Reads names and
/// heads of files and no records. Where nothing else says how many clients there are, the files in a folder do.
pub fn check_files(document: &mut Document, path: &Path) -> Result<(), Failure> {
    let spec = document.spec().map_err(Failure::input)?.data_path(path.display().to_string());
    let clients = undertone_sim::data::check_heads(&spec).map_err(Failure::input)?.len();
    let counted = spec.plan.as_ref().is_none_or(|plan| plan.clients.is_none());
    if clients > 0 && counted && spec.clients.is_empty() && !matches!(spec.graph, GraphSpec::Edges(_)) {
        document.assign(&format!("plan.clients={clients}"), path.display().to_string()).map_err(Failure::input)?;
    }
    Ok(())
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
    Ok(document.spec().map_err(Failure::input)?.algorithm == AlgorithmSpec::Auto)
}

/// Says what is odd before anything runs.
pub fn tell_oddities(document: &Document) {
    undertone_plan::oddities(document).iter().for_each(|odd| eprintln!("note: {odd}"));
}

/// A plan can only fail because of the study.
pub fn failed(error: PlanError) -> Failure {
    Failure::input(error)
}
