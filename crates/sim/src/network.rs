//! All clients of one trial, or of several side by side, in flat arrays, and one round of them.

use std::borrow::Cow;
use std::collections::HashMap;

use rayon::prelude::*;
use undertone_core::algorithm::Run;
use undertone_core::client::{Protection, RoundError, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::privacy::{ClientBudget, Masks, Noise, RoundMasks};
use undertone_core::records::Scratch;
use undertone_core::study::Study;

use crate::aligned::Aligned;
use crate::data::{CHUNK, Population};
use crate::liars::Liars;
use crate::losses::LostClients;
use crate::prefetch::prefetch;

/// What a round reads and does not change.
pub struct Ground<'a> {
    pub population: &'a Population,
    pub run: Run<'a>,
    pub rules: Rules<'a>,
    /// Clients that differ from the rest.
    pub special: &'a HashMap<usize, Special>,
    /// The budget of all other clients, and where their noise comes from; none without privacy.
    pub privacy: Option<(&'a ClientBudget, &'a Noise)>,
    /// Where masks come from; none if noise is not masked.
    pub masks: Option<&'a Masks>,
    /// Who is lost in the middle, if anybody is.
    pub losses: Option<&'a LostClients>,
    pub liars: Option<&'a Liars>,
    /// The first trial.
    pub trial: u32,
    /// How many trials there are side by side, on the same records: number p of trial t of a client is at p `trials` + t.
    pub trials: usize,
}

/// What is special about one client.
#[derive(Debug, Clone)]
pub struct Special {
    /// Its own eta(1).
    pub eta: Option<f64>,
    /// What it may spend; none without privacy.
    pub budget: Option<ClientBudget>,
}

/// A client that could not finish a round.
pub struct Stuck {
    pub client: usize,
    pub reason: RoundError,
}

/// All clients' vectors, one after the other.
pub struct ClientVectors {
    /// w~(n-1), and after the round w~(n).
    pub released: Aligned,
    /// w~(n) while it is being computed.
    next: Aligned,
    /// The algorithm's memory, client by client.
    memory: Aligned,
    /// How many vectors of it a client has; at least one, so that they can be split among the tasks.
    width: usize,
    /// How many trials there are side by side.
    trials: usize,
    /// w(n), up to date after measured rounds.
    pub w: Aligned,
    /// The running average of w~.
    pub average: Aligned,
}

/// What all clients have after a round of one trial, one after the other.
pub struct Points<'a> {
    /// w_k(n), if the round was measured.
    pub w: Cow<'a, [f64]>,
    /// w~_k(n).
    pub released: Cow<'a, [f64]>,
    /// Running averages.
    pub average: Cow<'a, [f64]>,
}

/// The clients that one task computes.
struct Part<'a> {
    first: usize,
    next: &'a mut [f64],
    memory: &'a mut [f64],
    w: &'a mut [f64],
    average: &'a mut [f64],
}

impl ClientVectors {
    /// All zero, as Algorithm 1 begins.
    pub fn new(population: &Population, study: &Study, graph: &Graph, trials: usize) -> Self {
        let size = population.clients() * population.features() * trials;
        let zeros = || Aligned::zeros(size);
        let width = study.memory(graph).max(1);
        let memory = Aligned::zeros(size * width);
        Self { released: zeros(), next: zeros(), memory, width, trials, w: zeros(), average: zeros() }
    }

    /// Round n of all clients. `measured` tells whether w(n) will be measured.
    pub fn round(&mut self, ground: &Ground, round: u32, measured: bool) -> Result<(), Stuck> {
        if ground.losses.is_some_and(|losses| round == losses.after + 1) {
            self.drop_lost(ground, round - 1);
        }
        let released: &[f64] = &self.released;
        let size = CHUNK * ground.population.features() * self.trials;
        let touches = ground.rules.algorithm.touches_records(round, ground.run.rounds);
        let drawn = ground
            .masks
            .filter(|_| touches)
            .map(|masks| masks.round(ground.population.clients(), ground.trial, round, ground.population.features()));
        let masks = drawn.as_ref();
        if released.len() <= size {
            let ClientVectors { next, memory, w, average, .. } = self;
            ground.compute(Part { first: 0, next, memory, w, average }, released, round, measured, masks)?;
        } else {
            self.next
                .par_chunks_mut(size)
                .zip(self.memory.par_chunks_mut(size * self.width))
                .zip(self.w.par_chunks_mut(size))
                .zip(self.average.par_chunks_mut(size))
                .enumerate()
                .try_for_each(|(index, (((next, memory), w), average))| {
                    let part = Part { first: index * CHUNK, next, memory, w, average };
                    ground.compute(part, released, round, measured, masks)
                })?;
        }
        if let Some(liars) = ground.liars {
            liars.tell(&mut self.next, ground.population.features(), round);
        }
        std::mem::swap(&mut self.released, &mut self.next);
        Ok(())
    }

    /// The points of one of the trials.
    pub fn points(&self, trial: usize) -> Points<'_> {
        fn pick(all: &[f64], trial: usize, trials: usize) -> Cow<'_, [f64]> {
            match trials {
                1 => Cow::Borrowed(all),
                _ => all.iter().skip(trial).step_by(trials).copied().collect(),
            }
        }
        let [w, released, average] = [&self.w, &self.released, &self.average].map(|all| pick(all, trial, self.trials));
        Points { w, released, average }
    }

    /// The same, and nothing else is kept.
    pub fn into_points(self, trial: usize) -> Points<'static> {
        if self.trials > 1 {
            let Points { w, released, average } = self.points(trial);
            let own = |points: Cow<'_, [f64]>| Cow::Owned(points.into_owned());
            return Points { w: own(w), released: own(released), average: own(average) };
        }
        let Self { w, released, average, .. } = self;
        Points { w: w.into_vec().into(), released: released.into_vec().into(), average: average.into_vec().into() }
    }

    /// Takes the edges of those that are lost after `round` rounds out of the duals of the others, as peers do: gamma_k is the weight
    /// times sum_l sum_(m<n) (w~_k(m) - w~_l(m)) over those that are left, and the running averages hold the sums.
    fn drop_lost(&mut self, ground: &Ground, round: u32) {
        let weight = ground.rules.algorithm.dual_weight();
        let Some(losses) = ground.losses.filter(|_| weight > 0.0) else { return };
        let (features, size) = (ground.population.features(), self.width);
        let sum =
            |k: usize, p: usize| f64::from(round) * self.average[k * features + p] - self.released[k * features + p];
        for client in 0..ground.population.clients() {
            for p in 0..features {
                let apart = |&l: &u32| sum(client, p) - sum(l as usize, p);
                let gamma: f64 = losses.neighbours(client).iter().map(apart).sum();
                self.memory[client * features * size + p] = weight * gamma;
            }
        }
    }
}

/// Networks whose points take fewer numbers than this stay in the cache anyway.
const CACHED: usize = 1 << 17;

impl Ground<'_> {
    /// Round n of some clients: each computes and releases, and its running average takes in what it released.
    fn compute(
        &self,
        part: Part,
        released: &[f64],
        number: u32,
        measured: bool,
        masks: Option<&RoundMasks>,
    ) -> Result<(), Stuck> {
        let losses = self.losses.filter(|losses| number > losses.after);
        let features = self.population.features() * self.trials;
        let memory = part.memory.len() / part.next.len();
        let mut scratch = Scratch::default();
        let mut unseen = vec![0.0; features];
        let end = part.first + part.next.len() / features;
        for client in part.first..end {
            if released.len() > CACHED {
                self.prefetch(released, client, end);
            }
            let at = (client - part.first) * features;
            let special = if self.special.is_empty() { None } else { self.special.get(&client) };
            let own = &released[client * features..][..features];
            if losses.is_some_and(|losses| losses.is_lost(client)) {
                part.next[at..][..features].copy_from_slice(own);
                continue;
            }
            let mut round = self.run.round(number, client, special.and_then(|s| s.eta)).with_points(own, released);
            round.trials = self.trials;
            if let Some(losses) = losses {
                round = round.left_with(losses.neighbours(client));
            }
            let protection = match self.privacy {
                None => Protection::Off,
                Some((common, noise)) => {
                    let budget = special.and_then(|s| s.budget.as_ref()).unwrap_or(common);
                    Protection::On { budget, noise, masks, trial: self.trial }
                }
            };
            let state = State {
                memory: &mut part.memory[at * memory..][..features * memory],
                // w_k(n) is kept only to be measured.
                w: if measured { &mut part.w[at..][..features] } else { &mut unseen },
                released: &mut part.next[at..][..features],
            };
            let release = self
                .rules
                .round(&round, self.population.records(client), protection, state, &mut scratch)
                .map_err(|reason| Stuck { client, reason })?;
            release.add_to_mean(&mut part.average[at..][..features]);
        }
        Ok(())
    }

    /// Starts to fetch what the clients after `client` will need: records of the next, and points of the neighbours
    /// of one further on, which are scattered in memory.
    fn prefetch(&self, released: &[f64], client: usize, end: usize) {
        const AHEAD: usize = 4;
        if client + 1 < end {
            self.population.prefetch(client + 1);
        }
        if client + AHEAD < end {
            let features = self.population.features() * self.trials;
            for &l in self.run.graph.neighbours(client + AHEAD) {
                prefetch(&released[l as usize * features..][..features]);
            }
        }
    }
}
