//! The messages between peers, byte by byte. Every limit is a named constant.
//!
//! | kind | contents | bytes |
//! |---|---|---|
//! | 1 hello | the sender's study, round and session, and what it knows of the receiver | fixed |
//! | 2 round | w~_k(n) | 21 + 8 P, and 64 more where signed |
//! | 3 final | the last release of some peer, forwarded | 101 + 8 P |
//! | 4 done | the sender has made its last release and waits for no more of others, because it knows the model or gave up | 7 |
//! | 5 head | how far the releases of some peer go and their hash, signed by it, forwarded | 105 |
//! | 6 stuck | the sender's disk does not answer, so it can do nothing for now | 1 |
//! | 7 vote | which last releases some peer counts into the model, signed by it, forwarded | 101 + K/8 |
//!
//! All numbers are little-endian. The connection identifies and authenticates the sender. A frame is decoded only if
//! its length is the one that the study gives to its kind, and nothing is allocated before that is known.
//!
//! **Signatures.** Every release of a peer extends a chain of hashes, c_n = H(c_(n-1), n, w~_k(n)). Every
//! few frames ([`Limits::signs`]) carry a signature of c_n, which therefore covers all frames up to it: a
//! peer that sends two neighbours different releases in any round must sign two different c_n soon after, and the two
//! signatures together prove it to anyone. A signature costs more than all other work of a round; signing rarely makes
//! this cost negligible.
//!
//! **Heads.** What was signed is passed on, from neighbour to neighbour, so that everybody knows how far everybody is: two stories of one peer meet during the study,
//! and a peer whose state is old is told so by whomever it reaches. A peer also signs its newest c_n once a second.
//!
//! **Receipts.** Every frame carries a short tag that only its author can check. A neighbour returns it in its hello:
//! a peer whose state folder was restored from a backup learns in this way, from a proof that no other peer can make,
//! that it has already sent releases that are not in its ledger.
//!
//! **Votes.** A peer signs once which last releases it counts, in the place of a round T + 1: two votes of one peer are two stories, and are proven like them.
//!
//! **Sessions.** Every start of a peer has a number, one more than the last, and a random one. Others keep the newest and return it in their hellos, with a tag of its
//! owner: of two copies of a state folder that run at the same time, one learns of the other.

mod chain;
mod vote;

use std::sync::Arc;

use thiserror::Error;

pub use chain::{Chain, next_head};
pub use vote::{Ballot, Vote};

use crate::bytes::{ByteReader, ByteWriter, numbers};
use crate::identity::{PublicId, TAG};
use crate::study::{Limits, StudyDigest};

/// The protocol version, which must be the same at both peers.
pub const VERSION: u16 = 5;
/// Frames of these rounds are signed, unless the study is short: every one that this divides, and the last.
const SIGN_EVERY: u32 = 64;
/// A study has at least so many signed rounds, if it has so many rounds.
const SIGNED: u32 = 16;
/// The first bytes of a hello.
const MAGIC: [u8; 4] = *b"UNDT";
/// Bytes of a signature.
const SIGNATURE: usize = 64;
/// Bytes of a hash.
const HASH: usize = 32;

/// A hash over all that a peer has released up to some round.
pub type Head = [u8; HASH];

impl Limits {
    /// Bytes of the longest frame; a longer one is refused before it is read.
    pub fn longest(&self) -> usize {
        HELLO.max(1 + 4 + HASH + 8 * self.features + SIGNATURE).max(Vote::size(self))
    }

    /// Bytes of the frame of a round.
    pub fn frame(&self, round: u32) -> usize {
        1 + 4 + 8 * self.features + TAG + if self.signs(round) { SIGNATURE } else { 0 }
    }

    /// Whether the frame of a round is signed: every 64th is, or every (T/16)th if that is less, and the last.
    pub fn signs(&self, round: u32) -> bool {
        let every = (self.rounds / SIGNED).clamp(1, SIGN_EVERY);
        round > 0 && (round.is_multiple_of(every) || round == self.rounds)
    }
}

/// Proof that a neighbour has a frame: what its author wrote into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Receipt {
    /// The round; 0 if there is no frame yet.
    pub round: u32,
    /// The author's chain up to that frame.
    pub head: Head,
    /// The author's tag.
    pub tag: [u8; TAG],
}

/// How far the releases of a peer go, signed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedHead {
    /// The round; 0 if nothing is known.
    pub round: u32,
    /// The author's chain up to it.
    pub head: Head,
    /// The author's signature of both.
    pub signature: [u8; SIGNATURE],
}

impl SignedHead {
    /// Nothing is known.
    pub const NONE: Self = Self { round: 0, head: [0; HASH], signature: [0; SIGNATURE] };
    /// Bytes of one.
    pub(crate) const SIZE: usize = 4 + HASH + SIGNATURE;

    pub(crate) fn write(&self, w: &mut ByteWriter) {
        w.u32(self.round);
        w.bytes(&self.head);
        w.bytes(&self.signature);
    }

    pub(crate) fn read(reader: &mut ByteReader) -> Option<Self> {
        Some(Self { round: reader.u32()?, head: reader.array()?, signature: reader.array()? })
    }

    /// The frame that passes it on.
    pub fn frame(&self, author: u32) -> Outgoing {
        let mut w = ByteWriter::with_capacity(1 + 4 + Self::SIZE);
        w.u8(5);
        w.u32(author);
        self.write(&mut w);
        Outgoing(w.into_bytes().into())
    }
}

/// One start of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Session {
    /// How often it was started in this study; 0 if nothing is known.
    pub number: u64,
    /// A random number: two copies of a state folder have the same `number`.
    pub nonce: u64,
    /// The peer's own tag of both.
    pub tag: [u8; TAG],
}

impl Session {
    /// Bytes of one.
    pub(crate) const SIZE: usize = 8 + 8 + TAG;

    pub(crate) fn write(&self, w: &mut ByteWriter) {
        w.bytes(&self.number.to_le_bytes());
        w.bytes(&self.nonce.to_le_bytes());
        w.bytes(&self.tag);
    }

    pub(crate) fn read(reader: &mut ByteReader) -> Option<Self> {
        Some(Self { number: reader.u64()?, nonce: reader.u64()?, tag: reader.array()? })
    }

    /// Whether a peer that has had `other` must not be in this session: `other` is a later start, or one of another copy.
    pub fn is_superseded_by(&self, other: &Self) -> bool {
        other.number > self.number || (other.number == self.number && other.nonce != self.nonce)
    }
}

impl Receipt {
    /// Bytes of one.
    pub(crate) const SIZE: usize = 4 + HASH + TAG;

    pub(crate) fn write(&self, w: &mut ByteWriter) {
        w.u32(self.round);
        w.bytes(&self.head);
        w.bytes(&self.tag);
    }

    pub(crate) fn read(reader: &mut ByteReader) -> Option<Self> {
        Some(Self { round: reader.u32()?, head: reader.array()?, tag: reader.array()? })
    }
}

/// The first frame on a connection, in both directions. Sent again, it asks for whatever is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The sender's study.
    pub study: StudyDigest,
    /// The sender's last round.
    pub round: u32,
    /// This start of the sender.
    pub session: Session,
    /// The last frame that the sender has from the receiver.
    pub receipt: Receipt,
    /// The last frame that the sender was ever shown by the receiver, before it was restarted perhaps.
    pub shown: Receipt,
    /// The newest signed head of the receiver that the sender knows.
    pub head: SignedHead,
    /// The newest session of the receiver that the sender knows.
    pub yours: Session,
    /// Whether the sender has dropped this edge.
    pub dropped: bool,
}

const HELLO: usize =
    1 + MAGIC.len() + 2 + StudyDigest::SIZE + 4 + 2 * Session::SIZE + 2 * Receipt::SIZE + SignedHead::SIZE + 1;

/// A frame, decoded and within its limits.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is decoded, and never stored")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Message<'a> {
    /// See [`Hello`].
    Hello(Hello),
    /// w~_k(n) of the sender.
    Round(RoundFrame<'a>),
    /// w~_k(T) of some author, forwarded by the sender.
    Final(Final<'a>),
    /// The sender waits for no more last releases. It is believed only of a sender whose own last release is known.
    Done {
        /// The last round that the sender has done.
        round: u32,
        /// Whether it knows which of them make the model.
        agreed: bool,
        /// Whether it has received the same from the receiver.
        heard: bool,
    },
    /// The sender's disk does not answer.
    Stuck,
    /// Which last releases some author counts, forwarded by the sender.
    Vote(Vote<'a>),
    /// How far the releases of some author go, forwarded by the sender.
    Head {
        /// The author.
        author: u32,
        /// What it signed.
        head: SignedHead,
    },
}

/// The release of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundFrame<'a> {
    /// n.
    pub round: u32,
    /// w~_k(n).
    pub payload: Payload<'a>,
    /// The author's tag.
    pub tag: [u8; TAG],
    /// The author's signature of its chain, where the round has one.
    pub signature: Option<[u8; SIGNATURE]>,
}

/// The last release of a peer, with all that is needed to check it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Final<'a> {
    /// The author.
    pub author: u32,
    /// The author's chain before it.
    pub prior: Head,
    /// w~_k(T).
    pub payload: Payload<'a>,
    /// The author's signature.
    pub signature: [u8; SIGNATURE],
}

/// P numbers as received, none larger than the [limit](Limits::largest) of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    /// The numbers.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        numbers(self.0)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0
    }
}

/// Bytes that are not a frame of this study.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Malformed {
    /// No such kind of frame.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// Not the length that the study gives to its kind.
    #[error("a frame of kind {kind} with {found} bytes in place of {expected}")]
    Size {
        /// Its kind.
        kind: u8,
        /// The length that the study defines.
        expected: usize,
        /// The length received.
        found: usize,
    },
    /// Not a hello of this protocol.
    #[error("a hello that is not Undertone's")]
    NotUndertone,
    /// A hello of another version.
    #[error("a hello of protocol version {0}, where this peer uses {VERSION}; run the same version of Undertone")]
    Version(u16),
    /// A number that is infinite, NaN, or too large.
    #[error("a value that is not a number, or larger than this study can give")]
    NotFinite,
    /// A round or an author that the study does not have.
    #[error("a frame of a round or client that the study does not have")]
    OutOfStudy,
    /// A flag that is neither 0 nor 1.
    #[error("a flag that is neither 0 nor 1")]
    Flag,
    /// It ends before its last field. The length is checked first, so this is never seen.
    #[error("a frame that ends before its last field")]
    Short,
}

/// A frame ready to send. Those of rounds come from the ledger alone, after their record is durable: there is no other way to
/// make one.
///
/// ```
/// # use undertone_core::{ledger::Sealed, message::Outgoing};
/// fn frame(sealed: &Sealed) -> &Outgoing { sealed.frame() }
/// ```
///
/// ```compile_fail
/// # use undertone_core::message::Outgoing;
/// fn frame(values: &[f64]) -> Outgoing { Outgoing(values.iter().flat_map(|v| v.to_le_bytes()).collect()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing(Arc<[u8]>);

impl Outgoing {
    /// The frame's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The frame, for a transport that keeps it until it is sent.
    pub fn shared(&self) -> Arc<[u8]> {
        self.0.clone()
    }
}

/// true for 1, false for 0.
fn flag(reader: &mut ByteReader) -> Result<bool, Malformed> {
    match reader.u8() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(Malformed::Flag),
    }
}

/// P numbers within their limit.
fn payload<'a>(reader: &mut ByteReader<'a>, limits: &Limits) -> Result<Payload<'a>, Malformed> {
    let payload = Payload(reader.take(8 * limits.features).ok_or(Malformed::Short)?);
    // Written so that NaN fails.
    if payload.values().all(|v| v.abs() <= limits.largest) { Ok(payload) } else { Err(Malformed::NotFinite) }
}

/// Decodes one frame.
pub fn decode<'a>(frame: &'a [u8], limits: &Limits) -> Result<Message<'a>, Malformed> {
    let Some((&kind, body)) = frame.split_first() else {
        return Err(Malformed::Size { kind: 0, expected: 1, found: 0 });
    };
    let payload = 8 * limits.features;
    let round = ByteReader::new(body).u32().unwrap_or(0);
    let expected = match kind {
        1 => HELLO,
        2 => 1 + 4 + payload + TAG + if limits.signs(round) { SIGNATURE } else { 0 },
        3 => 1 + 4 + HASH + payload + SIGNATURE,
        4 => 1 + 2 + 4,
        5 => 1 + 4 + SignedHead::SIZE,
        6 => 1,
        7 => Vote::size(limits),
        other => return Err(Malformed::Kind(other)),
    };
    // A hello of another version may have another length, and the version is the better answer.
    if kind == 1 {
        let (magic, rest) = body.split_at(MAGIC.len().min(body.len()));
        if magic != MAGIC {
            return Err(Malformed::NotUndertone);
        }
        match ByteReader::new(rest).u16() {
            Some(VERSION) => {}
            Some(other) => return Err(Malformed::Version(other)),
            None => return Err(Malformed::NotUndertone),
        }
    }
    if frame.len() != expected {
        return Err(Malformed::Size { kind, expected, found: frame.len() });
    }
    let mut reader = ByteReader::new(body);
    match kind {
        1 => decode_hello(&mut reader).map(Message::Hello),
        2 => decode_round(&mut reader, limits).map(Message::Round),
        3 => decode_final(&mut reader, limits).map(Message::Final),
        6 => Ok(Message::Stuck),
        7 => Vote::read(&mut reader, limits).map(Message::Vote),
        5 => {
            let author = reader.u32().ok_or(Malformed::Short)?;
            let head = SignedHead::read(&mut reader).ok_or(Malformed::Short)?;
            if author as usize >= limits.clients || head.round == 0 || head.round > limits.rounds {
                return Err(Malformed::OutOfStudy);
            }
            Ok(Message::Head { author, head })
        }
        _ => {
            let (agreed, heard) = (flag(&mut reader)?, flag(&mut reader)?);
            let round = reader.u32().ok_or(Malformed::Short)?;
            // Nobody waits for last releases before the last round is done.
            if round == limits.rounds { Ok(Message::Done { round, agreed, heard }) } else { Err(Malformed::OutOfStudy) }
        }
    }
}

fn decode_hello(reader: &mut ByteReader) -> Result<Hello, Malformed> {
    let hello = (|| {
        reader.take(MAGIC.len() + 2)?;
        let (study, round) = (StudyDigest::from_bytes(&reader.array()?), reader.u32()?);
        let session = Session::read(reader)?;
        let (receipt, shown) = (Receipt::read(reader)?, Receipt::read(reader)?);
        let (head, yours) = (SignedHead::read(reader)?, Session::read(reader)?);
        Some(Hello { study, round, session, receipt, shown, head, yours, dropped: false })
    })();
    Ok(Hello { dropped: flag(reader)?, ..hello.ok_or(Malformed::Short)? })
}

fn decode_round<'a>(reader: &mut ByteReader<'a>, limits: &Limits) -> Result<RoundFrame<'a>, Malformed> {
    let round = reader.u32().ok_or(Malformed::Short)?;
    if round == 0 || round > limits.rounds {
        return Err(Malformed::OutOfStudy);
    }
    let payload = payload(reader, limits)?;
    let tag = reader.array().ok_or(Malformed::Short)?;
    let signature = match limits.signs(round) {
        true => Some(reader.array().ok_or(Malformed::Short)?),
        false => None,
    };
    Ok(RoundFrame { round, payload, tag, signature })
}

fn decode_final<'a>(reader: &mut ByteReader<'a>, limits: &Limits) -> Result<Final<'a>, Malformed> {
    let author = reader.u32().ok_or(Malformed::Short)?;
    if author as usize >= limits.clients {
        return Err(Malformed::OutOfStudy);
    }
    let prior = reader.array().ok_or(Malformed::Short)?;
    let payload = payload(reader, limits)?;
    Ok(Final { author, prior, payload, signature: reader.array().ok_or(Malformed::Short)? })
}

impl Hello {
    /// As it travels.
    pub fn encode(&self) -> Outgoing {
        let mut w = ByteWriter::with_capacity(HELLO);
        w.u8(1);
        w.bytes(&MAGIC);
        w.bytes(&VERSION.to_le_bytes());
        w.bytes(self.study.as_bytes());
        w.u32(self.round);
        self.session.write(&mut w);
        self.receipt.write(&mut w);
        self.shown.write(&mut w);
        self.head.write(&mut w);
        self.yours.write(&mut w);
        w.u8(self.dropped.into());
        Outgoing(w.into_bytes().into())
    }
}

impl Final<'_> {
    /// As it travels.
    pub fn encode(&self) -> Outgoing {
        let mut w = ByteWriter::with_capacity(1 + 4 + HASH + self.payload.0.len() + SIGNATURE);
        w.u8(3);
        w.u32(self.author);
        w.bytes(&self.prior);
        w.bytes(self.payload.0);
        w.bytes(&self.signature);
        Outgoing(w.into_bytes().into())
    }

    /// The author's chain up to it, with its signature, which may be wrong.
    pub fn signed_head(&self, rounds: u32) -> SignedHead {
        let head = next_head(&self.prior, rounds, self.payload.0);
        SignedHead { round: rounds, head, signature: self.signature }
    }

    /// Whether its author signed it.
    pub fn verifies(&self, chain: &Chain, author: &PublicId, rounds: u32) -> bool {
        chain.verifies(author, rounds, &self.signed_head(rounds).head, &self.signature)
    }
}

/// The frame of a peer whose disk does not answer. It says nothing else, so it need not be recorded.
pub fn stuck() -> Outgoing {
    Outgoing([6].into())
}

/// A done frame of a peer that has done all rounds.
pub fn done(limits: &Limits, agreed: bool, heard: bool) -> Outgoing {
    let mut w = ByteWriter::with_capacity(7);
    w.bytes(&[4, agreed.into(), heard.into()]);
    w.u32(limits.rounds);
    Outgoing(w.into_bytes().into())
}
