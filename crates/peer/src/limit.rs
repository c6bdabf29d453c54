//! The owner's limit: what all studies with one data set together may spend.

use undertone_core::ledger::Contents;
use undertone_core::privacy::{ClientBudget, Delta, Epsilon, Rho};

use crate::LimitError;

/// The rho that a study may spend under the owner's limit; refuses a study that would exceed it.
///
/// `budget` is what the study asks of this peer, `is_protected` whether its noise is safe, `study` the hash of its digest.
pub(crate) fn allowance(
    max_epsilon: Option<f64>,
    budget: Option<&ClientBudget>,
    is_protected: bool,
    ledger: Option<&Contents>,
    study: &[u8; 32],
) -> Result<Option<Rho>, LimitError> {
    let Some(limit) = max_epsilon else { return Ok(None) };
    let budget = budget.ok_or(LimitError::NoPrivacy)?;
    let runs = ledger.map_or(&[][..], |l| &l.runs);
    // At the smallest delta of all studies with this data: a study with a large delta must not relax the limit.
    let smallest = runs.iter().map(|r| r.begin.delta).filter(|d| *d > 0.0).fold(budget.delta().get(), f64::min);
    let delta = Delta::new(smallest).expect("one of several deltas");
    let limit_rho = budget.accountant().rho(Epsilon::new(limit)?, delta).get();
    if !is_protected || ledger.is_some_and(|l| l.spent().is_none()) {
        return Err(LimitError::Rehearsal);
    }
    let others = runs.iter().filter(|r| r.begin.study != *study).fold(Rho::ZERO, |sum, r| sum.plus(r.spent));
    let left = limit_rho - others.get();
    if !budget.fits(left) {
        let total = budget.accountant().epsilon(others.plus(budget.promised()), delta).get();
        return Err(LimitError::Exceeded { limit, total, delta: delta.get() });
    }
    Ok(Some(Rho::new(left.max(0.0)).expect("a difference of rhos")))
}
