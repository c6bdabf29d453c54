//! Privacy quantities as types, so that an epsilon is never passed where a rho belongs.

use serde::Serialize;
use thiserror::Error;

/// A privacy number out of range, with the valid range.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{name} = {value} is not possible; {expected}")]
pub struct UnitError {
    name: &'static str,
    value: f64,
    expected: &'static str,
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $word:literal, $valid:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// Checks the range and wraps the number.
            pub fn new(value: f64) -> Result<Self, UnitError> {
                let valid: fn(f64) -> bool = $valid;
                if valid(value) {
                    Ok(Self(value))
                } else {
                    Err(UnitError { name: $word, value, expected: $expected })
                }
            }

            /// Wraps a number that a formula of this crate made from checked ones.
            #[allow(dead_code)]
            pub(crate) fn computed(value: f64) -> Self {
                debug_assert!(value >= 0.0, "{value}");
                Self(value)
            }

            /// The number.
            pub fn get(self) -> f64 {
                self.0
            }
        }
    };
}

unit!(
    /// The epsilon of (epsilon, delta)-differential privacy.
    Epsilon,
    "epsilon",
    |v| (0.0..=1e100).contains(&v),
    "it must be zero or more, and at most 1e100"
);
unit!(
    /// The delta of (epsilon, delta)-differential privacy.
    Delta,
    "delta",
    |v| v > 0.0 && v < 1.0,
    "it must lie strictly between 0 and 1"
);
unit!(
    /// The rho of rho-zCDP: Renyi divergence of order `a` at most `a * rho` for every `a > 1`.
    Rho,
    "rho",
    |v| (0.0..=1e100).contains(&v),
    "it must be zero or more, and at most 1e100"
);
unit!(
    /// The norm `c1` to which every per-sample loss gradient is clipped.
    Clip,
    "clip",
    |v| v > 0.0 && v.is_finite(),
    "it must be a finite number above 0"
);

impl Rho {
    /// Nothing spent.
    pub const ZERO: Rho = Rho(0.0);

    /// Both together: zCDP composes by adding up. The sum is rounded up, so that however many terms there are, none of it is lost.
    pub fn plus(self, other: Rho) -> Rho {
        Rho(add_up(self.0, other.0))
    }
}

/// What releases cost, counted twice: under the study's assumption about colluders, and without it.
///
/// Without masks the two are equal. Both add up over releases, whatever was assumed in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spent {
    /// If at most as many clients collude as the study assumes.
    pub rho: Rho,
    /// If all others do.
    pub alone: Rho,
}

impl Spent {
    /// Nothing.
    pub const ZERO: Spent = Spent { rho: Rho::ZERO, alone: Rho::ZERO };

    /// What costs the same whoever colludes.
    pub fn without_masks(rho: Rho) -> Self {
        Self { rho, alone: rho }
    }

    /// The smaller of each.
    pub fn at_most(self, other: Self) -> Self {
        let least = |a: Rho, b: Rho| if a <= b { a } else { b };
        Self { rho: least(self.rho, other.rho), alone: least(self.alone, other.alone) }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { rho: self.rho.plus(other.rho), alone: self.alone.plus(other.alone) }
    }
}

/// a + b rounded up, for numbers that are not negative: Knuth's two-sum gives the rounding error exactly.
pub(super) fn add_up(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let error = (a - (sum - (sum - a))) + (b - (sum - a));
    if error > 0.0 { sum.next_up() } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_never_below_the_exact_one() {
        // 0.1 as a number is above a tenth; added up naively, many of them come out too small.
        let (mut naive, mut up) = (0.0, Rho::ZERO);
        for n in 1..=10_000_000_u64 {
            naive += 1e-9;
            up = up.plus(Rho::computed(1e-9));
            if n.is_power_of_two() {
                // n is a power of two, so this product is exact.
                assert!(up.get() >= n as f64 * 1e-9 && up.get() <= n as f64 * 1e-9 * (1.0 + n as f64 * 2.3e-16));
            }
        }
        assert!(naive < 1e-2, "the naive sum is what this guards against: {naive}");
    }
}
