//! After the last round: everybody's last release goes to everybody, from neighbour to neighbour.
//!
//! The model is the mean of all last releases. They are public already, each is signed by its author, and every peer
//! checks each once, so it does not matter who passes them on. All peers end with the same model.

use std::time::Duration;

use super::{Conflict, GRACE, News, Node, OnLoss, REPORT, Transport};
use crate::ledger::Disk;
use crate::message::{Final, Head, Message, Outgoing, Release, decode, done};

impl<D: Disk> Node<D> {
    /// Keeps the own last release.
    pub(super) fn collect_own_final(&mut self) {
        let me = self.setup.me as u32;
        if let Some(last) = self.frames.last().and_then(|f| f.as_final(me, &self.limits)) {
            self.keep_final(me, last);
        }
    }

    /// Keeps a neighbour's last release.
    pub(super) fn collect_neighbours_final(&mut self, author: u32, prior: Head, release: &Release) {
        if let Some(signature) = release.signature.filter(|_| release.round == self.limits.rounds) {
            let last = Final { author, prior, payload: release.payload, signature };
            self.keep_final(author, last.encode());
        }
    }

    /// Takes in a last release that a neighbour passed on; returns why the connection is to be closed, if it is.
    pub(super) fn receive_final(&mut self, last: &Final, frame: &[u8]) -> Option<String> {
        let known = self.finals[last.author as usize].as_ref();
        if known.is_some_and(|known| known.bytes() == frame) {
            return None;
        }
        let author = &self.setup.roster.ids[last.author as usize];
        if !last.verifies(&self.chain, author, self.limits.rounds) {
            return Some("a last release with a wrong signature".into());
        }
        if let Some(known) = known {
            // Two valid signatures of one author for one round: whoever passed this on is not to blame.
            let conflict = Conflict {
                author: last.author,
                round: self.limits.rounds,
                first: known.bytes().to_vec(),
                second: frame.to_vec(),
                provable: true,
            };
            self.accuse(conflict);
            return None;
        }
        self.keep_final(last.author, last.encode());
        None
    }

    /// Reports an author that contradicts itself, once.
    pub(super) fn accuse(&mut self, conflict: Conflict) {
        if self.accused.insert(conflict.author) {
            self.news.push(News::Conflict(conflict));
        }
    }

    fn keep_final(&mut self, author: u32, frame: Outgoing) {
        let slot = &mut self.finals[author as usize];
        if slot.is_none() {
            *slot = Some(frame);
        }
        if !self.complete && self.finals.iter().all(Option::is_some) {
            self.complete = true;
            self.news.push(News::Complete);
        }
    }

    /// Passes on what each neighbour was not sent yet.
    pub(super) fn spread_finals(&mut self, now: Duration, net: &mut dyn Transport) {
        if self.round < self.limits.rounds {
            return;
        }
        if !self.complete && !self.gave_up {
            if now >= self.progress + self.end_patience() {
                self.gave_up = true;
                self.news.push(News::GaveUp(self.missing()));
            } else if !self.missing_reported && now >= self.progress + REPORT {
                self.missing_reported = true;
                self.news.push(News::Missing(self.missing()));
            }
        }
        let finished = self.saved && (self.complete || self.gave_up);
        for neighbour in self.neighbours.iter_mut().filter(|n| !n.dropped) {
            let Some(link) = neighbour.link() else { continue };
            for (sent, last) in neighbour.sent_finals.iter_mut().zip(&self.finals) {
                if let (false, Some(last)) = (*sent, last) {
                    net.send(link, last);
                    *sent = true;
                }
            }
            if finished && neighbour.sent_done != Some(neighbour.done) {
                net.send(link, &done(self.complete, neighbour.done));
                neighbour.sent_done = Some(neighbour.done);
            }
        }
        if finished && !self.serving_reported && now >= self.progress + REPORT {
            let waiting: Vec<u32> = self.active().filter(|n| !n.done).map(|n| n.id).collect();
            if !waiting.is_empty() {
                self.serving_reported = true;
                self.news.push(News::Serving(waiting));
            }
        }
    }

    /// How long nothing may happen after the last round before something changes: before this peer gives up on last
    /// releases that are missing, or, when it has them, before it leaves.
    ///
    /// A neighbour that gave up has passed on all that it will ever have; one that has all will pass on all. Where edges
    /// are dropped, whoever is next to a lost peer takes its patience to drop it and then goes on; those further away
    /// must not give up before that.
    pub(super) fn end_patience(&self) -> Duration {
        match self.setup.on_loss {
            _ if self.complete || self.gave_up => self.linger,
            _ if self.active().any(|n| n.gave_up) => GRACE,
            OnLoss::Drop(patience) => 2 * patience + GRACE,
            OnLoss::Wait => Duration::MAX / 4,
        }
    }

    /// The result is on disk: neighbours may be told that this peer needs nothing more.
    pub fn saved(&mut self) {
        self.saved = true;
    }

    /// Those whose last release is not here.
    pub fn missing(&self) -> Vec<u32> {
        (0..).zip(&self.finals).filter(|(_, last)| last.is_none()).map(|(k, _)| k).collect()
    }

    /// Whether there is nothing left to do, for this peer or for its neighbours.
    pub fn is_finished(&self, now: Duration) -> bool {
        // Nobody leaves before its neighbours know that it is done, or it would be waited for; one that is done and no
        // longer connected has left.
        let all_done = self.active().all(|n| n.done && (n.heard || n.link().is_none()));
        let finished = self.saved && (self.complete || self.gave_up);
        finished && (all_done || now >= self.progress + self.linger)
    }

    /// Whether everybody's last release is here.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The frames of the last releases that are here.
    pub fn final_frames(&self) -> impl Iterator<Item = &[u8]> {
        self.finals.iter().flatten().map(Outgoing::bytes)
    }

    /// The last releases that are here, with their authors, by ascending id.
    pub fn finals(&self) -> Vec<(u32, Vec<f64>)> {
        let values = |frame: &Outgoing| match decode(frame.bytes(), &self.limits) {
            Ok(Message::Final(last)) => Some((last.author, last.payload.values().collect())),
            _ => None,
        };
        self.finals.iter().flatten().filter_map(values).collect()
    }
}
