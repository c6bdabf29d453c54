//! An exact discrete Gaussian in integer arithmetic.
//!
//! P(Z = z) is proportional to exp(-z^2/(2 s^2)) over all integers z, for an integer s. The method is Karney's
//! ("Sampling exactly from the normal distribution", 2016, algorithm D) specialised to mean zero: write |z| = k s + j
//! with 0 <= j < s and x = j/s; then
//!
//! ```text
//! exp(-z^2/(2 s^2)) = exp(-k/2) * exp(-k (k-1)/2) * exp(-x (2k + x)/2)
//! ```
//!
//! and each factor is a Bernoulli trial made of uniform integers, without rounding. It has the same
//! distribution as the sampler of Canonne, Kamath and Steinke (2020).

use rand::Rng;

/// Largest block number considered. What lies beyond has probability below exp(-2^31).
const LARGEST_BLOCK: u64 = 1 << 16;

/// One draw of the discrete Gaussian with standard deviation parameter `scale`, which must lie in 1..2^43.
pub fn sample(scale: u64, rng: &mut impl Rng) -> i64 {
    debug_assert!((1..1 << 43).contains(&scale));
    loop {
        let block = half_geometric(rng);
        if block >= LARGEST_BLOCK || !all_half(block * block.saturating_sub(1), rng) {
            continue;
        }
        let offset = below(scale, rng);
        if !accept_offset(block, offset, scale, rng) {
            continue;
        }
        let magnitude = (block * scale + offset) as i64;
        let negative = rng.next_u64() >> 63 == 1;
        // Zero would otherwise occur with either sign, twice as often as it should.
        if negative && magnitude == 0 {
            continue;
        }
        return if negative { -magnitude } else { magnitude };
    }
}

/// k >= 0 with probability proportional to exp(-k/2).
fn half_geometric(rng: &mut impl Rng) -> u64 {
    let mut k = 0;
    while k < LARGEST_BLOCK && exp_minus_half(rng) {
        k += 1;
    }
    k
}

/// True with probability exp(-n/2).
fn all_half(n: u64, rng: &mut impl Rng) -> bool {
    (0..n).all(|_| exp_minus_half(rng))
}

/// True with probability exp(-1/2).
fn exp_minus_half(rng: &mut impl Rng) -> bool {
    exp_minus(rng, |m, rng| below(2 * m, rng) == 0)
}

/// True with probability exp(-x (2k + x)/2), x = j/s: k + 1 trials of exp(-x (2k + x)/(2k + 2)), each below one.
fn accept_offset(k: u64, j: u64, s: u64, rng: &mut impl Rng) -> bool {
    let (numerator, denominator) = (2 * k * s + j, (2 * k + 2) * s);
    (0..=k).all(|_| {
        exp_minus(rng, |m, rng| {
            below(s, rng) < j && (m == 1 || below(m, rng) == 0) && below(denominator, rng) < numerator
        })
    })
}

/// True with probability exp(-g), given trials that succeed with probability g/m for m = 1, 2, ...: the run of
/// successes has even length with probability 1 - g + g^2/2! - g^3/3! + ...
fn exp_minus<R: Rng>(rng: &mut R, trial: impl Fn(u64, &mut R) -> bool) -> bool {
    let mut m = 1;
    while trial(m, rng) {
        m += 1;
    }
    m % 2 == 1
}

/// A uniform integer in 0..n, exactly (Lemire 2019: multiply, and reject the few that would be counted twice).
fn below(n: u64, rng: &mut impl Rng) -> u64 {
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(n);
        let low = product as u64;
        if low >= n || low >= n.wrapping_neg() % n {
            return (product >> 64) as u64;
        }
    }
}
