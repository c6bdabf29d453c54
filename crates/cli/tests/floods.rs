//! What somebody with a program of its own does to real peers: one that is flooded stays small and goes on, and a party that tells two stories is found out.

mod attacker;
mod consortium;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use attacker::{Target, half_open, member, say, strangers};
use consortium::{Consortium, Ended, errors, results, undertone, until};
use iroh::SecretKey;
use tokio::runtime::Runtime;
use undertone_core::identity::Identity;
use undertone_core::message::{Chain, Hello, Receipt, Session, SignedHead};
use undertone_core::study::Study;

/// A number from the environment: UNDERTONE_FLOOD=20000 floods this often, and the rates are compared.
fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Resident memory of a process in MB, now and at most so far.
fn memory(child: &Child) -> (f64, f64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let of = |key: &str| -> f64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Rounds per second of a peer during something.
fn rate<T>(consortium: &Consortium, during: impl FnOnce() -> T) -> (f64, T) {
    let (from, started) = (consortium.round(0).unwrap(), Instant::now());
    let result = during();
    (f64::from(consortium.round(0).unwrap() - from) / started.elapsed().as_secs_f64(), result)
}

/// The secret key of a peer.
fn secret(consortium: &Consortium, k: usize) -> [u8; 32] {
    let text = std::fs::read_to_string(consortium.path(&format!("peer{k}.key"))).unwrap();
    let mut bytes = [0; 32];
    hex::decode_to_slice(text.lines().map(str::trim).find(|line| line.len() == 64).expect("a key"), &mut bytes)
        .unwrap();
    bytes
}

/// A peer as others find it.
fn target(consortium: &Consortium, k: usize) -> Target {
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let address = study.split("address = \"").nth(k + 1).unwrap().split('"').next().unwrap().parse().unwrap();
    Target { id: SecretKey::from_bytes(&secret(consortium, k)).public(), address, from: [127, 0, 0, 99].into() }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Four peers in a ring, the first of which is somebody who signs two stories of its first release and shows one to either neighbour. They meet at the peer that is no neighbour, and
/// all three end with exit code 3 and without a model, or go on and will say so, as they were told. Anybody can check what they wrote.
#[test]
fn two_stories_end_the_study_for_all_with_proof() {
    for mark in [false, true] {
        let consortium = Consortium::new(4, 300, "kind = \"ring\"", "secure");
        let arguments: &[&str] = if mark { &["--on-conflict", "mark"] } else { &[] };
        let mut children: Vec<Child> = (1..4).map(|k| consortium.spawn(k, arguments)).collect();
        let says =
            |k: usize, words: &str| std::fs::read_to_string(consortium.log(k)).is_ok_and(|log| log.contains(words));
        until("the others are connected", || [1, 3].iter().all(|&k| says(k, "connected neighbour=\"peer2\"")));
        let text = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
        let study = Study::parse(&text, "study.toml").unwrap();
        let (liar, chain) = (Identity::from_secret(&secret(&consortium, 0)), Chain::new(study.digest()));
        let hello = Hello {
            study: *study.digest(),
            round: 0,
            session: chain.session(&liar, 1, 7),
            receipt: Receipt::default(),
            shown: Receipt::default(),
            head: SignedHead::NONE,
            yours: Session::default(),
            dropped: false,
        };
        for (neighbour, story) in [(1, [8; 32]), (3, [9; 32])] {
            let head = chain.sign(&liar, &Receipt { round: 1, head: story, tag: [0; 16] });
            let frames = [hello.encode().bytes().to_vec(), head.frame(0).bytes().to_vec()];
            runtime().block_on(say(target(&consortium, neighbour), secret(&consortium, 0), &frames));
        }
        until("all know", || (1..4).all(|k| says(k, "told different peers")));
        for (k, child) in (1..4).zip(&mut children) {
            let folder = results(&consortium.state(k));
            let proof = std::fs::read_dir(&folder)
                .unwrap()
                .filter_map(|entry| Some(entry.ok()?.path()))
                .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("conflict-0-")));
            let proof = proof.unwrap_or_else(|| panic!("peer{k} has no proof\n{}", consortium.logs()));
            let checked =
                undertone().arg("evidence").arg(&proof).arg("--study").arg(consortium.path("study.toml")).ended();
            assert!(checked.status.success(), "{}", errors(&checked));
            if mark {
                assert_eq!(child.try_wait().unwrap(), None, "it waits for the liar");
                child.kill().unwrap();
                child.wait().unwrap();
            } else {
                assert_eq!(child.wait().unwrap().code(), Some(3), "{}", consortium.logs());
                assert!(!folder.join("model.json").exists());
            }
        }
    }
}

/// Two peers compute rounds; the third was dropped, and its key is in the wrong hands.
#[test]
#[cfg(target_os = "linux")]
fn a_flooded_peer_stays_small_and_goes_on() {
    // Enough for the time that it takes, and no more: a schedule needs memory too.
    let rounds = if number("UNDERTONE_FLOOD").is_some() { 1_300_000 } else { 300_000 };
    let consortium = Consortium::new(3, rounds, "kind = \"complete\"", "secure");
    let mut children: Vec<Child> = (0..3)
        .map(|k| {
            let spawned = consortium.spawn(k, &["--on-loss", "drop", "--patience", "2s"]);
            // The attacker has the other core.
            if number("UNDERTONE_FLOOD").is_some() {
                let pinned = Command::new("taskset")
                    .args(["-a", "-p", "-c", "0", &spawned.id().to_string()])
                    .stdout(Stdio::null())
                    .status();
                assert!(pinned.unwrap().success());
            }
            spawned
        })
        .collect();
    until("round 5", || (0..3).all(|k| consortium.round(k).is_some_and(|r| r >= 5)));
    children[2].kill().unwrap();
    children[2].wait().unwrap();
    until("the third is dropped", || consortium.page(0).is_some_and(|page| page.contains("undertone_neighbours 1\n")));
    let (target, runtime) = (target(&consortium, 0), runtime());
    let count = number("UNDERTONE_FLOOD").unwrap_or(300);
    let seconds = if number("UNDERTONE_FLOOD").is_some() { 10 } else { 1 };
    let (before, ()) = rate(&consortium, || std::thread::sleep(Duration::from_secs(seconds)));
    println!("before: {before:.0} rounds/s, {:.0} MB", memory(&children[0]).0);
    type Flood<'a> = Box<dyn Fn() -> usize + 'a>;
    let floods: [(&str, Flood); 3] = [
        ("half-open dials", Box::new(|| runtime.block_on(half_open(target, count)))),
        ("strange keys", Box::new(|| runtime.block_on(strangers(target, count)))),
        ("a key of the study", Box::new(|| runtime.block_on(member(target, secret(&consortium, 2), count)))),
    ];
    for (name, flood) in floods {
        let started = Instant::now();
        let (during, arrived) = rate(&consortium, flood);
        let (now, most) = memory(&children[0]);
        println!(
            "{count} {name}, {arrived} arrived, in {:.0?}: {during:.0} rounds/s, {now:.0} MB, at most {most:.0} MB",
            started.elapsed()
        );
        assert!(arrived > 0, "the attack does not work");
        assert!(most < 100.0, "{name}: {most} MB");
        let round = consortium.round(0).unwrap();
        until("a round after it", || consortium.round(0).is_some_and(|now| now > round));
        if number("UNDERTONE_FLOOD").is_some() {
            assert!(during >= 0.5 * before, "{name}: {during:.0} rounds/s in place of {before:.0}");
        }
    }
    children[..2].iter_mut().for_each(|child| {
        child.kill().unwrap();
        child.wait().unwrap();
    });
}
