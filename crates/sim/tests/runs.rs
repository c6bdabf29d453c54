//! Runs: bits that do not depend on threads, budgets that are not exceeded, data in every layout, errors that name their
//! place.

use undertone_core::study::Study;
use undertone_sim::{Outcome, SimError};

const SMALL: &str = r#"
rounds = 30
[problem]
loss = "absolute"
[data]
source = "synthetic"
clients = 700
records = [7]
features = 3
[graph]
kind = "random"
mean_degree = 3
[algorithm]
name = "zcdp-nfl"
rho = 0.5
eta = 0.5
decay = "sqrt"
[privacy]
epsilon = 2
delta = 1e-5
clip = 2
[simulation]
trials = 3
"#;

fn study(text: &str) -> Study {
    Study::parse(text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn run(text: &str) -> Outcome {
    undertone_sim::run(&study(text), &|_| {}).unwrap_or_else(|e| panic!("{e}"))
}

fn run_on(threads: usize, text: &str) -> Outcome {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| run(text))
}

/// Every number of an outcome that a seed should fix.
fn bits(outcome: &Outcome) -> Vec<u64> {
    let mut bits: Vec<u64> = outcome.clients.iter().chain(&outcome.model.w).map(|v| v.to_bits()).collect();
    for point in &outcome.points {
        let errors = point.error.iter().chain(&point.surrogate_error).flat_map(|e| [&e.w, &e.released, &e.average]);
        for band in errors.chain([&point.objective, &point.consensus]) {
            bits.extend([band.mean, band.q10, band.q90].map(f64::to_bits));
        }
    }
    bits
}

#[test]
fn threads_do_not_change_a_bit() {
    let one = run_on(1, SMALL);
    for threads in [2, 16] {
        assert_eq!(bits(&one), bits(&run_on(threads, SMALL)), "{threads} threads");
    }
    let redrawn = format!("{SMALL}redraw = \"all\"\n");
    assert_eq!(bits(&run_on(1, &redrawn)), bits(&run_on(2, &redrawn)));
    assert_ne!(bits(&one), bits(&run(&redrawn)));
    assert_ne!(bits(&one), bits(&run(&format!("seed = 2\n{SMALL}"))));
}

#[test]
fn thinning_changes_what_is_measured_and_nothing_else() {
    let all = run(SMALL);
    let thin = run(&format!("{SMALL}metrics_every = 7\n"));
    assert_eq!(thin.points.iter().map(|p| p.round).collect::<Vec<_>>(), [7, 14, 21, 28, 30]);
    assert_eq!(all.clients, thin.clients);
    assert_eq!(all.last(), thin.last());
    assert_eq!(all.points[6], thin.points[0]);
}

#[test]
fn the_budget_is_spent_to_the_end_and_never_exceeded() {
    for accountant in ["paper", "cks", "exact"] {
        for tau in ["1", "0.95"] {
            let text = SMALL.replace("clip = 2", &format!("clip = 2\naccountant = \"{accountant}\"\ntau = {tau}"));
            let outcome = run(&text);
            let spent: Vec<f64> = outcome.points.iter().map(|p| p.epsilon.unwrap()).collect();
            assert!(spent.windows(2).all(|w| w[0] <= w[1]) && spent[0] < spent[29] / 2.0);
            assert!(spent[29] <= 2.0 && spent[29] > 2.0 - 1e-8, "{accountant}: {}", spent[29]);
        }
    }
}

#[test]
fn classic_accounting_states_the_epsilon_it_proves() {
    let outcome = run(&SMALL.replace("zcdp-nfl", "dp-nfl"));
    let promised = outcome.epsilon.unwrap();
    assert!(promised <= 2.0 && promised > 2.0 - 1e-6, "{promised}");
    assert_eq!(outcome.to_json()["accountant"], "classic");
    assert!(outcome.points.windows(2).all(|w| w[0].epsilon <= w[1].epsilon && w[1].epsilon < Some(1.0)));
    // The epsilon of every round is below one, so a huge budget cannot be spent, and is not reported as spent.
    let capped = run(&SMALL.replace("zcdp-nfl", "dp-nfl").replace("epsilon = 2", "epsilon = 1e6"));
    assert!(capped.epsilon.unwrap() < 30.0, "{:?}", capped.epsilon);
    // The same noise has a much smaller epsilon by exact accounting.
    let exact = outcome.epsilons().unwrap()[2].1;
    assert!(exact < 1.0, "{exact}");
}

#[test]
fn a_client_with_its_own_budget_sets_the_epsilon_of_the_run() {
    let outcome = run(&format!("{SMALL}\n[client.5]\nphi1 = 0.1\n[client.6]\nphi1 = 1e-6\n"));
    let rho = outcome.last().rho.unwrap();
    assert!((rho - 0.1 * 30.0).abs() < 1e-6, "{rho}");
    assert!(outcome.notices().iter().any(|n| n.contains("more than the study's 2")));
    let plain = run(SMALL);
    let moved = |k: usize| outcome.clients[3 * k..3 * k + 3] != plain.clients[3 * k..3 * k + 3];
    assert!(moved(4) && moved(5));
}

#[test]
fn a_client_may_have_its_own_step_size() {
    let one_round = SMALL.replace("rounds = 30", "rounds = 1");
    let plain = run(&one_round);
    let special = run(&format!("{one_round}\n[client.5]\neta = 0.01\n"));
    for k in 0..700 {
        let same = plain.clients[3 * k..3 * k + 3] == special.clients[3 * k..3 * k + 3];
        assert_eq!(same, k != 4, "client {}", k + 1);
    }
}

#[test]
fn secure_noise_works_and_reports_that_it_does_not_repeat() {
    let text = SMALL.replace("clip = 2", "clip = 2\nnoise = \"secure\"");
    let (one, two) = (run(&text), run(&text));
    assert_ne!(one.clients, two.clients);
    assert!(one.notices()[0].contains("secure"));
    let fast = run(SMALL).last().error.unwrap().released.mean;
    let secure = one.last().error.unwrap().released.mean;
    assert!((secure / fast).ln().abs() < 0.3, "secure {secure}, fast {fast}");
}

#[test]
fn runs_without_privacy_report_it() {
    let off = run(&SMALL
        .replace("[privacy]\nepsilon = 2\ndelta = 1e-5\nclip = 2", "")
        .replace("rounds", "privacy = \"off\"\nrounds"));
    assert!(off.notices()[0].contains("PRIVACY IS OFF"));
    assert!(off.to_json()["epsilon"].is_null());
    assert!(run(SMALL).notices()[0].contains("fast"));
}

#[test]
fn too_large_for_a_central_solution_is_skipped_and_reported() {
    let text = SMALL.replace("records = [7]", "records = 1000").replace("rounds = 30", "rounds = 2");
    let outcome = run(&text);
    assert!(outcome.last().error.is_none());
    assert!(outcome.notices().iter().any(|n| n.contains("too many to solve centrally")));
    assert!(outcome.to_json()["normalized_error"]["w"].is_null());
}

#[test]
fn divergence_ends_with_the_round_and_a_remedy() {
    let text = "rounds = 2000\nprivacy = \"off\"\n[problem]\nloss = \"squared\"\n\
        [data]\nsource = \"synthetic\"\nclients = 5\nfeatures = 3\n[graph]\nkind = \"ring\"\n\
        [algorithm]\nname = \"zcdp-grad-nfl\"\neta = 100\n";
    let error = undertone_sim::run(&study(text), &|_| {}).unwrap_err();
    assert!(matches!(error, SimError::Diverged { .. }) && error.to_string().contains("lower eta"), "{error}");
}

#[test]
fn unknown_clients_are_named() {
    let error = undertone_sim::run(&study(&format!("{SMALL}\n[client.9999]\neta = 1\n")), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("client.9999") && error.to_string().contains("\"700\""), "{error}");
}
