//! Connections: who is there, who is dialled, who is greeted, and whose edge goes.

use std::time::Duration;

use rand::RngExt;

use super::{
    Connection, HELLO_PATIENCE, LONGEST_PAUSE, Link, News, Node, OnLoss, REPORT, REPORT_AGAIN, STALL, Stop, Transport,
};
use crate::ledger::Disk;
use crate::message::{Hello, Outgoing, Receipt};

/// Connections that one neighbour may have at a time.
const MOST_LINKS: usize = 4;

impl<D: Disk> Node<D> {
    pub(super) fn up(&mut self, link: Link, peer: u32, now: Duration, net: &mut dyn Transport) {
        let Some(neighbour) = self.neighbour(peer) else {
            net.close(link, "not a neighbour in this study");
            return;
        };
        neighbour.dialling = false;
        // No other dial while this one is being greeted.
        neighbour.next_dial = now + REPORT;
        // Two dials that cross make two connections, a restart on either side a third; more is abuse.
        let of_peer = self.links.iter().filter(|(_, c)| c.peer == peer);
        if of_peer.clone().count() >= MOST_LINKS {
            let oldest = *of_peer.map(|(link, _)| link).min().expect("there are some");
            net.close(oldest, "too many connections");
            self.down(oldest, "closed by this peer: too many connections".into(), now, net);
        }
        let hello = self.hello(peer);
        self.links.insert(link, Connection { peer, greeted: false, since: now });
        net.send(link, &hello);
    }

    pub(super) fn hello(&self, peer: u32) -> Outgoing {
        let neighbour = self.neighbours.iter().find(|n| n.id == peer).expect("asked for neighbours only");
        let receipt = if neighbour.round() == 0 { Receipt::default() } else { neighbour.receipts[0] };
        Hello { study: self.digest, round: self.round, receipt, dropped: neighbour.dropped }.encode()
    }

    pub(super) fn down(&mut self, link: Link, reason: String, now: Duration, net: &mut dyn Transport) {
        let Some(connection) = self.links.remove(&link) else { return };
        let smaller = (self.setup.me as u32) < connection.peer;
        let pause = self.pause(if smaller { 20 } else { 300 });
        let Some(neighbour) = self.neighbour(connection.peer) else { return };
        let was_up = neighbour.link().is_some();
        neighbour.links.retain(|l| *l != link);
        if neighbour.dropped {
            neighbour.next_dial = now + LONGEST_PAUSE;
            return;
        }
        if neighbour.link().is_some() {
            self.send_again(connection.peer, net);
            return;
        }
        if was_up {
            neighbour.lose(now);
            neighbour.next_dial = now + pause;
            self.news.push(News::Lost(connection.peer, reason));
        } else {
            // Refused before it was greeted: no hurry to try again.
            neighbour.attempts += 1;
            neighbour.next_dial = now + LONGEST_PAUSE;
            // The same answer every few seconds is news only now and then.
            let known = neighbour.refused.as_ref().is_some_and(|(r, at)| *r == reason && now < *at + REPORT_AGAIN);
            if !known {
                neighbour.refused = Some((reason.clone(), now));
                self.news.push(News::Refused(connection.peer, reason));
            }
        }
    }

    /// A connection ended with frames under way, and another is left: what may be lost is sent again on that one.
    fn send_again(&mut self, peer: u32, net: &mut dyn Transport) {
        let Some(neighbour) = self.neighbours.iter_mut().find(|n| n.id == peer) else { return };
        let Some(link) = neighbour.link() else { return };
        for sealed in &self.frames {
            net.send(link, sealed.frame());
        }
        neighbour.sent_finals.fill(false);
        neighbour.sent_done = None;
    }

    pub(super) fn unreachable(&mut self, peer: u32, now: Duration) {
        let attempts = self.neighbour(peer).map_or(0, |n| n.attempts);
        let pause = self.pause(100 << attempts.min(6));
        let Some(neighbour) = self.neighbour(peer) else { return };
        neighbour.dialling = false;
        neighbour.attempts += 1;
        neighbour.next_dial = now + pause;
    }

    /// About so many milliseconds, up to the longest pause.
    fn pause(&mut self, milliseconds: u64) -> Duration {
        let spread = 0.5 + self.jitter.random::<f64>();
        Duration::from_millis(milliseconds).mul_f64(spread).min(LONGEST_PAUSE)
    }

    /// What is due: dials, silent hellos, stalled neighbours, patience.
    pub(super) fn watch(&mut self, now: Duration, net: &mut dyn Transport) -> Result<(), Stop> {
        let silent = self.links.iter().filter(|(_, c)| !c.greeted && now >= c.since + HELLO_PATIENCE);
        for link in silent.map(|(link, _)| *link).collect::<Vec<_>>() {
            net.close(link, "no hello came");
            self.down(link, "no hello came".into(), now, net);
        }
        if now >= self.progress.max(self.asked) + STALL {
            self.asked = now;
            let stalled: Vec<_> = self.active().filter_map(|n| Some((n.link()?, n.id))).collect();
            for (link, id) in stalled {
                net.send(link, &self.hello(id));
            }
        }
        for index in 0..self.neighbours.len() {
            let (id, dialable) = (self.neighbours[index].id, self.is_dialable(self.neighbours[index].id));
            let neighbour = &mut self.neighbours[index];
            let connected = neighbour.link().is_some();
            // One that was dropped is dialled until it knows: its own study may have no address for us.
            let wanted = !connected && (!neighbour.dropped || !neighbour.told);
            if wanted && dialable && !neighbour.dialling && now >= neighbour.next_dial {
                neighbour.dialling = true;
                net.dial(id);
            }
            if neighbour.dropped || (connected && !neighbour.distrusted) {
                continue;
            }
            let lost = neighbour.lost_since.unwrap_or(now);
            if now >= neighbour.reported.map_or(lost + REPORT, |last| last + REPORT_AGAIN) {
                neighbour.reported = Some(now);
                self.news.push(News::Waiting(id));
            }
            let OnLoss::Drop(patience) = self.setup.on_loss else { continue };
            // Before the first round nothing is lost by waiting, and somebody is always the first to start.
            if now >= lost + patience && (1..self.limits.rounds).contains(&self.round) {
                self.drop_edge(index, false)?;
            }
        }
        Ok(())
    }

    /// Takes an edge out of the graph, durably.
    fn drop_edge(&mut self, index: usize, theirs: bool) -> Result<(), Stop> {
        let neighbour = self.neighbours[index].id;
        self.ledger.drop_edge(neighbour)?;
        self.forget_edge(index);
        let left = self.active().count();
        self.news.push(News::Dropped { neighbour, theirs, left });
        self.check_alone()
    }

    /// Takes an edge's share out of the dual.
    pub(super) fn forget_edge(&mut self, index: usize) {
        self.neighbours[index].dropped = true;
        if !self.has_dual() {
            return;
        }
        let weight = self.setup.study.algorithm.dual_weight();
        for p in 0..self.limits.features {
            let sum: f64 = self.neighbours.iter().filter(|n| !n.dropped).map(|n| n.disagreement[p]).sum();
            self.memory[p] = weight * sum;
        }
    }

    /// Takes in a hello; returns why the connection is to be closed, if it is.
    pub(super) fn greet(
        &mut self,
        link: Link,
        peer: u32,
        hello: &Hello,
        net: &mut dyn Transport,
    ) -> Result<Option<String>, Stop> {
        let differences = self.digest.differences(&hello.study);
        if !differences.is_empty() {
            return Ok(Some(format!("the two studies differ in: {}", differences.join(", "))));
        }
        if let Some(reason) = self.check_receipt(peer, &hello.receipt)? {
            return Ok(Some(reason));
        }
        let index = self.neighbours.iter().position(|n| n.id == peer).expect("links are to neighbours");
        if self.neighbours[index].dropped {
            self.neighbours[index].told = true;
            return Ok(Some("this edge was dropped".into()));
        }
        if hello.dropped {
            self.drop_edge(index, true)?;
            return Ok(Some("this edge was dropped".into()));
        }
        let oldest = self.frames.first().map_or(0, |f| f.receipt().round);
        if hello.receipt.round + 1 < oldest {
            return Ok(Some(format!("round {} is no longer kept", hello.receipt.round + 1)));
        }
        self.links.get_mut(&link).expect("looked up before").greeted = true;
        let neighbour = &mut self.neighbours[index];
        if !neighbour.links.contains(&link) {
            if neighbour.link().is_none() {
                self.news.push(News::Greeted(peer));
            }
            neighbour.links.push(link);
            // Whoever is done stays done, also after a restart: its result was on disk before it said so. But what it has heard
            // it may have forgotten, and two dials that crossed must not make us forget that it left.
            neighbour.heard = false;
        }
        // A hello on a link that is known asks for whatever may be missing.
        neighbour.sent_finals.fill(false);
        neighbour.sent_done = None;
        (neighbour.greeted, neighbour.reported) = (true, None);
        neighbour.attempts = 0;
        if !neighbour.distrusted {
            neighbour.lost_since = None;
        }
        // One side decides which of several connections stays, or each might close the other's choice.
        let superseded = if (self.setup.me as u32) < peer { neighbour.links.len() - 1 } else { 0 };
        for old in neighbour.links.drain(..superseded) {
            // What is under way on it still counts.
            net.close(old, "a newer connection takes over");
        }
        for sealed in self.frames.iter().filter(|f| f.receipt().round > hello.receipt.round) {
            net.send(link, sealed.frame());
        }
        Ok(None)
    }

    /// Compares what a neighbour has of ours with the ledger.
    fn check_receipt(&self, peer: u32, receipt: &Receipt) -> Result<Option<String>, Stop> {
        if receipt.round == 0 {
            return Ok(None);
        }
        if !self.chain.is_own(&self.setup.identity, receipt) {
            return Ok(Some("a receipt for a frame that this peer never made".into()));
        }
        let neighbour = || self.setup.roster.names.get(peer as usize).into_owned();
        if receipt.round > self.round {
            return Err(Stop::Behind { neighbour: neighbour(), theirs: receipt.round, own: self.round });
        }
        let known = self.frames.iter().find(|f| f.receipt().round == receipt.round);
        if known.is_some_and(|frame| frame.receipt().head != receipt.head) {
            return Err(Stop::Forked { neighbour: neighbour(), round: receipt.round });
        }
        Ok(None)
    }
}
