//! Studies with masks, between nodes in virtual time and in the simulator.

mod common;

use std::time::Duration;

use common::{
    FREE, LIMITS, MINUTE, RANDOM, ZCDP, bits, cohort, fresh_noise, fresh_rounds, milliseconds, seeds, watched,
};
use undertone_core::message::{Message, decode};
use undertone_core::node::{OnLoss, Stop};
use undertone_core::privacy::{Masks, PairKeys, Spent};
use undertone_core::study::Study;
use undertone_testing::{Backup, Faults, World};

/// The study of the other tests with masks.
fn masked(folder: &std::path::Path, clients: usize, rounds: u32, algorithm: &str, graph: &str) -> String {
    common::study(folder, clients, rounds, algorithm, graph, "squared")
        .replace("clip = 0.5\n", "clip = 0.5\ncolluders = 2\ntheta = 0.7\n")
        .replace("target = \"y\"\n", "target = \"y\"\nrecords = 22\n")
}

#[test]
fn peers_and_simulator_agree_to_the_last_bit_with_masks() {
    for algorithm in [ZCDP, FREE, "name = \"zcdp-grad-nfl\"\neta = 0.3\ndecay = \"inverse\""] {
        let folder = tempfile::tempdir().unwrap();
        let text = masked(folder.path(), 7, 40, algorithm, RANDOM);
        let outcome = undertone_sim::run(&Study::parse(&text, "t").unwrap(), &|_| {}).unwrap();
        let mut world = World::new(cohort(&text), Faults::default(), 1);
        assert!(world.run(MINUTE).unwrap());
        for (k, expected) in outcome.released.chunks_exact(3).enumerate() {
            assert_eq!(bits(world.node(k).unwrap().released()), bits(expected), "{algorithm}, client {k}");
        }
        // The masks are there: without them the same study ends elsewhere.
        let plain = text.replace("colluders = 2\ntheta = 0.7\n", "");
        let plain = undertone_sim::run(&Study::parse(&plain, "t").unwrap(), &|_| {}).unwrap();
        assert_ne!(bits(&plain.released), bits(&outcome.released));
    }
}

/// Crashes, partitions and losses: what is recorded is never less than what was released, in either count, and no round is noised twice.
#[test]
fn both_budgets_hold_in_worlds_with_faults() {
    let folder = tempfile::tempdir().unwrap();
    let (mut crashes, mut lost, mut withheld) = (0, 0, 0);
    for algorithm in [ZCDP, FREE] {
        let text = masked(folder.path(), 6, 40, algorithm, RANDOM);
        for seed in seeds(60) {
            let mut cohort = cohort(&text);
            cohort.noise = fresh_noise;
            cohort.on_loss = OnLoss::Drop(Duration::from_secs(20));
            let setups: Vec<_> = (0..6)
                .map(|k| {
                    let setup = cohort.setup(k, 0);
                    setup.roster.budget(&setup.study, k, setup.data.records()).unwrap()
                })
                .collect();
            let faults = Faults {
                latency: (milliseconds(1), milliseconds(80)),
                loss: 0.01,
                cut: 0.01,
                partition: 0.002,
                silence: Duration::from_secs(10),
                crash: 0.04,
                away: Duration::from_secs(15),
                ..Faults::default()
            };
            let mut world = World::new(cohort, faults, seed);
            let witness = watched(&mut world, LIMITS);
            match world.run(600 * MINUTE) {
                // With so many losses a node may be left alone, which ends its run.
                Ok(_) | Err((_, Stop::Alone)) => {}
                Err((k, stop)) => panic!("seed {seed}: node {k}: {stop}"),
            }
            crashes += world.crashes;
            assert_eq!(witness.borrow().contradictions, 0, "seed {seed}");
            for (k, budget) in setups.iter().enumerate() {
                let Some(node) = world.node(k) else { continue };
                let run = node.ledger().run();
                let data_round = |n: &&u32| budget.phi(**n).get() > 0.0;
                // Of the data rounds that were sent, so many were made from records: the cheapest that they can have cost.
                let sent = fresh_rounds(&witness.borrow(), k);
                let mut costs: Vec<_> = sent.iter().filter(data_round).map(|&n| budget.cost(n)).collect();
                costs.sort_by(|a, b| a.rho.get().total_cmp(&b.rho.get()));
                costs.truncate(run.fresh as usize);
                let least = costs.iter().fold(Spent::ZERO, |sum, cost| sum.plus(*cost));
                assert!(run.spent.rho.get() >= least.rho.get() * (1.0 - 1e-12), "seed {seed}, client {k}");
                assert!(run.spent.alone.get() >= least.alone.get() * (1.0 - 1e-12), "seed {seed}, client {k}");
                assert!(run.spent.rho <= budget.promised().rho && run.spent.alone <= budget.promised().alone);
                // In every record, also of a round that was charged after a crash, both were counted: alone is the larger by a factor that
                // is the same in all rounds.
                let ratio = |spent: Spent| spent.alone.get() / spent.rho.get();
                assert!((ratio(run.spent) / ratio(budget.promised()) - 1.0).abs() < 1e-6, "seed {seed}, client {k}");
                assert!(ratio(run.spent) > 1.5);
                lost += run.dropped.len();
                withheld += run.withheld();
            }
        }
    }
    let single = std::env::var("UNDERTONE_SEED").is_ok();
    assert!(
        (crashes > 500 && lost > 20 && withheld > 10) || single,
        "{crashes} crashes, {lost} lost, {withheld} withheld"
    );
}

/// A client is lost. The others go on, and what they release has the masks that they share with it: with them taken off by hand the sum of all
/// noise has its own size, and without that it has not.
#[test]
fn masks_with_a_lost_client_stay_in_place() {
    let folder = tempfile::tempdir().unwrap();
    // Large masks, little own noise, and all noise larger than the gradients.
    let text = masked(folder.path(), 6, 40, FREE, "kind = \"complete\"")
        .replace("theta = 0.7", "theta = 0.995")
        .replace("epsilon = 5.0", "epsilon = 0.5")
        .replace("momentum = 0.3", "momentum = 0.0");
    let mut cohort = cohort(&text);
    cohort.noise = fresh_noise;
    cohort.on_loss = OnLoss::Drop(Duration::from_secs(20));
    let study = cohort.study.clone();
    let setup = cohort.setup(0, 0);
    let budget = setup.roster.budget(&study, 0, setup.data.records()).unwrap();
    let gradient = setup.data.records().gradient_sensitivity().unwrap();
    let mut world = World::new(cohort, Faults::default(), 3);
    let witness = watched(&mut world, LIMITS);
    // Data rounds are 1, 7, 14, 21, 27 and 34.
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 9)).unwrap();
    world.kill(2);
    assert!(
        world.run_until(600 * MINUTE, |w| (0..6).all(|k| k == 2 || w.node(k).is_some_and(|n| n.round() == 40))).is_ok()
    );
    let released = |k: usize, round: u32| -> Vec<f64> {
        match decode(&witness.borrow().sent[&(k, round)], &LIMITS) {
            Ok(Message::Round(frame)) => frame.payload.values().collect(),
            _ => panic!("client {k} released nothing in round {round}"),
        }
    };
    // On a complete graph with one dropped vertex, all others hold the same point before a data round, up to the Metropolis weights; the mean of
    // what five release moves by the mean gradient, own noise, and the masks with client 2.
    let (lattice, own) = budget.masked_noise(34, gradient, 3).unwrap();
    let key = |k: usize| common::identity(k).mask_key(&common::identity(2).id(), &study.digest().whole());
    let mut left = vec![0.0; 3];
    for k in [0, 1, 3, 4, 5] {
        let mut mask = vec![0; 3];
        Masks::Shared(PairKeys::new(0, vec![[0; 32].into(), key(k)])).round(2, 0, 34, 3).sum(0, &lattice, &mut mask);
        // Client 2 subtracts what a smaller one adds.
        let sign = if k < 2 { 1.0 } else { -1.0 };
        left.iter_mut().zip(mask).for_each(|(sum, mask)| *sum += sign * mask as f64 * lattice.step() / 5.0);
    }
    let mean = |round: u32| -> Vec<f64> {
        let all: Vec<Vec<f64>> = [0, 1, 3, 4, 5].iter().map(|&k| released(k, round)).collect();
        (0..3).map(|p| all.iter().map(|point| point[p]).sum::<f64>() / 5.0).collect()
    };
    // v = x - eta (g + noise + masks), so (x - v)/eta less the masks is a gradient of norm at most the clip plus own noise.
    let eta = 0.5 / 6f64.sqrt();
    let moved: Vec<f64> = mean(34).iter().zip(mean(33)).map(|(after, before)| (before - after) / eta).collect();
    let size = |values: Vec<f64>| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let without = size(moved.iter().zip(&left).map(|(moved, left)| moved - left).collect());
    let (with, masks) = (size(moved.clone()), size(left.clone()));
    let own = own.scale as f64 * lattice.step() / 5f64.sqrt();
    // What remains is the gradient and own noise. The masks alone are several times the last, or the test would show nothing.
    assert!(masks > 3.0 * own * 3f64.sqrt(), "masks {masks}, own noise {own}");
    assert!(
        without < 0.6 * masks && with > 0.6 * masks,
        "{with} with the masks of the lost client, {without} without, masks {masks}"
    );
}

/// A folder from before is found out: the same masks with other noise would be a leak.
#[test]
fn a_restored_or_emptied_folder_is_found_out_with_masks_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = masked(folder.path(), 6, 40, FREE, RANDOM);
    for emptied in [false, true] {
        let mut world = common::up_to(&text, 10);
        let backup = if emptied { Backup::default() } else { world.disk(2).backup() };
        world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= 15)).unwrap();
        world.kill(2);
        world.disk(2).restore(backup);
        let witness = watched(&mut world, LIMITS);
        world.start(2, milliseconds(100));
        let stopped = world.run(10 * MINUTE);
        assert!(matches!(stopped, Err((2, Stop::Behind { .. }))), "{stopped:?}");
        let sent = witness.borrow().sent.keys().filter(|(node, round)| *node == 2 && *round > 10).count();
        assert_eq!(sent, 0, "something fresh was sent from an old state");
    }
}

/// Two studies of one data set that assume different things add up in both counts.
#[test]
fn studies_with_different_trust_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut trusting = cohort(&masked(folder.path(), 6, 40, FREE, RANDOM));
    trusting.noise = fresh_noise;
    let mut world = World::new(trusting, Faults::default(), 1);
    assert!(world.run(MINUTE).unwrap());
    let first = world.node(0).unwrap().ledger().run().clone();
    assert_eq!((first.begin.clients, first.begin.colluders), (6, 2));
    assert!(first.spent.alone.get() > 1.5 * first.spent.rho.get());
    let mut other = cohort(&common::study(folder.path(), 6, 40, FREE, RANDOM, "squared"));
    other.noise = fresh_noise;
    let mut second = World::new(other, Faults::default(), 1);
    second.disk(0).restore(world.disk(0).backup());
    second.kill(0);
    second.start(0, milliseconds(1));
    assert!(second.run(10 * MINUTE).unwrap());
    let contents = second.node(0).unwrap().ledger().contents();
    let [one, two] = &contents.runs[..] else { panic!("{} runs", contents.runs.len()) };
    assert_eq!((one, two.begin.clients, two.begin.colluders), (&first, 6, 5), "all others");
    assert_eq!(two.spent.rho, two.spent.alone);
    assert_eq!(contents.spent(), Some(one.spent.plus(two.spent)));
}
