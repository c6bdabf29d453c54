//! CSV and Parquet files, row by row.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use undertone_core::csv_format::CsvFormat;
use undertone_core::schema::Cell;

use crate::{DataError, MemoryTable};

/// Called with a row; its place is computed only when an error needs it.
pub type Each<'a> = &'a mut dyn FnMut(&[Cell], &dyn Fn() -> String) -> Result<(), DataError>;

/// Where rows come from.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// A CSV or Parquet file, and how it is written if it is a CSV file.
    File(&'a Path, CsvFormat),
    /// A table in memory, and its name in messages.
    Table(&'a MemoryTable, &'a str),
}

impl Rows<'_> {
    /// Passes the wanted columns of each row, in the wanted order, with its place to `each`.
    pub fn read(&self, wanted: &[&str], each: Each) -> Result<(), DataError> {
        match *self {
            Rows::File(path, format) => read(path, format, wanted, each),
            Rows::Table(table, name) => table.read(name, wanted, each),
        }
    }
}

/// How messages name them.
impl std::fmt::Display for Rows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Rows::File(path, _) => path.display().fmt(f),
            Rows::Table(_, name) => f.write_str(name),
        }
    }
}

/// Reads the wanted columns of a file, in the wanted order, and passes each row with its place to `each`. `format` says how it
/// is written if it is a CSV file.
pub fn read(path: &Path, format: CsvFormat, wanted: &[&str], each: Each) -> Result<(), DataError> {
    let file = open(path)?;
    match is_parquet(path) {
        true => read_parquet(path, file, wanted, each),
        false => read_csv(path, file, format, wanted, each),
    }
}

/// Whether a file has the wanted columns, each once. Reads its head and no rows.
pub fn check_columns(path: &Path, format: CsvFormat, wanted: &[&str]) -> Result<(), DataError> {
    let file = open(path)?;
    match is_parquet(path) {
        true => open_parquet(path, file, wanted).map(drop),
        false => open_csv(path, file, format, wanted).map(drop),
    }
}

fn open(path: &Path) -> Result<File, DataError> {
    if path.is_dir() {
        return Err(DataError::new(path.display(), "is a folder; give one file, .csv or .parquet"));
    }
    File::open(path).map_err(|e| DataError::new(path.display(), format!("cannot be opened ({e}); check the path")))
}

fn is_parquet(path: &Path) -> bool {
    ending(path) == "parquet"
}

/// Whether the file extension is supported.
pub fn is_table(path: &Path) -> bool {
    path.is_file() && ["csv", "parquet"].contains(&ending(path).as_str())
}

fn ending(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// The positions of the wanted columns in the file; `hint` says why one may be missing.
pub(crate) fn columns(
    place: impl std::fmt::Display,
    head: &[String],
    wanted: &[&str],
    hint: &str,
) -> Result<Vec<usize>, DataError> {
    if head.is_empty() {
        return Err(DataError::new(&place, "is empty; its first line must name the columns"));
    }
    let find = |name: &&str| {
        let mut places = (0..head.len()).filter(|&i| head[i].trim() == *name);
        let message = match (places.next(), places.next()) {
            (Some(place), None) => return Ok(place),
            (Some(_), Some(_)) => format!("has two columns named \"{name}\"; rename one"),
            // The first line may be a record, which is not for a log.
            (None, _) if head.iter().all(|cell| !wanted.contains(&cell.trim())) => {
                format!(
                    "has no column \"{name}\", nor any other that is needed; its first line must name the columns{hint}"
                )
            }
            (None, _) => {
                format!(
                    "has no column \"{name}\"; its columns are {}{hint}; rename one, or correct the name",
                    head.join(", ")
                )
            }
        };
        Err(DataError::new(&place, message))
    };
    wanted.iter().map(find).collect()
}

/// A head that is one cell, and would be several with another delimiter, is probably written with that one.
fn delimiter_hint(head: &[String], format: CsvFormat) -> String {
    let [one] = head else { return String::new() };
    let others = [';', '\t', ','].into_iter().filter(|c| *c != char::from(format.delimiter));
    match others.into_iter().find(|c| one.contains(*c)) {
        Some(found) => {
            let found = found.to_string();
            format!("; if {found:?} separates its cells, set data.csv.delimiter = {found:?} (--delimiter for predict)")
        }
        None => String::new(),
    }
}

/// The line on which the record at `byte` starts. The reader's own count is off after blank lines and in files with
/// two-character line ends, so the file is read again up to there; this happens once, before the program ends.
fn line_of(path: &Path, byte: u64) -> usize {
    let bytes = std::fs::read(path).unwrap_or_default();
    let start = (byte as usize).min(bytes.len());
    let blank = bytes[start..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    1 + bytes[..start + blank].iter().filter(|b| **b == b'\n').count()
}

/// The file, and the line of the record at `byte` if that is known.
fn csv_place(path: &Path, byte: Option<u64>) -> String {
    match byte {
        Some(byte) => format!("{}:{}", path.display(), line_of(path, byte)),
        None => path.display().to_string(),
    }
}

fn csv_error(path: &Path, e: csv::Error) -> DataError {
    let reason = match e.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the row has {len} cells where the head has {expected_len}; add or remove cells, and close quotes")
        }
        csv::ErrorKind::Utf8 { .. } => "the row is not UTF-8 text; save the file as UTF-8".into(),
        _ => format!("the row cannot be read ({e})"),
    };
    DataError::new(csv_place(path, e.position().map(|p| p.byte())), reason)
}

/// A reader behind the head, and the positions of the wanted columns.
fn open_csv(
    path: &Path,
    file: File,
    format: CsvFormat,
    wanted: &[&str],
) -> Result<(csv::Reader<BufReader<File>>, Vec<usize>), DataError> {
    let mut reader = csv::ReaderBuilder::new().delimiter(format.delimiter).from_reader(BufReader::new(file));
    let head = reader.headers().map_err(|e| csv_error(path, e))?.iter().map(str::to_string).collect::<Vec<_>>();
    let places = columns(path.display(), &head, wanted, &delimiter_hint(&head, format))?;
    Ok((reader, places))
}

fn read_csv(path: &Path, file: File, format: CsvFormat, wanted: &[&str], each: Each) -> Result<(), DataError> {
    let (mut reader, places) = open_csv(path, file, format, wanted)?;
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| csv_error(path, e))? {
        let cell = |&i: &usize| match record.get(i) {
            None | Some("") => Cell::Missing,
            Some(text) if format.decimal == ',' => Cell::CommaText(Cow::Borrowed(text)),
            Some(text) => Cell::Text(Cow::Borrowed(text)),
        };
        let row: Vec<Cell> = places.iter().map(cell).collect();
        each(&row, &|| csv_place(path, record.position().map(|p| p.byte())))?;
    }
    Ok(())
}

fn parquet_error(path: &Path, e: ParquetError) -> DataError {
    let message = format!("cannot be read as Parquet ({e}); write it with snappy, zstd or no compression");
    DataError::new(path.display(), message)
}

/// A reader, and the positions of the wanted columns.
fn open_parquet(
    path: &Path,
    file: File,
    wanted: &[&str],
) -> Result<(SerializedFileReader<File>, Vec<usize>), DataError> {
    let reader = SerializedFileReader::new(file).map_err(|e| parquet_error(path, e))?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let head: Vec<String> = fields.iter().map(|f| f.name().to_string()).collect();
    let places = columns(path.display(), &head, wanted, "")?;
    Ok((reader, places))
}

fn read_parquet(path: &Path, file: File, wanted: &[&str], each: Each) -> Result<(), DataError> {
    let broken = |e: ParquetError| parquet_error(path, e);
    let (reader, places) = open_parquet(path, file, wanted)?;
    for (number, row) in reader.get_row_iter(None).map_err(broken)?.enumerate() {
        let row = row.map_err(broken)?;
        let place = || format!("{}: row {}", path.display(), number + 1);
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let cells: Result<Vec<Cell>, DataError> =
            places.iter().zip(wanted).map(|(&i, name)| parquet_cell(fields[i], name, &place)).collect();
        each(&cells?, &place)?;
    }
    Ok(())
}

fn parquet_cell<'a>(field: &'a Field, name: &str, place: &dyn Fn() -> String) -> Result<Cell<'a>, DataError> {
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
                place(),
                format!("column \"{name}\" holds {other}, which is neither a number nor text"),
            ));
        }
    })
}
