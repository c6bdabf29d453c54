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

use super::step_size::average_knob;
use super::{Algorithm, Entry, Round, Step, StepError, StepSize};
use crate::knob::{Domain, Knob, Scale, Settings, Value};
use crate::records::{Records, Scratch};
use crate::rule;
use crate::simd::over;

/// The penalty of ADMM.
pub(super) const RHO: Knob =
    Knob { name: "rho", domain: Domain::Number(rule::POSITIVE), default: None, search: Some(Scale::Log(0.03, 100.0)) };

/// The registry line.
pub const ENTRIES: &[Entry] = &[Entry {
    name: "zcdp-nfl",
    knobs: &[
        RHO,
        StepSize::eta_knob(Scale::Log(0.003, 10.0)),
        StepSize::decay_knob(&["constant", "sqrt"]),
        average_knob(0.0),
    ],
    tau: Scale::BelowOne(1e-4, 0.1),
    bounds_liars: true,
    build: |settings| {
        let (rho, average) = (settings.number("rho"), settings.number("average"));
        Arc::new(ZcdpNfl { rho, eta: StepSize::new(settings), average })
    },
}];

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
    /// a_k(n) = 2 rho d_k + 1/eta_k(n).
    fn curvature(&self, round: &Round) -> f64 {
        2.0 * self.rho * round.degree() as f64 + 1.0 / self.eta.at(round.number, round.eta)
    }

    /// gamma_k(n-1), with the disagreement of round n-1 left in `scratch.vector`.
    fn update_dual<'m>(&self, round: &Round, memory: &'m mut [f64], scratch: &mut Scratch) -> &'m [f64] {
        let (common, flows) = memory.split_at_mut(self.memory() * round.own.len());
        let gamma = &mut common[..round.own.len()];
        match round.run.robust {
            Some(robust) => {
                scratch.vector.resize(gamma.len(), 0.0);
                round.bounded_disagreement(robust, |_| 1.0, flows, &mut scratch.vector);
                round.bounded_dual(robust, self.rho, flows, gamma);
            }
            None => {
                let disagreement = round.disagreement(&mut scratch.vector);
                over(gamma.len(), || {
                    gamma.iter_mut().zip(disagreement).for_each(|(gamma, d)| *gamma += self.rho * d);
                });
            }
        }
        gamma
    }

    /// How many releases the last round averages.
    fn averaged(&self, rounds: u32) -> u32 {
        (self.average * f64::from(rounds - 1)).ceil() as u32
    }

    /// Adds w~_k(n-1) to the sum of those that will be averaged, if it is one of them; they come after gamma in memory.
    fn remember(&self, round: &Round, memory: &mut [f64]) {
        if self.average > 0.0 && round.number > round.run.rounds - self.averaged(round.run.rounds) {
            let sum = &mut memory[round.own.len()..];
            sum.iter_mut().zip(round.own).for_each(|(sum, own)| *sum += own);
        }
    }
}

impl Algorithm for ZcdpNfl {
    fn name(&self) -> &'static str {
        ENTRIES[0].name
    }

    fn settings(&self) -> Settings {
        let settings = self.eta.add_to(Settings::new().with("rho", Value::Number(self.rho)));
        settings.with("average", Value::Number(self.average))
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

    /// -1/a_k(n), so that Delta_k(n) = 2 c1/(M_k a_k(n)): all else in w_k(n) is public.
    fn gain(&self, round: &Round) -> Option<f64> {
        Some(-1.0 / self.curvature(round))
    }

    fn step(
        &self,
        round: &Round,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.remember(round, memory);
        let share = 1.0 / self.curvature(round);
        round.loss_gradient(records, round.own, step.scale, scratch, step.private);
        let gamma = self.update_dual(round, memory, scratch);
        over(gamma.len(), || {
            for (((public, gamma), own), disagreement) in
                step.public.iter_mut().zip(gamma).zip(round.own).zip(&scratch.vector)
            {
                *public = own - (*gamma + self.rho * disagreement) * share;
            }
        });
        round.add_regularizer(-share, step.public);
        Ok(())
    }

    /// The last round releases the average. In any other, the records may not be used: the dual is updated and the client
    /// repeats its last release.
    fn mix(&self, round: &Round, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.remember(round, memory);
        self.update_dual(round, memory, scratch);
        released.copy_from_slice(round.own);
        if !self.touches_records(round.number, round.run.rounds) {
            let share = 1.0 / f64::from(self.averaged(round.run.rounds));
            released.iter_mut().zip(&memory[round.own.len()..]).for_each(|(r, sum)| *r = sum * share);
        }
    }
}
