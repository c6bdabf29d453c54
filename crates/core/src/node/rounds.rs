//! The rounds of a node: its own releases, those of its neighbours, and the ledger between them.

use std::collections::BTreeMap;

use super::context::Context;
use super::edge::{Neighbour, Position, RoundEdge};
use super::round::{Done, Inputs, Work};
use super::witness::Witness;
use super::{Conflict, Stop, Story};
use crate::client::Cost;
use crate::ledger::{Disk, Ledger, LedgerError, Resumed, Sealed};
use crate::message::{Final, Head, Hello, Outgoing, Receipt, RoundFrame, SignedHead};
use crate::swing::Swing;

/// The state from which rounds are computed.
///
/// A round n+1 can be computed when every live edge has delivered the release of round n. The ledger records a round
/// before its frame exists, so the frames in here are durable.
pub(super) struct Rounds<D> {
    ledger: Ledger<D>,
    /// n, the last round done.
    round: u32,
    /// w~_k(n).
    own: Vec<f64>,
    /// The algorithm's vectors.
    memory: Vec<f64>,
    /// The last two frames.
    frames: Vec<Sealed>,
    /// Root mean square distance to the neighbours in the last round.
    consensus: f64,
    edges: BTreeMap<u32, RoundEdge>,
    work: Work,
    /// The points at which this process has computed gradients.
    swing: Swing,
}

/// What became of a neighbour's release.
pub(super) enum Received {
    /// It was the next one. `prior` is the author's chain before it.
    New { prior: Head, receipt: Receipt },
    /// It was known already.
    Known,
    /// It differs from the known release of the same round.
    Conflict { known: Head, other: Head },
    /// It cannot be used, for this reason.
    Refused(String),
}

impl<D: Disk> Rounds<D> {
    /// Opens the ledger and continues after its last record.
    pub fn open(context: &Context, disk: D) -> Result<Self, LedgerError> {
        let setup = &context.setup;
        let (begin, budget) = (setup.begin(context.budget.as_ref()), context.budget.clone());
        let (ledger, resumed) =
            Ledger::enter(disk, setup.identity.clone(), context.chain, context.limits, begin, budget)?;
        let mut rounds = Self {
            ledger,
            round: 0,
            own: vec![0.0; context.limits.features],
            memory: vec![0.0; context.limits.features * setup.study.memory(&setup.roster.graph)],
            frames: Vec::new(),
            consensus: 0.0,
            edges: context.neighbours().iter().map(|&id| (id, RoundEdge::new(context, id))).collect(),
            work: Work::default(),
            swing: Swing::default(),
        };
        rounds.resume(context, resumed);
        Ok(rounds)
    }

    fn resume(&mut self, context: &Context, resumed: Resumed) {
        self.frames = resumed.frames;
        let mut counted = Vec::new();
        if let Some(last) = resumed.last {
            counted.extend(last.edges.iter().map(|edge| edge.neighbour));
            self.round = last.round;
            self.own = last.released;
            self.memory = last.memory;
            for edge in last.edges {
                if let Some(neighbour) = self.edges.get_mut(&edge.neighbour).and_then(RoundEdge::live_mut) {
                    neighbour.resume(edge);
                }
            }
        }
        for id in resumed.dropped {
            let Some(edge) = self.edges.get_mut(&id) else { continue };
            edge.drop_edge();
            // If it was dropped after the last round, its share is still in the dual.
            if counted.contains(&id) {
                self.sum_dual(context);
            }
        }
    }

    /// Takes in a release from a neighbour. `shown` is the receipt of the newest one that it ever showed to this peer, before the last start perhaps.
    pub fn handle_release(&mut self, context: &Context, peer: u32, release: &RoundFrame, shown: &Receipt) -> Received {
        let Some(edge) = self.edges.get_mut(&peer) else { return Received::Known };
        if release.round > self.round + 1 {
            return Received::Refused(format!("round {} while this peer is at {}", release.round, self.round));
        }
        match edge.receipts().locate(release) {
            Position::Next(receipt) if receipt.round == shown.round && receipt.head != shown.head => {
                Received::Conflict { known: shown.head, other: receipt.head }
            }
            Position::Next(receipt) => {
                let author = context.id(peer);
                let is_signed = |s: &[u8; 64]| context.chain.verifies(author, receipt.round, &receipt.head, s);
                if release.signature.as_ref().is_some_and(|s| !is_signed(s)) {
                    return Received::Refused("a frame with a wrong signature".into());
                }
                let prior = edge.receipts().newest().head;
                edge.accept(release, receipt);
                Received::New { prior, receipt }
            }
            Position::Known => Received::Known,
            Position::Gap => Received::Refused(format!("round {} without the earlier ones", release.round)),
            Position::Conflict { known, other } => Received::Conflict { known, other },
        }
    }

    /// What is known of a neighbour that cannot come before, or be, this last release of it: the neighbour told others another story.
    pub fn contradicts(&self, last: &Final) -> Option<Conflict> {
        let rounds = self.ledger.run().begin.rounds;
        let known = self.edges.get(&last.author)?.receipts().newest();
        let other: Story = match rounds.checked_sub(known.round)? {
            0 => last.signed_head(rounds).into(),
            1 => last.prior.into(),
            _ => return None,
        };
        let conflict = Conflict { author: last.author, round: known.round, stories: [known.head.into(), other] };
        (known.head != other.head).then_some(conflict)
    }

    /// The head of a neighbour's chain that is known and differs from what it signed for the same round.
    pub fn differs(&self, author: u32, signed: &SignedHead) -> Option<Head> {
        let receipts = self.edges.get(&author)?.receipts();
        let known = receipts.of(signed.round);
        (known.round == signed.round && known.head != signed.head).then_some(known.head)
    }

    /// Whether every live edge has delivered what the next round needs.
    pub fn can_step(&self) -> bool {
        self.live().all(|(_, neighbour)| neighbour.round() >= self.round)
    }

    /// Whether the next round lacks the release of a neighbour.
    pub fn waits_for(&self, peer: u32) -> bool {
        let edge = self.edges.get(&peer).and_then(RoundEdge::live);
        edge.is_some_and(|neighbour| neighbour.round() < self.round)
    }

    /// Computes the next round and records it. Returns what it cost. The records are not used unless it is known that the ledger `is_current`.
    pub fn step(&mut self, context: &Context, is_current: bool) -> Result<Cost, Stop> {
        let algorithm = context.setup.study.algorithm();
        if self.round > 0 && algorithm.touches_records(self.round + 1, context.limits.rounds) {
            self.swing.add(&self.own);
        }
        let mut squares = 0.0;
        self.work.clear();
        for (id, edge) in &mut self.edges {
            let Some(neighbour) = edge.live_mut() else { continue };
            for (own, point) in self.own.iter().zip(neighbour.point(self.round)) {
                squares += (own - point) * (own - point);
            }
            neighbour.add_disagreement(self.round, &self.own);
            self.work.push(*id, neighbour.point(self.round));
        }
        self.consensus = (squares / self.degree().max(1) as f64).sqrt();
        let inputs = Inputs {
            round: self.round,
            own: &self.own,
            memory: &self.memory,
            prior: self.frames.last().map(|frame| frame.receipt().head),
            ledger: &mut self.ledger,
            edges: self.edges.iter().filter_map(|(id, e)| Some(e.live()?.record(*id, self.round))).collect(),
            work: &mut self.work,
            is_current,
        };
        let Done { sealed, released, memory, cost } = context.release(inputs)?;
        (self.round, self.own, self.memory) = (self.round + 1, released, memory);
        if self.frames.len() == 2 {
            self.frames.remove(0);
        }
        self.frames.push(sealed);
        Ok(cost)
    }

    /// Takes an edge out of the graph, durably, and its share out of the dual.
    pub fn drop_edge(&mut self, context: &Context, peer: u32) -> Result<(), LedgerError> {
        self.ledger.drop_edge(peer)?;
        if let Some(edge) = self.edges.get_mut(&peer) {
            edge.drop_edge();
        }
        self.sum_dual(context);
        Ok(())
    }

    /// Adds the dual up again from the disagreements of the live edges.
    fn sum_dual(&mut self, context: &Context) {
        let Some(weight) = context.dual_weight() else { return };
        for p in 0..context.limits.features {
            let sum: f64 = self.live().map(|(_, neighbour)| neighbour.disagreement()[p]).sum();
            self.memory[p] = weight * sum;
        }
    }

    /// Compares the receipts in a hello with the ledger. Returns why the connection is to be closed, if it is.
    pub fn check_receipt(&self, context: &Context, peer: u32, receipt: &Receipt) -> Result<Option<String>, Stop> {
        if receipt.round == 0 {
            return Ok(None);
        }
        if !context.chain.is_own(&context.setup.identity, receipt) {
            return Ok(Some("a receipt for a frame that this peer never made".into()));
        }
        self.check_own(context, peer, receipt.round, &receipt.head).map(|()| None)
    }

    /// Compares a head that this peer is said to have signed with the ledger. Returns why the connection is to be closed, if it is.
    pub fn check_head(&self, context: &Context, peer: u32, head: &SignedHead) -> Result<Option<String>, Stop> {
        if head.round == 0 {
            return Ok(None);
        }
        if !context.chain.verifies(context.id(context.me()), head.round, &head.head, &head.signature) {
            return Ok(Some("a head that this peer never signed".into()));
        }
        self.check_own(context, peer, head.round, &head.head).map(|()| None)
    }

    /// Stops if something that this peer made is not in its ledger. `peer` holds the proof.
    fn check_own(&self, context: &Context, peer: u32, round: u32, head: &Head) -> Result<(), Stop> {
        let neighbour = || context.setup.roster.names.get(peer as usize).into_owned();
        if round > self.round {
            return Err(Stop::Behind { neighbour: neighbour(), theirs: round, own: self.round });
        }
        let known = self.frames.iter().find(|f| f.receipt().round == round);
        match known.is_some_and(|frame| frame.receipt().head != *head) {
            true => Err(Stop::Forked { neighbour: neighbour(), round }),
            false => Ok(()),
        }
    }

    /// The hello for another peer.
    pub fn hello(&self, context: &Context, peer: u32, witness: &Witness) -> Hello {
        let edge = self.edges.get(&peer);
        let newest = edge.map_or(Receipt::default(), |edge| *edge.receipts().newest());
        let (shown, head, yours) = witness.of(peer);
        Hello {
            study: context.digest,
            round: self.round,
            session: *witness.session(),
            receipt: if newest.round == 0 { Receipt::default() } else { newest },
            shown,
            head,
            yours,
            dropped: edge.is_some_and(|edge| edge.live().is_none()),
        }
    }

    /// The frames that follow round `n`, or `None` if one of them is no longer kept.
    pub fn frames_after(&self, n: u32) -> Option<impl Iterator<Item = &Outgoing>> {
        let oldest = self.frames.first().map_or(0, |f| f.receipt().round);
        let later = self.frames.iter().filter(move |f| f.receipt().round > n);
        (n + 1 >= oldest).then(|| later.map(Sealed::frame))
    }

    /// The frames that are kept, oldest first.
    pub fn frames(&self) -> impl Iterator<Item = &Outgoing> {
        self.frames.iter().map(Sealed::frame)
    }

    /// The newest frame with what is needed to pass it on.
    pub fn newest(&self) -> Option<&Sealed> {
        self.frames.last()
    }

    /// Neighbours whose edge was dropped.
    pub fn dropped(&self) -> impl Iterator<Item = u32> {
        self.edges.iter().filter(|(_, edge)| edge.live().is_none()).map(|(id, _)| *id)
    }

    fn live(&self) -> impl Iterator<Item = (u32, &Neighbour)> {
        self.edges.iter().filter_map(|(id, edge)| Some((*id, edge.live()?)))
    }

    /// How many edges are left.
    pub fn degree(&self) -> usize {
        self.live().count()
    }

    pub fn round(&self) -> u32 {
        self.round
    }

    pub fn released(&self) -> &[f64] {
        &self.own
    }

    pub fn memory(&self) -> &[f64] {
        &self.memory
    }

    pub fn overshoots(&self) -> bool {
        self.swing.overshoots()
    }

    pub fn consensus(&self) -> f64 {
        self.consensus
    }

    pub fn ledger(&self) -> &Ledger<D> {
        &self.ledger
    }

    pub fn ledger_mut(&mut self) -> &mut Ledger<D> {
        &mut self.ledger
    }
}
