//! The owner's limit: what all studies with one data set together may spend.

use undertone_core::ledger::Contents;
use undertone_core::privacy::{ClientBudget, Delta, Epsilon, Rho};

use crate::LimitError;

/// What a study asks of this peer.
pub(crate) struct Claim<'a> {
    /// What it spends.
    pub budget: Option<&'a ClientBudget>,
    /// What will be spent after it, for the same purpose.
    pub later: Option<Later>,
    /// Whether its noise is safe.
    pub is_protected: bool,
    /// The hash of its digest.
    pub study: &'a [u8; 32],
}

/// A study that follows this one.
#[derive(Clone, Copy)]
pub(crate) struct Later {
    /// All that it spends.
    pub rho: Rho,
    /// The hash of its digest, if that is known already. What it has spent so far is then part of `rho`.
    pub study: Option<[u8; 32]>,
}

impl Claim<'_> {
    /// The rho that the study may spend under the owner's limit; refuses a study that would exceed it.
    pub fn allowance(&self, max_epsilon: Option<f64>, ledger: Option<&Contents>) -> Result<Option<Rho>, LimitError> {
        let Some(limit) = max_epsilon else { return Ok(None) };
        let budget = self.budget.ok_or(LimitError::NoPrivacy)?;
        let runs = ledger.map_or(&[][..], |l| &l.runs);
        // At the smallest delta of all studies with this data: a study with a large delta must not relax the limit.
        let smallest = runs.iter().map(|r| r.begin.delta).filter(|d| *d > 0.0).fold(budget.delta().get(), f64::min);
        let delta = Delta::new(smallest).expect("one of several deltas");
        let limit_rho = budget.accountant().rho(Epsilon::new(limit)?, delta).get();
        if !self.is_protected || ledger.is_some_and(|l| l.spent().is_none()) {
            return Err(LimitError::Rehearsal);
        }
        let later = self.later.map_or(Rho::ZERO, |later| later.rho);
        let is_own = |study: &[u8; 32]| study == self.study || self.later.and_then(|l| l.study) == Some(*study);
        let others = runs.iter().filter(|r| !is_own(&r.begin.study)).fold(Rho::ZERO, |sum, r| sum.plus(r.spent));
        let left = limit_rho - others.get() - later.get();
        if !budget.fits(left) {
            let all = others.plus(budget.promised()).plus(later);
            let total = budget.accountant().epsilon(all, delta).get();
            return Err(LimitError::Exceeded { limit, total, delta: delta.get() });
        }
        Ok(Some(Rho::new(left.max(0.0)).expect("a difference of rhos")))
    }
}
