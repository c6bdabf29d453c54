//! `undertone score`: how well a model predicts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use undertone_core::schema::Cell;
use undertone_data::{DataError, FittedModel, Prediction, Rows, Scored};

use crate::predict::{CsvOptions, Moved};
use crate::{Failure, print};

#[derive(clap::Args)]
pub struct Arguments {
    /// The model.json of a run or of a peer
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// A .csv or .parquet file with the model's columns and its target, of records that the model has not seen
    #[arg(long, value_name = "FILE")]
    data: PathBuf,

    /// Score the rows of each value of this column apart as well
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,

    #[command(flatten)]
    csv: CsvOptions,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// More groups than this are not groups.
const MOST_GROUPS: usize = 200;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = FittedModel::read(&arguments.model).map_err(Failure::input)?;
    let csv = arguments.csv.read()?;
    let mut all = Scored::new(model.loss);
    let mut groups: BTreeMap<String, Scored> = BTreeMap::new();
    let mut moved = Moved::default();
    let mut columns = vec![model.target.as_str()];
    columns.extend(arguments.by.as_deref());
    let each = |prediction: Prediction, cells: &[Cell]| {
        let row = all.len() + 1;
        let truth = model
            .truth(&cells[0])
            .map_err(|e| DataError::new(format!("{}: row {row}", arguments.data.display()), e))?;
        moved.add(&prediction);
        all.push(prediction.score, truth);
        if let Some(cell) = cells.get(1) {
            let name = cell.text().unwrap_or_default();
            groups.entry(name).or_insert_with(|| Scored::new(model.loss)).push(prediction.score, truth);
            if groups.len() > MOST_GROUPS {
                let message = format!("has more than {MOST_GROUPS} values; --by is for columns of groups");
                return Err(DataError::new(
                    format!("column \"{}\"", arguments.by.as_deref().unwrap_or_default()),
                    message,
                ));
            }
        }
        Ok(())
    };
    model.predict(Rows::File(&arguments.data, csv), &columns, each).map_err(Failure::input)?;
    if all.is_empty() {
        return Err(Failure::input(format!(
            "{}: holds no records, so there is nothing to score",
            arguments.data.display()
        )));
    }
    moved.tell(&arguments.model);
    if arguments.json {
        let mut answer = all.to_json();
        if let Some(by) = &arguments.by {
            let each: Map<String, Value> =
                groups.iter().map(|(name, scored)| (name.clone(), scored.to_json())).collect();
            answer["by"] = json!({ by: each });
        }
        return print(&answer.to_string());
    }
    let mut lines = vec![format!("{}, {} rows", model.target, all.len()), String::new()];
    lines.push(format!("{:<26}{:>12}{:>14}", "", "model", "no features"));
    lines.extend(table(&all));
    if let Some(by) = &arguments.by {
        for (name, scored) in &groups {
            let title = if name.is_empty() { "(empty)" } else { name };
            lines.push(format!("\n{by} = {title}, {} rows", scored.len()));
            lines.extend(table(scored));
        }
    }
    print(&lines.join("\n"))
}

/// One line for each score.
pub fn table(scored: &Scored) -> Vec<String> {
    let shown = |value: f64| format!("{value:.4}");
    let line = |score: undertone_data::Score| {
        format!("{:<26}{:>12}{:>14}", score.name, shown(score.model), score.null.map_or(String::new(), shown))
    };
    scored.scores().into_iter().map(line).collect()
}
