//! The write-ahead privacy ledger of a data set.
//!
//! A release is written here, durably, before it is sent. The bytes sent are the bytes written: after any crash the same
//! bytes are sent again, and no round is noised twice. The only way to get a frame to send is
//! [`Ledger::record`], which returns after the disk has confirmed the write.
//!
//! The ledger is one file of hash-chained records, appended and never rewritten, followed by zeros written in advance so
//! that an append does not have to grow the file. It belongs to the data, not to a study: every study that the data
//! is used in adds to it.
//!
//! **When a record cannot be read.** The last one may have been cut off by a crash. Its message was not sent, but
//! the part of it that reached the disk may have been computed from the records, so its round is charged and retired: the
//! peer computes it without them. If an earlier record is damaged, what was sent is unknown, and the ledger is
//! refused.
//!
//! **When records are gone.** How far the ledger is, is also kept beside it, in [`Mark`]s. A ledger that is shorter than a mark says was cut off, emptied or replaced by an
//! older one, and is refused too.

mod contents;
mod mark;
pub mod record;

use std::io;
use std::sync::Arc;

use thiserror::Error;

use contents::read_record;
pub use contents::{Contents, Participation};
pub use mark::{Mark, PLACE};
pub use record::{Begin, EdgeRecord, Record, RoundRecord};

use crate::client::{Cost, Release};
use crate::identity::Identity;
use crate::message::{Chain, Final, Head, Message, Outgoing, Receipt, decode};
use crate::privacy::{ClientBudget, Spent};
use crate::study::Limits;

/// A disk as the ledger needs it. The real one is in `undertone-peer`, simulated ones are in the tests.
pub trait Disk {
    /// Length of the file in bytes.
    fn size(&mut self) -> io::Result<u64>;
    /// Up to `count` bytes from `at` on; fewer only at the end of the file.
    fn read(&mut self, at: u64, count: usize) -> io::Result<Vec<u8>>;
    /// Writes bytes, growing the file where needed, and returns when they will survive a loss of power.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Whether marks are kept beside the ledger. Only disks of tests and measurements keep none.
    fn keeps_marks(&self) -> bool {
        false
    }

    /// Whether the owner named a place outside of the folder for a mark.
    fn has_anchor(&self) -> bool {
        false
    }

    /// What a place holds; empty if it holds nothing yet.
    fn read_mark(&mut self, _place: Place) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Writes to a place; if `durable`, returns when it, and what was written there before, will survive a loss of power. A mark's place has [`PLACE`] bytes.
    fn write_mark(&mut self, _place: Place, _at: u64, _bytes: &[u8], _durable: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Where something is kept outside of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Beside the ledger.
    First,
    /// Beside the ledger, once more.
    Second,
    /// Where the owner says.
    Anchor,
    /// Beside the ledger: not a mark, but what this peer knows of others.
    Witness,
}

impl Place {
    /// Those beside the ledger.
    pub const BESIDE: [Self; 2] = [Self::First, Self::Second];
}

/// A disk in memory, without durability, for tests and measurements.
#[derive(Debug, Default, Clone)]
pub struct MemoryDisk(pub Vec<u8>);

impl Disk for MemoryDisk {
    fn size(&mut self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&mut self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        let start = (at as usize).min(self.0.len());
        Ok(self.0[start..(start + count).min(self.0.len())].to_vec())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let end = at as usize + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[at as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

/// A ledger that cannot be used, or a record that may not be written.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// The disk failed.
    #[error(
        "the ledger cannot be {0} ({1}); nothing more was sent. Repair the disk or free space, then start the peer again"
    )]
    Disk(&'static str, io::Error),
    /// It is not a ledger.
    #[error(
        "this is not a ledger of this version of Undertone, or its first record is damaged; restore nothing over it: if \
         this data was never used in a study, give an empty folder, otherwise ask the owner of the data"
    )]
    NotALedger,
    /// It belongs to another key.
    #[error("the ledger belongs to the key {found}, not to {expected}; give that key, or the folder of this one")]
    Foreign {
        /// The key that it belongs to.
        found: String,
        /// The expected key.
        expected: String,
    },
    /// A record before the last is damaged.
    #[error(
        "the ledger is damaged at byte {at}, before its last record: what was sent after that is unknown, so this \
         data can take part in no further study with this ledger"
    )]
    Damaged {
        /// Where.
        at: u64,
    },
    /// It has fewer records than were written to it.
    #[error(
        "the ledger has {found} of the {known} records that were written to it: it was cut off, emptied or replaced by an older one. At least rho {spent} was spent, \
         and what was sent since is unknown. Restore the newest folder if there is one; otherwise this data can take part in no further study"
    )]
    Shortened {
        /// How many it has.
        found: u64,
        /// How many it had.
        known: u64,
        /// What was spent then, whoever colludes.
        spent: f64,
    },
    /// Nothing says how many records it should have.
    #[error(
        "the two marks beside the ledger, which say how far it is, are missing or damaged, so nothing shows that the ledger is whole; restore them with the ledger \
         that they belong to; otherwise this data can take part in no further study"
    )]
    NoMarks,
    /// What is where the anchor should be is something else.
    #[error(
        "what is at the place of the anchor is no mark of a ledger; name another place, or empty it if it is damaged and you know that this ledger is the newest"
    )]
    NotAnAnchor,
    /// The anchor is ahead of it.
    #[error(
        "the anchor knows {known} records of this ledger, which has {found}: the state folder was restored from a backup or copied. Restore the newest folder; never run an older one"
    )]
    BehindAnchor {
        /// How many it has.
        found: u64,
        /// How many it had.
        known: u64,
    },
    /// The anchor is that of another ledger.
    #[error("the anchor belongs to another ledger, of the key {0}; give every ledger an anchor of its own")]
    ForeignAnchor(String),
    /// The study was started with other data.
    #[error("the study was started with other data than given now; give the file that it was started with")]
    OtherData,
    /// The round is not the next.
    #[error("round {0} is not the next one of the ledger; two programs may be using the folder")]
    OutOfTurn(u32),
    /// The run of this study in the ledger has another shape or another kind of noise.
    #[error("the ledger knows this study with other rounds, features or noise; use the study as it was begun")]
    OtherStudy,
    /// A study that promises privacy cannot hold a release without it.
    #[error("round {0} was released without the protection that the study promises; nothing was sent")]
    Unprotected(u32),
    /// The release was noised for another budget.
    #[error("round {0} was noised for another budget than the ledger's; nothing was sent")]
    OtherCost(u32),
    /// The round was charged already, or the allowed budget is spent.
    #[error("round {0} may not be noised: it was already charged, or the budget is spent")]
    NotAllowed(u32),
}

/// A release whose record is durable. Only such a release becomes a round's frame.
#[derive(Debug, Clone)]
pub struct Sealed {
    frame: Outgoing,
    receipt: Receipt,
    prior: Head,
    signature: Option<[u8; 64]>,
}

impl Sealed {
    /// The frame.
    pub fn frame(&self) -> &Outgoing {
        &self.frame
    }

    /// Its round, the chain up to it, and its tag.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The release of the last round, as it is forwarded.
    pub fn as_final(&self, author: u32, limits: &Limits) -> Option<Outgoing> {
        let signature = self.signature.filter(|_| self.receipt.round == limits.rounds)?;
        match decode(self.frame.bytes(), limits) {
            Ok(Message::Round(release)) => {
                Some(Final { author, prior: self.prior, payload: release.payload, signature }.encode())
            }
            _ => None,
        }
    }
}

/// What a peer carries into the next round, recorded with a release.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// The chain of releases before this one.
    pub prior: Head,
    /// The algorithm's vectors, gamma_k first if there is one.
    pub memory: Vec<f64>,
    /// One for each neighbour, by ascending id.
    pub edges: Vec<EdgeRecord>,
}

/// Where a peer continues after a start.
#[derive(Debug)]
pub struct Resumed {
    /// The last release and what came with it; none before the first round.
    pub last: Option<RoundRecord>,
    /// The frames that a neighbour may still need: the last two.
    pub frames: Vec<Sealed>,
    /// Neighbours that were dropped.
    pub dropped: Vec<u32>,
}

/// A ledger that can be added to.
pub struct Ledger<D> {
    disk: D,
    identity: Arc<Identity>,
    contents: Contents,
    run: u32,
    chain: Chain,
    limits: Limits,
    budget: Option<ClientBudget>,
}

impl<D: Disk> Ledger<D> {
    /// Opens a ledger, or starts one in an empty file, and enters a study or continues it.
    ///
    /// `budget` is what this study may spend; beyond it the peer goes on without its records. There is none without privacy.
    pub fn enter(
        mut disk: D,
        identity: Arc<Identity>,
        chain: Chain,
        limits: Limits,
        begin: Begin,
        budget: Option<ClientBudget>,
    ) -> Result<(Self, Resumed), LedgerError> {
        let contents = match Contents::read(&mut disk)? {
            Some(contents) => contents,
            None => Contents::start(&mut disk, identity.id())?,
        };
        if contents.owner != identity.id() {
            return Err(LedgerError::Foreign {
                found: contents.owner.to_string(),
                expected: identity.id().to_string(),
            });
        }
        if begin.protected && budget.is_none() {
            return Err(LedgerError::OtherStudy);
        }
        let mut ledger = Self { disk, identity, contents, run: 0, chain, limits, budget };
        ledger.settle()?;
        let known = ledger.contents.runs.iter().position(|run| run.begin.study == begin.study);
        ledger.run = match known {
            Some(run) if ledger.contents.runs[run].begin.data != begin.data => return Err(LedgerError::OtherData),
            Some(run) if !ledger.contents.runs[run].begin.is_like(&begin) => return Err(LedgerError::OtherStudy),
            Some(run) => {
                let run = run as u32;
                // A truncated record must be assigned to the run that wrote it.
                if ledger.contents.current != Some(run) {
                    ledger.append(Record::Resume { run })?;
                }
                run
            }
            None => {
                ledger.append(Record::Begin(begin))?;
                ledger.contents.runs.len() as u32 - 1
            }
        };
        let resumed = ledger.resume()?;
        Ok((ledger, resumed))
    }

    /// Writes the last record once more: if the system lost it after a failed write, it may have been read from
    /// memory only. Then records the charge for a truncated record.
    fn settle(&mut self) -> Result<(), LedgerError> {
        let at = self.contents.end - self.contents.last.len() as u64;
        self.disk.write(at, &self.contents.last).map_err(|e| LedgerError::Disk("written", e))?;
        self.contents.mark(&mut self.disk, true, self.contents.is_anchored)?;
        if self.contents.torn {
            let current = self.contents.current.map(|run| (run, &self.contents.runs[run as usize]));
            let charged = current.and_then(|(index, run)| Some((index, run.retired?, run.next)));
            if let Some((run, round, cost)) = charged {
                self.append(Record::Charge { run, round, cost })?;
            }
        }
        Ok(())
    }

    /// What this peer knew of others.
    pub(crate) fn read_witness(&mut self) -> Result<Vec<u8>, LedgerError> {
        self.disk.read_mark(Place::Witness).map_err(|e| LedgerError::Disk("read", e))
    }

    /// Writes what this peer knows of others; if `durable`, all of it will survive a loss of power.
    pub(crate) fn write_witness(&mut self, at: u64, bytes: &[u8], durable: bool) -> Result<(), LedgerError> {
        self.disk.write_mark(Place::Witness, at, bytes, durable).map_err(|e| LedgerError::Disk("written", e))
    }

    /// The last two releases of the current run.
    fn resume(&mut self) -> Result<Resumed, LedgerError> {
        let run = self.run().clone();
        let mut resumed =
            Resumed { last: None, frames: Vec::new(), dropped: run.dropped.iter().map(|d| d.0).collect() };
        for at in run.at.into_iter().flatten() {
            let found = read_record(&mut self.disk, at).map_err(|e| LedgerError::Disk("read", e))?;
            let Some((record::Found { record: Some(Record::Round(record)), .. }, _)) = found else {
                return Err(LedgerError::Damaged { at });
            };
            let memory = run.begin.memory as usize * self.limits.features;
            if record.released.len() != self.limits.features || record.memory.len() != memory {
                return Err(LedgerError::Damaged { at });
            }
            resumed.frames.push(self.seal(&record));
            resumed.last = Some(record);
        }
        Ok(resumed)
    }

    fn seal(&self, record: &RoundRecord) -> Sealed {
        let (frame, receipt, signature) =
            self.chain.release(&self.identity, &self.limits, &record.prior, record.round, &record.released);
        Sealed { frame, receipt, prior: record.prior, signature }
    }

    /// The ledger's entry for the current study.
    pub fn run(&self) -> &Participation {
        &self.contents.runs[self.run as usize]
    }

    /// The contents of the ledger.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Whether the owner's anchor showed that nothing was sent that is not in here.
    pub fn is_anchored(&self) -> bool {
        self.contents.is_anchored
    }

    /// Whether the next round may be computed from the records: it was not charged before, and its cost is within the budget.
    pub fn may_use_records(&self) -> bool {
        let (run, next) = (self.run(), self.run().round + 1);
        run.retired != Some(next) && self.budget.as_ref().is_none_or(|budget| budget.allows(run.spent, next))
    }

    /// Makes a release durable, with all that is needed to go on from it, and hands out the frame that carries it.
    ///
    /// What it costs is what the release itself says. A release that the budget does not allow is refused.
    pub fn record(&mut self, release: &Release, carried: Carried) -> Result<Sealed, LedgerError> {
        let (run, round) = (self.run(), release.round());
        if round != run.round + 1 || round > self.limits.rounds {
            return Err(LedgerError::OutOfTurn(round));
        }
        if release.values().len() != self.limits.features {
            return Err(LedgerError::OtherStudy);
        }
        let due = self.budget.as_ref().map(|budget| budget.cost(round));
        match release.cost() {
            Cost::Mixed | Cost::Withheld => {}
            Cost::Unprotected | Cost::Rehearsed(_) if run.begin.protected => {
                return Err(LedgerError::Unprotected(round));
            }
            // What was noised for another budget than this one was not what `may_use_records` asks about.
            Cost::Noised(cost) | Cost::Rehearsed(cost) if due != Some(cost) => {
                return Err(LedgerError::OtherCost(round));
            }
            _ if !self.may_use_records() => return Err(LedgerError::NotAllowed(round)),
            _ => {}
        }
        let Carried { prior, memory, edges } = carried;
        let record = RoundRecord {
            run: self.run,
            round,
            cost: release.cost(),
            next: self.budget.as_ref().map_or(Spent::ZERO, |budget| budget.cost(round + 1)),
            prior,
            released: release.values().to_vec(),
            memory,
            edges,
        };
        let sealed = self.seal(&record);
        self.append(Record::Round(record))?;
        Ok(sealed)
    }

    /// Records a dropped edge durably.
    pub fn drop_edge(&mut self, neighbour: u32) -> Result<(), LedgerError> {
        let record = Record::Drop { run: self.run, neighbour, round: self.run().round };
        self.append(record)
    }

    fn append(&mut self, record: Record) -> Result<(), LedgerError> {
        self.contents.append(&mut self.disk, record)
    }
}
