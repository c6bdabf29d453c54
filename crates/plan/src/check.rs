//! Everything that is wrong or odd about a study and one party's records, at once.

use undertone_core::schema::Schema;
use undertone_core::study::{DataSpec, Document};
use undertone_data::{Encoder, Inspection, Rows, inspect};

/// What was found. It is computed from the records without noise: for the eyes of their owner.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// What has to be corrected.
    pub problems: Vec<String>,
    /// What is allowed and seldom meant.
    pub notes: Vec<String>,
    /// The columns as agreed, and what the records hold.
    pub found: Option<(Schema, Inspection)>,
}

/// Looks at a study and, if there are any, at one party's records. Nothing is sent and nothing is spent.
pub fn check(document: &Document, rows: Option<Rows>) -> Checked {
    let (mistakes, columns) = document.survey();
    let mut checked = Checked { problems: mistakes.iter().map(ToString::to_string).collect(), ..Checked::default() };
    if checked.problems.is_empty() {
        checked.problems.extend(network_problem(document));
        checked.notes.extend(crate::oddities(document));
    }
    if let (Some(rows), Some((DataSpec::Files { schema, .. }, loss))) = (rows, columns) {
        match inspect(&Encoder { schema: &schema, classification: loss.is_classification() }, rows) {
            Ok(found) => {
                checked.problems.extend(found.problems.iter().cloned());
                if found.found > found.problems.len() {
                    let more = found.found - found.problems.len();
                    checked.problems.push(format!("{rows}: {more} more rows cannot be used"));
                }
                if found.rows == 0 {
                    checked.problems.push(format!("{rows}: holds no records"));
                }
                let records = document.spec().ok().and_then(|spec| spec.public_records());
                checked.notes.extend(agreed(records.as_deref(), found.rows));
                checked.found = Some((schema, found));
            }
            Err(error) => checked.problems.push(error.to_string()),
        }
    }
    checked
}

/// What is wrong with the clients together, as far as the study says who they are.
fn network_problem(document: &Document) -> Option<String> {
    let spec = document.spec().ok()?;
    let (names, _) = crate::clients(&spec).ok()?;
    let graph = spec.build_graph(&names, 0).err().map(|error| format!("graph: {error}"));
    graph.or(spec.trust(names.len()).err().map(|error| document.locate(error).to_string()))
}

/// Whether there are about as many records as was agreed; with a mean alone nothing is agreed about one party.
fn agreed(records: Option<&[usize]>, rows: usize) -> Option<String> {
    let [mean] = records? else { return None };
    let off = rows.abs_diff(*mean) > (mean / 2).max(1);
    off.then(|| format!("the file holds {rows} records, while data.records = {mean} is the mean of all parties"))
}
