//! How a node routes events to its parts.

use super::events::Effects;
use super::rounds::Received;
use super::{Conflict, Event, Link, News, Node, Stop};
use crate::client::Cost;
use crate::ledger::Disk;
use crate::message::{Final, Hello, Message, RoundFrame, decode};

impl<D: Disk> Node<D> {
    pub(super) fn route(&mut self, event: Event, effects: &mut Effects) -> Result<(), Stop> {
        match event {
            Event::Up { link, peer } => self.handle_up(link, peer, effects),
            Event::Frame { link, frame } => self.handle_frame(link, frame, effects)?,
            Event::Down { link, reason } => self.handle_down(link, reason, effects),
            Event::Unreachable { peer, .. } => self.links.handle_unreachable(peer, effects.now),
            Event::Tick => {}
        }
        self.handle_timeouts(effects)?;
        self.advance(effects)
    }

    fn handle_up(&mut self, link: Link, peer: u32, effects: &mut Effects) {
        if !self.links.is_neighbour(peer) {
            effects.net.close(link, "not a neighbour in this study");
            return;
        }
        if let Some(oldest) = self.links.handle_up(link, peer, effects.now) {
            self.close(oldest, "too many connections", effects);
        }
        effects.net.send(link, &self.rounds.hello(&self.context, peer).encode());
    }

    fn handle_down(&mut self, link: Link, reason: String, effects: &mut Effects) {
        if let Some((peer, left)) = self.links.handle_down(link, reason, effects) {
            self.rounds.frames().for_each(|frame| effects.net.send(left, frame));
            self.finals.send_again(peer);
        }
    }

    /// Closes a connection; `reason` goes to the other end.
    fn close(&mut self, link: Link, reason: &str, effects: &mut Effects) {
        effects.net.close(link, reason);
        self.handle_down(link, format!("closed by this peer: {reason}"), effects);
    }

    fn handle_frame(&mut self, link: Link, frame: &[u8], effects: &mut Effects) -> Result<(), Stop> {
        // Frames may still arrive on a connection that this side has closed.
        let Some(connection) = self.links.connection(link) else { return Ok(()) };
        let peer = connection.peer;
        self.links.handle_frame(peer, effects.now);
        let refused = match decode(frame, &self.context.limits) {
            Ok(Message::Hello(hello)) => self.handle_hello(link, peer, &hello, effects)?,
            Ok(_) if !connection.is_greeted => Some("a frame before the hello".into()),
            Ok(Message::Round(release)) => self.handle_release(peer, &release, frame, effects),
            Ok(Message::Final(last)) => self.handle_final(&last, frame, effects),
            Ok(Message::Done { complete, heard, .. }) => self.finals.handle_done(peer, complete, heard),
            Err(malformed) => Some(malformed.to_string()),
        };
        if let Some(reason) = refused {
            if connection.is_greeted {
                self.links.distrust(peer, effects.now);
            }
            self.close(link, &reason, effects);
        }
        Ok(())
    }

    /// Returns why the connection is to be closed, if it is.
    fn handle_hello(
        &mut self,
        link: Link,
        peer: u32,
        hello: &Hello,
        effects: &mut Effects,
    ) -> Result<Option<String>, Stop> {
        let differences = self.context.digest.differences(&hello.study);
        if !differences.is_empty() {
            return Ok(Some(format!("the two studies differ in: {}", differences.join(", "))));
        }
        if let Some(reason) = self.rounds.check_receipt(&self.context, peer, &hello.receipt)? {
            return Ok(Some(reason));
        }
        let is_dropped = self.links.give_notice(peer);
        if is_dropped || hello.dropped {
            self.links.handle_farewell(peer);
        }
        if !is_dropped && hello.dropped {
            self.drop_edge(peer, true, effects)?;
        }
        if is_dropped || hello.dropped {
            return Ok(Some("this edge was dropped".into()));
        }
        let Some(frames) = self.rounds.frames_after(hello.receipt.round) else {
            return Ok(Some(format!("round {} is no longer kept", hello.receipt.round + 1)));
        };
        let is_first = self.links.handle_hello(link, effects);
        self.finals.handle_hello(peer, is_first);
        frames.for_each(|frame| effects.net.send(link, frame));
        Ok(None)
    }

    /// Returns why the connection is to be closed, if it is.
    fn handle_release(
        &mut self,
        peer: u32,
        release: &RoundFrame,
        frame: &[u8],
        effects: &mut Effects,
    ) -> Option<String> {
        match self.rounds.handle_release(&self.context, peer, release) {
            Received::New { prior } => {
                self.links.trust(peer);
                self.finals.handle_release(&self.context.limits, peer, prior, release, effects.news);
                self.progress = effects.now;
                None
            }
            Received::Known => None,
            Received::Conflict(known) => {
                let first = [&known.head[..], &known.tag[..]].concat();
                let conflict =
                    Conflict { author: peer, round: release.round, first, second: frame.to_vec(), provable: false };
                self.finals.accuse(conflict, effects.news);
                Some(format!("a second, different release of round {}", release.round))
            }
            Received::Refused(reason) => Some(reason),
        }
    }

    /// Returns why the connection is to be closed, if it is.
    fn handle_final(&mut self, last: &Final, frame: &[u8], effects: &mut Effects) -> Option<String> {
        if let Some(known) = self.rounds.contradicts(last) {
            let first = [&known.head[..], &known.tag[..]].concat();
            let round = self.context.limits.rounds;
            let conflict = Conflict { author: last.author, round, first, second: frame.to_vec(), provable: false };
            if last.verifies(&self.context.chain, self.context.id(last.author), round) {
                self.finals.accuse(conflict, effects.news);
            }
        }
        match self.finals.handle_final(&self.context, last, frame, effects.news) {
            Ok(true) => self.progress = effects.now,
            Ok(false) => {}
            Err(reason) => return Some(reason),
        }
        None
    }

    /// Does what is due: closes silent connections, asks again, dials, reports, drops edges.
    fn handle_timeouts(&mut self, effects: &mut Effects) -> Result<(), Stop> {
        for link in self.links.silent(effects.now) {
            let reason = "no hello came";
            effects.net.close(link, reason);
            self.handle_down(link, reason.into(), effects);
        }
        for (peer, link) in self.links.poll_stalled(self.progress, effects.now) {
            effects.net.send(link, &self.rounds.hello(&self.context, peer).encode());
        }
        let roster = self.context.setup.roster.clone();
        for &peer in roster.graph.neighbours(self.context.setup.me) {
            let is_waited_for = !self.are_rounds_done() && self.rounds.waits_for(peer);
            let is_overdue = self.links.handle_timeout(peer, is_waited_for, effects);
            // Before the first round nothing is lost by waiting, and peers do not all start at the same time.
            if is_overdue && self.rounds.round() > 0 && !self.are_rounds_done() {
                self.drop_edge(peer, false, effects)?;
            }
        }
        Ok(())
    }

    /// Removes an edge from the graph, durably. `theirs` says that the neighbour dropped it first.
    fn drop_edge(&mut self, peer: u32, theirs: bool, effects: &mut Effects) -> Result<(), Stop> {
        self.rounds.drop_edge(&self.context, peer)?;
        self.links.drop_edge(peer);
        self.finals.drop_edge(peer);
        effects.news.push(News::Dropped { neighbour: peer, theirs, left: self.rounds.degree() });
        self.check_alone()
    }

    /// Without neighbours there is nothing to learn, and every round would be spent for nothing.
    pub(super) fn check_alone(&self) -> Result<(), Stop> {
        if !self.are_rounds_done() && self.rounds.degree() == 0 { Err(Stop::Alone) } else { Ok(()) }
    }

    pub(super) fn are_rounds_done(&self) -> bool {
        self.rounds.round() == self.context.limits.rounds
    }

    /// Computes every round that can be computed, and then what comes after the last.
    fn advance(&mut self, effects: &mut Effects) -> Result<(), Stop> {
        while !self.are_rounds_done() && self.rounds.can_step() && self.links.have_all_answered() {
            // Who was dropped before it answered may hold proof that rounds to come were noised before.
            let is_current = self.rounds.ledger().is_anchored() || self.links.owing_answers().next().is_none();
            let kind = self.rounds.step(&self.context, is_current)?;
            let round = self.rounds.round();
            effects.news.push(if kind == Cost::Withheld { News::Withheld(round) } else { News::Round(round) });
            self.collect_own_final(effects.news);
            (self.progress, self.stepped) = (effects.now, effects.now);
            let frame = self.rounds.newest().expect("a step leaves one").frame();
            for link in self.links.live().filter_map(|(_, link)| link) {
                effects.net.send(link, frame);
            }
        }
        if self.are_rounds_done() {
            self.finals.poll(&self.context.limits, self.progress, &self.links, effects);
        }
        Ok(())
    }

    /// Keeps the own last release, if it was made.
    pub(super) fn collect_own_final(&mut self, news: &mut Vec<News>) {
        let me = self.context.me();
        if let Some(last) = self.rounds.newest().and_then(|sealed| sealed.as_final(me, &self.context.limits)) {
            self.finals.collect(me, last, news);
        }
    }
}
