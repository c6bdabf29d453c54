//! Masks: noise that two clients share and that cancels in the sum over all clients.
//!
//! If at most q of K clients pool what they know, a client need not hide from the others together, only from those q and from
//! whoever reads the messages. Every pair k < l of clients has a secret, and draws from it, in every data round, the same vector
//! m_kl ~ N(0, c^2 I). Client k releases its gradient plus its own noise N(0, sigma_k^2 I) plus its masks,
//!
//! ```text
//! u_k = sum_(l>k) m_kl - sum_(l<k) m_lk,      sum_k u_k = 0.
//! ```
//!
//! With H = K - q honest clients, the adversary knows every mask that has a colluder at one end. What is left of the honest clients' noise
//! has, in every coordinate, the covariance C = diag(sigma_j^2) + c^2 (H I - 1 1^T). One record moves the release of its own client alone,
//! by at most Delta_k, so the round costs k the rho
//!
//! ```text
//! phi_k = Delta_k^2 [C^-1]_kk/2,    [C^-1]_kk = 1/d_k + (c/d_k)^2 H/sum_j (sigma_j^2/d_j),    d_j = sigma_j^2 + H c^2.
//! ```
//!
//! It falls in every sigma_j and in c, and rises with the number of colluders; releases that are missing only lower it. If the
//! assumption is wrong and all others collude, the own noise is left: phi_alone = Delta_k^2/(2 sigma_k^2).
//! The proofs are in `docs/algorithm.md`.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rand_distr::{Distribution, StandardNormal};
use thiserror::Error;

use super::discrete_gaussian;
use super::noise::Stream;
use super::sensitivity::{Lattice, Sensitivity};
use super::units::{Rho, Spent};

/// The largest share theta: masks then have 14 times the scale of the own noise, which the sampler can draw.
pub const LARGEST_THETA: f64 = 0.995;

/// By how much, relatively, the noise exceeds what the reference needs, so that the rounding of sums and to the lattice does not make clients
/// with as many records differ from it.
const MARGIN: f64 = 1e-6;

/// An assumption that gives no masks.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// Nobody is left who would not collude.
    #[error(
        "= {colluders} of {clients} clients leaves no two that do not collude, so there is nobody to share masks with; write at most {}, or leave it out",
        .clients.saturating_sub(2)
    )]
    TooMany {
        /// q.
        colluders: usize,
        /// K.
        clients: usize,
    },
    /// The share of the own noise is so small that none would be masked.
    #[error(
        "= {theta} is too small for {honest} clients that do not collude; write a number above 1/{honest} and at most {LARGEST_THETA}"
    )]
    Share {
        /// theta.
        theta: f64,
        /// H.
        honest: usize,
    },
}

/// What the clients of a study assume about each other, and how noise is divided between masks and own noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trust {
    clients: usize,
    colluders: usize,
    theta: f64,
}

impl Trust {
    /// At most `colluders` of `clients` pool what they know. `theta`, above 1/H, is how near the own noise is to its least, which is
    /// sigma_loc^2/H; without it, the middle of its range. Near 1, masks are large and a lost client leaves much noise behind.
    pub fn new(clients: usize, colluders: usize, theta: Option<f64>) -> Result<Self, TrustError> {
        if colluders + 2 > clients {
            return Err(TrustError::TooMany { colluders, clients });
        }
        let honest = clients - colluders;
        let least = 1.0 / honest as f64;
        let theta = theta.unwrap_or(0.5 * (1.0 + least));
        match theta > least && theta <= LARGEST_THETA {
            true => Ok(Self { clients, colluders, theta }),
            false => Err(TrustError::Share { theta, honest }),
        }
    }

    /// K.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// q.
    pub fn colluders(&self) -> usize {
        self.colluders
    }

    /// H = K - q.
    pub fn honest(&self) -> usize {
        self.clients - self.colluders
    }

    /// theta.
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// The variances of own noise and masks, in units of sigma_loc^2, the variance that a client needs that trusts nobody:
    ///
    /// sigma_min^2 = 1/(H theta), and c^2 from (1 - 1/H)/(sigma_min^2 + H c^2) = 1 - theta.
    pub fn variances(&self) -> (f64, f64) {
        let h = self.honest() as f64;
        (1.0 / (h * self.theta), ((h - 1.0) / (1.0 - self.theta) - 1.0 / self.theta) / (h * h))
    }

    /// The variance of the noise in the mean of the releases of `present` clients, in units of sigma_loc^2. What a lost client leaves behind
    /// is its masks.
    pub fn mean_variance(&self, present: usize) -> f64 {
        let (own, mask) = self.variances();
        let (present, lost) = (present as f64, self.clients.saturating_sub(present) as f64);
        (own + mask * lost) / present
    }
}

/// What masked noise is made for: the trust, and the sensitivity of a gradient of the study's public reference number of records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Masking {
    /// The assumption.
    pub trust: Trust,
    /// 2 c1/D of a client with the reference number of records.
    pub reference: Sensitivity,
}

/// The noise of a masked data round: public, and the same at all clients. Scales are counted in steps of the lattice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskedLattice {
    step: f64,
    /// sigma_min, below which no client's own noise lies.
    floor: u64,
    /// c.
    mask: u64,
    honest: usize,
}

/// A client's own noise in a masked round, and what the release costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnNoise {
    /// s_k in steps, at least the floor.
    pub scale: u64,
    /// If at most the assumed number of clients collude.
    pub rho: f64,
    /// If all others do.
    pub alone: f64,
}

impl OwnNoise {
    /// What is charged for a release of which `phi` was granted, which is never less than it costs.
    pub fn spent(&self, phi: Rho) -> Spent {
        Spent { rho: phi, alone: Rho::computed(self.alone) }
    }
}

impl MaskedLattice {
    /// For a data round of cost `phi`. `None` where the numbers leave the range in which the sampler is exact.
    pub fn new(masking: &Masking, phi: Rho) -> Option<Self> {
        let local = masking.reference.get() * (1.0 + MARGIN) / (2.0 * phi.get()).sqrt();
        let (own, mask) = masking.trust.variances();
        let (own, mask) = (local * own.sqrt(), local * mask.max(0.0).sqrt());
        if !own.is_normal() || own < 1e-280 {
            return None;
        }
        // Own noise of 2^30 steps leaves the sampler room for clients that need a thousand times as much.
        let step = libm::ldexp(1.0, libm::ilogb(own) - 30);
        // Masks of fewer steps would not be smooth on the lattice; more only add privacy.
        let (floor, mask) = ((own / step).ceil(), (mask / step).ceil().max(f64::from(1 << 24)));
        let fits = floor.max(mask) < Lattice::LARGEST_SCALE as f64;
        fits.then(|| Self { step, floor: floor as u64, mask: mask as u64, honest: masking.trust.honest() })
    }

    /// g, a power of two.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The least scale of own noise, in steps.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The scale of a mask, in steps.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The least own noise, not below the floor, with which a release of `features` coordinates costs at most `phi` while all other honest
    /// clients are at the floor. `None` where it is more than the sampler can draw.
    pub fn own(&self, sensitivity: Sensitivity, features: usize, phi: Rho) -> Option<OwnNoise> {
        let moved = sensitivity.bound() / self.step + (features as f64).sqrt();
        let noise = |scale: u64| {
            let alone = (moved / scale as f64).powi(2) / 2.0;
            OwnNoise { scale, rho: self.cost(moved, scale), alone: alone * (1.0 + ROUNDING) }
        };
        let (mut low, mut high) = (self.floor, self.floor);
        while self.cost(moved, high) > phi.get() {
            (low, high) = (high, high * 2);
            if high >= Lattice::LARGEST_SCALE {
                return None;
            }
        }
        // `high` is enough and `low`, if it is less, is not.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.cost(moved, middle) > phi.get() { low = middle } else { high = middle }
        }
        Some(noise(high))
    }

    /// Delta_k^2 [C^-1]_kk/2, rounded up. Every term is positive, so rounding errors stay small.
    fn cost(&self, moved: f64, scale: u64) -> f64 {
        let square = |x: u64| x as f64 * x as f64;
        let (h, own, floor, mask) = (self.honest as f64, square(scale), square(self.floor), square(self.mask));
        let (d_own, d_floor) = (own + h * mask, floor + h * mask);
        let rest = (h - 1.0) * (floor / d_floor) + own / d_own;
        let inverse = 1.0 / d_own + mask / d_own * h / (d_own * rest);
        moved * moved * inverse / 2.0 * (1.0 + ROUNDING)
    }
}

/// Covers the rounding errors of the formulas here.
const ROUNDING: f64 = 1e-13;

/// Secrets that each pair of clients shares, as far as one client knows them: those of its own pairs.
#[derive(Clone)]
pub struct PairKeys {
    me: usize,
    /// By client; the own place is not used.
    keys: Arc<[[u8; 32]]>,
}

impl PairKeys {
    /// Of client `me`, with the secret that it shares with each client.
    ///
    /// # Panics
    /// If there is no client `me`.
    pub fn new(me: usize, keys: Vec<[u8; 32]>) -> Self {
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
        let seed = match self {
            Masks::Seeded(seed) => *seed ^ SEPARATE,
            Masks::Rooted(key) if clients > MOST_PAIRED => {
                u64::from_le_bytes(*key.first_chunk().expect("a key has 32 bytes"))
            }
            Masks::Shared(keys) => return RoundMasks(Round::Paired(Pairs::Own(keys.clone()), clients, trial, round)),
            Masks::Rooted(key) => return RoundMasks(Round::Paired(Pairs::All(*key), clients, trial, round)),
        };
        let mut mean = vec![0.0; features];
        for client in 0..clients {
            let mut rng = Stream { trial, client: client as u32, round }.fast(seed);
            mean.iter_mut().for_each(|sum| *sum += normal(&mut rng));
        }
        mean.iter_mut().for_each(|sum| *sum /= clients as f64);
        RoundMasks(Round::Joint { seed, trial, round, spread: (clients as f64).sqrt(), mean })
    }
}

/// Keeps the streams of masks apart from those of own noise under the same seed.
const SEPARATE: u64 = 0x6d61_736b_732e_2e2e; // "masks..."

fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// The masks of one data round.
pub struct RoundMasks(Round);

enum Round {
    /// Pairs, K, trial and round.
    Paired(Pairs, usize, u32, u32),
    Joint {
        seed: u64,
        trial: u32,
        round: u32,
        /// sqrt(K).
        spread: f64,
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
            Pairs::Own(keys) => keys.keys[if keys.me == k { l } else { k }],
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
        matches!(self.0, Round::Paired(..))
    }

    /// Whether client k can draw its masks from these.
    pub fn are_of(&self, client: usize) -> bool {
        !matches!(&self.0, Round::Paired(Pairs::Own(keys), ..) if keys.me != client)
    }

    /// Writes u_k to `out`, in steps.
    ///
    /// There are as many masks as other clients, whether they take part in the round or not: a mask is never left out or taken back, because
    /// a client that seems lost may have released.
    pub fn sum(&self, client: usize, lattice: &MaskedLattice, out: &mut [i128]) {
        out.fill(0);
        match &self.0 {
            Round::Paired(pairs, clients, trial, round) => {
                for other in (0..*clients).filter(|other| *other != client) {
                    let mut rng = mask_stream(pairs.key(client.min(other), client.max(other)), *trial, *round);
                    for sum in out.iter_mut() {
                        let mask = i128::from(discrete_gaussian::sample(lattice.mask, &mut rng));
                        *sum += if client < other { mask } else { -mask };
                    }
                }
            }
            Round::Joint { .. } => {
                let mut values = vec![0.0; out.len()];
                self.sum_normal(client, lattice, &mut values);
                let steps = values.iter().map(|value| libm::round(value / lattice.step) as i128);
                out.iter_mut().zip(steps).for_each(|(sum, steps)| *sum = steps);
            }
        }
    }

    /// Writes u_k to `out` as floating-point numbers, by the joint law. Nothing for masks of pairs, which lie on the lattice.
    pub fn sum_normal(&self, client: usize, lattice: &MaskedLattice, out: &mut [f64]) {
        let Round::Joint { seed, trial, round, spread, mean } = &self.0 else { return out.fill(0.0) };
        let mut rng = Stream { trial: *trial, client: client as u32, round: *round }.fast(*seed);
        let scale = lattice.mask as f64 * lattice.step * spread;
        for (out, mean) in out.iter_mut().zip(mean) {
            *out = scale * (normal(&mut rng) - mean);
        }
    }
}

/// The stream of integers that both ends of a pair draw the mask of a round from.
fn mask_stream(key: [u8; 32], trial: u32, round: u32) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(key);
    rng.set_stream(u64::from(trial) << 32 | u64::from(round));
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Clip;

    /// C^-1 by Gauss-Jordan elimination, as an oracle.
    fn inverse_corner(sigma2: &[f64], c2: f64) -> f64 {
        let h = sigma2.len();
        let entry = |i: usize, j: usize| if i == j { sigma2[i] + c2 * (h as f64 - 1.0) } else { -c2 };
        // Row-reduces [C | e_0]; the first entry of the solution is [C^-1]_00.
        let mut rows: Vec<Vec<f64>> =
            (0..h).map(|i| (0..h).map(|j| entry(i, j)).chain([f64::from(i == 0)]).collect()).collect();
        for i in 0..h {
            let pivot = rows[i].clone();
            for (r, row) in rows.iter_mut().enumerate() {
                let factor = if r == i { 0.0 } else { row[i] / pivot[i] };
                row.iter_mut().zip(&pivot).for_each(|(v, p)| *v -= factor * p);
            }
        }
        rows[0][h] / rows[0][0]
    }

    fn masking(clients: usize, colluders: usize, theta: f64) -> Masking {
        Masking {
            trust: Trust::new(clients, colluders, Some(theta)).unwrap(),
            reference: Sensitivity::of_clipped_mean(Clip::new(1.5).unwrap(), 40),
        }
    }

    fn of_records(records: usize) -> Sensitivity {
        Sensitivity::of_clipped_mean(Clip::new(1.5).unwrap(), records)
    }

    #[test]
    fn the_cost_is_that_of_the_inverse_covariance() {
        for (clients, colluders, theta) in [(5, 1, 0.5), (10, 2, 0.9), (50, 1, 0.3), (7, 0, 0.99), (4, 2, 0.6)] {
            let masking = masking(clients, colluders, theta);
            let phi = Rho::new(0.004).unwrap();
            let lattice = MaskedLattice::new(&masking, phi).unwrap();
            for records in [40, 400, 7] {
                let own = lattice.own(of_records(records), 3, phi).unwrap();
                let mut sigma2 = vec![(lattice.floor as f64).powi(2); clients - colluders];
                sigma2[0] = (own.scale as f64).powi(2);
                let moved = of_records(records).bound() / lattice.step + 3f64.sqrt();
                let exact = moved.powi(2) * inverse_corner(&sigma2, (lattice.mask as f64).powi(2)) / 2.0;
                assert!((own.rho / exact - 1.0).abs() < 1e-9, "{} against {exact}", own.rho);
                assert!(own.rho <= phi.get() && own.alone >= own.rho);
                assert_eq!(own.scale == lattice.floor, records >= 40, "{records}");
                if records < 40 {
                    assert!(lattice.cost(moved, own.scale - 1) > phi.get(), "not more noise than needed");
                }
            }
        }
    }

    #[test]
    fn at_the_reference_nothing_is_wasted_and_own_noise_is_a_hth_part() {
        let (masking, phi) = (masking(50, 5, 0.8), Rho::new(0.01).unwrap());
        let lattice = MaskedLattice::new(&masking, phi).unwrap();
        let own = lattice.own(of_records(40), 8, phi).unwrap();
        assert!(own.rho > phi.get() * (1.0 - 1e-5), "{}", own.rho);
        let local = of_records(40).get() / (2.0 * phi.get()).sqrt();
        let sigma = own.scale as f64 * lattice.step;
        assert!((sigma * sigma / (local * local) * 45.0 * 0.8 - 1.0).abs() < 1e-5);
        assert!((own.alone / (phi.get() * 45.0 * 0.8) - 1.0).abs() < 1e-5, "about H theta times phi");
    }

    #[test]
    fn impossible_trust_is_refused() {
        assert!(Trust::new(5, 4, None).is_err_and(|e| e.to_string().contains("at most 3")));
        assert!(Trust::new(5, 3, None).is_ok() && Trust::new(2, 0, None).is_ok());
        assert!(Trust::new(5, 1, Some(0.25)).is_err_and(|e| e.to_string().contains("above 1/4")));
        assert!(Trust::new(5, 1, Some(0.9951)).is_err() && Trust::new(5, 1, Some(f64::NAN)).is_err());
    }
}
