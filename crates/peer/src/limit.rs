//! The owner's limit: what all studies with one data set together may spend.

use undertone_core::ledger::Contents;
use undertone_core::privacy::{Accountant, ClientBudget, Delta, Epsilon, Rho, Spent};
use undertone_core::rule;
use undertone_core::study::is_stage;
use undertone_core::study::{Document, StudyError};

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
    /// Its name.
    pub name: &'a str,
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
    /// The epsilon of all studies with the data together, as long as each study's assumption about colluders holds.
    pub epsilon: Option<f64>,
    /// The same if all others collude.
    pub alone: Option<f64>,
    /// The delta of both, whatever the studies' own; without it, the smallest of theirs.
    pub delta: Option<f64>,
    /// The zCDP rho of all studies together, whoever colludes.
    pub rho: Option<f64>,
    /// How many studies the data takes part in.
    pub studies: Option<u32>,
    /// Whether a study may have a delta above one over the number of records.
    pub large_delta: bool,
}

/// Where a limit was stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stated {
    /// In the policy of the state folder.
    Policy,
    /// On the command line.
    Option,
}

impl Stated {
    pub(crate) fn epsilon(self, alone: bool) -> &'static str {
        match (self, alone) {
            (Self::Policy, false) => "policy.toml: epsilon =",
            (Self::Policy, true) => "policy.toml: epsilon_alone =",
            (Self::Option, false) => "--max-epsilon",
            (Self::Option, true) => "--max-epsilon-alone",
        }
    }
}

impl OwnerLimits {
    /// These limits with those of `newer` that are given in their place, and what that relaxes.
    pub fn changed(self, newer: Self) -> (Self, Vec<String>) {
        let mut relaxed = Vec::new();
        let mut change = |name: &str, old: Option<f64>, new: Option<f64>| {
            if let (Some(old), Some(new)) = (old, new)
                && new > old
            {
                relaxed.push(format!("{name} from {old:?} to {new:?}"));
            }
            new.or(old)
        };
        let studies = |count: Option<u32>| count.map(f64::from);
        let policy = Self {
            epsilon: change("epsilon", self.epsilon, newer.epsilon),
            alone: change("epsilon_alone", self.alone, newer.alone),
            delta: change("delta", self.delta, newer.delta),
            rho: change("rho", self.rho, newer.rho),
            studies: change("studies", studies(self.studies), studies(newer.studies)).map(|count| count as u32),
            large_delta: self.large_delta || newer.large_delta,
        };
        if self != Self::default() && policy.large_delta && !self.large_delta {
            relaxed.push("allow_large_delta to true".into());
        }
        (policy, relaxed)
    }

    /// Reads a policy; `origin` is its file's name in messages.
    pub fn read(text: &str, origin: &str) -> Result<Self, StudyError> {
        let document = Document::parse(text, origin)?;
        let mut top = document.reader();
        let policy = Self {
            epsilon: top.number("epsilon", rule::POSITIVE)?,
            alone: top.number("epsilon_alone", rule::POSITIVE)?,
            delta: top.number("delta", rule::BETWEEN_ZERO_AND_ONE)?,
            rho: top.number("rho", rule::POSITIVE)?,
            studies: top.integer("studies", 0, i64::from(u32::MAX))?.map(|count| count as u32),
            large_delta: top.flag("allow_large_delta")?.unwrap_or(false),
        };
        if policy.delta.is_none() && policy.epsilon.or(policy.alone).is_some() {
            return Err(top
                .error("delta", "is missing; an epsilon means nothing without it, so write delta = 1e-6 or the like"));
        }
        top.finish()?;
        Ok(policy)
    }

    /// The policy as [`OwnerLimits::read`] reads it.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(
            "# What all studies with this data together may do. Every peer that uses this state folder keeps to it.\n",
        );
        let numbers =
            [("epsilon", self.epsilon), ("epsilon_alone", self.alone), ("delta", self.delta), ("rho", self.rho)];
        for (key, value) in numbers.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            text += &format!("{key} = {value:?}\n");
        }
        if let Some(studies) = self.studies {
            text += &format!("studies = {studies}\n");
        }
        if self.large_delta {
            text += "allow_large_delta = true\n";
        }
        text
    }
}

impl Claim<'_> {
    /// What the study may spend under the owner's limits; refuses a study that would exceed one of them.
    pub fn allowance(
        &self,
        limits: OwnerLimits,
        stated: Stated,
        ledger: Option<&Contents>,
    ) -> Result<Option<Spent>, LimitError> {
        let runs = ledger.map_or(&[][..], |l| &l.runs);
        let is_own = |study: &[u8; 32]| study == self.study || self.later.and_then(|l| l.study) == Some(*study);
        if self.later.is_none() && runs.iter().any(|run| run.begin.study == *self.study && run.is_complete()) {
            // It spends nothing more, and others may still need its last release.
            return Ok(None);
        }
        if let Some(most) = limits.studies {
            let before = runs.iter().filter(|r| !is_own(&r.begin.study) && !is_stage(&r.begin.name)).count();
            if !is_stage(self.name) && before as u64 >= u64::from(most) {
                return Err(LimitError::Studies { most, before });
            }
        }
        if limits.epsilon.or(limits.alone).or(limits.rho).is_none() {
            return Ok(None);
        }
        let budget = self.budget.ok_or(LimitError::NoPrivacy)?;
        // Without a delta of the owner, at the smallest of all studies with this data: a study with a large delta must not relax the limit.
        let smallest = runs.iter().map(|r| r.begin.delta).filter(|d| *d > 0.0).fold(budget.delta().get(), f64::min);
        let option = stated.epsilon(false);
        let delta = Delta::new(limits.delta.unwrap_or(smallest));
        let delta = delta.map_err(|reason| LimitError::NotAnEpsilon { option, reason })?;
        if !self.is_protected || ledger.is_some_and(|l| l.spent().is_none()) {
            return Err(LimitError::Rehearsal);
        }
        let later = self.later.map_or(Spent::ZERO, |later| later.total);
        let others = runs.iter().filter(|r| !is_own(&r.begin.study)).fold(Spent::ZERO, |sum, r| sum.plus(r.spent));
        let all = others.plus(budget.promised()).plus(later);
        // Every protected release is Gaussian, whatever accountant a study prefers.
        let accountant = if limits.delta.is_some() { Accountant::Exact } else { budget.accountant() };
        let left = |limit: Option<f64>, count: fn(Spent) -> Rho, alone: bool| -> Result<f64, LimitError> {
            let Some(limit) = limit else { return Ok(f64::INFINITY) };
            let option = stated.epsilon(alone);
            let most = accountant
                .rho(Epsilon::new(limit).map_err(|reason| LimitError::NotAnEpsilon { option, reason })?, delta)
                .get();
            let left = most - count(others).get() - count(later).get();
            let fits = if alone { budget.fits(f64::INFINITY, left) } else { budget.fits(left, f64::INFINITY) };
            match fits {
                true => Ok(left.max(0.0)),
                false => {
                    let total = accountant.epsilon(count(all), delta).get();
                    Err(LimitError::Exceeded { option, limit, total, delta: delta.get(), alone })
                }
            }
        };
        let left_rho = match limits.rho {
            None => f64::INFINITY,
            Some(most) if all.alone.get() <= most => most - others.alone.get() - later.alone.get(),
            Some(most) => return Err(LimitError::Rho { most, total: all.alone.get() }),
        };
        // A limit that is not given is none: more than anything spends.
        let rho = |left: f64| Rho::new(left.min(1e100)).expect("not negative");
        let spent = Spent {
            rho: rho(left(limits.epsilon, |spent| spent.rho, false)?),
            alone: rho(left(limits.alone, |spent| spent.alone, true)?.min(left_rho.max(0.0))),
        };
        Ok(Some(spent))
    }

    /// A delta above one over the number of records would allow to publish a record.
    pub fn check_delta(&self, records: f64) -> Result<(), LimitError> {
        match self.budget.map(|budget| budget.delta().get()) {
            Some(delta) if self.is_protected && delta > 1.0 / records => Err(LimitError::LargeDelta { delta, records }),
            _ => Ok(()),
        }
    }

    /// What the owner should see before the data enters the study for the first time; nothing if it is as usual. `said` is the epsilon that the study states.
    pub fn unusual(&self, said: Option<f64>) -> Vec<String> {
        /// More than this is a weak promise.
        const LARGE: f64 = 10.0;
        let Some(budget) = self.budget.filter(|_| self.is_protected) else { return Vec::new() };
        let all = budget.promised().plus(self.later.map_or(Spent::ZERO, |later| later.total));
        let [epsilon, alone] = [all.rho, all.alone].map(|rho| budget.epsilon(rho).get());
        let more = |value: f64, than: f64| value > than * (1.0 + 1e-6);
        let mut found = Vec::new();
        if let Some(said) = said.filter(|said| more(epsilon, *said)) {
            found.push(format!(
                "this party has a phi1 of its own and spends epsilon {epsilon:.4}, while the study says {said}"
            ));
        }
        if more(epsilon, LARGE) {
            found.push(format!(
                "it spends epsilon {epsilon:.4} at delta {:e}, which is a weak promise",
                budget.delta().get()
            ));
        } else if more(alone, LARGE) {
            found.push(format!("if all others collude, it spends epsilon {alone:.4}"));
        }
        found
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
        let claim = Claim { budget: Some(&budget), later: None, is_protected: true, study: &[9; 32], name: "new" };
        let limits = OwnerLimits { epsilon: Some(1.0), ..OwnerLimits::default() };
        assert!(claim.allowance(limits, Stated::Option, None).is_ok(), "it fits at its own delta");
        let refused = claim.allowance(limits, Stated::Option, Some(ledger.contents()));
        assert!(matches!(refused, Err(LimitError::Exceeded { delta, .. }) if delta == 1e-9));
        // At the owner's delta it does not fit, whatever its own; nor does it within the owner's rho, or as a second study.
        let policy = OwnerLimits { epsilon: Some(1.0), delta: Some(1e-6), ..OwnerLimits::default() };
        let refused = claim.allowance(policy, Stated::Policy, None).unwrap_err();
        assert!(refused.to_string().starts_with("policy.toml: epsilon = 1: "), "{refused}");
        let rho = budget.promised().alone.get();
        let within = |most: f64| OwnerLimits { rho: Some(most), ..OwnerLimits::default() };
        assert!(claim.allowance(within(1.01 * rho), Stated::Policy, None).is_ok());
        assert!(matches!(claim.allowance(within(0.99 * rho), Stated::Policy, None), Err(LimitError::Rho { .. })));
        let once = OwnerLimits { studies: Some(1), ..OwnerLimits::default() };
        assert!(claim.allowance(once, Stated::Policy, None).is_ok());
        let refused = claim.allowance(once, Stated::Policy, Some(ledger.contents()));
        assert!(matches!(refused, Err(LimitError::Studies { most: 1, before: 1 })));
        let again = Claim { study: &[1; 32], ..claim };
        assert!(again.allowance(once, Stated::Policy, Some(ledger.contents())).is_ok(), "the same study goes on");
        assert!(again.check_delta(999.0).is_ok() && again.check_delta(1001.0).is_err());
        assert_eq!(again.unusual(Some(1.0)), [""; 0]);
        assert!(again.unusual(Some(0.5))[0].contains("a phi1 of its own"));
    }

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        let policy = OwnerLimits {
            epsilon: Some(4.0),
            alone: Some(8.0),
            delta: Some(1e-6),
            rho: Some(0.5),
            studies: Some(3),
            large_delta: true,
        };
        for policy in [policy, OwnerLimits::default()] {
            assert_eq!(OwnerLimits::read(&policy.to_toml(), "policy.toml").unwrap(), policy);
        }
        for (text, words) in [("epsilon = 4", "delta is missing"), ("epslion = 4", "did you mean"), ("rho = -1", "rho")]
        {
            let error = OwnerLimits::read(text, "policy.toml").unwrap_err().to_string();
            assert!(error.starts_with("policy.toml") && error.contains(words), "{error}");
        }
    }
}
