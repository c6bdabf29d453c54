//! zCDP-grad-NFL: the subgradient method of Nedic and Ozdaglar (2009) with zCDP noise.
//!
//! ```text
//! w_k(n) = sum_l a_kl w~_l(n-1) + a_kk w~_k(n-1) - eta(n) g_k
//! ```
//!
//! with Metropolis weights a_kl = 1/(1 + max(d_k, d_l)) and a_kk = 1 - sum_l a_kl. `decay = "constant"` is the
//! paper's baseline, `decay = "sqrt"` is stronger.

use std::sync::Arc;

use super::{Algorithm, Entry, Round, Step, StepError, StepSize};
use crate::knob::{Scale, Settings};
use crate::records::{Records, Scratch};

/// The registry line.
pub const ENTRIES: &[Entry] = &[Entry {
    name: "zcdp-grad-nfl",
    knobs: &[StepSize::eta_knob(Scale::Log(0.003, 10.0)), StepSize::decay_knob(&["constant", "sqrt", "inverse"])],
    tau: Scale::BelowOne(1e-4, 0.1),
    bounds_liars: false,
    build: |settings| Arc::new(Subgradient { eta: StepSize::new(settings) }),
}];

/// zCDP-grad-NFL and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Subgradient {
    /// The step size.
    pub eta: StepSize,
}

impl Algorithm for Subgradient {
    fn name(&self) -> &'static str {
        ENTRIES[0].name
    }

    fn settings(&self) -> Settings {
        self.eta.add_to(Settings::new())
    }

    /// -eta(n), so that Delta_k(n) = 2 eta(n) c1/M_k.
    fn gain(&self, round: &Round) -> Option<f64> {
        Some(-self.eta.at(round.number, round.eta))
    }

    fn step(
        &self,
        round: &Round,
        records: Records,
        _: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        let eta = self.eta.at(round.number, round.eta);
        round.loss_gradient(records, round.own, step.scale, scratch, step.private);
        round.neighbourhood_mean(step.public);
        round.add_regularizer(-eta, step.public);
        Ok(())
    }
}
