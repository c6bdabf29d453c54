//! The events that a node handles, and what it asks for in return.

use std::time::Duration;

use thiserror::Error;

use super::SetupError;
use crate::client::RoundError;
use crate::ledger::LedgerError;
use crate::message::{Head, Outgoing, SignedHead};

/// A connection, numbered by the transport; numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

/// What a node asks of the network. Each call returns at once. Its outcome arrives as an [`Event`].
pub trait Transport {
    /// Try to connect to a peer.
    fn dial(&mut self, peer: u32);
    /// Send a frame, after those sent before on the same link.
    fn send(&mut self, link: Link, frame: &Outgoing);
    /// End a connection and tell the other side why.
    fn close(&mut self, link: Link, reason: &str);
}

/// Something that a node must handle.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// An authenticated connection to a peer exists, dialled by either side.
    Up {
        /// Its number.
        link: Link,
        /// The peer whose key it was authenticated with.
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
        /// Why, as stated by the end that closed it.
        reason: String,
    },
    /// A peer that was dialled could not be reached.
    Unreachable {
        /// Which one.
        peer: u32,
        /// The reason.
        reason: String,
    },
    /// Time has passed.
    Tick,
}

/// What to do about a neighbour that is not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// Wait until it comes back.
    Wait,
    /// Drop its edge after this long.
    Drop(Duration),
}

/// Something to report to the operator.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A neighbour is connected and has sent its hello.
    Greeted(u32),
    /// A neighbour's last connection ended.
    Lost(u32, String),
    /// Waiting for a neighbour.
    Waiting(u32),
    /// A neighbour says that its disk does not answer.
    Stuck(u32),
    /// A connection was refused.
    Refused(u32, String),
    /// A round is done.
    Round(u32),
    /// A round was computed without the records, because they could not be used.
    Withheld(u32),
    /// An edge was dropped.
    Dropped {
        /// The neighbour at its other end.
        neighbour: u32,
        /// Whether the other end dropped it first.
        theirs: bool,
        /// How many neighbours are left.
        left: usize,
    },
    /// A peer sent two different releases for one round.
    Conflict(Conflict),
    /// This peer has signed a set of last releases. Write [`Node::final_frames`](super::Node::final_frames) down and call [`Node::saved`](super::Node::saved): the vote is sent then.
    Voted,
    /// Enough peers have signed the same set of last releases, in which these are missing. Call [`Node::saved`](super::Node::saved) when the model is on disk.
    Agreed(Vec<u32>),
    /// No longer waited for; these last releases are not here. There is no model. Call [`Node::saved`](super::Node::saved) here too.
    GaveUp(Vec<u32>),
    /// All rounds are done, and these last releases are missing.
    Missing(Vec<u32>),
    /// All rounds are done, but some neighbours are not.
    Serving(Vec<u32>),
}

/// Two different stories of one author: two chains of releases up to one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The author.
    pub author: u32,
    /// The round.
    pub round: u32,
    /// What was known before, and what differs from it.
    pub stories: [Story; 2],
}

impl Conflict {
    /// Whether both stories are signed, so that anybody can check them.
    pub fn is_provable(&self) -> bool {
        self.stories.iter().all(|story| story.signature.is_some())
    }
}

/// A chain of releases, as one of its readers knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Story {
    /// Its hash.
    pub head: Head,
    /// The author's signature of it, if it came with one.
    pub signature: Option<[u8; 64]>,
}

impl From<SignedHead> for Story {
    fn from(head: SignedHead) -> Self {
        Self { head: head.head, signature: Some(head.signature) }
    }
}

impl From<Head> for Story {
    fn from(head: Head) -> Self {
        Self { head, signature: None }
    }
}

/// What a node can cause while it handles one event.
pub(super) struct Effects<'a> {
    pub now: Duration,
    pub net: &'a mut dyn Transport,
    pub news: &'a mut Vec<News>,
}

/// The earliest of the times at which a node has something to do.
pub(super) struct Deadline {
    now: Duration,
    due: Duration,
}

impl Deadline {
    pub fn new(now: Duration, due: Duration) -> Self {
        Self { now, due }
    }

    /// Adds a time. What was due before now is done, or does not wait for time.
    pub fn add(&mut self, time: Duration) {
        if time > self.now {
            self.due = self.due.min(time);
        }
    }

    /// The earliest time, not before now.
    pub fn get(&self) -> Duration {
        self.due.max(self.now)
    }
}

/// Why a node cannot continue.
#[derive(Debug, Error)]
pub enum Stop {
    /// The state folder is older than what this peer has sent.
    #[error(
        "{neighbour} holds a release of round {theirs} that this peer made, but its ledger ends at round {own}: the state \
         folder was restored from a backup, copied, or emptied. Restore the newest folder; never run an older one"
    )]
    Behind {
        /// The neighbour that holds the proof.
        neighbour: String,
        /// The round of the proof.
        theirs: u32,
        /// The last round of the ledger.
        own: u32,
    },
    /// Another process sends with this key.
    #[error(
        "{neighbour} holds a release of round {round} made with this peer's key that is not in its ledger: a copy of this \
         peer is or was running. Stop all but one, the one whose ledger is the longest"
    )]
    Forked {
        /// The neighbour that holds the proof.
        neighbour: String,
        /// The round.
        round: u32,
    },
    /// A later start of this peer, or a copy of it, has talked to another.
    #[error(
        "{other} has talked to session {theirs} of this peer, and this is session {own}: the state folder was restored from a backup, or a copy of it is or was \
         running. Restore the newest folder and run it once"
    )]
    Copied {
        /// The peer that holds the proof.
        other: String,
        /// The session that it talked to.
        theirs: u64,
        /// This one.
        own: u64,
    },
    /// Every edge was dropped.
    #[error("no neighbour is left: every edge of this peer was dropped, so it cannot learn anything more")]
    Alone,
    /// The node was put together wrongly.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A round could not be computed; nothing was released.
    #[error("round {round} could not be finished: {reason}")]
    Round {
        /// Which one.
        round: u32,
        /// Why.
        reason: RoundError,
    },
}
