//! Sums that do not depend on the order of their terms, so that any number of threads or machines can share them.
//!
//! A finite f64 is a whole number of 2^-1074. The sum of such numbers is kept exactly, in digits of 32 bits, and is rounded
//! once, at the end.

/// Digits of 32 bits from 2^-1074 to beyond 2^1024, and two for what is carried.
const DIGITS: usize = 68;
/// Terms after which digits are carried, long before one of them overflows.
const CARRY_AFTER: u32 = 1 << 30;
/// Bits of a significand that are stored.
const STORED: u32 = 52;

/// How many numbers [`ExactSum::parts`] gives.
pub const PARTS: usize = DIGITS + 3;

/// The exact sum of any finite numbers; of others it knows how many there were.
///
/// ```
/// use undertone_core::exact_sum::ExactSum;
///
/// let terms = [1e300, 1.0, -1e300, 1e-300];
/// let [mut forth, mut back] = [ExactSum::default(), ExactSum::default()];
/// terms.iter().for_each(|term| forth.add(*term));
/// terms.iter().rev().for_each(|term| back.add(*term));
/// assert_eq!((forth.value(), back.value()), (1.0, 1.0));
/// ```
#[derive(Debug, Clone)]
pub struct ExactSum {
    /// Of 2^(32 i - 1074); each may be negative or too large until it is carried.
    digits: [i64; DIGITS],
    /// How many NaNs, and how often plus and minus infinity.
    others: [i64; 3],
    since_carry: u32,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { digits: [0; DIGITS], others: [0; 3], since_carry: 0 }
    }
}

impl ExactSum {
    /// Adds a number.
    #[inline]
    pub fn add(&mut self, term: f64) {
        let bits = term.to_bits();
        let exponent = (bits >> STORED) as u32 & 0x7ff;
        if exponent == 0x7ff {
            let kind = if term.is_nan() { 0 } else { 1 + usize::from(term < 0.0) };
            self.others[kind] += 1;
            return;
        }
        let significand = bits & ((1 << STORED) - 1) | u64::from(exponent > 0) << STORED;
        // The place of its last bit, counted from 2^-1074.
        let place = exponent.saturating_sub(1);
        let moved = u128::from(significand) << (place % 32);
        let sign = 1 - 2 * (bits >> 63) as i64;
        let digits = &mut self.digits[(place / 32) as usize..][..3];
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit += sign * i64::from((moved >> (32 * i)) as u32);
        }
        self.since_carry += 1;
        if self.since_carry == CARRY_AFTER {
            self.carry();
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, mut other: Self) {
        let parts = other.parts();
        self.add_parts(&parts);
    }

    /// What the sum is made of: the same for the same sum. Parts of up to 2^30 sums may be added up before [`ExactSum::add_parts`].
    pub fn parts(&mut self) -> [i64; PARTS] {
        self.carry();
        let mut parts = [0; PARTS];
        parts[..DIGITS].copy_from_slice(&self.digits);
        parts[DIGITS..].copy_from_slice(&self.others);
        parts
    }

    /// Adds sums by their parts.
    ///
    /// # Panics
    /// If there are not [`PARTS`] of them.
    pub fn add_parts(&mut self, parts: &[i64]) {
        assert_eq!(parts.len(), PARTS, "the parts of a sum");
        self.carry();
        let (digits, others) = parts.split_at(DIGITS);
        self.digits.iter_mut().zip(digits).for_each(|(own, digit)| *own += digit);
        self.others.iter_mut().zip(others).for_each(|(own, other)| *own += other);
        self.carry();
    }

    /// Every digit into 0..2^32 but the last, which has the sign.
    fn carry(&mut self) {
        let mut carried = 0;
        let (last, digits) = self.digits.split_last_mut().expect("there are digits");
        for digit in digits {
            let all = *digit + carried;
            *digit = all & 0xffff_ffff;
            carried = all >> 32;
        }
        *last += carried;
        self.since_carry = 0;
    }

    /// The number nearest to the sum, and of two the even one. Infinite if the sum is beyond all numbers; NaN as adding would have it.
    pub fn value(&self) -> f64 {
        match self.others {
            [0, 0, 0] => {}
            [0, _, 0] => return f64::INFINITY,
            [0, 0, _] => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let mut sum = self.clone();
        sum.carry();
        let is_negative = sum.digits[DIGITS - 1] < 0;
        if is_negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.carry();
        }
        let size = sum.rounded();
        if is_negative { -size } else { size }
    }

    /// The value, if it is not negative and its digits are carried.
    fn rounded(&self) -> f64 {
        let Some(top) = self.digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
        let digit = |i: usize| self.digits[i] as u128;
        if top + 1 == DIGITS {
            return f64::INFINITY;
        }
        // Three digits, which are all there is if the top is one of them.
        let low = top.saturating_sub(2);
        let window = (low..=top).rev().fold(0u128, |all, i| all << 32 | digit(i));
        let length = 128 - window.leading_zeros();
        let dropped = (length).saturating_sub(STORED + 1);
        let beyond = low as u64 * 32 + u64::from(dropped);
        if beyond == 0 {
            // Below 2^53 of the least: the bits of such a number count it.
            return f64::from_bits(window as u64);
        }
        let kept = (window >> dropped) as u64;
        let rest = window & ((1 << dropped) - 1);
        let half = if dropped == 0 { 0 } else { 1u128 << (dropped - 1) };
        let below = self.digits[..low].iter().any(|digit| *digit != 0);
        let up = rest > half || rest == half && dropped > 0 && (below || kept & 1 == 1);
        // The bit before the stored ones adds 1 to the exponent, and so does a carry out of them.
        let bits = (beyond << STORED) + kept + u64::from(up);
        f64::from_bits(bits.min(f64::INFINITY.to_bits()))
    }
}

/// The exact sums of the columns of rows that lie one after the other.
pub fn of_columns<'a>(rows: impl Iterator<Item = &'a [f64]>, columns: usize) -> Vec<ExactSum> {
    let mut sums = vec![ExactSum::default(); columns];
    for row in rows {
        sums.iter_mut().zip(row).for_each(|(sum, term)| sum.add(*term));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::SliceRandom;
    use rand::{Rng, RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn sum(terms: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        terms.iter().for_each(|term| sum.add(*term));
        sum
    }

    #[test]
    fn one_number_is_its_own_sum() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let edges = [0.0, f64::MIN_POSITIVE, f64::from_bits(1), f64::from_bits((1 << 52) - 1), f64::MAX, 1.0, -1.0];
        let any = std::iter::repeat_with(|| f64::from_bits(rng.next_u64())).filter(|v| v.is_finite()).take(100_000);
        for number in edges.into_iter().chain(any) {
            assert_eq!(sum(&[number]).value(), number);
            assert_eq!(sum(&[-number]).value(), -number);
        }
    }

    /// Against whole numbers of 128 bits, rounded by the processor.
    #[test]
    fn sums_are_rounded_once() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        for _ in 0..20_000 {
            let scale = rng.random_range(-1074..=800);
            let exact = |n: i64| n as f64 * 2f64.powi(scale.max(-1000)) * 2f64.powi(scale - scale.max(-1000));
            // Of up to 53 bits, so that each is a number; few of them, so that ties happen.
            let whole: Vec<i64> = (0..rng.random_range(1..6))
                .map(|_| (rng.next_u64() >> rng.random_range(11..60)) as i64 * if rng.random() { 1 } else { -1 })
                .collect();
            let terms: Vec<f64> = whole.iter().map(|n| exact(*n)).collect();
            let total: i128 = whole.iter().map(|n| i128::from(*n)).sum();
            let wanted = total as f64;
            // A power of two changes no rounding where nothing is subnormal.
            let scaled = wanted * 2f64.powi(scale.max(-1000)) * 2f64.powi(scale - scale.max(-1000));
            assert_eq!(sum(&terms).value(), scaled, "{whole:?} 2^{scale}");
        }
    }

    #[test]
    fn order_and_grouping_do_not_matter() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut terms: Vec<f64> =
            (0..1000).map(|_| f64::from_bits(rng.next_u64())).filter(|v| v.is_finite() && v.abs() < 1e300).collect();
        let whole = sum(&terms).value();
        for pieces in 1..20 {
            terms.shuffle(&mut rng);
            let mut all = ExactSum::default();
            let mut parts = [0; PARTS];
            for (i, piece) in terms.chunks(terms.len().div_ceil(pieces)).enumerate() {
                let mut piece = sum(piece);
                if i % 2 == 0 {
                    all.merge(piece);
                } else {
                    parts.iter_mut().zip(piece.parts()).for_each(|(all, part)| *all += part);
                }
            }
            all.add_parts(&parts);
            assert_eq!(all.value().to_bits(), whole.to_bits());
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        assert_eq!(sum(&[1.0, f64::INFINITY]).value(), f64::INFINITY);
        assert_eq!(sum(&[f64::NEG_INFINITY, 1.0]).value(), f64::NEG_INFINITY);
        assert!(sum(&[f64::NEG_INFINITY, f64::INFINITY]).value().is_nan());
        assert!(sum(&[f64::NAN, 1.0]).value().is_nan());
        assert_eq!(sum(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
        assert_eq!(sum(&[-f64::MAX; 5]).value(), f64::NEG_INFINITY);
    }
}
