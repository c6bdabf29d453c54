//! Rules for numbers in a study: what holds, and the instruction that an error message gives.

/// Numbers beyond this are taken for mistakes.
pub const LARGEST: f64 = 1e12;

/// Which numbers are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// What would be right, as an instruction.
    pub expected: &'static str,
    low: f64,
    high: f64,
    open_low: bool,
    open_high: bool,
}

impl Rule {
    /// Whether a number is allowed. NaN never is.
    pub fn holds(&self, value: f64) -> bool {
        let above = if self.open_low { value > self.low } else { value >= self.low };
        above && if self.open_high { value < self.high } else { value <= self.high }
    }

    /// A number that is allowed.
    pub(crate) fn example(&self) -> f64 {
        if self.holds(0.5) { 0.5 } else { self.low }
    }
}

const fn rule(expected: &'static str, low: f64, high: f64, open_low: bool, open_high: bool) -> Rule {
    Rule { expected, low, high, open_low, open_high }
}

/// (0, 1e12]
pub const POSITIVE: Rule = rule("write a number above 0 and at most 1e12", 0.0, LARGEST, true, false);
/// [0, 1e12]
pub const NOT_NEGATIVE: Rule = rule("write a number from 0 to 1e12", 0.0, LARGEST, false, false);
/// [0, 1e12], where a word may stand too.
pub const NOT_NEGATIVE_OR_PAPER: Rule = rule(
    "write a number from 0 to 1e12, or \"paper\" for the paper's rule (simulation only)",
    0.0,
    LARGEST,
    false,
    false,
);
/// [1, 1e12]
pub const AT_LEAST_ONE: Rule = rule("write a number from 1 to 1e12", 1.0, LARGEST, false, false);
/// [0, 1]
pub const ZERO_TO_ONE: Rule = rule("write a number from 0 to 1", 0.0, 1.0, false, false);
/// [0, 1], a share of the rounds.
pub const SHARE_OF_ROUNDS: Rule = rule("write a share of the rounds, from 0 to 1", 0.0, 1.0, false, false);
/// [0, 1)
pub const BELOW_ONE: Rule = rule("write a number from 0 to below 1", 0.0, 1.0, false, true);
/// (0, 1)
pub const BETWEEN_ZERO_AND_ONE: Rule = rule("write a number strictly between 0 and 1", 0.0, 1.0, true, true);
/// [0, 0.9]
pub const HOLDOUT: Rule = rule("write a share of the rows, from 0 to 0.9", 0.0, 0.9, false, false);
/// (0, 0.995]
pub const THETA: Rule =
    rule("write a number above 0 and at most 0.995", 0.0, crate::privacy::trust::LARGEST_THETA, true, false);
/// (0, 1]
pub const ABOVE_ZERO_TO_ONE: Rule = rule("write a number above 0 and at most 1", 0.0, 1.0, true, false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_ranges_are_open_or_closed_as_the_text_says() {
        assert!(!POSITIVE.holds(0.0) && POSITIVE.holds(1e12) && !POSITIVE.holds(1.1e12) && !POSITIVE.holds(f64::NAN));
        assert!(BELOW_ONE.holds(0.0) && !BELOW_ONE.holds(1.0));
        assert!(!BETWEEN_ZERO_AND_ONE.holds(0.0) && !BETWEEN_ZERO_AND_ONE.holds(1.0));
        assert!(ABOVE_ZERO_TO_ONE.holds(1.0) && !ABOVE_ZERO_TO_ONE.holds(0.0));
    }
}
