//! `undertone check`: everything that is wrong with a study or a file, before anything runs.

use std::path::PathBuf;

use undertone_core::schema::{Column, ColumnKind, Schema};
use undertone_core::study::{DataSpec, Document};
use undertone_data::{ColumnSummary, Encoder, Inspection, inspect};

use crate::{Failure, print, short, study};

#[derive(clap::Args)]
pub struct Arguments {
    /// The study
    study: PathBuf,

    /// One party's .csv or .parquet file; it is read and nothing is sent
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// Replace one key of the study, such as privacy.epsilon=2 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let document = study::document(&arguments.study, &arguments.set)?;
    let (mistakes, columns) = document.survey();
    let mut problems: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let mut lines = Vec::new();
    if problems.is_empty() {
        problems.extend(network_problem(&document));
        lines.extend(study::oddities(&document).iter().map(|odd| format!("note: {odd}")));
    }
    if let (Some(path), Some((DataSpec::Files { schema, csv, .. }, loss))) = (&arguments.data, &columns) {
        let encoder = Encoder { schema, classification: loss.is_classification() };
        match inspect(&encoder, path, *csv) {
            Ok(found) => {
                lines.extend(summary(schema, &found));
                problems.extend(found.problems.iter().cloned());
                if found.found > found.problems.len() {
                    let more = found.found - found.problems.len();
                    problems.push(format!("{}: {more} more rows cannot be used", path.display()));
                }
                if found.rows == 0 {
                    problems.push(format!("{}: holds no records", path.display()));
                }
                let records = document.spec().ok().and_then(|spec| spec.public_records());
                lines.extend(agreed(records.as_deref(), found.rows));
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if !lines.is_empty() {
        print(&lines.join("\n"))?;
    }
    match &problems[..] {
        [] => print(match arguments.data {
            Some(_) => "\nthe study and the file can be used; nothing was sent, nothing was spent",
            None => "the study can be used; give --data FILE to look at a party's file too",
        }),
        [one] => Err(Failure::input(one)),
        many => Err(Failure::Input(format!("{} problems\n  {}", many.len(), many.join("\n  ")))),
    }
}

/// What is wrong with the clients together, as far as the study says who they are.
fn network_problem(document: &Document) -> Option<String> {
    let spec = document.spec().ok()?;
    let (names, _) = undertone_plan::clients(&spec).ok()?;
    let graph = spec.build_graph(&names, 0).err().map(|error| format!("graph: {error}"));
    graph.or(spec.trust(names.len()).err().map(|error| document.locate(error).to_string()))
}

/// Whether the file holds about as many records as was agreed; with a mean alone nothing is agreed about one party.
fn agreed(records: Option<&[usize]>, rows: usize) -> Option<String> {
    let [mean] = records? else { return None };
    let off = rows.abs_diff(*mean) > (mean / 2).max(1);
    off.then(|| format!("note: the file holds {rows} records, while data.records = {mean} is the mean of all parties"))
}

fn summary(schema: &Schema, found: &Inspection) -> Vec<String> {
    let held =
        if found.held > 0 { format!(", of which {} are kept out of training", found.held) } else { String::new() };
    let mut lines = vec![
        format!("{} records{held}; for your eyes only, computed from the records without noise", found.rows),
        String::new(),
    ];
    lines.push(format!(
        "{:<18}{:>8}{:>8}{:>11}{:>11}{:>11}{:>11}  public",
        "column", "empty", "wrong", "least", "mean", "largest", "spread"
    ));
    for (column, summary) in schema.features.iter().chain([&schema.target]).zip(&found.columns) {
        lines.push(line(column, summary, found.rows));
    }
    lines
}

fn line(column: &Column, found: &ColumnSummary, rows: usize) -> String {
    let head = format!("{:<18}{:>8}{:>8}", found.name, found.missing, found.wrong);
    match (&column.kind, found.numbers) {
        (ColumnKind::Number { low, high }, Some([_, least, largest, mean, spread])) => {
            let mut remarks = vec![format!("{} to {}", short(*low), short(*high))];
            if found.limited > 0 {
                remarks.push(format!("{} count as the ends of what is typical", found.limited));
            }
            if found.outside.0 + found.outside.1 > 0 {
                remarks.push(format!("{} below, {} above", found.outside.0, found.outside.1));
            }
            if let Some([typical, width]) = column.typical.as_deref() {
                remarks.push(format!("typical {} +- {}", short(*typical), short(*width)));
                let (off, ratio) = ((mean - typical) / width, spread / width);
                if off.abs() > 0.5 || !(0.5..=2.0).contains(&ratio) {
                    remarks.push(format!("this file is {off:+.1} spreads off and {ratio:.1} times as wide"));
                }
            } else if spread > 0.0 && (high - low) / spread > 20.0 {
                remarks.push(format!(
                    "the bounds are {:.0} spreads wide: typical values would help much",
                    (high - low) / spread
                ));
            }
            let [least, mean, largest, spread] = [least, mean, largest, spread].map(short);
            format!("{head}{least:>11}{mean:>11}{largest:>11}{spread:>11}  {}", remarks.join("; "))
        }
        (ColumnKind::Number { low, high }, None) => format!("{head}{:>44}  {} to {}", "", short(*low), short(*high)),
        (ColumnKind::Category(_), _) => {
            let share = |count: usize| 100.0 * count as f64 / rows.max(1) as f64;
            let words: Vec<String> =
                found.words.iter().map(|(word, count)| format!("{word} {:.0}%", share(*count))).collect();
            format!("{head}{:>44}  {}", "", words.join(", "))
        }
    }
}
