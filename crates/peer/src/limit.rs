//! The owner's limit: what all studies with one data set together may spend.

use undertone_core::identity::PublicId;
use undertone_core::ledger::Contents;
use undertone_core::privacy::{Delta, Epsilon, Rho};
use undertone_core::study::{Privacy, Study, StudyDigest};

use crate::LimitError;
use crate::run::{Options, is_protected};

/// The rho that this study may spend under the owner's limit; refuses a study that would pass it.
pub(crate) fn allowance(
    options: &Options,
    ledger: Option<&Contents>,
    digest: &StudyDigest,
) -> Result<Option<f64>, LimitError> {
    let (Some(limit), Some(privacy)) = (options.max_epsilon, &options.study.privacy) else {
        return match options.max_epsilon {
            Some(_) => Err(LimitError::NoPrivacy),
            None => Ok(None),
        };
    };
    let runs = ledger.map_or(&[][..], |l| &l.runs);
    // At the smallest delta that this data was ever promised: a study with a large one must not widen the limit.
    let smallest = runs.iter().map(|r| r.begin.delta).filter(|d| *d > 0.0).fold(privacy.delta.get(), f64::min);
    let delta = Delta::new(smallest).expect("one of several deltas");
    let limit_rho = privacy.accountant.rho(Epsilon::new(limit)?, delta).get();
    if !is_protected(&options.study) || ledger.is_some_and(|l| l.spent().is_none()) {
        return Err(LimitError::Rehearsal);
    }
    let others: f64 = runs.iter().filter(|r| r.begin.study != digest.whole()).map(|r| r.spent).sum();
    let left = limit_rho - others;
    let promised = promised(&options.study, privacy, &options.identity.id());
    if promised > left {
        let total = privacy.accountant.epsilon(Rho::new(others + promised).expect("a sum of rhos"), delta).get();
        return Err(LimitError::Exceeded { limit, total, delta: delta.get() });
    }
    Ok(Some(left.max(0.0)))
}

/// The rho of the whole study at this peer.
fn promised(study: &Study, privacy: &Privacy, id: &PublicId) -> f64 {
    let schedule = study.schedule(privacy).expect("checked with the study");
    let own = study.clients.values().find(|c| c.id.as_ref() == Some(id));
    schedule.spent(study.rounds).get() * own.map_or(1.0, |client| study.budget_factor(&schedule, client))
}
