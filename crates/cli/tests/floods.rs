//! A peer that is flooded stays small and goes on.

mod attacker;
mod consortium;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use attacker::{Target, half_open, member, strangers};
use consortium::{Consortium, until};
use iroh::{PublicKey, SecretKey};

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
    let key = |k: usize| std::fs::read_to_string(consortium.path(&format!("peer{k}.key"))).unwrap();
    let secret = |k: usize| -> [u8; 32] {
        let mut bytes = [0; 32];
        let text = key(k).lines().find(|line| line.trim().len() == 64).expect("a key").trim().to_string();
        hex::decode_to_slice(text, &mut bytes).unwrap();
        bytes
    };
    let id: PublicKey = SecretKey::from_bytes(&secret(0)).public();
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let address = study.split("address = \"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    let target = Target { id, address, from: [127, 0, 0, 99].into() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let count = number("UNDERTONE_FLOOD").unwrap_or(300);
    let seconds = if number("UNDERTONE_FLOOD").is_some() { 10 } else { 1 };
    let (before, ()) = rate(&consortium, || std::thread::sleep(Duration::from_secs(seconds)));
    println!("before: {before:.0} rounds/s, {:.0} MB", memory(&children[0]).0);
    type Flood<'a> = Box<dyn Fn() -> usize + 'a>;
    let floods: [(&str, Flood); 3] = [
        ("half-open dials", Box::new(|| runtime.block_on(half_open(target, count)))),
        ("strange keys", Box::new(|| runtime.block_on(strangers(target, count)))),
        ("a key of the study", Box::new(|| runtime.block_on(member(target, secret(2), count)))),
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
