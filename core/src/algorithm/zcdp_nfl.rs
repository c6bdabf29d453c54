//! zCDP-NFL: the paper's Algorithm 1.
//!
//! With a_k(n) = 2 rho d_k + 1/eta_k(n) and g_k the clipped gradient at w~_k(n-1),
//!
//! ```text
//! w_k(n)     = w~_k(n-1) - [ g_k + gamma_k(n-1) + rho sum_l (w~_k(n-1) - w~_l(n-1)) ] / a_k(n)
//! w~_k(n)    = w_k(n) + xi_k(n)                                     (in `privacy::noise`)
//! gamma_k(n) = gamma_k(n-1) + rho sum_l (w~_k(n) - w~_l(n))
//! ```
//!
//! The dual step of round n and the primal step of round n+1 need the same sum over neighbours, so the dual step is
//! taken at the start of the next round. In round 1 the points are all zero, and it does nothing.

use std::sync::Arc;

use super::{Algorithm, Entry, Facts, Step, StepError, StepSize, View};
use crate::privacy::Sensitivity;
use crate::records::Scratch;
use crate::study::{Reader, StudyError};

/// The registry line.
pub const ENTRY: Entry = Entry { name: "zcdp-nfl", read: |reader| Ok(Arc::new(ZcdpNfl::read(reader)?)) };

/// zCDP-NFL and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ZcdpNfl {
    /// The penalty rho of the augmented Lagrangian.
    pub rho: f64,
    /// eta_k(n).
    pub eta: StepSize,
}

impl ZcdpNfl {
    /// Reads `rho`, `eta` and `decay`.
    pub fn read(reader: &mut Reader) -> Result<Self, StudyError> {
        Ok(Self { rho: reader.positive("rho")?, eta: StepSize::read(reader)? })
    }

    /// a_k(n) = 2 rho d_k + 1/eta_k(n).
    fn curvature(&self, degree: usize, round: u32, eta: Option<f64>) -> f64 {
        2.0 * self.rho * degree as f64 + 1.0 / self.eta.at(round, eta)
    }
}

impl Algorithm for ZcdpNfl {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn dual_weight(&self) -> f64 {
        self.rho
    }

    fn settings(&self) -> toml::Table {
        let mut table = toml::Table::new();
        table.insert("rho".into(), self.rho.into());
        self.eta.write(&mut table);
        table
    }

    /// Delta_k(n) = 2 c1/(M_k a_k(n)): all else in w_k(n) is public.
    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity {
        let a = self.curvature(facts.degree, round, facts.eta);
        Sensitivity::of_clipped_mean(facts.clip, facts.records).scaled(1.0 / a)
    }

    fn step(&self, view: &View, gamma: &mut [f64], scratch: &mut Scratch, step: Step) -> Result<(), StepError> {
        let share = 1.0 / self.curvature(view.slots.len(), view.round, view.eta);
        view.loss_gradient(-share, scratch, step.private);
        let disagreement = view.disagreement(&mut scratch.vector);
        for (((public, gamma), own), disagreement) in step.public.iter_mut().zip(gamma).zip(view.own).zip(disagreement)
        {
            let pull = self.rho * disagreement;
            *gamma += pull;
            *public = own - (*gamma + pull) * share;
        }
        view.add_regularizer(-share, step.public);
        Ok(())
    }
}
