//! Stops as outcomes: whether a round succeeds must not tell about a record, whatever neighbours release.

use undertone_core::client::{LARGEST_VALUE, Protection};
use undertone_core::privacy::Delta;
use undertone_core::records::Dataset;

use crate::bound::epsilon_from_tails;
use crate::subject::{Subject, View};

/// What stops prove.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Stops {
    /// How many rounds were tried, with the record and without it.
    pub trials: u64,
    /// Of those the ones that failed with the record, and without it, at the size that tells most.
    pub failed: (u64, u64),
    /// That size.
    pub size: f64,
    /// What it proves.
    pub epsilon: f64,
}

/// Tries releases of every size in one coordinate of all neighbours on a client with a record in that coordinate and on one without.
pub fn stops(subject: &Subject, trials: u64, delta: Delta, alpha: f64) -> Stops {
    let rounds = subject.study.rounds();
    let data_rounds = (1..=rounds).filter(|n| subject.study.algorithm().touches_records(*n, rounds));
    // The first has no neighbours' values yet in some algorithms.
    let number = data_rounds.take(2).last().unwrap_or(1);
    let features = subject.features;
    let [with, without] = [true, false].map(|has| subject.one_hot(has));
    let failures = |data: &Dataset, size: f64, trials: std::ops::Range<u64>| {
        trials.filter(|trial| subject.fails(number, data, size, *trial as u32, features)).count() as u64
    };
    // A few rounds at every size find the one that tells most; new ones at this size say how much.
    let pilot = 10;
    let sizes = (0..=30).flat_map(|e| [10f64.powi(e), -10f64.powi(e)]).map(|v| v.clamp(-LARGEST_VALUE, LARGEST_VALUE));
    let tells = |size: &f64| failures(&with, *size, 0..pilot).abs_diff(failures(&without, *size, 0..pilot));
    let size = sizes.max_by_key(tells).unwrap_or(1.0);
    let fresh = pilot..pilot + trials;
    let failed = (failures(&with, size, fresh.clone()), failures(&without, size, fresh));
    let epsilon = |hits, misses| epsilon_from_tails(hits, misses, trials, delta, alpha / 2.0);
    Stops { trials, failed, size, epsilon: epsilon(failed.0, failed.1).max(epsilon(failed.1, failed.0)) }
}

impl Subject {
    /// Records of which one has a feature that no other has; or none has it.
    fn one_hot(&self, has_it: bool) -> Dataset {
        let features = self.features;
        let records = 20;
        let mut rows = vec![0.0; records * features];
        rows.chunks_exact_mut(features).for_each(|row| row[features - 1] = 1.0);
        if has_it {
            rows[0] = self.canary.reach.max(1.0);
        }
        let mut targets = vec![1.0; records];
        targets[0] = -1.0;
        self.stored(&rows, &targets)
    }

    /// Whether a round fails at the first attacked client if all others released this number in the first coordinate.
    fn fails(&self, number: u32, data: &Dataset, size: f64, trial: u32, features: usize) -> bool {
        let client = self.attacked[0];
        let mut view = View::new(self);
        for k in (0..self.names.len()).filter(|k| *k != client) {
            view.released[k * features] = size;
        }
        let masks = self.masks.as_ref().map(|masks| masks.round(self.names.len(), trial, number, features));
        let budget = &self.budgets[client];
        let protection = Protection::On { budget, noise: &self.noise, masks: masks.as_ref(), trial };
        view.step(client, number, data, protection).is_err()
    }
}
