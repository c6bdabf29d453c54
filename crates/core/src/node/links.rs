//! All connections of a node: which exist, which are greeted, and whom to dial when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::contact::{Contact, LONGEST_PAUSE};
use super::context::Context;
use super::events::{Deadline, Effects};
use super::{Link, OnLoss};
use crate::privacy::Stream;

/// How long to wait for the answer to a hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Every hello is answered with all that may be missing, so there are not many in this time.
const HELLO_WINDOW: Duration = Duration::from_secs(10);
const MOST_HELLOS: u32 = 20;
/// How long a peer that starts waits for those that it asks besides its neighbours.
const ASK_PATIENCE: Duration = Duration::from_secs(3);
/// How many it asks.
const MOST_ASKED: usize = 32;
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
    /// Hellos in the current [`HELLO_WINDOW`], and when it began.
    hellos: (u32, Duration),
}

/// The connections of a node, and one [`Contact`] for each neighbour in the study's graph.
pub(super) struct Links {
    me: u32,
    on_loss: OnLoss,
    connections: BTreeMap<Link, Connection>,
    contacts: BTreeMap<u32, Contact>,
    /// Participants that are no neighbours and are to be dialled at the start, because they may hold proof that the own state is old.
    to_ask: Vec<u32>,
    /// Those of them that were dialled and have not answered.
    asking: BTreeSet<u32>,
    /// When the wait for them ends.
    ask_until: Duration,
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
        let mut jitter = Stream { trial: 0, client: 0, round: 0 }.fast(seed ^ setup.time);
        let is_other = |id: &u32| *id != context.me() && !context.neighbours().contains(id) && context.is_dialable(*id);
        let mut to_ask: Vec<u32> = (0..context.limits.clients as u32).filter(is_other).collect();
        to_ask.shuffle(&mut jitter);
        to_ask.truncate(MOST_ASKED);
        Self {
            me: context.me(),
            to_ask,
            asking: BTreeSet::new(),
            ask_until: now + ASK_PATIENCE,
            on_loss: setup.on_loss,
            connections: BTreeMap::new(),
            contacts: context.neighbours().iter().map(contact).collect(),
            asked: now,
            jitter,
        }
    }

    /// Whether a peer is a neighbour in the study's graph.
    pub fn is_neighbour(&self, peer: u32) -> bool {
        self.contacts.contains_key(&peer)
    }

    /// A connection to a participant exists. Returns its oldest connection if it now has too many.
    pub fn handle_up(&mut self, link: Link, peer: u32, now: Duration) -> Option<Link> {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.handle_up(now);
        }
        let mut of_peer = self.connections.iter().filter(|(_, c)| c.peer == peer).map(|(link, _)| *link);
        let oldest = of_peer.next().filter(|_| of_peer.count() + 1 >= MOST_LINKS);
        self.connections.insert(link, Connection { peer, is_greeted: false, since: now, hellos: (0, now) });
        oldest
    }

    /// A connection has ended. If the neighbour has another one, returns the neighbour and that connection: frames on
    /// their way may be lost.
    pub fn handle_down(&mut self, link: Link, reason: String, effects: &mut Effects) -> Option<(u32, Link)> {
        let peer = self.connections.remove(&link)?.peer;
        self.asking.remove(&peer);
        // The two ends must not dial each other at the same time.
        let pause = self.pause(if self.me < peer { 20 } else { 300 });
        let contact = self.contacts.get_mut(&peer)?;
        Some((peer, contact.handle_down(link, reason, pause, effects)?))
    }

    /// A dial has failed.
    pub fn handle_unreachable(&mut self, peer: u32, now: Duration) {
        self.asking.remove(&peer);
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

    /// Whether something that a neighbour says is to be reported: not if it was a moment ago.
    pub fn is_news(&mut self, peer: u32, what: &str, now: Duration) -> bool {
        self.contacts.get_mut(&peer).is_some_and(|contact| contact.is_news(what, now))
    }

    /// A frame came from a neighbour.
    pub fn handle_frame(&mut self, peer: u32, now: Duration) {
        if let Some(contact) = self.contacts.get_mut(&peer) {
            contact.handle_frame(now);
        }
    }

    /// Counts a hello. Returns whether there are too many on this connection.
    pub fn counts_hello(&mut self, link: Link, now: Duration) -> bool {
        let Some(connection) = self.connections.get_mut(&link) else { return false };
        let (count, since) = &mut connection.hellos;
        if now >= *since + HELLO_WINDOW {
            (*count, *since) = (0, now);
        }
        *count += 1;
        *count > MOST_HELLOS
    }

    /// The participants to dial at the start besides the neighbours.
    pub fn poll_asked(&mut self) -> Vec<u32> {
        let to_ask = std::mem::take(&mut self.to_ask);
        self.asking.extend(&to_ask);
        to_ask
    }

    /// A participant that is no neighbour has sent a hello.
    pub fn handle_answer(&mut self, peer: u32) {
        self.asking.remove(&peer);
    }

    /// Whether somebody that was asked at the start may still answer.
    pub fn is_asking(&self, now: Duration) -> bool {
        !self.asking.is_empty() && now < self.ask_until
    }

    /// The connections of a peer on which a valid hello has arrived.
    pub fn greeted(&self, peer: u32) -> Vec<Link> {
        self.connections.iter().filter(|(_, c)| c.peer == peer && c.is_greeted).map(|(link, _)| *link).collect()
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
        if !self.asking.is_empty() {
            deadline.add(self.ask_until);
        }
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
