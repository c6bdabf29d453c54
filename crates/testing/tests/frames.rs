//! Frames that are nearly right: two neighbours with keys of the study say anything, within the hash chain and outside of it, and the peer neither panics nor stops,
//! nor releases what it should not.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{FREE, ZCDP, cohort, fresh_noise, identity, milliseconds, study};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::client::LARGEST_VALUE;
use undertone_core::message::{
    Ballot, Chain, Hello, Message, Outgoing, Receipt, Session, SignedHead, decode, next_head,
};
use undertone_core::node::{Event, Link, News, Node, OnLoss, Stop, Transport};
use undertone_core::study::{Limits, Study};
use undertone_testing::{Author, Backup, SimDisk};

const LIMITS: Limits = Limits { features: 3, rounds: 40, clients: 3, largest: LARGEST_VALUE };

/// What the peer does, and whether it released a round, or voted, with other bytes than before.
#[derive(Default)]
struct Wire {
    closed: Vec<Link>,
    sent: Vec<Vec<u8>>,
    releases: Vec<Option<Vec<u8>>>,
    vote: Option<Vec<u8>>,
    repeated: bool,
}

impl Wire {
    /// The receipt for the newest release.
    fn receipt(&self, study: &Study) -> Receipt {
        let mut receipt = Receipt { head: Chain::new(study.digest()).start(&identity(0).id()), ..Receipt::default() };
        for frame in self.releases.iter().flatten() {
            let Ok(Message::Round(release)) = decode(frame, &LIMITS) else { unreachable!("it was decoded before") };
            let head = next_head(&receipt.head, release.round, release.payload.bytes());
            receipt = Receipt { round: release.round, head, tag: release.tag };
        }
        if receipt.round == 0 { Receipt::default() } else { receipt }
    }
}

impl Transport for Wire {
    fn dial(&mut self, _: u32) {}
    fn send(&mut self, _: Link, frame: &Outgoing) {
        if let Ok(Message::Round(release)) = decode(frame.bytes(), &LIMITS) {
            let at = release.round as usize;
            self.releases.resize(self.releases.len().max(at + 1), None);
            let known = self.releases[at].get_or_insert_with(|| frame.bytes().to_vec());
            self.repeated |= known != frame.bytes();
        }
        if let Ok(Message::Vote(vote)) = decode(frame.bytes(), &LIMITS)
            && vote.author == 0
        {
            self.repeated |= self.vote.get_or_insert_with(|| frame.bytes().to_vec()) != frame.bytes();
        }
        self.sent.push(frame.bytes().to_vec());
        if self.sent.len() > 64 {
            self.sent.remove(0);
        }
    }
    fn close(&mut self, link: Link, _: &str) {
        self.closed.push(link);
    }
}

struct Game {
    rng: Xoshiro256PlusPlus,
    authors: [Author; 2],
    links: [Option<Link>; 2],
    next_link: u64,
    hello: Hello,
    /// Frames of the neighbours, to be said again.
    said: Vec<Vec<u8>>,
    /// The releases of each neighbour.
    released: [Vec<Vec<u8>>; 2],
}

impl Game {
    /// Any bytes.
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.rng.random())
    }

    fn value(&mut self) -> f64 {
        match self.rng.random_range(0..8) {
            0 => f64::from_bits(self.rng.random()),
            1 => *[0.0, -0.0, 1e30, -1e30, 1e300, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE]
                .choose(&mut self.rng)
                .unwrap(),
            _ => self.rng.random::<f64>() - 0.5,
        }
    }

    /// A frame of a neighbour: mostly valid, or nearly.
    fn frame(&mut self, who: usize, own_round: u32, wire: &Wire) -> Vec<u8> {
        let mut frame = match self.rng.random_range(0..13) {
            // The next release, if it is time for it.
            0..=2 if self.authors[who].round() <= own_round && self.authors[who].round() < LIMITS.rounds => {
                let strange = self.rng.random_range(0..60) == 0;
                let values: [f64; 3] =
                    std::array::from_fn(|_| if strange { self.value() } else { self.rng.random::<f64>() - 0.5 });
                if strange && !values.iter().all(|v| v.abs() < 1e20) {
                    // Refused, so that the true one still has to come.
                    return self.authors[who].clone().release(values);
                }
                let frame = self.authors[who].release(values);
                self.released[who].push(frame.clone());
                frame
            }
            // One of the last releases again: it may have been lost.
            0..=4 => {
                let last = self.released[who].len().saturating_sub(3);
                self.released[who][last..].choose(&mut self.rng).cloned().unwrap_or_default()
            }
            5 => {
                let (author, round) = (self.rng.random_range(0..4), self.rng.random_range(0..60));
                let head = self.bytes();
                self.authors[who].head(author, round, head)
            }
            6 => {
                let mut hello = self.hello;
                let receipt = Receipt { round: self.rng.random_range(0..60), head: self.bytes(), tag: self.bytes() };
                match self.rng.random_range(0..6) {
                    0 => hello.receipt = receipt,
                    1 => hello.shown = receipt,
                    2 => {
                        hello.yours = Session { number: self.rng.random(), nonce: self.rng.random(), tag: self.bytes() }
                    }
                    3 => hello.head = SignedHead { round: receipt.round, head: receipt.head, signature: self.bytes() },
                    4 => hello.round = self.rng.random(),
                    // A later start, or an earlier one.
                    _ if self.rng.random() => {
                        self.hello.session.number += 1;
                        hello.session = self.hello.session;
                    }
                    _ => hello.session.number = 1,
                }
                hello.encode().bytes().to_vec()
            }
            7 => vec![4, self.rng.random_range(0..2), self.rng.random_range(0..2), 40, 0, 0, 0],
            // Something said before, by anybody.
            8 => self.said.choose(&mut self.rng).cloned().unwrap_or_default(),
            9 => wire.sent.choose(&mut self.rng).cloned().unwrap_or_default(),
            10 => self.hello.encode().bytes().to_vec(),
            11 => {
                let (some, voter) = (self.rng.random::<u64>(), self.rng.random_range(0..3));
                let heard = wire.sent.iter().enumerate().filter(|(at, _)| some >> (at % 64) & 1 == 1);
                let finals = heard.filter_map(|(_, frame)| match decode(frame, &LIMITS) {
                    Ok(Message::Final(last)) => Some(last),
                    _ => None,
                });
                self.authors[who].vote(voter, &Ballot::of(finals.take(3), &LIMITS))
            }
            _ => {
                let length = self.rng.random_range(0..200);
                (0..length).map(|_| self.rng.random()).collect()
            }
        };
        if self.said.len() < 256 {
            self.said.push(frame.clone());
        } else {
            let at = self.rng.random_range(0..256);
            self.said[at] = frame.clone();
        }
        // A bit of it is wrong, now and then.
        if self.rng.random_range(0..8) == 0 && !frame.is_empty() {
            let at = self.rng.random_range(0..frame.len());
            frame[at] ^= 1 << self.rng.random_range(0..8u8);
        }
        frame
    }
}

#[test]
fn no_frame_makes_a_peer_panic_stop_or_repeat_itself() {
    let frames: u64 = std::env::var("UNDERTONE_FRAMES").map_or(300_000, |n| n.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let (mut handled, mut rounds, mut finished, mut closed, mut game_number, mut voted) = (0, 0, 0, 0, 0, 0);
    while handled < frames {
        game_number += 1;
        let algorithm = if game_number % 2 == 0 { ZCDP } else { FREE };
        let text = study(folder.path(), 3, LIMITS.rounds, algorithm, "kind = \"complete\"", "squared");
        let mut cohort = cohort(&text);
        cohort.noise = fresh_noise;
        cohort.on_loss = OnLoss::Drop(Duration::from_secs(3600));
        let study = cohort.study.clone();
        let mut node = Node::new(cohort.setup(0, 1), SimDisk::of(Backup::default()), Duration::ZERO).unwrap();
        let author = |k: usize| Author::new(&study, 3, Arc::new(identity(k)));
        let session = Session { number: 2, nonce: 5, tag: [0; 16] };
        let hello = Hello {
            study: *study.digest(),
            round: 0,
            session,
            receipt: Receipt::default(),
            shown: Receipt::default(),
            head: SignedHead::NONE,
            yours: Session::default(),
            dropped: false,
        };
        let mut game = Game {
            rng: Xoshiro256PlusPlus::seed_from_u64(game_number),
            authors: [author(1), author(2)],
            links: [None; 2],
            next_link: 0,
            hello,
            said: Vec::new(),
            released: Default::default(),
        };
        let mut wire = Wire::default();
        let mut now = Duration::ZERO;
        let mut last_progress = (0, 0);
        for turn in 0..5000 {
            if node.round() > last_progress.0 {
                last_progress = (node.round(), turn);
            } else if turn > last_progress.1 + 600 {
                // A story that contradicts an earlier one is not continued.
                break;
            }
            now += milliseconds(game.rng.random_range(0..30));
            let who = game.rng.random_range(0..2);
            let stop = match game.links[who] {
                None => {
                    let link = Link(game.next_link);
                    game.next_link += 1;
                    game.links[who] = Some(link);
                    game.hello.receipt = wire.receipt(&study);
                    let up = node.handle(Event::Up { link, peer: who as u32 + 1 }, now, &mut wire);
                    let hello = game.hello.encode();
                    up.and_then(|()| node.handle(Event::Frame { link, frame: hello.bytes() }, now, &mut wire))
                }
                Some(link) if game.rng.random_range(0..200) == 0 => {
                    game.links[who] = None;
                    node.handle(Event::Down { link, reason: "over".into() }, now, &mut wire)
                }
                Some(link) => {
                    let frame = game.frame(who, node.round(), &wire);
                    node.handle(Event::Frame { link, frame: &frame }, now, &mut wire)
                }
            };
            handled += 1;
            match stop {
                Ok(()) => {}
                // Values near the largest make the public part of the next step too large, which ends the run as it should.
                Err(Stop::Round { .. } | Stop::Alone) => break,
                Err(stop) => panic!("game {game_number}: {stop}"),
            }
            assert!(!wire.repeated, "game {game_number}: a round was released twice");
            closed += wire.closed.len();
            for link in wire.closed.drain(..) {
                game.links.iter_mut().filter(|l| **l == Some(link)).for_each(|l| *l = None);
            }
            if node.round() == LIMITS.rounds && last_progress.0 < LIMITS.rounds {
                finished += 1;
            }
            // The votes follow; what is written down is on disk at once here.
            node.saved();
            voted += u64::from(node.take_news().contains(&News::Voted));
        }
        rounds += node.round();
    }
    println!(
        "{handled} frames in {game_number} games: {rounds} rounds, {finished} games to the end, {voted} votes, {closed} connections closed"
    );
    assert!(
        rounds > 5 * game_number as u32 && finished > 0 && voted > 0 && closed > 100,
        "the frames are refused too early"
    );
}
