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
//!
//! Beyond the paper, `average` makes the last round one that costs nothing: it releases the mean of the client's own
//! latest releases.

use std::sync::Arc;

use super::{Algorithm, Entry, Facts, Step, StepError, StepSize, View, read_average};
use crate::privacy::Sensitivity;
use crate::records::{Records, Scratch};
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
    /// The share of the rounds before the last whose releases are averaged in the last; 0 for none, as in the paper.
    pub average: f64,
}

impl ZcdpNfl {
    /// Reads `rho`, `eta`, `decay` and `average`.
    pub fn read(reader: &mut Reader) -> Result<Self, StudyError> {
        let (rho, eta) = (reader.positive("rho")?, StepSize::read(reader)?);
        Ok(Self { rho, eta, average: read_average(reader, 0.0)? })
    }

    /// a_k(n) = 2 rho d_k + 1/eta_k(n).
    fn curvature(&self, degree: usize, round: u32, eta: Option<f64>) -> f64 {
        2.0 * self.rho * degree as f64 + 1.0 / self.eta.at(round, eta)
    }

    /// How many releases the last round averages.
    fn averaged(&self, rounds: u32) -> u32 {
        (self.average * f64::from(rounds - 1)).ceil() as u32
    }

    /// Adds w~_k(n-1) to the sum of those that will be averaged, if it is one of them; they come after gamma in memory.
    fn remember(&self, view: &View, memory: &mut [f64]) {
        if self.average > 0.0 && view.round > view.rounds - self.averaged(view.rounds) {
            let sum = &mut memory[view.own.len()..];
            sum.iter_mut().zip(view.own).for_each(|(sum, own)| *sum += own);
        }
    }
}

impl Algorithm for ZcdpNfl {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn settings(&self) -> toml::Table {
        let mut table = toml::Table::new();
        table.insert("rho".into(), self.rho.into());
        self.eta.write(&mut table);
        table.insert("average".into(), self.average.into());
        table
    }

    fn touches_records(&self, round: u32, rounds: u32) -> bool {
        self.average == 0.0 || round < rounds || rounds == 1
    }

    fn memory(&self) -> usize {
        if self.average > 0.0 { 2 } else { 1 }
    }

    fn dual_weight(&self) -> f64 {
        self.rho
    }

    /// Delta_k(n) = 2 c1/(M_k a_k(n)): all else in w_k(n) is public.
    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity {
        let a = self.curvature(facts.degree, round, facts.eta);
        Sensitivity::of_clipped_mean(facts.clip, facts.records).scaled(1.0 / a)
    }

    fn step(
        &self,
        view: &View,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.remember(view, memory);
        let share = 1.0 / self.curvature(view.slots.len(), view.round, view.eta);
        view.loss_gradient(records, view.own, -share, scratch, step.private);
        let disagreement = view.disagreement(&mut scratch.vector);
        for (((public, gamma), own), disagreement) in step.public.iter_mut().zip(memory).zip(view.own).zip(disagreement)
        {
            let pull = self.rho * disagreement;
            *gamma += pull;
            *public = own - (*gamma + pull) * share;
        }
        view.add_regularizer(-share, step.public);
        Ok(())
    }

    /// The last round releases the average. In any other, the records may not be used: the dual goes on and the client
    /// repeats itself.
    fn mix(&self, view: &View, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.remember(view, memory);
        for (gamma, d) in memory.iter_mut().zip(view.disagreement(&mut scratch.vector)) {
            *gamma += self.rho * d;
        }
        released.copy_from_slice(view.own);
        if !self.touches_records(view.round, view.rounds) {
            let share = 1.0 / f64::from(self.averaged(view.rounds));
            released.iter_mut().zip(&memory[view.own.len()..]).for_each(|(r, sum)| *r = sum * share);
        }
    }
}
