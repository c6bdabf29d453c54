//! One peer of a study as a state machine without IO: events go in, frames and reports come out, time is an argument.
//!
//! A [`Node`] decides everything: when a round can be computed, what is sent on which connection, which neighbour is
//! dialled, when an edge is dropped, when to stop. The network and the disk are behind [`Transport`] and
//! [`Disk`], so the same code runs on real machines and in simulated time. The same
//! events at the same times give the same frames in the same order.
//!
//! Rounds are synchronous between neighbours and nothing else: round n+1 needs the neighbours' releases of round n.
//! A neighbour is therefore at most one round ahead or behind, and two kept frames are enough. After a start no fresh
//! release is made before every neighbour of the ledger's last state has answered: one of them may hold proof that this peer's state is old. One that is dropped
//! before it answers has not answered; the rounds then go on without the records. An anchor that shows that the state is not old makes up for it. Participants that are
//! no neighbours are asked too, and waited for as far as they can be reached: one honest answer is enough.
//!
//! A node has four parts that own their state. `Rounds` computes and records releases, `Links` keeps the connections, `Witness` keeps how far everybody is,
//! `Finals` collects the last releases and ends the run. Each keeps what it needs of every edge and is told when an
//! edge is dropped. [`Node`] routes events to them.

mod contact;
mod context;
mod edge;
mod events;
mod finals;
mod handle;
mod links;
mod roster;
mod round;
mod rounds;
mod setup;
#[cfg(test)]
mod tests;
mod votes;
mod witness;

use std::time::Duration;

pub use events::{Conflict, Event, Link, News, OnLoss, Stop, Story, Transport};
pub use roster::{Roster, RosterError};
pub use setup::{NodeSetup, SetupError};

use context::Context;
use events::{Deadline, Effects};
use finals::Finals;
use links::Links;
use rounds::Rounds;
use witness::Witness;

use crate::ledger::{Disk, Ledger};

/// How long to wait for something before it is reported.
const REPORT: Duration = Duration::from_secs(2);

/// One peer of a study.
///
/// Pass every event to [`Node::handle`], and an [`Event::Tick`] at [`Node::deadline`] if nothing happens before. Then
/// read [`Node::take_news`], and stop when [`Node::is_finished`].
pub struct Node<D> {
    context: Context,
    rounds: Rounds<D>,
    links: Links,
    finals: Finals,
    witness: Witness,
    /// When something new last arrived or was done.
    progress: Duration,
    /// When the last round was done, or this process started.
    stepped: Duration,
    news: Vec<News>,
}

impl<D: Disk> Node<D> {
    /// Opens the ledger and continues after its last record.
    pub fn new(mut setup: NodeSetup, disk: D, now: Duration) -> Result<Self, Stop> {
        setup.check()?;
        let known = std::mem::take(&mut setup.finals);
        let context = Context::new(setup);
        let mut rounds = Rounds::open(&context, disk)?;
        let witness = Witness::open(&context, rounds.ledger_mut(), now)?;
        let (mut links, mut finals) = (Links::new(&context, now), Finals::new(&context));
        for peer in rounds.dropped() {
            links.resume_dropped(peer);
            finals.drop_edge(peer);
        }
        let mut node = Self { context, rounds, links, finals, witness, progress: now, stepped: now, news: Vec::new() };
        let mut news = Vec::new();
        node.collect_own_final();
        node.finals.resume(&node.context, &known, &mut news);
        node.news = news;
        node.check_alone()?;
        Ok(node)
    }

    /// Handles one event and everything that is due.
    pub fn handle(&mut self, event: Event, now: Duration, net: &mut dyn Transport) -> Result<(), Stop> {
        let mut news = std::mem::take(&mut self.news);
        let result = self.route(event, &mut Effects { now, net, news: &mut news });
        self.news = news;
        result
    }

    /// When the next tick is due if no other event comes first.
    pub fn deadline(&self, now: Duration) -> Duration {
        let mut deadline = Deadline::new(now, self.links.ask_at(self.progress));
        self.links.add_timeouts(&mut deadline);
        self.witness.add_timeouts(self.context.me(), self.signable(), &mut deadline);
        if self.are_rounds_done() {
            self.finals.add_timeouts(&self.context, self.progress, &mut deadline);
        }
        deadline.get()
    }

    /// What happened since this was last called.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// n, the last round done.
    pub fn round(&self) -> u32 {
        self.rounds.round()
    }

    /// w~_k(n).
    pub fn released(&self) -> &[f64] {
        self.rounds.released()
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger<D> {
        self.rounds.ledger()
    }

    /// gamma_k; empty if the algorithm has no dual.
    pub fn dual(&self) -> &[f64] {
        match self.context.dual_weight() {
            Some(_) => &self.rounds.memory()[..self.context.limits.features],
            None => &[],
        }
    }

    /// The neighbours whose edge is live, by ascending id, and whether each is connected.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, bool)> {
        self.links.live().map(|(id, link)| (id, link.is_some()))
    }

    /// The neighbours whose release the next round lacks, and since when it could have been computed with it.
    pub fn awaited(&self) -> (Vec<u32>, Duration) {
        let waits = |id: &u32| !self.are_rounds_done() && self.rounds.waits_for(*id);
        (self.links.live().map(|(id, _)| id).filter(waits).collect(), self.stepped)
    }

    /// Whether the steps are too large: the points at which this process computed gradients swing to and fro.
    pub fn overshoots(&self) -> bool {
        self.rounds.overshoots()
    }

    /// Root mean square distance of the own release from the neighbours' in the last round.
    pub fn consensus(&self) -> f64 {
        self.rounds.consensus()
    }

    /// What [`Node::final_frames`] returns is on disk, and the model if there is one: the own vote may be sent, and neighbours may be told that this peer needs nothing more.
    pub fn saved(&mut self) {
        self.finals.saved();
    }

    /// The peers whose last release is not in the model, or not here yet.
    pub fn missing(&self) -> Vec<u32> {
        self.finals.missing()
    }

    /// The peers that were seen to release two different things in one round.
    pub fn accused(&self) -> Vec<u32> {
        self.finals.accused().collect()
    }

    /// Whether neither this peer nor its neighbours need anything more.
    pub fn is_finished(&self, now: Duration) -> bool {
        self.finals.is_finished(now, self.progress, &self.links)
    }

    /// Whether enough peers have signed the same set of last releases, and it is here: then there is a model, the same for all.
    pub fn is_agreed(&self) -> bool {
        self.finals.is_agreed()
    }

    /// How many peers have signed the same set of last releases, at most.
    pub fn most_votes(&self) -> usize {
        self.finals.most_votes()
    }

    /// The frames of the last releases that are here, and of the votes.
    pub fn final_frames(&self) -> impl Iterator<Item = &[u8]> {
        self.finals.frames()
    }

    /// The last releases that are in the model, or as long as there is none here, with their authors, by ascending id.
    pub fn finals(&self) -> Vec<(u32, Vec<f64>)> {
        self.finals.releases(&self.context.limits)
    }
}
