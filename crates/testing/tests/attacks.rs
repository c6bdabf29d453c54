//! What others do to a peer: neighbours that lie, states that are old, stories that differ.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use common::{FREE, LIMITS, MINUTE, RING, ZCDP, cohort, fresh_noise, identity, milliseconds, study, watched};
use undertone_core::message::{Chain, Message, decode};
use undertone_core::node::{News, Stop};
use undertone_core::study::Limits;
use undertone_testing::{Backup, Faults, Forgetful, OtherStory, World};

fn world(text: &str) -> World {
    world_with(text, BTreeMap::new())
}

/// With nodes that take longer for everything they send.
fn world_with(text: &str, slow: BTreeMap<usize, Duration>) -> World {
    let mut cohort = cohort(text);
    cohort.noise = fresh_noise;
    let latency = (milliseconds(5), milliseconds(5));
    World::new(cohort, Faults { latency, silence: Duration::from_secs(1), slow, ..Faults::default() }, 1)
}

/// The only neighbour of a peer takes part in the attack: it says that it knows nothing, and says again what it has said. A participant that is no neighbour and is
/// reached stops the peer before anything fresh is sent. If nobody honest is reached and there is no anchor, nothing can: rounds are noised twice.
#[test]
fn one_honest_participant_stops_an_old_state() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 4, 40, ZCDP, "kind = \"star\"", "squared");
    for (reached, anchored) in [(true, false), (false, true), (false, false)] {
        // The attacker answers first.
        let mut world = world_with(&text, BTreeMap::from([(1, milliseconds(300)), (3, milliseconds(300))]));
        if anchored {
            world.disk(2).anchor();
        }
        let limits = Limits { clients: 4, ..LIMITS };
        let witness = watched(&mut world, limits);
        world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 10)).unwrap();
        let backup = world.disk(2).backup();
        world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 25)).unwrap();
        world.kill(2);
        let said = |k| (1..=25).map_while(|n| witness.borrow().sent.get(&(k, n)).cloned()).collect::<Vec<_>>();
        let study = world.cohort_mut().study.clone();
        world.attack(0, Box::new(Forgetful::new(&study, 4, said(0), &identity(2).id(), &said(2))));
        if !reached {
            world.kill(1);
            world.kill(3);
        }
        world.disk(2).restore(backup);
        world.start(2, Duration::from_secs(3));
        let end = world.run(world.now() + 2 * MINUTE);
        let repeated = witness.borrow().contradictions;
        match (reached, anchored) {
            (true, _) => {
                assert!(matches!(end, Err((2, Stop::Behind { theirs, .. })) if theirs > 10), "{end:?}");
                assert_eq!(repeated, 0);
            }
            (_, true) => {
                assert!(matches!(&end, Err((2, Stop::Ledger(e))) if e.to_string().contains("anchor")), "{end:?}");
                assert_eq!(repeated, 0);
            }
            _ => assert!(repeated > 5, "the attack does not work: {end:?}"),
        }
    }
}

/// One peer is away, two advance as far as they can and are killed. What one of them was shown last is in no ledger of the other; one is restored as it was one round
/// before.
#[test]
fn what_was_shown_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in [ZCDP, FREE] {
        let text = study(folder.path(), 3, 40, algorithm, "kind = \"complete\"", "squared");
        let mut world = world(&text);
        let witness = watched(&mut world, Limits { clients: 3, ..LIMITS });
        world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 8)).unwrap();
        world.kill(2);
        let backups: RefCell<BTreeMap<u32, Backup>> = RefCell::default();
        let keep = |w: &World| {
            let round = w.node(0).map_or(0, |n| n.round());
            backups.borrow_mut().entry(round).or_insert_with(|| w.disk(0).backup());
            false
        };
        world.run_until(world.now() + MINUTE / 2, keep).unwrap();
        let newest = world.node(0).unwrap().round();
        let before = backups.borrow()[&(newest - 1)].clone();
        world.kill(0);
        world.kill(1);
        world.disk(0).restore(before);
        (0..3).for_each(|k| world.start(k, milliseconds(100 * k as u64)));
        let end = world.run(world.now() + MINUTE);
        assert!(matches!(end, Err((0, Stop::Behind { theirs, own, .. })) if theirs == own + 1), "{end:?}");
        assert_eq!(witness.borrow().contradictions, 0);
    }
}

/// A state that is as new as others know is refused too if it was started since: a copy may be running.
#[test]
fn a_state_from_before_the_last_start_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 3, 40, ZCDP, RING, "squared");
    let mut world = world(&text);
    let witness = watched(&mut world, Limits { clients: 3, ..LIMITS });
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 8)).unwrap();
    world.kill(1);
    world.kill(2);
    let copy = world.disk(2).backup();
    world.start(2, milliseconds(10));
    // Nothing can be done without the other one.
    world.run_until(world.now() + Duration::from_secs(5), |_| false).unwrap();
    world.kill(2);
    world.disk(2).restore(copy);
    world.start(2, milliseconds(10));
    let end = world.run(world.now() + MINUTE);
    assert!(matches!(end, Err((2, Stop::Copied { theirs: 2, own: 2, .. }))), "{end:?}");
    assert_eq!(witness.borrow().contradictions, 0);
}

/// A peer tells one neighbour another story, from the first round on, and keeps its last release from it. All honest peers have proof long before the end.
#[test]
fn two_stories_meet_during_the_study() {
    let folder = tempfile::tempdir().unwrap();
    for graph in ["kind = \"complete\"", RING] {
        let text = study(folder.path(), 5, 160, ZCDP, graph, "squared");
        let mut world = world(&text);
        let study = world.cohort_mut().study.clone();
        let chain = Chain::new(study.digest());
        let limits = study.limits(5);
        let mut story = OtherStory::new(&study, 5, identity(0).into(), 0.25);
        let told = Rc::new(RefCell::new(0));
        let counted = told.clone();
        world.tamper = Some(Box::new(move |from, to, frame| match (from, to) {
            (0, 1) => match decode(frame, &limits) {
                Ok(Message::Round(release)) if release.round == limits.rounds => Vec::new(),
                _ => {
                    *counted.borrow_mut() += 1;
                    story.tell(0, frame).into_iter().collect()
                }
            },
            _ => vec![frame.to_vec()],
        }));
        let is_accused = |w: &World| (1..5).all(|k| w.node(k).is_some_and(|n| n.accused() == [0]));
        assert!(world.run_until(10 * MINUTE, is_accused).unwrap(), "{}", world.summary());
        assert!((1..5).all(|k| world.node(k).unwrap().round() < 40), "{}", world.summary());
        assert!(*told.borrow() > 10);
        for k in 1..5 {
            let proof = world.news.iter().find_map(|(node, news)| match news {
                News::Conflict(conflict) if *node == k && conflict.is_provable() => Some(conflict),
                _ => None,
            });
            let conflict = proof.unwrap_or_else(|| panic!("{k} has no proof"));
            assert_ne!(conflict.stories[0].head, conflict.stories[1].head);
            for story in &conflict.stories {
                let signature = story.signature.unwrap();
                assert!(chain.verifies(&identity(0).id(), conflict.round, &story.head, &signature));
            }
        }
        // Nobody accuses anybody else.
        assert!((1..5).all(|k| world.node(k).unwrap().accused() == [0]));
    }
}
