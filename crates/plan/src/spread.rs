//! What privacy noise alone does to the coefficients of a study.

use rayon::prelude::*;
use undertone_core::study::Study;
use undertone_data::Model;
use undertone_sim::Outcome;

use crate::made_up::{MadeUp, SEEN, SETS};

/// Operations that this may take, about a second of one core.
const WORK: f64 = 2e9;
/// Fewer sets than this say little, and more than the other number hardly more.
const FEWEST: usize = 12;
const MOST: usize = SETS - SEEN;
/// The median of the size of a standard normal number.
const MEDIAN: f64 = 0.674_489_750_196_081_7;

/// The standard deviation that privacy noise alone gives to each coefficient, the intercept first, in the units of the table.
///
/// It follows from the study, which is public: no record is read and nothing is spent. On made-up data sets of the study's shape the study is run twice each, with the
/// same records and other noise. The difference of two such models has sqrt(2) times the standard deviation; the median over the sets is told. None without privacy,
/// for a study that is too large to be run so often, and where runs diverge.
pub fn noise_spread(study: &Study) -> Option<Vec<f64>> {
    study.privacy()?;
    let made_up = MadeUp::without_sets(study.spec()).ok()?;
    let runs = 2.0 * f64::from(study.rounds()) * (made_up.work.data_round + made_up.work.mixing_round);
    let sets = ((WORK / runs) as usize).min(MOST);
    if sets < FEWEST {
        return None;
    }
    let mut spec = study.spec().clone();
    // What is released after the last round does not move the model, and a lost client is another matter.
    spec.plan.get_or_insert_default().losses = Some(0);
    let study = made_up.study(spec)?;
    let pairs: Option<Vec<[Model; 2]>> =
        (SEEN..SEEN + sets).into_par_iter().map(|law| made_up.twice(&study, law)).collect();
    let all = |model: &Model| -> Vec<f64> {
        std::iter::once(model.original.intercept).chain(model.original.coefficients.iter().map(|c| c.1)).collect()
    };
    let apart: Vec<Vec<f64>> =
        pairs?.iter().map(|[a, b]| all(a).iter().zip(all(b)).map(|(a, b)| (a - b).abs()).collect()).collect();
    let median = |at: usize| {
        let mut sizes: Vec<f64> = apart.iter().map(|pair| pair[at]).collect();
        sizes.sort_by(f64::total_cmp);
        0.5 * (sizes[(sizes.len() - 1) / 2] + sizes[sizes.len() / 2])
    };
    let spread: Vec<f64> = (0..apart[0].len()).map(|at| median(at) / (MEDIAN * std::f64::consts::SQRT_2)).collect();
    spread.iter().all(|sd| sd.is_finite()).then_some(spread)
}

/// What privacy noise alone does to the coefficients, where no intervals say more. A study that does not state its numbers of records takes those of the files.
pub fn spread_of(study: &Study, outcome: &Outcome) -> Option<Vec<f64>> {
    let spec = study.spec();
    if outcome.closed.first().is_some_and(|closed| matches!(closed.intervals, Some(Ok(_)))) {
        return None;
    }
    let mut known = spec.clone();
    if !spec.data.is_made_up() {
        known.plan.get_or_insert_default().clients.get_or_insert(outcome.names.len());
        if spec.public_records().is_none_or(|records| records.is_empty()) {
            let held = |k: usize| outcome.held_out.as_ref().map_or(0, |held| held.records[k]);
            known = known.records(outcome.records.iter().enumerate().map(|(k, m)| m + held(k)).collect::<Vec<_>>());
        }
    }
    noise_spread(&known.check().ok()?)
}
