//! Random worlds: every seed draws a study, what goes wrong in it and who lies, and whatever happens three things hold.
//!
//! 1. What the ledger of an honest peer records is at least what its releases cost.
//! 2. No round of an honest peer is noised twice.
//! 3. No two honest peers end well with different models.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use common::{FREE, MINUTE, RANDOM, RING, ZCDP, cohort, fresh_noise, identity, milliseconds, seeds, study};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::client::LARGEST_VALUE;
use undertone_core::ledger::Contents;
use undertone_core::message::{Chain, Hello, Message, Receipt, SignedHead, decode, next_head};
use undertone_core::node::{OnLoss, Stop};
use undertone_core::privacy::Spent;
use undertone_core::study::{Limits, Study};
use undertone_testing::{Attacker, Author, Backup, Cohort, Faults, OtherStory, Wires, World};

const CLIENTS: usize = 5;
const COMPLETE: &str = "kind = \"complete\"";
const LIMITS: Limits = Limits { features: 3, rounds: 40, clients: CLIENTS, largest: LARGEST_VALUE };

/// What can go wrong in a world, and all of it in order.
macro_rules! faults {
    ($($fault:ident),*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        enum Fault { $($fault),* }

        use Fault::*;

        const ALL: &[Fault] = &[$($fault),*];
    };
}

faults! {
    Latency, Loss, Duplication, Reordering, Cuts, Crashes, Partitions, SlowNode, CorruptFrames, Hang, KilledForGood,
    KilledForAWhile, LyingDisk, OldFolder, FolderOfTheSameSession, EmptiedFolder, CutLedger, LostMarks, TwoStories, Lies,
    EarlyDone, ForgedHeads, ClockJump, SmallAllowance, Anchor, Masks, Drop
}

/// A peer with a key of the study that says it is done before it has done anything, and passes on heads that nobody signed.
struct Rude {
    hello: Vec<u8>,
    forged: bool,
}

impl Attacker for Rude {
    fn handle(&mut self, event: undertone_core::node::Event, wires: &mut Wires) {
        let undertone_core::node::Event::Up { link, .. } = event else { return };
        wires.send(link, self.hello.clone());
        let mut frame = vec![5, 1, 0, 0, 0, 9, 0, 0, 0];
        match self.forged {
            true => frame.extend([7; 96]),
            false => frame = [&[4, 0, 1], &LIMITS.rounds.to_le_bytes()[..]].concat(),
        }
        wires.send(link, frame);
    }
}

/// What stands between peer 1 and the others: they receive any numbers that are not refused in place of its releases, all the same, in a chain of their own that is signed
/// like a true one, and it hears of its own releases where they speak of these.
struct Numbers {
    chain: Chain,
    author: Author,
    limits: Limits,
    /// The size of the numbers is drawn in every round.
    rng: Xoshiro256PlusPlus,
    /// What is said in rounds 1, 2, ...
    said: Vec<Vec<u8>>,
    /// The receipts of what it would have said.
    truth: Vec<Receipt>,
}

impl Numbers {
    fn new(study: &Study, seed: u64) -> Self {
        let author = Author::new(study, CLIENTS, identity(1).into());
        let (chain, limits) = (Chain::new(study.digest()), study.limits(CLIENTS));
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { chain, author, limits, rng, said: Vec::new(), truth: Vec::new() }
    }

    /// What is sent to others in place of a frame of the peer; nothing in place of what would show that it differs.
    fn outgoing(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        match decode(frame, &self.limits) {
            Ok(Message::Round(release)) => {
                if release.round as usize == self.said.len() + 1 {
                    let head = self.truth.last().map_or(self.chain.start(&identity(1).id()), |last| last.head);
                    let head = next_head(&head, release.round, release.payload.bytes());
                    self.truth.push(Receipt { round: release.round, head, tag: release.tag });
                    let size = self.limits.largest * 10f64.powf(-8.0 * self.rng.random::<f64>());
                    let values: Vec<f64> = (0..3).map(|_| size * self.rng.random_range(-1.0..=1.0)).collect();
                    self.said.push(self.author.release(values));
                }
                self.said.get(release.round as usize - 1).cloned()
            }
            Ok(Message::Head { author: 1, .. }) => None,
            Ok(Message::Final(last)) if last.author == 1 => None,
            _ => Some(frame.to_vec()),
        }
    }

    /// What the peer hears in place of a frame to it.
    fn incoming(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let own = |receipt: Receipt| {
            let at = (receipt.round as usize).checked_sub(1);
            at.and_then(|at| self.truth.get(at)).copied().unwrap_or_default()
        };
        match decode(frame, &self.limits) {
            Ok(Message::Hello(hello)) => {
                let (receipt, shown) = (own(hello.receipt), own(hello.shown));
                Some(Hello { receipt, shown, head: SignedHead::NONE, ..hello }.encode().bytes().to_vec())
            }
            Ok(Message::Head { author: 1, .. }) => None,
            Ok(Message::Final(last)) if last.author == 1 => None,
            _ => Some(frame.to_vec()),
        }
    }
}

/// What was sent, by node and round: the payloads that differ.
type Sent = Rc<RefCell<BTreeMap<(usize, u32), BTreeSet<Vec<u8>>>>>;

struct Outcome {
    faults: BTreeSet<Fault>,
    stops: Vec<(usize, Stop)>,
    finished: usize,
    crashes: u32,
}

fn run(folder: &Path, seed: u64) -> Outcome {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let count = rng.random_range(1..7);
    let faults: BTreeSet<Fault> = (0..count).map(|_| ALL[rng.random_range(0..ALL.len())]).collect();
    let has = |fault: Fault| faults.contains(&fault);
    let algorithm = if rng.random() { ZCDP } else { FREE };
    let mut graph = [RING, RANDOM, COMPLETE, "kind = \"star\""][rng.random_range(0..4)];
    if has(Lies) {
        graph = COMPLETE;
    }
    let mut text = study(folder, CLIENTS, LIMITS.rounds, algorithm, graph, "squared");
    if has(Masks) || has(Lies) {
        text = text.replace("[data]\n", "[data]\nrecords = 22\n");
    }
    // One liar could move the masks of all others: a study has the one or the other.
    if has(Lies) {
        text += "[robust]\nliars = 1\n";
    } else if has(Masks) {
        text = text.replace("[privacy]\n", "[privacy]\ncolluders = 1\n");
    }
    let mut cohort: Cohort = cohort(&text);
    cohort.noise = fresh_noise;
    if has(Drop) {
        cohort.on_loss = OnLoss::Drop(Duration::from_secs(20));
    }
    let budgets: Vec<_> = (0..CLIENTS)
        .map(|k| {
            let setup = cohort.setup(k, 0);
            setup.roster.budget(&setup.study, k, setup.data.records()).unwrap()
        })
        .collect();
    if has(SmallAllowance) {
        let promised = budgets[0].promised();
        let half = |rho: undertone_core::privacy::Rho| undertone_core::privacy::Rho::new(rho.get() / 2.0).unwrap();
        cohort.allowance = Some(Spent { rho: half(promised.rho), alone: half(promised.alone) });
    }
    let chance = |fault: Fault, value: f64| if has(fault) { value } else { 0.0 };
    let config = Faults {
        latency: (milliseconds(1), if has(Latency) { milliseconds(200) } else { milliseconds(1) }),
        loss: chance(Loss, 0.02),
        duplication: chance(Duplication, 0.1),
        reordering: chance(Reordering, 0.1),
        cut: chance(Cuts, 0.01),
        crash: chance(Crashes, 0.01),
        away: Duration::from_secs(10),
        silence: Duration::from_secs(5),
        partition: chance(Partitions, 0.002),
        corrupt: has(CorruptFrames).then_some((4, 0.05)),
        slow: if has(SlowNode) { BTreeMap::from([(3, milliseconds(500))]) } else { BTreeMap::new() },
    };
    let study = cohort.study.clone();
    let mut world = World::new(cohort, config, seed);
    world.objections = true;
    let sent = Sent::default();
    let spied = sent.clone();
    world.spy = Some(Box::new(move |node, frame| {
        if let Ok(Message::Round(release)) = decode(frame, &LIMITS) {
            let mut sent = spied.borrow_mut();
            sent.entry((node, release.round)).or_default().insert(release.payload.bytes().to_vec());
        }
    }));
    // Node 0 may be rolled back, 1 lies, 2 is killed, 4 sends garbage.
    let mut liars = BTreeSet::new();
    if has(CorruptFrames) {
        liars.insert(4);
    }
    if has(TwoStories) || has(Lies) {
        liars.insert(1);
        let mut lie = has(Lies).then(|| Numbers::new(&study, rng.random()));
        let mut story = has(TwoStories).then(|| OtherStory::new(&study, CLIENTS, identity(1).into(), 0.5));
        world.tamper = Some(Box::new(move |from, to, frame| {
            let told = match (&mut lie, from, to) {
                (Some(lie), 1, _) => lie.outgoing(frame),
                (Some(lie), _, 1) => lie.incoming(frame),
                _ => Some(frame.to_vec()),
            };
            match (&mut story, from, to) {
                (Some(story), 1, 0) => told.and_then(|frame| story.tell(1, &frame)).into_iter().collect(),
                _ => told.into_iter().collect(),
            }
        }));
    }
    if has(Anchor) {
        (0..CLIENTS).for_each(|k| world.disk(k).anchor());
    }
    let mut stops = Vec::new();
    let mut go = |world: &mut World, limit: Duration, until: u32| {
        let limit = world.now() + limit;
        loop {
            let done = |w: &World| (0..CLIENTS).any(|k| w.node(k).is_some_and(|n| n.round() >= until));
            let result = if until > 0 { world.run_until(limit, done) } else { world.run(limit) };
            let Err((k, stop)) = result else { break };
            world.kill(k);
            stops.push((k, stop));
        }
    };
    go(&mut world, 5 * MINUTE, rng.random_range(3..12));
    let old: Backup = world.disk(0).backup();
    if has(OldFolder) {
        // Started once more after the backup.
        world.kill(0);
        world.start(0, milliseconds(50));
    }
    go(&mut world, 5 * MINUTE, rng.random_range(13..30));
    let mut rolled_back = false;
    let mut roll_back = |world: &mut World, backup: Backup| {
        world.kill(0);
        world.disk(0).restore(backup);
        world.start(0, milliseconds(500));
        rolled_back = true;
    };
    if has(OldFolder) || has(FolderOfTheSameSession) {
        roll_back(&mut world, old);
    } else if has(EmptiedFolder) {
        roll_back(&mut world, Backup::default());
    } else if has(CutLedger) {
        let mut cut = world.disk(0).backup();
        let length = rng.random_range(0..cut.ledger.len().max(1));
        cut.ledger.truncate(length);
        roll_back(&mut world, cut);
    } else if has(LostMarks) {
        let mut lost = world.disk(0).backup();
        lost.marks = Default::default();
        roll_back(&mut world, lost);
    }
    if has(LyingDisk) {
        world.disk(3).lie();
        world.kill(3);
        world.start(3, milliseconds(200));
    }
    if has(KilledForAWhile) {
        world.kill(2);
        world.start(2, Duration::from_secs(30));
    }
    if has(KilledForGood) {
        world.kill(2);
    }
    if has(Hang) {
        world.hang(2);
    }
    if has(EarlyDone) || has(ForgedHeads) {
        liars.insert(4);
        let hello = Hello {
            study: *study.digest(),
            round: 40,
            session: undertone_core::message::Session { number: 1 << 40, ..Default::default() },
            receipt: Default::default(),
            shown: Default::default(),
            head: SignedHead::NONE,
            yours: Default::default(),
            dropped: false,
        };
        let hello = hello.encode().bytes().to_vec();
        world.attack(4, Box::new(Rude { hello, forged: has(ForgedHeads) }));
    }
    if has(ClockJump) {
        world.cohort_mut().clock = if rng.random() { -1_000_000 } else { 4_000_000_000 };
        world.kill(3);
        world.start(3, milliseconds(100));
    }
    // The peer behind the lies never holds the set that the others sign, and they stay online for it for ten minutes more.
    go(&mut world, if has(Lies) { 21 * MINUTE } else { 10 * MINUTE }, 0);
    let context = || format!("seed {seed}, {faults:?}, {algorithm:?}, {graph}: {stops:?} {}", world.summary());
    for k in (0..CLIENTS).filter(|k| !liars.contains(k)) {
        let sent = sent.borrow();
        let of_node = || sent.iter().filter(|((node, _), _)| *node == k);
        let twice = of_node().find(|(_, payloads)| payloads.len() > 1);
        assert!(twice.is_none(), "round {:?} of {k} was noised twice: {}", twice.map(|t| t.0.1), context());
        // What a restored or a lying disk has lost is not in it.
        if (k == 0 && rolled_back) || (k == 3 && has(LyingDisk)) {
            continue;
        }
        let run = Contents::read(&mut world.disk(k).clone()).unwrap().map(|mut contents| contents.runs.remove(0));
        let Some(run) = run else { continue };
        // A round without the records repeats the release before it in zCDP-NFL. In free rounds it does not, and the cheapest that they can have cost are counted.
        let payload = |n: u32| sent.get(&(k, n)).and_then(|payloads| payloads.first());
        let is_fresh = |n: &u32| algorithm == FREE || *n == 1 || payload(*n) != payload(n - 1);
        let data_rounds = of_node().map(|((_, n), _)| *n).filter(|n| budgets[k].phi(*n).get() > 0.0);
        let mut costs: Vec<Spent> = data_rounds.filter(is_fresh).map(|n| budgets[k].cost(n)).collect();
        if algorithm == FREE {
            costs.sort_by(|a, b| a.rho.get().total_cmp(&b.rho.get()));
            costs.truncate(run.fresh as usize);
        }
        let spent = costs.iter().fold(Spent::ZERO, |sum, cost| sum.plus(*cost));
        let recorded = run.spent;
        let is_covered = |spent: f64, recorded: f64| recorded >= spent * (1.0 - 1e-12);
        assert!(is_covered(spent.rho.get(), recorded.rho.get()), "{k} spent more than is recorded: {}", context());
        assert!(is_covered(spent.alone.get(), recorded.alone.get()), "{k} spent more than is recorded: {}", context());
    }
    let ended_well = |k: &usize| {
        let node = world.finished(*k)?;
        (node.accused().is_empty() && node.is_agreed()).then(|| (*k, node.finals()))
    };
    let models: Vec<_> = (0..CLIENTS).filter(|k| !liars.contains(k)).filter_map(|k| ended_well(&k)).collect();
    for (k, model) in &models {
        assert!(*model == models[0].1, "{k} and {} end with different models: {}", models[0].0, context());
    }
    let finished = (0..CLIENTS).filter(|k| world.finished(*k).is_some()).count();
    Outcome { finished, crashes: world.crashes, faults, stops }
}

#[test]
fn three_things_hold_in_every_world() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = BTreeMap::<Fault, u32>::new();
    let (mut finished, mut behind, mut copied, mut crashes, mut lied) = (0, 0, 0, 0, 0);
    let all = seeds(500);
    let count = all.end - all.start;
    for seed in all {
        let outcome = run(folder.path(), seed);
        outcome.faults.iter().for_each(|fault| *seen.entry(*fault).or_default() += 1);
        finished += outcome.finished;
        crashes += outcome.crashes;
        // In spite of the lies, and with them.
        lied += u32::from(outcome.faults.contains(&Lies) && outcome.finished > 1);
        behind +=
            outcome.stops.iter().filter(|(_, stop)| matches!(stop, Stop::Behind { .. } | Stop::Ledger(_))).count();
        copied += outcome.stops.iter().filter(|(_, stop)| matches!(stop, Stop::Copied { .. })).count();
    }
    println!(
        "{count} worlds: {finished} peers finished, {crashes} were killed in a write, {behind} old states and {copied} copies were stopped, {lied} ended although somebody lied; {seen:?}"
    );
    if count >= 500 {
        assert_eq!(seen.len(), ALL.len(), "{seen:?}");
        assert!(finished > 500 && behind > 50 && crashes > 100 && lied > 10, "the worlds cover too little");
    }
}
