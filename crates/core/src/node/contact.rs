//! The connections to one neighbour.

use std::time::Duration;

use super::edge::EdgeState;
use super::events::{Deadline, Effects};
use super::{Link, News, OnLoss, REPORT};

/// How long to wait before the same report is made again.
const REPORT_AGAIN: Duration = Duration::from_secs(60);
/// How long a connected neighbour that is waited for may be silent: one that waits itself asks more often.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// The longest pause between two attempts to connect.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a neighbour is being dialled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Dial {
    /// It is not, and may be from this time on.
    At(Duration),
    /// It is, and the transport has not answered yet.
    UnderWay,
}

/// Whether a neighbour can be relied on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Condition {
    Present,
    /// It is not connected since this time.
    Lost(Duration),
    /// It sent an invalid frame and no valid release since. Patience runs from this time on, even while it is
    /// connected.
    Distrusted(Duration),
}

impl Condition {
    fn since(self) -> Option<Duration> {
        match self {
            Self::Present => None,
            Self::Lost(since) | Self::Distrusted(since) => Some(since),
        }
    }
}

/// Whether a neighbour knows that its edge was dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Notice {
    Due,
    Given,
}

/// What is known of a neighbour with a live edge.
#[derive(Debug, Clone)]
pub(super) struct Presence {
    /// Whether it sent a valid hello to this process. Before that it may hold proof that the own state is old.
    has_answered: bool,
    condition: Condition,
    /// When a frame last came from it.
    heard: Duration,
    /// When it was last reported that this peer waits for it.
    reported: Option<Duration>,
    /// The last refusal that was reported, and when.
    refused: Option<(String, Duration)>,
}

impl Presence {
    fn report_at(&self, since: Duration) -> Duration {
        self.reported.map_or(since + REPORT, |last| last + REPORT_AGAIN)
    }

    /// Whether a refusal is to be reported. A peer that tries again every few seconds gets the same answer each time.
    fn is_news(&mut self, reason: &str, now: Duration) -> bool {
        let is_known = self.refused.as_ref().is_some_and(|(r, at)| r == reason && now < *at + REPORT_AGAIN);
        if !is_known {
            self.refused = Some((reason.into(), now));
        }
        !is_known
    }
}

/// The connections to one neighbour, and when the next one is attempted.
#[derive(Debug)]
pub(super) struct Contact {
    id: u32,
    /// Whether there is a way to connect to it.
    is_dialable: bool,
    dial: Dial,
    /// Attempts to connect that failed since the last success.
    attempts: u32,
    /// Connections on which both hellos have passed, oldest first. The last one is used.
    links: Vec<Link>,
    edge: EdgeState<Presence, Notice>,
    /// Whether the edge was live when this process started and the neighbour has not sent it a valid hello. It may hold proof that the own state is old, also after its
    /// edge was dropped.
    owes_answer: bool,
}

impl Contact {
    pub fn new(id: u32, is_dialable: bool, now: Duration) -> Self {
        let presence = Presence {
            has_answered: false,
            condition: Condition::Lost(now),
            heard: now,
            reported: None,
            refused: None,
        };
        Self {
            id,
            is_dialable,
            dial: Dial::At(now),
            attempts: 0,
            links: Vec::new(),
            edge: EdgeState::Live(presence),
            owes_answer: true,
        }
    }

    /// A connection exists, dialled by either side.
    pub fn handle_up(&mut self, now: Duration) {
        // No other dial before this connection has had time to be greeted.
        self.dial = Dial::At(now + REPORT);
    }

    /// A connection has ended. Returns the connection that is used from now on, if there is one and the edge is live.
    ///
    /// `pause` is the time before the next dial if no connection is left.
    pub fn handle_down(&mut self, link: Link, reason: String, pause: Duration, effects: &mut Effects) -> Option<Link> {
        let now = effects.now;
        let was_connected = self.is_connected();
        self.links.retain(|l| *l != link);
        let left = self.links.last().copied();
        let EdgeState::Live(presence) = &mut self.edge else {
            self.postpone_dial(now + LONGEST_PAUSE);
            return None;
        };
        if left.is_some() {
            return left;
        }
        if was_connected {
            if presence.condition == Condition::Present {
                presence.condition = Condition::Lost(now);
            }
            self.attempts = 0;
            self.postpone_dial(now + pause);
            effects.news.push(News::Lost(self.id, reason));
        } else {
            if presence.is_news(&reason, now) {
                effects.news.push(News::Refused(self.id, reason));
            }
            // It was refused before it was greeted, and the next attempt is likely to be refused too.
            self.attempts += 1;
            self.postpone_dial(now + LONGEST_PAUSE);
        }
        None
    }

    /// A dial has failed.
    pub fn handle_unreachable(&mut self, next: Duration) {
        self.attempts += 1;
        self.dial = Dial::At(next);
    }

    /// A valid hello has arrived on a live edge. Returns whether it is the first on this connection.
    ///
    /// If `closes_older`, this side closes all connections but the newest.
    pub fn handle_hello(&mut self, link: Link, closes_older: bool, effects: &mut Effects) -> bool {
        let EdgeState::Live(presence) = &mut self.edge else { return false };
        let is_first = !self.links.contains(&link);
        if is_first {
            if self.links.is_empty() {
                effects.news.push(News::Greeted(self.id));
            }
            self.links.push(link);
        }
        (presence.has_answered, presence.reported, self.owes_answer) = (true, None, false);
        if let Condition::Lost(_) = presence.condition {
            presence.condition = Condition::Present;
        }
        self.attempts = 0;
        let superseded = if closes_older { self.links.len() - 1 } else { 0 };
        for old in self.links.drain(..superseded) {
            // The connection stays known until it is down: frames on their way still count.
            effects.net.close(old, "a newer connection takes over");
        }
        is_first
    }

    /// Whether something that the neighbour says is to be reported: not if it was a moment ago.
    pub fn is_news(&mut self, what: &str, now: Duration) -> bool {
        match &mut self.edge {
            EdgeState::Live(presence) => presence.is_news(what, now),
            EdgeState::Dropped(_) => false,
        }
    }

    /// A frame came from the neighbour.
    pub fn handle_frame(&mut self, now: Duration) {
        if let EdgeState::Live(presence) = &mut self.edge {
            presence.heard = now;
        }
    }

    /// Dials and reports if it is time. Returns whether patience with the neighbour is over. `is_waited_for` says that the next round lacks its release.
    ///
    /// Patience is with what a neighbour does, not with its connection: one that hangs keeps its connection and says nothing.
    pub fn handle_timeout(&mut self, on_loss: OnLoss, is_waited_for: bool, effects: &mut Effects) -> bool {
        let now = effects.now;
        if self.dial_at().is_some_and(|at| now >= at) {
            self.dial = Dial::UnderWay;
            effects.net.dial(self.id);
        }
        let is_connected = self.is_connected();
        let EdgeState::Live(presence) = &mut self.edge else { return false };
        let since = match presence.condition {
            Condition::Distrusted(since) => since,
            Condition::Lost(since) if !is_connected => since,
            _ if is_connected && is_waited_for && now >= presence.heard + SILENCE => presence.heard + SILENCE,
            _ if is_connected => return false,
            _ => now,
        };
        if now >= presence.report_at(since) {
            presence.reported = Some(now);
            effects.news.push(News::Waiting(self.id));
        }
        matches!(on_loss, OnLoss::Drop(patience) if now >= since + patience)
    }

    /// Adds the times at which [`Contact::handle_timeout`] has something to do.
    pub fn add_timeouts(&self, on_loss: OnLoss, deadline: &mut Deadline) {
        if let Some(at) = self.dial_at() {
            deadline.add(at);
        }
        if let EdgeState::Live(presence) = &self.edge {
            let since = presence.condition.since().unwrap_or(presence.heard + SILENCE);
            deadline.add(since);
            deadline.add(presence.report_at(since));
            if let OnLoss::Drop(patience) = on_loss {
                deadline.add(since + patience);
            }
        }
    }

    /// When to dial, if at all. After a drop the neighbour is dialled until it knows, because it may have no address of
    /// this peer.
    fn dial_at(&self) -> Option<Duration> {
        let is_wanted = !self.is_connected() && !matches!(self.edge, EdgeState::Dropped(Notice::Given));
        match self.dial {
            Dial::At(at) if is_wanted && self.is_dialable => Some(at),
            _ => None,
        }
    }

    /// Sets the time of the next dial, unless a dial is under way, which then sets it.
    fn postpone_dial(&mut self, at: Duration) {
        if let Dial::At(next) = &mut self.dial {
            *next = at;
        }
    }

    /// The neighbour has sent an invalid frame.
    pub fn distrust(&mut self, now: Duration) {
        if let EdgeState::Live(presence) = &mut self.edge {
            presence.condition = Condition::Distrusted(presence.condition.since().unwrap_or(now));
        }
    }

    /// The neighbour has sent a valid release.
    pub fn trust(&mut self) {
        if let EdgeState::Live(presence) = &mut self.edge
            && let Condition::Distrusted(_) = presence.condition
        {
            presence.condition = Condition::Present;
        }
    }

    /// The edge was dropped before this process started: nothing is expected of the neighbour.
    pub fn resume_dropped(&mut self) {
        self.owes_answer = false;
        self.drop_edge();
    }

    /// The edge is dropped. Connections stay known until they are down.
    pub fn drop_edge(&mut self) {
        self.edge = EdgeState::Dropped(Notice::Due);
    }

    /// If the edge is dropped, notes that the neighbour knows. Returns whether the edge is dropped.
    pub fn give_notice(&mut self) -> bool {
        match &mut self.edge {
            EdgeState::Live(_) => false,
            EdgeState::Dropped(notice) => {
                *notice = Notice::Given;
                true
            }
        }
    }

    pub fn is_live(&self) -> bool {
        self.edge.live().is_some()
    }

    /// Whether the edge is dropped or the neighbour has answered this process.
    pub fn has_answered(&self) -> bool {
        self.edge.live().is_none_or(|presence| presence.has_answered)
    }

    /// A neighbour whose edge is dropped has sent a hello with a receipt that holds no proof.
    pub fn handle_farewell(&mut self) {
        self.owes_answer = false;
    }

    /// Whether the neighbour was there before this process started and has not answered it, dropped or not.
    pub fn owes_answer(&self) -> bool {
        self.owes_answer
    }

    /// The connection to send on, if the edge is live.
    pub fn link(&self) -> Option<Link> {
        self.links.last().copied().filter(|_| self.is_live())
    }

    fn is_connected(&self) -> bool {
        !self.links.is_empty()
    }

    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}
