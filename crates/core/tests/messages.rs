//! Frames: what is written can be read, and invalid bytes are refused.

mod common;

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::client::LARGEST_VALUE;
use undertone_core::client::Release;
use undertone_core::identity::Identity;
use undertone_core::ledger::{Begin, Carried, Ledger, MemoryDisk, Sealed};
use undertone_core::message::{
    Ballot, Chain, Hello, Malformed, Message, Receipt, Session, SignedHead, decode, done, next_head,
};
use undertone_core::privacy::Spent;
use undertone_core::study::{Limits, Study, StudyDigest};

const STUDY: &str = "rounds = 80\n[problem]\nloss = \"squared\"\n[data]\nsource = \"synthetic\"\nclients = 3\nfeatures = 4\n\
    [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 1.0\neta = 1.0\n\
    [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n";
const LIMITS: Limits = Limits { features: 4, rounds: 80, clients: 3, largest: LARGEST_VALUE };

fn digest() -> StudyDigest {
    *Study::parse(STUDY, "t").unwrap().digest()
}

fn identity(k: u8) -> Arc<Identity> {
    Arc::new(Identity::from_secret(&[k; 32]))
}

/// All frames of a peer that releases `value` in every coordinate of every round.
fn frames(identity: &Arc<Identity>, value: f64) -> Vec<Sealed> {
    let chain = Chain::new(&digest());
    let begin = Begin {
        study: [0; 32],
        name: String::new(),
        rounds: 80,
        features: 4,
        degree: 0,
        memory: 1,
        clients: 2,
        colluders: 1,
        total: Spent::ZERO,
        epsilon: 1.0,
        delta: 0.1,
        next: Spent::ZERO,
        protected: false,
        data: [0; 32],
        time: 0,
    };
    let (mut ledger, _) = Ledger::enter(MemoryDisk::default(), identity.clone(), chain, LIMITS, begin, None).unwrap();
    let mut prior = chain.start(&identity.id());
    let mut all = Vec::new();
    for round in 1..=80 {
        let carried = Carried { prior, memory: vec![0.0; 4], edges: vec![] };
        let record = |release: &Release| ledger.record(release, carried);
        let sealed = common::with_release(round, &[value; 4], None, false, record).unwrap();
        prior = sealed.receipt().head;
        all.push(sealed);
    }
    all
}

fn hello() -> Hello {
    Hello {
        study: digest(),
        round: 7,
        session: Session { number: 2, nonce: 3, tag: [6; 16] },
        receipt: Receipt { round: 6, head: [4; 32], tag: [5; 16] },
        shown: Receipt { round: 7, head: [7; 32], tag: [8; 16] },
        head: SignedHead { round: 5, head: [9; 32], signature: [1; 64] },
        yours: Session { number: 4, nonce: 5, tag: [2; 16] },
        dropped: false,
    }
}

#[test]
fn frames_survive_the_journey() {
    assert_eq!(decode(hello().encode().bytes(), &LIMITS), Ok(Message::Hello(hello())));
    let (round, frame) = (LIMITS.rounds, done(&LIMITS, true, false));
    assert_eq!(decode(frame.bytes(), &LIMITS), Ok(Message::Done { round, agreed: true, heard: false }));
    // Of a peer that is not there yet, or of another version.
    let early = [&[4, 1, 0], &(round - 1).to_le_bytes()[..]].concat();
    assert_eq!(decode(&early, &LIMITS), Err(Malformed::OutOfStudy));
    assert!(matches!(decode(&[4, 1, 0], &LIMITS), Err(Malformed::Size { .. })));
    let head = SignedHead { round: 80, head: [9; 32], signature: [1; 64] };
    assert_eq!(decode(head.frame(1).bytes(), &LIMITS), Ok(Message::Head { author: 1, head }));
    for (author, round) in [(LIMITS.clients as u32, 80), (1, 0), (1, 81)] {
        let frame = SignedHead { round, ..head }.frame(author);
        assert_eq!(decode(frame.bytes(), &LIMITS), Err(Malformed::OutOfStudy));
    }
    let author = identity(1);
    let chain = Chain::new(&digest());
    let mut head = chain.start(&author.id());
    for (round, sealed) in (1..).zip(frames(&author, 0.5)) {
        let Ok(Message::Round(release)) = decode(sealed.frame().bytes(), &LIMITS) else { panic!("round {round}") };
        assert_eq!(release.round, round);
        assert!(release.payload.values().eq([0.5; 4]));
        head = next_head(&head, round, release.payload.bytes());
        assert_eq!(sealed.receipt().head, head);
        assert_eq!(release.signature.is_some(), round % 5 == 0);
        assert!(release.signature.is_none_or(|s| chain.verifies(&author.id(), round, &head, &s)));
        assert!(sealed.frame().bytes().len() <= 8 * 4 + 256);
    }
}

/// A peer that sends different releases to two neighbours must sign both.
#[test]
fn two_different_releases_need_two_signatures() {
    let author = identity(1);
    let chain = Chain::new(&digest());
    let [one, other] = [0.5, 0.25].map(|value| frames(&author, value));
    let last = |frames: &[Sealed]| frames[79].as_final(1, &LIMITS).unwrap();
    let (one, other) = (last(&one), last(&other));
    for frame in [&one, &other] {
        let Ok(Message::Final(last)) = decode(frame.bytes(), &LIMITS) else { panic!() };
        assert!(last.verifies(&chain, &author.id(), 80));
        assert!(!last.verifies(&chain, &identity(2).id(), 80), "another's signature");
    }
    assert_ne!(one, other);
}

#[test]
fn a_receipt_convinces_its_author_alone() {
    let chain = Chain::new(&digest());
    let receipt = *frames(&identity(1), 0.5)[20].receipt();
    assert!(chain.is_own(&identity(1), &receipt));
    assert!(!chain.is_own(&identity(2), &receipt));
    assert!(!chain.is_own(&identity(1), &Receipt { round: 22, ..receipt }));
    assert!(!chain.is_own(&identity(1), &Receipt { head: [0; 32], ..receipt }));
}

#[test]
fn each_kind_of_invalid_frame_is_refused() {
    let round = frames(&identity(1), 0.5)[2].frame().bytes().to_vec();
    let change = |at: usize, bytes: &[u8]| {
        let mut frame = round.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let refused = |frame: &[u8]| decode(frame, &LIMITS).unwrap_err();
    assert_eq!(refused(&[]), Malformed::Size { kind: 0, expected: 1, found: 0 });
    assert_eq!(refused(&[9, 1, 2]), Malformed::Kind(9));
    assert!(matches!(refused(&round[..30]), Malformed::Size { kind: 2, .. }));
    assert!(matches!(refused(&[round.clone(), vec![0]].concat()), Malformed::Size { kind: 2, .. }));
    assert_eq!(refused(&change(5, &f64::NAN.to_le_bytes())), Malformed::NotFinite);
    assert_eq!(refused(&change(13, &f64::INFINITY.to_le_bytes())), Malformed::NotFinite);
    let tight = Limits { largest: 50.0, ..LIMITS };
    assert!(decode(&change(5, &50f64.to_le_bytes()), &tight).is_ok());
    assert_eq!(decode(&change(5, &(-50.1f64).to_le_bytes()), &tight).unwrap_err(), Malformed::NotFinite);
    assert_eq!(refused(&change(1, &0u32.to_le_bytes())), Malformed::OutOfStudy);
    assert_eq!(refused(&change(1, &81u32.to_le_bytes())), Malformed::OutOfStudy);
    let hello = hello().encode().bytes().to_vec();
    let mut foreign = hello.clone();
    foreign[1] = b'X';
    assert_eq!(refused(&foreign), Malformed::NotUndertone);
    let mut version = hello.clone();
    version[5] = 9;
    assert_eq!(refused(&version[..20]), Malformed::Version(9));
    let mut flag = hello;
    *flag.last_mut().unwrap() = 7;
    assert_eq!(refused(&flag), Malformed::Flag);
}

/// A million frames of random bytes, and a million of real ones with something changed: none panics, and what is
/// accepted is within the limits.
#[test]
fn two_million_invalid_frames() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut real: Vec<Vec<u8>> = frames(&identity(1), 0.5).iter().map(|s| s.frame().bytes().to_vec()).collect();
    real.extend([hello().encode().bytes().to_vec(), done(&LIMITS, true, false).bytes().to_vec()]);
    let last = frames(&identity(1), 0.5)[79].as_final(1, &LIMITS).unwrap();
    let Ok(Message::Final(release)) = decode(last.bytes(), &LIMITS) else { panic!("a last release") };
    let ballot = Ballot::of(std::iter::once(release), &LIMITS);
    real.push(ballot.sign(&Chain::new(&digest()), &identity(1), 1, &LIMITS).bytes().to_vec());
    real.push(last.bytes().to_vec());
    let (mut accepted, mut frame) = (0, Vec::new());
    for i in 0..2_000_000u32 {
        frame.clear();
        if i % 2 == 0 {
            let length = rng.random_range(0..LIMITS.longest() + 2);
            frame.extend((0..length).map(|_| rng.random::<u8>()));
            if length > 0 {
                frame[0] = rng.random_range(0..8);
            }
        } else {
            frame.extend_from_slice(&real[rng.random_range(0..real.len())]);
            for _ in 0..rng.random_range(0..4) {
                match rng.random_range(0..3) {
                    0 if !frame.is_empty() => drop(frame.remove(rng.random_range(0..frame.len()))),
                    1 => frame.insert(rng.random_range(0..=frame.len()), rng.random()),
                    _ if !frame.is_empty() => {
                        let at = rng.random_range(0..frame.len());
                        frame[at] ^= 1 << rng.random_range(0..8u8);
                    }
                    _ => {}
                }
            }
        }
        match decode(&frame, &LIMITS) {
            Err(_) => {}
            Ok(message) => {
                accepted += 1;
                let finite = |payload: undertone_core::message::Payload| {
                    payload.values().count() == 4 && payload.values().all(f64::is_finite)
                };
                match message {
                    Message::Round(r) => assert!((1..=80).contains(&r.round) && finite(r.payload)),
                    Message::Final(f) => assert!(f.author < 3 && finite(f.payload)),
                    Message::Head { author, head } => assert!(author < 3 && (1..=80).contains(&head.round)),
                    Message::Vote(v) => {
                        let ballot = v.ballot();
                        assert!(v.author < 3 && ballot.len() == (0..3).filter(|k| ballot.contains(*k)).count());
                    }
                    Message::Hello(_) | Message::Done { .. } | Message::Stuck => {}
                }
            }
        }
    }
    assert!(accepted > 100_000, "only {accepted} frames were accepted: the test covers too little");
}

#[test]
fn a_fingerprint_tells_data_and_keys_apart() {
    let of = |k: u8, parts: &[Vec<f64>; 2]| identity(k).fingerprint(parts.iter().map(|part| &part[..]));
    let data = [vec![1.0, 2.0], vec![3.0]];
    assert_eq!(of(1, &data), of(1, &data));
    assert_ne!(of(1, &data), of(2, &data), "only the owner can compute it");
    for other in [[vec![1.0, 2.5], vec![3.0]], [vec![1.0, 2.0], vec![3.5]], [vec![1.0], vec![2.0, 3.0]]] {
        assert_ne!(of(1, &data), of(1, &other));
    }
}
