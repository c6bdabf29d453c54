//! Complete studies in virtual time, on networks and disks with faults of every known kind.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use common::{
    FREE, LIMITS, MINUTE, RANDOM, RING, ZCDP, bits, cohort, fresh_noise, fresh_rounds, milliseconds, seeds, study,
    up_to, watched,
};
use undertone_core::algorithm::Run;
use undertone_core::client::{LARGEST_VALUE, Rules, State};
use undertone_core::ledger::{Carried, Contents, Ledger, LedgerError};
use undertone_core::message::Chain;
use undertone_core::node::{News, OnLoss, Stop};
use undertone_core::privacy::Spent;
use undertone_core::records::Scratch;
use undertone_core::study::Study;
use undertone_testing::{Backup, Faults, SimDisk, World};

/// All network faults, but no node is killed.
fn bad_network(seed: u64) -> Faults {
    Faults {
        latency: (milliseconds(1), milliseconds(80)),
        loss: 0.01,
        duplication: 0.02,
        reordering: 0.01,
        cut: 0.01,
        partition: 0.002,
        silence: Duration::from_secs(10),
        slow: BTreeMap::from([(seed as usize % 6, milliseconds(300))]),
        ..Faults::default()
    }
}

#[test]
fn peers_and_simulator_agree_to_the_last_bit() {
    let algorithms = [
        (ZCDP, "absolute"),
        ("name = \"dp-nfl\"\nrho = 0.4\neta = 0.5\ndecay = \"sqrt\"", "squared"),
        ("name = \"zcdp-grad-nfl\"\neta = 0.3\ndecay = \"inverse\"", "huber\"\nthreshold = 0.2\n#\""),
        (FREE, "absolute"),
        ("name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5\naverage = 0.3", "squared"),
    ];
    // The last is with liars in mind: bounded edges, a dual for every edge, trimmed means.
    let robust = ("name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5\naverage = 0.2", "squared", "[robust]\nliars = 1\n");
    for (algorithm, loss, more) in algorithms.map(|(algorithm, loss)| (algorithm, loss, "")).into_iter().chain([robust])
    {
        for graph in [RANDOM, RING, "kind = \"star\""] {
            let folder = tempfile::tempdir().unwrap();
            let text = study(folder.path(), 7, 40, algorithm, graph, loss)
                .replace("target =", "records = 23\ntarget =")
                + more;
            let liars = usize::from(!more.is_empty());
            let outcome = undertone_sim::run(&Study::parse(&text, "t").unwrap(), &|_| {}).unwrap();
            let mut world = World::new(cohort(&text), Faults::default(), 1);
            assert!(world.run(MINUTE).unwrap(), "{algorithm} on {graph} did not finish");
            assert!(world.now() < Duration::from_secs(5), "a node waited without reason: {:?}", world.now());
            for (k, expected) in outcome.released.chunks_exact(3).enumerate() {
                assert_eq!(
                    bits(world.node(k).unwrap().released()),
                    bits(expected),
                    "{algorithm} on {graph}, client {k}"
                );
                let finals: Vec<f64> = world.node(k).unwrap().finals().into_iter().flat_map(|f| f.1).collect();
                assert_eq!(bits(&undertone_data::trimmed_mean(&finals, 3, liars)), bits(&outcome.model.w));
            }
        }
    }
}

/// Every frame that is sent, in order, and every piece of news.
fn history(text: &str, seed: u64) -> (Vec<(usize, Vec<u8>)>, String) {
    let mut cohort = cohort(text);
    cohort.noise = fresh_noise;
    cohort.on_loss = OnLoss::Drop(Duration::from_secs(20));
    let faults = Faults { crash: 0.02, away: Duration::from_secs(8), corrupt: Some((1, 0.02)), ..bad_network(seed) };
    let mut world = World::new(cohort, faults, seed);
    let sent = Rc::new(RefCell::new(Vec::new()));
    let spied = sent.clone();
    world.spy = Some(Box::new(move |node, frame| spied.borrow_mut().push((node, frame.to_vec()))));
    let result = world.run(600 * MINUTE).map_err(|(k, stop)| format!("{k}: {stop}"));
    let news = format!("{result:?} {:?} {:?}", world.news, world.now());
    (sent.take(), news)
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 30, ZCDP, RANDOM, "squared");
    for seed in seeds(20) {
        assert_eq!(history(&text, seed), history(&text, seed), "seed {seed}");
    }
    assert_ne!(history(&text, 1).0, history(&text, 2).0, "another seed gives another world");
}

#[test]
fn a_bad_network_changes_nothing_but_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RANDOM, "squared");
    let mut clean = World::new(cohort(&text), Faults::default(), 0);
    assert!(clean.run(MINUTE).unwrap());
    let expected: Vec<_> = (0..6).map(|k| bits(clean.node(k).unwrap().released())).collect();
    for seed in seeds(200) {
        let mut world = World::new(cohort(&text), bad_network(seed), seed);
        let finished = world.run(600 * MINUTE).unwrap_or_else(|(k, stop)| panic!("seed {seed}: node {k}: {stop}"));
        assert!(finished, "seed {seed} did not finish: {}", world.summary());
        for (k, expected) in expected.iter().enumerate() {
            assert_eq!(&bits(world.node(k).unwrap().released()), expected, "seed {seed}, client {k}");
        }
    }
}

#[test]
fn crashes_in_the_middle_of_writes_lose_nothing_and_repeat_no_noise() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RANDOM, "squared");
    let study = Study::parse(&text, "t").unwrap();
    let schedule = study.privacy().unwrap().schedule();
    let mut crashes = 0;
    for seed in seeds(200) {
        let mut cohort = cohort(&text);
        cohort.noise = fresh_noise;
        let faults = Faults { crash: 0.015, away: Duration::from_secs(5), ..bad_network(seed) };
        let mut world = World::new(cohort, faults, seed);
        let witness = watched(&mut world, LIMITS);
        let finished = world.run(600 * MINUTE).unwrap_or_else(|(k, stop)| panic!("seed {seed}: node {k}: {stop}"));
        assert!(finished, "seed {seed} did not finish after {} crashes: {}", world.crashes, world.summary());
        crashes += world.crashes;
        assert_eq!(witness.borrow().contradictions, 0, "seed {seed}");
        let first = world.node(0).unwrap().finals();
        for k in 0..6 {
            let node = world.node(k).unwrap();
            let fresh = fresh_rounds(&witness.borrow(), k);
            let released: f64 = fresh.iter().map(|&n| schedule.phi(n).get()).sum();
            assert!(node.ledger().run().spent.rho.get() >= released * (1.0 - 1e-12), "seed {seed}, client {k}");
            assert!(node.ledger().run().spent.rho.get() <= schedule.spent(40).get(), "seed {seed}, client {k}");
            assert_eq!(node.ledger().run().fresh as usize, fresh.len(), "seed {seed}, client {k}");
            assert_eq!(node.finals(), first, "seed {seed}, client {k}");
        }
    }
    assert!(
        crashes > 1000 || std::env::var("UNDERTONE_SEED").is_ok(),
        "only {crashes} crashes: the test covers too little"
    );
}

/// Free rounds through crashes: a mixing round costs nothing and gives the same result however often it is computed; a data
/// round that was interrupted is charged and computed without the records.
#[test]
fn crashes_in_free_rounds_charge_data_rounds_only() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, FREE, RANDOM, "squared");
    let study = Study::parse(&text, "t").unwrap();
    let schedule = study.privacy().unwrap().schedule();
    let (mut crashes, mut withheld) = (0, 0);
    for seed in seeds(100) {
        let mut cohort = cohort(&text);
        cohort.noise = fresh_noise;
        let faults = Faults { crash: 0.015, away: Duration::from_secs(5), ..bad_network(seed) };
        let mut world = World::new(cohort, faults, seed);
        let witness = watched(&mut world, LIMITS);
        assert!(world.run(600 * MINUTE).unwrap(), "seed {seed} did not finish");
        assert_eq!(witness.borrow().contradictions, 0, "seed {seed}");
        crashes += world.crashes;
        let first = world.node(0).unwrap().finals();
        for k in 0..6 {
            let node = world.node(k).unwrap();
            let run = node.ledger().run();
            assert_eq!((run.mixed, run.fresh + run.withheld()), (34, 6), "seed {seed}, client {k}");
            // A data round that was interrupted is charged although it was not computed.
            assert!(
                (run.spent.rho.get() - schedule.spent(40).get()).abs() < 1e-9 * run.spent.rho.get(),
                "seed {seed}, client {k}"
            );
            assert!(run.spent.rho.get() <= schedule.spent(40).get(), "seed {seed}, client {k}");
            withheld += run.withheld();
            assert_eq!(node.finals(), first, "seed {seed}, client {k}");
        }
    }
    let single = std::env::var("UNDERTONE_SEED").is_ok();
    assert!((crashes > 300 && withheld > 10) || single, "{crashes} crashes, {withheld} rounds withheld: too few");
}

#[test]
fn mixing_continues_after_the_budget_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, FREE, RING, "squared");
    let study = Study::parse(&text, "t").unwrap();
    let schedule = study.privacy().unwrap().schedule();
    let mut cohort = cohort(&text);
    // Enough for the first three data rounds, which begin at rounds 1, 7 and 14.
    cohort.allowance = Some(Spent::without_masks(schedule.spent(14)));
    let mut world = World::new(cohort, Faults::default(), 1);
    assert!(world.run(MINUTE).unwrap());
    for k in 0..6 {
        let run = world.node(k).unwrap().ledger().run();
        assert_eq!((run.fresh, run.mixed, run.withheld()), (3, 34, 3));
        assert!(run.spent.rho.get() <= schedule.spent(14).get());
    }
    // Releases are still mixed: at the end the peers agree far better than after the last data round.
    let models: Vec<Vec<f64>> = (0..6).map(|k| world.node(k).unwrap().released().to_vec()).collect();
    let spread =
        (0..3).map(|p| models.iter().map(|m| (m[p] - models[0][p]).abs()).fold(0.0, f64::max)).fold(0.0, f64::max);
    assert!(spread < 1e-4, "{spread}");
}

/// The same check must detect repeated noise when all disks lose their writes, or the test above could not fail.
#[test]
fn disks_that_lie_are_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RANDOM, "squared");
    let mut world = up_to(&text, 10);
    let witness = watched(&mut world, LIMITS);
    (0..6).for_each(|k| world.disk(k).lie());
    world.run_until(MINUTE, |w| (0..6).all(|k| w.node(k).is_some_and(|n| n.round() >= 14))).unwrap();
    (0..6).for_each(|k| world.kill(k));
    (0..6).for_each(|k| world.start(k, Duration::from_secs(20)));
    // When all peers have lost their ledgers no one has a proof, and rounds are noised twice.
    world.run(10 * MINUTE).unwrap();
    assert!(witness.borrow().contradictions > 0);
    // If only one has lost its ledger, its neighbours prove it.
    let mut world = up_to(&text, 10);
    world.disk(2).lie();
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 13)).unwrap();
    world.kill(2);
    world.start(2, milliseconds(100));
    match world.run(10 * MINUTE) {
        Err((2, Stop::Behind { theirs, own, .. })) => assert!(theirs > own),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_old_an_emptied_and_a_copied_state_folder_stop_the_peer() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RANDOM, "squared");
    for emptied in [false, true] {
        let mut world = up_to(&text, 10);
        let backup = if emptied { Backup::default() } else { world.disk(2).backup() };
        world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 15)).unwrap();
        world.kill(2);
        world.disk(2).restore(backup);
        let witness = watched(&mut world, LIMITS);
        world.start(2, milliseconds(100));
        match world.run(10 * MINUTE) {
            Err((2, stop @ Stop::Behind { .. })) => {
                assert!(stop.to_string().contains("restored from a backup"), "{stop}");
            }
            other => panic!("{other:?}"),
        }
        let sent = witness.borrow().sent.keys().filter(|(node, round)| *node == 2 && *round > 10).count();
        assert_eq!(sent, 0, "something fresh was sent from an old state");
    }
    // A copy that diverged by one round: same number of rounds, other contents.
    let mut world = up_to(&text, 10);
    let (round, copy) = (world.node(2).unwrap().round(), world.disk(2).backup());
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() > round)).unwrap();
    world.kill(2);
    assert_ne!(world.disk(2).backup(), copy);
    world.disk(2).restore(another_next_round(&text, copy));
    world.start(2, milliseconds(100));
    match world.run(10 * MINUTE) {
        Err((2, stop @ Stop::Forked { .. })) => assert!(stop.to_string().contains("a copy of this peer"), "{stop}"),
        other => panic!("{other:?}"),
    }
}

/// The ledger of node 2 with one more round than `copy`, as a copy of the peer would have written it.
fn another_next_round(text: &str, copy: Backup) -> Backup {
    let cohort = cohort(text);
    let study = &cohort.study;
    let mut disk = SimDisk::of(copy);
    let begin = Contents::read(&mut disk).unwrap().unwrap().runs.remove(0).begin;
    let (identity, chain) = (cohort.identities[2].clone(), Chain::new(study.digest()));
    let budget = study.client_budget("site-02");
    let (mut ledger, resumed) = Ledger::enter(disk.clone(), identity, chain, LIMITS, begin, budget).unwrap();
    let last = resumed.last.unwrap();
    let prior = resumed.frames.last().unwrap().receipt().head;
    // The copy may not use its records and repeats itself, as after a crash in the middle of a write.
    let problem = study.public_problem().unwrap();
    let run = Run { rounds: study.rounds(), graph: &cohort.roster.graph, problem: &problem, robust: None };
    let round = run.round(last.round + 1, 2, None).among(&[], &[], &last.released, &[]);
    let (mut memory, mut released) = (last.memory.clone(), last.released.clone());
    let state = State { memory: &mut memory, w: &mut [0.0; 3], released: &mut released };
    let release =
        Rules { algorithm: study.algorithm(), largest: LARGEST_VALUE }.withhold(&round, state, &mut Scratch::default());
    ledger.record(&release, Carried { prior, memory: last.memory, edges: last.edges }).unwrap();
    disk.backup()
}

/// A neighbour may ruin the model and delay the rounds, but it cannot stop a peer, and peers that are not its
/// neighbours are not affected.
#[test]
fn invalid_frames_from_a_neighbour_stop_no_peer() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RING, "squared");
    let (mut refused, mut conflicts) = (0, 0);
    for seed in seeds(200) {
        let faults = Faults {
            latency: (milliseconds(1), milliseconds(20)),
            corrupt: Some((2, 0.2)),
            duplication: 0.2,
            silence: Duration::from_secs(10),
            ..Faults::default()
        };
        let mut world = World::new(cohort(&text), faults, seed);
        if let Err((k, stop)) = world.run(10 * MINUTE) {
            panic!("seed {seed}: node {k} stopped: {stop}");
        }
        let closed = |n: &&(usize, News)| matches!(&n.1, News::Lost(2, r) | News::Refused(2, r) if r.contains("closed by this peer"));
        refused += world.news.iter().filter(closed).count();
        // A modified but valid release is detected when the true one arrives too.
        let contradicts =
            |n: &&(usize, News)| matches!(&n.1, News::Conflict(c) if c.author == 2 && c.stories[0] != c.stories[1]);
        conflicts += world.news.iter().filter(contradicts).count();
    }
    assert!(refused > 100, "only {refused} connections were closed: the test covers too little");
    assert!(conflicts > 10, "only {conflicts} conflicts were detected: the test covers too little");
}

/// How many rounds a node has made from its records, by its ledger.
fn noised(world: &World, k: usize) -> u32 {
    Contents::read(&mut world.disk(k).clone()).unwrap().unwrap().runs[0].fresh
}

/// Two of three are restored from one backup while the third, which holds the proof, is away for good. They drop it; that does not make their state a current one, so
/// they go on without their records. With an anchor they do not even start; and if nothing was restored, an anchor lets them go on as before.
#[test]
fn dropping_the_witness_does_not_let_old_states_noise_again() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in [ZCDP, FREE] {
        let text = study(folder.path(), 3, 40, algorithm, "kind = \"complete\"", "squared");
        for (restored, anchored) in [(true, false), (true, true), (false, true), (false, false)] {
            let mut cohort = cohort(&text);
            cohort.noise = fresh_noise;
            cohort.on_loss = OnLoss::Drop(Duration::from_secs(5));
            let latency = (milliseconds(5), milliseconds(5));
            let faults = Faults { latency, silence: Duration::from_secs(1), ..Faults::default() };
            let mut world = World::new(cohort, faults, 1);
            if anchored {
                (0..3).for_each(|k| world.disk(k).anchor());
            }
            world.run_until(MINUTE, |w| (0..3).all(|k| w.node(k).is_some_and(|n| n.round() >= 8))).unwrap();
            let backups = [0, 1].map(|k| world.disk(k).backup());
            world.run_until(MINUTE, |w| (0..3).all(|k| w.node(k).is_some_and(|n| n.round() >= 14))).unwrap();
            (0..3).for_each(|k| world.kill(k));
            if restored {
                backups.into_iter().enumerate().for_each(|(k, backup)| world.disk(k).restore(backup));
            }
            if restored && anchored {
                world.start(0, milliseconds(100));
                match world.run(MINUTE) {
                    Err((0, Stop::Ledger(LedgerError::BehindAnchor { .. }))) => continue,
                    other => panic!("{algorithm}: {other:?}"),
                }
            }
            let before = [0, 1].map(|k| noised(&world, k));
            (0..2).for_each(|k| world.start(k, milliseconds(100)));
            world.run_until(10 * MINUTE, |w| (0..2).all(|k| w.node(k).is_some_and(|n| n.round() == 40))).unwrap();
            let after = [0, 1].map(|k| noised(&world, k));
            assert!((0..2).all(|k| world.node(k).is_some_and(|n| n.round() == 40)), "{}", world.summary());
            match anchored {
                // Nobody could say that nothing was sent since.
                false => assert_eq!(after, before, "{algorithm}, restored: {restored}"),
                true => assert!(after[0] > before[0] && after[1] > before[1], "{algorithm}"),
            }
        }
    }
}

/// A node that hangs keeps its connections. Who waits for it says so, and drops it when patience ends; nodes that wait for others are not dropped with it.
#[test]
fn a_node_that_hangs_is_reported_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let text = study(folder.path(), 6, 40, ZCDP, RING, "squared");
    for on_loss in [OnLoss::Drop(Duration::from_secs(5)), OnLoss::Wait] {
        let mut cohort = cohort(&text);
        cohort.noise = fresh_noise;
        cohort.on_loss = on_loss;
        let latency = (milliseconds(5), milliseconds(5));
        let faults = Faults { latency, silence: Duration::from_secs(1), ..Faults::default() };
        let mut world = World::new(cohort, faults, 1);
        world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 8)).unwrap();
        world.hang(2);
        let others = |w: &World| [0, 1, 3, 4, 5].iter().all(|k| w.node(*k).is_some_and(|n| n.round() == 40));
        let done = world.run_until(5 * MINUTE, others).unwrap();
        let waited = |k: usize| world.news.contains(&(k, News::Waiting(2)));
        assert!(waited(1) && waited(3), "{on_loss:?}");
        let dropped: Vec<(usize, u32)> = world
            .news
            .iter()
            .filter_map(|(k, news)| match news {
                News::Dropped { neighbour, theirs: false, .. } => Some((*k, *neighbour)),
                _ => None,
            })
            .collect();
        match on_loss {
            OnLoss::Wait => assert!(!done && dropped.is_empty(), "{dropped:?}"),
            OnLoss::Drop(_) => {
                assert!(done && dropped.iter().all(|(_, n)| *n == 2) && dropped.len() == 2, "{dropped:?}")
            }
        }
    }
}
