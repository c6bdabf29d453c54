//! What trust is worth.

use undertone_core::study::{PrivacySpec, StudySpec};
use undertone_core::watch::Watch;

use crate::error::PlanError;
use crate::made_up::MadeUp;
use crate::plan::{Attempt, Plan, Row, attempts, epsilon_alone};
use crate::regret::Regret;

/// What to expect of a study in which more or fewer clients may collude.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustRow {
    /// q; none if all may collude, and there are no masks.
    pub colluders: Option<usize>,
    /// The regret to expect.
    pub regret: Regret,
    /// The epsilon if all others of a client collude; none if nothing bounds it.
    pub epsilon_alone: Option<f64>,
}

/// What trust is worth: the study as planned, and planned again for one, a fifth and half of the clients that may collude, with the algorithm that
/// was recommended, and for all of them, with any.
///
/// A short search may miss what another one found, and less noise makes nothing worse: for each assumption the parameters that were found for
/// the others are tried too.
pub fn trust(spec: &StudySpec, plan: &Plan, watch: &dyn Watch) -> Result<Vec<TrustRow>, PlanError> {
    trust_on(&MadeUp::of(spec)?, spec, plan, watch)
}

/// The same on sets that are made already.
pub(crate) fn trust_on(
    made_up: &MadeUp,
    spec: &StudySpec,
    plan: &Plan,
    watch: &dyn Watch,
) -> Result<Vec<TrustRow>, PlanError> {
    let (row, clients) = (plan.recommended(), plan.names.len());
    let stated = spec.privacy.and_then(|privacy| privacy.colluders);
    let mut others = vec![1, clients / 5, clients / 2];
    others.retain(|&q| q >= 1 && q + 2 <= clients && Some(q) != stated);
    others.dedup();
    let assuming = |colluders: Option<usize>| {
        let mut spec = spec.clone();
        if stated.is_some() {
            // As many are lost, whoever is trusted.
            spec.plan.get_or_insert_default().losses = Some(plan.losses);
        }
        spec.privacy = spec.privacy.map(|privacy| PrivacySpec { colluders, theta: None, ..privacy });
        spec
    };
    let mut found = vec![row.parameters.clone()];
    let mut alone: Vec<Row> = Vec::new();
    // Where the study itself trusts nobody, that is planned already.
    let all = if stated.is_some() { attempts(&assuming(None), made_up) } else { Vec::new() };
    for (index, attempt) in all.iter().enumerate() {
        watch.progress(0.5 * index as f64 / all.len() as f64);
        let rated = attempt.rate(made_up, watch)?;
        found.extend(rated.iter().filter(|rated| rated.algorithm == row.algorithm).map(|row| row.parameters.clone()));
        alone.extend(rated);
    }
    let attempts: Vec<Attempt> = others.iter().map(|q| plan.recommended_on(assuming(Some(*q)), clients)).collect();
    let mut benches = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        watch.progress(0.5 + 0.5 * index as f64 / attempts.len() as f64);
        let bench = attempt.bench(made_up, watch);
        found.extend(bench.as_ref().and_then(|bench| bench.search(None)));
        benches.push(bench);
    }
    let mut rows = vec![(stated, row.clone())];
    rows.extend(alone.into_iter().min_by(|a, b| a.regret.score.total_cmp(&b.regret.score)).map(|row| (None, row)));
    for (q, bench) in others.iter().zip(benches) {
        let Some(bench) = bench else { continue };
        let best = bench.best(found.iter().map(|parameters| bench.attempt.fitted(parameters)).collect());
        rows.extend(bench.measure(best)?.map(|row| (Some(*q), row)));
    }
    if watch.is_cancelled() {
        return Err(PlanError::Cancelled);
    }
    rows.sort_by_key(|(colluders, _)| colluders.unwrap_or(clients));
    let with_epsilon = |(colluders, row): (Option<usize>, Row)| TrustRow {
        colluders,
        regret: row.regret,
        epsilon_alone: epsilon_alone(&row.study, clients),
    };
    Ok(rows.into_iter().map(with_epsilon).collect())
}
