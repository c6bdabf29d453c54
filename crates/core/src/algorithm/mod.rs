//! The algorithms, one file each behind one trait.
//!
//! In a round that touches the records, a client computes w_k(n) from them and from public points (what it and its
//! neighbours have released), noise is added, and the sum is released. In a round that does not, it mixes public points
//! and releases the result as it is: the code that does so is never given the records. An algorithm says which rounds
//! are which, how either is computed, how far one record can move w_k(n), and how the budget is spread. To add one,
//! write its file and add it to [`REGISTRY`].

pub mod dp_nfl;
pub mod free_rounds;
pub mod p_admm;
pub mod subgradient;
pub mod zcdp_nfl;

use std::fmt::Debug;
use std::sync::Arc;

use thiserror::Error;

use crate::graph::Graph;
use crate::privacy::{Accountant, Budget, BudgetError, Clip, Delta, Epsilon, Schedule, Sensitivity};
use crate::problem::Problem;
use crate::records::{Records, Scratch};
use crate::study::{Reader, StudyError};

/// One line per algorithm.
pub static REGISTRY: &[Entry] =
    &[free_rounds::ENTRY, zcdp_nfl::ENTRY, dp_nfl::ENTRY, subgradient::ENTRY, p_admm::ENTRY, p_admm::UNCLIPPED_ENTRY];

/// How a study finds an algorithm and its parameters.
pub struct Entry {
    /// The `algorithm.name` of a study.
    pub name: &'static str,
    /// Reads the other keys of the study's `[algorithm]` table.
    pub read: fn(&mut Reader) -> Result<Arc<dyn Algorithm>, StudyError>,
}

/// The step could not be computed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StepError {
    /// An inner solver did not reach the accuracy that its sensitivity assumes, so nothing may be released.
    #[error(
        "the local problem was not solved to the gradient of {assumed:e} that the sensitivity assumes; raise algorithm.rho \
         or problem.lambda"
    )]
    Inexact {
        /// Norm of the gradient at the end.
        reached: f64,
        /// Norm that the privacy analysis allows.
        assumed: f64,
    },
}

/// What a client sees in a round, apart from its records: all of it is public or follows from messages already sent.
pub struct View<'a> {
    /// n, from 1.
    pub round: u32,
    /// T.
    pub rounds: u32,
    /// k.
    pub client: usize,
    /// The public graph.
    pub graph: &'a Graph,
    /// The public part of the problem.
    pub problem: &'a Problem,
    /// This client's own step size instead of the algorithm's, if the study gives it one.
    pub eta: Option<f64>,
    /// w~_k(n-1).
    pub own: &'a [f64],
    /// Released points, one after the other.
    pub points: &'a [f64],
    /// Which of `points` are the neighbours', in ascending order of their ids.
    pub slots: &'a [u32],
    /// Who the neighbours are, in the same order. Fewer than in the graph if edges were dropped.
    pub ids: &'a [u32],
}

impl View<'_> {
    /// w~_l(n-1) of the neighbours, by ascending id.
    pub fn neighbours(&self) -> impl Iterator<Item = &[f64]> {
        let features = self.own.len();
        self.slots.iter().map(move |&slot| &self.points[slot as usize * features..][..features])
    }

    /// sum_l (w~_k(n-1) - w~_l(n-1)) over the neighbours, by ascending id.
    pub fn disagreement<'b>(&self, buffer: &'b mut Vec<f64>) -> &'b [f64] {
        buffer.resize(self.own.len(), 0.0);
        let mut neighbours = self.neighbours();
        match neighbours.next() {
            Some(first) => set(buffer, self.own, first, |_, own, other| own - other),
            None => buffer.fill(0.0),
        }
        for point in neighbours {
            set(buffer, self.own, point, |sum, own, other| sum + (own - other));
        }
        buffer
    }

    /// w~_k(n-1) + sum_l a_kl (w~_l(n-1) - w~_k(n-1)), by ascending id, with Metropolis weights
    /// a_kl = 1/(1 + max(d_k, d_l)).
    ///
    /// The degrees are those of the whole graph, also when edges were dropped: both ends of an edge must agree on its
    /// weight.
    pub fn neighbourhood_mean(&self, out: &mut [f64]) {
        out.copy_from_slice(self.own);
        let degree = self.graph.degree(self.client);
        for (&l, point) in self.ids.iter().zip(self.neighbours()) {
            let weight = 1.0 / (1.0 + degree.max(self.graph.degree(l as usize)) as f64);
            set(out, self.own, point, |sum, own, point| sum + weight * (point - own));
        }
    }

    /// `scale` times the mean clipped loss gradient at a public point: the one thing in a step that depends on records.
    pub fn loss_gradient(&self, records: Records, at: &[f64], scale: f64, scratch: &mut Scratch, out: &mut [f64]) {
        records.gradient(self.problem.loss, at, scale, scratch, out);
    }

    /// Adds `scale` (lambda/K) R'(w~_k(n-1)), which is public.
    pub fn add_regularizer(&self, scale: f64, out: &mut [f64]) {
        self.problem.add_regularizer_subgradient(scale, self.graph.clients(), self.own, out);
    }
}

/// target = f(target, a, b) in every coordinate.
#[inline(always)]
fn set(target: &mut [f64], a: &[f64], b: &[f64], f: impl Fn(f64, f64, f64) -> f64) {
    for ((target, a), b) in target.iter_mut().zip(a).zip(b) {
        *target = f(*target, *a, *b);
    }
}

/// The public facts that decide how far one record can move a step.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The public part of the problem.
    pub problem: &'a Problem,
    /// K.
    pub clients: usize,
    /// T.
    pub rounds: u32,
    /// d_k.
    pub degree: usize,
    /// M_k.
    pub records: usize,
    /// c1.
    pub clip: Clip,
    /// This client's own step size, if any.
    pub eta: Option<f64>,
}

/// One method of learning among peers.
pub trait Algorithm: Debug + Send + Sync {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// The parameters as they stand in a study's `[algorithm]` table, without the name.
    fn settings(&self) -> toml::Table;

    /// Why this algorithm cannot solve this problem with so many features in so many rounds, if it cannot.
    fn refuses(&self, _problem: &Problem, _features: usize, _rounds: u32) -> Option<String> {
        None
    }

    /// Why this algorithm must not run between peers, if it must not: no outcome of a peer that others can see may depend
    /// on records without noise.
    fn refuses_peers(&self) -> Option<&'static str> {
        None
    }

    /// Whether gradients are clipped. What does not clip has no privacy, whatever its noise.
    fn clips(&self) -> bool {
        true
    }

    /// Whether clients may have step sizes of their own. Where step sizes weigh the clients' losses against each other
    /// they may not.
    fn takes_own_eta(&self) -> bool {
        self.settings().contains_key("eta")
    }

    /// Whether round n of T touches the records. What does not costs nothing.
    fn touches_records(&self, _round: u32, _rounds: u32) -> bool {
        true
    }

    /// How many vectors of length P a client carries from round to round besides its released point, all zero at
    /// first. They may be computed from released points only. A dual gamma_k is the first of them.
    fn memory(&self) -> usize {
        usize::from(self.dual_weight() > 0.0)
    }

    /// The rho in gamma_k(n) = rho sum_l sum_(m<=n) (w~_k(m) - w~_l(m)); zero for algorithms without a dual.
    ///
    /// With it a peer can take an edge's share out of its dual when the edge is dropped, and keep its dual up to date
    /// in a round in which it only repeats itself.
    fn dual_weight(&self) -> f64 {
        0.0
    }

    /// How far replacing one record can move w_k(n), in a round that touches the records.
    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity;

    /// The cost of each of `rounds` rounds that touch the records. All but the classic mechanism spread zCDP geometrically.
    fn schedule(
        &self,
        budget: Budget,
        accountant: Accountant,
        delta: Delta,
        rounds: u32,
        tau: f64,
    ) -> Result<Schedule, BudgetError> {
        budget.schedule(accountant, delta, rounds, tau)
    }

    /// The epsilon proven for the whole of `schedule`, if the algorithm has a proof of its own in place of the
    /// accountant's.
    fn own_epsilon(&self, _budget: Budget, _schedule: &Schedule, _delta: Delta) -> Option<Epsilon> {
        None
    }

    /// A round that touches the records: computes w_k(n) in two parts, w = `public` + `private`, and updates the memory.
    ///
    /// `public` follows from messages already sent; all that depends on records must be in `private`, because only
    /// that is put on the lattice and noised. Rounding in the public part is then the same for neighbouring data.
    fn step(
        &self,
        view: &View,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError>;

    /// A round without the records: computes w~_k(n) from what was released before, and updates the memory.
    ///
    /// Either the algorithm plans it so, or a peer may not use its records in this round. Unless an algorithm knows
    /// better, the dual goes on and the client repeats itself.
    fn mix(&self, view: &View, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        let weight = self.dual_weight();
        if weight > 0.0 {
            for (gamma, d) in memory.iter_mut().zip(view.disagreement(&mut scratch.vector)) {
                *gamma += weight * d;
            }
        }
        released.copy_from_slice(view.own);
    }
}

/// Where a step is written; both parts have length P and arbitrary contents before.
pub struct Step<'a> {
    /// What follows from messages already sent.
    pub public: &'a mut [f64],
    /// What depends on records.
    pub private: &'a mut [f64],
}

/// How a step size shrinks with the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// eta
    Constant,
    /// eta/sqrt(n)
    Sqrt,
    /// eta/n
    Inverse,
}

/// A step size eta(n).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSize {
    /// eta(1), unless a client has its own.
    pub eta: f64,
    /// How it shrinks.
    pub decay: Decay,
}

impl StepSize {
    const DECAYS: [(&'static str, Decay); 3] =
        [("constant", Decay::Constant), ("sqrt", Decay::Sqrt), ("inverse", Decay::Inverse)];

    /// eta_k(n), with the client's own eta(1) if it has one.
    pub fn at(self, round: u32, own: Option<f64>) -> f64 {
        let n = f64::from(round);
        let eta = own.unwrap_or(self.eta);
        match self.decay {
            Decay::Constant => eta,
            Decay::Sqrt => eta / n.sqrt(),
            Decay::Inverse => eta / n,
        }
    }

    /// Reads `eta` and `decay`.
    pub fn read(reader: &mut Reader) -> Result<Self, StudyError> {
        Ok(Self { eta: reader.positive("eta")?, decay: reader.choice_or("decay", &Self::DECAYS, Decay::Constant)? })
    }

    /// Writes `eta` and `decay`.
    pub fn write(self, table: &mut toml::Table) {
        let (name, _) = Self::DECAYS.iter().find(|(_, d)| *d == self.decay).expect("every decay has a name");
        table.insert("eta".into(), self.eta.into());
        table.insert("decay".into(), (*name).into());
    }
}

/// Reads `average`, a share of the rounds.
fn read_average(reader: &mut Reader, default: f64) -> Result<f64, StudyError> {
    let share = |v: f64| (0.0..=1.0).contains(&v);
    Ok(reader.number("average", "write a share of the rounds, from 0 to 1", share)?.unwrap_or(default))
}
