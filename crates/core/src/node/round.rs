//! One round of a node: compute, record, and only then have something to send.

use std::cmp::Ordering;

use super::{News, Node, Stop};
use crate::algorithm::View;
use crate::client::{Protection, RoundError, Rules, State};
use crate::ledger::{Disk, Edge, Kind, RoundRecord};
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

impl<D: Disk> Node<D> {
    /// Round n+1: mixed if the algorithm plans it so; else fresh if the ledger allows it; else made without the records.
    pub(super) fn step(&mut self) -> Result<(), Stop> {
        let round = self.round + 1;
        let features = self.limits.features;
        let Work { points, slots, ids, scratch, w } = &mut self.work;
        points.clear();
        ids.clear();
        let mut squares = 0.0;
        for neighbour in self.neighbours.iter_mut().filter(|n| !n.dropped) {
            ids.push(neighbour.id);
            let from = points.len();
            points.extend_from_slice(neighbour.point(self.round));
            for (own, point) in self.own.iter().zip(&points[from..]) {
                squares += (own - point) * (own - point);
            }
            for ((sum, own), point) in neighbour.disagreement.iter_mut().zip(&self.own).zip(&points[from..]) {
                *sum += own - point;
            }
        }
        slots.clear();
        slots.extend(0..(points.len() / features) as u32);
        self.consensus = (squares / slots.len().max(1) as f64).sqrt();
        let client = self.setup.study.clients.get(&*self.setup.roster.names.get(self.setup.me));
        let view = View {
            round,
            rounds: self.limits.rounds,
            client: self.setup.me,
            graph: &self.setup.roster.graph,
            problem: &self.problem,
            eta: client.and_then(|c| c.eta),
            own: &self.own,
            points,
            slots,
            ids,
        };
        let cost = |n| self.costs.as_ref().map_or(0.0, |c| c.rho(n));
        let (rho, next_rho) = (cost(round), cost(round + 1));
        let mut memory = self.memory.clone();
        let mut released = self.own.clone();
        let kind = match self.setup.study.algorithm.touches_records(round, self.limits.rounds) {
            false => Kind::Mixed,
            true if self.ledger.allows(rho) => Kind::Fresh,
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
        let edges = self.neighbours.iter().filter(|n| !n.dropped).map(|n| Edge {
            neighbour: n.id,
            receipt: *n.receipt_of(self.round),
            disagreement: n.disagreement.clone(),
        });
        let id = self.setup.roster.ids[self.setup.me];
        let record = RoundRecord {
            run: self.ledger.run_index(),
            round,
            kind,
            rho: if kind == Kind::Fresh { rho } else { 0.0 },
            next_rho,
            prior: self.frames.last().map_or_else(|| self.chain.start(&id), |f| f.receipt().head),
            released: released.clone(),
            memory: memory.clone(),
            edges: edges.collect(),
        };
        let sealed = self.ledger.record(record)?;
        (self.round, self.own, self.memory) = (round, released, memory);
        if self.frames.len() == 2 {
            self.frames.remove(0);
        }
        self.frames.push(sealed);
        self.news.push(if kind == Kind::Withheld { News::Withheld(round) } else { News::Round(round) });
        self.collect_own_final();
        Ok(())
    }
}
