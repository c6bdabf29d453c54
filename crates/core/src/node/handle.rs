//! How a node routes events to its parts.

use super::events::Effects;
use super::rounds::Received;
use super::witness::Learned;
use super::{Conflict, Event, Link, News, Node, Stop};
use crate::client::Cost;
use crate::ledger::Disk;
use crate::message::{Final, Hello, Message, RoundFrame, SignedHead, decode};

impl<D: Disk> Node<D> {
    pub(super) fn route(&mut self, event: Event, effects: &mut Effects) -> Result<(), Stop> {
        match event {
            Event::Up { link, peer } => self.handle_up(link, peer, effects)?,
            Event::Frame { link, frame } => self.handle_frame(link, frame, effects)?,
            Event::Down { link, reason } => self.handle_down(link, reason, effects),
            Event::Unreachable { peer, .. } => self.links.handle_unreachable(peer, effects.now),
            Event::Tick => {}
        }
        self.handle_timeouts(effects)?;
        self.advance(effects)
    }

    fn handle_up(&mut self, link: Link, peer: u32, effects: &mut Effects) -> Result<(), Stop> {
        if let Some(oldest) = self.links.handle_up(link, peer, effects.now) {
            self.close(oldest, "too many connections", effects);
        }
        self.greet(link, peer, effects)
    }

    /// Sends a hello. What it acknowledges is durable.
    fn greet(&mut self, link: Link, peer: u32, effects: &mut Effects) -> Result<(), Stop> {
        self.witness.sync(self.rounds.ledger_mut())?;
        effects.net.send(link, &self.rounds.hello(&self.context, peer, &self.witness).encode());
        Ok(())
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
        let decoded = decode(frame, &self.context.limits);
        // One that says that it can do nothing is as silent as before.
        if decoded != Ok(Message::Stuck) {
            self.links.handle_frame(peer, effects.now);
        }
        let refused = match decoded {
            Ok(Message::Hello(hello)) => self.handle_hello(link, peer, &hello, effects)?,
            Ok(_) if !connection.is_greeted => Some("a frame before the hello".into()),
            Ok(Message::Round(release)) => self.handle_release(peer, &release, effects)?,
            Ok(Message::Final(last)) => self.handle_final(&last, frame, effects),
            Ok(Message::Vote(vote)) => match self.finals.handle_vote(&self.context, &vote, effects.news) {
                Ok(is_new) => {
                    self.progress = if is_new { effects.now } else { self.progress };
                    None
                }
                Err(reason) => Some(reason),
            },
            Ok(Message::Done { agreed, heard, .. }) => self.finals.handle_done(peer, agreed, heard),
            Ok(Message::Stuck) => {
                if self.links.is_news(peer, "its disk does not answer", effects.now) {
                    effects.news.push(News::Stuck(peer));
                }
                None
            }
            Ok(Message::Head { author, head }) => self.handle_head(peer, author, head, effects)?,
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
        if self.links.counts_hello(link, effects.now) {
            return Ok(Some("too many hellos".into()));
        }
        let differences = self.context.digest.differences(&hello.study);
        if !differences.is_empty() {
            // A peer that was restarted serves the stages that it has finished once more.
            let another = match self.context.setup.study.has_stages() && differences.contains(&"name") {
                true => "it is at another stage of the study; or ",
                false => "",
            };
            return Ok(Some(format!("{another}the two studies differ in: {}", differences.join(", "))));
        }
        if let Some(reason) = self.check_proofs(peer, hello)? {
            return Ok(Some(reason));
        }
        let (_, _, known) = self.witness.of(peer);
        if hello.session.is_superseded_by(&known) {
            return Ok(Some(format!(
                "session {} after session {} of another copy",
                hello.session.number, known.number
            )));
        }
        if self.witness.keep_session(self.rounds.ledger_mut(), peer, hello.session, effects.now)? {
            // What an earlier start, or a copy, still sends does not count.
            for old in self.links.greeted(peer) {
                self.close(old, "a later session of this peer", effects);
            }
        }
        if !self.links.is_neighbour(peer) {
            self.links.handle_answer(peer);
            return Ok(Some("asked and answered".into()));
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
        if is_first {
            let heads = self.witness.heads().filter(|(author, _)| *author != peer);
            heads.for_each(|(author, head)| effects.net.send(link, &head.frame(author)));
        }
        Ok(None)
    }

    /// Stops if a hello proves that this peer's state is old, or that a copy of it runs. Returns why the connection is to be closed, if it is.
    fn check_proofs(&self, peer: u32, hello: &Hello) -> Result<Option<String>, Stop> {
        for receipt in [&hello.receipt, &hello.shown] {
            if let Some(reason) = self.rounds.check_receipt(&self.context, peer, receipt)? {
                return Ok(Some(reason));
            }
        }
        if let Some(reason) = self.rounds.check_head(&self.context, peer, &hello.head)? {
            return Ok(Some(reason));
        }
        let (own, theirs) = (self.witness.session(), &hello.yours);
        if theirs.number > 0 && own.is_superseded_by(theirs) {
            let made = self.context.chain.session(&self.context.setup.identity, theirs.number, theirs.nonce);
            if made != *theirs {
                return Ok(Some("a session that this peer never had".into()));
            }
            let other = self.context.setup.roster.names.get(peer as usize).into_owned();
            return Err(Stop::Copied { other, theirs: theirs.number, own: own.number });
        }
        Ok(None)
    }

    /// A neighbour passes on how far somebody is. Returns why the connection is to be closed, if it is.
    fn handle_head(
        &mut self,
        from: u32,
        author: u32,
        head: SignedHead,
        effects: &mut Effects,
    ) -> Result<Option<String>, Stop> {
        if author == self.context.me() {
            return self.rounds.check_head(&self.context, from, &head);
        }
        // Nobody is further ahead of anybody than there are peers between them.
        let is_possible = head.round <= self.rounds.round().saturating_add(self.context.limits.clients as u32);
        if self.witness.knows(author, &head) || !is_possible {
            return Ok(None);
        }
        if !self.context.chain.verifies(self.context.id(author), head.round, &head.head, &head.signature) {
            return Ok(Some("a head with a wrong signature".into()));
        }
        if let Some(known) = self.rounds.differs(author, &head) {
            let conflict = Conflict { author, round: head.round, stories: [known.into(), head.into()] };
            self.finals.accuse(conflict, effects.news);
        }
        self.learn(author, head, from, effects)?;
        Ok(None)
    }

    /// Keeps what an author has signed, and passes it on if it is new.
    fn learn(&mut self, author: u32, head: SignedHead, from: u32, effects: &mut Effects) -> Result<(), Stop> {
        let is_common = self.context.limits.signs(head.round);
        match self.witness.learn(self.rounds.ledger_mut(), author, head, is_common, effects.now)? {
            Learned::Known => {}
            Learned::New => self.pass_on(author, &head, Some(from), effects),
            Learned::Conflict(first) => {
                let conflict = Conflict { author, round: head.round, stories: [first.into(), head.into()] };
                if self.finals.accuse(conflict, effects.news) {
                    // To everybody: each neighbour of the author may know one story only.
                    for head in [&first, &head] {
                        let frame = head.frame(author);
                        let everybody = self.links.live().filter(|(peer, _)| *peer != author);
                        everybody.filter_map(|(_, link)| link).for_each(|link| effects.net.send(link, &frame));
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a head to all neighbours but its author and the one that it came from. The author's own neighbours know how far it is, and need only those of rounds in which
    /// two stories must differ.
    fn pass_on(&self, author: u32, head: &SignedHead, from: Option<u32>, effects: &mut Effects) {
        let frame = head.frame(author);
        let is_common = self.context.limits.signs(head.round);
        let theirs = self.context.setup.roster.graph.neighbours(author as usize);
        for (peer, link) in self.links.live().filter_map(|(peer, link)| Some((peer, link?))) {
            if peer != author && Some(peer) != from && (is_common || theirs.binary_search(&peer).is_err()) {
                effects.net.send(link, &frame);
            }
        }
    }

    /// Returns why the connection is to be closed, if it is.
    fn handle_release(
        &mut self,
        peer: u32,
        release: &RoundFrame,
        effects: &mut Effects,
    ) -> Result<Option<String>, Stop> {
        let shown = *self.witness.receipt(peer);
        match self.rounds.handle_release(&self.context, peer, release, &shown) {
            Received::New { prior, receipt } => {
                self.witness.keep_receipt(self.rounds.ledger_mut(), peer, receipt, effects.now)?;
                self.links.trust(peer);
                self.finals.handle_release(&self.context.limits, peer, prior, release);
                self.progress = effects.now;
                if let Some(signature) = release.signature {
                    let head = SignedHead { round: receipt.round, head: receipt.head, signature };
                    self.learn(peer, head, peer, effects)?;
                }
                Ok(None)
            }
            Received::Known => Ok(None),
            Received::Conflict { known, other } => {
                let conflict = Conflict { author: peer, round: release.round, stories: [known.into(), other.into()] };
                self.finals.accuse(conflict, effects.news);
                if let Some(signature) = release.signature
                    && self.context.chain.verifies(self.context.id(peer), release.round, &other, &signature)
                {
                    self.learn(peer, SignedHead { round: release.round, head: other, signature }, peer, effects)?;
                }
                Ok(Some(format!("a second, different release of round {}", release.round)))
            }
            Received::Refused(reason) => Ok(Some(reason)),
        }
    }

    /// Returns why the connection is to be closed, if it is.
    fn handle_final(&mut self, last: &Final, frame: &[u8], effects: &mut Effects) -> Option<String> {
        if let Some(conflict) = self.rounds.contradicts(last)
            && last.verifies(&self.context.chain, self.context.id(last.author), self.context.limits.rounds)
        {
            self.finals.accuse(conflict, effects.news);
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
            self.greet(link, peer, effects)?;
        }
        self.links.poll_asked().into_iter().for_each(|peer| effects.net.dial(peer));
        self.witness.handle_timeout(self.rounds.ledger_mut(), effects.now)?;
        if let Some(receipt) = self.rounds.newest().map(|sealed| *sealed.receipt()).filter(|_| self.signable() > 0)
            && let Some(head) = self.witness.sign(&self.context, &receipt, effects.now)
        {
            self.pass_on(self.context.me(), &head, None, effects);
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

    /// The round of the own newest release if it is to be signed from time to time: neighbours hold receipts, others would know nothing of it. Else 0.
    pub(super) fn signable(&self) -> u32 {
        let has_others = self.context.neighbours().len() + 1 < self.context.limits.clients;
        if has_others { self.rounds.round() } else { 0 }
    }

    pub(super) fn are_rounds_done(&self) -> bool {
        self.rounds.round() == self.context.limits.rounds
    }

    /// Computes every round that can be computed, and then what comes after the last.
    fn advance(&mut self, effects: &mut Effects) -> Result<(), Stop> {
        while !self.are_rounds_done() && self.rounds.can_step() && self.links.have_all_answered() {
            let is_anchored = self.rounds.ledger().is_anchored();
            if !is_anchored && self.links.is_asking(effects.now) {
                break;
            }
            // Who was dropped before it answered may hold proof that rounds to come were noised before.
            let is_current = is_anchored || self.links.owing_answers().next().is_none();
            let kind = self.rounds.step(&self.context, is_current)?;
            let round = self.rounds.round();
            effects.news.push(if kind == Cost::Withheld { News::Withheld(round) } else { News::Round(round) });
            self.collect_own_final();
            (self.progress, self.stepped) = (effects.now, effects.now);
            let frame = self.rounds.newest().expect("a step leaves one").frame();
            for link in self.links.live().filter_map(|(_, link)| link) {
                effects.net.send(link, frame);
            }
        }
        if self.are_rounds_done() {
            self.finals.poll(&self.context, self.progress, &self.links, effects);
        }
        Ok(())
    }

    /// Keeps the own last release, if it was made.
    pub(super) fn collect_own_final(&mut self) {
        let me = self.context.me();
        if let Some(last) = self.rounds.newest().and_then(|sealed| sealed.as_final(me, &self.context.limits)) {
            self.finals.collect(me, last);
        }
    }
}
