//! What travels between peers, byte by byte, with every limit a named constant.
//!
//! | kind | what | bytes |
//! |---|---|---|
//! | 1 hello | who I am, which study I hold, what I have of yours | fixed |
//! | 2 round | w~_k(n) | 21 + 8 P, and 64 more where signed |
//! | 3 final | somebody's last release, passed on | 101 + 8 P |
//! | 4 done | I wait for no more last releases, because I have them all or because I gave up | 3 |
//!
//! All numbers are little-endian. The connection under it names and authenticates the sender. A frame is decoded only if
//! its length is the one that the study gives to its kind, and nothing is allocated before that is known.
//!
//! **Signatures.** Every release of a peer extends a chain of hashes, c_n = H(c_(n-1), n, w~_k(n)). Every
//! [`SIGN_EVERY`]th frame and the last one carry a signature of c_n, which therefore vouches for all frames up to it: a
//! peer that tells two neighbours different things in any round must sign two different c_n soon after, and the two
//! signatures side by side show it to anyone. A signature costs more than all other work of a round; this way it costs
//! next to nothing.
//!
//! **Receipts.** Every frame carries a short tag that its author alone can check. A neighbour returns it in its hello:
//! a peer whose state folder was restored from a backup so learns, from a proof that nobody else can make, that it has
//! already sent what it does not remember.

use std::sync::Arc;

use thiserror::Error;

use crate::identity::{Identity, PublicId, TAG};
use crate::study::StudyDigest;

/// What two peers must have in common to speak at all.
pub const VERSION: u16 = 2;
/// Frames of these rounds are signed: every one that this divides, and the last.
pub const SIGN_EVERY: u32 = 64;
/// Numbers in frames are no larger than this: beyond it a run has diverged, and sums of them could overflow.
pub const LARGEST_VALUE: f64 = 1e30;
/// The first bytes of a hello.
const MAGIC: [u8; 4] = *b"UNDT";
/// Bytes of a signature.
const SIGNATURE: usize = 64;
/// Bytes of a hash.
const HASH: usize = 32;

/// A hash over all that a peer has released up to some round.
pub type Head = [u8; HASH];

/// What bounds the frames of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// P.
    pub features: usize,
    /// T.
    pub rounds: u32,
    /// K.
    pub clients: usize,
}

impl Limits {
    /// Bytes of the longest frame; a longer one is refused before it is read.
    pub fn longest(&self) -> usize {
        HELLO.max(1 + 4 + HASH + 8 * self.features + SIGNATURE)
    }

    /// Bytes of the frame of a round.
    pub fn frame(&self, round: u32) -> usize {
        1 + 4 + 8 * self.features + TAG + if self.signs(round) { SIGNATURE } else { 0 }
    }

    /// Whether the frame of a round is signed.
    pub fn signs(&self, round: u32) -> bool {
        round > 0 && (round.is_multiple_of(SIGN_EVERY) || round == self.rounds)
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

/// The first frame on a connection, in both directions. Sent again, it asks for whatever is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The sender's study.
    pub study: StudyDigest,
    /// The sender's last round.
    pub round: u32,
    /// The last frame that the sender has from the receiver.
    pub receipt: Receipt,
    /// Whether the sender has dropped this edge.
    pub dropped: bool,
}

const HELLO: usize = 1 + MAGIC.len() + 2 + StudyDigest::SIZE + 4 + (4 + HASH + TAG) + 1;

/// A frame, decoded and within its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Message<'a> {
    /// See [`Hello`].
    Hello(Hello),
    /// w~_k(n) of the sender.
    Round(Release<'a>),
    /// w~_k(T) of some author, passed on by the sender.
    Final(Final<'a>),
    /// The sender waits for no more last releases.
    Done {
        /// Whether it has them all.
        complete: bool,
        /// Whether it has heard the same from the receiver.
        heard: bool,
    },
}

/// The release of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Release<'a> {
    /// n.
    pub round: u32,
    /// w~_k(n).
    pub payload: Payload<'a>,
    /// The author's tag.
    pub tag: [u8; TAG],
    /// The author's signature of its chain, where the round has one.
    pub signature: Option<[u8; SIGNATURE]>,
}

/// Somebody's last release, with all that is needed to check it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Final<'a> {
    /// Whose it is.
    pub author: u32,
    /// The author's chain before it.
    pub prior: Head,
    /// w~_k(T).
    pub payload: Payload<'a>,
    /// The author's signature.
    pub signature: [u8; SIGNATURE],
}

/// P numbers as they travelled, none larger than [`LARGEST_VALUE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    /// The numbers.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        self.0.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0
    }
}

/// A frame that is not one.
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
        /// What the study gives.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// Not a hello of this protocol.
    #[error("a hello that is not Undertone's")]
    Stranger,
    /// A hello of another version.
    #[error("a hello of protocol version {0}, where this peer speaks {VERSION}; run the same version of Undertone")]
    Version(u16),
    /// A number that is infinite, none, or too large.
    #[error("a value that is not a number of a size that a model can have")]
    NotFinite,
    /// A round or an author that the study does not have.
    #[error("a frame of a round or client that the study does not have")]
    OutOfStudy,
    /// A flag that is neither 0 nor 1.
    #[error("a flag that is neither 0 nor 1")]
    Flag,
}

/// A frame ready to send. Those of rounds come from the ledger alone, after their record is durable.
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

/// Reads fixed-size fields from bytes whose length was checked.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("as many as asked for")
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.array() {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed::Flag),
        }
    }

    fn payload(&mut self, features: usize) -> Result<Payload<'a>, Malformed> {
        let payload = Payload(self.take(8 * features));
        // Written so that NaN fails.
        if payload.values().all(|v| v.abs() <= LARGEST_VALUE) { Ok(payload) } else { Err(Malformed::NotFinite) }
    }
}

/// Decodes one frame.
pub fn decode<'a>(frame: &'a [u8], limits: &Limits) -> Result<Message<'a>, Malformed> {
    let Some((&kind, body)) = frame.split_first() else {
        return Err(Malformed::Size { kind: 0, expected: 1, found: 0 });
    };
    let payload = 8 * limits.features;
    let round = body.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let expected = match kind {
        1 => HELLO,
        2 => 1 + 4 + payload + TAG + if limits.signs(round) { SIGNATURE } else { 0 },
        3 => 1 + 4 + HASH + payload + SIGNATURE,
        4 => 3,
        other => return Err(Malformed::Kind(other)),
    };
    // A hello of another version may have another length, and the version is the better answer.
    if kind == 1 {
        let (magic, rest) = body.split_at(MAGIC.len().min(body.len()));
        if magic != MAGIC {
            return Err(Malformed::Stranger);
        }
        match rest.first_chunk().map(|v| u16::from_le_bytes(*v)) {
            Some(VERSION) => {}
            Some(other) => return Err(Malformed::Version(other)),
            None => return Err(Malformed::Stranger),
        }
    }
    if frame.len() != expected {
        return Err(Malformed::Size { kind, expected, found: frame.len() });
    }
    let mut cursor = Cursor(body);
    match kind {
        1 => decode_hello(&mut cursor).map(Message::Hello),
        2 => {
            let round = cursor.u32();
            if round == 0 || round > limits.rounds {
                return Err(Malformed::OutOfStudy);
            }
            Ok(Message::Round(Release {
                round,
                payload: cursor.payload(limits.features)?,
                tag: cursor.array(),
                signature: limits.signs(round).then(|| cursor.array()),
            }))
        }
        3 => {
            let author = cursor.u32();
            if author as usize >= limits.clients {
                return Err(Malformed::OutOfStudy);
            }
            let prior = cursor.array();
            Ok(Message::Final(Final {
                author,
                prior,
                payload: cursor.payload(limits.features)?,
                signature: cursor.array(),
            }))
        }
        _ => Ok(Message::Done { complete: cursor.flag()?, heard: cursor.flag()? }),
    }
}

fn decode_hello(cursor: &mut Cursor) -> Result<Hello, Malformed> {
    cursor.take(MAGIC.len() + 2);
    let hello = Hello {
        study: StudyDigest::from_bytes(&cursor.array()),
        round: cursor.u32(),
        receipt: Receipt { round: cursor.u32(), head: cursor.array(), tag: cursor.array() },
        dropped: cursor.flag()?,
    };
    Ok(hello)
}

impl Hello {
    /// As it travels.
    pub fn encode(&self) -> Outgoing {
        let mut bytes = Vec::with_capacity(HELLO);
        bytes.push(1);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.study.as_bytes());
        bytes.extend(self.round.to_le_bytes());
        bytes.extend(self.receipt.round.to_le_bytes());
        bytes.extend(self.receipt.head);
        bytes.extend(self.receipt.tag);
        bytes.push(self.dropped.into());
        Outgoing(bytes.into())
    }
}

impl Final<'_> {
    /// As it travels.
    pub fn encode(&self) -> Outgoing {
        let mut bytes = Vec::with_capacity(1 + 4 + HASH + self.payload.0.len() + SIGNATURE);
        bytes.push(3);
        bytes.extend(self.author.to_le_bytes());
        bytes.extend(self.prior);
        bytes.extend(self.payload.0);
        bytes.extend(self.signature);
        Outgoing(bytes.into())
    }

    /// Whether its author signed it.
    pub fn verifies(&self, chain: &Chain, author: &PublicId, rounds: u32) -> bool {
        let head = next_head(&self.prior, rounds, self.payload.0);
        author.verifies(&chain.vouched(rounds, &head), &self.signature)
    }
}

/// A done frame.
pub fn done(complete: bool, heard: bool) -> Outgoing {
    Outgoing(Arc::new([4, complete.into(), heard.into()]))
}

/// c_n = H(c_(n-1), n, payload).
pub fn next_head(prior: &Head, round: u32, payload: &[u8]) -> Head {
    let mut hasher = blake3::Hasher::new_keyed(prior);
    hasher.update(&round.to_le_bytes()).update(payload);
    *hasher.finalize().as_bytes()
}

/// The chains of one study.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    study: [u8; 32],
}

impl Chain {
    /// The chains of the study with this digest.
    pub fn new(study: &StudyDigest) -> Self {
        Self { study: study.whole() }
    }

    /// c_0 of an author.
    pub fn start(&self, author: &PublicId) -> Head {
        let mut hasher = blake3::Hasher::new_derive_key("undertone 2026 chain of releases");
        hasher.update(&self.study).update(author.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// What is signed, and tagged, to vouch for a chain up to a round.
    pub fn vouched(&self, round: u32, head: &Head) -> [u8; 15 + 32 + 4 + HASH] {
        let mut text = [0; _];
        text[..15].copy_from_slice(b"undertone round");
        text[15..47].copy_from_slice(&self.study);
        text[47..51].copy_from_slice(&round.to_le_bytes());
        text[51..].copy_from_slice(head);
        text
    }

    /// The frame of a round and its receipt. Only the ledger calls this.
    pub(crate) fn release(
        &self,
        identity: &Identity,
        limits: &Limits,
        prior: &Head,
        round: u32,
        values: &[f64],
    ) -> (Outgoing, Receipt, Option<[u8; SIGNATURE]>) {
        let mut bytes = Vec::with_capacity(limits.frame(round));
        bytes.push(2);
        bytes.extend(round.to_le_bytes());
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let head = next_head(prior, round, &bytes[5..]);
        let vouched = self.vouched(round, &head);
        let tag = identity.tag(&vouched);
        bytes.extend(tag);
        let signature = limits.signs(round).then(|| identity.sign(&vouched));
        bytes.extend(signature.iter().flatten());
        (Outgoing(bytes.into()), Receipt { round, head, tag }, signature)
    }

    /// Whether a receipt shows a frame of this very peer.
    pub fn is_own(&self, identity: &Identity, receipt: &Receipt) -> bool {
        identity.tag(&self.vouched(receipt.round, &receipt.head)) == receipt.tag
    }

    /// Whether an author vouched for its chain up to a round.
    pub fn verifies(&self, author: &PublicId, round: u32, head: &Head, signature: &[u8; SIGNATURE]) -> bool {
        author.verifies(&self.vouched(round, head), signature)
    }
}
