//! Peers as separate processes, over loopback, with real encryption and real disks.

mod consortium;

use std::cell::RefCell;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
    assert_eq!(bytes.len(), consortium.names.len() * (4 + frame));
    bytes.chunks(4 + frame).map(payload).collect()
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

fn show(state: &Path) -> Command {
    let mut command = undertone();
    command.args(["ledger", "show"]).arg(state);
    command
}

/// Neither the ledger nor a result is for others on the machine.
#[cfg(unix)]
#[test]
fn state_folders_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let consortium = Consortium::new(2, 3, "kind = \"complete\"", "secure");
    wait(&consortium, &mut consortium.spawn_all(&[]));
    let mut folders = vec![consortium.state(0)];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    assert_eq!(mode(&path), 0o600, "{}", path.display());
                    files += 1;
                }
            }
        }
    }
    assert!(files >= 6, "ledger, marks, model, statement, finals: {files}");
}

/// A folder that was restored as a whole, while no neighbour is there to say so: the anchor does, whether it is a file or kept by a command.
#[test]
fn an_anchor_stops_a_restored_folder() {
    for command in [false, true] {
        let consortium = Consortium::new(2, 5000, "kind = \"complete\"", "secure");
        let anchor = match command {
            false => consortium.path("elsewhere").display().to_string(),
            true => {
                let kept = consortium.path("kept");
                let script =
                    format!("case $1 in get) cat {0} 2>/dev/null || true;; put) echo $2 > {0};; esac", kept.display());
                std::fs::write(consortium.path("keep.sh"), script).unwrap();
                format!("command:sh {}", consortium.path("keep.sh").display())
            }
        };
        let mut children = [consortium.spawn(0, &["--anchor", &anchor]), consortium.spawn(1, &[])];
        until("round 5", || consortium.round(0).is_some_and(|r| r >= 5));
        children[0].kill().unwrap();
        children[0].wait().unwrap();
        let backup = ["ledger", "mark-1", "mark-2"].map(|f| (f, std::fs::read(consortium.state(0).join(f)).unwrap()));
        children[0] = consortium.spawn(0, &["--anchor", &anchor]);
        let round = consortium.round(1).unwrap();
        until("more rounds", || consortium.round(1).is_some_and(|r| r >= round + 5));
        children.iter_mut().for_each(|child| {
            let _ = child.kill();
            child.wait().unwrap();
        });
        backup.iter().for_each(|(file, bytes)| std::fs::write(consortium.state(0).join(file), bytes).unwrap());
        let output = consortium.command(0).args(["--anchor", &anchor]).ended();
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains("the anchor knows"), "{}", errors(&output));
        // An anchor that cannot be written stops the peer before anything is sent.
        let output = consortium.command(1).args(["--anchor", "/nowhere/at/all"]).ended();
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains("/nowhere/at/all"), "{}", errors(&output));
    }
}

/// Two copies of a folder are started at the same time. Neighbours keep the session of one of them; the other learns of it and stops before it has released anything.
#[test]
fn of_two_copies_only_one_goes_on() {
    let consortium = Consortium::new(3, 5000, "kind = \"ring\"", "secure");
    let mut children = consortium.spawn_all(&[]);
    until("round 20", || consortium.round(0).is_some_and(|r| r >= 20));
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    let copy = consortium.path("copy");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(consortium.state(0)).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_file()) {
        std::fs::copy(&entry, copy.join(entry.file_name().unwrap())).unwrap();
    }
    let rounds = |state: &Path| -> u64 {
        let shown = show(state).arg("--json").ended();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["studies"][0]["computed"].as_u64().unwrap()
    };
    let base = rounds(&copy);
    let spawn = |state: &Path| {
        let log = std::fs::File::create(state.join("log")).unwrap();
        let address = consortium::free_address().to_string();
        let mut command = consortium.command_in(0, state);
        command.args(["--yes", "--listen", &address]).stdout(Stdio::null()).stderr(log);
        command.spawn().unwrap()
    };
    let mut copies = [spawn(&consortium.state(0)), spawn(&copy)];
    let ended = RefCell::new(&mut copies);
    let stopped = || ended.borrow_mut().each_mut().map(|child| child.try_wait().unwrap().and_then(|s| s.code()));
    until("one stops", || stopped().iter().any(Option::is_some));
    // Time for the other one to do what it should not.
    std::thread::sleep(Duration::from_secs(2));
    let codes = stopped();
    copies.iter_mut().chain(&mut children).for_each(|child| {
        let _ = child.kill();
        child.wait().unwrap();
    });
    let states = [consortium.state(0), copy];
    let logs = states.each_ref().map(|state| std::fs::read_to_string(state.join("log")).unwrap());
    assert!(codes.contains(&Some(2)) && codes.iter().flatten().all(|code| *code == 2), "{codes:?} {logs:?}");
    let says = |log: &String| log.contains("a copy of it is or was running") || log.contains("copied, or emptied");
    assert!(logs.iter().any(says), "{logs:?}");
    let released = states.each_ref().map(|state| rounds(state) - base);
    assert!(released.contains(&0), "both copies released something: {released:?}");
}

#[test]
fn a_folder_from_a_backup_stops_the_peer() {
    let consortium = Consortium::new(3, 5000, "kind = \"ring\"", "secure");
    let mut children = consortium.spawn_all(&[]);
    until("round 20", || consortium.round(0).is_some_and(|r| r >= 20));
    let kill = |child: &mut Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    kill(&mut children[0]);
    const FILES: [&str; 3] = ["ledger", "mark-1", "mark-2"];
    let read = |file: &str| std::fs::read(consortium.state(0).join(file)).unwrap();
    let write = |file: &str, bytes: &[u8]| std::fs::write(consortium.state(0).join(file), bytes).unwrap();
    let backup = FILES.map(read);
    children[0] = consortium.spawn(0, &[]);
    let round = consortium.round(1).unwrap();
    until("more rounds", || consortium.round(1).is_some_and(|r| r >= round + 50));
    kill(&mut children[0]);
    let newest = FILES.map(read);
    // The whole folder: the neighbours show it.
    FILES.iter().zip(&backup).for_each(|(file, bytes)| write(file, bytes));
    let output = consortium.command(0).ended();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("restored from a backup"), "{}", errors(&output));
    // The ledger alone, cut off, or emptied: what is beside it shows it, also to whoever asks what was spent.
    FILES.iter().zip(&newest).for_each(|(file, bytes)| write(file, bytes));
    for ledger in [&backup[0][..], &newest[0][..100], &newest[0][..newest[0].len() / 2], &[0; 4096]] {
        write("ledger", ledger);
        for mut command in [consortium.command(0), show(&consortium.state(0))] {
            let output = command.ended();
            assert_eq!(output.status.code(), Some(2));
            // What is left may hold all records, in a file that is too short.
            let signs = ["records that were written to it", "the ledger is damaged at byte"];
            assert!(signs.iter().any(|sign| errors(&output).contains(sign)), "{}", errors(&output));
        }
    }
    // An emptied folder is as bad.
    std::fs::remove_dir_all(consortium.state(0)).unwrap();
    let output = consortium.command(0).ended();
    assert!(errors(&output).contains("restored from a backup, copied, or emptied"), "{}", errors(&output));
    // A lost ledger among other files is detected before any neighbour is contacted.
    std::fs::create_dir_all(consortium.state(0).join("results")).unwrap();
    std::fs::remove_file(consortium.state(0).join("ledger")).unwrap();
    let output = consortium.command(0).ended();
    assert!(errors(&output).contains("holds files but no ledger"), "{}", errors(&output));
    children.iter_mut().skip(1).for_each(kill);
}

#[test]
fn one_process_per_folder() {
    let consortium = Consortium::new(2, 10, "kind = \"ring\"", "secure");
    let mut first = consortium.spawn(0, &[]);
    until("a start", || consortium.page(0).is_some());
    let output = consortium.command(0).args(["--listen", "127.0.0.1:0"]).ended();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("another process uses this state folder"), "{}", errors(&output));
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_full_disk_stops_the_peer_before_anything_is_sent() {
    let consortium = Consortium::new(2, 5000, "kind = \"ring\"", "secure");
    // The disk is full from the start.
    #[cfg(target_os = "linux")]
    {
        std::fs::create_dir_all(consortium.state(0)).unwrap();
        std::os::unix::fs::symlink("/dev/full", consortium.state(0).join("ledger")).unwrap();
        let output = consortium.command(0).ended();
        assert_eq!(output.status.code(), Some(1));
        assert!(errors(&output).contains("the ledger cannot be written"), "{}", errors(&output));
        std::fs::remove_dir_all(consortium.state(0)).unwrap();
    }
    // The disk becomes full later: a file may not grow beyond 256 blocks of 512 bytes.
    let mut other = consortium.spawn(1, &[]);
    let limited = "trap '' XFSZ; ulimit -f 256; exec \"$@\"";
    let command = consortium.command(0);
    let output = Command::new("sh")
        .current_dir(consortium.folder.path())
        .args(["-c", limited, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .ended();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("the ledger cannot be written"), "{}", errors(&output));
    // The ledger agrees with what was sent: with free space the peer continues to the end.
    let mut again = consortium.spawn(0, &[]);
    wait(&consortium, std::slice::from_mut(&mut again));
    wait(&consortium, std::slice::from_mut(&mut other));
    assert_eq!(consortium.result(0, "statement.json")["rounds"]["done"], 5000);
}

#[test]
fn a_disk_that_cannot_be_written_stops_the_peer() {
    let consortium = Consortium::new(2, 10, "kind = \"ring\"", "secure");
    #[cfg(target_os = "linux")]
    {
        let mut command = undertone();
        command.current_dir(consortium.folder.path()).args(["peer", "--study", "study.toml", "--key", "peer0.key"]);
        let output = command.args(["--data", "data/peer0.csv", "--state", "/proc/undertone"]).ended();
        assert_eq!(output.status.code(), Some(1));
        assert!(errors(&output).contains("the state folder cannot be made"), "{}", errors(&output));
    }
    // A ledger that opens but cannot be written, for any user who runs the test.
    #[cfg(target_os = "linux")]
    {
        std::fs::create_dir_all(consortium.state(0)).unwrap();
        std::os::unix::fs::symlink("/proc/version", consortium.state(0).join("ledger")).unwrap();
        let output = consortium.command(0).ended();
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains("the ledger cannot be written"), "{}", errors(&output));
    }
}

/// A first start that fails for another reason must not make the folder look like one whose ledger was lost.
#[test]
fn a_start_that_fails_can_be_repeated() {
    let consortium = Consortium::new(2, 10, "kind = \"ring\"", "secure");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = consortium.command(0).args(["--metrics", &address]).ended();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains(&format!("--metrics {address}")), "{}", errors(&output));
    wait(&consortium, &mut consortium.spawn_all(&[]));
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
fn a_limit_of_the_owner_is_kept() {
    let consortium = Consortium::new(2, 30, "kind = \"ring\"", "secure");
    let refused = consortium.command(0).args(["--max-epsilon", "2.5"]).ended();
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors(&refused).contains("would have spent epsilon 3.0000"), "{}", errors(&refused));
    wait(&consortium, &mut consortium.spawn_all(&["--max-epsilon", "3.5"]));
    // The next study with the same data counts what the first one spent.
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    std::fs::write(consortium.path("study.toml"), study.replace("\"trial\"", "\"second trial\"")).unwrap();
    let refused = consortium.command(0).args(["--max-epsilon", "3.5"]).ended();
    assert!(errors(&refused).contains("with what it spent before"), "{}", errors(&refused));
    wait(&consortium, &mut consortium.spawn_all(&["--max-epsilon", "5"]));
    let show = undertone().args(["ledger", "show", "--json"]).arg(consortium.state(0)).ended();
    let show: Value = serde_json::from_slice(&show.stdout).unwrap();
    assert_eq!(show["studies"].as_array().unwrap().len(), 2);
    let total = show["epsilon"].as_f64().unwrap();
    assert!(total > 3.5 && total < 5.0, "{total}");
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

#[test]
fn a_study_is_not_continued_with_other_data() {
    let consortium = Consortium::new(2, 5000, "kind = \"ring\"", "secure");
    let log = || std::fs::read_to_string(consortium.log(0)).unwrap_or_default();
    let end = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let first = consortium.spawn(0, &[]);
    until("a start", || log().contains("started with a new ledger"));
    end(first);
    let path = consortium.path("data/peer0.csv");
    let data = std::fs::read_to_string(&path).unwrap();
    let changed = data.replacen("0.000", "0.001", 1);
    assert_ne!(data, changed);
    std::fs::write(&path, changed).unwrap();
    let second = consortium.spawn(0, &[]);
    until("a refusal", || log().contains("started with other data"));
    end(second);
}

/// The owner's policy holds for every study, at the owner's delta, and what is unusual has to be confirmed.
#[test]
fn the_owners_policy_is_kept() {
    let consortium = Consortium::new(2, 3, "kind = \"complete\"", "secure");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let change = |from: &str, to: &str| std::fs::write(consortium.path("study.toml"), study.replace(from, to)).unwrap();
    let policy = |arguments: &[&str]| {
        let output = undertone().arg("policy").arg(consortium.state(0)).args(arguments).ended();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output))
    };
    let peer = |words: &str| {
        let output = consortium.plain_command(0).ended();
        assert!(output.status.code() == Some(2) && errors(&output).contains(words), "{words}: {}", errors(&output));
    };
    assert!(policy(&[]).1.contains("no policy"));
    assert_eq!(policy(&["--epsilon", "4"]).0, Some(2), "an epsilon without a delta");
    let (code, text) = policy(&["--epsilon", "1", "--delta", "1e-6", "--studies", "2"]);
    assert!(code == Some(0) && text.contains("epsilon = 1.0") && text.contains("delta = 1e-6"), "{text}");
    // A tiny epsilon at an absurd delta.
    change("epsilon = 3.0\ndelta = 1e-5", "epsilon = 0.01\ndelta = 0.9999");
    peer("policy.toml: epsilon = 1: ");
    assert_eq!(policy(&["--studies", "2"]).0, Some(0));
    peer("privacy.delta = 9.999e-1 is above 1/800");
    // A party whose own phi1 spends without bound, beside an epsilon that looks harmless.
    change("[client.peer0]\n", "[client.peer0]\nphi1 = 1000\n");
    peer("this party has a phi1 of its own and spends epsilon");
    change("epsilon = 3.0", "epsilon = 30.0");
    peer("it spends epsilon 30.0000 at delta 1e-5, which is a weak promise. Nothing was sent; start again with --yes");
    assert_eq!(policy(&["--studies", "0"]).0, Some(0));
    change("", "");
    peer("policy.toml: studies = 0: this data took part in 0 already");
    std::fs::write(consortium.state(0).join("policy.toml"), "epslion = 3").unwrap();
    peer("policy.toml:1: epslion is not a key");
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
        let says = "2 of 4 parties are here, and a model of the study needs those of 3";
        assert_eq!(consortium.logs().contains(says), quorum.is_none());
    }
}

/// A disk that does not answer, by a library that comes before the system's: the peer says so, and so do its neighbours.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_hangs_is_reported_to_neighbours() {
    let consortium = Consortium::new(2, 5000, "kind = \"complete\"", "secure");
    let (source, library, trigger) =
        (consortium.path("hang.c"), consortium.path("hang.so"), consortium.path("the-disk-hangs"));
    let code = format!(
        "#include <unistd.h>\n#include <sys/syscall.h>\nint fdatasync(int fd) {{ while (access(\"{}\", F_OK) == 0) usleep(10000); return syscall(SYS_fdatasync, fd); }}\n",
        trigger.display()
    );
    std::fs::write(&source, code).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).ended();
    assert!(built.status.success(), "{}", errors(&built));
    let log = std::fs::File::create(consortium.log(0)).unwrap();
    let mut hanging = consortium.command(0);
    hanging.env("LD_PRELOAD", &library).stdout(Stdio::null()).stderr(log);
    let mut children = [hanging.spawn().unwrap(), consortium.spawn(1, &[])];
    until("round 5", || consortium.round(1).is_some_and(|r| r >= 5));
    std::fs::write(&trigger, "").unwrap();
    let says = |k: usize, what: &str| std::fs::read_to_string(consortium.log(k)).is_ok_and(|log| log.contains(what));
    until("its own report", || says(0, "the disk has not confirmed a write"));
    until("the neighbour's report", || says(1, "a neighbour says that its disk does not answer"));
    let stuck = consortium.round(1).unwrap();
    std::fs::remove_file(&trigger).unwrap();
    until("more rounds", || consortium.round(1).is_some_and(|r| r > stuck + 5));
    assert!(says(0, "the disk answers again"));
    children.iter_mut().for_each(|child| {
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

/// Ten daemons, for as many seconds as UNDERTONE_DAEMONS says, with random faults: killed, stopped for a while, killed several at once. Then all end with one model, and
/// nothing was noised twice.
#[test]
#[ignore = "takes as long as it is told to; tests/soak daemons runs it"]
fn ten_daemons_survive_for_long() {
    let seconds: u64 = std::env::var("UNDERTONE_DAEMONS").map_or(60, |n| n.parse().expect("a number"));
    // More rounds than can be done in this time; they end when the last ones are made after the faults.
    let consortium = Consortium::new(10, 300 * seconds as u32 + 500, "kind = \"random\"\nmean_degree = 4", "secure");
    let mut children = consortium.spawn_all(&[]);
    let mut state = 88172645463325252u64 ^ std::process::id() as u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let signal = |child: &Child, name: &str| {
        assert!(Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap().success());
    };
    let (started, mut faults) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(seconds) {
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
    let round = consortium.round(0);
    println!("{faults} faults in {seconds} s, at round {round:?} of {}", consortium.rounds);
    let before = Instant::now();
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        assert!(before.elapsed() < Duration::from_secs(600 + 4 * seconds), "hangs\n{}", consortium.logs());
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
}
