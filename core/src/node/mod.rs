//! One peer of a study as a state machine: what arrives goes in, what is to be sent comes out, time is an argument.
//!
//! A [`Node`] owns the ledger and decides everything: when a round can be computed, what is sent to whom, whom to dial,
//! when an edge is dropped, when to stop. The network and the disk are behind [`Transport`] and
//! [`Disk`](crate::ledger::Disk), so the same code runs between real machines and in a world of virtual time.
//!
//! Rounds are synchronous between neighbours and nothing else: round n+1 needs the neighbours' releases of round n.
//! A neighbour is therefore at most one round ahead or behind, and two kept frames answer any question. After a start no
//! fresh release is made before every neighbour has answered: one of them may hold proof that this peer's state is old.

mod finals;
mod neighbour;
mod roster;
mod round;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

pub use roster::{Roster, RosterError};

use crate::client::RoundError;
use crate::identity::Identity;
use crate::ledger::{Begin, Disk, Ledger, LedgerError, Resumed, Sealed};
use crate::message::{Chain, Hello, Limits, Message, Outgoing, Receipt, Release, decode};
use crate::names::Names;
use crate::privacy::{Noise, Schedule, Stream};
use crate::problem::Problem;
use crate::records::Dataset;
use crate::regularizer::Regularizer;
use crate::study::{RegularizerSpec, Study, StudyDigest};
use neighbour::{Neighbour, Oddity};

/// A connection, numbered by the transport; numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

/// What a node asks of the network. Each call returns at once; what comes of it arrives as an [`Event`].
pub trait Transport {
    /// Try to connect to a participant.
    fn dial(&mut self, peer: u32);
    /// Send a frame, after those sent before on the same link.
    fn send(&mut self, link: Link, frame: &Outgoing);
    /// End a connection and tell the other side why.
    fn close(&mut self, link: Link, reason: &str);
}

/// What happens to a node.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// An authenticated connection to a participant exists, whoever dialled.
    Up {
        /// Its number.
        link: Link,
        /// The participant, by its key.
        peer: u32,
    },
    /// A frame arrived.
    Frame {
        /// On which connection.
        link: Link,
        /// Its bytes.
        frame: &'a [u8],
    },
    /// A connection ended.
    Down {
        /// Which one.
        link: Link,
        /// Why, in the words of whoever ended it.
        reason: String,
    },
    /// A dialled participant could not be reached.
    Unreachable {
        /// Who.
        peer: u32,
        /// Why.
        reason: String,
    },
    /// Nothing but time.
    Tick,
}

/// What to do about a neighbour that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// Wait until it comes back.
    Wait,
    /// Go on without it after this long.
    Drop(Duration),
}

/// Something that an operator may want to know.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A neighbour answered.
    Greeted(u32),
    /// A neighbour's last connection ended.
    Lost(u32, String),
    /// Waiting for a neighbour.
    Waiting(u32),
    /// A connection was refused.
    Refused(u32, String),
    /// A round is done.
    Round(u32),
    /// A round was repeated instead of computed.
    Repeated(u32),
    /// An edge is gone.
    Dropped {
        /// To whom.
        neighbour: u32,
        /// Whether the other end dropped it first.
        theirs: bool,
        /// How many neighbours are left.
        left: usize,
    },
    /// A participant said two different things.
    Conflict(Conflict),
    /// Everybody's last release is here.
    Complete,
    /// All rounds are done, but some neighbours are not.
    Serving(Vec<u32>),
}

/// Two different releases of one author for one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// Who said them.
    pub author: u32,
    /// The round.
    pub round: u32,
    /// What was known: a frame, or the chain and tag of one.
    pub first: Vec<u8>,
    /// The frame that differs.
    pub second: Vec<u8>,
    /// Whether both carry signatures, so that anyone can check them.
    pub provable: bool,
}

/// Why a node cannot go on.
#[derive(Debug, Error)]
pub enum Stop {
    /// The state folder is older than what this peer has sent.
    #[error(
        "{neighbour} holds a release of round {theirs} that this peer made, but its ledger ends at round {own}: the state \
         folder was restored from a backup, copied, or emptied. Bring back the newest folder; never run an older one"
    )]
    Behind {
        /// Who holds the proof.
        neighbour: String,
        /// The round of the proof.
        theirs: u32,
        /// The last round of the ledger.
        own: u32,
    },
    /// Somebody else sends with this key.
    #[error(
        "{neighbour} holds a release of round {round} made with this peer's key that is not in its ledger: a copy of this \
         peer is or was running. Stop all but one, the one whose ledger is the longest"
    )]
    Forked {
        /// Who holds the proof.
        neighbour: String,
        /// The round.
        round: u32,
    },
    /// Every edge was dropped.
    #[error("no neighbour is left: every edge of this peer was dropped, so it cannot learn anything more")]
    Alone,
    /// The ledger does not allow it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A round could not be computed; nothing was released.
    #[error("round {round} could not be finished: {reason}")]
    Round {
        /// Which.
        round: u32,
        /// Why.
        reason: RoundError,
    },
}

/// What a node is made of.
pub struct Setup {
    /// The study.
    pub study: Arc<Study>,
    /// Its participants.
    pub roster: Arc<Roster>,
    /// Which of them this is.
    pub me: usize,
    /// Its key.
    pub identity: Arc<Identity>,
    /// Its records.
    pub data: Dataset,
    /// A keyed hash of them.
    pub data_hash: [u8; 32],
    /// Where noise comes from.
    pub noise: Noise,
    /// Whether releases are safe: false for rehearsals.
    pub protected: bool,
    /// What to do about a neighbour that is not there.
    pub on_loss: OnLoss,
    /// The rho that this study may spend at most, if less than it promises.
    pub allowance: Option<f64>,
    /// Last releases that were collected before, when the study was already finished once.
    pub finals: Vec<Vec<u8>>,
    /// Seconds since 1970, for the ledger's reader.
    pub time: u64,
}

impl Setup {
    /// What this peer may spend in each round; none without privacy.
    fn costs(&self) -> Option<Costs> {
        let schedule = self.study.schedule(self.study.privacy.as_ref()?).expect("checked with the study");
        let client = self.study.clients.get(&*self.roster.names.get(self.me));
        let factor = client.map_or(1.0, |client| self.study.budget_factor(&schedule, client));
        Some(Costs { schedule, factor })
    }

    fn limits(&self) -> Limits {
        Limits { features: self.study.features(), rounds: self.study.rounds, clients: self.roster.names.len() }
    }

    /// The ledger's record of entering the study.
    fn begin(&self, digest: &StudyDigest, costs: &Option<Costs>) -> Begin {
        let rho = costs.as_ref().map_or(0.0, Costs::total) * (1.0 + 1e-12);
        let privacy = self.study.privacy.as_ref();
        let proven = crate::privacy::Rho::new(rho).expect("a sum of checked terms");
        Begin {
            study: digest.whole(),
            name: self.study.name.clone(),
            rounds: self.study.rounds,
            features: self.study.features() as u32,
            degree: self.roster.graph.degree(self.me) as u32,
            rho,
            epsilon: privacy.map_or(0.0, |p| p.accountant.epsilon(proven, p.delta).get()),
            delta: privacy.map_or(0.0, |p| p.delta.get()),
            next_rho: costs.as_ref().map_or(0.0, |c| c.rho(1)),
            protected: self.protected,
            data: self.data_hash,
            time: self.time,
        }
    }
}

/// The schedule of one peer.
struct Costs {
    schedule: Schedule,
    /// By what this peer's phi(n) differs from the schedule's.
    factor: f64,
}

impl Costs {
    /// phi_k(n); zero after the last round.
    fn rho(&self, round: u32) -> f64 {
        if round > self.schedule.rounds() { 0.0 } else { self.schedule.phi(round).get() * self.factor }
    }

    /// All rounds, added up in the order in which the ledger adds them, so that the two are equal to the last bit.
    fn total(&self) -> f64 {
        (1..=self.schedule.rounds()).fold(0.0, |sum, n| sum + self.rho(n))
    }
}

/// How long to wait for the answer to a hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long a live neighbour may be silent before it is asked again.
const STALL: Duration = Duration::from_secs(15);
/// How long to wait before saying so.
const REPORT: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
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
    links: HashMap<Link, Connection>,
    neighbours: Vec<Neighbour>,
    /// n, the last round done.
    round: u32,
    /// w~_k(n).
    own: Vec<f64>,
    gamma: Vec<f64>,
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
    serving_reported: bool,
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
        let neighbours = setup.roster.graph.neighbours(setup.me).iter();
        let neighbours: Vec<Neighbour> = neighbours
            .map(|&id| {
                let start = chain.start(&setup.roster.ids[id as usize]);
                Neighbour::new(id, start, &limits, now)
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
            links: HashMap::new(),
            neighbours,
            round: 0,
            own: vec![0.0; limits.features],
            gamma: vec![0.0; limits.features],
            frames: Vec::new(),
            consensus: 0.0,
            progress: now,
            asked: now,
            finals: vec![None; limits.clients],
            complete: false,
            gave_up: false,
            serving_reported: false,
            news: Vec::new(),
            // Spreads reconnection attempts; nothing secret depends on it.
            jitter: Stream { trial: 0, client: 0, round: 0 }.fast(seed ^ setup.time),
            work: round::Work::default(),
            setup,
        };
        node.resume(resumed);
        Ok(node)
    }

    fn resume(&mut self, resumed: Resumed) {
        self.frames = resumed.frames;
        let mut counted = Vec::new();
        if let Some(last) = resumed.last {
            counted.extend(last.edges.iter().map(|edge| edge.neighbour));
            self.round = last.round;
            self.own = last.released;
            self.gamma = last.gamma;
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
            at(self.progress + self.patience());
            at(self.progress + REPORT);
        }
        for n in self.active().filter(|n| n.link().is_none()) {
            if !n.dialling && self.is_dialable(n.id) {
                at(n.next_dial);
            }
            let lost = n.lost_since.unwrap_or_default();
            at(lost + REPORT);
            if let OnLoss::Drop(patience) = self.setup.on_loss {
                at(lost + patience);
            }
        }
        due.max(now)
    }

    /// How long nothing may happen after the last round before this peer leaves.
    fn patience(&self) -> Duration {
        match self.setup.on_loss {
            OnLoss::Drop(patience) if !self.complete => patience,
            _ => LINGER,
        }
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

    /// gamma_k.
    pub fn dual(&self) -> &[f64] {
        &self.gamma
    }

    /// The participants.
    pub fn names(&self) -> &Names {
        &self.setup.roster.names
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

    fn up(&mut self, link: Link, peer: u32, now: Duration, net: &mut dyn Transport) {
        let Some(neighbour) = self.neighbour(peer) else {
            net.close(link, "not a neighbour in this study");
            return;
        };
        neighbour.dialling = false;
        let hello = self.hello(peer);
        self.links.insert(link, Connection { peer, greeted: false, since: now });
        net.send(link, &hello);
    }

    fn hello(&self, peer: u32) -> Outgoing {
        let neighbour = self.neighbours.iter().find(|n| n.id == peer).expect("asked for neighbours only");
        let receipt = if neighbour.round() == 0 { Receipt::default() } else { neighbour.receipts[0] };
        Hello { study: self.digest, round: self.round, receipt, dropped: neighbour.dropped }.encode()
    }

    fn down(&mut self, link: Link, reason: String, now: Duration, net: &mut dyn Transport) {
        let Some(connection) = self.links.remove(&link) else { return };
        let smaller = (self.setup.me as u32) < connection.peer;
        let pause = self.pause(if smaller { 20 } else { 300 });
        let Some(neighbour) = self.neighbour(connection.peer) else { return };
        let was_up = neighbour.link().is_some();
        neighbour.links.retain(|l| *l != link);
        if neighbour.dropped {
            return;
        }
        if neighbour.link().is_some() {
            self.send_again(connection.peer, net);
            return;
        }
        if was_up {
            neighbour.lose(now);
            neighbour.next_dial = now + pause;
            self.news.push(News::Lost(connection.peer, reason));
        } else {
            // Refused before it was greeted: no hurry to try again.
            neighbour.attempts += 1;
            neighbour.next_dial = now + LONGEST_PAUSE;
            self.news.push(News::Refused(connection.peer, reason));
        }
    }

    /// A connection ended with frames under way, and another is left: what may be lost is sent again on that one.
    fn send_again(&mut self, peer: u32, net: &mut dyn Transport) {
        let Some(neighbour) = self.neighbours.iter_mut().find(|n| n.id == peer) else { return };
        let Some(link) = neighbour.link() else { return };
        for sealed in &self.frames {
            net.send(link, sealed.frame());
        }
        neighbour.sent_finals.fill(false);
        neighbour.sent_done = false;
    }

    fn unreachable(&mut self, peer: u32, now: Duration) {
        let attempts = self.neighbour(peer).map_or(0, |n| n.attempts);
        let pause = self.pause(100 << attempts.min(6));
        let Some(neighbour) = self.neighbour(peer) else { return };
        neighbour.dialling = false;
        neighbour.attempts += 1;
        neighbour.next_dial = now + pause;
    }

    /// About so many milliseconds, up to the longest pause.
    fn pause(&mut self, milliseconds: u64) -> Duration {
        let spread = 0.5 + self.jitter.random::<f64>();
        Duration::from_millis(milliseconds).mul_f64(spread).min(LONGEST_PAUSE)
    }

    /// What is due: dials, silent hellos, stalled neighbours, patience.
    fn watch(&mut self, now: Duration, net: &mut dyn Transport) -> Result<(), Stop> {
        let silent = self.links.iter().filter(|(_, c)| !c.greeted && now >= c.since + HELLO_PATIENCE);
        for link in silent.map(|(link, _)| *link).collect::<Vec<_>>() {
            net.close(link, "no hello came");
            self.down(link, "no hello came".into(), now, net);
        }
        if now >= self.progress.max(self.asked) + STALL {
            self.asked = now;
            let stalled: Vec<_> = self.active().filter_map(|n| Some((n.link()?, n.id))).collect();
            for (link, id) in stalled {
                net.send(link, &self.hello(id));
            }
        }
        for index in 0..self.neighbours.len() {
            let (id, dialable) = (self.neighbours[index].id, self.is_dialable(self.neighbours[index].id));
            let neighbour = &mut self.neighbours[index];
            if neighbour.dropped || neighbour.link().is_some() {
                continue;
            }
            if dialable && !neighbour.dialling && now >= neighbour.next_dial {
                neighbour.dialling = true;
                net.dial(id);
            }
            let lost = neighbour.lost_since.unwrap_or(now);
            if !neighbour.reported && now >= lost + REPORT {
                neighbour.reported = true;
                self.news.push(News::Waiting(id));
            }
            let OnLoss::Drop(patience) = self.setup.on_loss else { continue };
            if now >= lost + patience && self.round < self.limits.rounds {
                self.drop_edge(index, false)?;
            }
        }
        Ok(())
    }

    /// Takes an edge out of the graph, durably.
    fn drop_edge(&mut self, index: usize, theirs: bool) -> Result<(), Stop> {
        let neighbour = self.neighbours[index].id;
        self.ledger.drop_edge(neighbour)?;
        self.forget_edge(index);
        let left = self.active().count();
        self.news.push(News::Dropped { neighbour, theirs, left });
        if left == 0 { Err(Stop::Alone) } else { Ok(()) }
    }

    /// Takes an edge's share out of the dual.
    fn forget_edge(&mut self, index: usize) {
        self.neighbours[index].dropped = true;
        let weight = self.setup.study.algorithm.dual_weight();
        for p in 0..self.limits.features {
            let sum: f64 = self.neighbours.iter().filter(|n| !n.dropped).map(|n| n.disagreement[p]).sum();
            self.gamma[p] = weight * sum;
        }
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
            Ok(Message::Done) => {
                if let Some(neighbour) = self.neighbour(peer) {
                    neighbour.done = true;
                }
                None
            }
            Err(malformed) => Some(malformed.to_string()),
        };
        if let Some(reason) = refused {
            net.close(link, &reason);
            self.down(link, format!("closed by this peer: {reason}"), now, net);
        }
        Ok(())
    }

    /// Takes in a hello; returns why the connection is to be closed, if it is.
    fn greet(&mut self, link: Link, peer: u32, hello: &Hello, net: &mut dyn Transport) -> Result<Option<String>, Stop> {
        let differences = self.digest.differences(&hello.study);
        if !differences.is_empty() {
            return Ok(Some(format!("the two studies differ in: {}", differences.join(", "))));
        }
        if let Some(reason) = self.check_receipt(peer, &hello.receipt)? {
            return Ok(Some(reason));
        }
        let index = self.neighbours.iter().position(|n| n.id == peer).expect("links are to neighbours");
        if self.neighbours[index].dropped {
            return Ok(Some("this edge was dropped".into()));
        }
        if hello.dropped {
            self.drop_edge(index, true)?;
            return Ok(Some("this edge was dropped".into()));
        }
        let oldest = self.frames.first().map_or(0, |f| f.receipt().round);
        if hello.receipt.round + 1 < oldest {
            return Ok(Some(format!("round {} is no longer kept", hello.receipt.round + 1)));
        }
        self.links.get_mut(&link).expect("looked up before").greeted = true;
        let neighbour = &mut self.neighbours[index];
        if !neighbour.links.contains(&link) {
            if neighbour.link().is_none() {
                self.news.push(News::Greeted(peer));
            }
            neighbour.links.push(link);
            neighbour.sent_finals.fill(false);
            neighbour.sent_done = false;
        }
        (neighbour.greeted, neighbour.reported) = (true, false);
        (neighbour.lost_since, neighbour.attempts) = (None, 0);
        // One side decides which of several connections stays, or each might close the other's choice.
        let superseded = if (self.setup.me as u32) < peer { neighbour.links.len() - 1 } else { 0 };
        for old in neighbour.links.drain(..superseded) {
            self.links.remove(&old);
            net.close(old, "a newer connection takes over");
        }
        for sealed in self.frames.iter().filter(|f| f.receipt().round > hello.receipt.round) {
            net.send(link, sealed.frame());
        }
        Ok(None)
    }

    /// Compares what a neighbour has of ours with the ledger.
    fn check_receipt(&self, peer: u32, receipt: &Receipt) -> Result<Option<String>, Stop> {
        if receipt.round == 0 {
            return Ok(None);
        }
        if !self.chain.is_own(&self.setup.identity, receipt) {
            return Ok(Some("a receipt for a frame that this peer never made".into()));
        }
        let neighbour = || self.setup.roster.names.get(peer as usize).into_owned();
        if receipt.round > self.round {
            return Err(Stop::Behind { neighbour: neighbour(), theirs: receipt.round, own: self.round });
        }
        let known = self.frames.iter().find(|f| f.receipt().round == receipt.round);
        if known.is_some_and(|frame| frame.receipt().head != receipt.head) {
            return Err(Stop::Forked { neighbour: neighbour(), round: receipt.round });
        }
        Ok(None)
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
                self.news.push(News::Conflict(conflict));
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
