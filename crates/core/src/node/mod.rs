//! One peer of a study as a state machine: what arrives goes in, what is to be sent comes out, time is an argument.
//!
//! A [`Node`] owns the ledger and decides everything: when a round can be computed, what is sent to whom, whom to dial,
//! when an edge is dropped, when to stop. The network and the disk are behind [`Transport`] and
//! [`Disk`](crate::ledger::Disk), so the same code runs between real machines and in a world of virtual time.
//!
//! Rounds are synchronous between neighbours and nothing else: round n+1 needs the neighbours' releases of round n.
//! A neighbour is therefore at most one round ahead or behind, and two kept frames answer any question. After a start no
//! fresh release is made before every neighbour has answered: one of them may hold proof that this peer's state is old.

mod events;
mod finals;
mod links;
mod neighbour;
mod roster;
mod round;
mod setup;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;

pub use events::{Conflict, Event, Link, News, OnLoss, Stop, Transport};
pub use roster::{Roster, RosterError};
use setup::Costs;
pub use setup::Setup;

use crate::ledger::{Disk, Ledger, Resumed, Sealed};
use crate::message::{Chain, Limits, Message, Outgoing, Release, decode};
use crate::privacy::Stream;
use crate::problem::Problem;
use crate::regularizer::Regularizer;
use crate::study::{RegularizerSpec, StudyDigest};
use neighbour::{Neighbour, Oddity};

/// How long to wait for the answer to a hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long a live neighbour may be silent before it is asked again.
const STALL: Duration = Duration::from_secs(15);
/// How long to wait before saying so.
const REPORT: Duration = Duration::from_secs(2);
/// How long to wait before saying so again.
const REPORT_AGAIN: Duration = Duration::from_secs(60);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long nothing may happen after the last round before a peer believes that others have given up.
const GRACE: Duration = Duration::from_secs(10);
/// How long to stay for others when everything is done.
const LINGER: Duration = Duration::from_secs(600);

struct Connection {
    peer: u32,
    greeted: bool,
    since: Duration,
}

/// One peer of a study.
pub struct Node<D> {
    setup: Setup,
    digest: StudyDigest,
    chain: Chain,
    limits: Limits,
    problem: Problem,
    costs: Option<Costs>,
    ledger: Ledger<D>,
    links: BTreeMap<Link, Connection>,
    neighbours: Vec<Neighbour>,
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
    /// When something new last arrived or was done.
    progress: Duration,
    /// When silent neighbours were last asked.
    asked: Duration,
    finals: Vec<Option<Outgoing>>,
    complete: bool,
    gave_up: bool,
    saved: bool,
    /// How long to stay for others when everything is done.
    linger: Duration,
    accused: BTreeSet<u32>,
    serving_reported: bool,
    missing_reported: bool,
    news: Vec<News>,
    jitter: Xoshiro256PlusPlus,
    work: round::Work,
}

impl<D: Disk> Node<D> {
    /// Opens the ledger and takes up where it ends.
    pub fn new(setup: Setup, disk: D, now: Duration) -> Result<Self, Stop> {
        let digest = StudyDigest::of(&setup.study);
        let (chain, limits) = (Chain::new(&digest), setup.limits());
        let costs = setup.costs();
        let promised = costs.as_ref().map_or(0.0, Costs::total);
        let allowance = setup.allowance.map_or(promised, |a| a.min(promised));
        let begin = setup.begin(&digest, &costs);
        let (ledger, resumed) = Ledger::enter(disk, setup.identity.clone(), chain, limits, begin, allowance)?;
        let regularizer = match setup.study.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { .. } => Regularizer::None,
        };
        let has_dual = setup.study.algorithm.dual_weight() > 0.0;
        let neighbours = setup.roster.graph.neighbours(setup.me).iter();
        let neighbours: Vec<Neighbour> = neighbours
            .map(|&id| {
                let start = chain.start(&setup.roster.ids[id as usize]);
                Neighbour::new(id, start, &limits, has_dual, now)
            })
            .collect();
        let seed = u64::from_le_bytes(*setup.identity.id().as_bytes().first_chunk().expect("32 bytes"));
        let mut node = Self {
            digest,
            chain,
            limits,
            problem: setup.study.problem(regularizer),
            costs,
            ledger,
            links: BTreeMap::new(),
            neighbours,
            round: 0,
            own: vec![0.0; limits.features],
            memory: vec![0.0; limits.features * setup.study.algorithm.memory()],
            frames: Vec::new(),
            consensus: 0.0,
            progress: now,
            asked: now,
            finals: vec![None; limits.clients],
            complete: false,
            gave_up: false,
            saved: false,
            linger: LINGER,
            accused: BTreeSet::new(),
            serving_reported: false,
            missing_reported: false,
            news: Vec::new(),
            // Spreads reconnection attempts; nothing secret depends on it.
            jitter: Stream { trial: 0, client: 0, round: 0 }.fast(seed ^ setup.time),
            work: round::Work::default(),
            setup,
        };
        node.resume(resumed);
        node.check_alone()?;
        Ok(node)
    }

    /// Without neighbours there is nobody to learn with, and every round would be spent for nothing.
    fn check_alone(&self) -> Result<(), Stop> {
        let alone = self.round < self.limits.rounds && self.active().next().is_none();
        if alone { Err(Stop::Alone) } else { Ok(()) }
    }

    fn resume(&mut self, resumed: Resumed) {
        self.frames = resumed.frames;
        let mut counted = Vec::new();
        if let Some(last) = resumed.last {
            counted.extend(last.edges.iter().map(|edge| edge.neighbour));
            self.round = last.round;
            self.own = last.released;
            self.memory = last.memory;
            for edge in last.edges {
                let known = self.neighbours.iter_mut().find(|n| n.id == edge.neighbour);
                if let Some(neighbour) = known {
                    neighbour.resume(edge);
                }
            }
        }
        for id in resumed.dropped {
            let Some(index) = self.neighbours.iter().position(|n| n.id == id) else { continue };
            self.neighbours[index].dropped = true;
            // If it was dropped after the last round, its share is still in the dual.
            if counted.contains(&id) {
                self.forget_edge(index);
            }
        }
        self.collect_own_final();
        for frame in std::mem::take(&mut self.setup.finals) {
            if let Ok(Message::Final(last)) = decode(&frame, &self.limits) {
                self.receive_final(&last, &frame);
            }
        }
        // Finished once already: whoever still needs something is there now, or will ask again.
        if self.complete {
            self.linger = GRACE;
        }
    }

    /// Takes in one event and does all that follows from it.
    pub fn handle(&mut self, event: Event, now: Duration, net: &mut dyn Transport) -> Result<(), Stop> {
        match event {
            Event::Up { link, peer } => self.up(link, peer, now, net),
            Event::Frame { link, frame } => self.frame(link, frame, now, net)?,
            Event::Down { link, reason } => self.down(link, reason, now, net),
            Event::Unreachable { peer, .. } => self.unreachable(peer, now),
            Event::Tick => {}
        }
        self.watch(now, net)?;
        self.advance(now, net)
    }

    /// When a tick is due, if nothing happens before.
    pub fn deadline(&self, now: Duration) -> Duration {
        let mut due = self.progress.max(self.asked) + STALL;
        // What was due before now is done, or waits for something else than time.
        let mut at = |time: Duration| due = if time > now { due.min(time) } else { due };
        self.links.values().filter(|c| !c.greeted).for_each(|c| at(c.since + HELLO_PATIENCE));
        if self.round == self.limits.rounds {
            at(self.progress + self.end_patience());
            at(self.progress + REPORT);
        }
        for n in &self.neighbours {
            if n.link().is_none() && !n.dialling && (!n.dropped || !n.told) && self.is_dialable(n.id) {
                at(n.next_dial);
            }
            let Some(lost) = n.lost_since.filter(|_| !n.dropped) else { continue };
            at(n.reported.map_or(lost + REPORT, |last| last + REPORT_AGAIN));
            if let OnLoss::Drop(patience) = self.setup.on_loss {
                at(lost + patience);
            }
        }
        due.max(now)
    }

    /// What happened since this was last asked.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// n, the last round done.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// w~_k(n).
    pub fn released(&self) -> &[f64] {
        &self.own
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger<D> {
        &self.ledger
    }

    fn has_dual(&self) -> bool {
        self.setup.study.algorithm.dual_weight() > 0.0
    }

    /// gamma_k; empty if the algorithm has no dual.
    pub fn dual(&self) -> &[f64] {
        if self.has_dual() { &self.memory[..self.limits.features] } else { &[] }
    }

    /// The neighbours that are left, and whether each is connected.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, bool)> {
        self.active().map(|n| (n.id, n.link().is_some()))
    }

    /// Root mean square distance of the own release from the neighbours' in the last round.
    pub fn consensus(&self) -> f64 {
        self.consensus
    }

    fn active(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.iter().filter(|n| !n.dropped)
    }

    fn is_dialable(&self, peer: u32) -> bool {
        self.setup.study.relay.is_some() || self.setup.roster.addresses[peer as usize].is_some()
    }

    fn neighbour(&mut self, id: u32) -> Option<&mut Neighbour> {
        self.neighbours.iter_mut().find(|n| n.id == id)
    }

    fn frame(&mut self, link: Link, frame: &[u8], now: Duration, net: &mut dyn Transport) -> Result<(), Stop> {
        // Frames may still arrive on a link that this side has closed.
        let Some(&Connection { peer, greeted, .. }) = self.links.get(&link) else { return Ok(()) };
        let refused = match decode(frame, &self.limits) {
            Ok(Message::Hello(hello)) => self.greet(link, peer, &hello, net)?,
            Ok(_) if !greeted => Some("a frame before the hello".into()),
            Ok(Message::Round(release)) => self.receive(peer, &release, frame, now),
            Ok(Message::Final(last)) => {
                let (before, refused) = (self.finals.iter().flatten().count(), self.receive_final(&last, frame));
                if self.finals.iter().flatten().count() > before {
                    self.progress = now;
                }
                refused
            }
            Ok(Message::Done { complete, heard }) => {
                if let Some(neighbour) = self.neighbour(peer) {
                    (neighbour.done, neighbour.gave_up, neighbour.heard) = (true, !complete, heard);
                }
                None
            }
            Err(malformed) => Some(malformed.to_string()),
        };
        if let Some(reason) = refused {
            if let Some(neighbour) = self.neighbour(peer).filter(|_| greeted) {
                neighbour.distrusted = true;
                neighbour.lost_since = neighbour.lost_since.or(Some(now));
            }
            net.close(link, &reason);
            self.down(link, format!("closed by this peer: {reason}"), now, net);
        }
        Ok(())
    }

    /// Takes in a neighbour's release; returns why the connection is to be closed, if it is.
    fn receive(&mut self, peer: u32, release: &Release, frame: &[u8], now: Duration) -> Option<String> {
        let author = self.setup.roster.ids[peer as usize];
        let (chain, round) = (self.chain, self.round);
        let neighbour = self.neighbour(peer)?;
        if release.round > round + 1 {
            return Some(format!("round {} while this peer is at {round}", release.round));
        }
        match neighbour.check(release) {
            Ok(receipt) => {
                let signed = |s: &[u8; 64]| chain.verifies(&author, receipt.round, &receipt.head, s);
                if release.signature.as_ref().is_some_and(|s| !signed(s)) {
                    return Some("a frame with a wrong signature".into());
                }
                let prior = neighbour.receipts[0].head;
                neighbour.accept(release, receipt);
                self.collect_neighbours_final(peer, prior, release);
                self.progress = now;
                None
            }
            Err(Oddity::Known) => None,
            Err(Oddity::Gap) => Some(format!("round {} without those before it", release.round)),
            Err(Oddity::Conflict(known)) => {
                let first = [&known.head[..], &known.tag[..]].concat();
                let conflict =
                    Conflict { author: peer, round: release.round, first, second: frame.to_vec(), provable: false };
                self.accuse(conflict);
                Some(format!("a second, different release of round {}", release.round))
            }
        }
    }

    /// Does every round that can be done, and then what comes after the last.
    fn advance(&mut self, now: Duration, net: &mut dyn Transport) -> Result<(), Stop> {
        while self.round < self.limits.rounds && self.active().all(|n| n.greeted && n.round() >= self.round) {
            self.step()?;
            self.progress = now;
            let frame = self.frames.last().expect("a step leaves one").frame();
            for link in self.active().filter_map(Neighbour::link) {
                net.send(link, frame);
            }
        }
        self.spread_finals(now, net);
        Ok(())
    }
}
