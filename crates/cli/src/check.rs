//! `undertone check`: everything that is wrong with a study or a file, before anything runs.

use std::path::PathBuf;

use undertone_core::schema::{Column, ColumnKind, Schema};
use undertone_data::{ColumnSummary, Inspection, Rows};

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
    let csv = document.spec().map(|spec| spec.csv()).unwrap_or_default();
    let rows = arguments.data.as_deref().map(|path| Rows::File(path, csv));
    let checked = undertone_plan::check(&document, rows);
    let mut lines: Vec<String> = Vec::new();
    if let Some((schema, found)) = &checked.found {
        lines.extend(summary(schema, found));
    }
    lines.extend(checked.notes.iter().map(|note| format!("note: {note}")));
    if !lines.is_empty() {
        print(&lines.join("\n"))?;
    }
    match &checked.problems[..] {
        [] => print(match arguments.data {
            Some(_) => "\nthe study and the file can be used; nothing was sent, nothing was spent",
            None => "the study can be used; give --data FILE to look at a party's file too",
        }),
        [one] => Err(Failure::input(one)),
        many => Err(Failure::Input(format!("{} problems\n  {}", many.len(), many.join("\n  ")))),
    }
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
