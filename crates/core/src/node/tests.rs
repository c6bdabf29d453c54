//! Tests of the parts of a node, each alone.

use std::sync::Arc;
use std::time::Duration;

use super::contact::Contact;
use super::context::Context;
use super::edge::{Position, Receipts};
use super::events::Effects;
use super::finals::Finals;
use super::links::Links;
use super::rounds::{Received, Rounds};
use super::witness::Witness;
use super::{Link, News, NodeSetup, OnLoss, Roster, Transport};
use crate::identity::Identity;
use crate::ledger::MemoryDisk;
use crate::message::{Ballot, Final, Head, Message, Outgoing, Receipt, RoundFrame, decode, next_head};
use crate::privacy::Clipping;
use crate::records::Dataset;
use crate::study::Study;

const ROUNDS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

fn identity(k: u32) -> Identity {
    Identity::from_secret(&[k as u8 + 1; 32])
}

/// Client 0 of three clients that are all neighbours.
fn context() -> Context {
    let mut text = format!(
        "rounds = {ROUNDS}\n\
         problem = {{ loss = \"squared\", weights = \"clients\" }}\n\
         data = {{ source = \"folder\", path = \".\", features = [\"a\", \"b\"], target = \"y\", \
         bounds = {{ a = [0, 1], b = [0, 1], y = [0, 1] }} }}\n\
         graph = {{ kind = \"complete\" }}\n\
         algorithm = {{ name = \"zcdp-nfl\", rho = 0.5, eta = 0.5 }}\n\
         privacy = \"off\"\n"
    );
    for k in 0..3 {
        text += &format!("client.c{k} = {{ id = \"{}\", address = \"127.0.0.1:{}\" }}\n", identity(k).id(), 4700 + k);
    }
    let study = Study::parse(&text, "test").expect("a study");
    Context::new(NodeSetup {
        roster: Arc::new(Roster::new(&study, true).expect("a study for peers")),
        data: Dataset::new(&[0.1, 0.2, 0.3, 0.4], &[0.5, 0.6], study.features(), Clipping::Off),
        study: Arc::new(study),
        me: 0,
        identity: Arc::new(identity(0)),
        data_hash: [0; 32],
        noise: None,
        on_loss: OnLoss::Drop(PATIENCE),
        allowance: None,
        finals: Vec::new(),
        time: 0,
        nonce: 0,
    })
}

/// A transport that keeps what it was asked for.
#[derive(Default)]
struct Wire {
    dialled: Vec<u32>,
    sent: Vec<(Link, Outgoing)>,
    closed: Vec<Link>,
}

impl Transport for Wire {
    fn dial(&mut self, peer: u32) {
        self.dialled.push(peer);
    }
    fn send(&mut self, link: Link, frame: &Outgoing) {
        self.sent.push((link, frame.clone()));
    }
    fn close(&mut self, link: Link, _: &str) {
        self.closed.push(link);
    }
}

/// Calls `f` at a time, and returns its result with the reports that it made.
fn at<T>(seconds: u64, wire: &mut Wire, f: impl FnOnce(&mut Effects) -> T) -> (T, Vec<News>) {
    let mut news = Vec::new();
    let result = f(&mut Effects { now: Duration::from_secs(seconds), net: wire, news: &mut news });
    (result, news)
}

/// The frames of a client that releases the same values in every round, from round 1 on, with its chain before each.
fn frames(context: &Context, k: u32, values: &[f64]) -> Vec<(Head, Outgoing)> {
    let mut head = context.chain.start(context.id(k));
    let mut frame = |round| {
        let (frame, receipt, _) = context.chain.release(&identity(k), &context.limits, &head, round, values);
        (std::mem::replace(&mut head, receipt.head), frame)
    };
    (1..=ROUNDS).map(&mut frame).collect()
}

fn release<'a>(context: &Context, frame: &'a Outgoing) -> RoundFrame<'a> {
    match decode(frame.bytes(), &context.limits) {
        Ok(Message::Round(release)) => release,
        other => panic!("{other:?}"),
    }
}

/// The last release of a client, as it is passed on.
fn last(context: &Context, k: u32) -> Outgoing {
    let (prior, frame) = frames(context, k, &[0.25, 0.5]).pop().expect("one for each round");
    let release = release(context, &frame);
    let signature = release.signature.expect("the last release is signed");
    Final { author: k, prior, payload: release.payload, signature }.encode()
}

#[test]
fn a_release_is_next_or_known_or_early_or_contradicts() {
    let context = context();
    let frames = frames(&context, 1, &[1.0, 2.0]);
    let mut edge = super::edge::RoundEdge::new(&context, 1);
    for (round, (_, frame)) in frames.iter().enumerate().take(2) {
        let release = release(&context, frame);
        let Position::Next(receipt) = edge.receipts().locate(&release) else { panic!("round {} is next", round + 1) };
        edge.accept(&release, receipt);
    }
    let receipts: Receipts = *edge.receipts();
    assert_eq!(receipts.newest().round, 2);
    assert_eq!(receipts.locate(&release(&context, &frames[0].1)), Position::Known);
    assert_eq!(receipts.locate(&release(&context, &frames[1].1)), Position::Known);
    assert_eq!(receipts.locate(&release(&context, &frames[3].1)), Position::Gap);
    let (other, ..) = context.chain.release(&identity(1), &context.limits, &frames[1].0, 2, &[1.0, 2.5]);
    let located = receipts.locate(&release(&context, &other));
    assert!(
        matches!(located, Position::Conflict { known, other } if known == receipts.newest().head && other != known)
    );
}

#[test]
fn a_dropped_edge_takes_its_share_out_of_the_dual_and_keeps_its_receipts() {
    let context = context();
    let mut rounds = Rounds::open(&context, MemoryDisk::default()).unwrap();
    let (first, second) = (frames(&context, 1, &[1.0, 2.0]), frames(&context, 2, &[-3.0, 0.5]));
    rounds.step(&context, true).unwrap();
    assert!(!rounds.can_step(), "round 2 needs the neighbours' releases of round 1");
    let own = rounds.released().to_vec();
    for (peer, frames) in [(1, &first), (2, &second)] {
        let received = rounds.handle_release(&context, peer, &release(&context, &frames[0].1), &Receipt::default());
        assert!(matches!(received, Received::New { .. }));
    }
    assert!(rounds.can_step());
    rounds.step(&context, true).unwrap();
    let share = |p: usize, point: &[f64]| 0.5 * (own[p] - point[p]);
    let dual = |p: usize| rounds.memory()[p];
    assert!((0..2).all(|p| (dual(p) - share(p, &[1.0, 2.0]) - share(p, &[-3.0, 0.5])).abs() < 1e-12));
    rounds.drop_edge(&context, 1).unwrap();
    assert!((0..2).all(|p| rounds.memory()[p] == share(p, &[-3.0, 0.5])));
    assert_eq!((rounds.degree(), rounds.dropped().collect::<Vec<_>>()), (1, vec![1]));
    let witness = Witness::open(&context, rounds.ledger_mut(), Duration::ZERO).unwrap();
    let hello = rounds.hello(&context, 1, &witness);
    assert!(hello.dropped && hello.receipt.round == 1);
    // Its releases are still followed, but no round waits for them.
    let received = rounds.handle_release(&context, 1, &release(&context, &first[1].1), &Receipt::default());
    assert!(matches!(received, Received::New { .. }) && !rounds.can_step());
    rounds.handle_release(&context, 2, &release(&context, &second[1].1), &Receipt::default());
    assert!(rounds.can_step());
}

#[test]
fn a_receipt_that_the_ledger_does_not_have_stops_the_peer() {
    let context = context();
    let mut rounds = Rounds::open(&context, MemoryDisk::default()).unwrap();
    rounds.step(&context, true).unwrap();
    let head = next_head(&context.chain.start(context.id(0)), 1, &[0; 16]);
    let forged = Receipt { round: 1, head, tag: Default::default() };
    assert!(rounds.check_receipt(&context, 1, &forged).unwrap().is_some(), "the tag shows that it is not ours");
    let tag = identity(0).tag(&context.chain.vouched(1, &head));
    assert!(matches!(
        rounds.check_receipt(&context, 1, &Receipt { tag, ..forged }),
        Err(super::Stop::Forked { round: 1, .. })
    ));
    let tag = identity(0).tag(&context.chain.vouched(2, &head));
    assert!(matches!(
        rounds.check_receipt(&context, 1, &Receipt { round: 2, tag, head }),
        Err(super::Stop::Behind { theirs: 2, own: 1, .. })
    ));
}

#[test]
fn patience_runs_while_a_neighbour_is_distrusted() {
    let (mut wire, on_loss) = (Wire::default(), OnLoss::Drop(PATIENCE));
    let mut contact = Contact::new(1, true, Duration::ZERO);
    assert!(at(0, &mut wire, |e| contact.handle_hello(Link(7), true, e)).0);
    assert_eq!(at(100, &mut wire, |e| contact.handle_timeout(on_loss, false, e)), (false, vec![]));
    contact.distrust(Duration::from_secs(100));
    // A new connection alone does not restore trust.
    at(101, &mut wire, |e| contact.handle_hello(Link(8), true, e));
    assert_eq!(wire.closed, [Link(7)], "the older connection is closed");
    assert_eq!(at(129, &mut wire, |e| contact.handle_timeout(on_loss, false, e)), (false, vec![News::Waiting(1)]));
    assert!(at(130, &mut wire, |e| contact.handle_timeout(on_loss, false, e)).0);
    contact.trust();
    assert!(!at(200, &mut wire, |e| contact.handle_timeout(on_loss, false, e)).0);
}

#[test]
fn a_dropped_neighbour_is_dialled_until_it_knows() {
    let (mut wire, on_loss) = (Wire::default(), OnLoss::Wait);
    let mut contact = Contact::new(1, true, Duration::ZERO);
    assert!(!contact.has_answered() && !contact.give_notice());
    contact.drop_edge();
    assert!(contact.has_answered(), "no round waits for it");
    at(0, &mut wire, |e| contact.handle_timeout(on_loss, false, e));
    at(1, &mut wire, |e| contact.handle_timeout(on_loss, false, e));
    assert_eq!(wire.dialled, [1], "not while a dial is under way");
    contact.handle_unreachable(Duration::from_secs(2));
    at(2, &mut wire, |e| contact.handle_timeout(on_loss, false, e));
    assert_eq!(wire.dialled, [1, 1]);
    contact.handle_up(Duration::from_secs(2));
    assert!(contact.give_notice());
    let (link, news) = at(3, &mut wire, |e| contact.handle_down(Link(1), "closed".into(), Duration::ZERO, e));
    assert_eq!((link, news), (None, vec![]), "the end of a dropped edge is not reported");
    at(100, &mut wire, |e| contact.handle_timeout(on_loss, false, e));
    assert_eq!(wire.dialled, [1, 1]);
}

#[test]
fn the_same_refusal_is_reported_once_a_minute() {
    let mut wire = Wire::default();
    let mut contact = Contact::new(1, true, Duration::ZERO);
    let mut refuse = |seconds: u64, reason: &str| {
        at(seconds, &mut wire, |e| contact.handle_down(Link(1), reason.into(), Duration::ZERO, e)).1.len()
    };
    assert_eq!([refuse(0, "a"), refuse(59, "a"), refuse(60, "a"), refuse(61, "b"), refuse(62, "a")], [1, 0, 1, 1, 1]);
}

/// The last releases of these clients, and the vote of `voter` for them.
fn vote(context: &Context, voter: u32, authors: &[u32]) -> Outgoing {
    let frames: Vec<Outgoing> = authors.iter().map(|k| last(context, *k)).collect();
    let finals = frames.iter().filter_map(|frame| match decode(frame.bytes(), &context.limits) {
        Ok(Message::Final(last)) => Some(last),
        _ => None,
    });
    Ballot::of(finals, &context.limits).sign(&context.chain, &identity(voter), voter, &context.limits)
}

/// Hands a vote or a last release to a peer, and returns what it reported.
fn hear(finals: &mut Finals, context: &Context, frame: &Outgoing) -> Vec<News> {
    let mut news = Vec::new();
    let is_new = match decode(frame.bytes(), &context.limits) {
        Ok(Message::Final(last)) => finals.handle_final(context, &last, frame.bytes(), &mut news),
        Ok(Message::Vote(vote)) => finals.handle_vote(context, &vote, &mut news),
        other => panic!("{other:?}"),
    };
    is_new.unwrap();
    news
}

#[test]
fn a_peer_that_gave_up_can_still_agree() {
    let context = context();
    let (mut finals, links) = (Finals::new(&context), Links::new(&context, Duration::ZERO));
    let mut wire = Wire::default();
    let mut poll =
        |finals: &mut Finals, seconds| at(seconds, &mut wire, |e| finals.poll(&context, Duration::ZERO, &links, e)).1;
    finals.collect(0, last(&context, 0));
    assert_eq!(poll(&mut finals, 1), []);
    assert_eq!(poll(&mut finals, 2), [News::Missing(vec![1, 2])]);
    assert_eq!(poll(&mut finals, 69), []);
    assert_eq!(poll(&mut finals, 70), [News::GaveUp(vec![1, 2])], "one of three is too few to sign");
    assert_eq!(poll(&mut finals, 71), []);
    for k in [1, 2, 2] {
        assert_eq!(hear(&mut finals, &context, &last(&context, k)), []);
    }
    assert_eq!(poll(&mut finals, 72), [News::Voted]);
    hear(&mut finals, &context, &vote(&context, 1, &[0, 1, 2]));
    assert_eq!(poll(&mut finals, 73), [], "the own vote does not count before it is on disk");
    finals.saved();
    assert_eq!(poll(&mut finals, 74), [News::Agreed(vec![])], "reported once");
    assert_eq!(poll(&mut finals, 75), []);
    assert!(finals.is_agreed() && finals.missing().is_empty());
}

#[test]
fn a_peer_signs_one_set_and_ends_with_what_most_have_signed() {
    let context = context();
    let all = [0, 1, 2].map(|k| last(&context, k));
    for lost in [false, true] {
        let (mut finals, mut links) = (Finals::new(&context), Links::new(&context, Duration::ZERO));
        let mut wire = Wire::default();
        links.handle_up(Link(1), 1, Duration::ZERO);
        at(0, &mut wire, |e| links.handle_hello(Link(1), e));
        wire.sent.clear();
        let poll = |finals: &mut Finals, wire: &mut Wire, seconds| {
            at(seconds, wire, |e| finals.poll(&context, Duration::ZERO, &links, e)).1
        };
        finals.collect(0, all[0].clone());
        hear(&mut finals, &context, &all[1]);
        if !lost {
            hear(&mut finals, &context, &all[2]);
            assert_eq!(poll(&mut finals, &mut wire, 1), [News::Voted]);
        } else {
            // Whoever has signed a set will never have more.
            hear(&mut finals, &context, &vote(&context, 1, &[0, 1]));
            assert_eq!(poll(&mut finals, &mut wire, 9), [News::Missing(vec![2])]);
            assert_eq!(
                poll(&mut finals, &mut wire, 10),
                [News::Voted],
                "ten seconds later and not after the whole patience"
            );
        }
        let votes = |wire: &Wire| {
            let is_own = |m| matches!(m, Ok(Message::Vote(vote)) if vote.author == 0);
            wire.sent.iter().filter(|(_, frame)| is_own(decode(frame.bytes(), &context.limits))).count()
        };
        assert_eq!(votes(&wire), 0, "a vote that is not on disk could be forgotten, and another one signed");
        finals.saved();
        let news = poll(&mut finals, &mut wire, 11);
        assert_eq!(votes(&wire), 1);
        if lost {
            assert_eq!(news, [News::Agreed(vec![2])]);
            hear(&mut finals, &context, &all[2]);
            assert_eq!((finals.missing(), finals.releases(&context.limits).len()), (vec![2], 2), "the set is fixed");
            continue;
        }
        assert_eq!(news, []);
        // The two others have lost client 2 and signed without it.
        hear(&mut finals, &context, &vote(&context, 1, &[0, 1]));
        assert_eq!(poll(&mut finals, &mut wire, 12), [], "one against one");
        hear(&mut finals, &context, &vote(&context, 2, &[0, 1]));
        assert_eq!(poll(&mut finals, &mut wire, 13), [News::Agreed(vec![2])]);
        assert_eq!(votes(&wire), 1, "and no second one");
    }
}

#[test]
fn two_votes_of_one_peer_are_two_stories() {
    let context = context();
    let mut finals = Finals::new(&context);
    hear(&mut finals, &context, &vote(&context, 1, &[0, 1]));
    let news = hear(&mut finals, &context, &vote(&context, 1, &[0, 1, 2]));
    let [News::Conflict(conflict)] = &news[..] else { panic!("{news:?}") };
    assert!(conflict.author == 1 && conflict.round == ROUNDS + 1 && conflict.is_provable());
    for story in &conflict.stories {
        let signature = story.signature.expect("both are signed");
        assert!(context.chain.verifies(context.id(1), conflict.round, &story.head, &signature));
    }
    let mut forged = vote(&context, 1, &[0, 1]).bytes().to_vec();
    forged[1] = 2;
    let Ok(Message::Vote(forged)) = decode(&forged, &context.limits) else { panic!("a vote") };
    assert!(finals.handle_vote(&context, &forged, &mut Vec::new()).is_err(), "signed by another");
}

/// What a peer signed before it was killed binds it after the restart, also if it comes from others because its own disk has lost it.
#[test]
fn a_vote_binds_after_a_restart() {
    let context = context();
    let own = vote(&context, 0, &[0, 1]);
    let all: Vec<Outgoing> = (0..3).map(|k| last(&context, k)).collect();
    for from_disk in [true, false] {
        let (mut finals, links) = (Finals::new(&context), Links::new(&context, Duration::ZERO));
        let mut news = Vec::new();
        all.iter().enumerate().for_each(|(k, frame)| finals.collect(k as u32, frame.clone()));
        match from_disk {
            true => finals.resume(&context, &[own.bytes().to_vec()], &mut news),
            false => drop(hear(&mut finals, &context, &own)),
        }
        finals.saved();
        let news = at(1, &mut Wire::default(), |e| finals.poll(&context, Duration::ZERO, &links, e)).1;
        assert_eq!(news, [], "it does not sign that all three are here");
        hear(&mut finals, &context, &vote(&context, 1, &[0, 1]));
        let news = at(2, &mut Wire::default(), |e| finals.poll(&context, Duration::ZERO, &links, e)).1;
        assert_eq!(news, [News::Agreed(vec![2])]);
    }
}

#[test]
fn a_peer_leaves_when_its_neighbours_know_or_have_left() {
    let context = context();
    let (mut finals, mut links) = (Finals::new(&context), Links::new(&context, Duration::ZERO));
    let mut wire = Wire::default();
    for peer in [1, 2] {
        links.handle_up(Link(peer.into()), peer, Duration::ZERO);
        assert!(at(0, &mut wire, |e| links.handle_hello(Link(peer.into()), e)).0);
    }
    (0..3).for_each(|k| finals.collect(k, last(&context, k)));
    let poll = |finals: &mut Finals, wire: &mut Wire, links: &Links| {
        wire.sent.clear();
        let news = at(2, wire, |e| finals.poll(&context, Duration::ZERO, links, e)).1;
        (wire.sent.len(), news)
    };
    assert_eq!(poll(&mut finals, &mut wire, &links), (6, vec![News::Voted]), "three last releases to two neighbours");
    finals.saved();
    assert_eq!(poll(&mut finals, &mut wire, &links), (2, vec![]), "the own vote to both");
    hear(&mut finals, &context, &vote(&context, 1, &[0, 1, 2]));
    assert_eq!(poll(&mut finals, &mut wire, &links), (2, vec![News::Agreed(vec![])]), "that of 1 to both");
    finals.saved();
    assert_eq!(poll(&mut finals, &mut wire, &links), (2, vec![News::Serving(vec![1, 2])]), "both are told");
    assert_eq!(poll(&mut finals, &mut wire, &links), (0, vec![]));
    finals.handle_done(1, true, false);
    assert_eq!(poll(&mut finals, &mut wire, &links), (1, vec![]), "its done frame is answered");
    let is_finished =
        |finals: &Finals, links: &Links| finals.is_finished(Duration::from_secs(3), Duration::ZERO, links);
    finals.handle_done(1, true, true);
    assert!(!is_finished(&finals, &links), "2 still needs something");
    finals.handle_done(2, true, false);
    assert!(!is_finished(&finals, &links), "2 would wait for an answer");
    at(3, &mut wire, |e| links.handle_down(Link(2), "finished".into(), e));
    assert!(is_finished(&finals, &links), "2 has left");
    finals.handle_hello(1, true);
    assert!(!is_finished(&finals, &links), "1 may have been restarted and does not know");
    finals.drop_edge(1);
    assert!(is_finished(&finals, &links));
}

#[test]
fn studies_that_protect_nothing_are_refused() {
    let study = |algorithm: &str, privacy: &str| {
        let mut text = format!(
            "rounds = {ROUNDS}\nproblem = {{ loss = \"squared\", weights = \"clients\" }}\n\
             data = {{ source = \"folder\", path = \".\", records = 20, features = [\"a\", \"b\"], target = \"y\", \
             bounds = {{ a = [0, 1], b = [0, 1], y = [0, 1] }} }}\n\
             graph = {{ kind = \"complete\" }}\nalgorithm = {{ {algorithm} }}\nprivacy = {privacy}\n"
        );
        for k in 0..3 {
            text +=
                &format!("client.c{k} = {{ id = \"{}\", address = \"127.0.0.1:{}\" }}\n", identity(k).id(), 4700 + k);
        }
        Study::parse(&text, "test").expect("a study")
    };
    let zcdp = "name = \"zcdp-nfl\", rho = 0.5, eta = 0.5";
    let private = |more: &str| format!("{{ epsilon = 1, delta = 1e-5, clip = 1, {more} }}");
    let (secure, fast) = (private("noise = \"secure\""), private("noise = \"fast\""));
    let refused = |study: &Study, rehearsal: bool, word: &str| {
        let error = Roster::new(study, rehearsal).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    };
    assert!(Roster::new(&study(zcdp, &secure), false).is_ok());
    for (privacy, word) in [
        (fast, "is not safe to release"),
        ("\"off\"".into(), "privacy is \"off\""),
        (private("noise = \"secure\", colluders = 0"), "privacy.colluders = 0"),
    ] {
        let study = study(zcdp, &privacy);
        refused(&study, false, word);
        assert!(Roster::new(&study, true).is_ok(), "{word}: a rehearsal may");
    }
    for name in ["p-admm", "p-admm-unclipped"] {
        let study = study(&format!("name = \"{name}\", rho = 0.5"), &secure);
        for rehearsal in [false, true] {
            refused(&study, rehearsal, "depends on the records without noise");
        }
    }
}

/// A neighbour cannot be done before its own last release: a peer that believed it would end without those that are late.
#[test]
fn done_is_believed_only_after_the_last_release_of_its_sender() {
    let context = context();
    let waits_no_longer = |is_early: bool| {
        let (mut finals, links) = (Finals::new(&context), Links::new(&context, Duration::ZERO));
        finals.collect(0, last(&context, 0));
        if !is_early {
            finals.collect(1, last(&context, 1));
        }
        let refused = finals.handle_done(1, false, false);
        let poll = |e: &mut Effects| finals.poll(&context, Duration::ZERO, &links, e);
        let news = at(11, &mut Wire::default(), poll).1;
        (refused.is_some(), news.contains(&News::Voted))
    };
    assert_eq!(waits_no_longer(true), (true, false));
    assert_eq!(waits_no_longer(false), (false, true), "one that is done speaks for itself");
}

/// A peer that told this one another story, and withheld its last round from it, is seen when its last release comes from somebody else.
#[test]
fn a_last_release_of_another_story_is_seen() {
    let context = context();
    let mut rounds = Rounds::open(&context, MemoryDisk::default()).unwrap();
    let (told, others) = (frames(&context, 1, &[1.0, 2.0]), frames(&context, 2, &[-3.0, 0.5]));
    let last = |frames: &[(Head, Outgoing)]| {
        let (prior, frame) = frames.last().expect("one for each round");
        let release = release(&context, frame);
        let signature = release.signature.expect("the last release is signed");
        Final { author: 1, prior: *prior, payload: release.payload, signature }.encode()
    };
    let contradicts = |rounds: &Rounds<MemoryDisk>, frame: &Outgoing| {
        let Ok(Message::Final(last)) = decode(frame.bytes(), &context.limits) else { panic!("a last release") };
        assert!(last.verifies(&context.chain, context.id(1), ROUNDS));
        rounds.contradicts(&last).is_some()
    };
    let (same, other) = (last(&told), last(&frames(&context, 1, &[9.0, 9.0])));
    for round in 0..ROUNDS as usize {
        // Two rounds before the end or earlier nothing can be compared.
        let is_known = round as u32 + 1 >= ROUNDS;
        assert_eq!(
            (contradicts(&rounds, &same), contradicts(&rounds, &other)),
            (false, is_known),
            "after round {round}"
        );
        rounds.step(&context, true).unwrap();
        for (peer, frames) in [(1, &told), (2, &others)] {
            rounds.handle_release(&context, peer, &release(&context, &frames[round].1), &Receipt::default());
        }
    }
    assert!(!contradicts(&rounds, &same) && contradicts(&rounds, &other));
}
