//! `undertone predict`: predictions from a model.

use std::path::PathBuf;

use undertone_core::csv_format::CsvFormat;
use undertone_data::{DataError, FittedModel};

use crate::{Failure, print};

#[derive(clap::Args)]
pub struct Arguments {
    /// The model.json of a run or of a peer
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// A .csv or .parquet file with the model's columns
    #[arg(long, value_name = "FILE")]
    data: PathBuf,

    /// What separates the cells of a .csv file, such as ";" or "\t"
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,

    /// The decimal sign in a .csv file, "." or ","
    #[arg(long, value_name = "CHARACTER")]
    decimal: Option<String>,

    /// Where to write the predictions as CSV; without it, standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = FittedModel::read(&arguments.model).map_err(Failure::input)?;
    let csv = CsvFormat::read(arguments.delimiter.as_deref(), arguments.decimal.as_deref())
        .map_err(|e| Failure::input(format!("--{} {}", e.name, e.message)))?;
    let mut text = Vec::new();
    let mut writer = csv::Writer::from_writer(&mut text);
    let written = |e: csv::Error| DataError::new("predictions", e);
    let head: &[&str] = if model.labels.is_some() { &[&model.target, "score"] } else { &[&model.target] };
    writer.write_record(head).map_err(written).map_err(Failure::machine)?;
    let mut moved = 0;
    let each = |prediction: undertone_data::Prediction| {
        moved += prediction.moved;
        match prediction.label {
            Some(label) => writer.write_record([label, prediction.score.to_string()]).map_err(written),
            None => writer.write_record([prediction.score.to_string()]).map_err(written),
        }
    };
    model.predict(&arguments.data, csv, each).map_err(Failure::input)?;
    drop(writer);
    if moved > 0 {
        eprintln!(
            "note: {moved} cells are outside the range that the model was learned in (\"limits\" in {}) and count as its ends",
            arguments.model.display()
        );
    }
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
