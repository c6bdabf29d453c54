//! `undertone predict`: predictions from a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use undertone_core::csv_format::CsvFormat;
use undertone_core::schema::Cell;
use undertone_data::{DataError, FittedModel, Prediction, Rows};

use crate::{Failure, print};

#[derive(clap::Args)]
pub struct Arguments {
    /// The model.json of a run or of a peer
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// A .csv or .parquet file with the model's columns
    #[arg(long, value_name = "FILE")]
    data: PathBuf,

    /// Pass this column of the data on, such as the id of a row (may be repeated)
    #[arg(long, value_name = "COLUMN")]
    keep: Vec<String>,

    #[command(flatten)]
    csv: CsvOptions,

    /// Where to write the predictions as CSV; without it, standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// How a CSV file is written.
#[derive(clap::Args)]
pub struct CsvOptions {
    /// What separates the cells of a .csv file, such as ";" or "\t"
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,

    /// The decimal sign in a .csv file, "." or ","
    #[arg(long, value_name = "CHARACTER")]
    decimal: Option<String>,
}

impl CsvOptions {
    pub fn read(&self) -> Result<CsvFormat, Failure> {
        CsvFormat::read(self.delimiter.as_deref(), self.decimal.as_deref())
            .map_err(|e| Failure::input(format!("--{} {}", e.name, e.message)))
    }
}

/// Cells outside the range that a model was learned in, by column.
#[derive(Default)]
pub struct Moved(BTreeMap<String, usize>);

impl Moved {
    pub fn add(&mut self, prediction: &Prediction) {
        prediction.moved.iter().for_each(|column| *self.0.entry(column.clone()).or_default() += 1);
    }

    pub fn tell(&self, model: &Path) {
        if self.0.is_empty() {
            return;
        }
        let columns: Vec<String> = self.0.iter().map(|(column, count)| format!("{count} of {column}")).collect();
        eprintln!(
            "note: cells are outside the public range that the model was learned in (\"limits\" in {}) and count as its ends: {}",
            model.display(),
            columns.join(", ")
        );
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = FittedModel::read(&arguments.model).map_err(Failure::input)?;
    let csv = arguments.csv.read()?;
    let mut text = Vec::new();
    let mut writer = csv::Writer::from_writer(&mut text);
    let written = |e: csv::Error| DataError::new("predictions", e);
    let keep: Vec<&str> = arguments.keep.iter().map(String::as_str).collect();
    let probability = model.labels.as_ref().filter(|_| model.loss.name() == "logistic");
    let probability = probability.map(|[_, positive]| format!("probability of {positive}"));
    let mut head: Vec<&str> = keep.clone();
    head.push(&model.target);
    head.extend(probability.as_deref());
    head.extend(model.labels.is_some().then_some("score"));
    if let Some(twice) = (1..head.len()).find(|&i| head[..i].contains(&head[i])) {
        let name = head[twice];
        return Err(Failure::input(format!(
            "--keep {name}: the predictions would have two columns named \"{name}\"; rename the column in {}, or do not keep it",
            arguments.data.display()
        )));
    }
    writer.write_record(&head).map_err(written).map_err(Failure::machine)?;
    let mut moved = Moved::default();
    let each = |prediction: Prediction, cells: &[Cell]| {
        moved.add(&prediction);
        let mut row: Vec<String> = cells.iter().map(|cell| cell.text().unwrap_or_default()).collect();
        let score = prediction.score.to_string();
        match prediction.label {
            Some(label) => row.extend(
                [Some(label), prediction.probability.map(|p| p.to_string()), Some(score)].into_iter().flatten(),
            ),
            None => row.push(score),
        }
        writer.write_record(&row).map_err(written)
    };
    model.predict(Rows::File(&arguments.data, csv), &keep, each).map_err(Failure::input)?;
    drop(writer);
    moved.tell(&arguments.model);
    match &arguments.out {
        None => print(String::from_utf8_lossy(&text).trim_end()),
        Some(path) => {
            let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
            file.and_then(|mut file| std::io::Write::write_all(&mut file, &text)).map_err(|e| {
                Failure::input(format!("--out {}: cannot be written ({e}); choose a new file", path.display()))
            })
        }
    }
}
