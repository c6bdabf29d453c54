//! Marks: how far a ledger is, kept outside of it.
//!
//! A ledger that was cut off, emptied or replaced by an older one is a valid ledger of a shorter history. So how many records it has, where they end, their
//! hash and what was spent is kept beside it: twice in its folder, and once more where its owner says, in the anchor. A mark is written after its record is durable, so it is
//! never ahead of a ledger that lost nothing.
//!
//! A place has two slots that are written in turn: a write that is cut off leaves the other one.

use super::record::Hash;
use crate::bytes::{ByteReader, ByteWriter};
use crate::identity::PublicId;
use crate::privacy::{Rho, Spent};

/// The start of every mark.
const MAGIC: &[u8; 16] = b"undertone mark 1";
/// Bytes from one slot to the next: what disks write whole or not at all.
const SLOT: usize = 512;
/// Bytes of a place.
pub const PLACE: usize = 2 * SLOT;

/// How far a ledger is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// The key that the ledger belongs to.
    pub owner: PublicId,
    /// How many records it has.
    pub records: u64,
    /// Where they end.
    pub end: u64,
    /// How long its file is, with the zeros that are written ahead.
    pub size: u64,
    /// The hash of its last record.
    pub hash: Hash,
    /// What was spent, in all studies together.
    pub spent: Spent,
}

impl Mark {
    /// As it is written, and where in its place.
    pub fn encode(&self) -> (u64, Vec<u8>) {
        let mut w = ByteWriter::with_capacity(160);
        w.bytes(MAGIC);
        w.bytes(self.owner.as_bytes());
        for number in [self.records, self.end, self.size] {
            w.bytes(&number.to_le_bytes());
        }
        w.bytes(&self.hash);
        w.f64(self.spent.rho.get());
        w.f64(self.spent.alone.get());
        let mut bytes = w.into_bytes();
        bytes.extend(blake3::hash(&bytes).as_bytes());
        (self.records % 2 * SLOT as u64, bytes)
    }

    /// The newest mark in a place, if there is a valid one.
    pub fn newest(place: &[u8]) -> Option<Self> {
        let slots = place.chunks(SLOT).filter_map(Self::decode);
        slots.max_by_key(|mark| mark.records)
    }

    /// Whether a place holds something that no mark leaves behind, whole or cut off.
    pub fn is_foreign(place: &[u8]) -> bool {
        // A write that is cut off leaves the beginning of a mark, and zeros.
        let is_mark = |slot: &[u8]| {
            let same = slot.iter().zip(MAGIC).take_while(|(a, b)| a == b).count();
            same == MAGIC.len() || slot[same..].iter().all(|byte| *byte == 0)
        };
        !place.chunks(SLOT).all(is_mark)
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let mut f = ByteReader::new(slot);
        if f.array()? != *MAGIC {
            return None;
        }
        let rho = |f: &mut ByteReader| Rho::new(f.f64()?).ok();
        let mark = Self {
            owner: PublicId::from_bytes(f.array()?)?,
            records: f.u64()?,
            end: f.u64()?,
            size: f.u64()?,
            hash: f.array()?,
            spent: Spent { rho: rho(&mut f)?, alone: rho(&mut f)? },
        };
        let length = slot.len() - f.rest().len();
        let hash: Hash = *slot.get(length..)?.first_chunk()?;
        (*blake3::hash(&slot[..length]).as_bytes() == hash).then_some(mark)
    }
}
