//! (eps,delta)DP-NFL: zCDP-NFL with the noise of the classic Gaussian mechanism.
//!
//! The steps are those of [`zcdp_nfl`](super::zcdp_nfl); only the budget is spread differently: every round is
//! (eps_n, delta_n)-private by the classic theorem, and the rounds add up by advanced composition. It shows what the
//! better accounting of zCDP is worth.

use std::sync::Arc;

use super::zcdp_nfl::ZcdpNfl;
use super::{Algorithm, Entry, Facts, Step, StepError, View};
use crate::privacy::{Accountant, Budget, BudgetError, Delta, Epsilon, Schedule, Sensitivity};
use crate::records::{Records, Scratch};

/// The registry line.
pub const ENTRY: Entry = Entry { name: "dp-nfl", read: |reader| Ok(Arc::new(DpNfl(ZcdpNfl::read(reader)?))) };

/// (eps,delta)DP-NFL.
#[derive(Debug, Clone, PartialEq)]
pub struct DpNfl(pub ZcdpNfl);

impl Algorithm for DpNfl {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn touches_records(&self, round: u32, rounds: u32) -> bool {
        self.0.touches_records(round, rounds)
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }

    fn dual_weight(&self) -> f64 {
        self.0.dual_weight()
    }

    fn settings(&self) -> toml::Table {
        self.0.settings()
    }

    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity {
        self.0.sensitivity(facts, round)
    }

    /// A budget in (phi1, tau) is already zCDP and stays so; one in epsilon is composed the classic way.
    fn schedule(
        &self,
        budget: Budget,
        accountant: Accountant,
        delta: Delta,
        rounds: u32,
        tau: f64,
    ) -> Result<Schedule, BudgetError> {
        match budget {
            Budget::Epsilon(epsilon) => Schedule::classic(epsilon, delta, rounds, tau),
            Budget::First(_) => budget.schedule(accountant, delta, rounds, tau),
        }
    }

    fn own_epsilon(&self, budget: Budget, schedule: &Schedule, delta: Delta) -> Option<Epsilon> {
        matches!(budget, Budget::Epsilon(_)).then(|| schedule.classic_epsilon(delta))
    }

    fn step(
        &self,
        view: &View,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.0.step(view, records, memory, scratch, step)
    }

    fn mix(&self, view: &View, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.0.mix(view, memory, scratch, released);
    }
}
