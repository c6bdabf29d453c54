//! What a peer knows of all others, kept durably, so that it can tell them: how far each is, and in which session.
//!
//! A state folder that was restored from a backup is an honest state of the past. Only others can tell that it is old, and each one that is honest should be enough. So
//! everybody keeps, for everybody, the newest signed head and the newest session, and for neighbours the receipt of the newest frame that they showed. What is kept
//! survives the end of the process from the moment it arrives, and a loss of power before it is acknowledged in a hello, and a second later at the latest.
//!
//! The file has two slots for every participant, which are written in turn.

use std::time::Duration;

use super::context::Context;
use super::events::Deadline;
use crate::bytes::{ByteReader, ByteWriter};
use crate::ledger::{Disk, Ledger, LedgerError};
use crate::message::{Receipt, Session, SignedHead};

/// The start of every slot.
const MAGIC: &[u8; 16] = b"undertone seen 1";
/// Bytes from one slot to the next: what disks write whole or not at all.
const SLOT: usize = 512;
/// How many heads of rounds that everybody signs are kept for comparison.
const RECENT: usize = 8;
/// The longest time until what was written is made durable, and until the own newest release is signed.
const SOON: Duration = Duration::from_secs(1);

/// What is known of one participant.
#[derive(Debug, Clone)]
struct Known {
    /// How often its slots were written.
    writes: u64,
    session: Session,
    /// For the newest frame that it showed to this peer.
    receipt: Receipt,
    newest: SignedHead,
    /// Heads of rounds that everybody signs, in which two stories must differ.
    recent: Vec<SignedHead>,
}

impl Default for Known {
    fn default() -> Self {
        let (session, receipt) = (Session::default(), Receipt::default());
        Self { writes: 0, session, receipt, newest: SignedHead::NONE, recent: Vec::new() }
    }
}

impl Known {
    fn encode(&self, study: &[u8; 32]) -> Vec<u8> {
        let mut w = ByteWriter::with_capacity(SLOT);
        w.bytes(MAGIC);
        w.bytes(study);
        w.bytes(&self.writes.to_le_bytes());
        self.session.write(&mut w);
        self.receipt.write(&mut w);
        self.newest.write(&mut w);
        let mut bytes = w.into_bytes();
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes
    }

    /// A slot of this study, if it is whole.
    fn decode(slot: &[u8], study: &[u8; 32]) -> Option<Self> {
        let mut f = ByteReader::new(slot);
        if f.array()? != *MAGIC || f.array()? != *study {
            return None;
        }
        let writes = f.u64()?;
        let (session, receipt) = (Session::read(&mut f)?, Receipt::read(&mut f)?);
        let newest = SignedHead::read(&mut f)?;
        let length = slot.len() - f.rest().len();
        let hash: [u8; 32] = *slot.get(length..)?.first_chunk()?;
        let recent = if newest.round > 0 { vec![newest] } else { Vec::new() };
        (*blake3::hash(&slot[..length]).as_bytes() == hash).then_some(Self { writes, session, receipt, newest, recent })
    }
}

/// What a head says that was not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Learned {
    /// Nothing, or nothing that can be compared.
    Known,
    /// It is new, and others should know it.
    New,
    /// The author signed this one before, of the same round.
    Conflict(SignedHead),
}

/// What is known of every participant, and this peer's own session.
pub(super) struct Witness {
    study: [u8; 32],
    session: Session,
    known: Vec<Known>,
    /// When what was written last must be durable.
    sync_at: Option<Duration>,
    /// When the own newest release was last signed.
    signed: Duration,
}

impl Witness {
    /// Reads what was known before, and begins a session.
    pub fn open<D: Disk>(context: &Context, ledger: &mut Ledger<D>, now: Duration) -> Result<Self, LedgerError> {
        let study = context.digest.whole();
        let bytes = ledger.read_witness()?;
        let mut slots = bytes.chunks(SLOT).map(|slot| Known::decode(slot, &study));
        let known = (0..context.limits.clients).map(|_| {
            let pair = [slots.next().flatten(), slots.next().flatten()];
            pair.into_iter().flatten().max_by_key(|slot| slot.writes).unwrap_or_default()
        });
        let mut known: Vec<Known> = known.collect();
        let number = known[context.setup.me].session.number + 1;
        let session = context.chain.session(&context.setup.identity, number, context.setup.nonce);
        known[context.setup.me].session = session;
        let mut witness = Self { study, session, known, sync_at: None, signed: now };
        // Others keep this session from the first hello on.
        witness.write(ledger, context.me(), now)?;
        witness.sync(ledger)?;
        Ok(witness)
    }

    /// This start of this peer.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What a participant is told about itself: its newest receipt, head and session.
    pub fn of(&self, peer: u32) -> (Receipt, SignedHead, Session) {
        let known = &self.known[peer as usize];
        (known.receipt, known.newest, known.session)
    }

    /// The receipt for the newest frame that a neighbour showed.
    pub fn receipt(&self, peer: u32) -> &Receipt {
        &self.known[peer as usize].receipt
    }

    /// Keeps the receipt for a neighbour's newest frame. It is written before the frame can have any consequence.
    pub fn keep_receipt<D: Disk>(
        &mut self,
        ledger: &mut Ledger<D>,
        peer: u32,
        receipt: Receipt,
        now: Duration,
    ) -> Result<(), LedgerError> {
        let known = &mut self.known[peer as usize];
        if receipt.round <= known.receipt.round {
            return Ok(());
        }
        known.receipt = receipt;
        self.write(ledger, peer, now)
    }

    /// Keeps the session of a participant. Returns whether it began after the one that was known before.
    pub fn keep_session<D: Disk>(
        &mut self,
        ledger: &mut Ledger<D>,
        peer: u32,
        session: Session,
        now: Duration,
    ) -> Result<bool, LedgerError> {
        let known = &mut self.known[peer as usize];
        let is_new = known.session.number < session.number;
        if is_new {
            known.session = session;
            self.write(ledger, peer, now)?;
        }
        Ok(is_new)
    }

    /// Whether a head need not be looked at: it is known.
    pub fn knows(&self, author: u32, head: &SignedHead) -> bool {
        let known = &self.known[author as usize];
        let is_same = |k: &SignedHead| k.round == head.round && k.head == head.head;
        is_same(&known.newest) || known.recent.iter().any(is_same)
    }

    /// Keeps a head whose signature was checked. `is_common` says that everybody signs its round.
    pub fn learn<D: Disk>(
        &mut self,
        ledger: &mut Ledger<D>,
        author: u32,
        head: SignedHead,
        is_common: bool,
        now: Duration,
    ) -> Result<Learned, LedgerError> {
        let known = &mut self.known[author as usize];
        let of_round = known.recent.iter().chain([&known.newest]).find(|k| k.round == head.round);
        match of_round {
            Some(first) if first.head != head.head => return Ok(Learned::Conflict(*first)),
            Some(_) => return Ok(Learned::Known),
            None => {}
        }
        // One that is older than all that are kept would not be known the next time, and would be passed on for ever.
        let is_kept = is_common && (known.recent.len() < RECENT || known.recent.iter().any(|k| k.round < head.round));
        if is_kept {
            known.recent.push(head);
            if known.recent.len() > RECENT {
                let oldest = (0..known.recent.len()).min_by_key(|i| known.recent[*i].round);
                known.recent.swap_remove(oldest.expect("not empty"));
            }
        }
        if head.round > known.newest.round {
            known.newest = head;
            self.write(ledger, author, now)?;
            return Ok(Learned::New);
        }
        Ok(if is_kept { Learned::New } else { Learned::Known })
    }

    /// The newest head of every participant of which one is known.
    pub fn heads(&self) -> impl Iterator<Item = (u32, &SignedHead)> {
        (0..).zip(&self.known).map(|(author, known)| (author, &known.newest)).filter(|(_, head)| head.round > 0)
    }

    /// Signs the own newest release, if that is due. Those of rounds that everybody signs are signed anyway.
    pub fn sign(&mut self, context: &Context, newest: &Receipt, now: Duration) -> Option<SignedHead> {
        let is_new = newest.round > self.known[context.setup.me].newest.round;
        if !is_new || now < self.signed + SOON {
            return None;
        }
        self.signed = now;
        let head = context.chain.sign(&context.setup.identity, newest);
        self.known[context.setup.me].newest = head;
        Some(head)
    }

    /// Adds the times at which something is due. `newest` is the round of the own newest release.
    pub fn add_timeouts(&self, me: u32, newest: u32, deadline: &mut Deadline) {
        self.sync_at.into_iter().for_each(|at| deadline.add(at));
        if newest > self.known[me as usize].newest.round {
            deadline.add(self.signed + SOON);
        }
    }

    /// Makes durable what is due.
    pub fn handle_timeout<D: Disk>(&mut self, ledger: &mut Ledger<D>, now: Duration) -> Result<(), LedgerError> {
        if self.sync_at.is_some_and(|at| now >= at) { self.sync(ledger) } else { Ok(()) }
    }

    /// Makes everything durable.
    pub fn sync<D: Disk>(&mut self, ledger: &mut Ledger<D>) -> Result<(), LedgerError> {
        if self.sync_at.take().is_some() {
            ledger.write_witness(0, &[], true)?;
        }
        Ok(())
    }

    fn write<D: Disk>(&mut self, ledger: &mut Ledger<D>, peer: u32, now: Duration) -> Result<(), LedgerError> {
        let known = &mut self.known[peer as usize];
        known.writes += 1;
        let slot = 2 * u64::from(peer) + known.writes % 2;
        ledger.write_witness(slot * SLOT as u64, &known.encode(&self.study), false)?;
        self.sync_at.get_or_insert(now + SOON);
        Ok(())
    }
}
