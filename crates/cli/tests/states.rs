//! What peers do with the folder that holds their state, and what its disk does to them: separate processes and real disks.

mod consortium;

use std::cell::RefCell;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use consortium::{Consortium, Ended, errors, undertone, until, wait};
use serde_json::Value;
use undertone_core::ledger::record::first_length;

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

/// A folder whose ledger was zeroed, shortened or emptied together with its marks is no new one: results and what is known of others show that it was used.
#[test]
fn a_used_folder_is_never_new() {
    let consortium = Consortium::new(2, 3, "kind = \"complete\"", "secure");
    wait(&consortium, &mut consortium.spawn_all(&[]));
    let state = consortium.state(0);
    assert!(show(&state).ended().status.success());
    let whole = ["ledger", "mark-1", "mark-2"].map(|name| (state.join(name), std::fs::read(state.join(name)).unwrap()));
    let refused = |what: &str| {
        let shown = show(&state).ended();
        assert_eq!(shown.status.code(), Some(2), "{what}: {}", String::from_utf8_lossy(&shown.stdout));
        // Another study with the same data.
        let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
        std::fs::write(consortium.path("study.toml"), study.replace("\"trial\"", "\"another\"")).unwrap();
        let started = consortium.command(0).ended();
        assert_eq!(started.status.code(), Some(2), "{what}: {}", errors(&started));
        std::fs::write(consortium.path("study.toml"), study).unwrap();
        whole.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    };
    for (path, bytes) in &whole {
        std::fs::write(path, vec![0; bytes.len()]).unwrap();
    }
    refused("zeros");
    // After its first record a ledger is whole, and knows of no study.
    for cut in (0..=1024).step_by(64).chain([first_length() as usize]) {
        std::fs::write(&whole[0].0, &whole[0].1[..cut]).unwrap();
        whole[1..].iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
        refused(&format!("the first {cut} bytes, without marks"));
    }
    // Nothing else in the folder shows it, but marks that are none do.
    for entry in std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            std::fs::remove_dir_all(entry).unwrap();
        } else if !whole.iter().any(|(path, _)| *path == entry) {
            std::fs::remove_file(entry).unwrap();
        }
    }
    for (path, bytes) in &whole {
        std::fs::write(path, vec![0; bytes.len()]).unwrap();
    }
    refused("zeros in a folder with nothing else");
}

/// What a policy limits cannot be had under another name, by a link that leads nowhere, or with a file that is no anchor.
#[cfg(unix)]
#[test]
fn limits_and_anchors_fail_closed() {
    let consortium = Consortium::new(2, 3, "kind = \"complete\"", "secure");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let policy = consortium.state(0).join("policy.toml");
    let peer = |more: &[&str], code: i32, words: &str| {
        let output = consortium.command(0).args(more).ended();
        let said = errors(&output);
        assert!(output.status.code() == Some(code) && said.contains(words), "{words}: {:?} {said}", output.status);
    };
    std::fs::create_dir(consortium.state(0)).unwrap();
    std::fs::write(&policy, "studies = 0\n").unwrap();
    peer(&[], 2, "studies = 0");
    for stage in ["trial-closing", "trial-moments"] {
        std::fs::write(consortium.path("study.toml"), study.replace("\"trial\"", &format!("\"{stage}\""))).unwrap();
        peer(&[], 2, "is the name of a stage");
    }
    std::fs::write(consortium.path("study.toml"), &study).unwrap();
    std::fs::remove_file(&policy).unwrap();
    std::os::unix::fs::symlink(consortium.path("not-mounted"), &policy).unwrap();
    peer(&[], 1, "policy.toml: cannot be read");
    std::fs::remove_file(&policy).unwrap();
    let other = consortium.path("notes.txt");
    std::fs::write(&other, "not an anchor").unwrap();
    peer(&["--anchor", other.to_str().unwrap()], 2, "is no mark of a ledger");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "not an anchor");
    let inside = consortium.state(0).join("mark");
    peer(&["--anchor", inside.to_str().unwrap()], 2, "the anchor is inside of the state folder");
    peer(&["--anchor", "command:false"], 1, "its anchor, `false get`, ended with");
}

/// An anchor knows nothing of the studies in which it was left out, so a ledger that has them is not vouched for.
#[test]
fn an_anchor_that_was_left_out_does_not_vouch() {
    let consortium = Consortium::new(2, 3, "kind = \"complete\"", "secure");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let says = "the anchor is new, or was left out";
    for (name, anchors, warned) in
        [("one", true, false), ("two", false, false), ("three", true, true), ("four", true, false)]
    {
        std::fs::write(consortium.path("study.toml"), study.replace("\"trial\"", &format!("\"{name}\""))).unwrap();
        let mut children: Vec<Child> = (0..2)
            .map(|k| {
                let anchor = consortium.path(&format!("anchor-{k}")).display().to_string();
                let _ = std::fs::remove_file(consortium.log(k));
                let arguments: [&str; 2] = ["--anchor", &anchor];
                consortium.spawn(k, if anchors { &arguments } else { &[] })
            })
            .collect();
        wait(&consortium, &mut children);
        assert_eq!(consortium.logs().contains(says), warned, "{name}: {}", consortium.logs());
    }
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
        // A command of the killed peer may still run, and this one writes whatever it was given.
        std::thread::sleep(Duration::from_secs(1));
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
    // The one that goes on may have finished since.
    assert!(codes.contains(&Some(2)) && codes.iter().flatten().all(|code| [0, 2].contains(code)), "{codes:?} {logs:?}");
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
    // Metrics are served before the folder is locked; the ledger is written after that.
    let ledger = consortium.state(0).join("ledger");
    until("a start", || std::fs::metadata(&ledger).is_ok_and(|found| found.len() > 0));
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
    assert!(errors(&output).contains(&format!("http://{address}: cannot be served there")), "{}", errors(&output));
    wait(&consortium, &mut consortium.spawn_all(&[]));
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
    assert!(policy(&[]).1.contains("there is no such folder"));
    assert_eq!(policy(&["--epsilon", "4"]).0, Some(2), "an epsilon without a delta");
    let (code, text) = policy(&["--epsilon", "1", "--delta", "1e-6", "--studies", "2"]);
    assert!(code == Some(0) && text.contains("epsilon = 1.0") && text.contains("delta = 1e-6"), "{text}");
    // What was stated stays, and is relaxed only if that is meant.
    let (code, text) = policy(&["--epsilon", "2"]);
    assert!(code == Some(2) && text.contains("would relax what was stated before: epsilon from 1.0 to 2.0"), "{text}");
    let (code, text) = policy(&["--epsilon", "2", "--yes"]);
    assert!(code == Some(0) && text.contains("epsilon = 2.0") && text.contains("studies = 2"), "{text}");
    assert_eq!(policy(&["--epsilon", "1"]).0, Some(0));
    // A tiny epsilon at an absurd delta.
    change("epsilon = 3.0\ndelta = 1e-5", "epsilon = 0.01\ndelta = 0.9999");
    peer("policy.toml: epsilon = 1: ");
    std::fs::write(consortium.state(0).join("policy.toml"), "studies = 2\n").unwrap();
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
