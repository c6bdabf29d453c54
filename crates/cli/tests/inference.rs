//! Intervals and private scores, from the command line, simulated and between real processes.

mod consortium;

use std::path::Path;

use consortium::{Consortium, Ended, errors, simulate, undertone, wait};
use serde_json::Value;

/// A study with intervals, held-out records and a private score.
fn inferring(count: usize, noise: &str) -> Consortium {
    let consortium = Consortium::new(count, 12, "kind = \"complete\"", noise);
    let path = consortium.path("study.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text
        .replace("intercept = true\n", "intercept = true\nholdout = 0.25\n")
        .replace("epsilon = 3.0", "epsilon = 40.0\nscore_budget = 0.05")
        .replace("[graph]\n", "[inference]\nlevel = 0.9\n[graph]\n");
    std::fs::write(&path, text).unwrap();
    consortium
}

fn ledger(folder: &Path, state: &Path) -> String {
    let output = undertone().current_dir(folder).args(["ledger", "show"]).arg(state).ended();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn rehearsing_peers_and_simulator_agree_about_intervals_and_scores() {
    let consortium = inferring(3, "fast");
    let expected = simulate(&consortium, &["--data", "data"], "run");
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal"]));
    assert!(expected["uncertainty"]["intervals"]["coefficients"]["a"]["low"].is_number(), "{expected}");
    assert!(expected["uncertainty"]["private_scores"]["R^2"]["high"].is_number(), "{expected}");
    for k in 0..3 {
        let model = consortium.result(k, "model.json");
        assert_eq!(model["made"]["scaled"], expected["made"]["scaled"]);
        assert_eq!(model["uncertainty"], expected["uncertainty"], "peer {k}");
        let own = consortium.result(k, "own-scores.json");
        let rows = own["rows"].as_u64().unwrap();
        // A quarter of 400, within five standard errors.
        assert!((57..=143).contains(&rows) && own["scores"]["RMSE"]["model"].is_number(), "{own}");
    }
}

#[test]
fn the_closing_release_is_recorded_charged_and_made_once() {
    let consortium = inferring(3, "secure");
    let mut children = consortium.spawn_all(&[]);
    wait(&consortium, &mut children);
    let first: Vec<Value> = (0..3).map(|k| consortium.result(k, "model.json")).collect();
    assert!(
        first.iter().all(|model| model["uncertainty"] == first[0]["uncertainty"] && !model["uncertainty"].is_null())
    );
    for (k, model) in first.iter().enumerate() {
        let statement = consortium.result(k, "statement.json");
        let number = |key: &str| statement[key].as_f64().unwrap_or_else(|| panic!("{key} in {statement}"));
        // Rounds and closing release together spend what the study promises: its epsilon, and the same as the ledger says.
        assert!(
            (number("epsilon") / 40.0 - 1.0).abs() < 1e-9 && number("epsilon") <= 40.0 * (1.0 + 1e-12),
            "{statement}"
        );
        assert!(
            (number("epsilon_of_all_studies_with_this_data") / number("epsilon") - 1.0).abs() < 1e-9,
            "{statement}"
        );
        assert!((number("rho_of_closing") / number("rho") - 0.65).abs() < 1e-6, "{statement}");
        let shown = ledger(consortium.folder.path(), &consortium.state(k));
        assert!(shown.contains("trial-closing"), "{shown}");
        assert!((model["privacy"]["epsilon"].as_f64().unwrap() / 40.0 - 1.0).abs() < 1e-9);
    }
    // Started again, the peers find that all is done, and release nothing more.
    wait(&consortium, &mut consortium.spawn_all(&[]));
    for (k, model) in first.iter().enumerate() {
        assert_eq!(consortium.result(k, "model.json"), *model);
        let epsilon = consortium.result(k, "statement.json")["epsilon_of_all_studies_with_this_data"].as_f64().unwrap();
        assert!((epsilon / 40.0 - 1.0).abs() < 1e-9, "{epsilon}");
    }
}

#[test]
fn a_limit_counts_the_closing_release_too() {
    let consortium = inferring(3, "secure");
    let output = consortium.command(0).args(["--max-epsilon", "39"]).ended();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("--max-epsilon"), "{}", errors(&output));
}

/// Without intervals the report tells what privacy noise alone does, in a simulation and at a peer alike.
#[test]
fn reports_without_intervals_tell_the_spread_of_noise() {
    let consortium = Consortium::new(3, 12, "kind = \"complete\"", "fast");
    simulate(&consortium, &["--data", "data"], "run");
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal"]));
    let told = |page: String| -> Vec<String> {
        page.split("(noise +- ").skip(1).map(|rest| rest.split(')').next().unwrap().to_string()).collect()
    };
    let simulated = told(std::fs::read_to_string(consortium.path("run/report.html")).unwrap());
    assert_eq!(simulated.len(), 3, "intercept and two features");
    assert!(simulated.iter().all(|number| number.parse::<f64>().unwrap() > 0.0), "{simulated:?}");
    assert_eq!(
        told(std::fs::read_to_string(consortium::results(&consortium.state(0)).join("report.html")).unwrap()),
        simulated
    );
    let with_intervals = inferring(3, "fast");
    simulate(&with_intervals, &["--data", "data"], "run");
    assert_eq!(told(std::fs::read_to_string(with_intervals.path("run/report.html")).unwrap()), [""; 0]);
}

#[test]
fn what_cannot_have_intervals_is_refused_with_a_reason() {
    let consortium = inferring(2, "fast");
    let refused = |sets: &[&str], words: &str| {
        let mut command = undertone();
        command.current_dir(consortium.folder.path()).args(["simulate", "study.toml", "--data", "data", "--out", "no"]);
        for set in sets {
            command.args(["--set", set]);
        }
        let output = command.ended();
        assert!(output.status.code() == Some(2) && errors(&output).contains(words), "{sets:?}: {}", errors(&output));
    };
    refused(&["problem.loss=\"absolute\""], "inference needs the density");
    refused(&["problem.regularizer=\"l1\""], "inference is for models without an l1 penalty");
    refused(&["problem.weights=\"clients\""], "data.holdout needs problem.weights");
    refused(&["data.holdout=0"], "privacy.score_budget scores records that were held out, but none are");
    refused(&["inference.level=1.5"], "level");
    refused(&["data.holdout=0.95"], "from 0 to 0.9");
}

#[test]
fn scores_and_predictions_from_files() {
    let consortium = inferring(2, "fast");
    simulate(&consortium, &["--data", "data"], "run");
    let run = |arguments: &[&str]| {
        let output = undertone().current_dir(consortium.folder.path()).args(arguments).ended();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value =
        serde_json::from_str(&run(&["score", "--model", "run/model.json", "--data", "data/peer0.csv", "--json"]))
            .unwrap();
    assert_eq!(json["rows"], 400);
    assert!(json["scores"]["R^2"]["model"].as_f64().unwrap() > 0.5, "{json}");
    assert!(json["scores"]["RMSE"]["model"].as_f64() < json["scores"]["RMSE"]["null"].as_f64());
    // A column that is not the model's own names groups and rows.
    let text = std::fs::read_to_string(consortium.path("data/peer0.csv")).unwrap();
    let with_id = text.lines().enumerate().map(|(i, line)| match i {
        0 => format!("id,ward,{line}\n"),
        i => format!("r{i},w{},{line}\n", i % 3),
    });
    std::fs::write(consortium.path("new.csv"), with_id.collect::<String>()).unwrap();
    let shown = run(&["score", "--model", "run/model.json", "--data", "new.csv", "--by", "ward"]);
    assert!(shown.contains("ward = w0, 133 rows") && shown.contains("no features"), "{shown}");
    let predicted =
        run(&["predict", "--model", "run/model.json", "--data", "new.csv", "--keep", "id", "--keep", "ward"]);
    assert!(predicted.starts_with("id,ward,y\nr1,w1,"), "{predicted}");
}

#[test]
fn plan_says_how_wide_intervals_will_be() {
    let consortium = inferring(3, "fast");
    let plan = |sets: &[&str]| {
        let mut command = undertone();
        command.current_dir(consortium.folder.path()).args(["plan", "study.toml", "--out"]);
        command.arg(format!("planned-{}.toml", sets.len()));
        for set in sets {
            command.args(["--set", set]);
        }
        let output = command.ended();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let wide = plan(&[]);
    assert!(wide.contains("intervals  90%: a coefficient plus or minus about"), "{wide}");
    let none = plan(&["privacy.epsilon=0.1"]);
    assert!(none.contains("intervals  none"), "{none}");
}

#[test]
fn check_tells_all_problems_at_once() {
    let consortium = inferring(2, "fast");
    let check = |arguments: &[&str]| {
        let output =
            undertone().current_dir(consortium.folder.path()).args(["check", "study.toml"]).args(arguments).ended();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output))
    };
    let (code, text) = check(&["--data", "data/peer0.csv"]);
    assert!(code == Some(0) && text.contains("400 records, of which") && text.contains("can be used"), "{text}");
    // Two tables of the study are wrong.
    let (code, text) = check(&["--set", "graph.kind=\"rnig\"", "--set", "privacy.delta=2"]);
    assert!(
        code == Some(2) && text.contains("2 problems") && text.contains("graph.kind") && text.contains("delta"),
        "{text}"
    );
    // A mistake elsewhere does not keep the file from being looked at.
    let wrong = ["--set", "privacy.delta=2", "--set", "privacy.clip=-1", "--data", "data/nowhere.csv"];
    let (code, text) = check(&wrong);
    assert!(code == Some(2) && text.contains("3 problems") && text.contains("nowhere.csv"), "{text}");
    // Two rows of the file are wrong, and are named both.
    let path = consortium.path("data/peer0.csv");
    let data = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = data.lines().collect();
    (lines[5], lines[9]) = ("1,99,2", "1,two,3");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let (code, text) = check(&["--data", "data/peer0.csv"]);
    assert_eq!(code, Some(2), "{text}");
    for words in ["2 problems", "peer0.csv:6", "the cell is outside", "peer0.csv:10", "the cell is not a number"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (_, text) = check(&["--set", "privacy.delta=0.01"]);
    assert!(text.contains("privacy.delta = 1e-2 is above 1/800"), "{text}");
}
