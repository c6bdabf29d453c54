//! Every kind of graph: connected, of the wanted shape, the same for the same seed; and what is refused.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::graph::{Graph, GraphSpec};
use undertone_core::names::Names;

fn build(spec: &GraphSpec, clients: usize, seed: u64) -> Result<Graph, String> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    spec.build(&Names::numbered(clients), &mut rng).map_err(|e| e.to_string())
}

fn degrees(graph: &Graph) -> Vec<usize> {
    (0..graph.clients()).map(|k| graph.degree(k)).collect()
}

#[test]
fn kinds_have_their_shapes() {
    let edges = |spec, k| build(&spec, k, 1).unwrap().edges();
    assert_eq!(edges(GraphSpec::Random { mean_degree: 3.0 }, 50), 75);
    assert_eq!(edges(GraphSpec::Random { mean_degree: 40.0 }, 50), 1000);
    assert_eq!(edges(GraphSpec::Ring, 7), 7);
    assert_eq!(edges(GraphSpec::Ring, 2), 1);
    assert_eq!(edges(GraphSpec::Star, 7), 6);
    assert_eq!(edges(GraphSpec::Grid, 9), 12);
    assert_eq!(edges(GraphSpec::Complete, 7), 21);
    assert_eq!(edges(GraphSpec::SmallWorld { degree: 4, rewire: 0.0 }, 20), 40);
    let regular = build(&GraphSpec::Regular { degree: 3 }, 50, 1).unwrap();
    assert!(degrees(&regular).iter().all(|&d| d == 3));
    for k in 2..40 {
        build(&GraphSpec::Grid, k, 1).unwrap();
    }
}

#[test]
fn neighbours_are_mutual_sorted_and_never_oneself() {
    for spec in [GraphSpec::Random { mean_degree: 4.0 }, GraphSpec::SmallWorld { degree: 4, rewire: 0.5 }] {
        for seed in 0..20 {
            let graph = build(&spec, 30, seed).unwrap();
            for k in 0..30 {
                let around = graph.neighbours(k);
                assert!(around.windows(2).all(|w| w[0] < w[1]));
                assert!(around.iter().all(|&l| l as usize != k && graph.neighbours(l as usize).contains(&(k as u32))));
            }
        }
    }
}

#[test]
fn same_seed_same_graph() {
    for spec in [
        GraphSpec::Random { mean_degree: 3.0 },
        GraphSpec::SmallWorld { degree: 4, rewire: 0.3 },
        GraphSpec::Regular { degree: 4 },
    ] {
        assert_eq!(build(&spec, 40, 7), build(&spec, 40, 7));
        assert_ne!(build(&spec, 40, 7), build(&spec, 40, 8));
    }
}

#[test]
fn disconnected_graphs_are_refused_by_their_components() {
    let names = Names::listed(["oslo", "lund", "bern", "rome"].map(String::from).to_vec());
    let pairs = [("oslo", "lund"), ("rome", "bern")].map(|(a, b)| (a.to_string(), b.to_string()));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let error = GraphSpec::Edges(pairs.to_vec()).build(&names, &mut rng).unwrap_err().to_string();
    assert!(
        error.contains("2 components") && error.contains("{oslo, lund}") && error.contains("{bern, rome}"),
        "{error}"
    );
}

#[test]
fn impossible_graphs_are_refused_with_the_range_that_is_possible() {
    for (spec, word) in [
        (GraphSpec::Random { mean_degree: 0.5 }, "mean degree from 1.8"),
        (GraphSpec::Random { mean_degree: 20.0 }, "mean degree"),
        (GraphSpec::SmallWorld { degree: 3, rewire: 0.1 }, "even degree"),
        (GraphSpec::Regular { degree: 1 }, "degree from 2 to 5"),
        (GraphSpec::Regular { degree: 10 }, "degree from 2 to 5"),
        (GraphSpec::Edges(vec![("1".into(), "99".into())]), "\"99\""),
        (GraphSpec::Edges(vec![("1".into(), "1".into())]), "two different"),
        (GraphSpec::Edges(vec![]), "10 components"),
    ] {
        let error = build(&spec, 10, 1).unwrap_err();
        assert!(error.contains(word), "{spec:?}: {error}");
    }
}
