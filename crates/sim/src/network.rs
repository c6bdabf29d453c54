//! All clients of one trial, or of several side by side, in flat arrays, and one round of them.

use std::borrow::Cow;
use std::collections::HashMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undertone_core::algorithm::Run;
use undertone_core::client::{Protection, RoundError, Rules, State};
use undertone_core::privacy::{ClientBudget, Masks, Noise, RoundMasks};
use undertone_core::records::Scratch;
use undertone_core::study::Study;

use crate::aligned::Aligned;
use crate::data::{CHUNK, Population};
use crate::liars::Liars;
use crate::losses::LostClients;
use crate::prefetch::prefetch;
use crate::ranks::{Ranks, Received, Sent, Share};

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
    /// Which clients are computed here, if not all are.
    pub share: Option<&'a Share>,
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

/// The vectors of all clients that are computed here, one after the other.
pub struct ClientVectors {
    /// w~(n-1), and after the round w~(n); those of neighbours elsewhere follow.
    released: Aligned,
    /// w~(n) while it is being computed.
    next: Aligned,
    /// The algorithm's memory, client by client.
    memory: Aligned,
    /// How many vectors of it a client has; at least one, so that they can be split among the tasks.
    width: usize,
    /// How many trials there are side by side.
    trials: usize,
    /// P times the number of trials.
    size: usize,
    /// w(n), up to date after measured rounds. Empty where only the last round is measured: then it takes the place of the first vector of memory, which nobody needs any more.
    w: Aligned,
    /// The running average of w~.
    average: Aligned,
}

/// What all clients here have after a round of one trial, one after the other.
#[derive(Serialize, Deserialize)]
pub struct Points<'a> {
    /// w_k(n), if the round was measured.
    pub w: Cow<'a, [f64]>,
    /// w~_k(n).
    pub released: Cow<'a, [f64]>,
    /// Running averages.
    pub average: Cow<'a, [f64]>,
}

/// Clients that are computed, from place `first` on.
struct Part<'a> {
    first: usize,
    next: &'a mut [f64],
    memory: &'a mut [f64],
    w: &'a mut [f64],
    average: &'a mut [f64],
}

impl<'a> Part<'a> {
    /// The first clients, and the others. Each has so many numbers in a vector, and so many vectors of memory.
    fn split_at(self, clients: usize, size: usize, width: usize) -> (Part<'a>, Part<'a>) {
        let (next, next_after) = self.next.split_at_mut(clients * size);
        let (memory, memory_after) = self.memory.split_at_mut(clients * size * width);
        let (w, w_after) = self.w.split_at_mut((clients * size).min(self.w.len()));
        let (average, average_after) = self.average.split_at_mut(clients * size);
        let after = Part {
            first: self.first + clients,
            next: next_after,
            memory: memory_after,
            w: w_after,
            average: average_after,
        };
        (Part { first: self.first, next, memory, w, average }, after)
    }
}

/// What is the same for all clients in a round.
#[derive(Clone, Copy)]
struct Now<'a> {
    round: u32,
    /// Whether w(n) will be measured.
    measured: bool,
    masks: Option<&'a RoundMasks>,
    released: &'a [f64],
    /// Vectors of memory of a client.
    width: usize,
}

impl ClientVectors {
    /// All zero, as Algorithm 1 begins. `keeps_w` if rounds before the last are measured.
    pub fn new(ground: &Ground, study: &Study, keeps_w: bool) -> Self {
        let (population, trials) = (ground.population, ground.trials);
        let size = population.features() * trials;
        let own = population.places() * size;
        let all = own + ground.share.map_or(0, Share::copies) * size;
        let width = study.memory(ground.run.graph).max(1);
        let [released, next] = [all, all].map(Aligned::zeros);
        let [memory, w, average] = [own * width, if keeps_w { own } else { 0 }, own].map(Aligned::zeros);
        Self { released, next, memory, width, trials, size, w, average }
    }

    /// Round n of all clients. `measured` tells whether w(n) will be measured.
    ///
    /// Where several ranks share a run, a client that is stuck does not keep the others from exchanging points: they learn of it when all agree.
    pub fn round(&mut self, ground: &Ground, ranks: &dyn Ranks, round: u32, measured: bool) -> Result<(), Stuck> {
        if ground.losses.is_some_and(|losses| round == losses.after + 1) {
            self.drop_lost(ground, ranks, round - 1);
        }
        let features = ground.population.features();
        let touches = ground.rules.algorithm.touches_records(round, ground.run.rounds);
        let drawn = ground
            .masks
            .filter(|_| touches)
            .map(|masks| masks.round(ground.population.clients(), ground.trial, round, features));
        let now = Now { round, measured, masks: drawn.as_ref(), released: &self.released, width: self.width };
        let (next, copies) = self.next.split_at_mut(self.average.len());
        let all = Part { first: 0, next, memory: &mut self.memory, w: &mut self.w, average: &mut self.average };
        let size = features * self.trials;
        let done = match (ground.share, ground.liars) {
            (None, None) => ground.compute_all(all, now),
            (Some(share), None) => {
                let (boundary, inner) = all.split_at(share.boundary(), size, self.width);
                let Part { first, next, memory, w, average } = boundary;
                let first = ground.compute_all(Part { first, next: &mut *next, memory, w, average }, now);
                let (mut inner, mut second) = (Some(inner), Ok(()));
                exchange(ranks, share, size, next, copies, &mut || {
                    second = inner.take().map_or(Ok(()), |inner| ground.compute_all(inner, now));
                });
                first.and(second)
            }
            (share, Some(liars)) => {
                let Part { first, next, memory, w, average } = all;
                let done = ground.compute_all(Part { first, next: &mut *next, memory, w, average }, now);
                liars.tell(next, ground.population, ranks, round);
                if let Some(share) = share {
                    exchange(ranks, share, size, next, copies, &mut || {});
                }
                done
            }
        };
        std::mem::swap(&mut self.released, &mut self.next);
        done
    }

    /// Bytes that the vectors of a client take, as [`ClientVectors::pack`] writes them.
    pub fn packed(&self, ground: &Ground) -> usize {
        ground.population.features() * self.trials * (2 + self.width) * size_of::<f64>()
    }

    /// Appends all that a client carries from round to round.
    pub fn pack(&self, ground: &Ground, place: usize, bytes: &mut Vec<u8>) {
        let size = ground.population.features() * self.trials;
        let vectors = [&self.released[place * size..][..size], &self.average[place * size..][..size]];
        let memory = &self.memory[place * size * self.width..][..size * self.width];
        vectors.into_iter().chain([memory]).flatten().for_each(|number| bytes.extend(number.to_le_bytes()));
    }

    /// Takes up what [`ClientVectors::pack`] wrote.
    pub fn unpack(&mut self, ground: &Ground, place: usize, bytes: &[u8]) {
        let size = ground.population.features() * self.trials;
        let mut numbers = bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
        let mut next = |target: &mut [f64]| target.iter_mut().zip(&mut numbers).for_each(|(to, from)| *to = from);
        next(&mut self.released[place * size..][..size]);
        next(&mut self.average[place * size..][..size]);
        next(&mut self.memory[place * size * self.width..][..size * self.width]);
    }

    /// Copies the points of neighbours elsewhere, after [`ClientVectors::unpack`].
    pub fn fetch(&mut self, ground: &Ground, ranks: &dyn Ranks) {
        let Some(share) = ground.share else { return };
        let (own, copies) = self.released.split_at_mut(self.average.len());
        exchange(ranks, share, ground.population.features() * self.trials, own, copies, &mut || {});
    }

    /// What all clients here released last, one after the other.
    pub fn released(&self) -> &[f64] {
        &self.released[..self.average.len()]
    }

    /// The points of one of the trials.
    pub fn points(&self, trial: usize) -> Points<'_> {
        fn pick(all: &[f64], trial: usize, trials: usize) -> Cow<'_, [f64]> {
            match trials {
                1 => Cow::Borrowed(all),
                _ => all.iter().skip(trial).step_by(trials).copied().collect(),
            }
        }
        let [released, average] = [self.released(), &self.average].map(|all| pick(all, trial, self.trials));
        let w = match (self.w.is_empty(), self.width) {
            (false, _) => pick(&self.w, trial, self.trials),
            (true, 1) => pick(&self.memory, trial, self.trials),
            (true, width) => {
                let clients = self.average.len() / self.size;
                let first = |client: usize| &self.memory[client * self.size * width..][..self.size];
                let picked = (0..clients).flat_map(|client| first(client).iter().skip(trial).step_by(self.trials));
                Cow::Owned(picked.copied().collect())
            }
        };
        Points { w, released, average }
    }

    /// The same, and nothing else is kept.
    pub fn into_points(self, trial: usize) -> Points<'static> {
        if self.trials > 1 || (self.w.is_empty() && self.width > 1) {
            let Points { w, released, average } = self.points(trial);
            let own = |points: Cow<'_, [f64]>| Cow::Owned(points.into_owned());
            return Points { w: own(w), released: own(released), average: own(average) };
        }
        let Self { w, memory, released, average, .. } = self;
        let w = if w.is_empty() { memory } else { w };
        let (mut released, own) = (released.into_vec(), average.len());
        released.truncate(own);
        Points { w: w.into_vec().into(), released: released.into(), average: average.into_vec().into() }
    }

    /// Takes the edges of those that are lost after `round` rounds out of the duals of the others, as peers do: gamma_k is the weight
    /// times sum_l sum_(m<n) (w~_k(m) - w~_l(m)) over those that are left, and the running averages hold the sums.
    fn drop_lost(&mut self, ground: &Ground, ranks: &dyn Ranks, round: u32) {
        let weight = ground.rules.algorithm.dual_weight();
        let Some(losses) = ground.losses.filter(|_| weight > 0.0) else { return };
        let (features, own) = (ground.population.features(), self.average.len());
        let mut sums: Vec<f64> = self.released.to_vec();
        for ((sum, average), released) in sums[..own].iter_mut().zip(&*self.average).zip(&*self.released) {
            *sum = f64::from(round) * average - released;
        }
        if let Some(share) = ground.share {
            let (own, copies) = sums.split_at_mut(own);
            exchange(ranks, share, features, own, copies, &mut || {});
        }
        for place in 0..ground.population.places() {
            let slots = ground.left(losses, place).1;
            for p in 0..features {
                let sum = |slot: usize| sums[slot * features + p];
                let gamma: f64 = slots.iter().map(|&slot| sum(place) - sum(slot as usize)).sum();
                self.memory[place * features * self.width + p] = weight * gamma;
            }
        }
    }
}

/// Sends points of own clients to the ranks that need them, and replaces the copies of others by what these send.
fn exchange(
    ranks: &dyn Ranks,
    share: &Share,
    size: usize,
    own: &[f64],
    mut copies: &mut [f64],
    meanwhile: &mut dyn FnMut(),
) {
    let point = |&place: &u32| own[place as usize * size..][..size].iter().copied();
    let packed: Vec<Vec<f64>> = share.partners().iter().map(|to| to.sent.iter().flat_map(point).collect()).collect();
    let sent: Vec<Sent> = share.partners().iter().zip(&packed).map(|(to, points)| (to.rank, &points[..])).collect();
    let mut received: Vec<Received> = Vec::with_capacity(sent.len());
    for from in share.partners() {
        let (points, rest) = copies.split_at_mut(from.received.len() * size);
        received.push((from.rank, points));
        copies = rest;
    }
    ranks.exchange(&sent, received, meanwhile);
}

/// Networks whose points take fewer numbers than this stay in the cache anyway.
const CACHED: usize = 1 << 17;

impl Ground<'_> {
    /// Round n of clients, on all threads if they are many.
    fn compute_all(&self, part: Part, now: Now) -> Result<(), Stuck> {
        let size = CHUNK * self.population.features() * self.trials;
        if part.next.len() <= size {
            return self.compute(part, now);
        }
        let (mut parts, mut rest) = (Vec::with_capacity(part.next.len().div_ceil(size)), part);
        while rest.next.len() > size {
            let (first, after) = rest.split_at(CHUNK, size / CHUNK, now.width);
            parts.push(first);
            rest = after;
        }
        parts.push(rest);
        parts.into_par_iter().try_for_each(|part| self.compute(part, now))
    }

    /// Round n of some clients: each computes and releases, and its running average takes in what it released.
    fn compute(&self, part: Part, now: Now) -> Result<(), Stuck> {
        let released = now.released;
        let losses = self.losses.filter(|losses| now.round > losses.after);
        let features = self.population.features() * self.trials;
        let mut scratch = Scratch::default();
        let mut unseen = vec![0.0; features];
        let places = part.first..part.first + part.next.len() / features;
        let ids: Vec<u32> = places.clone().map(|place| self.population.client(place) as u32).collect();
        for (i, place) in places.clone().enumerate() {
            if released.len() > CACHED {
                self.prefetch(released, place, places.end);
            }
            let (client, at) = (ids[i] as usize, i * features);
            let special = if self.special.is_empty() { None } else { self.special.get(&client) };
            let own = &released[place * features..][..features];
            if losses.is_some_and(|losses| losses.is_lost(client)) {
                part.next[at..][..features].copy_from_slice(own);
                continue;
            }
            let mut round = self.run.round(now.round, client, special.and_then(|s| s.eta)).with_points(own, released);
            (round.trials, round.upcoming) = (self.trials, &ids[i..]);
            if let Some(share) = self.share {
                round = round.with_slots(share.slots(place));
            }
            let left = losses.map(|losses| self.left(losses, place));
            if let Some((neighbours, slots)) = &left {
                round = round.left_with(neighbours, slots);
            }
            let protection = match self.privacy {
                None => Protection::Off,
                Some((common, noise)) => {
                    let budget = special.and_then(|s| s.budget.as_ref()).unwrap_or(common);
                    Protection::On { budget, noise, masks: now.masks, trial: self.trial }
                }
            };
            let state = State {
                memory: &mut part.memory[at * now.width..][..features * now.width],
                // w_k(n) is kept only to be measured.
                w: if now.measured && !part.w.is_empty() { &mut part.w[at..][..features] } else { &mut unseen },
                released: &mut part.next[at..][..features],
            };
            let release = self
                .rules
                .round(&round, self.population.records(place), protection, state, &mut scratch)
                .map_err(|reason| Stuck { client, reason })?;
            release.add_to_mean(&mut part.average[at..][..features]);
            if now.measured && part.w.is_empty() {
                part.memory[at * now.width..][..features].copy_from_slice(&unseen);
            }
        }
        Ok(())
    }

    /// Where the points of the neighbours of the client at a place are.
    fn slots(&self, place: usize) -> &[u32] {
        match self.share {
            Some(share) => share.slots(place),
            None => self.run.graph.neighbours(place),
        }
    }

    /// The neighbours that are left, and where their points are.
    fn left<'l>(&'l self, losses: &'l LostClients, place: usize) -> (&'l [u32], Cow<'l, [u32]>) {
        let client = self.population.client(place);
        let neighbours = losses.neighbours(client);
        let Some(share) = self.share else { return (neighbours, Cow::Borrowed(neighbours)) };
        let all = self.run.graph.neighbours(client).iter().zip(share.slots(place));
        (neighbours, all.filter(|(l, _)| !losses.is_lost(**l as usize)).map(|(_, slot)| *slot).collect())
    }

    /// Starts to fetch what the clients after the one at `place` will need: records of the next, and points of the neighbours
    /// of one further on, which are scattered in memory.
    fn prefetch(&self, released: &[f64], place: usize, end: usize) {
        const AHEAD: usize = 4;
        if place + 1 < end {
            self.population.prefetch(place + 1);
        }
        if place + AHEAD < end {
            let features = self.population.features() * self.trials;
            for &slot in self.slots(place + AHEAD) {
                prefetch(&released[slot as usize * features..][..features]);
            }
        }
    }
}
