//! What a peer knows of one neighbour.

use std::time::Duration;

use crate::ledger::Edge;
use crate::message::{Head, Limits, Receipt, Release, next_head};

use super::Link;

/// One end of an edge.
pub(super) struct Neighbour {
    pub id: u32,
    /// Whether the edge is gone for good.
    pub dropped: bool,
    /// Connections on which both hellos have passed, oldest first; the last one is used.
    pub links: Vec<Link>,
    /// Whether this process has had an answer from it. Before that it may hold proof that our state is old.
    pub greeted: bool,
    /// The newest frame from it, and the one before.
    pub receipts: [Receipt; 2],
    /// w~_l of the two newest rounds, by parity of the round.
    points: [Vec<f64>; 2],
    /// sum_m (w~_k(m) - w~_l(m)); empty if there is no dual that needs it.
    pub disagreement: Vec<f64>,
    /// Since when it is not there.
    pub lost_since: Option<Duration>,
    /// Whether it sent nonsense since its last good frame: patience with it then goes on running while it is connected.
    pub distrusted: bool,
    /// Whether it knows that the edge is gone.
    pub told: bool,
    /// When somebody was last told that we wait for it.
    pub reported: Option<Duration>,
    /// The last reason why there is no conversation, and when it was told.
    pub refused: Option<(String, Duration)>,
    pub dialling: bool,
    pub next_dial: Duration,
    pub attempts: u32,
    /// Which last releases it has been sent on its newest link.
    pub sent_finals: Vec<bool>,
    /// What it was last told on its newest link: that we are done, and whether we had heard that it is.
    pub sent_done: Option<bool>,
    /// Whether it waits for no more last releases.
    pub done: bool,
    /// Whether it knows that we do not either.
    pub heard: bool,
    /// Whether it does so without having them all.
    pub gave_up: bool,
}

/// What is wrong with a frame of a round.
pub(super) enum Oddity {
    /// We have it, or something newer.
    Known,
    /// Frames are missing before it.
    Gap,
    /// It differs from what the neighbour said before.
    Conflict(Receipt),
}

impl Neighbour {
    pub fn new(id: u32, start: Head, limits: &Limits, has_dual: bool, now: Duration) -> Self {
        let zeros = || vec![0.0; limits.features];
        let nothing = Receipt { head: start, ..Receipt::default() };
        Self {
            id,
            dropped: false,
            links: Vec::new(),
            greeted: false,
            receipts: [nothing; 2],
            points: [zeros(), zeros()],
            disagreement: if has_dual { zeros() } else { Vec::new() },
            lost_since: Some(now),
            distrusted: false,
            told: false,
            reported: None,
            refused: None,
            dialling: false,
            next_dial: now,
            attempts: 0,
            sent_finals: vec![false; limits.clients],
            sent_done: None,
            heard: false,
            done: false,
            gave_up: false,
        }
    }

    /// Takes up what the ledger remembers.
    pub fn resume(&mut self, edge: Edge) {
        self.receipts = [edge.receipt; 2];
        self.disagreement = edge.disagreement;
    }

    /// The newest round received.
    pub fn round(&self) -> u32 {
        self.receipts[0].round
    }

    /// The frame of one of the two newest rounds.
    pub fn receipt_of(&self, round: u32) -> &Receipt {
        let [newest, before] = &self.receipts;
        if newest.round == round { newest } else { before }
    }

    /// The link to send on.
    pub fn link(&self) -> Option<Link> {
        self.links.last().copied()
    }

    /// w~_l(n), if n is one of the two newest rounds.
    pub fn point(&self, round: u32) -> &[f64] {
        &self.points[round as usize % 2]
    }

    /// The chain after a release, or why the release is not the next one.
    pub fn check(&self, release: &Release) -> Result<Receipt, Oddity> {
        let receipt = |prior: &Head| Receipt {
            round: release.round,
            head: next_head(prior, release.round, release.payload.bytes()),
            tag: release.tag,
        };
        let [newest, before] = &self.receipts;
        if release.round == newest.round + 1 {
            Ok(receipt(&newest.head))
        } else if release.round > newest.round {
            Err(Oddity::Gap)
        } else if release.round == newest.round && before.round + 1 == newest.round {
            let again = receipt(&before.head);
            Err(if again.head == newest.head { Oddity::Known } else { Oddity::Conflict(*newest) })
        } else {
            Err(Oddity::Known)
        }
    }

    /// Takes in the next release.
    pub fn accept(&mut self, release: &Release, receipt: Receipt) {
        let point = &mut self.points[release.round as usize % 2];
        point.clear();
        point.extend(release.payload.values());
        self.receipts = [receipt, self.receipts[0]];
        if self.distrusted {
            (self.distrusted, self.lost_since) = (false, None);
        }
    }

    /// The last link is gone.
    pub fn lose(&mut self, now: Duration) {
        self.lost_since = self.lost_since.or(Some(now));
        self.attempts = 0;
    }
}
