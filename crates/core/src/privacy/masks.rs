//! Where masks come from: secrets of pairs of clients, or a seed; [`Trust`](super::Trust) says how large they are.
//!
//! Client k adds u_k = sum_(l>k) m_kl - sum_(l<k) m_lk to its own noise, so that sum_k u_k = 0. Both ends of a pair draw m_kl from the same stream,
//! in integers, so that they get the same on any machine.

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use rand::SeedableRng;

use zeroize::Zeroizing;

use crate::normal;

use super::discrete_gaussian;
use super::noise::Stream;
use super::trust::MaskedLattice;

/// Secrets that each pair of clients shares, as far as one client knows them: those of its own pairs. They are wiped from memory when the
/// last copy is dropped.
#[derive(Clone)]
pub struct PairKeys {
    me: usize,
    /// By client; the own place is not used.
    keys: Arc<[Zeroizing<[u8; 32]>]>,
}

impl PairKeys {
    /// Of client `me`, with the secret that it shares with each client.
    ///
    /// # Panics
    /// If there is no client `me`.
    pub fn new(me: usize, keys: Vec<Zeroizing<[u8; 32]>>) -> Self {
        assert!(me < keys.len(), "one of the clients");
        Self { me, keys: keys.into() }
    }
}

/// Where masks come from. It has no `Debug`, because it may hold keys.
#[derive(Clone)]
pub enum Masks {
    /// From the secrets of a peer.
    Shared(PairKeys),
    /// From secrets that follow from one key: a simulation with secure noise, in which one process plays all clients.
    Rooted([u8; 32]),
    /// From a seed, by their joint law, for simulations and rehearsals: u = c sqrt(K) (z - mean of z) with z ~ N(0, I).
    Seeded(u64),
}

/// More clients than this are masked by the joint law in a simulation with secure noise too: pairs would take too long.
const MOST_PAIRED: usize = 2000;

impl Masks {
    /// New secrets for a simulation with secure noise.
    pub fn rooted() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Masks::Rooted(key))
    }

    /// The masks of one round, ready for each of `clients` clients.
    pub fn round(&self, clients: usize, trial: u32, round: u32, features: usize) -> RoundMasks {
        let paired = |pairs| RoundMasks { clients, trial, round, source: Drawn::Paired(pairs) };
        let seed = match self {
            Masks::Seeded(seed) => *seed ^ SEPARATE,
            Masks::Rooted(key) if clients > MOST_PAIRED => {
                u64::from_le_bytes(*key.first_chunk().expect("a key has 32 bytes"))
            }
            Masks::Shared(keys) => return paired(Pairs::Own(keys.clone())),
            Masks::Rooted(key) => return paired(Pairs::All(*key)),
        };
        let mut mean = vec![0.0; features];
        for client in 0..clients {
            let stream = Stream { trial, client: client as u32, round };
            normal::add_scaled(seed, stream.normals(), 1, 1.0, &mut mean);
        }
        mean.iter_mut().for_each(|sum| *sum /= clients as f64);
        RoundMasks { clients, trial, round, source: Drawn::Joint { seed, mean } }
    }
}

/// Keeps the streams of masks apart from those of own noise under the same seed.
const SEPARATE: u64 = 0x6d61_736b_732e_2e2e; // "masks..."

/// The masks of one data round.
pub struct RoundMasks {
    clients: usize,
    trial: u32,
    round: u32,
    source: Drawn,
}

enum Drawn {
    Paired(Pairs),
    Joint {
        seed: u64,
        /// The mean of z over all clients.
        mean: Vec<f64>,
    },
}

#[derive(Clone)]
enum Pairs {
    Own(PairKeys),
    All([u8; 32]),
}

impl Pairs {
    /// The secret of clients k < l, as far as it is known here.
    fn key(&self, k: usize, l: usize) -> [u8; 32] {
        match self {
            Pairs::Own(keys) => *keys.keys[if keys.me == k { l } else { k }],
            Pairs::All(root) => {
                let pair = [(k as u64).to_le_bytes(), (l as u64).to_le_bytes()].concat();
                *blake3::keyed_hash(root, &pair).as_bytes()
            }
        }
    }
}

impl RoundMasks {
    /// Whether these masks come from secrets and lie on the lattice.
    pub fn is_paired(&self) -> bool {
        matches!(self.source, Drawn::Paired(_))
    }

    /// Whether these are the masks of a client among so many in a round.
    pub fn are_of(&self, client: usize, clients: usize, round: u32) -> bool {
        let others = matches!(&self.source, Drawn::Paired(Pairs::Own(keys)) if keys.me != client);
        !others && (self.clients, self.round) == (clients, round)
    }

    /// Writes u_k to `out`, in steps.
    ///
    /// There are as many masks as other clients, whether they take part in the round or not: a mask is never left out or taken back, because
    /// a client that seems lost may have released.
    pub fn sum(&self, client: usize, lattice: &MaskedLattice, out: &mut [i128]) {
        out.fill(0);
        match &self.source {
            Drawn::Paired(pairs) => {
                for other in (0..self.clients).filter(|other| *other != client) {
                    self.add_pair(pairs, (client, other), lattice, out);
                }
            }
            Drawn::Joint { .. } => {
                let mut values = vec![0.0; out.len()];
                self.sum_normal(client, lattice, &mut values);
                let steps = values.iter().map(|value| libm::round(value / lattice.step()) as i128);
                out.iter_mut().zip(steps).for_each(|(sum, steps)| *sum = steps);
            }
        }
    }

    /// Adds the mask that `client` adds on account of `other`, in steps: what both of them know. Masks that were drawn by their joint law have
    /// no pairs, and nothing is added.
    pub fn add_mask(&self, client: usize, other: usize, lattice: &MaskedLattice, out: &mut [i128]) {
        if let Drawn::Paired(pairs) = &self.source {
            self.add_pair(pairs, (client, other), lattice, out);
        }
    }

    fn add_pair(&self, pairs: &Pairs, (client, other): (usize, usize), lattice: &MaskedLattice, out: &mut [i128]) {
        let key = pairs.key(client.min(other), client.max(other));
        let mut rng = mask_stream(key, self.trial, self.round);
        for sum in out.iter_mut() {
            let mask = i128::from(discrete_gaussian::sample(lattice.mask(), &mut rng));
            *sum += if client < other { mask } else { -mask };
        }
    }

    /// Writes u_k to `out` as floating-point numbers, by the joint law. Masks of pairs lie on the lattice: for them it writes what is not
    /// a number.
    pub fn sum_normal(&self, client: usize, lattice: &MaskedLattice, out: &mut [f64]) {
        let Drawn::Joint { seed, mean } = &self.source else { return out.fill(f64::NAN) };
        let stream = Stream { trial: self.trial, client: client as u32, round: self.round };
        normal::fill(*seed, stream.normals(), out);
        let scale = lattice.mask() as f64 * lattice.step() * (self.clients as f64).sqrt();
        out.iter_mut().zip(mean).for_each(|(out, mean)| *out = scale * (*out - mean));
    }
}

/// The stream of integers that both ends of a pair draw the mask of a round from.
fn mask_stream(key: [u8; 32], trial: u32, round: u32) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(key);
    rng.set_stream(u64::from(trial) << 32 | u64::from(round));
    rng
}
