//! Runs that are shared by several processes, on one machine or many.
//!
//! Every process, or rank, owns some of the clients, holds only their records, and computes only their rounds. Before a round it needs what the
//! neighbours of its clients released, so ranks exchange these points and nothing else ([`Share`]). Sums over clients are exact
//! ([`undertone_core::exact_sum`]), so the bits of a result depend neither on how many ranks there are nor on who has which client.
//!
//! [`Ranks`] is what this needs of the machinery between processes. [`Alone`] is one process; `Mpi`, with the feature of that name, is MPI.

#[cfg(feature = "mpi")]
mod mpi;
pub(crate) mod share;

use std::cell::RefCell;
use std::rc::Rc;

use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use undertone_core::exact_sum::{ExactSum, PARTS, of_columns};

#[cfg(feature = "mpi")]
pub use mpi::{Mpi, abort};
pub use share::{Share, at_random, cut};

use crate::error::SimError;

/// Points for another rank.
pub type Sent<'a> = (usize, &'a [f64]);
/// Where points of another rank go.
pub type Received<'a> = (usize, &'a mut [f64]);

/// The processes that share a run. All call the same methods in the same order; a process that cannot go on takes the others with it.
pub trait Ranks {
    /// Which of them this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Sends points to other ranks and receives theirs, and does something else meanwhile.
    fn exchange(&self, sent: &[Sent], received: Vec<Received>, meanwhile: &mut dyn FnMut());

    /// Replaces numbers by their sums over all ranks.
    fn add(&self, numbers: &mut [i64]);

    /// What every rank gives, by rank: for the first one, or for all.
    fn gather(&self, own: &[u8], for_all: bool) -> Option<Vec<Vec<u8>>>;

    /// Waits until all are here.
    fn wait(&self) {
        self.add(&mut []);
    }
}

/// One process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn exchange(&self, _: &[Sent], _: Vec<Received>, meanwhile: &mut dyn FnMut()) {
        meanwhile();
    }

    fn add(&self, _: &mut [i64]) {}

    fn gather(&self, own: &[u8], _: bool) -> Option<Vec<Vec<u8>>> {
        Some(vec![own.to_vec()])
    }
}

impl dyn Ranks + '_ {
    /// Whether this is the process that reports.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Whether there are others.
    pub fn is_alone(&self) -> bool {
        self.size() == 1
    }

    /// The sums over all ranks of what each has.
    pub(crate) fn total(&self, sums: &mut [ExactSum]) {
        if self.is_alone() {
            return;
        }
        let mut parts: Vec<i64> = sums.iter_mut().flat_map(ExactSum::parts).collect();
        self.add(&mut parts);
        for (sum, parts) in sums.iter_mut().zip(parts.chunks_exact(PARTS)) {
            *sum = ExactSum::default();
            sum.add_parts(parts);
        }
    }

    /// The mean of rows of all ranks, which lie one after the other, and how many there are.
    pub(crate) fn mean<'a>(&self, rows: impl Iterator<Item = &'a [f64]>, columns: usize) -> (Vec<f64>, usize) {
        let mut count = 0;
        let mut sums = of_columns(rows.inspect(|_| count += 1), columns);
        self.total(&mut sums);
        let mut all = [count];
        self.add(&mut all);
        (sums.iter().map(|sum| sum.value() / all[0] as f64).collect(), all[0] as usize)
    }

    /// What every rank has to say, by rank, for all of them.
    pub fn gather_all<T: Serialize + DeserializeOwned>(&self, own: &T) -> Vec<T> {
        self.gather(&packed(own), true).expect("for all").iter().map(|bytes| unpacked(bytes)).collect()
    }

    /// The same for the first rank alone.
    pub(crate) fn gather_first<T: Serialize + DeserializeOwned>(&self, own: &T) -> Option<Vec<T>> {
        Some(self.gather(&packed(own), false)?.iter().map(|bytes| unpacked(bytes)).collect())
    }

    /// What the first rank says; it alone is asked for it.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, say: impl FnOnce() -> T) -> T {
        if self.is_alone() {
            return say();
        }
        let own: Option<T> = if self.is_first() { Some(say()) } else { None };
        self.gather_all(&own).swap_remove(0).expect("said by the first")
    }

    /// The result, if all ranks have one. Else the earliest error, on every rank.
    pub fn agree<T>(&self, own: Result<T, SimError>) -> Result<T, SimError> {
        if self.is_alone() {
            return own;
        }
        let said = own.as_ref().err().map(|error| (error.round(), error.to_string(), error.is_of_the_machine()));
        let all = self.gather_all(&said).into_iter().enumerate().filter_map(|(rank, said)| Some((rank, said?)));
        match (own, all.min_by_key(|(rank, (round, ..))| (*round, *rank))) {
            (own, None) => own,
            (Err(own), Some((rank, _))) if rank == self.rank() => Err(own),
            (_, Some((rank, (_, message, machine)))) => Err(SimError::OnRank { rank, message, machine }),
        }
    }
}

thread_local! {
    /// The ranks that share what [`each`] does on this thread.
    static HELPERS: RefCell<Option<Rc<dyn Ranks>>> = const { RefCell::new(None) };
}

/// Does something during which [`each`], called from the same thread, is shared by these ranks. All of them do the same.
pub fn helped_by<T>(ranks: &Rc<dyn Ranks>, work: impl FnOnce() -> T) -> T {
    let before = HELPERS.replace(Some(ranks.clone()));
    let done = work();
    HELPERS.replace(before);
    done
}

/// Does something for every number below `count`, on all threads, and where there are ranks to help on theirs; every rank has all results.
pub fn each<T: Send + Serialize + DeserializeOwned>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let helpers = HELPERS.with_borrow(Clone::clone);
    let Some(ranks) = helpers.filter(|ranks| ranks.size() > 1) else {
        return (0..count).into_par_iter().map(&work).collect();
    };
    let (rank, size) = (ranks.rank(), ranks.size());
    let own: Vec<T> = (0..count).into_par_iter().filter(|i| i % size == rank).map(&work).collect();
    let mut all: Vec<_> = ranks.gather_all(&own).into_iter().map(Vec::into_iter).collect();
    (0..count).map(|i| all[i % size].next().expect("a result for every number")).collect()
}

/// Plain data as bytes.
pub(crate) fn packed<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain data")
}

/// What [`packed`] made.
pub(crate) fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> T {
    postcard::from_bytes(bytes).expect("packed by the same program")
}
