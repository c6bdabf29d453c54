//! Free rounds: only S of the T rounds touch the records; in the others clients mix what was already released.
//!
//! The loss gradient is the only private thing in a message, so a round without one costs nothing. The S gradients get
//! the whole budget, and between two of them the clients average their noise away. With x_k the public point of an epoch,
//!
//! ```text
//! data round s, every T/S rounds:  v_k = x_k + momentum (x_k - x_k of the data round before) - eta(s) (g_k(x_k) + noise)
//! every round after it:            v_k = one more step of Chebyshev-accelerated gossip, from v_k, v_l and the v_k before
//! next data round, or the end:     x_k = prox of eta(s) (lambda/K) R at the v_k of one more such step
//! last round:                      releases the mean of the latest x_k, one from each of the last `average` S epochs
//! ```
//!
//! x_k, momentum, gossip, prox and mean are functions of released points. A client's memory is made of them alone.

use std::sync::Arc;

use super::{Algorithm, Entry, Facts, Step, StepError, StepSize, View, read_average};
use crate::graph::Gossip;
use crate::privacy::Sensitivity;
use crate::problem::Problem;
use crate::records::{Records, Scratch};
use crate::study::{Reader, StudyError};

/// The registry line.
pub const ENTRY: Entry = Entry { name: "free-rounds", read: |reader| Ok(Arc::new(FreeRounds::read(reader)?)) };

/// Free rounds and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct FreeRounds {
    /// S, less than T.
    pub data_rounds: u32,
    /// eta(s), s = 1..=S.
    pub eta: StepSize,
    /// The weight of the last move in the next, from 0 to less than 1.
    pub momentum: f64,
    /// The share of the data rounds, counted from the last, whose points are averaged; 0 for the last one alone.
    pub average: f64,
    /// Whether R is treated by its exact prox; else by its subgradient, with the loss.
    pub prox: bool,
    /// How released points are mixed.
    pub mixing: Mixing,
}

/// How released points are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixing {
    /// Chebyshev's polynomials of the Metropolis weights: the most that so many rounds can do on such a graph.
    Chebyshev,
    /// The Metropolis weights, again and again.
    Metropolis,
}

/// Where in the course of a run a round is.
struct Place {
    /// s, the data round at or before it.
    data_round: u32,
    /// Rounds since then; 0 in the data round itself.
    since: u32,
}

/// A client's memory: all of it follows from released points.
struct Memory<'a> {
    /// The v_k before the last.
    before: &'a mut [f64],
    /// x_k, at which the last gradient was taken.
    point: &'a mut [f64],
    /// The sum of the x_k that will be averaged.
    sum: &'a mut [f64],
}

impl<'a> Memory<'a> {
    fn of(memory: &'a mut [f64]) -> Self {
        let (before, rest) = memory.split_at_mut(memory.len() / 3);
        let (point, sum) = rest.split_at_mut(before.len());
        Self { before, point, sum }
    }
}

impl FreeRounds {
    const MIXINGS: [(&'static str, Mixing); 2] = [("chebyshev", Mixing::Chebyshev), ("metropolis", Mixing::Metropolis)];

    /// Reads all parameters.
    pub fn read(reader: &mut Reader) -> Result<Self, StudyError> {
        let below_one = |v: f64| (0.0..1.0).contains(&v);
        Ok(Self {
            data_rounds: reader.integer_required("data_rounds", 1, crate::study::MOST_ROUNDS)? as u32,
            eta: StepSize::read(reader)?,
            momentum: reader.number("momentum", "write a number from 0 to below 1", below_one)?.unwrap_or(0.0),
            average: read_average(reader, 0.5)?,
            prox: reader.flag_or("prox", true)?,
            mixing: reader.choice_or("mixing", &Self::MIXINGS, Mixing::Chebyshev)?,
        })
    }

    /// The round of data round s: 1 + floor((s - 1) T/S).
    fn round_of(&self, data_round: u32, rounds: u32) -> u32 {
        1 + (u64::from(data_round - 1) * u64::from(rounds) / u64::from(self.data_rounds)) as u32
    }

    fn place(&self, round: u32, rounds: u32) -> Place {
        let data_round = (u64::from(round) * u64::from(self.data_rounds)).div_ceil(u64::from(rounds)) as u32;
        Place { data_round, since: round - self.round_of(data_round, rounds) }
    }

    /// How many x_k are averaged.
    fn averaged(&self) -> u32 {
        ((self.average * f64::from(self.data_rounds)).ceil() as u32).max(1)
    }

    /// All of round n but the gradient. Leaves x_k in memory if it is a data round.
    fn public_part(&self, view: &View, memory: &mut [f64], scratch: &mut Scratch, out: &mut [f64]) {
        let Memory { before, point, sum } = Memory::of(memory);
        let place = self.place(view.round, view.rounds);
        if view.round > 1 {
            let mixed = self.place(view.round - 1, view.rounds);
            self.mix_once(view, mixed.since + 1, before, scratch, out);
            before.copy_from_slice(view.own);
            if place.since == 0 || view.round == view.rounds {
                self.finish_epoch(view, mixed.data_round, sum, out);
            }
        } else {
            out.copy_from_slice(view.own);
        }
        if place.since == 0 {
            for (out, point) in out.iter_mut().zip(point) {
                let last = std::mem::replace(point, *out);
                *out += self.momentum * (*out - last);
            }
        } else if view.round == view.rounds {
            let share = 1.0 / f64::from(self.averaged());
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out = *sum * share);
        }
    }

    /// Step `count` of an epoch's gossip.
    fn mix_once(&self, view: &View, count: u32, before: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        let gossip = match self.mixing {
            Mixing::Chebyshev => view.graph.gossip(),
            Mixing::Metropolis => Gossip::PLAIN,
        };
        scratch.vector.resize(out.len(), 0.0);
        view.neighbourhood_mean(&mut scratch.vector);
        let (mean, own, before_weight) = gossip.weights(count);
        for (((out, m), o), b) in out.iter_mut().zip(&scratch.vector).zip(view.own).zip(before) {
            *out = mean * m + own * o + before_weight * b;
        }
    }

    /// v_k becomes x_k, and joins the sum if it is among those that will be averaged.
    fn finish_epoch(&self, view: &View, data_round: u32, sum: &mut [f64], v: &mut [f64]) {
        if self.prox {
            view.problem.prox(self.eta.at(data_round, None), view.graph.clients(), v);
        }
        if data_round + self.averaged() > self.data_rounds {
            sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += *v);
        }
    }
}

impl Algorithm for FreeRounds {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn settings(&self) -> toml::Table {
        let mut table = toml::Table::new();
        let (mixing, _) = Self::MIXINGS.iter().find(|(_, m)| *m == self.mixing).expect("every mixing has a name");
        table.insert("data_rounds".into(), i64::from(self.data_rounds).into());
        self.eta.write(&mut table);
        table.insert("momentum".into(), self.momentum.into());
        table.insert("average".into(), self.average.into());
        table.insert("prox".into(), self.prox.into());
        table.insert("mixing".into(), (*mixing).into());
        table
    }

    fn refuses(&self, _: &Problem, _: usize, rounds: u32) -> Option<String> {
        (self.data_rounds >= rounds).then(|| {
            format!("data_rounds = {} must be less than rounds = {rounds}; change one of them", self.data_rounds)
        })
    }

    /// Step sizes here weigh the clients' gradients in the network's mean; with different ones another problem would be
    /// solved.
    fn takes_own_eta(&self) -> bool {
        false
    }

    fn touches_records(&self, round: u32, rounds: u32) -> bool {
        self.place(round, rounds).since == 0
    }

    fn memory(&self) -> usize {
        3
    }

    /// Delta_k = 2 eta(s) c1/M_k: the released gradient has sensitivity 2 c1/M_k, all else in w_k(n) is public.
    fn sensitivity(&self, facts: Facts, round: u32) -> Sensitivity {
        let eta = self.eta.at(self.place(round, facts.rounds).data_round, None);
        Sensitivity::of_clipped_mean(facts.clip, facts.records).scaled(eta)
    }

    fn step(
        &self,
        view: &View,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.public_part(view, memory, scratch, step.public);
        let point = &*Memory::of(memory).point;
        let eta = self.eta.at(self.place(view.round, view.rounds).data_round, None);
        view.loss_gradient(records, point, -eta, scratch, step.private);
        if !self.prox {
            view.problem.add_regularizer_subgradient(-eta, view.graph.clients(), point, step.public);
        }
        Ok(())
    }

    fn mix(&self, view: &View, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.public_part(view, memory, scratch, released);
    }
}
