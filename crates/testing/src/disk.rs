//! A disk that fails.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::ledger::{Disk, MemoryDisk};

/// A disk that can fail in the middle of a write: each sector may then have been written or not.
///
/// Copies share their contents: a node has one, and the other keeps what it wrote.
#[derive(Debug, Clone)]
pub struct SimDisk(Rc<RefCell<Platter>>);

#[derive(Debug)]
struct Platter {
    content: MemoryDisk,
    /// Probability that the node is killed in a write.
    crash: f64,
    /// Whether writes are lost although they were reported as durable.
    lying: bool,
    rng: Xoshiro256PlusPlus,
}

/// Bytes that are written together or not at all.
const SECTOR: usize = 64;

impl SimDisk {
    pub(crate) fn new(seed: u64, crash: f64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self(Rc::new(RefCell::new(Platter { content: MemoryDisk::default(), crash, lying: false, rng })))
    }

    /// What survives.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.borrow().content.0.clone()
    }

    /// Replaces the contents, as restoring a backup does.
    pub fn restore(&self, bytes: Vec<u8>) {
        self.0.borrow_mut().content.0 = bytes;
    }

    /// From now on the disk reports writes as durable and loses them.
    pub fn lie(&self) {
        self.0.borrow_mut().lying = true;
    }
}

impl Disk for SimDisk {
    fn size(&mut self) -> io::Result<u64> {
        self.0.borrow_mut().content.size()
    }

    fn read(&mut self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        self.0.borrow_mut().content.read(at, count)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let Platter { content, crash, lying, rng } = &mut *self.0.borrow_mut();
        if *lying {
            return Ok(());
        }
        if *crash == 0.0 || rng.random::<f64>() >= *crash {
            return content.write(at, bytes);
        }
        let share = rng.random::<f64>();
        for (i, sector) in bytes.chunks(SECTOR).enumerate() {
            if rng.random::<f64>() < share {
                content.write(at + (i * SECTOR) as u64, sector)?;
            }
        }
        Err(io::Error::other("the node was killed"))
    }
}
