//! zCDP-grad-NFL: the subgradient method of Nedic and Ozdaglar (2009) with zCDP noise.
//!
//! ```text
//! w_k(n) = sum_l a_kl w~_l(n-1) + a_kk w~_k(n-1) - eta(n) g_k
//! ```
//!
//! with Metropolis weights a_kl = 1/(1 + max(d_k, d_l)) and a_kk what is left to one. `decay = "constant"` is the
//! paper's baseline, `decay = "sqrt"` the strong one.

use std::sync::Arc;

use super::{Algorithm, Entry, Facts, Step, StepError, StepSize, View};
use crate::privacy::Sensitivity;
use crate::records::{Records, Scratch};

/// The registry line.
pub const ENTRY: Entry =
    Entry { name: "zcdp-grad-nfl", read: |reader| Ok(Arc::new(Subgradient { eta: StepSize::read(reader)? })) };

/// zCDP-grad-NFL and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Subgradient {
    /// The step size.
    pub eta: StepSize,
}

impl Algorithm for Subgradient {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn settings(&self) -> toml::Table {
        let mut table = toml::Table::new();
        self.eta.write(&mut table);
        table
    }

    /// Delta_k(n) = 2 eta(n) c1/M_k.
    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity {
        Sensitivity::of_clipped_mean(facts.clip, facts.records).scaled(self.eta.at(round, facts.eta))
    }

    fn step(
        &self,
        view: &View,
        records: Records,
        _: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        let eta = self.eta.at(view.round, view.eta);
        view.loss_gradient(records, view.own, -eta, scratch, step.private);
        view.neighbourhood_mean(step.public);
        view.add_regularizer(-eta, step.public);
        Ok(())
    }
}
