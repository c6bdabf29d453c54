//! The computation of one round. It changes nothing: the caller records the result, and only then is there a frame.

use std::cmp::Ordering;

use super::Stop;
use super::context::Context;
use crate::algorithm::View;
use crate::client::{Protection, RoundError, Rules, State};
use crate::ledger::{Disk, Edge, Kind, Ledger, RoundRecord, Sealed};
use crate::message::LARGEST_VALUE;
use crate::privacy::NoiseError;
use crate::records::Scratch;

/// Memory that rounds use again.
#[derive(Default)]
pub(super) struct Work {
    points: Vec<f64>,
    slots: Vec<u32>,
    ids: Vec<u32>,
    scratch: Scratch,
    /// w_k(n): private. It is overwritten in every round and goes nowhere.
    w: Vec<f64>,
}

impl Work {
    /// Forgets the neighbours of the last round.
    pub fn clear(&mut self) {
        self.points.clear();
        self.ids.clear();
    }

    /// Adds a neighbour, by ascending id, with its release of the last round.
    pub fn push(&mut self, id: u32, point: &[f64]) {
        self.ids.push(id);
        self.points.extend_from_slice(point);
    }
}

/// What round n+1 is computed from, besides what the study fixes.
pub(super) struct Inputs<'a, D> {
    /// n.
    pub round: u32,
    /// w~_k(n).
    pub own: &'a [f64],
    pub memory: &'a [f64],
    pub frames: &'a [Sealed],
    pub ledger: &'a Ledger<D>,
    /// The live edges, for the record.
    pub edges: Vec<Edge>,
    /// Holds the releases of the neighbours.
    pub work: &'a mut Work,
}

impl Context {
    /// Round n+1: mixed if the algorithm plans it so; else fresh if the ledger allows it; else made without the records.
    pub fn compute<D: Disk>(&self, inputs: Inputs<D>) -> Result<RoundRecord, Stop> {
        let round = inputs.round + 1;
        let features = self.limits.features;
        let Work { points, slots, ids, scratch, w } = inputs.work;
        slots.clear();
        slots.extend(0..ids.len() as u32);
        let client = self.setup.study.clients.get(&*self.setup.roster.names.get(self.setup.me));
        let view = View {
            round,
            rounds: self.limits.rounds,
            client: self.setup.me,
            graph: &self.setup.roster.graph,
            problem: &self.problem,
            eta: client.and_then(|c| c.eta),
            own: inputs.own,
            points,
            slots,
            ids,
        };
        let cost = |n| self.costs.as_ref().map_or(0.0, |c| c.rho(n));
        let (rho, next_rho) = (cost(round), cost(round + 1));
        let mut memory = inputs.memory.to_vec();
        let mut released = inputs.own.to_vec();
        let kind = match self.setup.study.algorithm.touches_records(round, self.limits.rounds) {
            false => Kind::Mixed,
            true if inputs.ledger.allows(rho) => Kind::Fresh,
            true => Kind::Withheld,
        };
        let protection = match (&self.setup.study.privacy, &self.costs) {
            (Some(privacy), Some(costs)) => {
                Protection::On { clip: privacy.clip, schedule: &costs.schedule, noise: &self.setup.noise }
            }
            _ => Protection::Off,
        };
        let rules = Rules { algorithm: &*self.setup.study.algorithm, protection };
        w.resize(features, 0.0);
        let state = State { memory: &mut memory, w, released: &mut released };
        if kind == Kind::Withheld {
            rules.mix(&view, state, scratch);
        } else {
            let factor = self.costs.as_ref().map_or(1.0, |c| c.factor);
            let records = self.setup.data.records();
            rules.round(&view, records, 0, factor, state, scratch).map_err(|reason| Stop::Round { round, reason })?;
        }
        // What others would refuse is not sent.
        if let Some(value) = released.iter().find(|v| v.abs().partial_cmp(&LARGEST_VALUE) != Some(Ordering::Less)) {
            let reason = RoundError::Noise(NoiseError::Diverged(*value));
            return Err(Stop::Round { round, reason });
        }
        let id = self.setup.roster.ids[self.setup.me];
        Ok(RoundRecord {
            run: inputs.ledger.run_index(),
            round,
            kind,
            rho: if kind == Kind::Fresh { rho } else { 0.0 },
            next_rho,
            prior: inputs.frames.last().map_or_else(|| self.chain.start(&id), |f| f.receipt().head),
            released,
            memory,
            edges: inputs.edges,
        })
    }
}
