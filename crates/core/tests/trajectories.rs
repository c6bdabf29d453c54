//! Every algorithm against plain NumPy loops that share no code with it, with the same noise added to both.

mod common;

use common::{Client, Network, numbers, reference, rows, study_text};
use serde_json::Value;
use undertone_core::privacy::Clip;
use undertone_core::study::Study;

fn largest_difference(case: &Value) -> f64 {
    let rows: Vec<_> = case["clients"].as_array().unwrap().iter().map(rows).collect();
    let study = Study::parse(&study_text(case, rows.len(), rows[0][0].0.len()), "reference").unwrap();
    let problem = study.public_problem().unwrap();
    let clip = case["clip"].as_f64().map(|c| Clip::new(c).unwrap());
    let clients = rows.iter().map(|r| Client::new(r, clip)).collect();
    let mut edges = Vec::new();
    for (k, around) in case["neighbours"].as_array().unwrap().iter().enumerate() {
        edges.extend(numbers(around).iter().map(|&l| (k as u32, l as u32)).filter(|(k, l)| k < l));
    }
    let mut network = Network::new(&problem, &edges, clients);
    let mut largest: f64 = 0.0;
    let history = case["w"].as_array().unwrap().iter().zip(case["noise"].as_array().unwrap());
    for (round, (expected, noise)) in (1..).zip(history) {
        let flat = |v: &Value| v.as_array().unwrap().iter().flat_map(numbers).collect::<Vec<f64>>();
        let w = network.step(study.algorithm(), round);
        largest = w.iter().zip(flat(expected)).fold(largest, |m, (a, b)| m.max((a - b).abs()));
        network.released = w.iter().zip(flat(noise)).map(|(w, xi)| w + xi).collect();
    }
    largest
}

#[test]
fn all_algorithms_match_numpy() {
    for case in reference("trajectories") {
        let difference = largest_difference(&case);
        // P-ADMM ends its inner solver at a gradient of 1e-9.
        let tolerance = if case["algorithm"]["name"].as_str().unwrap() == "p-admm" { 1e-8 } else { 1e-10 };
        assert!(difference < tolerance, "{} with {}: {difference:e}", case["algorithm"], case["loss"]);
    }
}

#[test]
fn the_comparison_can_fail() {
    let mut case = reference("trajectories").remove(0);
    case["algorithm"]["rho"] = Value::from(0.700_001);
    assert!(largest_difference(&case) > 1e-10);
}
