//! What is odd about a document.

use undertone_core::names::Names;
use undertone_core::study::{AlgorithmSpec, Document, StudySpec};

/// What is odd about a study, in sentences.
pub fn oddities(document: &Document) -> Vec<String> {
    let Ok(spec) = document.spec() else { return Vec::new() };
    let names = crate::clients(&spec).ok().map(|(names, _)| names);
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
