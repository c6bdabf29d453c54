//! Noise for releases.
//!
//! [`Noise::secure`] is for anything that is released: an exact discrete Gaussian on a lattice, drawn from ChaCha20
//! with a new key from the operating system for every release. [`Noise::fast`] is for simulation only: a
//! floating-point normal from a seeded stream, whose low bits would reveal more to an adversary than the analysis allows
//! (Mironov 2012). It has one stream of randomness for every (trial, client, round), so the bits do not depend on which thread
//! computes in which order.
//!
//! A key kept for the whole process would repeat its noise for other values when a virtual machine is restored
//! from a snapshot, or when the process is forked. A key per release cannot: no random state is kept between two
//! releases. Keys and the cipher's state are wiped from memory when a release is made.

use chacha20::ChaCha20Rng;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::normal::{self, Ahead};

use super::discrete_gaussian;
use super::masks::RoundMasks;
use super::sensitivity::NoiseScale;
use super::trust::{MaskedLattice, OwnNoise};

/// Noise could not be drawn.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NoiseError {
    /// The operating system returned no entropy.
    #[error("the operating system returned no random key ({0}); secure noise needs one")]
    NoEntropy(String),
    /// What was to be released is infinite or not a number.
    #[error("the value to release is too large or not a number: the run has diverged; lower eta, raise rho or lambda")]
    Diverged(f64),
    /// The noise scale cannot be put on a lattice.
    #[error("a release of scale {sigma:e} cannot be represented; change the budget, clip or step size")]
    Unrepresentable {
        /// The standard deviation asked for.
        sigma: f64,
    },
    /// Masked noise cannot be put on the lattice of all clients.
    #[error(
        "masked noise for this client cannot be represented; change the budget, clip or number of records, or set privacy.colluders for fewer masks"
    )]
    UnrepresentableMask,
    /// Safe noise for several trials at once.
    #[error("noise that is safe to release is made for one trial at a time")]
    OneTrial,
    /// The masks of another client, round or number of clients, or secret masks under noise that is not safe.
    #[error("the masks are not those of this client and round, or not made for this kind of noise")]
    OtherMasks,
}

/// A source of noise for releases. It has no `Debug`, because it may hold a key.
#[derive(Clone)]
pub struct Noise(Source);

#[derive(Clone)]
enum Source {
    Fast {
        seed: u64,
    },
    Secure,
    /// Secure except for its key, which is known to tests.
    Keyed {
        key: [u8; 32],
    },
}

impl Noise {
    /// Seeded floating-point noise, for simulation only.
    pub fn fast(seed: u64) -> Self {
        Self(Source::Fast { seed })
    }

    /// Exact lattice noise, every release under a new key from the operating system.
    pub fn secure() -> Self {
        Self(Source::Secure)
    }

    /// Exact lattice noise from a known key. Anyone who knows the key can subtract the noise: only for tests.
    #[doc(hidden)]
    pub fn secure_with_test_key(key: [u8; 32]) -> Self {
        Self(Source::Keyed { key })
    }

    /// Whether releases with this noise are safe to publish.
    pub fn is_safe(&self) -> bool {
        matches!(self.0, Source::Secure | Source::Keyed { .. })
    }

    /// Whether the noise of several trials can be drawn at once.
    pub fn takes_trials(&self) -> bool {
        !self.is_safe()
    }

    /// The same as [`Noise::release`] for so many trials side by side, of which `stream` names the first: number p of trial t is at p `trials` + t.
    ///
    /// Only simulations have trials, so noise that is safe to release is not made for several at once.
    pub fn release_trials(
        &self,
        stream: Stream,
        trials: usize,
        scale: NoiseScale,
        value: &[f64],
        released: &mut [f64],
    ) -> Result<(), NoiseError> {
        let Source::Fast { seed } = self.0 else { return Err(NoiseError::OneTrial) };
        released.copy_from_slice(value);
        normal::add_scaled(seed, stream.normals(), trials, scale.sigma(), released);
        Ok(())
    }

    /// Writes `value` plus noise of the given scale to `released`: the paper's w~ = w + xi.
    pub fn release(
        &self,
        stream: Stream,
        scale: NoiseScale,
        value: &[f64],
        released: &mut [f64],
    ) -> Result<(), NoiseError> {
        self.release_ahead(stream, &[], scale, value, released, &mut Ahead::default())
    }

    /// The same; numbers that are not safe to release are drawn for several clients at a time, this one and those after it in `upcoming`, and kept in `ahead`.
    pub(crate) fn release_ahead(
        &self,
        stream: Stream,
        upcoming: &[u32],
        scale: NoiseScale,
        value: &[f64],
        released: &mut [f64],
        ahead: &mut Ahead,
    ) -> Result<(), NoiseError> {
        match &self.0 {
            Source::Fast { seed } => {
                let sigma = scale.sigma();
                let drawn = ahead.stream(*seed, stream.normals(), upcoming, value.len());
                for (i, (r, v)) in released.iter_mut().zip(value).enumerate() {
                    *r = v + sigma * drawn.number(i);
                }
            }
            Source::Secure | Source::Keyed { .. } => {
                let refused = NoiseError::Unrepresentable { sigma: scale.sigma() };
                let lattice = scale.lattice(value.len()).ok_or(refused)?;
                let mut rng = self.generator(stream)?;
                release_on_lattice(&mut rng, lattice.step(), lattice.scale(), |_| 0, value, released)?;
            }
        }
        Ok(())
    }

    /// Writes `value` plus own noise plus the client's masks to `released`.
    pub fn release_masked(
        &self,
        stream: Stream,
        (lattice, own): (&MaskedLattice, &OwnNoise),
        masks: &RoundMasks,
        value: &[f64],
        released: &mut [f64],
    ) -> Result<(), NoiseError> {
        let client = stream.client as usize;
        // Real masks under noise that anybody can subtract would be given away.
        if masks.is_paired() && !self.is_safe() {
            return Err(NoiseError::OtherMasks);
        }
        if let Source::Fast { seed } = self.0 {
            masks.sum_normal(client, lattice, released);
            released.iter_mut().zip(value).for_each(|(r, v)| *r += v);
            normal::add_scaled(seed, stream.normals(), 1, own.scale as f64 * lattice.step(), released);
            return Ok(());
        }
        let mut sums = vec![0; value.len()];
        masks.sum(client, lattice, &mut sums);
        release_on_lattice(&mut self.generator(stream)?, lattice.step(), own.scale, |i| sums[i], value, released)
    }

    /// What exact noise is drawn from.
    fn generator(&self, stream: Stream) -> Result<ChaCha20Rng, NoiseError> {
        match &self.0 {
            Source::Keyed { key } => Ok(stream.keyed(*key)),
            _ => {
                let mut key = Zeroizing::new([0; 32]);
                getrandom::fill(&mut *key).map_err(|e| NoiseError::NoEntropy(e.to_string()))?;
                Ok(ChaCha20Rng::from_seed(*key))
            }
        }
    }
}

/// g (round(w/g) + Z + mask), Z a discrete Gaussian per coordinate, of `scale` steps of length g = `step`.
fn release_on_lattice(
    rng: &mut ChaCha20Rng,
    step: f64,
    scale: u64,
    mask: impl Fn(usize) -> i128,
    value: &[f64],
    released: &mut [f64],
) -> Result<(), NoiseError> {
    // Beyond this the sum below could overflow; only diverged runs reach it.
    const LARGEST_STEPS: f64 = (1u128 << 120) as f64;
    for (i, (r, v)) in released.iter_mut().zip(value).enumerate() {
        // Dividing and multiplying by a power of two is exact, so only `round` and the last conversion introduce rounding; the
        // last one uses only the noised integer.
        let steps = libm::round(v / step);
        if steps.is_nan() || steps.abs() > LARGEST_STEPS {
            return Err(NoiseError::Diverged(*v));
        }
        let noised = steps as i128 + mask(i) + i128::from(discrete_gaussian::sample(scale, rng));
        *r = noised as f64 * step;
    }
    Ok(())
}

/// The name of one stream of randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Repetition of a simulation.
    pub trial: u32,
    /// The client that draws, or another index.
    pub client: u32,
    /// Round, from 1; 0 is for what happens before the first round.
    pub round: u32,
}

impl Stream {
    /// The name of the stream in [`normal`]; those of neighbouring trials follow each other.
    pub(super) fn normals(self) -> normal::Name {
        [self.client, self.round, self.trial]
    }

    /// The seeded generator of this stream.
    ///
    /// Each word is a bijection of the one before and one more part of the name, so no two names share a state.
    pub fn fast(self, seed: u64) -> Xoshiro256PlusPlus {
        let mut state = [0; 32];
        let mut word = 0x756e_6465_7274_6f6e; // "underton"
        let parts = [seed, u64::from(self.trial), u64::from(self.client), u64::from(self.round)];
        for (bytes, part) in state.chunks_exact_mut(8).zip(parts) {
            word = mix(word ^ part);
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Xoshiro256PlusPlus::from_seed(state)
    }

    /// The generator of this stream under a known key: client and round name the ChaCha stream, the trial is part of the key.
    fn keyed(self, mut key: [u8; 32]) -> ChaCha20Rng {
        for (k, t) in key.iter_mut().zip(self.trial.to_le_bytes()) {
            *k ^= t;
        }
        let mut rng = ChaCha20Rng::from_seed(key);
        rng.set_stream(u64::from(self.client) << 32 | u64::from(self.round));
        rng
    }
}

/// The finaliser of SplitMix64 after its increment: a bijection that spreads every input bit over the word.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
