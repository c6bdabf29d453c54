//! What the files or tables of a study say before it is planned.

use std::path::Path;

use undertone_core::graph::GraphSpec;
use undertone_core::study::{AlgorithmSpec, Document, StudyError};

use crate::PlanError;

/// Whether the planner is to choose the algorithm.
pub fn is_auto(document: &Document) -> Result<bool, StudyError> {
    Ok(document.spec()?.algorithm == AlgorithmSpec::Auto)
}

/// Looks at the files of a study before it is planned, which takes a while: a misspelt column is then found at once. Reads names and
/// heads of files and no records. Where nothing else says how many clients there are, the files in a folder do.
pub fn check_files(document: &mut Document, path: &Path) -> Result<(), PlanError> {
    let spec = document.spec()?.data_path(path.display().to_string());
    let clients = undertone_sim::data::check_heads(&spec)?.len();
    Ok(count_clients(document, clients, &path.display().to_string())?)
}

/// Plans for so many clients where nothing else says how many there are; 0 is unknown. `place` says where the number is from.
pub fn count_clients(document: &mut Document, clients: usize, place: &str) -> Result<(), StudyError> {
    let spec = document.spec()?;
    let counted = spec.plan.as_ref().is_none_or(|plan| plan.clients.is_none());
    if clients > 0 && counted && spec.clients.is_empty() && !matches!(spec.graph, GraphSpec::Edges(_)) {
        document.assign(&format!("plan.clients={clients}"), place.into())?;
    }
    Ok(())
}
