//! `undertone plan` and `algorithm = "auto"`, and free rounds between real processes.

mod consortium;

use consortium::{Consortium, Ended, errors, numbers, simulate, undertone, wait};
use serde_json::Value;

const ZCDP: &str = "[algorithm]\nname = \"zcdp-nfl\"\nrho = 0.3\neta = 2.0\n";
const FREE: &str = "[algorithm]\nname = \"free-rounds\"\ndata_rounds = 8\neta = 0.6\n";

/// Changes the study of a consortium.
fn rewrite(consortium: &Consortium, change: impl Fn(String) -> String) {
    let path = consortium.path("study.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = change(text.clone());
    assert_ne!(text, changed);
    std::fs::write(path, changed).unwrap();
}

fn statement(consortium: &Consortium, k: usize, what: &str) -> u64 {
    consortium.result(k, "statement.json")["rounds"][what].as_u64().unwrap()
}

#[test]
fn free_rounds_between_processes_match_the_simulator_and_the_ledger_shows_what_was_free() {
    let consortium = Consortium::new(4, 60, "kind = \"ring\"", "fast");
    rewrite(&consortium, |text| text.replace(ZCDP, FREE));
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal"]));
    let expected = simulate(&consortium, &[], "run");
    for k in 0..4 {
        let model = consortium.result(k, "model.json");
        assert_eq!(numbers(&model["made"]["scaled"]), numbers(&expected["made"]["scaled"]), "client {k}");
        let counts = ["computed", "mixed", "withheld"].map(|what| statement(&consortium, k, what));
        assert_eq!(counts, [8, 52, 0]);
    }
    let ledger = |more: &[&str]| {
        let output = undertone().args(["ledger", "show"]).arg(consortium.state(0)).args(more).ended();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let run = &serde_json::from_str::<Value>(&ledger(&["--json"])).unwrap()["studies"][0];
    assert_eq!([&run["computed"], &run["mixed"], &run["withheld"]].map(|v| v.as_u64().unwrap()), [8, 52, 0]);
    assert!(ledger(&[]).contains("mixed"), "{}", ledger(&[]));
}

#[test]
fn an_automatic_algorithm_is_the_same_at_every_peer_and_in_the_simulator() {
    let consortium = Consortium::new(3, 20, "kind = \"ring\"", "fast");
    rewrite(&consortium, |text| {
        let text = text.replace(ZCDP, "").replace("clip = 0.5\n", "");
        format!("algorithm = \"auto\"\n{text}")
    });
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal"]));
    let expected = simulate(&consortium, &[], "run");
    for k in 0..3 {
        assert!(std::fs::read_to_string(consortium.log(k)).unwrap().contains("algorithm = \"auto\" is"), "client {k}");
        let kept = std::fs::read_dir(consortium.state(k)).unwrap().map(|e| e.unwrap().path());
        let kept = kept.into_iter().find(|path| path.to_string_lossy().contains("planned-")).unwrap();
        assert!(std::fs::read_to_string(&kept).unwrap().starts_with("algorithm={name = "), "client {k}");
        // The kept file can choose nothing else.
        if k == 0 {
            std::fs::write(&kept, "privacy.epsilon=50\n").unwrap();
            let output = consortium.command(0).arg("--rehearsal").ended();
            assert!(errors(&output).contains("is not a choice of planning"), "{}", errors(&output));
        }
        let model = consortium.result(k, "model.json");
        assert_eq!(numbers(&model["made"]["scaled"]), numbers(&expected["made"]["scaled"]), "client {k}");
    }
    // The planned study is the one that was run.
    let output = undertone().current_dir(consortium.folder.path()).args(["plan", "study.toml"]).ended();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "no record was read",
        "Phi_min(L-) 3.0000",
        "epsilon at delta 1e-5 by accountant: paper",
        "free-rounds",
        "noise of",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    std::fs::rename(consortium.path("planned.toml"), consortium.path("study.toml")).unwrap();
    assert_eq!(simulate(&consortium, &[], "again")["made"]["scaled"], expected["made"]["scaled"]);
}

#[test]
fn plans_are_written_beside_the_study_and_over_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let study = "rounds = 10\nalgorithm = \"auto\"\nproblem = { loss = \"squared\" }\ngraph = { kind = \"star\" }\n\
                 data = { source = \"synthetic\", clients = 4, records = 30, features = 2 }\n\
                 privacy = { epsilon = 3, delta = 1e-5 }\n";
    std::fs::create_dir(folder.path().join("here")).unwrap();
    std::fs::write(folder.path().join("here/study.toml"), study).unwrap();
    let plan =
        |more: &[&str]| undertone().current_dir(folder.path()).args(["plan", "here/study.toml"]).args(more).ended();
    let output = plan(&["--json"]);
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["algorithms"].as_array().unwrap().len(), 4);
    assert_eq!((json["clients"].as_u64(), json["edges"].as_u64()), (Some(4), Some(3)));
    assert!(folder.path().join("here/planned.toml").exists());
    assert!(plan(&["--set", "privacy.epsilon=2"]).status.success());
    let second = std::fs::read_to_string(folder.path().join("here/planned-2.toml")).unwrap();
    assert!(second.contains("epsilon = 2.0"), "{second}");
    for (more, word) in [
        (&["--out", "here/planned.toml"][..], "already a file"),
        (&["--out", "nowhere/planned.toml"], "cannot be written"),
        (&["--set", "privacy.epsilon=-1"], "privacy.epsilon"),
    ] {
        let output = plan(more);
        assert!(errors(&output).contains(word), "{more:?}: {}", errors(&output));
        assert_eq!(output.status.code(), Some(2));
    }
    let output = undertone().args(["plan", "missing.toml"]).ended();
    assert!(errors(&output).contains("check the path"));
}

#[test]
fn a_page_is_made_of_the_numbers_in_the_json_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let study = "rounds = 6\nalgorithm = \"auto\"\nproblem = { loss = \"squared\" }\ngraph = { kind = \"ring\" }\n\
                 data = { source = \"synthetic\", clients = 4, records = 30, features = 2 }\n\
                 privacy = { epsilon = 3, delta = 1e-5, colluders = 1 }\n";
    std::fs::write(folder.path().join("study.toml"), study).unwrap();
    let plan = |threads: &str, more: &[&str]| {
        let mut command = undertone();
        command.current_dir(folder.path()).env("RAYON_NUM_THREADS", threads);
        command.args(["plan", "study.toml"]).args(more).ended()
    };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let output = plan("2", &["--page", "plan.html", "--json"]);
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = read("plan.html");
    assert_eq!(json["page"], "plan.html");
    for curve in ["epsilon", "clients", "records"] {
        let points = json["outlook"][curve]["points"].as_array().unwrap();
        let own: Vec<_> = points.iter().filter(|point| point["recommended"] == true).collect();
        assert!(own.len() == 1 && own[0]["skill"] == json["algorithms"][0]["skill"], "{curve}: {points:?}");
        for point in points {
            let typical = format!("{:.2}", point["skill"]["median"].as_f64().unwrap());
            assert!(page.contains(&format!("<td class=n>{typical}")), "{curve}: {point}");
        }
    }
    assert_eq!(json["outlook"]["trust"]["points"], json["trust"]);
    // The same bytes on one thread, and the study that is planned is the same with a page and without.
    let output = plan("1", &["--page", "again.html"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("written to again.html"), "{}", errors(&output));
    assert!(read("again.html") == page && read("planned.toml") == read("planned-2.toml"));
    assert!(plan("2", &[]).status.success() && read("planned-3.toml") == read("planned.toml"));
    // What cannot be written is said before anything is planned.
    for (more, word) in [
        (&["--page", "plan.html"][..], "plan.html: there is already a file; choose another name"),
        (&["--page", "nowhere/plan.html"], "nowhere/plan.html: cannot be written, because there is no such folder"),
        (&["--page", "."], "there is already a file"),
        (&["--page", "x.toml", "--out", "./x.toml"], "is where the recommended study goes"),
        (&["--page", "x.html", "--quick"], "cannot be used with"),
    ] {
        let output = plan("2", more);
        let told = errors(&output);
        assert!(told.contains(word) && !told.contains("planning"), "{more:?}: {told}");
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
    assert_eq!(read("plan.html"), page);
    let names =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["again.html", "plan.html", "planned-2.toml", "planned-3.toml", "planned.toml", "study.toml"]);
}
