//! All connections of a node: which exist, which are greeted, and whom to dial when.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::contact::{Contact, LONGEST_PAUSE};
use super::context::Context;
use super::events::{Deadline, Effects};
use super::{Link, OnLoss};
use crate::privacy::Stream;

/// How long to wait for the answer to a hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing may arrive before connected neighbours are asked again.
const STALL: Duration = Duration::from_secs(15);
/// Connections that one neighbour may have at a time. Two dials that cross make two, and a restart on either side a
/// third.
const MOST_LINKS: usize = 4;

/// A connection that is up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    /// The peer at the other end.
    pub peer: u32,
    /// Whether a valid hello has arrived on it.
    pub is_greeted: bool,
    since: Duration,
}

/// The connections of a node, and one [`Contact`] for each neighbour in the study's graph.
pub(super) struct Links {
    me: u32,
    on_loss: OnLoss,
    connections: BTreeMap<Link, Connection>,
    contacts: BTreeMap<u32, Contact>,
    /// When connected neighbours were last asked again.
    asked: Duration,
    /// Spreads attempts to connect. Nothing secret depends on it.
    jitter: Xoshiro256PlusPlus,
}

impl Links {
    pub fn new(context: &Context, now: Duration) -> Self {
        let setup = &context.setup;
        let seed = u64::from_le_bytes(*setup.identity.id().as_bytes().first_chunk().expect("32 bytes"));
        let contact = |&id: &u32| (id, Contact::new(id, context.is_dialable(id), now));
        Self {
            me: context.me(),
            on_loss: setup.on_loss,
            connections: BTreeMap::new(),
            contacts: context.neighbours().iter().map(contact).collect(),
            asked: now,
            jitter: Stream { trial: 0, client: 0, round: 0 }.fast(seed ^ setup.time),
        }
    }

    /// Whether a peer is a neighbour in the study's graph.
    pub fn is_neighbour(&self, peer: u32) -> bool {
        self.contacts.contains_key(&peer)
    }

    /// A connection to a neighbour exists. Returns the neighbour's oldest connection if it now has too many.
    pub fn handle_up(&mut self, link: Link, peer: u32, now: Duration) -> Option<Link> {
        self.contacts.get_mut(&peer)?.handle_up(now);
        let mut of_peer = self.connections.iter().filter(|(_, c)| c.peer == peer).map(|(link, _)| *link);
        let oldest = of_peer.next().filter(|_| of_peer.count() + 1 >= MOST_LINKS);
        self.connections.insert(link, Connection { peer, is_greeted: false, since: now });
        oldest
    }

    /// A connection has ended. If the neighbour has another one, returns the neighbour and that connection: frames on
    /// their way may be lost.
    pub fn handle_down(&mut self, link: Link, reason: String, effects: &mut Effects) -> Option<(u32, Link)> {
        let peer = self.connections.remove(&link)?.peer;
        // The two ends must not dial each other at the same time.
        let pause = self.pause(if self.me < peer { 20 } else { 300 });
        let contact = self.contacts.get_mut(&peer)?;
        Some((peer, contact.handle_down(link, reason, pause, effects)?))
    }

    /// A dial has failed.
    pub fn handle_unreachable(&mut self, peer: u32, now: Duration) {
        let attempts = self.contacts.get(&peer).map_or(0, Contact::attempts);
        let pause = self.pause(100 << attempts.min(6));
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.handle_unreachable(now + pause);
        }
    }

    /// A valid hello has arrived from a neighbour with a live edge. Returns whether it is the first on this connection.
    pub fn handle_hello(&mut self, link: Link, effects: &mut Effects) -> bool {
        let Some(connection) = self.connections.get_mut(&link) else { return false };
        connection.is_greeted = true;
        let Some(contact) = self.contacts.get_mut(&connection.peer) else { return false };
        // One side decides which of several connections stays. If both did, each might close the other's choice.
        contact.handle_hello(link, self.me < connection.peer, effects)
    }

    /// Dials a neighbour and reports that it is waited for, if it is time. Returns whether its edge is to be dropped.
    pub fn handle_timeout(&mut self, peer: u32, is_waited_for: bool, effects: &mut Effects) -> bool {
        self.contacts.get_mut(&peer).is_some_and(|contact| contact.handle_timeout(self.on_loss, is_waited_for, effects))
    }

    /// A frame came from a neighbour.
    pub fn handle_frame(&mut self, peer: u32, now: Duration) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.handle_frame(now);
        }
    }

    /// Connections on which no hello came in time.
    pub fn silent(&self, now: Duration) -> Vec<Link> {
        let silent = self.connections.iter().filter(|(_, c)| !c.is_greeted && now >= c.since + HELLO_PATIENCE);
        silent.map(|(link, _)| *link).collect()
    }

    /// The neighbours to ask again because nothing was new since `progress`, each with its connection.
    pub fn poll_stalled(&mut self, progress: Duration, now: Duration) -> Vec<(u32, Link)> {
        if now < self.ask_at(progress) {
            return Vec::new();
        }
        self.asked = now;
        self.live().filter_map(|(peer, link)| Some((peer, link?))).collect()
    }

    /// When connected neighbours are asked again if nothing is new after `progress`.
    pub fn ask_at(&self, progress: Duration) -> Duration {
        progress.max(self.asked) + STALL
    }

    /// Adds the times at which connections are due for something else.
    pub fn add_timeouts(&self, deadline: &mut Deadline) {
        for connection in self.connections.values().filter(|c| !c.is_greeted) {
            deadline.add(connection.since + HELLO_PATIENCE);
        }
        for contact in self.contacts.values() {
            contact.add_timeouts(self.on_loss, deadline);
        }
    }

    /// About so many milliseconds, up to the longest pause.
    fn pause(&mut self, milliseconds: u64) -> Duration {
        let spread = 0.5 + self.jitter.random::<f64>();
        Duration::from_millis(milliseconds).mul_f64(spread).min(LONGEST_PAUSE)
    }

    /// A neighbour has sent an invalid frame.
    pub fn distrust(&mut self, peer: u32, now: Duration) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.distrust(now);
        }
    }

    /// A neighbour has sent a valid release.
    pub fn trust(&mut self, peer: u32) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.trust();
        }
    }

    /// The edge to a neighbour is dropped. The neighbour is dialled until it knows.
    pub fn drop_edge(&mut self, peer: u32) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.drop_edge();
        }
    }

    /// The edge to a neighbour was dropped before this process started.
    pub fn resume_dropped(&mut self, peer: u32) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.resume_dropped();
        }
    }

    /// A neighbour whose edge is dropped has answered.
    pub fn handle_farewell(&mut self, peer: u32) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.handle_farewell();
        }
    }

    /// Those that were neighbours when this process started and have not answered it, dropped or not.
    pub fn owing_answers(&self) -> impl Iterator<Item = u32> {
        self.contacts.iter().filter(|(_, contact)| contact.owes_answer()).map(|(id, _)| *id)
    }

    /// If the edge to a neighbour is dropped, notes that the neighbour knows. Returns whether the edge is dropped.
    pub fn give_notice(&mut self, peer: u32) -> bool {
        self.contacts.get_mut(&peer).is_some_and(Contact::give_notice)
    }

    /// A connection that is up.
    pub fn connection(&self, link: Link) -> Option<Connection> {
        self.connections.get(&link).copied()
    }

    /// Whether every neighbour with a live edge has answered this process.
    pub fn have_all_answered(&self) -> bool {
        self.contacts.values().all(Contact::has_answered)
    }

    /// The neighbours with a live edge, by ascending id, each with the connection to send on.
    pub fn live(&self) -> impl Iterator<Item = (u32, Option<Link>)> {
        self.contacts.iter().filter(|(_, c)| c.is_live()).map(|(id, contact)| (*id, contact.link()))
    }

    /// The connection to send on to a neighbour, if its edge is live.
    pub fn link(&self, peer: u32) -> Option<Link> {
        self.contacts.get(&peer)?.link()
    }
}
