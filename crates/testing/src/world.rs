//! A whole network in one thread and in virtual time: many nodes, a seed, and whatever can go wrong.
//!
//! Without [`Faults`] it is the in-memory transport of measurements. With them it loses, doubles, reorders and delays
//! frames, cuts connections, splits the network, kills nodes in the middle of a write and starts them again, always the
//! same way for the same seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::identity::Identity;
use undertone_core::ledger::LedgerError;
use undertone_core::message::Outgoing;
use undertone_core::node::{Event, Link, News, Node, OnLoss, Roster, RosterError, Setup, Stop, Transport};
use undertone_core::privacy::Noise;
use undertone_core::records::Dataset;
use undertone_core::study::Study;

use crate::disk::SimDisk;

/// What goes wrong, and how often.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Least and most time that a frame takes.
    pub latency: (Duration, Duration),
    /// Probability that a frame vanishes.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplication: f64,
    /// Probability that a frame overtakes those before it.
    pub reordering: f64,
    /// Probability, per frame, that its connection is cut.
    pub cut: f64,
    /// Probability, per durable write, that the node dies in the middle of it.
    pub crash: f64,
    /// How long a dead node stays away, at most.
    pub away: Duration,
    /// How long others take to notice that a node died.
    pub silence: Duration,
    /// Probability, per frame, that the network splits in two for a while.
    pub partition: f64,
    /// A node whose frames arrive changed, and how often.
    pub liar: Option<(usize, f64)>,
    /// Nodes that take this much longer for everything they send.
    pub slow: BTreeMap<usize, Duration>,
}

/// The parties of a study in one process.
pub struct Cohort {
    /// The study.
    pub study: Arc<Study>,
    /// Its participants.
    pub roster: Arc<Roster>,
    /// Their keys.
    pub identities: Vec<Arc<Identity>>,
    /// Their records.
    pub data: Vec<Dataset>,
    /// What they do about a neighbour that is not there.
    pub on_loss: OnLoss,
    /// The noise of a node on its n-th start.
    pub noise: fn(study: &Study, node: usize, start: u32) -> Noise,
    /// How many of them, the first ones, wait for ever whatever `on_loss` says.
    pub waiting: usize,
    /// What each may spend at most, if less than the study promises.
    pub allowance: Option<f64>,
    /// One node that holds another study.
    pub odd: Option<(usize, Arc<Study>)>,
    /// The clock when the world begins, in seconds since 1970.
    pub clock: i64,
}

impl Cohort {
    /// The parties of a study with the simulator's noise, all of them patient, at a clock that begins at zero.
    pub fn new(study: Study, identities: Vec<Arc<Identity>>, data: Vec<Dataset>) -> Result<Self, RosterError> {
        Ok(Self {
            roster: Arc::new(Roster::new(&study, true)?),
            study: Arc::new(study),
            identities,
            data,
            on_loss: OnLoss::Wait,
            noise: |study, _, _| Noise::fast(study.seed),
            waiting: 0,
            allowance: None,
            odd: None,
            clock: 0,
        })
    }

    /// What a node is made of on its n-th start.
    pub fn setup(&self, me: usize, start: u32) -> Setup {
        Setup {
            study: self.odd.iter().find(|odd| odd.0 == me).map_or(&self.study, |odd| &odd.1).clone(),
            roster: self.roster.clone(),
            me,
            identity: self.identities[me].clone(),
            data: self.data[me].clone(),
            data_hash: [me as u8; 32],
            noise: (self.noise)(&self.study, me, start),
            protected: true,
            on_loss: if me < self.waiting { OnLoss::Wait } else { self.on_loss },
            allowance: self.allowance,
            finals: Vec::new(),
            time: self.clock.saturating_add(start.into()).max(0) as u64,
        }
    }
}

enum Happening {
    Up { node: usize, link: u64, peer: u32 },
    Frame { node: usize, link: u64, frame: Arc<[u8]> },
    Down { node: usize, link: u64, reason: String },
    Unreachable { node: usize, peer: u32 },
    Tick { node: usize },
    Start { node: usize },
    Heal,
}

/// Ordered by time, then by when it was planned.
struct Planned(Duration, u64, Happening);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

enum Action {
    Dial(u32),
    Send(Link, Arc<[u8]>),
    Close(Link, String),
}

/// Collects what a node asks for while it handles an event.
struct Wire<'a>(&'a mut Vec<Action>);

impl Transport for Wire<'_> {
    fn dial(&mut self, peer: u32) {
        self.0.push(Action::Dial(peer));
    }
    fn send(&mut self, link: Link, frame: &Outgoing) {
        self.0.push(Action::Send(link, frame.shared()));
    }
    fn close(&mut self, link: Link, reason: &str) {
        self.0.push(Action::Close(link, reason.into()));
    }
}

/// A connection: who is at either end, unless it is gone, and when the last frame to each arrives.
struct Cable {
    ends: [Option<usize>; 2],
    last: [Duration; 2],
}

/// One end of a connection, as the node there knows it.
fn end_of(link: u64, side: usize) -> Link {
    Link(2 * link + side as u64)
}

/// A node and what is left of it when it is dead.
struct Place {
    node: Option<Node<SimDisk>>,
    /// A node that has finished and left.
    finished: Option<Node<SimDisk>>,
    disk: SimDisk,
    starts: u32,
    ticking: Duration,
}

/// Somebody who is told of every frame that a node sends.
pub type Spy = Box<dyn FnMut(usize, &[u8])>;

/// A network in virtual time.
pub struct World {
    cohort: Cohort,
    faults: Faults,
    rng: Xoshiro256PlusPlus,
    now: Duration,
    planned: BinaryHeap<Reverse<Planned>>,
    sequence: u64,
    cables: BTreeMap<u64, Cable>,
    next_link: u64,
    places: Vec<Place>,
    /// During a split, who is on which side.
    sides: Option<Vec<bool>>,
    actions: Vec<Action>,
    /// Called with every frame that a node sends.
    pub spy: Option<Spy>,
    /// What the nodes told.
    pub news: Vec<(usize, News)>,
    /// How often nodes died.
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
            starts: 0,
            ticking: Duration::MAX,
        };
        let mut world = Self {
            places: (0..count).map(place).collect(),
            cohort,
            faults,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Duration::ZERO,
            planned: BinaryHeap::new(),
            sequence: 0,
            cables: BTreeMap::new(),
            next_link: 0,
            sides: None,
            actions: Vec::new(),
            spy: None,
            news: Vec::new(),
            crashes: 0,
        };
        (0..count).for_each(|node| world.plan(Duration::ZERO, Happening::Start { node }));
        world
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The parties, to change something between two starts.
    pub fn cohort_mut(&mut self) -> &mut Cohort {
        &mut self.cohort
    }

    /// A node that is alive, or has finished and left.
    pub fn node(&self, k: usize) -> Option<&Node<SimDisk>> {
        self.places[k].node.as_ref().or(self.places[k].finished.as_ref())
    }

    /// Where everybody stands, for the message of a test that failed.
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

    /// Kills a node; it comes back when [`World::start`] says so.
    pub fn kill(&mut self, node: usize) {
        if self.places[node].node.take().is_some() {
            self.unplug(node);
        }
    }

    /// A node's disk, also when the node is dead.
    pub fn disk(&self, node: usize) -> &SimDisk {
        &self.places[node].disk
    }

    /// Starts a dead node after some time.
    pub fn start(&mut self, node: usize, after: Duration) {
        self.plan(after, Happening::Start { node });
    }

    /// Lets time pass until all nodes are finished or `limit` is reached; an error names who stopped and why.
    pub fn run(&mut self, limit: Duration) -> Result<bool, (usize, Stop)> {
        self.run_until(limit, |world| world.places.iter().all(|p| p.finished.is_some()))
    }

    /// Lets time pass until `done` holds or `limit` is reached.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<bool, (usize, Stop)> {
        while !done(self) {
            match self.planned.pop() {
                Some(Reverse(Planned(at, _, happening))) if at <= limit => {
                    self.now = at;
                    self.happen(happening)?;
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.planned.push(Reverse(Planned(self.now + after, self.sequence, happening)));
    }

    fn happen(&mut self, happening: Happening) -> Result<(), (usize, Stop)> {
        match happening {
            Happening::Start { node } => self.wake(node),
            Happening::Heal => {
                self.sides = None;
                Ok(())
            }
            Happening::Up { node, link, peer } => match self.side(link, node) {
                Some(side) => self.handle(node, Event::Up { link: end_of(link, side), peer }),
                None => Ok(()),
            },
            Happening::Frame { node, link, frame } => match self.side(link, node) {
                Some(side) => self.handle(node, Event::Frame { link: end_of(link, side), frame: &frame }),
                None => Ok(()),
            },
            Happening::Down { node, link, reason } => match self.side(link, node) {
                Some(side) => self.handle(node, Event::Down { link: end_of(link, side), reason }),
                None => Ok(()),
            },
            Happening::Unreachable { node, peer } => {
                self.handle(node, Event::Unreachable { peer, reason: "nobody there".into() })
            }
            Happening::Tick { node } => {
                self.places[node].ticking = Duration::MAX;
                self.handle(node, Event::Tick)
            }
        }
    }

    fn side(&self, link: u64, node: usize) -> Option<usize> {
        self.cables.get(&link)?.ends.iter().position(|end| *end == Some(node))
    }

    fn wake(&mut self, node: usize) -> Result<(), (usize, Stop)> {
        let place = &mut self.places[node];
        if place.node.is_some() {
            return Ok(());
        }
        place.starts += 1;
        let setup = self.cohort.setup(node, place.starts);
        match Node::new(setup, place.disk.clone(), self.now) {
            Ok(alive) => place.node = Some(alive),
            Err(Stop::Ledger(LedgerError::Disk(..))) => return self.died(node),
            Err(stop) => return Err((node, stop)),
        }
        self.handle(node, Event::Tick)
    }

    fn died(&mut self, node: usize) -> Result<(), (usize, Stop)> {
        self.crashes += 1;
        self.unplug(node);
        let away = self.faults.away.mul_f64(self.rng.random());
        self.start(node, away);
        Ok(())
    }

    /// The connections of a dead node go silent; the other ends notice in time.
    fn unplug(&mut self, node: usize) {
        let dead: Vec<u64> =
            self.cables.iter().filter(|(_, c)| c.ends.contains(&Some(node))).map(|(l, _)| *l).collect();
        for link in dead {
            let cable = self.cables.get_mut(&link).expect("just listed");
            let side = usize::from(cable.ends[1] == Some(node));
            // The dead end hears nothing any more, even if the node is back before the cable is gone.
            cable.ends[side] = None;
            if let Some(other) = cable.ends[1 - side] {
                self.plan(self.faults.silence, Happening::Down { node: other, link, reason: "silent".into() });
            }
        }
    }

    /// A node ends its connections after its last frames.
    fn leave(&mut self, node: usize) {
        let mut ends: Vec<Link> = Vec::new();
        for (link, cable) in &self.cables {
            ends.extend(cable.ends.iter().position(|end| *end == Some(node)).map(|side| end_of(*link, side)));
        }
        ends.into_iter().for_each(|end| self.act(node, Action::Close(end, "finished".into())));
    }

    fn handle(&mut self, k: usize, event: Event) -> Result<(), (usize, Stop)> {
        let Some(node) = self.places[k].node.as_mut() else { return Ok(()) };
        let mut actions = std::mem::take(&mut self.actions);
        let mut result = node.handle(event, self.now, &mut Wire(&mut actions));
        let mut news = node.take_news();
        if result.is_ok() && news.iter().any(|n| matches!(n, News::Complete | News::GaveUp(_))) {
            // Results are on disk at once here.
            node.saved();
            result = node.handle(Event::Tick, self.now, &mut Wire(&mut actions));
            news.extend(node.take_news());
        }
        self.news.extend(news.into_iter().filter(|n| !matches!(n, News::Round(_))).map(|n| (k, n)));
        let deadline = node.deadline(self.now);
        let finished = node.is_finished(self.now);
        for action in actions.drain(..) {
            self.act(k, action);
        }
        self.actions = actions;
        match result {
            Ok(()) if finished => {
                self.places[k].finished = self.places[k].node.take();
                self.leave(k);
                Ok(())
            }
            Ok(()) => {
                let place = &mut self.places[k];
                if deadline < place.ticking {
                    place.ticking = deadline;
                    self.plan(deadline.saturating_sub(self.now), Happening::Tick { node: k });
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
                let delay = self.delay(k);
                let other = peer as usize;
                if self.places[other].node.is_none() || self.is_split(k, other) {
                    return self.plan(delay + Duration::from_millis(50), Happening::Unreachable { node: k, peer });
                }
                let link = self.next_link;
                self.next_link += 1;
                self.cables.insert(link, Cable { ends: [Some(k), Some(other)], last: [self.now; 2] });
                self.plan(delay, Happening::Up { node: k, link, peer });
                self.plan(delay, Happening::Up { node: other, link, peer: k as u32 });
            }
            Action::Close(end, reason) => {
                let (link, side) = (end.0 / 2, end.0 as usize % 2);
                let Some(cable) = self.cables.get_mut(&link) else { return };
                cable.ends[side] = None;
                // After the frames that are under way, as a connection that says goodbye.
                let after = cable.last[1 - side].saturating_sub(self.now) + self.faults.latency.0;
                if let Some(other) = cable.ends[1 - side] {
                    self.plan(after, Happening::Down { node: other, link, reason });
                }
            }
            Action::Send(end, frame) => self.carry(k, end, frame),
        }
    }

    fn carry(&mut self, k: usize, end: Link, frame: Arc<[u8]>) {
        if let Some(spy) = &mut self.spy {
            spy(k, &frame);
        }
        let (link, side) = (end.0 / 2, end.0 as usize % 2);
        let Some(&Cable { ends, last }) = self.cables.get(&link) else { return };
        let Some(other) = ends[1 - side] else { return };
        if self.is_split(k, other) || self.chance(self.faults.loss) {
            return;
        }
        if self.chance(self.faults.cut) {
            for (node, after) in [(k, Duration::ZERO), (other, self.faults.silence)] {
                self.plan(after, Happening::Down { node, link, reason: "cut".into() });
            }
            return;
        }
        if self.chance(self.faults.partition) {
            let sides = (0..self.places.len()).map(|_| self.rng.random()).collect();
            self.sides = Some(sides);
            let length = Duration::from_secs(20).mul_f64(self.rng.random());
            self.plan(length, Happening::Heal);
        }
        let liar = self.faults.liar.filter(|liar| liar.0 == k).map_or(0.0, |liar| liar.1);
        let again = if self.chance(liar) { self.changed(&frame) } else { frame.clone() };
        let frame = if self.chance(liar) { self.changed(&frame) } else { frame };
        let delay = self.delay(k);
        let mut at = self.now + delay;
        if !self.chance(self.faults.reordering) {
            at = at.max(last[1 - side]);
            self.cables.get_mut(&link).expect("looked up before").last[1 - side] = at;
        }
        if self.chance(self.faults.duplication) {
            self.plan(at - self.now, Happening::Frame { node: other, link, frame: again });
        }
        self.plan(at - self.now, Happening::Frame { node: other, link, frame });
    }

    /// Something like a frame.
    fn changed(&mut self, frame: &[u8]) -> Arc<[u8]> {
        let mut bytes = frame.to_vec();
        for _ in 0..self.rng.random_range(1..4) {
            let at = self.rng.random_range(0..bytes.len());
            match self.rng.random_range(0..4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.insert(at, self.rng.random()),
                2 => bytes[at] ^= 1 << self.rng.random_range(0..8u8),
                // In the head, where kinds, rounds and flags are.
                _ => bytes[at % 12] = self.rng.random(),
            }
            bytes.resize(bytes.len().max(12), 0);
        }
        bytes.into()
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random::<f64>() < probability
    }

    fn delay(&mut self, k: usize) -> Duration {
        let (least, most) = self.faults.latency;
        let slow = self.faults.slow.get(&k).copied().unwrap_or_default();
        if most > least { slow + least + (most - least).mul_f64(self.rng.random()) } else { slow + least }
    }

    fn is_split(&self, a: usize, b: usize) -> bool {
        self.sides.as_ref().is_some_and(|sides| sides[a] != sides[b])
    }
}
