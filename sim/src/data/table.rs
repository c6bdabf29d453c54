//! CSV and Parquet files, row by row.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use undertone_core::schema::Cell;

use super::DataError;

/// What is done with a row and its place.
pub type Each<'a> = &'a mut dyn FnMut(&[Cell], &str) -> Result<(), DataError>;

/// Reads the wanted columns of a file, in the wanted order, and hands each row with its place to `each`.
pub fn read(path: &Path, wanted: &[&str], each: Each) -> Result<(), DataError> {
    let file = File::open(path)
        .map_err(|e| DataError::new(path.display(), format!("cannot be opened ({e}); check the path")))?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("parquet") => read_parquet(path, file, wanted, each),
        _ => read_csv(path, file, wanted, each),
    }
}

/// Whether a file is one of those read here, by its ending.
pub fn is_table(path: &Path) -> bool {
    path.is_file() && matches!(path.extension().and_then(|e| e.to_str()), Some("csv" | "parquet"))
}

/// Where the wanted columns stand among those the file has.
fn columns(path: &Path, head: &[String], wanted: &[&str]) -> Result<Vec<usize>, DataError> {
    let find = |name: &&str| {
        let mut places = (0..head.len()).filter(|&i| head[i].trim() == *name);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => {
                Err(DataError::new(path.display(), format!("has two columns named \"{name}\"; rename one")))
            }
            (None, _) => Err(DataError::new(
                path.display(),
                format!("has no column \"{name}\"; its columns are {}", head.join(", ")),
            )),
        }
    };
    wanted.iter().map(find).collect()
}

fn read_csv(path: &Path, file: File, wanted: &[&str], each: Each) -> Result<(), DataError> {
    let broken = |e: csv::Error| {
        let line = e.position().map_or(String::new(), |p| format!(":{}", p.line()));
        let reason = match e.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("the row has {len} cells where the head has {expected_len}; add or remove cells")
            }
            csv::ErrorKind::Utf8 { .. } => "the row is not UTF-8 text; save the file as UTF-8".into(),
            _ => format!("the row cannot be read ({e})"),
        };
        DataError::new(format!("{}{line}", path.display()), reason)
    };
    let mut reader = csv::Reader::from_reader(std::io::BufReader::new(file));
    let head: Vec<String> = reader.headers().map_err(broken)?.iter().map(str::to_string).collect();
    let places = columns(path, &head, wanted)?;
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(broken)? {
        let cell = |&i: &usize| match record.get(i) {
            None | Some("") => Cell::Missing,
            Some(text) => Cell::Text(Cow::Borrowed(text)),
        };
        let row: Vec<Cell> = places.iter().map(cell).collect();
        let line = record.position().map_or(0, |p| p.line());
        each(&row, &format!("{}:{line}", path.display()))?;
    }
    Ok(())
}

fn read_parquet(path: &Path, file: File, wanted: &[&str], each: Each) -> Result<(), DataError> {
    let broken = |e: parquet::errors::ParquetError| {
        DataError::new(
            path.display(),
            format!("cannot be read as Parquet ({e}); write it with snappy, zstd or no compression"),
        )
    };
    let reader = SerializedFileReader::new(file).map_err(broken)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let head: Vec<String> = fields.iter().map(|f| f.name().to_string()).collect();
    let places = columns(path, &head, wanted)?;
    for (number, row) in reader.get_row_iter(None).map_err(broken)?.enumerate() {
        let row = row.map_err(broken)?;
        let place = format!("{}: row {}", path.display(), number + 1);
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let cells: Result<Vec<Cell>, DataError> =
            places.iter().zip(wanted).map(|(&i, name)| parquet_cell(fields[i], name, &place)).collect();
        each(&cells?, &place)?;
    }
    Ok(())
}

fn parquet_cell<'a>(field: &'a Field, name: &str, place: &str) -> Result<Cell<'a>, DataError> {
    Ok(match field {
        Field::Null => Cell::Missing,
        Field::Bool(v) => Cell::Number(f64::from(u8::from(*v))),
        Field::Byte(v) => Cell::Number(f64::from(*v)),
        Field::Short(v) => Cell::Number(f64::from(*v)),
        Field::Int(v) => Cell::Number(f64::from(*v)),
        Field::Long(v) => Cell::Number(*v as f64),
        Field::UByte(v) => Cell::Number(f64::from(*v)),
        Field::UShort(v) => Cell::Number(f64::from(*v)),
        Field::UInt(v) => Cell::Number(f64::from(*v)),
        Field::ULong(v) => Cell::Number(*v as f64),
        Field::Float(v) => Cell::Number(f64::from(*v)),
        Field::Double(v) => Cell::Number(*v),
        Field::Str(v) => Cell::Text(Cow::Borrowed(v)),
        other => {
            return Err(DataError::new(
                place,
                format!("column \"{name}\" holds {other}, which is neither a number nor text"),
            ));
        }
    })
}
