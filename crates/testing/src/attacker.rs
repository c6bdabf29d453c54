//! Peers with a valid key that do what a script says.

use std::sync::Arc;

use undertone_core::identity::{Identity, PublicId};
use undertone_core::message::{Ballot, Chain, Head, Hello, Message, Receipt, Session, SignedHead, decode, next_head};
use undertone_core::node::{Event, Link};
use undertone_core::study::{Limits, Study};

use crate::world::{Attacker, Wires};

/// A neighbour that claims to know no more of its victim than the victim does, and says again what the peer whose place it takes has said, so that the victim repeats
/// its rounds.
pub struct Forgetful {
    limits: Limits,
    hello: Hello,
    /// The frames of rounds 1, 2, ...
    frames: Vec<Vec<u8>>,
    /// The victim's receipts for rounds 1, 2, ...
    receipts: Vec<Receipt>,
}

impl Forgetful {
    /// With the frames of all rounds that the peer and its victim have sent so far.
    pub fn new(study: &Study, clients: usize, frames: Vec<Vec<u8>>, victim: &PublicId, theirs: &[Vec<u8>]) -> Self {
        let limits = study.limits(clients);
        let mut head = Chain::new(study.digest()).start(victim);
        let receipts = theirs.iter().map_while(|frame| match decode(frame, &limits) {
            Ok(Message::Round(release)) => {
                head = next_head(&head, release.round, release.payload.bytes());
                Some(Receipt { round: release.round, head, tag: release.tag })
            }
            _ => None,
        });
        let receipts = receipts.collect();
        let hello = Hello {
            study: *study.digest(),
            round: frames.len() as u32,
            session: Session { number: u64::MAX, ..Session::default() },
            receipt: Default::default(),
            shown: Default::default(),
            head: SignedHead::NONE,
            yours: Session::default(),
            dropped: false,
        };
        Self { limits, hello, frames, receipts }
    }

    fn say(&self, link: Link, round: u32, wires: &mut Wires) {
        let said = (round as usize).checked_sub(1).and_then(|at| self.frames.get(at));
        said.into_iter().for_each(|frame| wires.send(link, frame.clone()));
    }
}

impl Attacker for Forgetful {
    fn handle(&mut self, event: Event, wires: &mut Wires) {
        let Event::Frame { link, frame } = event else { return };
        match decode(frame, &self.limits) {
            Ok(Message::Hello(hello)) => {
                let known = (hello.round as usize).checked_sub(1).and_then(|at| self.receipts.get(at));
                let receipt = known.copied().unwrap_or_default();
                wires.send(link, Hello { receipt, ..self.hello }.encode().bytes().to_vec());
                self.say(link, hello.receipt.round + 1, wires);
            }
            Ok(Message::Round(release)) => self.say(link, release.round, wires),
            _ => {}
        }
    }
}

/// Somebody with a key of the study who makes valid releases of any values.
#[derive(Clone)]
pub struct Author {
    identity: Arc<Identity>,
    chain: Chain,
    limits: Limits,
    head: Head,
    round: u32,
}

impl Author {
    /// Nothing was released yet.
    pub fn new(study: &Study, clients: usize, identity: Arc<Identity>) -> Self {
        let chain = Chain::new(study.digest());
        let head = chain.start(&identity.id());
        Self { chain, limits: study.limits(clients), head, identity, round: 0 }
    }

    /// The last round that was released.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The frame of the next round, with any numbers.
    pub fn release(&mut self, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
        self.round += 1;
        let mut frame = vec![2];
        frame.extend(self.round.to_le_bytes());
        values.into_iter().for_each(|v| frame.extend(v.to_le_bytes()));
        self.head = next_head(&self.head, self.round, &frame[5..]);
        let vouched = self.chain.vouched(self.round, &self.head);
        frame.extend(self.identity.tag(&vouched));
        if self.limits.signs(self.round) {
            frame.extend(self.identity.sign(&vouched));
        }
        frame
    }

    /// A signed head of any round, passed on.
    pub fn head(&self, author: u32, round: u32, head: Head) -> Vec<u8> {
        let signature = self.identity.sign(&self.chain.vouched(round, &head));
        SignedHead { round, head, signature }.frame(author).bytes().to_vec()
    }

    /// A vote of client `me` for any set.
    pub fn vote(&self, me: u32, ballot: &Ballot) -> Vec<u8> {
        ballot.sign(&self.chain, &self.identity, me, &self.limits).bytes().to_vec()
    }
}

/// A second story of a peer: its releases with something added, in a chain of their own, signed like the true ones.
pub struct OtherStory {
    author: Author,
    /// What is added to every number.
    pub shift: f64,
}

impl OtherStory {
    /// Nothing was told yet.
    pub fn new(study: &Study, clients: usize, identity: Arc<Identity>, shift: f64) -> Self {
        Self { author: Author::new(study, clients, identity), shift }
    }

    /// What is sent instead of a frame of the peer; nothing in place of what would give the story away.
    pub fn tell(&mut self, me: u32, frame: &[u8]) -> Option<Vec<u8>> {
        match decode(frame, &self.author.limits) {
            Ok(Message::Round(release)) if release.round == self.author.round + 1 => {
                Some(self.author.release(release.payload.values().map(|v| v + self.shift)))
            }
            Ok(Message::Round(_)) => None,
            Ok(Message::Head { author, .. }) if author == me => None,
            Ok(Message::Final(last)) if last.author == me => None,
            _ => Some(frame.to_vec()),
        }
    }
}
