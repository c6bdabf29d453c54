//! The identity of a peer: an Ed25519 key, whose public half identifies it to the others.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use thiserror::Error;
use zeroize::Zeroizing;

/// A public key, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicId(VerifyingKey);

impl PublicId {
    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// A key from its bytes, if they are a point of the curve.
    pub fn from_bytes(bytes: [u8; 32]) -> Option<Self> {
        VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak()).map(Self)
    }

    /// Whether `signature` is this peer's under `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.as_bytes()))
    }
}

impl fmt::Debug for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Text that is not a public id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("is not a public id; copy the 64 digits that `undertone keygen` printed")]
pub struct IdError;

impl FromStr for PublicId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok().and_then(|()| Self::from_bytes(bytes)).ok_or(IdError)
    }
}

/// Length of a [`Identity::tag`].
pub const TAG: usize = 16;

/// A secret key and what follows from it. It has no `Debug`, and is wiped from memory when it is dropped.
pub struct Identity {
    signing: SigningKey,
    tagging: Zeroizing<[u8; 32]>,
}

impl Identity {
    /// From the 32 secret bytes of a key file.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        let tagging = blake3::derive_key("undertone 2026 receipts of own frames", secret);
        Self { signing: SigningKey::from_bytes(secret), tagging: Zeroizing::new(tagging) }
    }

    /// The public half.
    pub fn id(&self) -> PublicId {
        PublicId(self.signing.verifying_key())
    }

    /// The secret bytes, for the transport and the key file.
    pub fn secret(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.signing.to_bytes())
    }

    /// A signature that anyone can check.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.signing.sign(message).to_bytes()
    }

    /// The secret that this peer shares with another in a study: both compute it from their own key and the other's id, and nobody else
    /// can. X25519 of the two keys in Montgomery's form, then a key derivation bound to the study, the pair and the purpose.
    ///
    /// The ids stand in ascending order, so that both ends derive the same.
    pub fn mask_key(&self, other: &PublicId, study: &[u8; 32]) -> Zeroizing<[u8; 32]> {
        let shared = other.0.to_montgomery().mul_clamped(self.signing.to_scalar_bytes());
        let own = self.id();
        let mut ends = [own.as_bytes(), other.as_bytes()];
        ends.sort();
        let material = Zeroizing::new([shared.as_bytes(), study, ends[0], ends[1]].map(|part| &part[..]).concat());
        Zeroizing::new(blake3::derive_key("undertone 2026 masks between two peers of a study", &material))
    }

    /// A keyed hash of data. It reveals nothing about the data, because only this peer can compute it.
    pub fn fingerprint<'a>(&self, parts: impl IntoIterator<Item = &'a [f64]>) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key("undertone 2026 data", &*self.tagging));
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            for v in part {
                hasher.update(&v.to_le_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// A tag that only this peer can compute and check, cheap enough for every frame. Returned later, it proves to
    /// the peer that it once sent that frame.
    pub fn tag(&self, message: &[u8]) -> [u8; TAG] {
        let full = blake3::keyed_hash(&self.tagging, message);
        *full.as_bytes().first_chunk().expect("a hash is longer than a tag")
    }
}
