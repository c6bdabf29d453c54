//! A disk that fails.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::ledger::{Disk, MemoryDisk, Place};

/// A disk that can fail in the middle of a write: each sector may then have been written or not.
///
/// Copies share their contents: a node has one, and the other keeps what it wrote.
#[derive(Debug, Clone)]
pub struct SimDisk(Rc<RefCell<Platter>>);

#[derive(Debug)]
struct Platter {
    content: MemoryDisk,
    /// The marks beside the ledger, the anchor, which is no part of a backup, and what is known of others.
    marks: [MemoryDisk; 4],
    anchored: bool,
    /// Probability that the node is killed in a write.
    crash: f64,
    /// Whether writes are lost although they were reported as durable.
    lying: bool,
    rng: Xoshiro256PlusPlus,
}

/// A state folder as a backup holds it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Backup {
    /// The ledger.
    pub ledger: Vec<u8>,
    /// The marks beside it.
    pub marks: [Vec<u8>; 2],
    /// What is known of others.
    pub witness: Vec<u8>,
}

/// Bytes that are written together or not at all.
const SECTOR: usize = 64;

impl SimDisk {
    pub(crate) fn new(seed: u64, crash: f64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self(Rc::new(RefCell::new(Platter {
            content: MemoryDisk::default(),
            marks: Default::default(),
            anchored: false,
            crash,
            lying: false,
            rng,
        })))
    }

    /// A disk that does not fail, with what a backup holds.
    pub fn of(backup: Backup) -> Self {
        let disk = Self::new(0, 0.0);
        disk.restore(backup);
        disk
    }

    /// What survives of the folder: the ledger, and the marks beside it.
    pub fn backup(&self) -> Backup {
        let Platter { content, marks, .. } = &*self.0.borrow();
        let [first, second, _, witness] = marks;
        Backup { ledger: content.0.clone(), marks: [first.0.clone(), second.0.clone()], witness: witness.0.clone() }
    }

    /// Replaces the folder, as restoring a backup does.
    pub fn restore(&self, backup: Backup) {
        let Platter { content, marks, .. } = &mut *self.0.borrow_mut();
        content.0 = backup.ledger;
        let [first, second] = backup.marks;
        (marks[0].0, marks[1].0, marks[3].0) = (first, second, backup.witness);
    }

    /// From now on there is an anchor.
    pub fn anchor(&self) {
        self.0.borrow_mut().anchored = true;
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
        let Platter { content, crash, lying, rng, .. } = &mut *self.0.borrow_mut();
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

    fn keeps_marks(&self) -> bool {
        true
    }

    fn has_anchor(&self) -> bool {
        self.0.borrow().anchored
    }

    fn read_mark(&mut self, place: Place) -> io::Result<Vec<u8>> {
        Ok(self.0.borrow().marks[place as usize].0.clone())
    }

    fn write_mark(&mut self, place: Place, at: u64, bytes: &[u8], _durable: bool) -> io::Result<()> {
        let Platter { marks, crash, lying, rng, .. } = &mut *self.0.borrow_mut();
        if *lying {
            return Ok(());
        }
        let kept = match *crash > 0.0 && !bytes.is_empty() && rng.random::<f64>() < *crash {
            true => rng.random_range(0..bytes.len()),
            false => bytes.len(),
        };
        marks[place as usize].write(at, &bytes[..kept])?;
        if kept == bytes.len() { Ok(()) } else { Err(io::Error::other("the node was killed")) }
    }
}
