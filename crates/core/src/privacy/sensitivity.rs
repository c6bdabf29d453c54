//! How far one record can move a release, and how much noise hides it.
//!
//! A sensitivity cannot be entered: it is computed from the clip that the gradient kernel enforces, the
//! public number of records and the algorithm's step. A noise scale cannot be entered either: it is made
//! from a sensitivity and a round's budget.

use super::units::{Clip, Rho};

/// What a client's records were stored with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clipping {
    /// The kernel clips every record's gradient to this norm.
    Enforced(Clip),
    /// Noise is made for this clip, but nothing enforces it: what is released is not private.
    Assumed(Clip),
    /// Gradients are not clipped.
    Off,
}

impl Clipping {
    /// The clip for which noise is made, if there is one.
    #[inline]
    pub fn clip(self) -> Option<Clip> {
        match self {
            Clipping::Enforced(clip) | Clipping::Assumed(clip) => Some(clip),
            Clipping::Off => None,
        }
    }

    /// The clip that the kernel enforces, if there is one.
    pub fn enforced(self) -> Option<Clip> {
        match self {
            Clipping::Enforced(clip) => Some(clip),
            Clipping::Assumed(_) | Clipping::Off => None,
        }
    }
}

/// 2^-53, the largest relative error of one rounding.
const UNIT_ROUNDOFF: f64 = f64::EPSILON / 2.0;

/// The l2 sensitivity of one release under replacement of one record.
///
/// It follows from the clip and the number of records. It cannot be made from a plain number:
///
/// ```
/// # use undertone_core::privacy::{Clip, Sensitivity};
/// let sensitivity = Sensitivity::of_clipped_mean(Clip::new(1.0)?, 50);
/// # Ok::<(), undertone_core::privacy::UnitError>(())
/// ```
///
/// ```compile_fail
/// # use undertone_core::privacy::{Clip, Sensitivity};
/// let sensitivity = Sensitivity { exact: 0.0, margin: 0.0 };
/// # Ok::<(), undertone_core::privacy::UnitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity {
    /// In exact arithmetic.
    exact: f64,
    /// By how much, relatively, floating-point arithmetic may exceed it.
    margin: f64,
}

impl Sensitivity {
    /// 2 c1/M: the mean of `records` gradients clipped to `clip`, when one record is replaced by another.
    ///
    /// The factor 2 is there because the old record's gradient can point one way and the new one's the other.
    ///
    /// Floating-point summation moves either sum by up to (M/4 + 6) M u c1, u = 2^-53: a lane adds M/4 terms, and a
    /// few roundings make each term. Relative to 2 c1 that is less than M^2 2^-53 from M = 8 on; 1e-9 covers smaller M,
    /// the clip's own rounding (about P u) and the scaling after it. Records of single precision are rounded when they are stored, each by itself, and
    /// their limits follow from what is stored, rounded down; all sums have 64 bits, so the margin is the same.
    #[inline]
    pub fn of_clipped_mean(clip: Clip, records: usize) -> Self {
        Self::of_clipped_sum(clip, records, records as f64)
    }

    /// 2 c1/D: the sum of `records` gradients clipped to `clip`, divided by a public D.
    ///
    /// The margin is that of the sum, so it follows from the number of terms and not from D.
    ///
    /// # Panics
    /// If the divisor is not positive: noise would have no scale.
    #[inline]
    pub fn of_clipped_sum(clip: Clip, records: usize, divisor: f64) -> Self {
        assert!(divisor > 0.0, "a sum is divided by a positive number");
        let count = records as f64;
        Self { exact: 2.0 * clip.get() / divisor, margin: 1e-9 + count * count * UNIT_ROUNDOFF }
    }

    /// The sensitivity after a public, data-independent scaling: for zCDP-NFL 1/a_k(n).
    #[inline]
    pub fn scaled(self, factor: f64) -> Self {
        Self { exact: self.exact * factor, ..self }
    }

    /// The sensitivity of a result that is known only up to `error` in l2 norm, on either of two neighbouring inputs.
    pub fn widened(self, error: f64) -> Self {
        Self { exact: self.exact + 2.0 * error, ..self }
    }

    /// The sensitivity with its margin, which floating-point arithmetic does not exceed.
    pub fn bound(self) -> f64 {
        self.exact * (1.0 + self.margin)
    }

    /// The sensitivity in exact arithmetic.
    pub fn get(self) -> f64 {
        self.exact
    }
}

/// The noise that makes one release rho-zCDP: sigma^2 = Delta^2/(2 phi).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseScale {
    sensitivity: Sensitivity,
    phi: f64,
}

impl NoiseScale {
    /// From a sensitivity and what the round may spend.
    pub fn new(sensitivity: Sensitivity, phi: Rho) -> Self {
        Self { sensitivity, phi: phi.get() }
    }

    /// Delta/sqrt(2 phi), the standard deviation per coordinate.
    #[inline]
    pub fn sigma(self) -> f64 {
        self.sensitivity.exact / (2.0 * self.phi).sqrt()
    }

    /// The lattice on which a release of `features` coordinates is rounded and noised, so that its cost,
    /// (Delta + g sqrt P)^2/(2 s^2 g^2), is at most phi.
    ///
    /// g = 2^(floor(log2 sigma) - 40). Rounding to the lattice moves each of two neighbouring vectors by at most
    /// g sqrt(P)/2, hence Delta + g sqrt P. `s` is the least integer for which this holds. `None` where the numbers leave
    /// the range in which the sampler is exact.
    pub fn lattice(self, features: usize) -> Option<Lattice> {
        let sensitivity = self.sensitivity.bound();
        let sigma = sensitivity / (2.0 * self.phi).sqrt();
        if !sigma.is_normal() || sigma < 1e-280 {
            return None;
        }
        let step = libm::ldexp(1.0, libm::ilogb(sigma) - 40);
        let moved = sensitivity / step + (features as f64).sqrt();
        let scale = (moved / (2.0 * self.phi).sqrt() * (1.0 + 4.0 * f64::EPSILON)).ceil();
        (scale < Lattice::LARGEST_SCALE as f64).then(|| Lattice {
            step,
            scale: scale as u64,
            charge: (moved / scale).powi(2) / 2.0,
        })
    }
}

/// A lattice of step `g` with discrete Gaussian noise of standard deviation `s` steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lattice {
    step: f64,
    scale: u64,
    charge: f64,
}

impl Lattice {
    /// The sampler's integers stay below 2^64 for scales below this.
    pub const LARGEST_SCALE: u64 = 1 << 43;

    /// g, a power of two.
    pub fn step(self) -> f64 {
        self.step
    }

    /// s, in steps.
    pub fn scale(self) -> u64 {
        self.scale
    }

    /// The rho that one release on this lattice costs; never more than the round's phi.
    pub fn charge(self) -> f64 {
        self.charge
    }
}
