//! Neighbours that are lost, refused or spent, in virtual time.

mod common;

use std::time::Duration;

use common::{FREE, LIMITS, MINUTE, RING, ZCDP, bits, cohort, fresh_rounds, milliseconds, study, up_to, watched};
use undertone_core::ledger::Contents;
use undertone_core::message::{Message, decode};
use undertone_core::node::{News, OnLoss, Stop};
use undertone_core::privacy::Spent;
use undertone_core::study::Study;
use undertone_testing::{Faults, SimDisk, World};

/// All except node 2, which is killed in round 10 of 40 and dropped.
const OTHERS: [usize; 5] = [0, 1, 3, 4, 5];

/// A complete graph of six that loses node 2; the others finish.
fn without_node_2(folder: &std::path::Path, algorithm: &str) -> World {
    let text = study(folder, 6, 40, algorithm, "kind = \"complete\"", "squared");
    let mut cohort = cohort(&text);
    cohort.on_loss = OnLoss::Drop(Duration::from_secs(30));
    let latency = (milliseconds(5), milliseconds(5));
    let mut world = World::new(cohort, Faults { latency, silence: Duration::from_secs(10), ..Faults::default() }, 1);
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 10)).unwrap();
    world.kill(2);
    let done = |w: &World| OTHERS.iter().all(|k| w.node(*k).is_some_and(|n| n.is_finished(w.now())));
    assert!(world.run_until(10 * MINUTE, done).unwrap());
    world
}

#[test]
fn a_dropped_neighbour_takes_its_dual_along() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = without_node_2(folder.path(), ZCDP);
    for p in 0..3 {
        let sum: f64 = OTHERS.iter().map(|k| world.node(*k).unwrap().dual()[p]).sum();
        assert!(sum.abs() < 1e-12, "the duals of the remaining peers add up to {sum}");
    }
    for k in OTHERS {
        let node = world.node(k).unwrap();
        assert_eq!(node.neighbours().count(), 4);
        assert_eq!(node.finals().len(), 5, "the model is that of the remaining peers");
        assert!(world.news.iter().any(|n| matches!(n, (at, News::Dropped { neighbour: 2, left: 4, .. }) if *at == k)));
    }
    // When it is restarted, it learns that it has no neighbours.
    world.start(2, milliseconds(10));
    match world.run_until(20 * MINUTE, |_| false) {
        Err((2, Stop::Alone)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn free_rounds_go_on_without_a_lost_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let world = without_node_2(folder.path(), FREE);
    let models: Vec<&[f64]> = OTHERS.iter().map(|k| world.node(*k).unwrap().released()).collect();
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(models.iter().all(|m| apart(m, models[0]) < 0.02), "the remaining peers agree: {models:?}");
    assert!(models[0].iter().all(|v| v.abs() < 1.0) && models[0][0] > 0.1, "on a plausible model: {models:?}");
}

#[test]
fn a_restart_remembers_a_dropped_edge() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, "kind = \"complete\"", "squared");
    let mut cohort = cohort(&text);
    cohort.on_loss = OnLoss::Drop(Duration::from_secs(30));
    let latency = (milliseconds(5), milliseconds(5));
    let mut world = World::new(cohort, Faults { latency, silence: Duration::from_secs(1), ..Faults::default() }, 1);
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 10)).unwrap();
    world.kill(2);
    let later = world.now() + Duration::from_secs(10);
    world.run_until(later, |_| false).unwrap();
    world.kill(3);
    // 2 is dropped while 3 is still missing, so no round follows and the last record still includes the edge.
    assert!(world.run_until(2 * MINUTE, |w| w.node(0).is_some_and(|n| n.neighbours().count() == 4)).unwrap());
    let (dual, round) = (world.node(0).unwrap().dual().to_vec(), world.node(0).unwrap().round());
    world.kill(0);
    world.start(0, milliseconds(10));
    world.run_until(2 * MINUTE, |w| w.node(0).is_some()).unwrap();
    let node = world.node(0).unwrap();
    assert_eq!((node.round(), node.neighbours().count()), (round, 4));
    assert_eq!(bits(node.dual()), bits(&dual));
}

/// A peer that is not a neighbour of a lost peer keeps waiting for it, and must be told at the end that it will not return.
#[test]
fn peers_far_from_a_lost_one_finish_too() {
    let folder = tempfile::tempdir().unwrap();
    let edges: Vec<String> = (0..5).map(|k| format!("[\"site-0{k}\", \"site-0{}\"]", k + 1)).collect();
    let path = format!("kind = \"edges\"\nedges = [{}]", edges.join(", "));
    let text = study(folder.path(), 6, 40, ZCDP, &path, "squared");
    for (waiting, at) in [(3, 10), (3, 37), (3, 39), (0, 10), (0, 38), (0, 39)] {
        let mut cohort = cohort(&text);
        // The first `waiting` peers never drop an edge.
        cohort.on_loss = OnLoss::Drop(Duration::from_secs(60));
        cohort.waiting = waiting;
        let latency = (milliseconds(5), milliseconds(5));
        let mut world =
            World::new(cohort, Faults { latency, silence: Duration::from_secs(10), ..Faults::default() }, 1);
        world.run_until(MINUTE, |w| w.node(5).is_some_and(|n| n.round() >= at)).unwrap();
        world.kill(5);
        let all = |w: &World| (0..5).all(|k| w.node(k).is_some_and(|n| n.is_finished(w.now())));
        assert!(world.run_until(30 * MINUTE, all).unwrap(), "lost at {at}, {waiting} waiting");
        let finals = world.node(0).unwrap().finals();
        assert_eq!(finals.len(), 5);
        assert!((1..5).all(|k| world.node(k).unwrap().finals() == finals), "lost at {at}, {waiting} waiting");
    }
}

/// The last release of a peer that is lost reaches one of the others and nobody else. That one would have a model with it, the others one without.
#[test]
fn peers_that_hold_different_last_releases_end_with_one_model() {
    let folder = tempfile::tempdir().unwrap();
    for (graph, algorithm) in [("kind = \"complete\"", ZCDP), (RING, FREE)] {
        let mut cohort = cohort(&study(folder.path(), 6, 40, algorithm, graph, "squared"));
        cohort.on_loss = OnLoss::Drop(Duration::from_secs(10));
        let latency = (milliseconds(5), milliseconds(5));
        let mut world = World::new(cohort, Faults { latency, silence: Duration::from_secs(5), ..Faults::default() }, 1);
        world.tamper = Some(Box::new(|from, to, frame| {
            let is_lost = match decode(frame, &LIMITS) {
                Ok(Message::Round(release)) => from == 5 && to != 0 && release.round == LIMITS.rounds,
                Ok(Message::Final(last)) => last.author == 5 && to != 0,
                _ => false,
            };
            if is_lost { Vec::new() } else { vec![frame.to_vec()] }
        }));
        world.run_until(MINUTE, |w| w.node(0).is_some_and(|n| n.finals().iter().any(|(k, _)| *k == 5))).unwrap();
        world.kill(5);
        let all = |w: &World| (0..5).all(|k| w.node(k).is_some_and(|n| n.is_finished(w.now())));
        assert!(world.run_until(10 * MINUTE, all).unwrap(), "{}", world.summary());
        assert!(
            world.news.contains(&(0, News::Agreed(vec![5]))),
            "it has signed all six and ends with the five of the others"
        );
        for k in 0..5 {
            let node = world.node(k).unwrap();
            assert!(node.is_agreed() && node.finals() == world.node(1).unwrap().finals(), "{k}");
        }
    }
}

#[test]
fn a_peer_without_neighbours_stops() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RING, "squared");
    let mut cohort = cohort(&text);
    cohort.on_loss = OnLoss::Drop(Duration::from_secs(30));
    let mut world = World::new(cohort, Faults { latency: (milliseconds(5), milliseconds(5)), ..Faults::default() }, 1);
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 10)).unwrap();
    world.kill(1);
    world.kill(3);
    match world.run(10 * MINUTE) {
        Err((2, Stop::Alone)) => {}
        other => panic!("{other:?}"),
    }
    // Started again, it does not spend the rest of its budget without neighbours.
    let spent = world.node(2).unwrap().ledger().run().spent;
    world.kill(2);
    world.start(2, milliseconds(10));
    let stopped = world.run_until(world.now() + MINUTE, |_| false);
    assert!(matches!(stopped, Err((2, Stop::Alone))), "{stopped:?}");
    let mut disk: SimDisk = world.disk(2).clone();
    assert_eq!(Contents::read(&mut disk).unwrap().unwrap().runs[0].spent, spent);
}

#[test]
fn values_of_no_sensible_size_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    // A step so large that the run diverges.
    let diverging = ZCDP.replace("eta = 0.5", "eta = 1e9").replace("rho = 0.4", "rho = 1e-9");
    let text = study(folder.path(), 6, 40, &diverging, RING, "squared").replace("clip = 0.5", "clip = 1e12");
    let mut world = World::new(cohort(&text), Faults::default(), 1);
    let witness = watched(&mut world, LIMITS);
    match world.run(MINUTE) {
        Err((_, stop @ Stop::Round { .. })) => assert!(stop.to_string().contains("the run has diverged"), "{stop}"),
        other => panic!("{other:?}"),
    }
    assert!(!witness.borrow().sent.is_empty(), "earlier releases were valid");
}

#[test]
fn a_study_that_differs_is_refused_and_the_difference_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RING, "squared");
    let mut cohort = cohort(&text);
    cohort.odd =
        Some((2, std::sync::Arc::new(Study::parse(&text.replace("epsilon = 5.0", "epsilon = 6.0"), "t").unwrap())));
    let mut world = World::new(cohort, Faults { latency: (milliseconds(5), milliseconds(5)), ..Faults::default() }, 1);
    assert!(!world.run(MINUTE).unwrap(), "they must not finish");
    assert_eq!(world.node(2).unwrap().round(), 0);
    let named = |n: &(usize, News)| matches!(&n.1, News::Refused(_, reason) if reason.contains("differ in: privacy"));
    assert!(world.news.iter().any(|n| n.0 == 2 && named(n)));
    assert!(world.news.iter().any(|n| n.0 == 1 && named(n)));
}

#[test]
fn a_spent_allowance_is_followed_by_repetition_at_no_cost() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RING, "squared");
    let study = Study::parse(&text, "t").unwrap();
    let schedule = study.privacy().unwrap().schedule();
    let mut cohort = cohort(&text);
    cohort.allowance = Some(Spent::without_masks(schedule.spent(25)));
    let mut world = World::new(cohort, Faults::default(), 1);
    let witness = watched(&mut world, LIMITS);
    assert!(world.run(MINUTE).unwrap());
    for k in 0..6 {
        let run = world.node(k).unwrap().ledger().run();
        assert_eq!((run.fresh, run.round), (25, 40));
        assert_eq!(fresh_rounds(&witness.borrow(), k), (1..=25).collect::<Vec<_>>());
        assert!(run.spent.rho.get() <= schedule.spent(25).get());
        let total: f64 = (0..3).map(|p| (0..6).map(|k| world.node(k).unwrap().dual()[p]).sum::<f64>().abs()).sum();
        assert!(total < 1e-12, "the duals no longer add up to zero");
    }
}

#[test]
fn a_ledger_from_the_future_opens_when_the_clock_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RING, "squared");
    let mut world = up_to(&text, 10);
    world.kill(2);
    // The cohort's clock is the number of starts; the ledger's first record is then later than the clock.
    let mut disk: SimDisk = world.disk(2).clone();
    let begun = Contents::read(&mut disk).unwrap().unwrap().runs[0].begin.time;
    assert_eq!(begun, 1);
    world.cohort_mut().clock = -31_536_000;
    world.start(2, milliseconds(10));
    assert!(world.run(10 * MINUTE).unwrap());
}
