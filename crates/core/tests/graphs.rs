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

/// The eigenvalues of a dense symmetric matrix in ascending order, by Jacobi's rotations.
fn eigenvalues(mut a: Vec<Vec<f64>>) -> Vec<f64> {
    let size = a.len();
    for _ in 0..50 {
        for p in 0..size {
            for q in p + 1..size {
                if a[p][q].abs() < 1e-300 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let tangent = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
                let sine = tangent * cosine;
                for row in &mut a {
                    (row[p], row[q]) = (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
                }
                let (above, below) = a.split_at_mut(q);
                for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
                    (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
                }
            }
        }
    }
    let mut values: Vec<f64> = (0..size).map(|i| a[i][i]).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// D + sign A.
fn laplacian(graph: &Graph, sign: f64) -> Vec<Vec<f64>> {
    let entry = |k: usize, l: usize| match graph.neighbours(k).contains(&(l as u32)) {
        _ if k == l => graph.degree(k) as f64,
        true => sign,
        false => 0.0,
    };
    (0..graph.clients()).map(|k| (0..graph.clients()).map(|l| entry(k, l)).collect()).collect()
}

#[test]
fn extreme_eigenvalues_are_those_of_the_dense_matrices_and_never_zero() {
    let kinds = [
        GraphSpec::Ring,
        GraphSpec::Star,
        GraphSpec::Grid,
        GraphSpec::Complete,
        GraphSpec::Random { mean_degree: 3.0 },
        GraphSpec::Random { mean_degree: 1.9 },
        GraphSpec::SmallWorld { degree: 4, rewire: 0.2 },
        GraphSpec::Regular { degree: 4 },
    ];
    let mut bipartite = 0;
    let mut check = |graph: &Graph, what: &str| {
        let spectrum = graph.spectrum();
        let [minus, plus] = [-1.0, 1.0].map(|sign| eigenvalues(laplacian(graph, sign)));
        let least = |values: &[f64]| values.iter().copied().find(|v| *v > 1e-9).unwrap();
        let largest = |values: &[f64]| values[values.len() - 1];
        let expected = [least(&minus), largest(&minus), least(&plus), largest(&plus)];
        let found = [spectrum.laplacian_min, spectrum.laplacian_max, spectrum.signless_min, spectrum.signless_max];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5 * expected, "{what}: {found} is not {expected}");
        }
        bipartite += usize::from(plus[0] < 1e-9);
    };
    for spec in &kinds {
        for clients in [8, 13, 24, 25] {
            check(&build(spec, clients, 3).unwrap(), &format!("{spec:?} of {clients}"));
        }
    }
    for pairs in
        [vec![(0, 1)], vec![(0, 1), (1, 2)], vec![(0, 1), (1, 2), (0, 2)], vec![(0, 1), (1, 2), (0, 2), (2, 3)]]
    {
        let clients = 1 + pairs.iter().map(|(a, b)| *a.max(b)).max().unwrap();
        check(&Graph::from_edges(&Names::numbered(clients as usize), &pairs).unwrap(), &format!("{pairs:?}"));
    }
    // Trees, stars, grids and even rings are bipartite, the rest is not: both cases were tested often.
    assert!((15..25).contains(&bipartite), "{bipartite} of 36 graphs");
}

/// One edge more makes an odd circle of a large grid: the least eigenvalue is then above zero by little.
#[test]
fn a_graph_is_bipartite_exactly_or_not_at_all() {
    let right = (0..100u32).filter(|k| k % 10 < 9).map(|k| (k, k + 1));
    let grid: Vec<(u32, u32)> = right.chain((0..90).map(|k| (k, k + 10))).collect();
    let names = Names::numbered(100);
    let minimum = |edges: &[(u32, u32)]| {
        let graph = Graph::from_edges(&names, edges).unwrap();
        let dense = eigenvalues(laplacian(&graph, 1.0));
        (graph.spectrum().signless_min, dense[0], dense[1])
    };
    let (found, first, second) = minimum(&grid);
    assert!(first.abs() < 1e-9 && (found / second - 1.0).abs() < 1e-8, "{found}, not {second}");
    let (found, first, _) = minimum(&[&grid[..], &[(0, 11)]].concat());
    assert!(first > 1e-6 && (found / first - 1.0).abs() < 1e-6, "{found}, not {first}");
}
