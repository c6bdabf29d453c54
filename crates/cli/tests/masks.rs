//! Studies with masks, between real processes and on the command line.

mod consortium;

use consortium::{Consortium, Ended, distance, errors, numbers, simulate, undertone, until, wait};
use serde_json::Value;

#[test]
fn rehearsing_peers_and_simulator_agree_to_the_last_bit_with_masks() {
    let consortium = Consortium::masked(4, 60, "fast");
    let expected = simulate(&consortium, &[], "simulated");
    wait(&consortium, &mut consortium.spawn_all(&["--rehearsal", "--no-sync"]));
    for k in 0..4 {
        let model = consortium.result(k, "model.json");
        assert_eq!(model["made"]["scaled"], expected["made"]["scaled"]);
        assert_eq!(model["privacy"], expected["privacy"], "all state the same promise");
    }
}

/// Secure masks between processes: they cancel, or they would ruin the model; a killed peer comes back; both epsilons are stated, recorded and
/// limited.
#[test]
fn masks_cancel_between_processes_and_both_epsilons_are_stated() {
    let consortium = Consortium::masked(4, 800, "secure");
    let refused = consortium.command(0).args(["--max-epsilon-alone", "4"]).ended();
    assert_eq!(refused.status.code(), Some(2));
    let text = errors(&refused);
    assert!(text.contains("--max-epsilon-alone 4: ") && text.contains("if all others collude"), "{text}");
    let limits = ["--max-epsilon", "3", "--max-epsilon-alone", "9"];
    let mut children = consortium.spawn_all(&limits);
    until("rounds", || std::fs::read_to_string(consortium.log(1)).is_ok_and(|log| log.contains("standardised")));
    until("more rounds", || consortium.round(1).is_some_and(|round| round >= 150));
    children[1].kill().unwrap();
    children[1].wait().unwrap();
    children[1] = consortium.spawn(1, &limits);
    wait(&consortium, &mut children);
    let models: Vec<Value> = (0..4).map(|k| consortium.result(k, "model.json")).collect();
    assert!(models.iter().all(|model| model["coefficients"] == models[0]["coefficients"]));
    let promise = &models[0]["privacy"];
    assert_eq!((promise["clients"].as_u64(), promise["colluders"].as_u64()), (Some(4), Some(1)));
    let stated = promise["epsilon_if_all_others_collude"].as_f64().unwrap();
    for k in 0..4 {
        let statement = consortium.result(k, "statement.json");
        let (epsilon, alone) =
            (statement["epsilon"].as_f64().unwrap(), statement["epsilon_if_all_others_collude"].as_f64().unwrap());
        assert!(epsilon <= 3.0 && epsilon > 2.999, "{epsilon}");
        // H theta = 2.7 times the rho.
        assert!(alone <= stated && alone > stated * (1.0 - 1e-5), "{alone} against {stated}");
        assert!(alone > 4.5 && alone < 6.5, "{alone}");
        let show = undertone().args(["ledger", "show", "--json"]).arg(consortium.state(k)).ended();
        let show: Value = serde_json::from_slice(&show.stdout).unwrap();
        assert!((show["epsilon"].as_f64().unwrap() / epsilon - 1.0).abs() < 1e-6, "{show}");
        assert!((show["epsilon_if_all_others_collude"].as_f64().unwrap() / alone - 1.0).abs() < 1e-6, "{show}");
        assert_eq!(show["studies"][1]["colluders"], 1);
    }
    let table = undertone().args(["ledger", "show"]).arg(consortium.state(0)).ended();
    assert!(String::from_utf8_lossy(&table.stdout).contains("if all others collude"));
    // The records are y = 2 + 0.5 a - 0.2 b, clamped.
    let (intercept, slopes) = (models[0]["intercept"].as_f64().unwrap(), &models[0]["coefficients"]);
    let found = [(2.0, 2.0), (8.0, 2.0), (5.0, 8.0)]
        .map(|(a, b)| intercept + a * slopes["a"].as_f64().unwrap() + b * slopes["b"].as_f64().unwrap());
    let lost = distance(&found, &[2.6, 5.6, 2.9]);
    assert!(lost < 1.0, "off by {lost}");
}

/// Three peers release noise and nothing else. In their mean the masks, a hundred times as large in variance, are gone: what is left is own noise,
/// within 6 standard errors (a significance of 2e-9).
#[test]
fn only_own_noise_is_left_in_the_mean() {
    const FEATURES: usize = 400;
    let consortium = Consortium::of_noise(3, FEATURES);
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    std::fs::write(
        consortium.path("study.toml"),
        study.replace("clip = 0.25\n", "clip = 0.25\ncolluders = 1\ntheta = 0.99\n"),
    )
    .unwrap();
    wait(&consortium, &mut consortium.spawn_all(&[]));
    let model = numbers(&consortium.result(0, "model.json")["made"]["scaled"]);
    let rho = consortium.result(0, "statement.json")["rho"].as_f64().unwrap();
    let local = (2.0 * 0.25 / 10.0f64).powi(2) / (2.0 * rho);
    let own = local / (2.0 * 0.99) / 3.0;
    let variance = model.iter().map(|w| w * w).sum::<f64>() / FEATURES as f64;
    let error = (2.0 / FEATURES as f64).sqrt();
    assert!((variance / own - 1.0).abs() < 6.0 * error, "{variance} against {own}");
    // A mask that did not cancel would show: each has the variance c^2 = local ((H-1)/(1-theta) - 1/theta)/H^2.
    let mask = local * (1.0 / 0.01 - 1.0 / 0.99) / 4.0;
    assert!(2.0 * mask / 9.0 > own * 10.0);
}

#[test]
fn trust_is_checked_and_accounted_for_on_the_command_line() {
    let account = |more: &[&str]| {
        let output = undertone().args(["account", "--epsilon", "1", "--delta", "1e-5", "--json"]).args(more).ended();
        match output.status.success() {
            true => Ok(serde_json::from_slice::<Value>(&output.stdout).unwrap()),
            false => Err(errors(&output)),
        }
    };
    let found = account(&["--clients", "50", "--colluders", "5"]).unwrap();
    assert_eq!((found["clients"].as_u64(), found["colluders"].as_u64()), (Some(50), Some(5)));
    let alone = found["all_collude"]["exact"].as_f64().unwrap();
    assert!(alone > 5.0 && alone < 7.0, "{alone}");
    assert!(found["noise_in_mean"].as_f64().unwrap() < 0.25);
    assert!(account(&["--clients", "5", "--colluders", "4"]).unwrap_err().contains("at most 3"));
    assert!(account(&["--clients", "5", "--colluders", "1", "--theta", "0.1"]).unwrap_err().contains("--theta = 0.1"));
    assert!(account(&["--colluders", "1"]).is_err());
    let consortium = Consortium::masked(4, 30, "secure");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
    std::fs::write(consortium.path("study.toml"), study.replace("colluders = 1", "colluders = 3")).unwrap();
    let refused = consortium.command(0).ended();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        errors(&refused).contains("study.toml:") && errors(&refused).contains("write at most 2"),
        "{}",
        errors(&refused)
    );
}

/// Parties who do not trust alike do not start.
#[test]
fn different_trust_is_a_different_study() {
    let consortium = Consortium::masked(2, 30, "fast");
    let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap().replace("standardise = 0.2\n", "");
    let study = study.replace("colluders = 1", "colluders = 0").replace("theta = 0.9", "theta = 0.8");
    std::fs::write(consortium.path("study.toml"), &study).unwrap();
    let mut first = consortium.spawn(0, &["--rehearsal", "--no-sync"]);
    until("a start", || std::fs::read_to_string(consortium.log(0)).is_ok_and(|log| log.contains("started")));
    std::fs::write(consortium.path("study.toml"), study.replace("theta = 0.8", "theta = 0.7")).unwrap();
    let mut second = consortium.spawn(1, &["--rehearsal", "--no-sync"]);
    until("a reason", || {
        (0..2).any(|k| std::fs::read_to_string(consortium.log(k)).is_ok_and(|log| log.contains("privacy")))
    });
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
