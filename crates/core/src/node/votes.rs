//! Which last releases make the model: every peer signs one set of them, once, and a set that enough have signed is everybody's.
//!
//! Peers that lose others near the end hold different last releases. Without votes they would end with different models and not know it.
//! A model needs the signatures of q of the K peers, by default more than (K + b)/2 of them with b the liars that the study allows for. Two sets with q signatures each would share
//! 2q - K > b signers, so somebody who follows the protocol would have signed both, and nobody who does signs twice: a vote is on disk before it is sent.

use std::collections::BTreeMap;

use super::context::Context;
use super::{Conflict, News};
use crate::message::{Ballot, Message, Outgoing, SignedHead, Vote, decode};

/// A vote whose signature was checked.
#[derive(Debug, Clone)]
struct Cast {
    ballot: Ballot,
    frame: Outgoing,
    head: SignedHead,
}

/// What is done about a vote that was passed on.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Counted {
    /// It is known, or of no use.
    Known,
    /// It is new.
    New,
    /// Its author has signed another set before.
    Conflict(Box<Conflict>),
}

/// The votes that are known.
pub(super) struct Votes {
    me: u32,
    cast: Vec<Option<Cast>>,
    /// Whether the own vote is on disk, so that it counts and may be sent.
    is_kept: bool,
}

impl Votes {
    pub fn new(context: &Context) -> Self {
        Self { me: context.me(), cast: vec![None; context.limits.clients], is_kept: false }
    }

    /// Whether this peer has signed a set.
    pub fn has_own(&self) -> bool {
        self.cast[self.me as usize].is_some()
    }

    /// The own vote is on disk, if there is one.
    pub fn kept(&mut self) {
        self.is_kept = self.has_own();
    }

    /// Signs a set. The vote counts, and is sent, when it is on disk.
    pub fn sign(&mut self, context: &Context, ballot: Ballot, news: &mut Vec<News>) {
        let frame = ballot.sign(&context.chain, &context.setup.identity, self.me, &context.limits);
        if let Ok(Message::Vote(vote)) = decode(frame.bytes(), &context.limits) {
            self.keep(&vote, context);
            news.push(News::Voted);
        }
    }

    /// Takes in a vote that a neighbour passed on, or that was on disk. Otherwise why the connection is to be closed.
    pub fn handle(&mut self, context: &Context, vote: &Vote, news: &mut Vec<News>) -> Result<Counted, String> {
        let head = vote.signed_head(&context.limits);
        let known = self.cast[vote.author as usize].as_ref();
        if known.is_some_and(|known| known.head.head == head.head) {
            return Ok(Counted::Known);
        }
        if !vote.verifies(&context.chain, context.id(vote.author), &context.limits) {
            return Err("a vote with a wrong signature".into());
        }
        if let Some(known) = known {
            let stories = [known.head.into(), head.into()];
            let conflict = Conflict { author: vote.author, round: head.round, stories };
            return Ok(Counted::Conflict(Box::new(conflict)));
        }
        self.keep(vote, context);
        if vote.author == self.me {
            // Of a start of which nothing else is left: it was sent, so it binds.
            news.push(News::Voted);
        }
        Ok(Counted::New)
    }

    fn keep(&mut self, vote: &Vote, context: &Context) {
        let (frame, head) = (vote.encode(), vote.signed_head(&context.limits));
        self.cast[vote.author as usize] = Some(Cast { ballot: vote.ballot(), frame, head });
    }

    /// The sets that were signed, with the number of signatures.
    pub fn tally(&self) -> BTreeMap<&Ballot, usize> {
        let mut tally = BTreeMap::new();
        for (_, cast) in self.counting() {
            *tally.entry(&cast.ballot).or_default() += 1;
        }
        tally
    }

    /// How many signatures the set with the most has.
    pub fn most(&self) -> usize {
        self.tally().into_values().max().unwrap_or(0)
    }

    /// All votes, to be written down.
    pub fn all(&self) -> impl Iterator<Item = &Outgoing> {
        self.cast.iter().flatten().map(|cast| &cast.frame)
    }

    /// The votes that may be passed on, with their authors.
    pub fn frames(&self) -> impl Iterator<Item = (u32, &Outgoing)> {
        self.counting().map(|(author, cast)| (author, &cast.frame))
    }

    fn counting(&self) -> impl Iterator<Item = (u32, &Cast)> {
        let counts = |author: u32| author != self.me || self.is_kept;
        (0..)
            .zip(&self.cast)
            .filter_map(move |(author, cast)| Some((author, cast.as_ref()?)).filter(|_| counts(author)))
    }
}
