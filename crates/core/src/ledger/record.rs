//! The ledger's records, byte by byte.
//!
//! ```text
//! length 4 | kind 1 | hash of the previous record 32 | body | hash of all that 32 | zeros up to a multiple of 8
//! ```
//!
//! Every record can be checked alone, and contains the hash of the previous one.

use crate::bytes::{ByteReader, ByteWriter};
use crate::client::Cost;
use crate::identity::PublicId;
use crate::message::Receipt;
use crate::privacy::{Rho, Spent};

/// The hash of a record.
pub type Hash = [u8; 32];

const HASH: usize = 32;
const HEAD: usize = 4 + 1 + HASH;
/// Records start at multiples of this.
pub const ALIGN: usize = 8;
/// The start of every ledger, in its first record.
const MAGIC: &[u8; 16] = b"undertone ledger";
/// The version of this format.
const FORMAT: u16 = 3;
/// Longest study name that is kept, in bytes.
pub const LONGEST_NAME: usize = 200;

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The first record: the key that the ledger belongs to.
    Owner(PublicId),
    /// The data enters a study. Runs are numbered from 0 in this order.
    Begin(Begin),
    /// A release.
    Round(RoundRecord),
    /// An edge was dropped.
    Drop {
        /// Which run.
        run: u32,
        /// The neighbour.
        neighbour: u32,
        /// The last round in which it was a neighbour.
        round: u32,
    },
    /// An earlier study is resumed: what follows, complete or truncated, belongs to it.
    Resume {
        /// Which run.
        run: u32,
    },
    /// A record that could not be read was charged; its round will not be noised again.
    Charge {
        /// Which run.
        run: u32,
        /// The round that is retired.
        round: u32,
        /// What it is charged with.
        cost: Spent,
    },
}

/// The data enters a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// The digest of the study.
    pub study: [u8; 32],
    /// Its name.
    pub name: String,
    /// T.
    pub rounds: u32,
    /// P.
    pub features: u32,
    /// d_k.
    pub degree: u32,
    /// Number of vectors in the algorithm's memory.
    pub memory: u32,
    /// K.
    pub clients: u32,
    /// How many of them are assumed to pool what they know at most; K - 1, all others, if nobody is trusted.
    pub colluders: u32,
    /// What the study spends in all at this peer.
    pub total: Spent,
    /// The epsilon of the first of its rhos.
    pub epsilon: f64,
    /// At this delta.
    pub delta: f64,
    /// The cost of the first round.
    pub next: Spent,
    /// False for rehearsals with unsafe noise or none: their releases have no privacy bound.
    pub protected: bool,
    /// A keyed hash of the data.
    pub data: [u8; 32],
    /// Seconds since 1970 by the peer's clock; informative only, no decision depends on it.
    pub time: u64,
}

impl Begin {
    /// Whether two records are about a run of the same shape, with the same promise.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let shape = |begin: &Self| (begin.rounds, begin.features, begin.memory, begin.protected);
        shape(self) == shape(other)
    }
}

/// A release, and all that is needed to continue from it.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundRecord {
    /// Which run.
    pub run: u32,
    /// n.
    pub round: u32,
    /// What it cost.
    pub cost: Cost,
    /// What the next round would spend.
    pub next: Spent,
    /// The chain of earlier releases.
    pub prior: [u8; 32],
    /// w~_k(n).
    pub released: Vec<f64>,
    /// The algorithm's vectors, gamma_k first if there is one.
    pub memory: Vec<f64>,
    /// One for each neighbour, by ascending id.
    pub edges: Vec<EdgeRecord>,
}

/// What a peer stores about a neighbour.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeRecord {
    /// The neighbour.
    pub neighbour: u32,
    /// The neighbour's frame that this round was computed from.
    pub receipt: Receipt,
    /// sum_m (w~_k(m) - w~_l(m)), from which the edge's share of gamma_k follows; empty if there is no dual.
    pub disagreement: Vec<f64>,
}

/// A rho; `None` for an invalid number, so that its record counts as damaged.
fn rho(reader: &mut ByteReader) -> Option<Rho> {
    Rho::new(reader.f64()?).ok()
}

/// Both rhos.
fn spent(reader: &mut ByteReader) -> Option<Spent> {
    Some(Spent { rho: rho(reader)?, alone: rho(reader)? })
}

fn write_spent(writer: &mut ByteWriter, spent: Spent) {
    writer.f64(spent.rho.get());
    writer.f64(spent.alone.get());
}

/// Bytes of the longest record that a run with these numbers can write.
pub fn longest(features: usize, degree: usize, memory: usize) -> usize {
    let round =
        4 + 4 + 1 + 16 + 16 + 32 + 4 + 4 + 4 + 1 + 8 * features * (1 + memory) + degree * (4 + 52 + 8 * features);
    (HEAD + HASH + round.max(240 + LONGEST_NAME)).next_multiple_of(ALIGN)
}

/// Bytes of the first record.
pub fn first_length() -> u64 {
    (HEAD + MAGIC.len() + 2 + 32 + HASH).next_multiple_of(ALIGN) as u64
}

impl Record {
    /// Whether it is a release that was made from the records.
    pub fn costs(&self) -> bool {
        matches!(self, Self::Round(round) if !matches!(round.cost, Cost::Mixed | Cost::Withheld))
    }

    /// The record that follows one with hash `prior`, padded, and its own hash.
    pub fn encode(&self, prior: &Hash) -> (Vec<u8>, Hash) {
        let mut writer = ByteWriter::after(HEAD);
        let kind = self.write(&mut writer);
        let mut bytes = writer.into_bytes();
        let length = bytes.len() + HASH;
        bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[4] = kind;
        bytes[5..HEAD].copy_from_slice(prior);
        let hash = *blake3::hash(&bytes).as_bytes();
        bytes.extend(hash);
        bytes.resize(length.next_multiple_of(ALIGN), 0);
        (bytes, hash)
    }

    fn write(&self, w: &mut ByteWriter) -> u8 {
        match self {
            Record::Owner(id) => {
                w.bytes(MAGIC);
                w.bytes(&FORMAT.to_le_bytes());
                w.bytes(id.as_bytes());
                1
            }
            Record::Begin(begin) => {
                w.bytes(&begin.study);
                for number in [begin.rounds, begin.features, begin.degree, begin.memory, begin.clients, begin.colluders]
                {
                    w.u32(number);
                }
                write_spent(w, begin.total);
                w.f64(begin.epsilon);
                w.f64(begin.delta);
                write_spent(w, begin.next);
                w.bytes(&[begin.protected.into()]);
                w.bytes(&begin.data);
                w.bytes(&begin.time.to_le_bytes());
                w.bytes(&begin.name.as_bytes()[..begin.name.floor_char_boundary(LONGEST_NAME)]);
                2
            }
            Record::Round(round) => {
                w.u32(round.run);
                w.u32(round.round);
                let (code, cost) = match round.cost {
                    Cost::Noised(cost) | Cost::Rehearsed(cost) => (0, cost),
                    Cost::Unprotected => (0, Spent::ZERO),
                    Cost::Mixed => (1, Spent::ZERO),
                    Cost::Withheld => (2, Spent::ZERO),
                };
                w.bytes(&[code]);
                write_spent(w, cost);
                write_spent(w, round.next);
                w.bytes(&round.prior);
                w.u32(round.released.len() as u32);
                w.u32(round.memory.len() as u32);
                w.u32(round.edges.len() as u32);
                w.bytes(&[round.edges.iter().any(|edge| !edge.disagreement.is_empty()).into()]);
                w.vector(&round.released);
                w.vector(&round.memory);
                for edge in &round.edges {
                    w.u32(edge.neighbour);
                    w.u32(edge.receipt.round);
                    w.bytes(&edge.receipt.head);
                    w.bytes(&edge.receipt.tag);
                    w.vector(&edge.disagreement);
                }
                3
            }
            Record::Drop { run, neighbour, round } => {
                [run, neighbour, round].into_iter().for_each(|v| w.u32(*v));
                4
            }
            Record::Resume { run } => {
                w.u32(*run);
                6
            }
            Record::Charge { run, round, cost } => {
                w.u32(*run);
                w.u32(*round);
                write_spent(w, *cost);
                5
            }
        }
    }

    fn read(kind: u8, body: &[u8]) -> Option<Record> {
        let mut f = ByteReader::new(body);
        let record = match kind {
            1 => {
                let known = f.array()? == *MAGIC && f.array()? == FORMAT.to_le_bytes();
                Record::Owner(PublicId::from_bytes(f.array()?).filter(|_| known)?)
            }
            2 => Record::Begin(Begin {
                study: f.array()?,
                rounds: f.u32()?,
                features: f.u32()?,
                degree: f.u32()?,
                memory: f.u32()?,
                clients: f.u32()?,
                colluders: f.u32()?,
                total: spent(&mut f)?,
                epsilon: f.f64()?,
                delta: f.f64()?,
                next: spent(&mut f)?,
                protected: f.u8()? == 1,
                data: f.array()?,
                time: f.u64()?,
                name: String::from_utf8(f.rest().to_vec()).ok()?,
            }),
            3 => {
                let (run, round) = (f.u32()?, f.u32()?);
                let cost = match (f.u8()?, spent(&mut f)?) {
                    (0, Spent::ZERO) => Cost::Unprotected,
                    (0, cost) => Cost::Noised(cost),
                    (1, Spent::ZERO) => Cost::Mixed,
                    (2, Spent::ZERO) => Cost::Withheld,
                    _ => return None,
                };
                let (next, prior) = (spent(&mut f)?, f.array()?);
                let (features, memory, edges) = (f.u32()? as usize, f.u32()? as usize, f.u32()?);
                let duals = if f.u8()? == 1 { features } else { 0 };
                let (released, memory) = (f.vector(features)?, f.vector(memory)?);
                let mut edge = || {
                    Some(EdgeRecord {
                        neighbour: f.u32()?,
                        receipt: Receipt { round: f.u32()?, head: f.array()?, tag: f.array()? },
                        disagreement: f.vector(duals)?,
                    })
                };
                let edges = (0..edges).map(|_| edge()).collect::<Option<_>>()?;
                Record::Round(RoundRecord { run, round, cost, next, prior, released, memory, edges })
            }
            4 => Record::Drop { run: f.u32()?, neighbour: f.u32()?, round: f.u32()? },
            5 => Record::Charge { run: f.u32()?, round: f.u32()?, cost: spent(&mut f)? },
            6 => Record::Resume { run: f.u32()? },
            _ => return None,
        };
        f.is_empty().then_some(record)
    }
}

/// A record found in a ledger.
pub struct Found {
    /// The record; `None` if its hash is right and its content is not, which no crash explains.
    pub record: Option<Record>,
    /// The hash of the previous record, as stored in this one.
    pub prior: Hash,
    /// Its own hash.
    pub hash: Hash,
    /// Its bytes with padding.
    pub length: usize,
}

/// The length that a record claims in its first bytes, padded.
pub fn claimed_length(start: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*start.first_chunk()?) as usize;
    (length >= HEAD + HASH).then(|| length.next_multiple_of(ALIGN))
}

/// The record at the start of `bytes`, if it is complete and valid.
pub fn find(bytes: &[u8]) -> Option<Found> {
    let padded = claimed_length(bytes)?;
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let (record, padding) = bytes.get(..padded)?.split_at(length);
    let (body, hash) = record.split_at(length - HASH);
    if *blake3::hash(body).as_bytes() != hash || padding.iter().any(|b| *b != 0) {
        return None;
    }
    let prior = body[5..HEAD].try_into().expect("the head holds it");
    let record = Record::read(body[4], &body[HEAD..]);
    Some(Found { record, prior, hash: hash.try_into().expect("split there"), length: padded })
}
