//! Peers as separate processes, over loopback, with real encryption and real disks.

mod consortium;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use consortium::{Consortium, Ended, distance, errors, numbers, results, simulate, undertone, until, wait};
use serde_json::Value;

#[test]
fn ten_real_processes_agree_with_the_central_solution_within_the_noise() {
    let consortium = Consortium::new(10, 300, "kind = \"random\"\nmean_degree = 3", "secure");
    wait(&consortium, &mut consortium.spawn_all(&[]));
    let models: Vec<Value> = (0..10).map(|k| consortium.result(k, "model.json")).collect();
    assert!(models.iter().all(|m| m["made"]["scaled"] == models[0]["made"]["scaled"]), "all end with one model");
    let own = numbers(&models[0]["made"]["scaled"]);
    // Without noise and without clipping the same study ends at the central solution.
    let exact = ["--set", "privacy=off", "--set", "rounds=5000", "--set", "algorithm.eta=0.3"];
    let central = simulate(&consortium, &exact, "central");
    let central = numbers(&central["made"]["scaled"]);
    // Secure noise is another draw in every run. If the peers' error has the simulations' distribution, it is larger than 19 of
    // their draws with probability 1/20, and, with an error that is nearly a norm of 3 normals, twice as large as the
    // largest of them with less than 1 in 100,000.
    let draws = (0..19).map(|i| {
        let model = simulate(&consortium, &[], &format!("draw{i}"));
        distance(&numbers(&model["made"]["scaled"]), &central)
    });
    let largest = draws.fold(0.0, f64::max);
    let error = distance(&own, &central);
    assert!(error <= 2.0 * largest, "peers {error}, simulations at most {largest}");
    assert!(distance(&[0.0; 3], &central) > 2.0 * largest, "the zero model must not pass");
    for k in 0..10 {
        let statement = consortium.result(k, "statement.json");
        assert_eq!(statement["rounds"]["computed"], 300);
        let epsilon = statement["epsilon"].as_f64().unwrap();
        assert!(epsilon <= 3.0 && epsilon > 2.999, "{epsilon}");
    }
    let show = undertone().args(["ledger", "show"]).arg(consortium.state(3)).ended();
    let show = String::from_utf8(show.stdout).unwrap();
    assert!(show.contains("300 of 300") && show.contains("total: epsilon 3.000000 at delta 1e-5"), "{show}");
    let predicted = undertone()
        .args(["predict", "--model"])
        .arg(results(&consortium.state(0)).join("model.json"))
        .arg("--data")
        .arg(consortium.path("data/peer0.csv"))
        .ended();
    let predictions = String::from_utf8_lossy(&predicted.stdout).lines().count();
    assert_eq!(predictions, 401, "{}", errors(&predicted));
}

/// What all peers of a study with one round released, peer by peer, from the frames that a peer keeps.
fn releases(consortium: &Consortium, k: usize, features: usize) -> Vec<Vec<f64>> {
    let bytes = std::fs::read(results(&consortium.state(k)).join("finals")).unwrap();
    let frame = 1 + 4 + 32 + 8 * features + 64;
    let payload = |frame: &[u8]| -> Vec<f64> {
        frame[4 + 37..][..8 * features].chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
    };
    // Last releases first, then the votes on them.
    let releases = &bytes[..consortium.names.len() * (4 + frame)];
    assert!(releases.chunks(4 + frame).all(|part| part[..4] == (frame as u32).to_le_bytes()));
    releases.chunks(4 + frame).map(payload).collect()
}

/// Two peers whose records contain no information, so that what they release in the only round is noise.
///
/// sigma = 2 eta c1/(M sqrt(2 phi)) follows from the budget. The sum of squares of all 2 x 2000 values over sigma^2 has mean
/// 4000 and standard deviation sqrt(8000) = 89.4; 3525 to 4475 is 5.3 of them to either side, a false alarm in 10^7 runs. No
/// noise, noise of 0.93 or 1.07 times the scale, and the same noise in every coordinate, at both peers, or again in a second
/// run with the same keys and data, are detected.
#[test]
fn real_peers_release_fresh_noise_of_the_right_size() {
    const FEATURES: usize = 2000;
    let consortium = Consortium::of_noise(2, FEATURES);
    let mut runs = Vec::new();
    for _ in 0..2 {
        wait(&consortium, &mut consortium.spawn_all(&[]));
        let released = releases(&consortium, 0, FEATURES);
        assert_eq!(released, releases(&consortium, 1, FEATURES), "both hold the same releases");
        runs.push(released);
        // The second run knows nothing of the first.
        (0..2).for_each(|k| std::fs::remove_dir_all(consortium.state(k)).unwrap());
    }
    let account = undertone().args(["account", "--epsilon", "1", "--delta", "1e-5", "--json"]).ended();
    let phi = serde_json::from_slice::<Value>(&account.stdout).unwrap()["phi_1"]["exact"].as_f64().unwrap();
    let sigma = 2.0 * 0.25 / 10.0 / (2.0 * phi).sqrt();
    for released in &runs {
        let squares: f64 = released.iter().flatten().map(|v| (v / sigma).powi(2)).sum();
        assert!((3525.0..4475.0).contains(&squares), "{squares} for 4000 values");
    }
    let all: Vec<u64> = runs.iter().flatten().flatten().map(|v| v.to_bits()).collect();
    let different: std::collections::HashSet<u64> = all.iter().copied().collect();
    assert_eq!(different.len(), all.len(), "a value of a coordinate, peer or run is there twice");
}

#[test]
fn peers_refuse_an_algorithm_whose_failure_depends_on_records() {
    for (name, rehearsal) in [("p-admm", &[][..]), ("p-admm", &["--rehearsal"]), ("p-admm-unclipped", &["--rehearsal"])]
    {
        let consortium = Consortium::new(2, 10, "kind = \"ring\"", "secure");
        let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
        let study =
            study.replace("name = \"zcdp-nfl\"\nrho = 0.3\neta = 2.0", &format!("name = \"{name}\"\nrho = 0.3"));
        std::fs::write(consortium.path("study.toml"), study).unwrap();
        let output = consortium.command(0).args(rehearsal).ended();
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains("depends on the records without noise"), "{}", errors(&output));
    }
}

#[test]
fn real_peers_and_simulator_agree_to_the_last_bit() {
    let consortium = Consortium::new(5, 120, "kind = \"ring\"", "fast");
    let expected = simulate(&consortium, &[], "simulated");
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal", "--no-sync"]));
    for k in 0..5 {
        let model = consortium.result(k, "model.json");
        assert_eq!(model["made"]["scaled"], expected["made"]["scaled"]);
        assert_eq!(model["coefficients"], expected["coefficients"]);
        assert_eq!(consortium.result(k, "statement.json")["protected"], false);
    }
    let show = undertone().args(["ledger", "show"]).arg(consortium.state(0)).ended();
    assert!(String::from_utf8(show.stdout).unwrap().contains("no bound"));
}

/// Kills peers at random moments and starts them again. 20 times here, UNDERTONE_KILLS times in tests/soak.
#[test]
fn killed_peers_come_back_and_nothing_is_lost() {
    let kills: u32 = std::env::var("UNDERTONE_KILLS").map_or(20, |n| n.parse().expect("a number"));
    // With spare rounds: peers must not finish before the last kill.
    let consortium = Consortium::new(6, 100 * kills + 500, "kind = \"random\"\nmean_degree = 3", "secure");
    let mut children = consortium.spawn_all(&[]);
    // Printed if the test fails; the same seed gives the same victims.
    let seed: u64 = std::env::var("UNDERTONE_SEED").map_or(std::process::id().into(), |s| s.parse().expect("a number"));
    println!("UNDERTONE_SEED={seed}");
    let mut state = 88172645463325252u64 ^ seed;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for kill in 0..kills {
        let victim = random(6) as usize;
        let at = 100 * kill + random(90) as u32;
        until("the next round", || consortium.round((victim + 1) % 6).is_some_and(|round| round >= at));
        std::thread::sleep(Duration::from_micros(random(5000)));
        children[victim].kill().unwrap();
        children[victim].wait().unwrap();
        children[victim] = consortium.spawn(victim, &[]);
    }
    wait(&consortium, &mut children);
    let models: Vec<Value> = (0..6).map(|k| consortium.result(k, "model.json")).collect();
    assert!(models.iter().all(|m| m["made"]["scaled"] == models[0]["made"]["scaled"]));
    for k in 0..6 {
        let statement = consortium.result(k, "statement.json");
        let count = |what: &str| statement["rounds"][what].as_u64().unwrap();
        assert_eq!(count("done"), u64::from(consortium.rounds));
        assert_eq!(count("computed") + count("mixed") + count("withheld"), u64::from(consortium.rounds));
        // Every round is charged, whether its noise was used or lost.
        let epsilon = statement["epsilon"].as_f64().unwrap();
        assert!(epsilon <= 3.0 && epsilon > 2.999, "{epsilon}");
        // A neighbour that received different bytes than before would have logged it.
        let log = std::fs::read_to_string(consortium.log(k)).unwrap();
        for sign in ["told different peers", "wrong signature", "second, different", "receipt"] {
            assert!(!log.contains(sign), "{sign}\n{log}");
        }
    }
}

#[test]
fn unknown_keys_and_other_studies_are_refused_with_a_reason() {
    let consortium = Consortium::new(3, 10, "kind = \"ring\"", "secure");
    // A key that is not in the study does not even start.
    let output = undertone().arg("keygen").arg(consortium.path("stranger.key")).ended();
    assert!(output.status.success());
    let mut command = undertone();
    command.current_dir(consortium.folder.path()).args(["peer", "--study", "study.toml", "--key", "stranger.key"]);
    let output = command.args(["--data", "data/peer0.csv", "--state", "s"]).ended();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("is not in the study"), "{}", errors(&output));
    // A peer whose copy of the study differs in its budget and in a key.
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let stranger =
        String::from_utf8(undertone().args(["keygen", "--show"]).arg(consortium.path("stranger.key")).ended().stdout)
            .unwrap();
    let own = study.lines().find(|l| l.starts_with("id = ")).unwrap();
    std::fs::write(consortium.path("study.toml"), study.replace("epsilon = 3.0", "epsilon = 4.0")).unwrap();
    let mut odd = consortium.spawn(0, &[]);
    until("a start", || consortium.page(0).is_some());
    std::fs::write(consortium.path("study.toml"), &study).unwrap();
    let mut honest = consortium.spawn(1, &[]);
    let log = |k: usize| std::fs::read_to_string(consortium.log(k)).unwrap();
    until("a refusal", || log(1).contains("the two studies differ in: privacy"));
    until("its mirror", || log(0).contains("the two studies differ in: privacy"));
    odd.kill().unwrap();
    odd.wait().unwrap();
    // A peer that added its own key to its copy of the study is refused by the others.
    std::fs::write(consortium.path("study.toml"), study.replace(own, &format!("id = \"{}\"", stranger.trim())))
        .unwrap();
    std::fs::rename(consortium.path("stranger.key"), consortium.path("peer0.key")).unwrap();
    std::fs::remove_dir_all(consortium.state(0)).unwrap();
    let mut odd = consortium.spawn(0, &[]);
    until("the reason", || log(0).contains("this key is not in the study that this peer runs"));
    for child in [&mut odd, &mut honest] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_peer_that_is_gone_for_good_is_dropped() {
    let consortium = Consortium::new(4, 3000, "kind = \"complete\"", "secure");
    let mut children = consortium.spawn_all(&["--on-loss", "drop", "--patience", "3s"]);
    until("round 20", || consortium.round(3).is_some_and(|r| r >= 20));
    children[3].kill().unwrap();
    children[3].wait().unwrap();
    wait(&consortium, &mut children[..3]);
    for k in 0..3 {
        let statement = consortium.result(k, "statement.json");
        assert_eq!(statement["dropped_neighbours"][0], "peer3");
        assert_eq!(statement["clients_in_model"], 3);
        assert_eq!(consortium.result(k, "model.json")["made"]["clients"].as_array().unwrap().len(), 3);
    }
}

/// In a study of one round everything happens at once: crossing dials, the last release, and all peers exiting.
#[test]
fn short_studies_end_at_once_for_all_peers() {
    let parties: Vec<Consortium> = (0..8).map(|_| Consortium::new(2, 1, "kind = \"ring\"", "secure")).collect();
    let mut running: Vec<Vec<Child>> = parties.iter().map(|consortium| consortium.spawn_all(&[])).collect();
    let started = Instant::now();
    for (consortium, children) in parties.iter().zip(&mut running) {
        wait(consortium, children);
    }
    // A peer that was not told of the end would stay for ten minutes.
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn an_interrupted_peer_reports_how_to_continue() {
    let consortium = Consortium::new(2, 100_000, "kind = \"ring\"", "secure");
    let mut children = consortium.spawn_all(&[]);
    until("round 20", || consortium.round(0).is_some_and(|r| r >= 20));
    let page = consortium.page(0).unwrap();
    for name in [
        "round",
        "neighbours_connected",
        "sent_bytes_total",
        "epsilon_spent",
        "epsilon_remaining",
        "consensus_distance",
    ] {
        assert!(page.contains(&format!("\nundertone_{name} ")), "{page}");
    }
    Command::new("kill").arg(children[0].id().to_string()).status().unwrap();
    let status = children[0].wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let log = std::fs::read_to_string(consortium.log(0)).unwrap();
    assert!(log.contains("interrupted after round") && log.contains("the same command continues from here"), "{log}");
    children[1].kill().unwrap();
    children[1].wait().unwrap();
}

/// Half of a network that was split is not the study: it ends without a model, and says so by its exit code.
#[test]
fn less_than_a_quorum_has_no_model() {
    for quorum in [None, Some(2)] {
        let consortium = Consortium::new(4, 2000, "kind = \"complete\"", "secure");
        if let Some(quorum) = quorum {
            let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
            std::fs::write(consortium.path("study.toml"), format!("{study}[peers]\nquorum = {quorum}\n")).unwrap();
        }
        let mut children = consortium.spawn_all(&["--on-loss", "drop", "--patience", "1s"]);
        until("round 5", || (0..4).all(|k| consortium.round(k).is_some_and(|r| r >= 5)));
        for child in &mut children[2..] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for (k, child) in children[..2].iter_mut().enumerate() {
            let code = child.wait().unwrap().code();
            assert_eq!(code, Some(if quorum.is_none() { 3 } else { 0 }), "{}", consortium.logs());
            assert_eq!(results(&consortium.state(k)).join("model.json").exists(), quorum.is_some());
            assert_eq!(consortium.result(k, "statement.json")["clients_in_model"], 2);
        }
        let says = "2 of 4 parties are here, at most 0 have signed the same set of them, and a model of the study needs 3 of both";
        assert_eq!(consortium.logs().contains(says), quorum.is_none());
    }
}

/// Ten daemons, for as many seconds as UNDERTONE_DAEMONS says, with random faults: killed, stopped for a while, killed several at once. One study follows another; each ends
/// with one model, and nothing was noised twice.
#[test]
#[ignore = "takes as long as it is told to; tests/soak daemons runs it"]
fn ten_daemons_survive_for_long() {
    let seconds: u64 = std::env::var("UNDERTONE_DAEMONS").map_or(60, |n| n.parse().expect("a number"));
    let (started, mut faults, mut studies) = (Instant::now(), 0, 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        faults += ten_daemons(u64::from(std::process::id()) << 16 | studies, started + Duration::from_secs(seconds));
        studies += 1;
        println!("{studies} studies with {faults} faults in {} s", started.elapsed().as_secs());
    }
}

/// One study of ten daemons, with faults until it comes near its end or the time is over. Returns how many there were.
fn ten_daemons(seed: u64, until: Instant) -> u32 {
    const ROUNDS: u32 = 20_000;
    println!("seed {seed}");
    let consortium = Consortium::new(10, ROUNDS, "kind = \"random\"\nmean_degree = 4", "secure");
    let mut children = consortium.spawn_all(&[]);
    let mut state = 88172645463325252u64 ^ seed;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let signal = |child: &Child, name: &str| {
        assert!(Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap().success());
    };
    let mut faults = 0;
    while Instant::now() < until && consortium.round(0).is_none_or(|round| round < ROUNDS - 1000) {
        let victim = random(10) as usize;
        match random(4) {
            0 => {
                signal(&children[victim], "-STOP");
                std::thread::sleep(Duration::from_millis(random(4000)));
                signal(&children[victim], "-CONT");
            }
            1 => {
                let victims: Vec<usize> = (0..10usize).filter(|k| (k + victim).is_multiple_of(3)).collect();
                for k in &victims {
                    children[*k].kill().unwrap();
                    children[*k].wait().unwrap();
                }
                std::thread::sleep(Duration::from_millis(random(3000)));
                victims.iter().for_each(|k| children[*k] = consortium.spawn(*k, &[]));
            }
            _ => {
                children[victim].kill().unwrap();
                children[victim].wait().unwrap();
                std::thread::sleep(Duration::from_millis(random(500)));
                children[victim] = consortium.spawn(victim, &[]);
            }
        }
        faults += 1;
        std::thread::sleep(Duration::from_millis(random(2000)));
        for (k, child) in children.iter_mut().enumerate() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none_or(|status| status.success()), "peer{k} {ended:?}\n{}", consortium.logs());
        }
    }
    let before = Instant::now();
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        assert!(before.elapsed() < Duration::from_secs(1200), "hangs\n{}", consortium.logs());
        std::thread::sleep(Duration::from_millis(200));
    }
    let models: Vec<Value> = (0..10).map(|k| consortium.result(k, "model.json")).collect();
    assert!(models.iter().all(|m| m["made"]["scaled"] == models[0]["made"]["scaled"]));
    for (k, child) in children.iter_mut().enumerate() {
        assert!(child.wait().unwrap().success());
        let epsilon = consortium.result(k, "statement.json")["epsilon"].as_f64().unwrap();
        assert!(epsilon <= 3.0 && epsilon > 2.999, "{epsilon}");
        let log = std::fs::read_to_string(consortium.log(k)).unwrap();
        assert!(!log.contains("told different peers") && !log.contains("a copy of"), "{log}");
    }
    faults
}
