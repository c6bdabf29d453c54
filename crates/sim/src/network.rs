//! All clients of one trial, laid out flat, and a round of them.

use std::collections::HashMap;

use rayon::prelude::*;
use undertone_core::algorithm::{Algorithm, View};
use undertone_core::client::{RoundError, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::problem::Problem;
use undertone_core::records::Scratch;

use crate::aligned::Aligned;
use crate::data::{CHUNK, Population};
use crate::prefetch::prefetch;

/// What a round reads and does not change.
pub struct World<'a> {
    pub population: &'a Population,
    pub graph: &'a Graph,
    pub problem: &'a Problem,
    pub special: &'a HashMap<usize, Special>,
    pub rules: Rules<'a>,
    pub rounds: u32,
    pub trial: u32,
}

/// What is special about one client.
#[derive(Debug, Clone, Copy)]
pub struct Special {
    /// Its own eta(1).
    pub eta: Option<f64>,
    /// By what its phi(n) differs from the others'.
    pub budget_factor: f64,
}

const ORDINARY: Special = Special { eta: None, budget_factor: 1.0 };

/// A client that could not finish a round.
pub struct Stuck {
    pub client: usize,
    pub reason: RoundError,
}

/// All clients' vectors, one after the other.
pub struct Network {
    /// w~(n-1), and after the round w~(n).
    pub released: Aligned,
    /// w~(n) while it is being computed.
    next: Aligned,
    /// What the algorithm remembers, client by client.
    memory: Aligned,
    /// w(n), up to date after measured rounds.
    pub w: Aligned,
    /// The running average of w~.
    pub average: Aligned,
}

/// Vectors kept per client; at least one, so that they can be dealt out to the tasks.
fn memory(algorithm: &dyn Algorithm) -> usize {
    algorithm.memory().max(1)
}

/// The clients that one task computes.
struct Part<'a> {
    first: usize,
    next: &'a mut [f64],
    memory: &'a mut [f64],
    w: &'a mut [f64],
    average: &'a mut [f64],
}

impl Network {
    /// All zero, as Algorithm 1 begins.
    pub fn new(population: &Population, algorithm: &dyn Algorithm) -> Self {
        let size = population.clients() * population.features();
        let zeros = || Aligned::zeros(size);
        let memory = Aligned::zeros(size * memory(algorithm));
        Self { released: zeros(), next: zeros(), memory, w: zeros(), average: zeros() }
    }

    /// Round n of all clients. `measured` says whether anybody will look at w(n).
    pub fn round(&mut self, world: &World, round: u32, measured: bool) -> Result<(), Stuck> {
        let released: &[f64] = &self.released;
        let size = CHUNK * world.population.features();
        if released.len() <= size {
            let Network { next, memory, w, average, .. } = self;
            world.compute(Part { first: 0, next, memory, w, average }, released, round, measured)?;
        } else {
            self.next
                .par_chunks_mut(size)
                .zip(self.memory.par_chunks_mut(size * memory(world.rules.algorithm)))
                .zip(self.w.par_chunks_mut(size))
                .zip(self.average.par_chunks_mut(size))
                .enumerate()
                .try_for_each(|(index, (((next, memory), w), average))| {
                    let part = Part { first: index * CHUNK, next, memory, w, average };
                    world.compute(part, released, round, measured)
                })?;
        }
        std::mem::swap(&mut self.released, &mut self.next);
        Ok(())
    }
}

/// Networks whose points take fewer numbers than this stay in the cache by themselves.
const CACHED: usize = 1 << 17;

impl World<'_> {
    /// Round n of some clients: each computes and releases, and its running average takes in what it released.
    fn compute(&self, part: Part, released: &[f64], round: u32, measured: bool) -> Result<(), Stuck> {
        let features = self.population.features();
        let memory = memory(self.rules.algorithm);
        let share = 1.0 / f64::from(round);
        let mut scratch = Scratch::default();
        let mut unseen = vec![0.0; features];
        let end = part.first + part.next.len() / features;
        for client in part.first..end {
            if released.len() > CACHED {
                self.prefetch(released, client, end);
            }
            let at = (client - part.first) * features;
            let special = if self.special.is_empty() { None } else { self.special.get(&client) };
            let special = special.unwrap_or(&ORDINARY);
            let view = View {
                round,
                rounds: self.rounds,
                client,
                graph: self.graph,
                problem: self.problem,
                eta: special.eta,
                own: &released[client * features..][..features],
                points: released,
                slots: self.graph.neighbours(client),
                ids: self.graph.neighbours(client),
            };
            let state = State {
                memory: &mut part.memory[at * memory..][..features * memory],
                // w_k(n) leaves the client only to be measured.
                w: if measured { &mut part.w[at..][..features] } else { &mut unseen },
                released: &mut part.next[at..][..features],
            };
            self.rules
                .round(&view, self.population.records(client), self.trial, special.budget_factor, state, &mut scratch)
                .map_err(|reason| Stuck { client, reason })?;
            for (average, released) in part.average[at..][..features].iter_mut().zip(&part.next[at..]) {
                *average += (released - *average) * share;
            }
        }
        Ok(())
    }

    /// Starts to fetch what the clients after `client` will need: records of the next, and points of the neighbours
    /// of one further on, which lie scattered over memory.
    fn prefetch(&self, released: &[f64], client: usize, end: usize) {
        const AHEAD: usize = 4;
        if client + 1 < end {
            self.population.prefetch(client + 1);
        }
        if client + AHEAD < end {
            let features = self.population.features();
            for &l in self.graph.neighbours(client + AHEAD) {
                prefetch(&released[l as usize * features..][..features]);
            }
        }
    }
}
