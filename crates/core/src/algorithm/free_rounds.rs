//! Free rounds: S of the T rounds are data rounds, which read the records; the others mix what was released.
//!
//! The loss gradient is the only private part of a message, so a round without one costs nothing. The S gradients get
//! the whole budget, and between two of them the clients average their noise. With x_k the public point of an epoch,
//!
//! ```text
//! data round s, every T/S rounds:  v_k = x_k + momentum (x_k - x_k of the previous data round) - eta(s) (g_k(x_k) + noise)
//! every mixing round:              v_k = one more step of Chebyshev-accelerated gossip, from v_k, v_l and the previous v_k
//! next data round, or the end:     x_k = prox of eta(s) (lambda/K) R at the v_k of one more such step
//! last round:                      releases the mean of the latest x_k, one from each of the last `average` S epochs
//! ```
//!
//! x_k, momentum, gossip, prox and mean are functions of released points. A client's memory consists of these.

use std::sync::Arc;

use super::step_size::average_knob;
use super::{Algorithm, Entry, Round, Step, StepError, StepSize};
use crate::graph::Gossip;
use crate::knob::{Domain, Knob, Scale, Settings, Value};
use crate::problem::Problem;
use crate::records::{Records, Scratch};
use crate::rule;

const MIXINGS: [(&str, Mixing); 2] = [("chebyshev", Mixing::Chebyshev), ("metropolis", Mixing::Metropolis)];

/// The registry line.
pub const ENTRIES: &[Entry] = &[Entry {
    name: "free-rounds",
    knobs: &[
        Knob {
            name: "data_rounds",
            domain: Domain::Count(10_000_000),
            default: None,
            // In the 200 rounds of the paper; `Scale::within` fits it to others.
            search: Some(Scale::Count(1.0, 199.0)),
        },
        // Few steps may be larger than many.
        StepSize::eta_knob(Scale::Log(0.01, 30.0)),
        StepSize::decay_knob(&["constant", "sqrt", "inverse"]),
        Knob {
            name: "momentum",
            domain: Domain::Number(rule::BELOW_ONE),
            default: Some(Value::Number(0.0)),
            search: Some(Scale::Linear(0.0, 0.9)),
        },
        average_knob(0.5),
        Knob { name: "prox", domain: Domain::Flag, default: Some(Value::Flag(true)), search: None },
        Knob {
            name: "mixing",
            domain: Domain::Words(&["chebyshev", "metropolis"]),
            default: Some(Value::Word("chebyshev")),
            search: None,
        },
    ],
    tau: Scale::BelowOne(1e-3, 0.5),
    bounds_liars: true,
    build: |settings| {
        Arc::new(FreeRounds {
            data_rounds: settings.count("data_rounds"),
            eta: StepSize::new(settings),
            momentum: settings.number("momentum"),
            average: settings.number("average"),
            prox: settings.flag("prox"),
            mixing: settings.word("mixing", &MIXINGS),
        })
    },
}];

/// Free rounds and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct FreeRounds {
    /// S, less than T.
    pub data_rounds: u32,
    /// eta(s), s = 1..=S.
    pub eta: StepSize,
    /// The weight of the last step in the next, from 0 to less than 1.
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
    /// Chebyshev's polynomials of the Metropolis weights: the fastest linear mixing for this number of rounds.
    Chebyshev,
    /// The Metropolis weights in every round.
    Metropolis,
}

/// The position of a round in a run.
struct Epoch {
    /// s, the data round at or before it.
    data_round: u32,
    /// Rounds since then; 0 in the data round itself.
    since: u32,
}

/// A client's memory: all of it follows from released points.
struct Remembered<'a> {
    /// The previous v_k.
    before: &'a mut [f64],
    /// x_k, at which the last gradient was taken.
    point: &'a mut [f64],
    /// The sum of the x_k that will be averaged.
    sum: &'a mut [f64],
    /// What each edge has carried, in a robust run.
    flows: &'a mut [f64],
}

impl<'a> Remembered<'a> {
    fn of(memory: &'a mut [f64], features: usize) -> Self {
        let (before, rest) = memory.split_at_mut(features);
        let (point, rest) = rest.split_at_mut(features);
        let (sum, flows) = rest.split_at_mut(features);
        Self { before, point, sum, flows }
    }
}

impl FreeRounds {
    /// The round of data round s: 1 + floor((s - 1) T/S).
    fn round_of(&self, data_round: u32, rounds: u32) -> u32 {
        1 + (u64::from(data_round - 1) * u64::from(rounds) / u64::from(self.data_rounds)) as u32
    }

    fn epoch(&self, round: u32, rounds: u32) -> Epoch {
        let data_round = (u64::from(round) * u64::from(self.data_rounds)).div_ceil(u64::from(rounds)) as u32;
        Epoch { data_round, since: round - self.round_of(data_round, rounds) }
    }

    /// How many x_k are averaged.
    fn averaged(&self) -> u32 {
        ((self.average * f64::from(self.data_rounds)).ceil() as u32).max(1)
    }

    /// All of round n except the gradient. In a data round, stores x_k in memory.
    fn public_part(&self, round: &Round, memory: &mut [f64], scratch: &mut Scratch, out: &mut [f64]) {
        let Remembered { before, point, sum, flows } = Remembered::of(memory, out.len());
        let epoch = self.epoch(round.number, round.run.rounds);
        if round.number > 1 {
            let mixed = self.epoch(round.number - 1, round.run.rounds);
            match round.run.robust {
                // Without acceleration, which would count what an edge carries several times.
                Some(robust) => round.bounded_mean(robust, flows, out),
                None => self.mix_once(round, mixed.since + 1, before, scratch, out),
            }
            before.copy_from_slice(round.own);
            if epoch.since == 0 || round.number == round.run.rounds {
                self.finish_epoch(round, mixed.data_round, sum, out);
            }
        } else {
            out.copy_from_slice(round.own);
        }
        if epoch.since == 0 {
            for (out, point) in out.iter_mut().zip(point) {
                let last = std::mem::replace(point, *out);
                *out += self.momentum * (*out - last);
            }
        } else if round.number == round.run.rounds {
            let share = 1.0 / f64::from(self.averaged());
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out = *sum * share);
        }
    }

    /// Step `count` of an epoch's gossip.
    fn mix_once(&self, round: &Round, count: u32, before: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        let gossip = match self.mixing {
            Mixing::Chebyshev => round.run.graph.gossip(),
            Mixing::Metropolis => Gossip::PLAIN,
        };
        scratch.vector.resize(out.len(), 0.0);
        round.neighbourhood_mean(&mut scratch.vector);
        let (mean, own, before_weight) = gossip.weights(count);
        for (((out, m), o), b) in out.iter_mut().zip(&scratch.vector).zip(round.own).zip(before) {
            *out = mean * m + own * o + before_weight * b;
        }
    }

    /// v_k becomes x_k, and is added to the sum if it will be averaged.
    fn finish_epoch(&self, round: &Round, data_round: u32, sum: &mut [f64], v: &mut [f64]) {
        if self.prox {
            round.prox(self.eta.at(data_round, None), v);
        }
        if data_round + self.averaged() > self.data_rounds {
            sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += *v);
        }
    }
}

impl Algorithm for FreeRounds {
    fn name(&self) -> &'static str {
        ENTRIES[0].name
    }

    fn settings(&self) -> Settings {
        let (mixing, _) = MIXINGS.iter().find(|(_, m)| *m == self.mixing).expect("every mixing has a word");
        let settings = Settings::new().with("data_rounds", Value::Count(self.data_rounds));
        self.eta
            .add_to(settings)
            .with("momentum", Value::Number(self.momentum))
            .with("average", Value::Number(self.average))
            .with("prox", Value::Flag(self.prox))
            .with("mixing", Value::Word(mixing))
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
        self.epoch(round, rounds).since == 0
    }

    fn memory(&self) -> usize {
        3
    }

    /// -eta(s), so that Delta_k = 2 eta(s) c1/M_k: the released gradient has sensitivity 2 c1/M_k, all else in w_k(n) is public.
    fn gain(&self, round: &Round) -> Option<f64> {
        Some(-self.eta.at(self.epoch(round.number, round.run.rounds).data_round, None))
    }

    fn amplification(&self) -> f64 {
        1.0 / (1.0 - self.momentum)
    }

    fn step(
        &self,
        round: &Round,
        records: Records,
        memory: &mut [f64],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<(), StepError> {
        self.public_part(round, memory, scratch, step.public);
        let point = &*Remembered::of(memory, round.own.len()).point;
        round.loss_gradient(records, point, step.scale, scratch, step.private);
        if !self.prox {
            let eta = self.eta.at(self.epoch(round.number, round.run.rounds).data_round, None);
            round.add_regularizer_at(point, -eta, step.public);
        }
        Ok(())
    }

    fn mix(&self, round: &Round, memory: &mut [f64], scratch: &mut Scratch, released: &mut [f64]) {
        self.public_part(round, memory, scratch, released);
    }
}
