//! The records of all clients: drawn at random or read from files, checked, and stored in one array.

mod files;
mod stand_in;
mod synthetic;

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undertone_core::exact_sum::ExactSum;
use undertone_core::names::Names;
use undertone_core::privacy::Clipping;
use undertone_core::problem::Weights;
use undertone_core::records::{Precision, RecordLayout, Records, size};
use undertone_core::schema::{Cell, Schema};
use undertone_core::study::{DataSpec, Layout, Study};
use undertone_data::{DataError, Encoder, Held, Loaded, MemoryTable};

pub use files::check_heads;

use crate::aligned::Aligned;
use crate::error::SimError;
use crate::prefetch::prefetch;
use crate::ranks::{Alone, Ranks};

/// The records of all clients, or of those that one of several ranks owns, in one piece of memory.
///
/// What belongs to a client whose records are here is found by its place among them: its index, where all are here.
pub struct Population {
    storage: Aligned,
    /// The clients whose records are here, if not all are.
    own: Option<Arc<[u32]>>,
    /// Where the storage of each of them starts.
    starts: Vec<usize>,
    /// M_k of all clients.
    counts: Vec<u32>,
    features: usize,
    names: Names,
    clipping: Clipping,
    precision: Precision,
    /// What all clients divide their sums by; none where each divides by the number of its own records.
    divisor: Option<f64>,
    /// How rows from memory became records.
    encoded: Option<(Schema, bool)>,
    /// The rows, where they have to be encoded once more.
    tables: Option<Tables>,
    /// What each client whose records are here keeps out of training.
    held: Vec<Held>,
    /// How many rows each client has, where it keeps some out of training.
    rows: Vec<usize>,
}

/// How many records a client trains on, and how many rows it has: what others may know of it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Extent {
    records: usize,
    rows: usize,
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
                Self::fill(
                    study,
                    names,
                    None,
                    records,
                    || mean_of(*clients, records),
                    |client, layout, storage| law.draw(client, layout, storage),
                )
            }
            DataSpec::Files { layout: Layout::StandIn { clients, records, noise }, schema, .. } => {
                let sizes = (0..clients.len()).map(|k| records[k % records.len()]);
                ensure_memory(sizes, schema.feature_names().len(), spec.precision)?;
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

    /// Draws synthetic records, of all clients or of some.
    fn synthetic(study: &Study, trial: u32, own: Option<Arc<[u32]>>) -> Result<Self, DataError> {
        let spec = study.spec();
        let DataSpec::Synthetic { clients, records, features, noise, condition, spread } = &spec.data else {
            unreachable!("only of studies with synthetic data");
        };
        let classification = spec.loss.is_classification();
        let law = synthetic::SyntheticLaw::new(spec.seed, trial, *features, *noise, *condition, classification)
            .with_spread(*spread);
        let draw = |client, layout: RecordLayout, storage: &mut [f64]| law.draw(client, layout, storage);
        Self::fill(study, Names::numbered(*clients), own, records, || mean_of(*clients, records), draw)
    }

    /// The names of a study's clients, where reading records is not needed to know them.
    pub(crate) fn names_of(study: &Study) -> Result<Option<Names>, DataError> {
        Ok(match &study.spec().data {
            DataSpec::Synthetic { clients, .. } => Some(Names::numbered(*clients)),
            DataSpec::Files { layout: Layout::Folder, .. } => Some(Names::listed(check_heads(study.spec())?)),
            DataSpec::Files { .. } => None,
        })
    }

    /// The same as [`Population::load`] with the records of some clients alone: only theirs are drawn, or read where they have files of their own. All ranks call it.
    pub(crate) fn load_own(study: &Study, trial: u32, own: &Arc<[u32]>, ranks: &dyn Ranks) -> Result<Self, SimError> {
        let spec = study.spec();
        let classification = spec.loss.is_classification();
        match &spec.data {
            DataSpec::Synthetic { .. } => Ok(Self::synthetic(study, trial, Some(own.clone()))?),
            DataSpec::Files { layout: Layout::Folder, path, schema, csv, .. } => {
                let read = || {
                    let path = path.as_deref().ok_or_else(DataError::no_path)?;
                    files::load_own(path, *csv, schema, classification, own)
                };
                let loaded: Vec<Loaded> = ranks
                    .agree(read().map_err(SimError::Data))?
                    .into_iter()
                    .map(|client| client.closed(study))
                    .collect();
                let mine: Vec<(u32, Extent)> = own.iter().copied().zip(loaded.iter().map(Extent::of)).collect();
                let mut all: Vec<(u32, Extent)> = ranks.gather_all(&mine).concat();
                all.sort_unstable_by_key(|(id, _)| *id);
                let extents: Vec<Extent> = all.into_iter().map(|(_, extent)| extent).collect();
                let names = Names::listed(check_heads(spec)?);
                Ok(assemble_own(study, names, Some(own.clone()), loaded, &extents)?)
            }
            DataSpec::Files { .. } => Ok(Self::load(study, trial)?.only(own)),
        }
    }

    /// The records of these clients alone.
    fn only(&self, own: &Arc<[u32]>) -> Self {
        let size = |k: usize| self.starts[k + 1] - self.starts[k];
        let mut storage = Aligned::zeros(own.iter().map(|&k| size(k as usize)).sum());
        let mut starts = vec![0];
        for &k in own.iter() {
            let (k, start) = (k as usize, starts[starts.len() - 1]);
            let end = start + size(k);
            storage[start..end].copy_from_slice(&self.storage[self.starts[k]..self.starts[k + 1]]);
            starts.push(end);
        }
        let held = own.iter().filter_map(|&k| self.held.get(k as usize).cloned()).collect();
        let (counts, names, rows) = (self.counts.clone(), self.names.clone(), self.rows.clone());
        Self {
            storage,
            own: Some(own.clone()),
            starts,
            counts,
            names,
            encoded: None,
            tables: None,
            held,
            rows,
            ..*self
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
        for k in 0..self.places() {
            let records = self.records(k);
            let own = &mut storage[self.starts[k]..self.starts[k + 1]];
            let layout = RecordLayout { clipping, ..self.layout(k) };
            for j in 0..records.len() {
                let (y, _) = records.read(j, &mut x);
                layout.store(own, j, &x, y);
            }
        }
        let (starts, counts, names) = (self.starts.clone(), self.counts.clone(), self.names.clone());
        let (own, tables, held, rows) = (self.own.clone(), None, self.held.clone(), self.rows.clone());
        Self { storage, own, starts, counts, names, clipping, encoded: None, tables, held, rows, ..*self }
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
        weighted
            && (self.clipping, self.precision) == (study.clipping(), spec.precision)
            && encoded == Some((spec.schema(), spec.loss.is_classification()))
    }

    /// How many numbers the records of all clients take in memory.
    pub(crate) fn stored(&self) -> usize {
        self.counts.iter().map(|&count| size(count as usize, self.features, self.precision)).sum()
    }

    /// What the records are stored with.
    pub fn clipping(&self) -> Clipping {
        self.clipping
    }

    /// Lays out clients of known sizes, all or some, and lets `draw` fill each. Where records count the same, `mean` is what sums are divided by if the study does not say it.
    fn fill(
        study: &Study,
        names: Names,
        own: Option<Arc<[u32]>>,
        sizes: &[usize],
        mean: impl Fn() -> f64,
        draw: impl Fn(usize, RecordLayout, &mut [f64]) + Sync,
    ) -> Result<Self, DataError> {
        let (features, clipping, precision) = (study.features(), study.clipping(), study.spec().precision);
        let places = own.as_ref().map_or(names.len(), |own| own.len());
        let id = |place: usize| own.as_ref().map_or(place, |own| own[place] as usize);
        ensure_memory((0..places).map(|place| sizes[id(place) % sizes.len()]), features, precision)?;
        let divisor = match study.spec().weights {
            Weights::Records => Some(study.divisor(0, mean)),
            Weights::Clients => None,
        };
        let counts: Vec<u32> = (0..names.len()).map(|k| sizes[k % sizes.len()] as u32).collect();
        let size = |place: usize| size(counts[id(place)] as usize, features, precision);
        let mut starts = Vec::with_capacity(places + 1);
        starts.push(0);
        for place in 0..places {
            starts.push(starts[place] + size(place));
        }
        let mut storage = Aligned::zeros(starts[places]);
        let mut parts = Vec::with_capacity(places.div_ceil(CHUNK));
        let mut rest = &mut *storage;
        for first in (0..places).step_by(CHUNK) {
            let end = (first + CHUNK).min(places);
            let (part, tail) = rest.split_at_mut(starts[end] - starts[first]);
            parts.push((first..end, part));
            rest = tail;
        }
        parts.into_par_iter().for_each(|(chunk, mut part)| {
            for place in chunk {
                let (storage, tail) = part.split_at_mut(size(place));
                let records = counts[id(place)] as usize;
                let divisor = divisor.unwrap_or(records as f64);
                let layout = RecordLayout { records, features, clipping, precision, divisor, rows: records };
                draw(id(place), layout, storage);
                part = tail;
            }
        });
        let (encoded, tables, held, rows) = (None, None, Vec::new(), Vec::new());
        Ok(Self {
            storage,
            own,
            starts,
            counts,
            features,
            names,
            clipping,
            precision,
            divisor,
            encoded,
            tables,
            held,
            rows,
        })
    }

    /// K.
    pub fn clients(&self) -> usize {
        self.names.len()
    }

    /// The number of clients whose records are here.
    pub(crate) fn places(&self) -> usize {
        self.starts.len() - 1
    }

    /// The client at a place.
    #[inline]
    pub(crate) fn client(&self, place: usize) -> usize {
        self.own.as_ref().map_or(place, |own| own[place] as usize)
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

    /// The records of the client at a place.
    pub fn records(&self, place: usize) -> Records<'_> {
        self.layout(place).view(self.stored_at(place))
    }

    /// The numbers that the records of the client at a place are stored as.
    pub(crate) fn stored_at(&self, place: usize) -> &[f64] {
        &self.storage[self.starts[place]..self.starts[place + 1]]
    }

    fn layout(&self, place: usize) -> RecordLayout {
        let client = self.client(place);
        let records = self.counts[client] as usize;
        RecordLayout {
            records,
            rows: self.rows.get(client).copied().unwrap_or(records),
            features: self.features,
            clipping: self.clipping,
            precision: self.precision,
            divisor: self.divisor.unwrap_or(records as f64),
        }
    }

    /// What all clients divide their sums by; none where each divides by the number of its own records.
    pub fn divisor(&self) -> Option<f64> {
        self.divisor
    }

    /// What the clients whose records are here keep out of training, one after the other.
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// Starts to fetch a client's records.
    pub fn prefetch(&self, k: usize) {
        prefetch(&self.storage[self.starts[k]..self.starts[k + 1]]);
    }

    /// The paper's lambda1 = 0.001 ||X^T y||_inf over the pooled data. It depends on private data.
    pub fn paper_lambda1(&self) -> f64 {
        self.paper_lambda1_of(&Alone)
    }

    /// The same over what all ranks have.
    pub(crate) fn paper_lambda1_of(&self, ranks: &dyn Ranks) -> f64 {
        let mut products = vec![ExactSum::default(); self.features];
        let mut x = vec![0.0; self.features];
        for place in 0..self.places() {
            let records = self.records(place);
            for j in 0..records.len() {
                let (y, _) = records.read(j, &mut x);
                products.iter_mut().zip(&x).for_each(|(product, x)| product.add(x * y));
            }
        }
        ranks.total(&mut products);
        0.001 * products.iter().fold(0.0, |m: f64, v| m.max(v.value().abs()))
    }
}

impl Extent {
    /// Of a client; one that keeps all of its rows out of training trains on a row of zeros, whose gradient is zero: that it has none must not show.
    fn of(client: &Loaded) -> Self {
        Self { records: client.targets.len().max(1), rows: client.total() }
    }
}

/// The mean of so many numbers, which repeat.
fn mean_of(clients: usize, records: &[usize]) -> f64 {
    (0..clients).map(|k| records[k % records.len()] as f64).sum::<f64>() / clients as f64
}

/// Refuses what does not fit into memory, before anything is allocated.
fn ensure_memory(sizes: impl Iterator<Item = usize>, features: usize, precision: Precision) -> Result<(), DataError> {
    // The records, and up to seven vectors per client while a trial runs.
    let numbers: usize = sizes.map(|records| size(records, features, precision) + 7 * features).sum();
    let bytes = numbers.saturating_mul(size_of::<f64>());
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
    let names = Names::listed(clients.iter().map(|c| c.name.clone()).collect());
    let extents: Vec<Extent> = clients.iter().map(Extent::of).collect();
    assemble_own(study, names, None, clients, &extents)
}

/// The same for some of the clients, with what is known of all.
fn assemble_own(
    study: &Study,
    names: Names,
    own: Option<Arc<[u32]>>,
    clients: Vec<Loaded>,
    extents: &[Extent],
) -> Result<Population, DataError> {
    let features = study.features();
    let sizes: Vec<usize> = extents.iter().map(|extent| extent.records).collect();
    let share = study.spec().schema().map_or(0.0, |schema| schema.holdout);
    // How many rows are trained on follows from what they say, so what is expected of all rows is divided by.
    let mean = || {
        let all: usize = extents.iter().map(|extent| extent.rows).sum();
        all as f64 / extents.len() as f64 * (1.0 - share)
    };
    let place: HashMap<usize, usize> = match &own {
        None => HashMap::new(),
        Some(own) => own.iter().enumerate().map(|(place, &k)| (k as usize, place)).collect(),
    };
    let population = Population::fill(study, names, own, &sizes, mean, |k, layout, storage| {
        let client = &clients[place.get(&k).copied().unwrap_or(k)];
        if client.targets.is_empty() {
            layout.store(storage, 0, &vec![0.0; features], 1.0);
        }
        for (j, x) in client.rows.chunks_exact(features).enumerate() {
            layout.store(storage, j, x, client.targets[j]);
        }
    })?;
    let rows = extents.iter().map(|extent| extent.rows.max(1)).collect();
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
