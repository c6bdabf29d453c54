//! Whether a round succeeds does not depend on records: others see a peer that stops.
//!
//! A neighbour may release any numbers that frames can hold. Whatever it chooses, a client with a certain record and one without it must
//! both complete the round or both fail. The same check is shown to detect the leak of P-ADMM, whose inner solver fails for one of them;
//! peers refuse that algorithm.

mod common;

use common::Client;
use undertone_core::algorithm::Run;
use undertone_core::client::{Cost, LARGEST_VALUE, Protection, RoundError, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::names::Names;
use undertone_core::privacy::{Clipping, Noise};
use undertone_core::records::{Dataset, Scratch};
use undertone_core::study::Study;

const FEATURES: usize = 3;

fn study(algorithm: &str, loss: &str) -> Study {
    // With steps and clips of this size noise alone leaves the range of numbers that can be sent.
    let (clip, delta) = if algorithm.contains("1e12") { (1e12, 1e-7) } else { (0.8, 1e-5) };
    let text = format!(
        "rounds = 12\n[problem]\nloss = {loss}\nregularizer = \"l2\"\nlambda = 0.1\n\
         [data]\nsource = \"synthetic\"\nclients = 2\nfeatures = {FEATURES}\n[graph]\nkind = \"complete\"\n\
         [privacy]\nepsilon = {delta:e}\ndelta = {delta:e}\nclip = {clip:e}\n[algorithm]\n{algorithm}\n"
    );
    Study::parse(&text, "outcomes").unwrap()
}

/// What comes of a round at a client with or without a record that has a one where the neighbour's release is `value`.
fn outcome(study: &Study, has_record: bool, round: u32, value: f64) -> Result<(), RoundError> {
    let mut rows = vec![(vec![0.0, 1.0, 0.5], 0.3); 20];
    if has_record {
        rows[7] = (vec![1.0, 0.0, 0.5], -0.7);
    }
    let client = Client::new(&rows, Some(study.privacy().unwrap().clip()));
    let graph = Graph::from_edges(&Names::numbered(2), &[(0, 1)]).unwrap();
    let problem = study.public_problem().unwrap();
    let run = Run { rounds: study.rounds(), graph: &graph, problem: &problem, robust: None };
    let points = [0.1, 0.2, -0.1, value, 0.3, 0.2];
    let round = run.round(round, 0, None).with_points(&points[..FEATURES], &points);
    let (mut memory, mut released) = (vec![0.0; FEATURES * study.algorithm().memory()], vec![0.0; FEATURES]);
    let state = State { memory: &mut memory, w: &mut [0.0; FEATURES], released: &mut released };
    let budget = study.client_budget("1").unwrap();
    let noise = Noise::secure_with_test_key([5; 32]);
    let protection = Protection::On { budget: &budget, noise: &noise, masks: None, trial: 0 };
    let rules = Rules { algorithm: study.algorithm(), largest: LARGEST_VALUE };
    let release = rules.round(&round, client.records(), protection, state, &mut Scratch::default())?;
    // A round that was noised is always one that can be recorded and sent.
    let sendable = release.values().iter().all(|v| v.abs() < LARGEST_VALUE);
    assert!(!matches!(release.cost(), Cost::Noised(_)) || sendable, "{value:e}: {:?}", release.values());
    Ok(())
}

/// Whether some release of a neighbour makes the two clients end differently.
fn tells(algorithm: &str, loss: &str) -> bool {
    let study = study(algorithm, loss);
    let sizes = (0..=30).map(|exponent| 10f64.powi(exponent)).chain([0.99e30, 2.5e29, 0.26e30]);
    let values: Vec<f64> = sizes.flat_map(|size| [size, -size]).collect();
    (1..=study.rounds()).filter(|n| study.algorithm().touches_records(*n, study.rounds())).any(|round| {
        let differs =
            |value: &f64| outcome(&study, true, round, *value).is_ok() != outcome(&study, false, round, *value).is_ok();
        values.iter().any(differs)
    })
}

#[test]
fn whether_a_round_succeeds_does_not_depend_on_records() {
    for loss in [
        "\"squared\"",
        "\"absolute\"",
        "\"logistic\"",
        "\"hinge\"",
        "\"huber\"\nthreshold = 0.2",
        "\"quantile\"\nlevel = 0.3",
    ] {
        for algorithm in [
            "name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5\nmomentum = 0.5\naverage = 0.5",
            "name = \"free-rounds\"\ndata_rounds = 4\neta = 1e12\nprox = false",
            "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5",
            "name = \"zcdp-nfl\"\nrho = 1e-12\neta = 1e12",
            "name = \"zcdp-grad-nfl\"\neta = 0.5",
            "name = \"zcdp-grad-nfl\"\neta = 1e12",
        ] {
            assert!(!tells(algorithm, loss), "{algorithm}, {loss}: a neighbour learns about a record");
        }
    }
}

#[test]
fn the_check_sees_the_solver_of_p_admm_fail() {
    assert!(tells("name = \"p-admm\"\nrho = 0.4", "\"squared\""));
}

/// Once noise is drawn nothing may end a round, however large it is.
#[test]
fn noise_of_any_size_ends_no_round() {
    for algorithm in [
        "name = \"free-rounds\"\ndata_rounds = 4\neta = 1e12\nprox = false",
        "name = \"zcdp-nfl\"\nrho = 1e-12\neta = 1e12",
        "name = \"zcdp-grad-nfl\"\neta = 1e12",
    ] {
        let study = study(algorithm, "\"absolute\"");
        for round in (1..=study.rounds()).filter(|n| study.algorithm().touches_records(*n, study.rounds())) {
            for has_record in [true, false] {
                assert_eq!(outcome(&study, has_record, round, 1.0), Ok(()), "{algorithm}, round {round}");
            }
        }
    }
}

#[test]
fn a_clip_that_is_not_enforced_protects_nothing() {
    let study = study("name = \"zcdp-grad-nfl\"\neta = 0.5", "\"squared\"");
    let clip = study.privacy().unwrap().clip();
    let graph = Graph::from_edges(&Names::numbered(2), &[(0, 1)]).unwrap();
    let problem = study.public_problem().unwrap();
    let run = Run { rounds: study.rounds(), graph: &graph, problem: &problem, robust: None };
    let (points, budget) = ([0.0; 2 * FEATURES], study.client_budget("1").unwrap());
    let noise = Noise::secure_with_test_key([5; 32]);
    let cost = |clipping| {
        let data = Dataset::new(&[1.0, 0.5, 0.2], &[0.3], FEATURES, clipping);
        let mut released = [0.0; FEATURES];
        let state = State { memory: &mut [], w: &mut [0.0; FEATURES], released: &mut released };
        let protection = Protection::On { budget: &budget, noise: &noise, masks: None, trial: 0 };
        let round = run.round(1, 0, None).with_points(&points[..FEATURES], &points);
        let rules = Rules { algorithm: study.algorithm(), largest: LARGEST_VALUE };
        rules.round(&round, data.records(), protection, state, &mut Scratch::default()).map(|release| release.cost())
    };
    assert!(matches!(cost(Clipping::Enforced(clip)), Ok(Cost::Noised(_))));
    assert!(matches!(cost(Clipping::Assumed(clip)), Ok(Cost::Rehearsed(_))));
    assert_eq!(cost(Clipping::Off), Err(RoundError::Unclipped));
}
