//! The owner's limit: what all studies with one data set together may spend.

use undertone_core::ledger::Contents;
use undertone_core::privacy::{ClientBudget, Delta, Epsilon, Rho, Spent};

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
    pub total: Spent,
    /// The hash of its digest, if that is known already. What it has spent so far is then part of `total`.
    pub study: Option<[u8; 32]>,
}

/// What the owner of the data allows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OwnerLimits {
    /// The epsilon of all studies with the data together, at the smallest delta of them, as long as each study's assumption about
    /// colluders holds.
    pub epsilon: Option<f64>,
    /// The same if all others collude.
    pub alone: Option<f64>,
}

impl Claim<'_> {
    /// What the study may spend under the owner's limits; refuses a study that would exceed one of them.
    pub fn allowance(&self, limits: OwnerLimits, ledger: Option<&Contents>) -> Result<Option<Spent>, LimitError> {
        if limits == OwnerLimits::default() {
            return Ok(None);
        }
        let budget = self.budget.ok_or(LimitError::NoPrivacy)?;
        let runs = ledger.map_or(&[][..], |l| &l.runs);
        // At the smallest delta of all studies with this data: a study with a large delta must not relax the limit.
        let smallest = runs.iter().map(|r| r.begin.delta).filter(|d| *d > 0.0).fold(budget.delta().get(), f64::min);
        let delta = Delta::new(smallest).expect("one of several deltas");
        if !self.is_protected || ledger.is_some_and(|l| l.spent().is_none()) {
            return Err(LimitError::Rehearsal);
        }
        let later = self.later.map_or(Spent::ZERO, |later| later.total);
        let is_own = |study: &[u8; 32]| study == self.study || self.later.and_then(|l| l.study) == Some(*study);
        let others = runs.iter().filter(|r| !is_own(&r.begin.study)).fold(Spent::ZERO, |sum, r| sum.plus(r.spent));
        let all = others.plus(budget.promised()).plus(later);
        let left = |limit: Option<f64>, count: fn(Spent) -> Rho, alone: bool| -> Result<f64, LimitError> {
            let Some(limit) = limit else { return Ok(f64::INFINITY) };
            let option = if alone { "--max-epsilon-alone" } else { "--max-epsilon" };
            let most = budget
                .accountant()
                .rho(Epsilon::new(limit).map_err(|reason| LimitError::NotAnEpsilon { option, reason })?, delta)
                .get();
            let left = most - count(others).get() - count(later).get();
            let fits = if alone { budget.fits(f64::INFINITY, left) } else { budget.fits(left, f64::INFINITY) };
            match fits {
                true => Ok(left.max(0.0)),
                false => {
                    let total = budget.accountant().epsilon(count(all), delta).get();
                    Err(LimitError::Exceeded { limit, total, delta: delta.get(), alone })
                }
            }
        };
        // A limit that is not given is none: more than anything spends.
        let rho = |left: f64| Rho::new(left.min(1e100)).expect("not negative");
        let spent = Spent {
            rho: rho(left(limits.epsilon, |spent| spent.rho, false)?),
            alone: rho(left(limits.alone, |spent| spent.alone, true)?),
        };
        Ok(Some(spent))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undertone_core::identity::Identity;
    use undertone_core::ledger::{Begin, Ledger, MemoryDisk};
    use undertone_core::message::Chain;
    use undertone_core::study::Study;

    use super::*;

    /// A study with a large delta must not relax what the owner allows.
    #[test]
    fn all_studies_count_at_the_smallest_delta() {
        let text = "rounds = 3\n[problem]\nloss = \"squared\"\n[data]\nsource = \"synthetic\"\nclients = 3\nfeatures = 1\n\
                    [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-grad-nfl\"\neta = 1.0\n\
                    [privacy]\nepsilon = 1.0\ndelta = 1e-3\nclip = 1.0\n";
        let study = Study::parse(text, "t").unwrap();
        let budget = study.client_budget("1").unwrap();
        let begin = Begin {
            study: [1; 32],
            name: "earlier".into(),
            rounds: 3,
            features: 1,
            degree: 2,
            memory: 0,
            clients: 3,
            colluders: 2,
            total: budget.promised(),
            epsilon: 1.0,
            delta: 1e-9,
            next: budget.cost(1),
            protected: true,
            data: [2; 32],
            time: 0,
        };
        let (identity, chain) = (Arc::new(Identity::from_secret(&[3; 32])), Chain::new(study.digest()));
        let (disk, limits) = (MemoryDisk::default(), study.limits(3));
        let (ledger, _) = Ledger::enter(disk, identity, chain, limits, begin, Some(budget.clone())).unwrap();
        let claim = Claim { budget: Some(&budget), later: None, is_protected: true, study: &[9; 32] };
        let limits = OwnerLimits { epsilon: Some(1.0), alone: None };
        assert!(claim.allowance(limits, None).is_ok(), "it fits at its own delta");
        let refused = claim.allowance(limits, Some(ledger.contents()));
        assert!(matches!(refused, Err(LimitError::Exceeded { delta, .. }) if delta == 1e-9));
    }
}
