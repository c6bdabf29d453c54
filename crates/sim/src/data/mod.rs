//! The records of all clients: drawn at random or read from files, checked, and stored in one array.

mod files;
mod stand_in;
mod synthetic;

use rayon::prelude::*;
use undertone_core::names::Names;
use undertone_core::privacy::Clipping;
use undertone_core::problem::Weights;
use undertone_core::records::{RecordLayout, Records, size};
use undertone_core::schema::{Cell, Schema};
use undertone_core::study::{DataSpec, Layout, Study};
use undertone_data::{DataError, Encoder, Held, Loaded, MemoryTable};

pub use files::check_heads;

use crate::aligned::Aligned;
use crate::prefetch::prefetch;

/// All clients' records in one piece of memory.
pub struct Population {
    storage: Aligned,
    /// Where each client's storage starts.
    starts: Vec<usize>,
    /// M_k.
    counts: Vec<u32>,
    features: usize,
    names: Names,
    clipping: Clipping,
    /// What all clients divide their sums by; none where each divides by the number of its own records.
    divisor: Option<f64>,
    /// How rows from memory became records.
    encoded: Option<(Schema, bool)>,
    /// The rows, where they have to be encoded once more.
    tables: Option<Tables>,
    /// What each client keeps out of training.
    held: Vec<Held>,
    /// How many rows each client has, where it keeps some out of training.
    rows: Vec<usize>,
}

/// Rows in memory.
#[derive(Clone)]
enum Tables {
    /// A table for each client.
    Each(Vec<(String, MemoryTable)>),
    /// One for all.
    All(MemoryTable),
}

impl Population {
    /// Draws or reads the data of a study; `trial` selects the draw.
    pub fn load(study: &Study, trial: u32) -> Result<Self, DataError> {
        let spec = study.spec();
        let classification = spec.loss.is_classification();
        match &spec.data {
            DataSpec::Synthetic { clients, records, features, noise, condition, spread } => {
                let names = Names::numbered(*clients);
                let law = synthetic::SyntheticLaw::new(spec.seed, trial, *features, *noise, *condition, classification)
                    .with_spread(*spread);
                let all = *clients;
                let mean = || (0..all).map(|k| records[k % records.len()] as f64).sum::<f64>() / all as f64;
                Self::fill(study, names, records, mean, |client, layout, storage| law.draw(client, layout, storage))
            }
            DataSpec::Files { layout: Layout::StandIn { clients, records, noise }, schema, .. } => {
                ensure_memory(clients.len(), records, schema.feature_names().len())?;
                let law = stand_in::StandInLaw::new(spec.seed, trial, schema, *noise, classification);
                let draw = |(k, name): (usize, &String)| {
                    split_off(law.draw(k, name, records[k % records.len()]), schema, classification)
                };
                let loaded = clients.iter().enumerate().map(draw).collect();
                assemble(study, loaded)
            }
            DataSpec::Files { layout, path, schema, csv, .. } => {
                let path = path.as_deref().ok_or_else(DataError::no_path)?;
                assemble(study, files::load(layout, path, *csv, schema, classification)?)
            }
        }
    }

    /// The w that synthetic data is made with; none of other data.
    pub fn truth(study: &Study, trial: u32) -> Option<Vec<f64>> {
        let DataSpec::Synthetic { features, noise, condition, spread, .. } = study.spec().data else { return None };
        let law = synthetic::SyntheticLaw::new(study.spec().seed, trial, features, noise, condition, false);
        Some(law.with_spread(spread).into_truth())
    }

    /// The records of clients that are in memory, checked against the study's public bounds and stored with its clip.
    ///
    /// Clients are laid out in the order of their names, as files in a folder would be.
    pub fn from_tables(study: &Study, mut clients: Vec<(String, MemoryTable)>) -> Result<Self, DataError> {
        let DataSpec::Files { layout: Layout::Folder, schema, .. } = &study.spec().data else {
            return Err(DataError::new("data.source", "is not one table for each client; write DataSpec::tables"));
        };
        clients.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = clients.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(DataError::new(&pair[0].0, "is the name of two clients; give each its own"));
        }
        if clients.len() < 2 {
            return Err(DataError::new("clients", "are fewer than two; learning among peers needs at least two"));
        }
        let encoder = Encoder { schema, classification: study.spec().loss.is_classification() };
        let loaded: Result<Vec<Loaded>, DataError> =
            clients.iter().map(|(name, table)| encoder.encode(table, name.clone())).collect();
        Self::of_memory(study, schema, loaded?, Tables::Each(clients))
    }

    /// The same from one table for all clients, which divides among them as the study says: by a column or row by row.
    pub fn from_table(study: &Study, table: MemoryTable) -> Result<Self, DataError> {
        let DataSpec::Files { layout, schema, .. } = &study.spec().data else {
            return Err(DataError::new("data.source", "is \"synthetic\", so the study takes no data"));
        };
        let encoder = Encoder { schema, classification: study.spec().loss.is_classification() };
        let loaded = files::divide(layout, &table, &encoder)?;
        Self::of_memory(study, schema, loaded, Tables::All(table))
    }

    fn of_memory(study: &Study, schema: &Schema, loaded: Vec<Loaded>, tables: Tables) -> Result<Self, DataError> {
        let population = assemble(study, loaded)?;
        let staged = study.moments().is_some() || study.privacy().is_some_and(|privacy| privacy.after().get() > 0.0);
        let encoded = Some((schema.clone(), study.spec().loss.is_classification()));
        Ok(Self { encoded, tables: staged.then_some(tables), ..population })
    }

    /// The records of clients that are encoded for a study.
    pub fn from_loaded(study: &Study, clients: Vec<Loaded>) -> Result<Self, DataError> {
        assemble(study, clients)
    }

    /// The same records, stored with another clip.
    pub fn with_clipping(&self, clipping: Clipping) -> Self {
        let mut storage = Aligned::zeros(self.storage.len());
        let mut x = vec![0.0; self.features];
        for k in 0..self.clients() {
            let records = self.records(k);
            let own = &mut storage[self.starts[k]..self.starts[k + 1]];
            let layout = RecordLayout { clipping, ..self.layout(k) };
            for j in 0..records.len() {
                let (y, _) = records.read(j, &mut x);
                layout.store(own, j, &x, y);
            }
        }
        let (starts, counts, names) = (self.starts.clone(), self.counts.clone(), self.names.clone());
        let (tables, held, rows) = (None, self.held.clone(), self.rows.clone());
        Self { storage, starts, counts, names, clipping, encoded: None, tables, held, rows, ..*self }
    }

    /// The same rows for another stage of the study: its moments, or the study with standardised columns.
    pub(crate) fn again(&self, study: &Study) -> Result<Self, DataError> {
        match self.tables.clone() {
            Some(Tables::Each(tables)) => Self::from_tables(study, tables),
            Some(Tables::All(table)) => Self::from_table(study, table),
            None => Self::from_tables(study, Vec::new()),
        }
    }

    /// Whether records that [`Population::from_tables`] made were made for a study with these columns, loss and clip.
    pub(crate) fn is_for(&self, study: &Study) -> bool {
        let spec = study.spec();
        let encoded = self.encoded.as_ref().map(|(schema, classification)| (Some(schema), *classification));
        let weighted = self.divisor.is_some() == (spec.weights == Weights::Records)
            && (self.divisor.is_none() || study.mean_records().is_none_or(|mean| self.divisor == Some(mean)));
        weighted && self.clipping == study.clipping() && encoded == Some((spec.schema(), spec.loss.is_classification()))
    }

    /// How many numbers the records of all clients take in memory.
    pub(crate) fn stored(&self) -> usize {
        self.storage.len()
    }

    /// What the records are stored with.
    pub fn clipping(&self) -> Clipping {
        self.clipping
    }

    /// Lays out clients of known sizes and lets `draw` fill each. Where records count the same, `mean` is what sums are divided by if the study does not say it.
    fn fill(
        study: &Study,
        names: Names,
        sizes: &[usize],
        mean: impl Fn() -> f64,
        draw: impl Fn(usize, RecordLayout, &mut [f64]) + Sync,
    ) -> Result<Self, DataError> {
        let (features, clipping) = (study.features(), study.clipping());
        ensure_memory(names.len(), sizes, features)?;
        let divisor = match study.spec().weights {
            Weights::Records => Some(study.divisor(0, mean)),
            Weights::Clients => None,
        };
        let counts: Vec<u32> = (0..names.len()).map(|k| sizes[k % sizes.len()] as u32).collect();
        let size = |count: &u32| size(*count as usize, features);
        let mut starts = Vec::with_capacity(names.len() + 1);
        starts.push(0);
        for (k, count) in counts.iter().enumerate() {
            starts.push(starts[k] + size(count));
        }
        let mut storage = Aligned::zeros(starts[names.len()]);
        let mut parts = Vec::with_capacity(names.len().div_ceil(CHUNK));
        let mut rest = &mut *storage;
        for (chunk, counts) in counts.chunks(CHUNK).enumerate() {
            let (part, tail) = rest.split_at_mut(counts.iter().map(size).sum());
            parts.push((chunk * CHUNK, counts, part));
            rest = tail;
        }
        parts.into_par_iter().for_each(|(first, counts, mut part)| {
            for (k, count) in (first..).zip(counts) {
                let (own, tail) = part.split_at_mut(size(count));
                let (records, divisor) = (*count as usize, divisor.unwrap_or(f64::from(*count)));
                draw(k, RecordLayout { records, features, clipping, divisor, rows: records }, own);
                part = tail;
            }
        });
        let (encoded, tables, held, rows) = (None, None, Vec::new(), Vec::new());
        Ok(Self { storage, starts, counts, features, names, clipping, divisor, encoded, tables, held, rows })
    }

    /// K.
    pub fn clients(&self) -> usize {
        self.names.len()
    }

    /// P, with the intercept if there is one.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The clients' names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// M_k.
    pub fn records_of_clients(&self) -> Vec<usize> {
        self.counts.iter().map(|&count| count as usize).collect()
    }

    /// Number of records of all clients.
    pub fn total_records(&self) -> usize {
        self.counts.iter().map(|&count| count as usize).sum()
    }

    /// The records of client `k`.
    pub fn records(&self, k: usize) -> Records<'_> {
        let storage = &self.storage[self.starts[k]..self.starts[k + 1]];
        self.layout(k).view(storage)
    }

    fn layout(&self, k: usize) -> RecordLayout {
        let records = self.counts[k] as usize;
        RecordLayout {
            records,
            rows: self.rows.get(k).copied().unwrap_or(records),
            features: self.features,
            clipping: self.clipping,
            divisor: self.divisor.unwrap_or(f64::from(self.counts[k])),
        }
    }

    /// What all clients divide their sums by; none where each divides by the number of its own records.
    pub fn divisor(&self) -> Option<f64> {
        self.divisor
    }

    /// What the clients keep out of training, one after the other.
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// Starts to fetch a client's records.
    pub fn prefetch(&self, k: usize) {
        prefetch(&self.storage[self.starts[k]..self.starts[k + 1]]);
    }

    /// The paper's lambda1 = 0.001 ||X^T y||_inf over the pooled data. It depends on private data.
    pub fn paper_lambda1(&self) -> f64 {
        let mut products = vec![0.0; self.features];
        let mut x = vec![0.0; self.features];
        for k in 0..self.clients() {
            let records = self.records(k);
            for j in 0..records.len() {
                let (y, _) = records.read(j, &mut x);
                for (product, x) in products.iter_mut().zip(&x) {
                    *product += x * y;
                }
            }
        }
        0.001 * products.iter().fold(0.0, |m: f64, v| m.max(v.abs()))
    }
}

/// Refuses what does not fit into memory, before anything is allocated.
fn ensure_memory(clients: usize, sizes: &[usize], features: usize) -> Result<(), DataError> {
    let records: usize = (0..clients).map(|k| size(sizes[k % sizes.len()], features)).sum();
    // The records, and up to seven vectors per client while a trial runs.
    let bytes = (records + 7 * clients * features).saturating_mul(size_of::<f64>());
    let reservable = Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
    let available = available_memory();
    if reservable && available.is_none_or(|available| bytes <= available) {
        return Ok(());
    }
    let has = available.map_or(String::new(), |a| format!(", and this machine has {:.1} GB left", a as f64 / 1e9));
    Err(DataError::new(
        "data",
        format!("takes {:.1} GB of memory{has}; ask for fewer clients or records", bytes as f64 / 1e9),
    ))
}

/// Bytes available without swapping, where the system reports it.
fn available_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kb| kb * 1024)
}

/// Streams of this "round" belong to data; noise starts at round 1.
const DATA: u32 = 0;
/// The "client" that draws the unknown w.
const TRUTH: u32 = u32::MAX;
/// The "client" that draws the size of w where it varies; the one between draws the graph.
const SIZE: u32 = u32::MAX - 2;

/// Clients handled by one task; fixed, so that sums over clients have one order on any number of threads.
pub(crate) const CHUNK: usize = 256;

/// Lays out what was read from files.
pub(crate) fn assemble(study: &Study, clients: Vec<Loaded>) -> Result<Population, DataError> {
    let clients: Vec<Loaded> = clients.into_iter().map(|client| client.closed(study)).collect();
    let features = study.features();
    let names = Names::listed(clients.iter().map(|c| c.name.clone()).collect());
    // A client that keeps all of its rows out of training trains on a row of zeros, whose gradient is zero: that it has none must not show.
    let sizes: Vec<usize> = clients.iter().map(|c| c.targets.len().max(1)).collect();
    let share = study.spec().schema().map_or(0.0, |schema| schema.holdout);
    // How many rows are trained on follows from what they say, so what is expected of all rows is divided by.
    let mean = || {
        let all: usize = clients.iter().map(Loaded::total).sum();
        all as f64 / clients.len() as f64 * (1.0 - share)
    };
    let population = Population::fill(study, names, &sizes, mean, |k, layout, storage| {
        let client = &clients[k];
        if client.targets.is_empty() {
            layout.store(storage, 0, &vec![0.0; features], 1.0);
        }
        for (j, x) in client.rows.chunks_exact(features).enumerate() {
            layout.store(storage, j, x, client.targets[j]);
        }
    })?;
    let rows = clients.iter().map(|client| client.total().max(1)).collect();
    Ok(Population { held: clients.into_iter().map(|client| client.held).collect(), rows, ..population })
}

/// Keeps rows that were drawn, and have no text, out of training by what they say.
fn split_off(drawn: Loaded, schema: &Schema, classification: bool) -> Loaded {
    if schema.holdout == 0.0 {
        return drawn;
    }
    let features = drawn.rows.len() / drawn.targets.len().max(1);
    let mut split = Loaded::empty(drawn.name);
    for (x, y) in drawn.rows.chunks_exact(features).zip(&drawn.targets) {
        let cells: Vec<Cell> = x.iter().chain([y]).map(|v| Cell::Number(*v)).collect();
        if schema.holds_out(&cells) {
            split.held.rows.extend(x);
            split.held.truths.push(schema.predicted(*y, classification));
        } else {
            split.rows.extend(x);
            split.targets.push(*y);
        }
    }
    split
}
