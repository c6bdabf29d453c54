//! The chain of hashes over the releases of a peer, and what vouches for it.

use super::{HASH, Head, Outgoing, Receipt, SIGNATURE, Session, SignedHead};
use crate::bytes::ByteWriter;
use crate::identity::{Identity, PublicId};
use crate::study::{Limits, StudyDigest};

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

    /// The chains of a study of which only the whole digest is known.
    pub fn of(study: [u8; 32]) -> Self {
        Self { study }
    }

    /// c_0 of an author.
    pub fn start(&self, author: &PublicId) -> Head {
        let mut hasher = blake3::Hasher::new_derive_key("undertone 2026 chain of releases");
        hasher.update(&self.study).update(author.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The bytes that are signed and tagged for a chain up to a round.
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
        let mut w = ByteWriter::with_capacity(limits.frame(round));
        w.u8(2);
        w.u32(round);
        w.vector(values);
        let head = next_head(prior, round, &w.written()[5..]);
        let vouched = self.vouched(round, &head);
        let tag = identity.tag(&vouched);
        w.bytes(&tag);
        let signature = limits.signs(round).then(|| identity.sign(&vouched));
        w.bytes(signature.as_ref().map_or(&[], |s| &s[..]));
        (Outgoing(w.into_bytes().into()), Receipt { round, head, tag }, signature)
    }

    /// The chain of a peer up to a round, signed by it.
    pub fn sign(&self, identity: &Identity, receipt: &Receipt) -> SignedHead {
        let signature = identity.sign(&self.vouched(receipt.round, &receipt.head));
        SignedHead { round: receipt.round, head: receipt.head, signature }
    }

    /// A session of a peer, with its tag.
    pub fn session(&self, identity: &Identity, number: u64, nonce: u64) -> Session {
        let mut text = [0; 17 + 32 + 16];
        text[..17].copy_from_slice(b"undertone session");
        text[17..49].copy_from_slice(&self.study);
        text[49..57].copy_from_slice(&number.to_le_bytes());
        text[57..].copy_from_slice(&nonce.to_le_bytes());
        Session { number, nonce, tag: identity.tag(&text) }
    }

    /// Whether a receipt is for a frame of this peer.
    pub fn is_own(&self, identity: &Identity, receipt: &Receipt) -> bool {
        identity.tag(&self.vouched(receipt.round, &receipt.head)) == receipt.tag
    }

    /// Whether an author signed its chain up to a round.
    pub fn verifies(&self, author: &PublicId, round: u32, head: &Head, signature: &[u8; SIGNATURE]) -> bool {
        author.verifies(&self.vouched(round, head), signature)
    }
}
