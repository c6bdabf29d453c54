//! After the last round, the last release of every peer goes to all peers, from neighbour to neighbour.
//!
//! The model is the mean of the last releases that enough peers have signed as a set (see `votes`): of all peers, or of those that are left.
//! They are public already, each is signed by its author, and every peer
//! checks each once, so it does not matter which peer passes them on. All peers that end well end with the same model.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Context;
use super::events::{Deadline, Effects};
use super::links::Links;
use super::votes::{Counted, Votes};
use super::{Conflict, Link, News, OnLoss, REPORT};
use crate::message::{Ballot, Final, Head, Message, Outgoing, RoundFrame, Vote, decode, done};
use crate::study::Limits;

/// How long nothing may happen after the last round before a peer assumes that others have given up.
const GRACE: Duration = Duration::from_secs(10);
/// How long to stay online for others when everything is done; less where edges are dropped sooner.
const LINGER: Duration = Duration::from_secs(600);

/// How far the agreement on last releases is. A state may be followed by one further down, never by one further up.
#[derive(Debug, Clone, PartialEq)]
enum Collection {
    /// Last releases are missing, or votes.
    Open {
        /// Whether it was reported which releases.
        is_reported: bool,
    },
    /// What is missing is no longer waited for.
    GaveUp,
    /// Enough peers have signed this set, and it is here.
    Agreed(Ballot),
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
    /// Whether it knows the model.
    agreed: bool,
    /// Whether it knows that this peer needs no more either.
    knows: bool,
}

/// What one neighbour with a live edge was sent, and what it said.
#[derive(Debug, Clone, PartialEq)]
struct Delivery {
    /// Which last releases it was sent on its newest connection.
    sent: Vec<bool>,
    /// Whose votes.
    sent_votes: Vec<bool>,
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
        self.sent_votes.fill(false);
        self.sent_done = None;
    }
}

/// The last releases, and the end of the run.
pub(super) struct Finals {
    /// The frames of the last releases, by author.
    frames: Vec<Option<Outgoing>>,
    votes: Votes,
    /// When this peer signed a set.
    voted: Duration,
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
        let none = vec![false; clients];
        let delivery = Delivery { sent: none.clone(), sent_votes: none, sent_done: None, said: None };
        Self {
            frames: vec![None; clients],
            votes: Votes::new(context),
            voted: Duration::ZERO,
            collection: Collection::Open { is_reported: false },
            result: ResultState::Unsaved,
            on_loss: context.setup.on_loss,
            linger: LINGER,
            accused: BTreeMap::new(),
            deliveries: context.neighbours().iter().map(|&id| (id, delivery.clone())).collect(),
        }
    }

    /// Takes in the last releases and votes that were on disk when the process started.
    pub fn resume(&mut self, context: &Context, frames: &[Vec<u8>], news: &mut Vec<News>) {
        for frame in frames {
            // What is not valid is collected anew.
            let _ = match decode(frame, &context.limits) {
                Ok(Message::Final(last)) => self.handle_final(context, &last, frame, news),
                Ok(Message::Vote(vote)) => self.handle_vote(context, &vote, news),
                _ => continue,
            };
        }
        self.votes.kept();
        self.agree(context, news);
        // It was agreed before this start, so neighbours that still need something are connected, or will ask again.
        if self.is_agreed() {
            self.linger = GRACE;
        }
    }

    /// Keeps the last release of an author, whose signature was checked.
    pub fn collect(&mut self, author: u32, frame: Outgoing) {
        self.frames[author as usize].get_or_insert(frame);
    }

    /// Keeps a neighbour's release if it is its last. `prior` is the neighbour's chain before it.
    pub fn handle_release(&mut self, limits: &Limits, author: u32, prior: Head, release: &RoundFrame) {
        if let Some(signature) = release.signature.filter(|_| release.round == limits.rounds) {
            let last = Final { author, prior, payload: release.payload, signature };
            self.collect(author, last.encode());
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
        self.collect(last.author, last.encode());
        Ok(true)
    }

    /// Takes in a vote that a neighbour passed on. Returns whether it is new, or why the connection is to be closed.
    pub fn handle_vote(&mut self, context: &Context, vote: &Vote, news: &mut Vec<News>) -> Result<bool, String> {
        match self.votes.handle(context, vote, news)? {
            Counted::Known => Ok(false),
            Counted::New => Ok(true),
            Counted::Conflict(conflict) => {
                self.accuse(*conflict, news);
                Ok(false)
            }
        }
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
    pub fn handle_done(&mut self, peer: u32, agreed: bool, knows: bool) -> Option<String> {
        if self.frames[peer as usize].is_none() {
            return Some("done before its last release".into());
        }
        if let Some(delivery) = self.deliveries.get_mut(&peer) {
            delivery.said = Some(Said { agreed, knows });
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

    /// Votes, agrees or gives up if it is time, and sends every neighbour what it was not sent yet.
    ///
    /// To be called only when all rounds are done. `progress` is when something new last happened.
    pub fn poll(&mut self, context: &Context, progress: Duration, links: &Links, effects: &mut Effects) {
        if !self.is_agreed() && !self.votes.has_own() && self.lacks().next().is_none() {
            self.vote(context, self.ballot_of(context, |k| !self.accused.contains_key(&k)), effects);
        }
        self.agree(context, effects.news);
        self.handle_timeout(context, progress, effects);
        let is_settled = self.is_settled();
        let is_agreed = self.is_agreed();
        for (&peer, delivery) in &mut self.deliveries {
            let Some(link) = links.link(peer) else { continue };
            // Votes first: a peer that has lost its own must not sign another.
            for (author, vote) in self.votes.frames() {
                if !std::mem::replace(&mut delivery.sent_votes[author as usize], true) {
                    effects.net.send(link, vote);
                }
            }
            for (sent, last) in delivery.sent.iter_mut().zip(&self.frames) {
                if let (false, Some(last)) = (*sent, last) {
                    effects.net.send(link, last);
                    *sent = true;
                }
            }
            let received = delivery.is_done();
            if is_settled && delivery.sent_done != Some(received) {
                effects.net.send(link, &done(&context.limits, is_agreed, received));
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

    fn vote(&mut self, context: &Context, ballot: Ballot, effects: &mut Effects) {
        self.voted = effects.now;
        self.votes.sign(context, ballot, effects.news);
    }

    /// The last releases of these authors that are here.
    fn ballot_of(&self, context: &Context, counts: impl Fn(u32) -> bool) -> Ballot {
        let limits = &context.limits;
        let releases = self.frames.iter().flatten().filter_map(|frame| match decode(frame.bytes(), limits) {
            Ok(Message::Final(last)) if counts(last.author) => Some(last),
            _ => None,
        });
        Ballot::of(releases, limits)
    }

    /// Whether the last releases of a set are here, the same as those who signed it have.
    fn has(&self, context: &Context, ballot: &Ballot) -> bool {
        self.ballot_of(context, |k| ballot.contains(k)) == *ballot
    }

    /// Notices that enough peers have signed a set that is here.
    fn agree(&mut self, context: &Context, news: &mut Vec<News>) {
        if self.is_agreed() {
            return;
        }
        let needed = context.quorum();
        let enough = self.votes.tally().into_iter().filter(|(_, votes)| *votes >= needed);
        let agreed = enough.map(|(ballot, _)| ballot).find(|ballot| self.has(context, ballot)).cloned();
        if let Some(ballot) = agreed {
            self.collection = Collection::Agreed(ballot);
            // What is on disk says that there is none.
            self.result = ResultState::Unsaved;
            news.push(News::Agreed(self.missing()));
        }
    }

    fn handle_timeout(&mut self, context: &Context, progress: Duration, effects: &mut Effects) {
        let Collection::Open { is_reported } = self.collection else { return };
        let since = progress.max(self.voted);
        if effects.now >= since + self.patience(context) {
            match self.last_resort(context) {
                Some(ballot) => self.vote(context, ballot, effects),
                None => {
                    self.collection = Collection::GaveUp;
                    effects.news.push(News::GaveUp(self.missing()));
                }
            }
        } else if !is_reported && effects.now >= progress + REPORT {
            self.collection = Collection::Open { is_reported: true };
            if self.lacks().next().is_some() {
                effects.news.push(News::Missing(self.missing()));
            }
        }
    }

    /// The set that this peer signs when it waits no longer: one that more peers than may lie have signed, or else what is here, if that can be a model.
    fn last_resort(&self, context: &Context) -> Option<Ballot> {
        if self.votes.has_own() {
            return None;
        }
        let credible = self.votes.tally().into_iter().filter(|(_, votes)| *votes > context.setup.study.liars());
        let usable = credible.filter(|(ballot, _)| ballot.len() >= context.quorum() && self.has(context, ballot));
        let own = || self.ballot_of(context, |k| !self.accused.contains_key(&k));
        let chosen = usable.max_by_key(|(_, votes)| *votes).map_or_else(own, |(ballot, _)| ballot.clone());
        (chosen.len() >= context.quorum()).then_some(chosen)
    }

    /// Adds the times at which [`Finals::poll`] has something to do, if all rounds are done.
    pub fn add_timeouts(&self, context: &Context, progress: Duration, deadline: &mut Deadline) {
        deadline.add(progress.max(self.voted) + self.patience(context));
        deadline.add(progress + self.stay());
        deadline.add(progress + REPORT);
    }

    /// How long nothing may happen after the last round before this peer waits no longer for last
    /// releases or votes that are missing or, when there is a model, exits.
    ///
    /// A neighbour that gave up has passed on all that it will ever have, and so has one that signed a set in which some are missing. Where
    /// edges are dropped, the neighbours of a lost peer wait for their patience to end and then go on. Peers further
    /// away must not give up before that.
    fn patience(&self, context: &Context) -> Duration {
        let is_short = |ballot: &Ballot| self.lacks().any(|k| !ballot.contains(k));
        let short =
            || self.votes.tally().into_iter().filter(|(ballot, _)| is_short(ballot)).map(|(_, votes)| votes).sum();
        match self.on_loss {
            _ if !matches!(self.collection, Collection::Open { .. }) => self.linger,
            _ if self.deliveries.values().any(|d| d.said.is_some_and(|said| !said.agreed)) => GRACE,
            _ if !self.votes.has_own() && context.setup.study.liars() < short() => GRACE,
            OnLoss::Drop(patience) => 2 * patience + GRACE,
            OnLoss::Wait => Duration::MAX / 4,
        }
    }

    /// How long to stay online for neighbours when the result is on disk.
    fn stay(&self) -> Duration {
        match self.on_loss {
            // A neighbour that is away for this long would have been dropped before the end. Without a model the others' votes are still waited for.
            OnLoss::Drop(patience) if self.is_agreed() => self.linger.min(2 * patience + GRACE),
            _ => self.linger,
        }
    }

    /// The authors whose last release is not here, and may still be counted.
    fn lacks(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.frames).filter(|(k, last)| last.is_none() && !self.accused.contains_key(k)).map(|(k, _)| k)
    }

    /// How many peers have signed the same set, at most.
    pub fn most_votes(&self) -> usize {
        self.votes.most()
    }

    /// The authors that contradicted themselves.
    pub fn accused(&self) -> impl Iterator<Item = u32> {
        self.accused.keys().copied()
    }

    /// The own vote is on disk, and the result if there is one.
    pub fn saved(&mut self) {
        self.votes.kept();
        if self.result == ResultState::Unsaved && !matches!(self.collection, Collection::Open { .. }) {
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
        self.is_settled() && (all_over() || now >= progress + self.stay())
    }

    /// Whether enough peers have signed a set of last releases, and it is here.
    pub fn is_agreed(&self) -> bool {
        matches!(self.collection, Collection::Agreed(_))
    }

    /// Whether the last release of an author is in the model, as far as is known.
    fn counts(&self, author: u32) -> bool {
        match &self.collection {
            Collection::Agreed(ballot) => ballot.contains(author),
            _ => self.frames[author as usize].is_some(),
        }
    }

    /// Authors whose last release is not in the model, or not here yet.
    pub fn missing(&self) -> Vec<u32> {
        (0..self.frames.len() as u32).filter(|k| !self.counts(*k)).collect()
    }

    /// The frames that are here, by ascending author, and the votes: what is written down.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().flatten().chain(self.votes.all()).map(Outgoing::bytes)
    }

    /// The last releases that are in the model, or here, with their authors, by ascending author.
    pub fn releases(&self, limits: &Limits) -> Vec<(u32, Vec<f64>)> {
        let values = |frame: &Outgoing| match decode(frame.bytes(), limits) {
            Ok(Message::Final(last)) if self.counts(last.author) => {
                Some((last.author, last.payload.values().collect()))
            }
            _ => None,
        };
        self.frames.iter().flatten().filter_map(values).collect()
    }
}
