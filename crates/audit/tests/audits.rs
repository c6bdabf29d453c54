//! Every private algorithm keeps its claim and is seen to come near it; and an audit sees what is wrong where something is.
//!
//! Where noise is seeded every run is the same. Where it is secure, an audit of these tests says by chance that a claim is broken in one of a million runs, and
//! that too little of it is proven in less than one of three million: five standard deviations.

use std::time::Duration;

use undertone_audit::bound::{epsilon_of, normal_quantile};
use undertone_audit::{Attack, Findings, Options, audit};
use undertone_core::names::Names;
use undertone_core::privacy::Delta;
use undertone_core::study::{BudgetSpec, Study};
use undertone_core::watch::Unwatched;

const FREE_ROUNDS: &str =
    "name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5\ndecay = \"sqrt\"\nmomentum = 0.5\naverage = 0.5";
const ZCDP: &str = "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5";

fn study(loss: &str, algorithm: &str, privacy: &str) -> Study {
    let text = format!(
        "rounds = 12\n[problem]\nloss = {loss}\n[data]\nsource = \"synthetic\"\nclients = 6\nfeatures = 8\n\
         [graph]\nkind = \"ring\"\n[privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 0.4\ntau = 0.9\n{privacy}\n[algorithm]\n{algorithm}\n"
    );
    Study::parse(&text, "audit").unwrap()
}

/// Without a limit of time, so that the result does not depend on the machine.
fn found(study: &Study, trials: Option<u64>) -> Findings {
    // One false alarm in a million runs of these tests is enough.
    let options = Options { trials, most: Duration::MAX, alpha: 1e-6, ..Options::default() };
    audit(study, &Names::numbered(6), &options, &Unwatched).unwrap()
}

/// Asserts that nothing is refuted, and that so much of each claim is proven.
fn keeps(findings: &Findings, least: [f64; 2]) {
    assert_eq!(findings.parts.len(), 2);
    for (part, least) in findings.parts.iter().zip(least) {
        let name = format!("{} {} {:?} {}", findings.algorithm, findings.noise, findings.colluders, part.name);
        assert!(!part.is_violated(), "{name}: {part:?}");
        // Secure noise is new in every run, and may prove so much less by chance.
        let chance = if findings.noise == "secure" { five_deviations(&part.attacks) } else { 0.0 };
        let share = (part.proven() + chance) / part.claimed;
        assert!(share > least, "{name}: only {share} of the claim is proven: {:?}", part.attacks);
    }
}

/// By how much the epsilon of the best attack moves if its wrong guesses move by five standard deviations.
fn five_deviations(attacks: &[Attack]) -> f64 {
    let best = attacks.iter().max_by(|a, b| a.epsilon.total_cmp(&b.epsilon)).expect("there is an attack");
    let (delta, p) = (Delta::new(1e-5).unwrap(), best.wrong as f64 / best.trials as f64);
    let deviation = (p * (1.0 - p) / best.trials as f64).sqrt();
    // Wrong with probability p = Phi(-mu/2).
    let mu = |p: f64| -2.0 * normal_quantile(p);
    epsilon_of(best.mu + mu(p - 5.0 * deviation) - mu(p), delta) - epsilon_of(best.mu, delta)
}

#[test]
fn every_algorithm_keeps_its_claim_and_comes_near_it() {
    for algorithm in [
        FREE_ROUNDS,
        "name = \"free-rounds\"\ndata_rounds = 11\neta = 0.5\nprox = false\nmixing = \"metropolis\"",
        "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5\naverage = 0.5",
        ZCDP,
        "name = \"zcdp-grad-nfl\"\neta = 0.5",
    ] {
        for privacy in ["noise = \"fast\"", "noise = \"secure\"", "noise = \"fast\"\ncolluders = 2"] {
            // As many trials as it takes for the first, fewer for the others.
            let (trials, least) =
                if algorithm == FREE_ROUNDS { (None, [0.9, 0.97]) } else { (Some(120_000), [0.75, 0.93]) };
            keeps(&found(&study("\"absolute\"", algorithm, privacy), trials), least);
        }
    }
}

#[test]
fn masks_of_pairs_keep_the_claim_too() {
    keeps(&found(&study("\"absolute\"", FREE_ROUNDS, "noise = \"secure\"\ncolluders = 2"), Some(50_000)), [0.6, 0.9]);
    keeps(
        &found(&study("\"absolute\"", ZCDP, "noise = \"secure\"\ncolluders = 1\ntheta = 0.9"), Some(50_000)),
        [0.6, 0.9],
    );
}

#[test]
fn every_loss_can_be_audited() {
    for loss in ["\"squared\"", "\"huber\"\nthreshold = 0.2", "\"quantile\"\nlevel = 0.3", "\"hinge\"", "\"logistic\""]
    {
        let findings = found(&study(loss, FREE_ROUNDS, ""), Some(60_000));
        // Both labels of a classification reach the clip near zero only.
        let least = if ["hinge", "logistic"].contains(&findings.loss) { [0.2, 0.6] } else { [0.7, 0.9] };
        keeps(&findings, least);
    }
}

#[test]
fn four_hundredths_too_much_are_refuted() {
    let mut spec = study("\"absolute\"", ZCDP, "").spec().clone();
    spec.privacy.as_mut().unwrap().budget = BudgetSpec::Epsilon(10.4);
    let findings = found(&spec.check().unwrap(), None);
    assert!(findings.parts[0].proven() > 10.0, "{:?}", findings.parts[0].attacks);
}

#[test]
fn a_client_with_a_budget_of_its_own_has_a_claim_of_its_own() {
    let text = study("\"absolute\"", ZCDP, "").to_toml() + "[client.2]\nphi1 = 0.02\n[client.5]\nphi1 = 0.02\n";
    let findings = found(&Study::parse(&text, "own").unwrap(), Some(60_000));
    // The common budget and the own one; near epsilon 10 there is only the common one.
    let claims: Vec<f64> = findings.parts.iter().map(|part| part.claimed).collect();
    assert!(claims.len() == 3 && claims[1] > 2.0 * claims[0], "{claims:?}");
    for part in &findings.parts {
        assert!(!part.is_violated() && part.proven() > 0.7 * part.claimed, "{part:?}");
    }
}

#[test]
fn p_admm_is_refuted_by_its_stops() {
    let findings = found(&study("\"squared\"", "name = \"p-admm\"\nrho = 0.4", ""), Some(2000));
    let part = &findings.parts[0];
    assert!(part.is_violated() && part.stops.epsilon > part.claimed, "{:?}", part.stops);
    assert!(part.attacks.iter().all(|attack| attack.epsilon <= part.claimed), "its noise is right");
}

#[test]
fn standardisation_and_the_closing_release_are_audited_as_well() {
    let text = "rounds = 12\n[problem]\nloss = \"absolute\"\n\
                [data]\nsource = \"stand-in\"\nclients = 6\nrecords = 20\nfeatures = [\"a\", \"b\"]\ntarget = \"y\"\nintercept = true\n\
                bounds.a = [0, 1]\nbounds.b = [0, 1]\nbounds.y = [0, 1]\n[graph]\nkind = \"ring\"\n\
                [privacy]\nepsilon = 2\ndelta = 1e-5\nclip = 0.4\nstandardise = 0.3\n[algorithm]\nname = \"free-rounds\"\ndata_rounds = 4\neta = 0.5\n";
    let text = text.replace("[graph]", "[inference]\nlevel = 0.9\n[graph]").replace("\"absolute\"", "\"squared\"");
    let findings = found(&Study::parse(&text, "standardised").unwrap(), Some(200_000));
    // Each of three stages at two budgets.
    assert_eq!(findings.parts.len(), 6);
    for part in &findings.parts {
        assert!(!part.is_violated() && part.proven() > 0.75 * part.claimed, "{part:?}");
    }
}
