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

use thiserror::Error;

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
        "= {colluders} of {clients} clients leaves no two that do not collude, so there is nobody to share masks with; {}leave it out",
        if *.clients > 2 { format!("write at most {}, or ", .clients - 2) } else { String::new() }
    )]
    TooMany {
        /// q.
        colluders: usize,
        /// K.
        clients: usize,
    },
    /// So small that no noise would be masked, or so large that masks cannot be drawn.
    #[error(
        "= {theta} is not possible with {honest} clients that do not collude; write a number above 1/{honest} and at most {LARGEST_THETA}"
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
        if colluders.saturating_add(2) > clients {
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
    /// What a release costs. A client that may spend more than others, or has more records, is still at the floor, and costs less than it may.
    pub fn spent(&self) -> Spent {
        Spent { rho: Rho::computed(self.rho), alone: Rho::computed(self.alone) }
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
        // Own noise of 2^30 steps leaves the sampler room for clients that need some thousand times as much.
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

    /// By how much more a release costs, at most, if all others collude: phi_alone/phi of a client whose own noise is at the floor. With
    /// 1/[C^-1]_kk = sigma_k^2 + v, where v does not depend on sigma_k, it is 1 + v/sigma_k^2, which is largest there.
    pub fn exposure(&self) -> f64 {
        let floor = self.floor as f64;
        (1.0 + ROUNDING) / (floor * floor * self.inverse(self.floor))
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

    /// Delta_k^2 [C^-1]_kk/2, rounded up.
    fn cost(&self, moved: f64, scale: u64) -> f64 {
        moved * moved * self.inverse(scale) / 2.0 * (1.0 + ROUNDING)
    }

    /// [C^-1]_kk for own noise of this scale. Every term is positive, so rounding errors stay small.
    fn inverse(&self, scale: u64) -> f64 {
        let square = |x: u64| x as f64 * x as f64;
        let (h, own, floor, mask) = (self.honest as f64, square(scale), square(self.floor), square(self.mask));
        let (d_own, d_floor) = (own + h * mask, floor + h * mask);
        let rest = (h - 1.0) * (floor / d_floor) + own / d_own;
        1.0 / d_own + mask / d_own * h / (d_own * rest)
    }
}

/// Covers the rounding errors of the formulas here.
const ROUNDING: f64 = 1e-13;

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

    #[test]
    fn masks_are_never_shorter_than_the_proof_needs() {
        let lattice = MaskedLattice::new(&masking(4, 1, 1.0 / 3.0 + 1e-12), Rho::new(0.01).unwrap()).unwrap();
        assert!(lattice.mask() >= 1 << 24, "{}", lattice.mask());
    }
}
