//! What planning chose, as text that a document takes.

use undertone_core::knob::Value;
use undertone_core::privacy::Accountant;
use undertone_core::study::{Document, PrivacySpec, Study, StudyError};

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

/// Puts into a document what planning chose earlier and `place` kept, which may contain nothing else.
pub fn choose(document: &mut Document, chosen: &[String], place: &str) -> Result<(), StudyError> {
    for assignment in chosen {
        if !may_be_chosen(assignment) {
            let message = format!("\"{assignment}\" is not a choice of planning; remove the file");
            return Err(StudyError { place: place.into(), key: String::new(), message });
        }
        document.assign(assignment, place.into())?;
    }
    Ok(())
}

fn may_be_chosen(assignment: &str) -> bool {
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
