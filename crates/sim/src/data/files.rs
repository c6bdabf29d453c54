//! The three ways in which files divide into clients.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use undertone_core::csv_format::CsvFormat;
use undertone_core::schema::{Cell, Schema};
use undertone_core::study::{DataSpec, Layout, StudySpec};
use undertone_data::{DataError, Encoder, Loaded, MemoryTable, Rows, table};

/// Reads, checks and encodes the files of a study.
pub fn load(
    layout: &Layout,
    path: &str,
    csv: CsvFormat,
    schema: &Schema,
    classification: bool,
) -> Result<Vec<Loaded>, DataError> {
    let path = Path::new(path);
    let encoder = Encoder { schema, classification };
    let clients = match layout {
        Layout::Folder => folder(path, csv, &encoder)?,
        Layout::Column(column) => by_column(Rows::File(path, csv), column, &encoder)?,
        Layout::Split(clients) => split(Rows::File(path, csv), *clients, &encoder)?,
        Layout::StandIn { .. } => unreachable!("drawn, not read"),
    };
    complete(&path.display(), clients)
}

/// The records of some of the clients that have a file each.
pub fn load_own(
    path: &str,
    csv: CsvFormat,
    schema: &Schema,
    classification: bool,
    own: &[u32],
) -> Result<Vec<Loaded>, DataError> {
    let encoder = Encoder { schema, classification };
    let files = client_files(Path::new(path))?;
    let one = |&k: &u32| {
        let (name, file) = &files[k as usize];
        encoder.read(file, csv, name.clone())
    };
    with_records(&path, own.iter().map(one).collect::<Result<_, _>>()?)
}

/// The records of a table in memory, divided as the study says.
pub fn divide(layout: &Layout, table: &MemoryTable, encoder: &Encoder) -> Result<Vec<Loaded>, DataError> {
    let rows = Rows::Table(table, "data");
    let clients = match layout {
        Layout::Column(column) => by_column(rows, column, encoder)?,
        Layout::Split(clients) => split(rows, *clients, encoder)?,
        Layout::Folder | Layout::StandIn { .. } => {
            let message =
                "is not one table for all clients; write \"column\" or \"split\", or give a table for each client";
            return Err(DataError::new("data.source", message));
        }
    };
    complete(&rows, clients)
}

/// The clients, if there are at least two and all have records.
fn complete(place: &dyn Display, clients: Vec<Loaded>) -> Result<Vec<Loaded>, DataError> {
    at_least_two(place, clients.len())?;
    with_records(place, clients)
}

/// The clients, if all have records.
fn with_records(place: &dyn Display, clients: Vec<Loaded>) -> Result<Vec<Loaded>, DataError> {
    match clients.iter().find(|client| client.total() == 0) {
        Some(client) => Err(DataError::no_records(format!("{place}: client \"{}\"", client.name))),
        None => Ok(clients),
    }
}

/// What can be known of a study's files without reading records: that they are there, have the columns that the study names, and
/// belong to at least two clients. Returns the names of the clients of a folder; other files show theirs only in their rows.
pub fn check_heads(spec: &StudySpec) -> Result<Vec<String>, DataError> {
    let DataSpec::Files { layout, path, schema, csv, .. } = &spec.data else { return Ok(Vec::new()) };
    let encoder = Encoder { schema, classification: spec.loss.is_classification() };
    let path = || path.as_deref().map(Path::new).ok_or_else(DataError::no_path);
    match layout {
        Layout::StandIn { .. } => Ok(Vec::new()),
        Layout::Column(column) => table::check_columns(path()?, *csv, &encoder.wanted(&[column])).map(|()| Vec::new()),
        Layout::Split(_) => table::check_columns(path()?, *csv, &encoder.wanted(&[])).map(|()| Vec::new()),
        Layout::Folder => {
            let files = client_files(path()?)?;
            files.iter().try_for_each(|(_, file)| table::check_columns(file, *csv, &encoder.wanted(&[])))?;
            at_least_two(&path()?.display(), files.len())?;
            Ok(files.into_iter().map(|(name, _)| name).collect())
        }
    }
}

fn at_least_two(place: &dyn Display, clients: usize) -> Result<(), DataError> {
    let message = || format!("gives {clients} client; learning among peers needs at least two");
    if clients < 2 { Err(DataError::new(place, message())) } else { Ok(()) }
}

/// The files of a folder with the names of their clients, in the order of the names.
fn client_files(path: &Path) -> Result<Vec<(String, PathBuf)>, DataError> {
    let entries = std::fs::read_dir(path)
        .map_err(|e| DataError::new(path.display(), format!("cannot be listed ({e}); it must be a folder")))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|p| !p.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    // A file that is skipped would be a missing client, without notice.
    if let Some(other) = files.iter().find(|p| !table::is_table(p)) {
        let message = "is neither a .csv nor a .parquet file; move it out of the folder of the clients' data";
        return Err(DataError::new(other.display(), message));
    }
    // By name and not by path: "a.csv" comes before "a-b.csv".
    files.sort_by_key(|p| p.file_stem().map(|s| s.to_os_string()));
    let mut named: Vec<(String, PathBuf)> = Vec::new();
    for file in files {
        let name = file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if named.iter().any(|(before, _)| *before == name) {
            return Err(DataError::new(file.display(), format!("is a second file for client \"{name}\"; keep one")));
        }
        named.push((name, file));
    }
    if named.is_empty() {
        return Err(DataError::new(path.display(), "holds no .csv or .parquet files; put one there for each client"));
    }
    Ok(named)
}

/// One file per client, named after the file.
fn folder(path: &Path, csv: CsvFormat, encoder: &Encoder) -> Result<Vec<Loaded>, DataError> {
    client_files(path)?.into_iter().map(|(name, file)| encoder.read(&file, csv, name)).collect()
}

/// Rows with a column that names the client; clients are in the order of their names.
fn by_column(rows: Rows, column: &str, encoder: &Encoder) -> Result<Vec<Loaded>, DataError> {
    let mut clients: Vec<Loaded> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    rows.read(&encoder.wanted(&[column]), &mut |row, place| {
        let name = match row.last().expect("the client column was requested") {
            Cell::Number(v) => v.to_string(),
            Cell::Text(text) | Cell::CommaText(text) if !text.trim().is_empty() => text.trim().to_string(),
            _ => {
                return Err(DataError::new(
                    place(),
                    format!("column \"{column}\": the cell is empty; it must name the client"),
                ));
            }
        };
        let k = *index.entry(name.clone()).or_insert_with(|| {
            clients.push(Loaded::empty(name));
            clients.len() - 1
        });
        encoder.push(row, place, &mut clients[k])
    })?;
    if clients.is_empty() {
        return Err(DataError::no_records(rows));
    }
    clients.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(clients)
}

/// Rows split one by one: record j goes to client j mod K.
fn split(rows: Rows, count: usize, encoder: &Encoder) -> Result<Vec<Loaded>, DataError> {
    let mut clients: Vec<Loaded> = Vec::new();
    let mut seen = 0usize;
    rows.read(&encoder.wanted(&[]), &mut |row, place| {
        if seen < count {
            clients.push(Loaded::empty((seen + 1).to_string()));
        }
        seen += 1;
        encoder.push(row, place, &mut clients[(seen - 1) % count])
    })?;
    if clients.len() < count {
        let message = format!("holds {seen} records, too few for {count} clients; lower data.clients");
        return Err(DataError::new(rows, message));
    }
    Ok(clients)
}
