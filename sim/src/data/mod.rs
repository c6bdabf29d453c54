//! Who holds which records: drawn at random or read from files, checked, and laid out flat.

mod files;
mod synthetic;
mod table;

use rayon::prelude::*;
use thiserror::Error;
use undertone_core::names::Names;
use undertone_core::privacy::Clip;
use undertone_core::records::{self, Records};
use undertone_core::study::{DataSpec, Study};

/// Data that cannot be used.
#[derive(Debug, Error)]
#[error("{place}: {message}")]
pub struct DataError {
    /// File, and line where there is one.
    pub place: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl DataError {
    fn new(place: impl ToString, message: impl ToString) -> Self {
        Self { place: place.to_string(), message: message.to_string() }
    }
}

/// All clients' records in one piece of memory.
#[derive(Debug)]
pub struct Population {
    storage: Vec<f64>,
    /// Where each client's records start, in records.
    starts: Vec<u64>,
    features: usize,
    names: Names,
}

impl Population {
    /// Draws or reads the data of a study; `trial` picks the draw.
    pub fn load(study: &Study, trial: u32) -> Result<Self, DataError> {
        let clip = study.privacy.filter(|_| study.algorithm.clips()).map(|p| p.clip);
        let classification = study.loss.is_classification();
        match &study.data {
            DataSpec::Synthetic { clients, records, features, noise } => {
                let names = Names::numbered(*clients);
                let law = synthetic::Law::new(study.seed, trial, *features, *noise, classification);
                Ok(Self::fill(names, records, *features, |client, m, storage| law.draw(client, m, clip, storage)))
            }
            DataSpec::Files { layout, path, schema } => {
                let path = path.as_deref().ok_or_else(|| {
                    DataError::new("data.path", "is missing; write it in the study or give --data PATH")
                })?;
                files::load(layout, path, schema, classification, clip)
            }
        }
    }

    /// Lays out clients of known sizes and lets `draw` fill each.
    fn fill(names: Names, sizes: &[usize], features: usize, draw: impl Fn(usize, usize, &mut [f64]) + Sync) -> Self {
        let mut starts = Vec::with_capacity(names.len() + 1);
        starts.push(0);
        for k in 0..names.len() {
            starts.push(starts[k] + sizes[k % sizes.len()] as u64);
        }
        let mut storage = vec![0.0; records::size(starts[names.len()] as usize, features)];
        let mut parts = Vec::with_capacity(names.len().div_ceil(CHUNK));
        let mut rest = storage.as_mut_slice();
        for first in (0..names.len()).step_by(CHUNK) {
            let last = (first + CHUNK).min(names.len());
            let (part, tail) = rest.split_at_mut(records::size((starts[last] - starts[first]) as usize, features));
            parts.push((first, last, part));
            rest = tail;
        }
        parts.into_par_iter().for_each(|(first, last, mut part)| {
            for k in first..last {
                let m = (starts[k + 1] - starts[k]) as usize;
                let (own, tail) = part.split_at_mut(records::size(m, features));
                draw(k, m, own);
                part = tail;
            }
        });
        Self { storage, starts, features, names }
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

    /// Number of records of all clients.
    pub fn total_records(&self) -> usize {
        self.starts[self.clients()] as usize
    }

    /// The records of client `k`.
    pub fn records(&self, k: usize) -> Records<'_> {
        let (start, end) = (self.starts[k] as usize, self.starts[k + 1] as usize);
        let size = |records| records::size(records, self.features);
        Records::new(&self.storage[size(start)..size(end)], end - start, self.features)
    }

    /// The paper's lambda1 = 0.001 ||X^T y||_inf over the pooled data. It looks at private data.
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

/// Clients handled by one task; fixed, so that sums over clients have one order on any number of threads.
pub(crate) const CHUNK: usize = 256;

/// One client's records as they are read.
pub(crate) struct Loaded {
    pub name: String,
    pub rows: Vec<f64>,
    pub targets: Vec<f64>,
}

/// Lays out what was read from files.
pub(crate) fn assemble(clients: Vec<Loaded>, features: usize, clip: Option<Clip>) -> Population {
    let names = Names::listed(clients.iter().map(|c| c.name.clone()).collect());
    let sizes: Vec<usize> = clients.iter().map(|c| c.targets.len()).collect();
    Population::fill(names, &sizes, features, |k, m, storage| {
        let client = &clients[k];
        for (j, x) in client.rows.chunks_exact(features).enumerate() {
            records::store(storage, m, j, x, client.targets[j], clip);
        }
    })
}
