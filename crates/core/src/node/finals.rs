//! After the last round, the last release of every peer goes to all peers, from neighbour to neighbour.
//!
//! The model is the mean of all last releases. They are public already, each is signed by its author, and every peer
//! checks each once, so it does not matter which peer passes them on. All peers end with the same model.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Context;
use super::events::{Deadline, Effects};
use super::links::Links;
use super::{Conflict, Link, News, OnLoss, REPORT};
use crate::message::{Final, Head, Message, Outgoing, RoundFrame, decode, done};
use crate::study::Limits;

/// How long nothing may happen after the last round before a peer assumes that others have given up.
const GRACE: Duration = Duration::from_secs(10);
/// How long to stay online for others when everything is done.
const LINGER: Duration = Duration::from_secs(600);

/// How far the collection of last releases is. A state may be followed by one further down, never by one further up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Collection {
    /// Some are missing.
    Open {
        /// Whether it was reported which.
        is_reported: bool,
    },
    /// Some are missing and no longer waited for.
    GaveUp,
    /// All are here.
    Complete,
}

/// What has become of the result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ResultState {
    /// It is not on disk.
    Unsaved,
    /// It is on disk, so neighbours may be told that this peer needs nothing more.
    Saved,
    /// It is on disk, and it was reported which neighbours this peer stays for.
    Reported,
}

/// What a neighbour said when it had no more need of last releases.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Said {
    /// Whether it has them all.
    complete: bool,
    /// Whether it knows that this peer needs no more either.
    knows: bool,
}

/// What one neighbour with a live edge was sent, and what it said.
#[derive(Debug, Clone, PartialEq)]
struct Delivery {
    /// Which last releases it was sent on its newest connection.
    sent: Vec<bool>,
    /// The done frame that it was sent on its newest connection: whether that one said that its own was received.
    sent_done: Option<bool>,
    /// What it said. That stays true after a restart of the neighbour, because its result was on disk before.
    said: Option<Said>,
}

impl Delivery {
    fn is_done(&self) -> bool {
        self.said.is_some()
    }

    /// Whether the neighbour does not need this peer any more. One that is done and not connected has left.
    fn is_over(&self, link: Option<Link>) -> bool {
        self.said.is_some_and(|said| said.knows || link.is_none())
    }

    fn forget_sent(&mut self) {
        self.sent.fill(false);
        self.sent_done = None;
    }
}

/// The last releases, and the end of the run.
pub(super) struct Finals {
    /// The frames of the last releases, by author.
    frames: Vec<Option<Outgoing>>,
    collection: Collection,
    result: ResultState,
    on_loss: OnLoss,
    /// How long to stay online for others when everything is done.
    linger: Duration,
    /// Authors that contradicted themselves, and whether that can be proven to others.
    accused: BTreeMap<u32, bool>,
    /// The neighbours with a live edge.
    deliveries: BTreeMap<u32, Delivery>,
}

impl Finals {
    pub fn new(context: &Context) -> Self {
        let clients = context.limits.clients;
        let delivery = Delivery { sent: vec![false; clients], sent_done: None, said: None };
        Self {
            frames: vec![None; clients],
            collection: Collection::Open { is_reported: false },
            result: ResultState::Unsaved,
            on_loss: context.setup.on_loss,
            linger: LINGER,
            accused: BTreeMap::new(),
            deliveries: context.neighbours().iter().map(|&id| (id, delivery.clone())).collect(),
        }
    }

    /// Takes in the last releases that were on disk when the process started.
    pub fn resume(&mut self, context: &Context, frames: &[Vec<u8>], news: &mut Vec<News>) {
        for frame in frames {
            if let Ok(Message::Final(last)) = decode(frame, &context.limits) {
                // One that is not valid is collected anew.
                let _ = self.handle_final(context, &last, frame, news);
            }
        }
        // It was complete before this start, so neighbours that still need something are connected, or will ask again.
        if self.is_complete() {
            self.linger = GRACE;
        }
    }

    /// Keeps the last release of an author, whose signature was checked.
    pub fn collect(&mut self, author: u32, frame: Outgoing, news: &mut Vec<News>) {
        self.frames[author as usize].get_or_insert(frame);
        if !self.is_complete() && self.frames.iter().all(Option::is_some) {
            self.collection = Collection::Complete;
            news.push(News::Complete);
        }
    }

    /// Keeps a neighbour's release if it is its last. `prior` is the neighbour's chain before it.
    pub fn handle_release(
        &mut self,
        limits: &Limits,
        author: u32,
        prior: Head,
        release: &RoundFrame,
        news: &mut Vec<News>,
    ) {
        if let Some(signature) = release.signature.filter(|_| release.round == limits.rounds) {
            let last = Final { author, prior, payload: release.payload, signature };
            self.collect(author, last.encode(), news);
        }
    }

    /// Takes in a last release that a neighbour passed on. Returns whether it is new, or why the connection is to be
    /// closed.
    pub fn handle_final(
        &mut self,
        context: &Context,
        last: &Final,
        frame: &[u8],
        news: &mut Vec<News>,
    ) -> Result<bool, String> {
        let known = self.frames[last.author as usize].as_ref();
        if known.is_some_and(|known| known.bytes() == frame) {
            return Ok(false);
        }
        if !last.verifies(&context.chain, context.id(last.author), context.limits.rounds) {
            return Err("a last release with a wrong signature".into());
        }
        if let Some(known) = known {
            // Two valid signatures of one author for one round. The neighbour that passed this on did nothing wrong.
            let round = context.limits.rounds;
            if let Ok(Message::Final(known)) = decode(known.bytes(), &context.limits) {
                let stories = [known.signed_head(round).into(), last.signed_head(round).into()];
                self.accuse(Conflict { author: last.author, round, stories }, news);
            }
            return Ok(false);
        }
        self.collect(last.author, last.encode(), news);
        Ok(true)
    }

    /// Reports an author with two stories: once, and once more when they can be proven. Returns whether this is news.
    pub fn accuse(&mut self, conflict: Conflict, news: &mut Vec<News>) -> bool {
        let is_provable = conflict.is_provable();
        let known = self.accused.insert(conflict.author, is_provable);
        let is_news = known.is_none_or(|was_provable| is_provable && !was_provable);
        if known == Some(true) {
            self.accused.insert(conflict.author, true);
        }
        if is_news {
            news.push(News::Conflict(conflict));
        }
        is_news
    }

    /// A neighbour needs no more last releases. Returns why the connection is to be closed: it cannot be done before its own last release, which it sends first.
    pub fn handle_done(&mut self, peer: u32, complete: bool, knows: bool) -> Option<String> {
        if self.frames[peer as usize].is_none() {
            return Some("done before its last release".into());
        }
        if let Some(delivery) = self.deliveries.get_mut(&peer) {
            delivery.said = Some(Said { complete, knows });
        }
        None
    }

    /// A neighbour has sent a hello, which asks for everything that it may be missing.
    pub fn handle_hello(&mut self, peer: u32, is_first: bool) {
        let Some(delivery) = self.deliveries.get_mut(&peer) else { return };
        delivery.forget_sent();
        // On a new connection the neighbour may have been restarted, and then it does not know what it was told. That
        // it is done holds nevertheless.
        if let Some(said) = delivery.said.as_mut().filter(|_| is_first) {
            said.knows = false;
        }
    }

    /// Frames to a neighbour may be lost: everything is sent again.
    pub fn send_again(&mut self, peer: u32) {
        if let Some(delivery) = self.deliveries.get_mut(&peer) {
            delivery.forget_sent();
        }
    }

    /// The edge to a neighbour is dropped: it is neither sent anything nor waited for.
    pub fn drop_edge(&mut self, peer: u32) {
        self.deliveries.remove(&peer);
    }

    /// Sends every neighbour what it was not sent yet, and gives up or reports if it is time.
    ///
    /// To be called only when all rounds are done. `progress` is when something new last happened.
    pub fn poll(&mut self, limits: &Limits, progress: Duration, links: &Links, effects: &mut Effects) {
        self.handle_timeout(progress, effects);
        let is_settled = self.is_settled();
        let is_complete = self.is_complete();
        for (&peer, delivery) in &mut self.deliveries {
            let Some(link) = links.link(peer) else { continue };
            for (sent, last) in delivery.sent.iter_mut().zip(&self.frames) {
                if let (false, Some(last)) = (*sent, last) {
                    effects.net.send(link, last);
                    *sent = true;
                }
            }
            let received = delivery.is_done();
            if is_settled && delivery.sent_done != Some(received) {
                effects.net.send(link, &done(limits, is_complete, received));
                delivery.sent_done = Some(received);
            }
        }
        if is_settled && self.result == ResultState::Saved && effects.now >= progress + REPORT {
            let waiting = self.deliveries.iter().filter(|(_, d)| !d.is_done());
            let waiting: Vec<u32> = waiting.map(|(peer, _)| *peer).collect();
            if !waiting.is_empty() {
                self.result = ResultState::Reported;
                effects.news.push(News::Serving(waiting));
            }
        }
    }

    fn handle_timeout(&mut self, progress: Duration, effects: &mut Effects) {
        let Collection::Open { is_reported } = self.collection else { return };
        if effects.now >= progress + self.patience() {
            self.collection = Collection::GaveUp;
            effects.news.push(News::GaveUp(self.missing()));
        } else if !is_reported && effects.now >= progress + REPORT {
            self.collection = Collection::Open { is_reported: true };
            effects.news.push(News::Missing(self.missing()));
        }
    }

    /// Adds the times at which [`Finals::poll`] has something to do, if all rounds are done.
    pub fn add_timeouts(&self, progress: Duration, deadline: &mut Deadline) {
        deadline.add(progress + self.patience());
        deadline.add(progress + REPORT);
    }

    /// How long nothing may happen after the last round before this peer gives up on last
    /// releases that are missing or, when it has all of them, exits.
    ///
    /// A neighbour that gave up has passed on all that it will ever have. One that has all will pass on all. Where
    /// edges are dropped, the neighbours of a lost peer wait for their patience to end and then go on. Peers further
    /// away must not give up before that.
    fn patience(&self) -> Duration {
        match self.on_loss {
            _ if !matches!(self.collection, Collection::Open { .. }) => self.linger,
            _ if self.deliveries.values().any(|d| d.said.is_some_and(|said| !said.complete)) => GRACE,
            OnLoss::Drop(patience) => 2 * patience + GRACE,
            OnLoss::Wait => Duration::MAX / 4,
        }
    }

    /// The authors that contradicted themselves.
    pub fn accused(&self) -> impl Iterator<Item = u32> {
        self.accused.keys().copied()
    }

    /// The result is on disk.
    pub fn saved(&mut self) {
        if self.result == ResultState::Unsaved {
            self.result = ResultState::Saved;
        }
    }

    /// Whether nothing more is collected and the result is on disk.
    fn is_settled(&self) -> bool {
        self.result != ResultState::Unsaved && !matches!(self.collection, Collection::Open { .. })
    }

    /// Whether neither this peer nor its neighbours need anything more.
    ///
    /// A peer does not leave before its neighbours know that it is done, or they would wait for it.
    pub fn is_finished(&self, now: Duration, progress: Duration, links: &Links) -> bool {
        let all_over = || self.deliveries.iter().all(|(&peer, delivery)| delivery.is_over(links.link(peer)));
        self.is_settled() && (all_over() || now >= progress + self.linger)
    }

    pub fn is_complete(&self) -> bool {
        self.collection == Collection::Complete
    }

    /// Authors whose last release is not here.
    pub fn missing(&self) -> Vec<u32> {
        (0..).zip(&self.frames).filter(|(_, last)| last.is_none()).map(|(k, _)| k).collect()
    }

    /// The frames that are here, by ascending author.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().flatten().map(Outgoing::bytes)
    }

    /// The last releases that are here, with their authors, by ascending author.
    pub fn releases(&self, limits: &Limits) -> Vec<(u32, Vec<f64>)> {
        let values = |frame: &[u8]| match decode(frame, limits) {
            Ok(Message::Final(last)) => Some((last.author, last.payload.values().collect())),
            _ => None,
        };
        self.frames().filter_map(values).collect()
    }
}
