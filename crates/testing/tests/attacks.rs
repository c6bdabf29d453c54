//! What others do to a peer: neighbours that lie, states that are old, stories that differ.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use common::{FREE, LIMITS, MINUTE, RING, ZCDP, cohort, fresh_noise, identity, milliseconds, study, watched};
use undertone_core::message::{Chain, Hello, Message, SignedHead, decode};
use undertone_core::node::{News, Stop};
use undertone_core::study::{Limits, Study};
use undertone_testing::{Author, Backup, Faults, Forgetful, OtherStory, World};

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

/// What a liar says instead of its release, from all releases of honest peers in the same round or, where they are not known yet, the one before.
type Lie = fn(truth: &[f64], honest: &[Vec<f64>], round: u32) -> Vec<f64>;

fn moments(honest: &[Vec<f64>], p: usize) -> (f64, f64) {
    let mean = honest.iter().map(|w| w[p]).sum::<f64>() / honest.len() as f64;
    let variance = honest.iter().map(|w| (w[p] - mean).powi(2)).sum::<f64>() / honest.len() as f64;
    (mean, variance.sqrt())
}

const LIES: [(&str, Lie); 7] = [
    ("a constant shift", |truth, _, _| truth.iter().map(|v| v + 1.0).collect()),
    ("huge numbers", |truth, _, _| vec![1e6; truth.len()]),
    ("the last round only", |truth, _, round| if round == 40 { vec![-1e6; truth.len()] } else { truth.to_vec() }),
    ("flipped signs", |_, honest, _| (0..3).map(|p| -moments(honest, p).0).collect()),
    ("scaled noise", |_, honest, round| {
        let sign = |p: usize| if (round as usize * 7 + p * 3) % 5 < 2 { 10.0 } else { -10.0 };
        (0..3).map(|p| moments(honest, p).0 + sign(p) * moments(honest, p).1).collect()
    }),
    ("a little is enough", |_, honest, _| (0..3).map(|p| moments(honest, p).0 - 1.5 * moments(honest, p).1).collect()),
    ("an inner product", |_, honest, _| (0..3).map(|p| 0.5 * moments(honest, p).0).collect()),
];

/// The model of a study after a run in which the last `liars` peers tell a lie, if they are given one, to all their neighbours.
fn model_with(text: &str, liars: usize, lie: Option<Lie>) -> Vec<f64> {
    let cohort = cohort(text);
    let study = cohort.study.clone();
    let clients = study.spec().clients.len();
    let limits = study.limits(clients);
    let first = clients - liars;
    let mut world = World::new(cohort, Faults { latency: (milliseconds(5), milliseconds(5)), ..Faults::default() }, 1);
    if let Some(lie) = lie {
        let author = |k: usize| (k, Author::new(&study, clients, identity(k).into()));
        let mut authors: BTreeMap<usize, Author> = (first..clients).map(author).collect();
        let mut said: BTreeMap<(usize, u32), Vec<u8>> = BTreeMap::new();
        let mut honest: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        world.tamper = Some(Box::new(move |from, to, frame| match decode(frame, &limits) {
            Ok(Message::Round(release)) if from >= first => {
                let known: Vec<Vec<f64>> = honest.values().cloned().collect();
                let truth: Vec<f64> = release.payload.values().collect();
                let told = said.entry((from, release.round)).or_insert_with(|| {
                    let values = if known.is_empty() { truth.clone() } else { lie(&truth, &known, release.round) };
                    // More is refused.
                    let values = values.into_iter().map(|v| v.clamp(-limits.largest, limits.largest));
                    authors.get_mut(&from).expect("it lies").release(values)
                });
                vec![told.clone()]
            }
            // What others know of a liar is not what the peer behind its lies has released, which must not hear of it.
            Ok(Message::Hello(hello)) if to >= first => {
                let (receipt, shown) = Default::default();
                vec![Hello { receipt, shown, head: SignedHead::NONE, ..hello }.encode().bytes().to_vec()]
            }
            Ok(Message::Head { author, .. }) if author as usize >= first => Vec::new(),
            // Others pass its last release on from what it told them.
            Ok(Message::Final(last)) if from >= first && last.author as usize >= first => Vec::new(),
            Ok(Message::Round(release)) => {
                honest.insert(from, release.payload.values().collect());
                vec![frame.to_vec()]
            }
            _ => vec![frame.to_vec()],
        }));
    }
    // The peers behind the lies never hold the set that the others sign.
    let all = |w: &World| (0..first).all(|k| w.node(k).is_some_and(|node| node.is_agreed()));
    assert!(world.run_until(10 * MINUTE, all).unwrap(), "{}", world.summary());
    let finals: Vec<f64> = world.node(0).unwrap().finals().into_iter().flat_map(|(_, w)| w).collect();
    undertone_data::trimmed_mean(&finals, 3, study.liars())
}

/// A liar of ten, or five of fifty with UNDERTONE_FIFTY, whatever they say, raise the error at most three times over the same run without them, with noise and without;
/// without a liar the rule costs at most 1.3 times. Mean errors over five seeds, against the solution on the honest parties' pooled data.
#[test]
fn liars_do_little_to_a_robust_study() {
    let folder = tempfile::tempdir().unwrap();
    let fifty = std::env::var("UNDERTONE_FIFTY").is_ok();
    let (clients, liars, graph) =
        if fifty { (50, 5, "kind = \"regular\"\ndegree = 10") } else { (10, 1, "kind = \"complete\"") };
    for algorithm in [FREE, ZCDP] {
        for noise in [true, false] {
            let text = |clients: usize, seed: u64, robust: &str| {
                let text = study(folder.path(), clients, 40, algorithm, graph, "squared");
                let text = text.replace("seed = 3", &format!("seed = {seed}"));
                let text = text.replace("epsilon = 5.0", "epsilon = 2.0");
                let text = text.replace("target =", &format!("records = {}\ntarget =", 20 + clients / 2));
                let (head, tail) = text.split_once("[privacy]").unwrap();
                let parties = &tail[tail.find("[client").unwrap()..];
                match noise {
                    true => format!("{text}{robust}"),
                    false => format!("privacy = \"off\"\n{head}{parties}{robust}"),
                }
            };
            let exact = text(clients - liars, 3, "").replace("rounds = 40", "rounds = 4000").replace(algorithm, ZCDP);
            let exact = exact.replace("epsilon = 2.0", "epsilon = 1e9").replace("clip = 0.5", "clip = 100.0");
            let exact = undertone_sim::run(&Study::parse(&exact, "exact").unwrap(), &|_| {}).unwrap().model.w;
            let error = |clients: usize, robust: &str, lie: Option<Lie>| {
                let of = |seed| {
                    let model = model_with(&text(clients, seed, robust), liars, lie);
                    model.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
                };
                (1..6).map(of).sum::<f64>() / 5.0
            };
            let robust = format!("[robust]\nliars = {liars}\n");
            let without = error(clients - liars, "", None);
            let cost = error(clients, &robust, None) / error(clients, "", None);
            let name = &algorithm[8..16];
            println!("{name}, noise {noise}: error {without:.4}, cost of the rule {cost:.2}");
            assert!(cost <= 1.3, "{cost}");
            for (name, lie) in LIES {
                let rise = error(clients, &robust, Some(lie)) / without;
                println!("    {name}: {rise:.2} times");
                assert!(rise <= 3.0, "{name}: {rise}");
            }
            // Without the rule the attack works, with numbers that nobody refuses.
            let ruined = error(clients, "", Some(LIES[0].1)) / without;
            assert!(ruined > 3.0, "{ruined}");
        }
    }
}
