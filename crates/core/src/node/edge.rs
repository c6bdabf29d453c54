//! The edges of this peer, and what arrives on them.

use super::context::Context;
use crate::ledger::EdgeRecord;
use crate::message::{Head, Receipt, RoundFrame, next_head};

/// An edge is in the graph until it is dropped, and then never again.
///
/// The parts of a node keep different state for it. `L` is what a part keeps of a live edge, and `D` is what is left
/// when the edge is dropped, so that nothing else of it can be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EdgeState<L, D> {
    Live(L),
    Dropped(D),
}

impl<L, D> EdgeState<L, D> {
    pub fn live(&self) -> Option<&L> {
        match self {
            Self::Live(live) => Some(live),
            Self::Dropped(_) => None,
        }
    }

    pub fn live_mut(&mut self) -> Option<&mut L> {
        match self {
            Self::Live(live) => Some(live),
            Self::Dropped(_) => None,
        }
    }
}

/// How a release fits to those before it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Position {
    /// It is the next one. This is the receipt for it.
    Next(Receipt),
    /// It is known, or a newer one is.
    Known,
    /// Releases before it are missing.
    Gap,
    /// It differs from the known release of the same round.
    Conflict {
        /// The author's chain up to the known one.
        known: Head,
        /// The author's chain up to this one.
        other: Head,
    },
}

/// The receipts for the newest release of a neighbour and for the one before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Receipts([Receipt; 2]);

impl Receipts {
    /// No release yet; `start` is c_0 of the author.
    pub fn new(start: Head) -> Self {
        Self([Receipt { head: start, ..Receipt::default() }; 2])
    }

    /// The newest receipt. Its round is 0 before the first release.
    pub fn newest(&self) -> &Receipt {
        &self.0[0]
    }

    /// The receipt for one of the two newest rounds.
    pub fn of(&self, round: u32) -> &Receipt {
        let [newest, before] = &self.0;
        if newest.round == round { newest } else { before }
    }

    /// Compares a release with those before it.
    pub fn locate(&self, release: &RoundFrame) -> Position {
        let receipt = |prior: &Head| Receipt {
            round: release.round,
            head: next_head(prior, release.round, release.payload.bytes()),
            tag: release.tag,
        };
        let [newest, before] = &self.0;
        if release.round == newest.round + 1 {
            Position::Next(receipt(&newest.head))
        } else if release.round > newest.round {
            Position::Gap
        } else if release.round == newest.round && before.round + 1 == newest.round {
            let other = receipt(&before.head).head;
            if other == newest.head { Position::Known } else { Position::Conflict { known: newest.head, other } }
        } else {
            Position::Known
        }
    }

    fn push(&mut self, receipt: Receipt) {
        self.0 = [receipt, self.0[0]];
    }
}

/// What the rounds need of a live edge: the neighbour's releases.
pub(super) struct Neighbour {
    receipts: Receipts,
    /// w~_l of the two newest rounds, by parity of the round.
    points: [Vec<f64>; 2],
    /// sum_m (w~_k(m) - w~_l(m)); empty if the algorithm has no dual.
    disagreement: Vec<f64>,
}

/// What was received on an edge. The receipts are kept when it is dropped: a hello must still contain the newest one,
/// the last release of the neighbour still counts, and a second release for the same round is still reported.
pub(super) type RoundEdge = EdgeState<Neighbour, Receipts>;

impl RoundEdge {
    /// A live edge on which nothing was received.
    pub fn new(context: &Context, neighbour: u32) -> Self {
        let zeros = || vec![0.0; context.limits.features];
        Self::Live(Neighbour {
            receipts: Receipts::new(context.chain.start(context.id(neighbour))),
            points: [zeros(), zeros()],
            disagreement: if context.dual_weight().is_some() { zeros() } else { Vec::new() },
        })
    }

    pub fn receipts(&self) -> &Receipts {
        match self {
            Self::Live(neighbour) => &neighbour.receipts,
            Self::Dropped(receipts) => receipts,
        }
    }

    /// Takes in the next release, whose receipt is from [`Receipts::locate`].
    pub fn accept(&mut self, release: &RoundFrame, receipt: Receipt) {
        match self {
            Self::Live(neighbour) => {
                let point = &mut neighbour.points[release.round as usize % 2];
                point.clear();
                point.extend(release.payload.values());
                neighbour.receipts.push(receipt);
            }
            Self::Dropped(receipts) => receipts.push(receipt),
        }
    }

    /// Forgets everything but the receipts.
    pub fn drop_edge(&mut self) {
        *self = Self::Dropped(*self.receipts());
    }
}

impl Neighbour {
    /// Continues from the ledger's record of the edge.
    pub fn resume(&mut self, edge: EdgeRecord) {
        self.receipts = Receipts([edge.receipt; 2]);
        self.disagreement = edge.disagreement;
    }

    /// The newest round received.
    pub fn round(&self) -> u32 {
        self.receipts.newest().round
    }

    /// w~_l(n), if n is one of the two newest rounds.
    pub fn point(&self, round: u32) -> &[f64] {
        &self.points[round as usize % 2]
    }

    pub fn disagreement(&self) -> &[f64] {
        &self.disagreement
    }

    /// Adds w~_k(n) - w~_l(n) to the disagreement.
    pub fn add_disagreement(&mut self, round: u32, own: &[f64]) {
        let point = &self.points[round as usize % 2];
        for ((sum, own), point) in self.disagreement.iter_mut().zip(own).zip(point) {
            *sum += own - point;
        }
    }

    /// What the ledger keeps of the edge in the record of round n+1.
    pub fn record(&self, id: u32, round: u32) -> EdgeRecord {
        EdgeRecord { neighbour: id, receipt: *self.receipts.of(round), disagreement: self.disagreement.clone() }
    }
}
