//! Reading a study, the same way for every verb.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use undertone_core::graph::GraphSpec;
use undertone_core::knob::Value;
use undertone_core::names::Names;
use undertone_core::privacy::Accountant;
use undertone_core::study::{AlgorithmSpec, DataSpec, Document, PrivacySpec, Study, StudySpec};
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
    let chosen = format!("algorithm = \"auto\" is {}", chosen(&study).join(", "));
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

/// What planning chose, as assignments.
pub fn chosen(study: &Study) -> Vec<String> {
    let quoted = |value: Value| match value {
        Value::Word(word) => format!("\"{word}\""),
        value => value.to_string(),
    };
    let mut parts = vec![format!("name = \"{}\"", study.algorithm().name())];
    parts.extend(study.settings().iter().map(|(name, value)| format!("{name} = {}", quoted(value))));
    let mut chosen = vec![format!("algorithm={{{}}}", parts.join(", "))];
    if let Some(PrivacySpec { clip: Some(clip), tau: Some(tau), accountant, standardise, theta, .. }) =
        study.spec().privacy
    {
        chosen.push(format!("privacy.clip={clip}"));
        chosen.push(format!("privacy.tau={tau}"));
        if let Some(theta) = theta {
            chosen.push(format!("privacy.theta={theta}"));
        }
        if let Some(share) = standardise {
            chosen.push(format!("privacy.standardise={share}"));
        }
        if accountant == Accountant::Classic {
            chosen.push(format!("privacy.accountant={}", accountant.name()));
        }
    }
    if let Some((worse, better)) = study.spec().plan.as_ref().and_then(|plan| plan.skill) {
        chosen.push(format!("plan.skill=[{worse:?}, {better:?}]"));
    }
    chosen
}

/// Whether an assignment is one of those that planning makes: a kept plan may contain nothing else.
pub fn may_be_chosen(assignment: &str) -> bool {
    let key = assignment.split('=').next().unwrap_or_default().trim();
    [
        "algorithm",
        "privacy.clip",
        "privacy.tau",
        "privacy.theta",
        "privacy.standardise",
        "privacy.accountant",
        "plan.skill",
    ]
    .contains(&key)
}

/// What is odd about a study, in sentences.
pub fn oddities(document: &Document) -> Vec<String> {
    let Ok(spec) = document.spec() else { return Vec::new() };
    let names = undertone_plan::clients(&spec).ok().map(|(names, _)| names);
    let mut odd = spec.oddities(names.as_ref());
    if document.has("problem", "regularizer") && spec.lambda != 0.0 && !document.has("problem", "lambda") {
        odd.push(format!(
            "problem.lambda is not given and is {}: a strong penalty for most problems; write it",
            spec.lambda
        ));
    }
    if let Some(clients) = names.as_ref().map(Names::len)
        && no_hope_for_intervals(&spec, clients)
    {
        odd.push(
            "inference: the noise is likely to be as large as the second derivatives, so that there will be no intervals, and it takes 65% of the budget all the same; \
             remove [inference], or use masks (privacy.colluders), typical values, fewer features, more records or a larger epsilon"
                .into(),
        );
    }
    odd
}

/// Whether intervals are asked for and not to be expected. Which algorithm learns the model does not matter.
fn no_hope_for_intervals(spec: &StudySpec, clients: usize) -> bool {
    let mut any = spec.clone().algorithm(AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 1.0));
    if let Some(privacy) = &mut any.privacy {
        privacy.clip.get_or_insert(1.0);
    }
    any.check().is_ok_and(|study| study.expected_error(clients) == Some(None))
}

/// Says what is odd before anything runs.
pub fn tell_oddities(document: &Document) {
    oddities(document).iter().for_each(|odd| eprintln!("note: {odd}"));
}

/// A plan can only fail because of the study.
pub fn failed(error: PlanError) -> Failure {
    Failure::input(error)
}
