//! The contents of a ledger: reading it, and adding to it.

use std::io;

use super::mark::Mark;
use super::record::{self, ALIGN, Begin, Hash, Record, RoundRecord};
use super::{Disk, LedgerError, Place};
use crate::client::Cost;
use crate::identity::PublicId;
use crate::privacy::Spent;

/// What the ledger contains about one study that used the data.
#[derive(Debug, Clone, PartialEq)]
pub struct Participation {
    /// How it was started.
    pub begin: Begin,
    /// What was spent so far.
    pub spent: Spent,
    /// The last round.
    pub round: u32,
    /// Releases made from the records.
    pub fresh: u32,
    /// Releases of mixing rounds.
    pub mixed: u32,
    /// The next round's cost.
    pub(super) next: Spent,
    /// A round that was charged and will not be noised.
    pub(super) retired: Option<u32>,
    /// Neighbours that were dropped, and when.
    pub dropped: Vec<(u32, u32)>,
    /// Where the last two releases are written.
    pub(super) at: [Option<u64>; 2],
}

impl Participation {
    /// Whether all rounds are done.
    pub fn is_complete(&self) -> bool {
        self.round == self.begin.rounds
    }

    /// Releases that were to be made from the records and were not.
    pub fn withheld(&self) -> u32 {
        self.round - self.fresh - self.mixed
    }
}

/// The contents of a ledger, read-only.
#[derive(Debug)]
pub struct Contents {
    /// The key that it belongs to.
    pub owner: PublicId,
    /// The studies, in the order in which they were started.
    pub runs: Vec<Participation>,
    /// Whether the last record was truncated; its round is charged in `runs`.
    pub torn: bool,
    pub(super) end: u64,
    /// The position after the last byte that is not zero.
    written: u64,
    size: u64,
    head: Hash,
    pub(super) last: Vec<u8>,
    /// How many records there are.
    records: u64,
    /// Whether a mark outside of the folder shows that nothing was sent that is not in this ledger: it is written before a frame is sent.
    pub(super) is_anchored: bool,
    /// The run to which the last record belongs.
    pub(super) current: Option<u32>,
}

/// Bytes read at a time.
const WINDOW: usize = 1 << 16;
/// Zeros written ahead at a time, at least.
const AHEAD: usize = 1 << 16;
/// The marks of these rounds are durable before the round's frame exists.
const MARK_EVERY: u32 = 64;

/// What is known about a ledger from outside of it.
struct Marks {
    /// The newest of the two beside it.
    beside: Option<Mark>,
    anchor: Option<Mark>,
    /// Whether marks are kept at all.
    kept: bool,
    /// Whether both places hold something, and neither a mark. The first write fills one after the other, so a loss of power during it cannot do that.
    damaged: bool,
}

/// Which marks the ledger agrees with, as far as it was read.
#[derive(Default)]
struct Met {
    beside: bool,
    anchor: bool,
    /// Whether a release that costs something follows the anchor's mark: rounds were made without it.
    unanchored: bool,
}

impl Met {
    fn note(&mut self, marks: &Marks, contents: &Contents) {
        let here = |mark: &Mark| {
            (mark.records, mark.end, mark.hash) == (contents.records, contents.end, contents.head)
                && mark.size <= contents.size
        };
        self.beside |= marks.beside.as_ref().is_some_and(here);
        self.anchor |= marks.anchor.as_ref().is_some_and(here);
    }
}

impl Marks {
    fn read(disk: &mut impl Disk) -> Result<Self, LedgerError> {
        if !disk.keeps_marks() {
            return Ok(Self { beside: None, anchor: None, kept: false, damaged: false });
        }
        let has_anchor = disk.has_anchor();
        let mut read = |place: Place| disk.read_mark(place).map_err(|e| LedgerError::Disk("read", e));
        let places = [read(Place::First)?, read(Place::Second)?];
        let anchor = if has_anchor { read(Place::Anchor)? } else { Vec::new() };
        if Mark::is_foreign(&anchor) {
            return Err(LedgerError::NotAnAnchor);
        }
        let damaged = places.iter().all(|bytes| Mark::newest(bytes).is_none() && !bytes.is_empty());
        let beside = places.iter().filter_map(|bytes| Mark::newest(bytes)).max_by_key(|mark| mark.records);
        Ok(Self { beside, anchor: Mark::newest(&anchor), kept: true, damaged })
    }

    fn any(&self) -> Option<&Mark> {
        self.beside.iter().chain(&self.anchor).max_by_key(|mark| mark.records)
    }

    /// What is wrong with a ledger of so many records that has none where a mark says.
    fn shortened(&self, found: u64) -> LedgerError {
        let ahead = |mark: &&Mark| mark.records > found;
        match (self.beside.as_ref().filter(ahead), self.anchor.as_ref().filter(ahead), self.any()) {
            (Some(mark), _, _) => LedgerError::Shortened { found, known: mark.records, spent: mark.spent.alone.get() },
            (None, Some(anchor), _) => LedgerError::BehindAnchor { found, known: anchor.records },
            // As long, but not the same, or in a shorter file.
            (None, None, Some(mark)) => LedgerError::Damaged { at: mark.end },
            (None, None, None) => LedgerError::NoMarks,
        }
    }

    /// Whether a ledger, as far as it can be read, is what the marks say.
    fn check(&self, met: &Met, contents: &Contents) -> Result<(), LedgerError> {
        if !self.kept {
            return Ok(());
        }
        if let Some(anchor) = self.anchor.filter(|anchor| anchor.owner != contents.owner) {
            return Err(LedgerError::ForeignAnchor(anchor.owner.to_string()));
        }
        match &self.beside {
            // The first marks are durable before the second record is written.
            None if self.damaged || contents.records > 1 || contents.torn => return Err(LedgerError::NoMarks),
            Some(_) if !met.beside => return Err(self.shortened(contents.records)),
            _ => {}
        }
        match self.anchor {
            Some(_) if !met.anchor => Err(self.shortened(contents.records)),
            _ => Ok(()),
        }
    }
}

impl Contents {
    /// Reads a ledger; `None` if nothing was recorded yet.
    pub fn read(disk: &mut impl Disk) -> Result<Option<Self>, LedgerError> {
        let unreadable = |e| LedgerError::Disk("read", e);
        let marks = Marks::read(disk)?;
        let size = disk.size().map_err(unreadable)?;
        let written = last_written(disk, size).map_err(unreadable)?;
        let first = match read_record(disk, 0).map_err(unreadable)? {
            Some(first) => first,
            None if marks.any().is_some() || marks.damaged => return Err(marks.shortened(0)),
            // Cut off while its first record was written: nothing was recorded, so nothing was sent.
            None if written <= record::first_length() => return Ok(None),
            None => return Err(LedgerError::NotALedger),
        };
        let (Some(Record::Owner(owner)), bytes) = (first.0.record, first.1) else {
            return Err(LedgerError::NotALedger);
        };
        let end = bytes.len() as u64;
        let mut contents = Self {
            owner,
            runs: Vec::new(),
            torn: false,
            end,
            written,
            size,
            head: first.0.hash,
            last: bytes,
            records: 1,
            is_anchored: false,
            current: None,
        };
        let mut met = Met::default();
        met.note(&marks, &contents);
        while contents.end < written {
            match read_record(disk, contents.end).map_err(unreadable)? {
                Some((found, bytes)) if found.prior == contents.head => {
                    let at = contents.end;
                    let record = found.record.ok_or(LedgerError::Damaged { at })?;
                    met.unanchored |= met.anchor && record.costs();
                    contents.apply(record, at).ok_or(LedgerError::Damaged { at })?;
                    contents.end += bytes.len() as u64;
                    contents.records += 1;
                    contents.head = found.hash;
                    contents.last = bytes;
                    met.note(&marks, &contents);
                }
                _ => {
                    marks.check(&met, &contents)?;
                    contents.check_torn(disk)?;
                    break;
                }
            }
        }
        marks.check(&met, &contents)?;
        contents.is_anchored = met.anchor && !met.unanchored;
        Ok(Some(contents))
    }

    /// Applies one record; `None` if it contradicts earlier ones.
    fn apply(&mut self, record: Record, at: u64) -> Option<()> {
        match record {
            Record::Owner(_) => return None,
            Record::Begin(begin) => {
                self.current = Some(self.runs.len() as u32);
                let next = begin.next;
                let run = Participation {
                    begin,
                    spent: Spent::ZERO,
                    round: 0,
                    fresh: 0,
                    mixed: 0,
                    next,
                    retired: None,
                    dropped: vec![],
                    at: [None; 2],
                };
                self.runs.push(run);
            }
            Record::Round(record) => {
                self.current = Some(record.run);
                self.runs.get_mut(record.run as usize)?.apply(&record, at)?;
            }
            Record::Drop { run, neighbour, round } => {
                self.current = Some(run);
                self.runs.get_mut(run as usize)?.dropped.push((neighbour, round));
            }
            Record::Resume { run } => {
                self.runs.get(run as usize)?;
                self.current = Some(run);
            }
            Record::Charge { run: index, round, cost } => {
                self.current = Some(index);
                let run = self.runs.get_mut(index as usize)?;
                run.charge(round, cost).then_some(())?;
            }
        }
        Some(())
    }

    /// There is something after the last valid record. If it is part of a single record, the record is charged; otherwise the
    /// ledger is damaged.
    fn check_torn(&mut self, disk: &mut impl Disk) -> Result<(), LedgerError> {
        let run = self.current.map(|run| &mut self.runs[run as usize]);
        let begin = run.as_ref().map(|run| &run.begin);
        let [features, degree, memory] =
            begin.map_or([0; 3], |b| [b.features, b.degree, b.memory].map(|number| number as usize));
        let longest = record::longest(features, degree, memory) as u64;
        let rest = disk
            .read(self.end, (self.written - self.end).min(2 * longest) as usize)
            .map_err(|e| LedgerError::Disk("read", e))?;
        let later = (ALIGN..rest.len()).step_by(ALIGN).any(|at| record::find(&rest[at..]).is_some());
        // With no run at all a Begin may be truncated, whose length is bounded too.
        if later || self.written - self.end > longest {
            return Err(LedgerError::Damaged { at: self.end });
        }
        self.torn = true;
        if let Some(run) = run.filter(|run| !run.is_complete()) {
            let (round, cost) = (run.round + 1, run.next);
            run.charge(round, cost);
        }
        Ok(())
    }

    /// Whether a mark outside of the folder shows that no release is missing here.
    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// What was spent in all studies together; `None` if one of them released without protection. Studies may differ in what they
    /// assume: the first rho holds as long as each assumption does, the second whoever colludes.
    pub fn spent(&self) -> Option<Spent> {
        let protected = self.runs.iter().all(|run| run.begin.protected || run.round == 0);
        protected.then(|| self.runs.iter().fold(Spent::ZERO, |sum, run| sum.plus(run.spent)))
    }
}

impl Participation {
    fn apply(&mut self, record: &RoundRecord, at: u64) -> Option<()> {
        if record.round != self.round + 1 || record.round > self.begin.rounds {
            return None;
        }
        match record.cost {
            Cost::Noised(cost) | Cost::Rehearsed(cost) => {
                self.fresh += 1;
                self.spent = self.spent.plus(cost);
            }
            // A study that promises privacy has no release without it.
            Cost::Unprotected if self.begin.protected => return None,
            Cost::Unprotected => self.fresh += 1,
            Cost::Mixed => self.mixed += 1,
            Cost::Withheld => {}
        }
        self.round = record.round;
        self.next = record.next;
        self.retired = None;
        self.at = [self.at[1], Some(at)];
        Some(())
    }

    /// Charges a round and retires it, once.
    fn charge(&mut self, round: u32, cost: Spent) -> bool {
        if self.retired == Some(round) {
            return true;
        }
        self.spent = self.spent.plus(cost);
        self.retired = Some(round);
        round == self.round + 1
    }
}

/// The position after the last byte that is not zero.
fn last_written(disk: &mut impl Disk, size: u64) -> io::Result<u64> {
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(WINDOW as u64);
        let bytes = disk.read(start, (end - start) as usize)?;
        if let Some(last) = bytes.iter().rposition(|b| *b != 0) {
            // The last record's hash may end in zeros, and its padding is zeros.
            return Ok((start + last as u64 + 1).next_multiple_of(ALIGN as u64));
        }
        end = start;
    }
    Ok(0)
}

/// The valid record at `at`, with its bytes.
pub(super) fn read_record(disk: &mut impl Disk, at: u64) -> io::Result<Option<(record::Found, Vec<u8>)>> {
    let start = disk.read(at, 8)?;
    let Some(length) = record::claimed_length(&start) else { return Ok(None) };
    if length as u64 > disk.size()?.saturating_sub(at) {
        return Ok(None);
    }
    let bytes = disk.read(at, length)?;
    Ok(record::find(&bytes).map(|found| (found, bytes)))
}

impl Contents {
    /// The first record of an empty file.
    pub(super) fn start(disk: &mut impl Disk, owner: PublicId) -> Result<Self, LedgerError> {
        let size = disk.size().map_err(|e| LedgerError::Disk("read", e))?;
        let (bytes, hash) = Record::Owner(owner).encode(&[0; 32]);
        debug_assert_eq!(bytes.len() as u64, record::first_length());
        disk.write(0, &bytes).map_err(|e| LedgerError::Disk("written", e))?;
        let end = bytes.len() as u64;
        Ok(Self {
            owner,
            runs: Vec::new(),
            torn: false,
            end,
            written: end,
            size: size.max(end),
            head: hash,
            last: bytes,
            records: 1,
            is_anchored: disk.has_anchor(),
            current: None,
        })
    }

    /// Says beside the ledger how far it is. What is not durable still survives the end of the process.
    pub(super) fn mark(&self, disk: &mut impl Disk, durable: bool, anchored: bool) -> Result<(), LedgerError> {
        if !disk.keeps_marks() {
            return Ok(());
        }
        let spent = self.runs.iter().fold(Spent::ZERO, |sum, run| sum.plus(run.spent));
        let (owner, records, end, size, hash) = (self.owner, self.records, self.end, self.size, self.head);
        let (at, bytes) = Mark { owner, records, end, size, hash, spent }.encode();
        let unwritten = |e| LedgerError::Disk("marked", e);
        for place in Place::BESIDE {
            disk.write_mark(place, at, &bytes, durable).map_err(unwritten)?;
        }
        if anchored && disk.has_anchor() {
            disk.write_mark(Place::Anchor, at, &bytes, true).map_err(unwritten)?;
        }
        Ok(())
    }

    fn is_last(&self, record: &RoundRecord) -> bool {
        self.runs.get(record.run as usize).is_some_and(|run| run.begin.rounds == record.round)
    }

    /// One durable write, over the remains of a truncated record if there are any.
    pub(super) fn append(&mut self, disk: &mut impl Disk, record: Record) -> Result<(), LedgerError> {
        let unwritten = |e| LedgerError::Disk("written", e);
        let (mut bytes, hash) = record.encode(&self.head);
        let length = bytes.len();
        let end = self.end + length as u64;
        if self.written > end {
            bytes.resize((self.written - self.end) as usize, 0);
        }
        let needed = self.end + bytes.len() as u64;
        if needed > self.size {
            // Zeros, so that a failure here leaves no partial record.
            let more = (needed - self.size) as usize + AHEAD.max(16 * length);
            disk.write(self.size, &vec![0; more]).map_err(unwritten)?;
            self.size += more as u64;
        }
        disk.write(self.end, &bytes).map_err(unwritten)?;
        // A mark that a loss of power takes back is an older one. From time to time it is made to stay. The anchor vouches for the ledger at the next start, so it is written for a
        // round from the records, which is made only if the ledger is known to be current, and else only if it vouched for the ledger before.
        let (durable, anchored) = match &record {
            Record::Round(round) => (round.round.is_multiple_of(MARK_EVERY) || self.is_last(round), record.costs()),
            _ => (true, self.is_anchored),
        };
        self.apply(record, self.end).expect("a record made here is consistent with earlier ones");
        bytes.truncate(length);
        (self.end, self.written, self.head, self.last, self.torn) = (end, end, hash, bytes, false);
        self.records += 1;
        self.mark(disk, durable, anchored)
    }
}
