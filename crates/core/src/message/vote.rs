//! Which last releases make the model: what every peer signs once.

use super::{Chain, Final, HASH, Head, Malformed, Outgoing, Receipt, SIGNATURE, SignedHead, next_head};
use crate::bytes::{ByteReader, ByteWriter};
use crate::identity::{Identity, PublicId};
use crate::study::Limits;

/// A set of last releases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// A bit for every author, from the lowest bit of the first byte on.
    authors: Vec<u8>,
    /// The hash of their chains.
    digest: Head,
}

impl Ballot {
    /// These last releases, by ascending author.
    pub fn of<'a>(releases: impl Iterator<Item = Final<'a>>, limits: &Limits) -> Self {
        let mut authors = vec![0; limits.clients.div_ceil(8)];
        let mut hasher = blake3::Hasher::new_derive_key("undertone 2026 set of last releases");
        for last in releases {
            authors[last.author as usize / 8] |= 1 << (last.author % 8);
            hasher.update(&last.author.to_le_bytes()).update(&last.signed_head(limits.rounds).head);
        }
        Self { authors, digest: *hasher.finalize().as_bytes() }
    }

    /// Whether the last release of an author is in it.
    pub fn contains(&self, author: u32) -> bool {
        self.authors.get(author as usize / 8).is_some_and(|byte| byte & 1 << (author % 8) != 0)
    }

    /// How many it has.
    pub fn len(&self) -> usize {
        self.authors.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This vote of a peer.
    pub fn sign(&self, chain: &Chain, identity: &Identity, author: u32, limits: &Limits) -> Outgoing {
        let unsigned = Vote { author, authors: &self.authors, digest: self.digest, signature: [0; SIGNATURE] };
        let SignedHead { round, head, .. } = unsigned.signed_head(limits);
        let signed = chain.sign(identity, &Receipt { round, head, ..Receipt::default() });
        Vote { signature: signed.signature, ..unsigned }.encode()
    }
}

/// Which last releases a peer counts, signed by it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vote<'a> {
    /// The peer.
    pub author: u32,
    authors: &'a [u8],
    digest: Head,
    signature: [u8; SIGNATURE],
}

impl<'a> Vote<'a> {
    pub(super) fn size(limits: &Limits) -> usize {
        1 + 4 + limits.clients.div_ceil(8) + HASH + SIGNATURE
    }

    pub(super) fn read(reader: &mut ByteReader<'a>, limits: &Limits) -> Result<Self, Malformed> {
        let vote = (|| {
            let author = reader.u32()?;
            let authors = reader.take(limits.clients.div_ceil(8))?;
            Some(Self { author, authors, digest: reader.array()?, signature: reader.array()? })
        })();
        let vote = vote.ok_or(Malformed::Short)?;
        let is_beyond = |k: usize| vote.authors[k / 8] & 1 << (k % 8) != 0;
        if vote.author as usize >= limits.clients || (limits.clients..8 * vote.authors.len()).any(is_beyond) {
            return Err(Malformed::OutOfStudy);
        }
        Ok(vote)
    }

    /// As it travels.
    pub fn encode(&self) -> Outgoing {
        let mut w = ByteWriter::with_capacity(1 + 4 + self.authors.len() + HASH + SIGNATURE);
        w.u8(7);
        w.u32(self.author);
        w.bytes(self.authors);
        w.bytes(&self.digest);
        w.bytes(&self.signature);
        Outgoing(w.into_bytes().into())
    }

    /// What it is for.
    pub fn ballot(&self) -> Ballot {
        Ballot { authors: self.authors.to_vec(), digest: self.digest }
    }

    /// What its author signed: in the place of a round after the last, so that two different votes are two stories.
    pub fn signed_head(&self, limits: &Limits) -> SignedHead {
        let round = limits.rounds + 1;
        SignedHead { round, head: next_head(&self.digest, round, self.authors), signature: self.signature }
    }

    /// Whether its author signed it.
    pub fn verifies(&self, chain: &Chain, author: &PublicId, limits: &Limits) -> bool {
        let SignedHead { round, head, signature } = self.signed_head(limits);
        chain.verifies(author, round, &head, &signature)
    }
}
