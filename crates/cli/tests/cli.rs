//! The program as a user calls it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn undertone(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).current_dir(folder).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Exit code 2, nothing on standard output, one sentence that contains the given words.
fn assert_refused(output: &Output, words: &[&str]) {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty());
    for word in words {
        assert!(error.contains(word), "\"{error}\" does not contain \"{word}\"");
    }
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn simulate_runs_the_example_and_writes_a_run_folder() {
    let folder = tempfile::tempdir().unwrap();
    let output = undertone(folder.path(), &["simulate", "--set", "simulation.trials=3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("normalised error") && text.contains("privacy spent: epsilon 5.000000 at"), "{text}");
    assert!(stderr(&output).contains("noise = \"fast\""));
    let run = folder.path().join("undertone-run");
    for file in ["study.toml", "trace.csv", "clients.csv", "model.json", "summary.json", "learning.svg", "learning.png"]
    {
        assert!(run.join(file).metadata().unwrap().len() > 100, "{file}");
    }
    let trace = std::fs::read_to_string(run.join("trace.csv")).unwrap();
    assert_eq!(trace.lines().count(), 201);
    assert!(trace.starts_with("round,rho,epsilon,error_w,"));
    assert!(!trace.contains("NaN") && !trace.contains("inf"));
    let clients = std::fs::read_to_string(run.join("clients.csv")).unwrap();
    assert_eq!(clients.lines().count(), 51);
    assert_eq!(clients.lines().next(), Some("client,w1,w2,w3,w4,w5,w6,w7,w8"));
    // A second run finds the next free folder, and a named folder is never overwritten.
    assert!(undertone(folder.path(), &["simulate", "--set", "rounds=20"]).status.success());
    assert!(folder.path().join("undertone-run-2").exists());
    let output = undertone(folder.path(), &["simulate", "--out", "undertone-run"]);
    assert_refused(&output, &["undertone-run", "already holds files"]);
}

#[test]
fn the_resolved_study_repeats_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| assert!(undertone(folder.path(), arguments).status.success());
    run(&["simulate", "--out", "one", "--set", "simulation.trials=2", "--set", "rounds=40", "--threads", "1"]);
    run(&["simulate", "one/study.toml", "--out", "two", "--threads", "2"]);
    for file in ["study.toml", "trace.csv", "clients.csv", "model.json", "learning.svg", "learning.png"] {
        let read = |run: &str| std::fs::read(folder.path().join(run).join(file)).unwrap();
        assert!(read("one") == read("two"), "{file} differs");
    }
}

#[test]
fn simulate_prints_its_summary_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let summary = json(&undertone(folder.path(), &["simulate", "--json", "--set", "rounds=20", "--out", "run"]));
    for model in ["w", "released", "average"] {
        assert!(summary["normalized_error"][model].as_f64().unwrap() > 0.0);
    }
    for key in ["objective", "epsilon", "delta", "rho_total", "seconds"] {
        assert!(summary[key].is_number(), "{key}");
    }
    assert_eq!((summary["rounds"].as_u64(), summary["clients"].as_u64()), (Some(20), Some(50)));
    assert!((summary["epsilon"].as_f64().unwrap() - 5.0).abs() < 1e-8);
    let file: Value = serde_json::from_slice(&std::fs::read(folder.path().join("run/summary.json")).unwrap()).unwrap();
    assert_eq!(file, summary);
}

#[test]
fn new_writes_the_example_and_never_over_a_file() {
    let folder = tempfile::tempdir().unwrap();
    assert!(undertone(folder.path(), &["new", "study.toml"]).status.success());
    let text = std::fs::read_to_string(folder.path().join("study.toml")).unwrap();
    assert!(text.contains("[privacy]") && text.contains('#'));
    assert!(undertone(folder.path(), &["simulate", "study.toml", "--set", "rounds=20"]).status.success());
    std::fs::write(folder.path().join("study.toml"), "mine").unwrap();
    assert_refused(&undertone(folder.path(), &["new", "study.toml"]), &["study.toml", "already a file"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("study.toml")).unwrap(), "mine");
    assert_refused(&undertone(folder.path(), &["new", "no/such/folder/study.toml"]), &["cannot be written"]);
}

#[test]
fn account_answers_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let answer = json(&undertone(folder.path(), &["account", "--rho-total", "0.0175", "--delta", "1e-6", "--json"]));
    assert_eq!((answer["rho_total"].as_f64(), answer["delta"].as_f64()), (Some(0.0175), Some(1e-6)));
    for (name, expected) in [("paper", 1.000905), ("cks", 0.837947), ("exact", 0.776362)] {
        assert!((answer["epsilon"][name].as_f64().unwrap() - expected).abs() < 5e-6);
    }
    let arguments = ["account", "--epsilon", "1", "--delta", "1e-6", "--rounds", "200", "--tau", "0.99", "--json"];
    let answer = json(&undertone(folder.path(), &arguments));
    for (name, expected) in [("paper", 0.01746890), ("cks", 0.02435597), ("exact", 0.02801448)] {
        let rho = answer["rho_total"][name].as_f64().unwrap();
        assert!((rho - expected).abs() < 5e-6 * expected);
        let tau: f64 = 0.99;
        let sum = (1.0 - tau.powi(200)) / (tau.powi(199) - tau.powi(200));
        assert!((answer["phi_1"][name].as_f64().unwrap() * sum / rho - 1.0).abs() < 1e-9);
    }
    let arguments = ["account", "--phi1", "1e-4", "--delta", "1e-6", "--rounds", "175", "--json"];
    assert!(
        (json(&undertone(folder.path(), &arguments))["epsilon"]["exact"].as_f64().unwrap() - 0.776362).abs() < 5e-6
    );
}

#[test]
fn account_prints_a_table() {
    let output = undertone(Path::new("."), &["account", "--epsilon", "1", "--delta", "1e-6", "--rounds", "200"]);
    let text = stdout(&output);
    assert!(text.contains("accountant") && text.contains("phi_1") && text.contains("0.02801448"), "{text}");
}

/// The printed values, used as input, never cost more than the requested budget.
#[test]
fn printed_numbers_are_rounded_against_the_user() {
    let ask = |arguments: &[&str]| stdout(&undertone(Path::new("."), arguments));
    let row = |text: &str, name: &str| -> Vec<String> {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(str::to_string).collect()
    };
    for epsilon in ["0.3", "1", "7.7"] {
        let text = ask(&["account", "--epsilon", epsilon, "--delta", "1e-6", "--rounds", "200"]);
        for name in ["paper", "cks", "exact"] {
            let [phi1, rho] = &row(&text, name)[..] else { panic!("{text}") };
            let whole = json(&undertone(Path::new("."), &["account", "--rho-total", rho, "--delta", "1e-6", "--json"]));
            let first = ["account", "--phi1", phi1, "--delta", "1e-6", "--rounds", "200", "--json"];
            for answer in [whole, json(&undertone(Path::new("."), &first))] {
                let spent = answer["epsilon"][name].as_f64().unwrap();
                let asked: f64 = epsilon.parse().unwrap();
                assert!(spent <= asked && spent > asked * 0.9999, "{name}: {spent} of {asked}");
            }
        }
    }
}

#[test]
fn wrong_calls_end_with_code_2_and_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], words: &[&str]| assert_refused(&undertone(folder.path(), arguments), words);
    refused(&["simulate", "nowhere.toml"], &["nowhere.toml", "check the path"]);
    let peer = ["peer", "--study", "no.toml", "--key", "no.key", "--data", "no.csv", "--state", "no", "--patience"];
    for (time, reason) in [
        ("120", "time unit needed"),
        ("0", "longer than zero"),
        ("0s", "longer than zero"),
        ("-3s", "expected number"),
        ("5 parsecs", "unknown time unit"),
        ("1000years", "longer than 100 years"),
    ] {
        refused(&[&peer[..], &[time]].concat(), &["--patience", reason, "write 90s, 5m or 1h"]);
    }
    for time in ["90s", "5m", "1h"] {
        // The time is accepted: the study is what is missing.
        refused(&[&peer[..], &[time]].concat(), &["no.toml", "check the path"]);
    }
    refused(&["simulate", "--set", "privacy.tau=2"], &["privacy.tau = 2", "at most 1"]);
    refused(&["simulate", "--set", "privacy.epsilom=2"], &["did you mean \"epsilon\"?"]);
    refused(&["simulate", "--set", "graph={kind=\"edges\",edges=[[\"1\",\"2\"]]}"], &["49 components", "{1, 2}"]);
    refused(&["simulate", "--set", "graph.mean_degree=1"], &["mean degree from 1.96"]);
    refused(&["simulate", "--set", "data.records=1000000000"], &["GB of memory", "fewer clients or records"]);
    refused(&["simulate", "--set", "simulation.trials=1000000"], &["simulation would measure", "metrics_every"]);
    refused(&["simulate", "--data", "x.csv"], &["--data", "generates its data"]);
    refused(&["simulate", "--threads", "0"], &["--threads"]);
    std::fs::write(folder.path().join("file"), "x").unwrap();
    refused(&["simulate", "--out", "file"], &["file", "--out"]);
    refused(&["simulate", "--out", "file/inner"], &["file/inner", "--out"]);
    std::fs::write(folder.path().join("latin.toml"), b"name = \"\xe9\"").unwrap();
    refused(&["simulate", "latin.toml"], &["latin.toml", "UTF-8"]);
    refused(
        &[
            "simulate",
            "--set",
            "algorithm.eta=1e9",
            "--set",
            "problem.loss=squared",
            "--set",
            "privacy=off",
            "--set",
            "algorithm.data_rounds=199",
            "--set",
            "algorithm.decay=constant",
        ],
        &["diverged", "lower eta"],
    );
    assert!(!folder.path().join("undertone-run").exists(), "a refused run writes no folder");
    refused(&["account", "--delta", "1e-6"], &["--rho-total"]);
    refused(&["account", "--rho-total", "-1", "--delta", "1e-6"], &["rho = -1 is not possible"]);
    refused(&["account", "--rho-total", "1e308", "--delta", "1e-6"], &["at most 1e100"]);
    refused(&["account", "--epsilon", "1e308", "--delta", "1e-6"], &["at most 1e100"]);
    refused(&["account", "--rho-total=-1", "--delta", "1e-6"], &["rho = -1 is not possible"]);
    refused(&["account", "--rho-total", "nan", "--delta", "1e-6"], &["rho = NaN is not possible"]);
    refused(&["account", "--rho-total", "1", "--delta", "1"], &["delta = 1 is not possible"]);
    refused(&["account", "--epsilon", "1", "--delta", "1e-6", "--tau", "0"], &["--tau 0"]);
    refused(&["account", "--epsilon", "1", "--delta", "1e-6", "--rounds", "0"], &["--rounds"]);
    refused(&["account", "--epsilon", "1", "--delta", "1e-6", "--tau", "0.1", "--rounds", "99"], &["too small"]);
    refused(&["simulat"], &["simulate"]);
}

#[test]
fn data_paths_are_relative_to_the_study() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("all.csv"), "a,b\n1,2\n2,4\n3,6\n4,8\n").unwrap();
    let study = "rounds = 50\nprivacy = \"off\"\n[problem]\nloss = \"squared\"\n[graph]\nkind = \"ring\"\n\
        [algorithm]\nname = \"zcdp-nfl\"\nrho = 1\neta = 1\n[data]\nsource = \"split\"\nclients = 2\npath = \"all.csv\"\n\
        features = [\"a\"]\ntarget = \"b\"\nbounds.a = [0, 5]\nbounds.b = [0, 10]\n";
    std::fs::write(inner.join("study.toml"), study).unwrap();
    let summary = json(&undertone(folder.path(), &["simulate", "inner/study.toml", "--json", "--out", "run"]));
    assert_eq!(summary["records"].as_u64(), Some(4));
    let model: Value = serde_json::from_slice(&std::fs::read(folder.path().join("run/model.json")).unwrap()).unwrap();
    assert!(model["coefficients"]["a"].is_number() && model["intercept"].is_number());
    assert_refused(&undertone(folder.path(), &["simulate", "inner/study.toml", "--data", "none.csv"]), &["none.csv"]);
    // Without a study file the path is relative to the current folder, and the resolved study finds it from any folder.
    let data = "data={source=\"split\",clients=2,path=\"inner/all.csv\",features=[\"a\"],target=\"b\",bounds={a=[0,5],b=[0,10]}}";
    let sets =
        ["simulate", "--set", data, "--set", "graph={kind=\"ring\"}", "--set", "rounds=20", "--out", "inner/set"];
    assert!(undertone(folder.path(), &sets).status.success());
    assert!(undertone(folder.path(), &["simulate", "inner/set/study.toml", "--out", "set-again"]).status.success());
    // The resolved study in the run folder still finds the data.
    assert!(undertone(folder.path(), &["simulate", "run/study.toml", "--out", "again"]).status.success());
}

/// Studies of different delta are added up at the smallest.
#[test]
fn a_ledger_is_shown_at_the_smallest_delta() {
    use std::sync::Arc;
    use undertone_core::identity::Identity;
    use undertone_core::ledger::{Begin, Ledger};
    use undertone_core::message::Chain;
    use undertone_core::study::Study;
    use undertone_peer::state::StateFolder;
    let text = "rounds = 3\n[problem]\nloss = \"squared\"\n[data]\nsource = \"synthetic\"\nclients = 3\nfeatures = 1\n\
                [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-grad-nfl\"\neta = 1.0\n\
                [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n";
    let study = Study::parse(text, "t").unwrap();
    let budget = study.client_budget("1").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let identity = Arc::new(Identity::from_secret(&[1; 32]));
    for (n, delta) in [(1u8, 1e-3), (2, 1e-9), (3, 1e-5)] {
        let begin = Begin {
            study: [n; 32],
            name: format!("study {n}"),
            rounds: 3,
            features: 1,
            degree: 2,
            memory: 0,
            clients: 3,
            colluders: 2,
            total: budget.promised(),
            epsilon: 1.0,
            delta,
            next: budget.cost(1),
            protected: true,
            data: [2; 32],
            time: 0,
        };
        let disk = StateFolder::open(folder.path(), None).unwrap().disk(true).unwrap();
        let (chain, limits) = (Chain::new(study.digest()), study.limits(3));
        drop(Ledger::enter(disk, identity.clone(), chain, limits, begin, Some(budget.clone())).unwrap());
    }
    let shown = json(&undertone(folder.path(), &["ledger", "show", ".", "--json"]));
    assert_eq!((shown["delta"].as_f64(), shown["studies"].as_array().unwrap().len()), (Some(1e-9), 3));
}

#[test]
fn printed_epsilons_are_rounded_up() {
    for rho in ["0.0175", "0.1", "0.33", "1", "2.5", "7.77"] {
        let arguments = ["account", "--rho-total", rho, "--delta", "1e-6"];
        let text = stdout(&undertone(Path::new("."), &arguments));
        let exact = json(&undertone(Path::new("."), &[&arguments[..], &["--json"]].concat()));
        for name in ["paper", "cks", "exact"] {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            let printed: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
            let epsilon = exact["epsilon"][name].as_f64().unwrap();
            assert!(printed >= epsilon && printed < epsilon * (1.0 + 2e-6), "{name}: {printed} for {epsilon}");
        }
    }
}

/// Evidence is believed for its signatures, not for what it says of itself.
#[test]
fn anybody_can_check_evidence() {
    use undertone_core::identity::Identity;
    use undertone_core::message::Chain;

    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_secret(&[7; 32]);
    let chain = Chain::of([3; 32]);
    let signed = |round: u32, head: [u8; 32]| hex::encode(identity.sign(&chain.vouched(round, &head)));
    let check = |round: u32, first: ([u8; 32], Option<String>), second: ([u8; 32], Option<String>)| {
        let story = |(head, signature): ([u8; 32], Option<String>)| serde_json::json!({ "head": hex::encode(head), "signature": signature });
        let json = serde_json::json!({
            "format": "undertone evidence 1", "study": hex::encode([3; 32]), "author": "lakeside", "id": identity.id().to_string(),
            "round": round, "stories": [story(first), story(second)], "proves": true,
        });
        std::fs::write(folder.path().join("conflict.json"), json.to_string()).unwrap();
        undertone(folder.path(), &["evidence", "conflict.json"])
    };
    let proof = check(64, ([1; 32], Some(signed(64, [1; 32]))), ([2; 32], Some(signed(64, [2; 32]))));
    assert!(
        stdout(&proof).contains("calls \"lakeside\", without proof of the name, released different things"),
        "{}",
        stderr(&proof)
    );
    assert_eq!(proof.status.code(), Some(0));
    let no_proofs = [
        // The same story twice, two rounds, one signature missing, a signature of something else.
        check(64, ([1; 32], Some(signed(64, [1; 32]))), ([1; 32], Some(signed(64, [1; 32])))),
        check(64, ([1; 32], Some(signed(64, [1; 32]))), ([2; 32], Some(signed(65, [2; 32])))),
        check(64, ([1; 32], Some(signed(64, [1; 32]))), ([2; 32], None)),
        check(64, ([1; 32], Some(signed(64, [1; 32]))), ([2; 32], Some(signed(64, [1; 32])))),
    ];
    for output in no_proofs {
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("proves nothing to others"), "{}", stderr(&output));
    }
    for (text, place) in
        [("{", "is not JSON"), ("{}", "has no format"), (r#"{"format": "undertone evidence 1"}"#, "`study`")]
    {
        std::fs::write(folder.path().join("conflict.json"), text).unwrap();
        let output = undertone(folder.path(), &["evidence", "conflict.json"]);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(place), "{}", stderr(&output));
    }
}

/// What a party did in one study proves nothing in another one with the same keys.
#[test]
fn evidence_is_of_one_study() {
    use undertone_core::identity::Identity;
    use undertone_core::message::Chain;
    use undertone_core::study::Study;

    let folder = tempfile::tempdir().unwrap();
    let identity = |k: u8| Identity::from_secret(&[k; 32]);
    let text = |name: &str| {
        let clients: String = (1..4).map(|k| format!("[client.party{k}]\nid = \"{}\"\n", identity(k).id())).collect();
        format!(
            "name = \"{name}\"\nrounds = 90\n[problem]\nloss = \"squared\"\n\
             [data]\nsource = \"folder\"\nrecords = 40\nfeatures = [\"a\"]\ntarget = \"y\"\nbounds.a = [0, 1]\nbounds.y = [0, 1]\n\
             [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 0.3\neta = 1.0\n\
             [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 0.5\n{clients}"
        )
    };
    let of = |name: &str| {
        let study = Study::parse(&text(name), "study.toml").unwrap();
        std::fs::write(folder.path().join(format!("{name}.toml")), text(name)).unwrap();
        let chain = Chain::new(study.digest());
        let story = |head: [u8; 32]| serde_json::json!({ "head": hex::encode(head), "signature": hex::encode(identity(2).sign(&chain.vouched(64, &head))) });
        let json = serde_json::json!({
            "format": "undertone evidence 1", "study": hex::encode(study.digest().whole()), "author": "party2", "id": identity(2).id().to_string(),
            "round": 64, "stories": [story([1; 32]), story([2; 32])], "proves": true,
        });
        std::fs::write(folder.path().join(format!("{name}.json")), json.to_string()).unwrap();
    };
    ["rehearsal", "real"].into_iter().for_each(of);
    let check = |file: &str, study: &str| undertone(folder.path(), &["evidence", file, "--study", study]);
    let proof = check("rehearsal.json", "rehearsal.toml");
    assert!(
        proof.status.success() && stdout(&proof).contains("party2 released different things"),
        "{}",
        stderr(&proof)
    );
    assert_refused(&check("rehearsal.json", "real.toml"), &["rehearsal.json", "about another study"]);
}

/// Without MPI, mpirun would only start the same run several times.
#[cfg(not(feature = "mpi"))]
#[test]
fn several_processes_need_a_program_with_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let started = |count: &str| {
        Command::new(env!("CARGO_BIN_EXE_undertone"))
            .args(["account", "--epsilon", "1", "--delta", "1e-5"])
            .env("OMPI_COMM_WORLD_SIZE", count)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    assert_refused(&started("2"), &["built without MPI", "--features mpi"]);
    assert!(started("1").status.success());
}

/// A run that was ended goes on from its state; options that do not go together are refused.
#[test]
fn simulate_keeps_its_state_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let simulate =
        |more: &[&str]| undertone(folder.path(), &[&["simulate", "--set", "simulation.trials=2"], more].concat());
    assert!(simulate(&["--out", "whole"]).status.success());
    let kept = simulate(&["--out", "kept", "--checkpoint", "state", "--every", "0s"]);
    assert!(kept.status.success(), "{}", stderr(&kept));
    let read = |run: &str| std::fs::read(folder.path().join(run).join("clients.csv")).unwrap();
    assert!(read("whole") == read("kept"));
    assert!(!folder.path().join("state").exists(), "a run that is over needs no state");
    assert_refused(&simulate(&["--checkpoint", "state", "--spread", "trials"]), &["--checkpoint", "--spread trials"]);
    std::fs::create_dir(folder.path().join("state")).unwrap();
    std::fs::write(folder.path().join("state/progress.undertone"), "anything").unwrap();
    let other = simulate(&["--checkpoint", "state", "--out", "other"]);
    assert_refused(&other, &["state/progress.undertone", "damaged", "--checkpoint"]);
}
