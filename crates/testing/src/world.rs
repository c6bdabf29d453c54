//! A complete network in one thread and in virtual time: many nodes, a seed, and faults.
//!
//! Without [`Faults`] it is the in-memory transport of measurements. With them it loses, doubles, reorders and delays
//! frames, cuts connections, splits the network, kills nodes in the middle of a write and starts them again, always the
//! same way for the same seed.

mod agenda;
mod network;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use undertone_core::identity::Identity;
use undertone_core::ledger::LedgerError;
use undertone_core::node::{Event, News, Node, NodeSetup, OnLoss, Roster, RosterError, Stop};
use undertone_core::privacy::{Noise, Spent};
use undertone_core::records::Dataset;
use undertone_core::study::Study;

use crate::disk::SimDisk;
use agenda::Happening;
use network::{Action, Cables, Wire};

pub use network::Wires;

/// What goes wrong, and how often.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Least and most time that a frame takes.
    pub latency: (Duration, Duration),
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplication: f64,
    /// Probability that a frame overtakes those before it.
    pub reordering: f64,
    /// Probability, per frame, that its connection is cut.
    pub cut: f64,
    /// Probability, per write, that the node is killed in the middle of it.
    pub crash: f64,
    /// How long a killed node is down, at most.
    pub away: Duration,
    /// How long others take to notice that a node was killed.
    pub silence: Duration,
    /// Probability, per frame, that the network splits in two for a while.
    pub partition: f64,
    /// A node whose frames are modified, and how often.
    pub corrupt: Option<(usize, f64)>,
    /// Nodes that take this much longer for everything they send.
    pub slow: BTreeMap<usize, Duration>,
}

/// The peers of a study in one process.
pub struct Cohort {
    /// The study.
    pub study: Arc<Study>,
    /// Its peers.
    pub roster: Arc<Roster>,
    /// Their keys.
    pub identities: Vec<Arc<Identity>>,
    /// Their records.
    pub data: Vec<Dataset>,
    /// What they do about a neighbour that is not connected.
    pub on_loss: OnLoss,
    /// The noise of a node on its n-th start.
    pub noise: fn(study: &Study, node: usize, start: u32) -> Option<Noise>,
    /// How many of them, the first ones, wait forever, whatever `on_loss` is.
    pub waiting: usize,
    /// What each may spend at most, if less than the study's budget.
    pub allowance: Option<Spent>,
    /// One node with a different study.
    pub odd: Option<(usize, Arc<Study>)>,
    /// The clock when the simulation starts, in seconds since 1970.
    pub clock: i64,
}

impl Cohort {
    /// The peers of a study with the simulator's noise; all wait for lost neighbours, and the clock starts at zero.
    pub fn new(study: Study, identities: Vec<Arc<Identity>>, data: Vec<Dataset>) -> Result<Self, RosterError> {
        Ok(Self {
            roster: Arc::new(Roster::new(&study, true)?),
            study: Arc::new(study),
            identities,
            data,
            on_loss: OnLoss::Wait,
            noise: |study, _, _| study.noise(),
            waiting: 0,
            allowance: None,
            odd: None,
            clock: 0,
        })
    }

    /// The setup of a node on its n-th start.
    pub fn setup(&self, me: usize, start: u32) -> NodeSetup {
        NodeSetup {
            study: self.odd.iter().find(|odd| odd.0 == me).map_or(&self.study, |odd| &odd.1).clone(),
            roster: self.roster.clone(),
            me,
            identity: self.identities[me].clone(),
            data: self.data[me].clone(),
            data_hash: [me as u8; 32],
            noise: (self.noise)(&self.study, me, start),
            on_loss: if me < self.waiting { OnLoss::Wait } else { self.on_loss },
            allowance: self.allowance,
            finals: Vec::new(),
            time: self.clock.saturating_add(start.into()).max(0) as u64,
            nonce: (me as u64) << 32 | u64::from(start),
        }
    }
}

/// Whatever sits at a peer's address with the peer's key.
pub trait Attacker {
    /// Does something about an event.
    fn handle(&mut self, event: Event, wires: &mut Wires);
}

/// Alters frames on their way: called with the sender, the receiver and a frame, it says what is carried instead.
pub type Tamper = Box<dyn FnMut(usize, usize, &[u8]) -> Vec<Vec<u8>>>;

/// A node, and what remains of it after it was killed.
struct Place {
    node: Option<Node<SimDisk>>,
    /// A node that has finished and exited.
    finished: Option<Node<SimDisk>>,
    disk: SimDisk,
    /// The last releases and votes that it has written down.
    finals: Vec<Vec<u8>>,
    starts: u32,
    ticking: Duration,
    /// Whether it does nothing more, while its connections stay.
    hangs: bool,
    /// Who is there in its place.
    attacker: Option<Box<dyn Attacker>>,
    /// Whether it ended because somebody told two stories.
    objects: bool,
}

/// A function that is called with every frame that a node sends.
pub type Spy = Box<dyn FnMut(usize, &[u8])>;

/// A network in virtual time.
pub struct World {
    cohort: Cohort,
    network: Cables,
    places: Vec<Place>,
    actions: Vec<Action>,
    /// Called with every frame that a node sends.
    pub spy: Option<Spy>,
    /// Alters what nodes send.
    pub tamper: Option<Tamper>,
    /// Whether a node that sees two stories of a peer ends, as a peer does unless it is told otherwise.
    pub objections: bool,
    /// What the nodes reported.
    pub news: Vec<(usize, News)>,
    /// How often nodes were killed.
    pub crashes: u32,
}

impl World {
    /// All nodes, not started yet.
    pub fn new(cohort: Cohort, faults: Faults, seed: u64) -> Self {
        let count = cohort.roster.names.len();
        let place = |k: usize| Place {
            node: None,
            finished: None,
            disk: SimDisk::new(seed ^ (k as u64) << 32, faults.crash),
            finals: Vec::new(),
            starts: 0,
            ticking: Duration::MAX,
            hangs: false,
            attacker: None,
            objects: false,
        };
        let mut world = Self {
            places: (0..count).map(place).collect(),
            cohort,
            network: Cables::new(count, faults, seed),
            actions: Vec::new(),
            spy: None,
            tamper: None,
            objections: false,
            news: Vec::new(),
            crashes: 0,
        };
        (0..count).for_each(|node| world.plan(Duration::ZERO, Happening::Start { node }));
        world
    }

    /// A node that has finished and exited.
    pub fn finished(&self, k: usize) -> Option<&Node<SimDisk>> {
        self.places[k].finished.as_ref()
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.network.agenda.now()
    }

    /// The peers, to change something between two starts.
    pub fn cohort_mut(&mut self) -> &mut Cohort {
        &mut self.cohort
    }

    /// A node that is running, or has finished and exited.
    pub fn node(&self, k: usize) -> Option<&Node<SimDisk>> {
        self.places[k].node.as_ref().or(self.places[k].finished.as_ref())
    }

    /// The state of every node, for the message of a test that failed.
    pub fn summary(&self) -> String {
        let place = |(k, p): (usize, &Place)| {
            let state = if p.finished.is_some() {
                "left"
            } else if p.node.is_some() {
                "alive"
            } else {
                "dead"
            };
            let node = self.node(k);
            let finals = node.map_or(0, |n| n.finals().len());
            let links: Vec<_> = node.into_iter().flat_map(|n| n.neighbours()).collect();
            format!("{k} {state} at {:?} with {finals} finals and neighbours {links:?}", node.map(Node::round))
        };
        self.places.iter().enumerate().map(place).collect::<Vec<_>>().join("; ")
    }

    /// Kills a node; [`World::start`] starts it again.
    pub fn kill(&mut self, node: usize) {
        if self.places[node].node.take().is_some() {
            self.network.unplug(node);
        }
    }

    /// From now on a node does nothing, as one whose disk does not answer; its connections stay.
    pub fn hang(&mut self, node: usize) {
        self.places[node].hangs = true;
    }

    /// Kills a node for good; an attacker takes its place and its key.
    pub fn attack(&mut self, node: usize, attacker: Box<dyn Attacker>) {
        self.kill(node);
        self.places[node].attacker = Some(attacker);
    }

    /// A node's disk, also when the node is down.
    pub fn disk(&self, node: usize) -> &SimDisk {
        &self.places[node].disk
    }

    /// Starts a killed node after some time.
    pub fn start(&mut self, node: usize, after: Duration) {
        self.plan(after, Happening::Start { node });
    }

    /// Advances time until all nodes are finished or `limit` is reached; an error names the node that stopped and why.
    pub fn run(&mut self, limit: Duration) -> Result<bool, (usize, Stop)> {
        self.run_until(limit, |world| {
            world.places.iter().all(|p| p.finished.is_some() || p.attacker.is_some() || p.objects)
        })
    }

    /// Advances time until `done` holds or `limit` is reached.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<bool, (usize, Stop)> {
        while !done(self) {
            match self.network.agenda.next(limit) {
                Some(happening) => self.happen(happening)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.network.agenda.plan(after, happening);
    }

    fn happen(&mut self, happening: Happening) -> Result<(), (usize, Stop)> {
        match happening {
            Happening::Start { node } => self.wake(node),
            Happening::Heal => {
                self.network.heal();
                Ok(())
            }
            Happening::Up { node, link, peer } => match self.network.end(link, node) {
                Some(link) => self.handle(node, Event::Up { link, peer }),
                None => Ok(()),
            },
            Happening::Frame { node, link, frame } => match self.network.end(link, node) {
                Some(link) => self.handle(node, Event::Frame { link, frame: &frame }),
                None => Ok(()),
            },
            Happening::Down { node, link, reason } => match self.network.end(link, node) {
                Some(link) => self.handle(node, Event::Down { link, reason }),
                None => Ok(()),
            },
            Happening::Unreachable { node, peer } => {
                self.handle(node, Event::Unreachable { peer, reason: "not alive".into() })
            }
            Happening::Tick { node } => {
                self.places[node].ticking = Duration::MAX;
                self.handle(node, Event::Tick)
            }
        }
    }

    fn wake(&mut self, node: usize) -> Result<(), (usize, Stop)> {
        let place = &mut self.places[node];
        if place.node.is_some() || place.attacker.is_some() || place.objects {
            return Ok(());
        }
        place.starts += 1;
        let finals = place.finals.clone();
        let setup = NodeSetup { finals, ..self.cohort.setup(node, place.starts) };
        match Node::new(setup, place.disk.clone(), self.network.agenda.now()) {
            Ok(alive) => place.node = Some(alive),
            Err(Stop::Ledger(LedgerError::Disk(..))) => return self.died(node),
            Err(stop) => return Err((node, stop)),
        }
        self.handle(node, Event::Tick)
    }

    fn died(&mut self, node: usize) -> Result<(), (usize, Stop)> {
        self.crashes += 1;
        self.network.unplug(node);
        let away = self.network.absence();
        self.start(node, away);
        Ok(())
    }

    fn handle(&mut self, k: usize, event: Event) -> Result<(), (usize, Stop)> {
        let now = self.now();
        if self.places[k].hangs {
            return Ok(());
        }
        if let Some(attacker) = &mut self.places[k].attacker {
            let mut actions = Vec::new();
            attacker.handle(event, &mut Wires(&mut actions));
            actions.into_iter().for_each(|action| self.act(k, action));
            return Ok(());
        }
        let Place { node: Some(node), finals, .. } = &mut self.places[k] else { return Ok(()) };
        let mut actions = std::mem::take(&mut self.actions);
        let mut result = node.handle(event, now, &mut Wire(&mut actions));
        let mut news = node.take_news();
        let is_written =
            |news: &[News]| news.iter().any(|n| matches!(n, News::Voted | News::Agreed(_) | News::GaveUp(_)));
        let mut fresh = is_written(&news);
        while result.is_ok() && fresh {
            // Results are on disk at once here.
            *finals = node.final_frames().map(<[u8]>::to_vec).collect();
            node.saved();
            result = node.handle(Event::Tick, now, &mut Wire(&mut actions));
            let more = node.take_news();
            fresh = is_written(&more);
            news.extend(more);
        }
        let objects = self.objections && news.iter().any(|n| matches!(n, News::Conflict(_)));
        self.news.extend(news.into_iter().filter(|n| !matches!(n, News::Round(_))).map(|n| (k, n)));
        let deadline = node.deadline(now);
        let finished = node.is_finished(now);
        for action in actions.drain(..) {
            self.act(k, action);
        }
        self.actions = actions;
        match result {
            Ok(()) if objects => {
                self.places[k].node = None;
                self.places[k].objects = true;
                self.network.leave(k);
                Ok(())
            }
            Ok(()) if finished => {
                self.places[k].finished = self.places[k].node.take();
                self.network.leave(k);
                Ok(())
            }
            Ok(()) => {
                let place = &mut self.places[k];
                if deadline < place.ticking {
                    place.ticking = deadline;
                    self.plan(deadline.saturating_sub(now), Happening::Tick { node: k });
                }
                Ok(())
            }
            Err(Stop::Ledger(LedgerError::Disk(..))) => {
                self.places[k].node = None;
                self.died(k)
            }
            Err(stop) => Err((k, stop)),
        }
    }

    fn act(&mut self, k: usize, action: Action) {
        match action {
            Action::Dial(peer) => {
                let place = &self.places[peer as usize];
                let is_alive = place.node.is_some() || place.attacker.is_some();
                self.network.dial(k, peer, is_alive);
            }
            Action::Close(end, reason) => self.network.close(end, reason),
            Action::Send(end, frame) => {
                if let Some(spy) = &mut self.spy {
                    spy(k, &frame);
                }
                match (&mut self.tamper, self.network.other(end)) {
                    (Some(tamper), Some(other)) => {
                        let told = tamper(k, other, &frame);
                        told.into_iter().for_each(|frame| self.network.carry(k, end, frame.into()));
                    }
                    _ => self.network.carry(k, end, frame),
                }
            }
        }
    }
}
