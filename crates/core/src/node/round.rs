//! One round: computed, recorded, and only then is there a frame.

use std::cmp::Ordering;

use super::Stop;
use super::context::Context;
use crate::algorithm::Run;
use crate::client::{Cost, Protection, RoundError, Rules, State};
use crate::ledger::{Carried, Disk, EdgeRecord, Ledger, Sealed};
use crate::message::Head;
use crate::records::Scratch;

/// Memory that rounds use again.
#[derive(Default)]
pub(super) struct Work {
    points: Vec<f64>,
    slots: Vec<u32>,
    ids: Vec<u32>,
    scratch: Scratch,
    /// w_k(n): private. It is overwritten in every round and never sent or stored.
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
    /// The chain of releases before this one; `None` before the first.
    pub prior: Option<Head>,
    pub ledger: &'a mut Ledger<D>,
    /// The live edges, for the record.
    pub edges: Vec<EdgeRecord>,
    /// Holds the releases of the neighbours.
    pub work: &'a mut Work,
    /// Whether it is known that nothing was sent that is not in the ledger.
    pub is_current: bool,
}

/// Round n+1, recorded.
pub(super) struct Done {
    pub sealed: Sealed,
    /// w~_k(n+1).
    pub released: Vec<f64>,
    pub memory: Vec<f64>,
    pub cost: Cost,
}

impl Context {
    /// Round n+1: from the records if the algorithm plans it so and the ledger allows it, else from earlier releases alone.
    pub fn release<D: Disk>(&self, inputs: Inputs<D>) -> Result<Done, Stop> {
        let number = inputs.round + 1;
        let Work { points, slots, ids, scratch, w } = inputs.work;
        slots.clear();
        slots.extend(0..ids.len() as u32);
        let run = Run {
            rounds: self.limits.rounds,
            graph: &self.setup.roster.graph,
            problem: &self.problem,
            robust: self.robust.as_ref(),
        };
        let round = run.round(number, self.setup.me, self.eta).among(ids, slots, inputs.own, points);
        // All K clients' masks, whoever is left: a mask is never taken back.
        let (clients, features) = (self.setup.roster.names.len(), self.limits.features);
        let touches = self.setup.study.algorithm().touches_records(number, self.limits.rounds);
        let masks = self.masks.as_ref().filter(|_| touches).map(|masks| masks.round(clients, 0, number, features));
        let protection = match (&self.budget, &self.setup.noise) {
            (Some(budget), Some(noise)) => Protection::On { budget, noise, masks: masks.as_ref(), trial: 0 },
            _ => Protection::Off,
        };
        let rules = Rules { algorithm: self.setup.study.algorithm(), largest: self.limits.largest };
        let (mut memory, mut released) = (inputs.memory.to_vec(), inputs.own.to_vec());
        w.resize(self.limits.features, 0.0);
        let state = State { memory: &mut memory, w, released: &mut released };
        let failed = |reason| Stop::Round { round: number, reason };
        let release = match inputs.is_current && inputs.ledger.may_use_records() {
            true => rules.round(&round, self.setup.data.records(), protection, state, scratch).map_err(failed)?,
            false => rules.withhold(&round, state, scratch),
        };
        // A release that others would refuse is not sent. One that was noised safely is never refused here: see `Rules::round`.
        let too_large = |v: &&f64| v.abs().partial_cmp(&self.limits.largest) != Some(Ordering::Less);
        if release.values().iter().any(|v| too_large(&v)) {
            return Err(failed(RoundError::Diverged));
        }
        let prior = inputs.prior.unwrap_or_else(|| self.chain.start(self.id(self.me())));
        let carried = Carried { prior, memory: memory.clone(), edges: inputs.edges };
        let (sealed, cost) = (inputs.ledger.record(&release, carried)?, release.cost());
        Ok(Done { sealed, released, memory, cost })
    }
}
