//! The connections of a world, and what goes wrong on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::message::Outgoing;
use undertone_core::node::{Link, Transport};

use super::Faults;
use super::agenda::{Agenda, Happening};

/// What a node asks of the network.
pub(super) enum Action {
    Dial(u32),
    Send(Link, Arc<[u8]>),
    Close(Link, String),
}

/// Collects what a node asks for while it handles an event.
pub(super) struct Wire<'a>(pub &'a mut Vec<Action>);

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

/// What an attacker can do: send any bytes.
pub struct Wires<'a>(pub(super) &'a mut Vec<Action>);

impl Wires<'_> {
    /// Sends bytes as a frame.
    pub fn send(&mut self, link: Link, frame: Vec<u8>) {
        self.0.push(Action::Send(link, frame.into()));
    }
}

/// A connection: the node at each end, unless it has ended, and when the last frame to each arrives.
struct Cable {
    ends: [Option<usize>; 2],
    last: [Duration; 2],
}

/// One end of a connection, as the node there knows it.
fn end_of(link: u64, side: usize) -> Link {
    Link(2 * link + side as u64)
}

/// All connections.
pub(super) struct Cables {
    nodes: usize,
    faults: Faults,
    rng: Xoshiro256PlusPlus,
    cables: BTreeMap<u64, Cable>,
    next_link: u64,
    /// During a split, which nodes are on which side.
    sides: Option<Vec<bool>>,
    pub agenda: Agenda,
}

impl Cables {
    pub fn new(nodes: usize, faults: Faults, seed: u64) -> Self {
        Self {
            nodes,
            faults,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            cables: BTreeMap::new(),
            next_link: 0,
            sides: None,
            agenda: Agenda::default(),
        }
    }

    /// The end of a connection at a node, unless it is gone.
    pub fn end(&self, link: u64, node: usize) -> Option<Link> {
        let side = self.cables.get(&link)?.ends.iter().position(|end| *end == Some(node))?;
        Some(end_of(link, side))
    }

    /// The node at the other end of a connection.
    pub fn other(&self, end: Link) -> Option<usize> {
        self.cables.get(&(end.0 / 2))?.ends[1 - end.0 as usize % 2]
    }

    /// How long a node that died stays away.
    pub fn absence(&mut self) -> Duration {
        self.faults.away.mul_f64(self.rng.random())
    }

    /// The network is no longer split.
    pub fn heal(&mut self) {
        self.sides = None;
    }

    /// The connections of a dead node go silent. The other ends notice after a while.
    pub fn unplug(&mut self, node: usize) {
        let dead: Vec<u64> =
            self.cables.iter().filter(|(_, c)| c.ends.contains(&Some(node))).map(|(l, _)| *l).collect();
        for link in dead {
            let cable = self.cables.get_mut(&link).expect("just listed");
            let side = usize::from(cable.ends[1] == Some(node));
            // Nothing arrives at the dead end, even if the node is back before the cable is gone.
            cable.ends[side] = None;
            if let Some(other) = cable.ends[1 - side] {
                self.plan(self.faults.silence, Happening::Down { node: other, link, reason: "silent".into() });
            }
        }
    }

    /// A node ends its connections after its last frames.
    pub fn leave(&mut self, node: usize) {
        let mut ends: Vec<Link> = Vec::new();
        for (link, cable) in &self.cables {
            ends.extend(cable.ends.iter().position(|end| *end == Some(node)).map(|side| end_of(*link, side)));
        }
        ends.into_iter().for_each(|end| self.close(end, "finished".into()));
    }

    /// Connects a node to a peer, which is reached only if it is alive.
    pub fn dial(&mut self, k: usize, peer: u32, is_alive: bool) {
        let delay = self.delay(k);
        let other = peer as usize;
        if !is_alive || self.is_split(k, other) {
            return self.plan(delay + Duration::from_millis(50), Happening::Unreachable { node: k, peer });
        }
        let link = self.next_link;
        self.next_link += 1;
        let now = self.agenda.now();
        self.cables.insert(link, Cable { ends: [Some(k), Some(other)], last: [now; 2] });
        self.plan(delay, Happening::Up { node: k, link, peer });
        self.plan(delay, Happening::Up { node: other, link, peer: k as u32 });
    }

    /// Closes one end of a connection.
    pub fn close(&mut self, end: Link, reason: String) {
        let (link, side) = (end.0 / 2, end.0 as usize % 2);
        let Some(cable) = self.cables.get_mut(&link) else { return };
        cable.ends[side] = None;
        // The other end is told after the frames that are on their way.
        let after = cable.last[1 - side].saturating_sub(self.agenda.now()) + self.faults.latency.0;
        if let Some(other) = cable.ends[1 - side] {
            self.plan(after, Happening::Down { node: other, link, reason });
        }
    }

    /// Carries a frame, if nothing goes wrong.
    pub fn carry(&mut self, k: usize, end: Link, frame: Arc<[u8]>) {
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
            let sides = (0..self.nodes).map(|_| self.rng.random()).collect();
            self.sides = Some(sides);
            let length = Duration::from_secs(20).mul_f64(self.rng.random());
            self.plan(length, Happening::Heal);
        }
        let corrupt = self.faults.corrupt.filter(|(node, _)| *node == k).map_or(0.0, |(_, share)| share);
        let again = if self.chance(corrupt) { self.changed(&frame) } else { frame.clone() };
        let frame = if self.chance(corrupt) { self.changed(&frame) } else { frame };
        let delay = self.delay(k);
        let now = self.agenda.now();
        let mut at = now + delay;
        if !self.chance(self.faults.reordering) {
            at = at.max(last[1 - side]);
            self.cables.get_mut(&link).expect("looked up before").last[1 - side] = at;
        }
        if self.chance(self.faults.duplication) {
            self.plan(at - now, Happening::Frame { node: other, link, frame: again });
        }
        self.plan(at - now, Happening::Frame { node: other, link, frame });
    }

    /// A frame with some of its bytes changed.
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

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.agenda.plan(after, happening);
    }
}
