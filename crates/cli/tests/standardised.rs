//! Studies that standardise their columns privately, between real processes.

mod consortium;

use consortium::{Consortium, Ended, distance, errors, numbers, simulate, undertone, until, wait};
use serde_json::Value;

/// Peers whose study spends a part of its budget on private means and spreads first.
fn standardising(count: usize, rounds: u32, noise: &str) -> Consortium {
    let consortium = Consortium::new(count, rounds, "kind = \"ring\"", noise);
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    let study = study.replace("clip = 0.5\n", "clip = 0.5\nstandardise = 0.2\n");
    std::fs::write(consortium.path("study.toml"), study).unwrap();
    consortium
}

/// The same noise gives peers and simulator the same moments, hence the same map, hence the same model.
#[test]
fn standardising_peers_and_simulator_agree_to_the_last_bit() {
    let consortium = standardising(4, 60, "fast");
    let expected = simulate(&consortium, &[], "simulated");
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal", "--no-sync"]));
    for k in 0..4 {
        let model = consortium.result(k, "model.json");
        assert_eq!(model["made"]["scaled"], expected["made"]["scaled"]);
        assert_eq!(model["coefficients"], expected["coefficients"]);
    }
    // The check can fail: without standardisation the model is another one.
    let plain = simulate(&consortium, &["--set", "privacy.standardise=0.3"], "other");
    assert!(distance(&numbers(&plain["made"]["scaled"]), &numbers(&expected["made"]["scaled"])) > 1e-9);
}

/// Moments and rounds are two entries of one ledger, which together cost what the study says; a peer that is killed comes back.
#[test]
fn moments_are_recorded_charged_and_survive_a_kill() {
    let consortium = standardising(3, 1500, "secure");
    let refused = consortium.command(0).args(["--max-epsilon", "2.9"]).ended();
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors(&refused).contains("would have spent epsilon 3.0000"), "{}", errors(&refused));
    let mut children = consortium.spawn_all(&["--max-epsilon", "3"]);
    // In the middle of the rounds: what they spent already must not be counted a second time as what is still to come.
    until("rounds", || std::fs::read_to_string(consortium.log(1)).is_ok_and(|log| log.contains("standardised")));
    until("more rounds", || consortium.round(1).is_some_and(|round| round >= 150));
    children[1].kill().unwrap();
    children[1].wait().unwrap();
    children[1] = consortium.spawn(1, &["--max-epsilon", "3"]);
    wait(&consortium, &mut children);
    let models: Vec<Value> = (0..3).map(|k| consortium.result(k, "model.json")).collect();
    assert!(models.iter().all(|model| model["coefficients"] == models[0]["coefficients"]));
    for k in 0..3 {
        let statement = consortium.result(k, "statement.json");
        let (rho, before) = (&statement["rho"], &statement["rho_of_standardisation"]);
        assert!((before.as_f64().unwrap() / rho.as_f64().unwrap() - 0.2).abs() < 1e-6, "{statement}");
        let epsilon = statement["epsilon"].as_f64().unwrap();
        assert!(epsilon <= 3.0 && epsilon > 2.999, "{epsilon}");
        let show = undertone().args(["ledger", "show", "--json"]).arg(consortium.state(k)).ended();
        let show: Value = serde_json::from_slice(&show.stdout).unwrap();
        assert_eq!(show["studies"].as_array().unwrap().len(), 2);
        assert!((show["epsilon"].as_f64().unwrap() / epsilon - 1.0).abs() < 1e-6, "{show}");
    }
}

/// The map is made once. Whatever the peer is told about the moments later, its rounds are not begun a second time.
#[test]
fn the_map_is_made_once() {
    let consortium = standardising(3, 30, "secure");
    wait(&consortium, &mut consortium.spawn_all(&[]));
    let moments = std::fs::read_dir(consortium.state(0)).unwrap().map(|entry| entry.unwrap().path());
    let moments = moments.into_iter().find(|path| path.to_string_lossy().contains("trial-moments")).unwrap();
    assert!(!moments.join("model.json").exists(), "moments are no model");
    let again = || consortium.command(0).ended();
    let studies = || {
        let show = undertone().args(["ledger", "show", "--json"]).arg(consortium.state(0)).ended();
        serde_json::from_slice::<Value>(&show.stdout).unwrap()["studies"].as_array().unwrap().len()
    };
    let output = again();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(studies(), 2);
    let map = std::fs::read(moments.join("map")).unwrap();
    std::fs::write(moments.join("map"), &map[1..]).unwrap();
    let output = again();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("map: is damaged"), "{}", errors(&output));
}

/// A row that only the rounds would refuse is found before the moments are paid for.
#[test]
fn an_empty_target_is_refused_before_the_moments() {
    let consortium = standardising(2, 30, "secure");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    std::fs::write(consortium.path("study.toml"), study.replace("[graph]", "missing = \"mean\"\n[graph]")).unwrap();
    let data = std::fs::read_to_string(consortium.path("data/peer0.csv")).unwrap();
    let (head, rest) = data.split_once("\n").unwrap();
    let (row, rest) = rest.split_once("\n").unwrap();
    let emptied = format!("{},", row.rsplit_once(',').unwrap().0);
    std::fs::write(consortium.path("data/peer0.csv"), format!("{head}\n{emptied}\n{rest}")).unwrap();
    let output = consortium.command(0).ended();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("peer0.csv:2: column \"y\": the cell is empty"), "{}", errors(&output));
    assert!(!consortium.state(0).exists(), "nothing was begun");
}

/// A file with other records than agreed is refused before anything is sent.
#[test]
fn a_file_that_does_not_fit_is_refused_with_both_numbers() {
    let consortium = Consortium::new(2, 10, "kind = \"ring\"", "secure");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    std::fs::write(consortium.path("study.toml"), study.replace("records = 400", "records = [400, 300]")).unwrap();
    let output = consortium.command(1).ended();
    assert_eq!(output.status.code(), Some(2));
    let text = errors(&output);
    assert!(text.contains("data.records is 300 for peer1") && text.contains("400 records"), "{text}");
}
