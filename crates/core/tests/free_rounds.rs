//! Free rounds: what it computes, against the definition written with full matrices; how fast its gossip is; which rounds
//! are data rounds; and what its budget costs.

mod common;

use common::{Client, Network};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::algorithm::free_rounds::{FreeRounds, Mixing};
use undertone_core::algorithm::{Algorithm, Decay, StepSize};
use undertone_core::graph::{Gossip, Graph, GraphSpec};
use undertone_core::loss::{AnyLoss, Squared};
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Budget, Delta, Epsilon};
use undertone_core::problem::Problem;
use undertone_core::records::Scratch;
use undertone_core::regularizer::Regularizer;
use undertone_core::study::Study;

type Matrix = Vec<Vec<f64>>;

fn graph(spec: GraphSpec, clients: usize) -> Graph {
    spec.build(&Names::numbered(clients), &mut Xoshiro256PlusPlus::seed_from_u64(3)).unwrap()
}

/// The Metropolis weights, written out.
fn metropolis(graph: &Graph) -> Matrix {
    let row = |k: usize| {
        let mut row = vec![0.0; graph.clients()];
        for &l in graph.neighbours(k) {
            row[l as usize] = 1.0 / (1.0 + graph.degree(k).max(graph.degree(l as usize)) as f64);
        }
        row[k] = 1.0 - row.iter().sum::<f64>();
        row
    };
    (0..graph.clients()).map(row).collect()
}

fn times(matrix: &Matrix, vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

/// T_j((W - m)/h) v/T_j((1 - m)/h), by Chebyshev's own recursion for numerator and denominator.
fn chebyshev(graph: &Graph, steps: u32, v: &[f64]) -> Vec<f64> {
    let w = metropolis(graph);
    let (low, high) = graph.spectrum().metropolis;
    let (m, h) = ((low + high) / 2.0, (high - low) / 2.0);
    let scaled = |v: &[f64]| -> Vec<f64> { times(&w, v).iter().zip(v).map(|(a, b)| (a - m * b) / h).collect() };
    let z = (1.0 - m) / h;
    let (mut before, mut now) = (v.to_vec(), scaled(v));
    let (mut t_before, mut t_now) = (1.0, z);
    for _ in 1..steps {
        let next = scaled(&now).iter().zip(&before).map(|(a, b)| 2.0 * a - b).collect();
        (before, now) = (now, next);
        (t_before, t_now) = (t_now, 2.0 * z * t_now - t_before);
    }
    now.iter().map(|v| v / t_now).collect()
}

fn method(mixing: Mixing, prox: bool, momentum: f64, average: f64) -> FreeRounds {
    let eta = StepSize { eta: 0.4, decay: Decay::Sqrt };
    FreeRounds { data_rounds: 5, eta, momentum, average, prox, mixing }
}

/// The definition, epoch by epoch, with one feature.
fn by_definition(network: &Network, method: &FreeRounds, rounds: u32) -> Vec<f64> {
    let clients = network.clients.len();
    let starts: Vec<u32> = (0..5).map(|s| 1 + s * rounds / 5).chain([rounds + 1]).collect();
    let (mut x, mut before) = (vec![0.0; clients], vec![0.0; clients]);
    let mut points: Vec<Vec<f64>> = Vec::new();
    for s in 0..5 {
        let eta = 0.4 / ((s + 1) as f64).sqrt();
        let v: Vec<f64> = (0..clients)
            .map(|k| {
                let mut g = [0.0];
                let records = network.clients[k].records();
                records.gradient(network.problem.loss, &x[k..=k], 1.0, &mut Scratch::default(), &mut g);
                if !method.prox {
                    network.problem.add_regularizer_subgradient(1.0, clients, &x[k..=k], 1, &mut g);
                }
                x[k] + method.momentum * (x[k] - before[k]) - eta * g[0]
            })
            .collect();
        // The last release of an epoch is mixed once more by its readers, except at the end.
        let steps = starts[s + 1] - starts[s] - u32::from(s == 4);
        let mut v = match method.mixing {
            Mixing::Chebyshev => chebyshev(&network.graph, steps, &v),
            Mixing::Metropolis => (0..steps).fold(v, |v, _| times(&metropolis(&network.graph), &v)),
        };
        if method.prox {
            v.iter_mut().for_each(|v| network.problem.prox(eta, clients, 1, std::slice::from_mut(v)));
        }
        before = std::mem::replace(&mut x, v);
        points.push(x.clone());
    }
    let averaged = ((method.average * 5.0).ceil() as usize).max(1);
    (0..clients).map(|k| points[5 - averaged..].iter().map(|x| x[k]).sum::<f64>() / averaged as f64).collect()
}

#[test]
fn rounds_follow_the_definition() {
    let problem = Problem {
        loss: AnyLoss::Squared(Squared),
        regularizer: Regularizer::ElasticNet { l1: 1.5, l2: 0.5 },
        lambda: 1.0,
        intercept: false,
    };
    let edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (1, 5), (0, 3)];
    for (mixing, prox, momentum, average) in [
        (Mixing::Chebyshev, true, 0.0, 0.0),
        (Mixing::Chebyshev, true, 0.3, 0.6),
        (Mixing::Chebyshev, false, 0.3, 1.0),
        (Mixing::Metropolis, true, 0.5, 0.2),
    ] {
        let method = method(mixing, prox, momentum, average);
        for rounds in [6, 17, 23, 100] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
            let mut row = || (vec![rng.random_range(-1.0..1.0)], rng.random_range(-2.0..2.0));
            let clients = (0..7).map(|_| Client::new(&[row(), row(), row(), row()], None)).collect();
            let mut network = Network::new(&problem, &edges, clients);
            network.rounds = rounds;
            let expected = by_definition(&network, &method, rounds);
            for round in 1..=rounds {
                network.released = network.step(&method, round);
            }
            for (got, expected) in network.released.iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-9, "{mixing:?} in {rounds}: {got} is not {expected}");
            }
        }
    }
}

#[test]
fn data_rounds_are_spread_evenly_and_the_last_round_is_free() {
    for (rounds, data_rounds) in [(200, 15), (200, 1), (200, 199), (7, 3), (2, 1)] {
        let method = FreeRounds { data_rounds, ..method(Mixing::Chebyshev, true, 0.0, 0.0) };
        let touched: Vec<u32> = (1..=rounds).filter(|&n| method.touches_records(n, rounds)).collect();
        assert_eq!(touched.len() as u32, data_rounds);
        assert!(touched[0] == 1 && *touched.last().unwrap() < rounds);
        let gaps: Vec<u32> = touched.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| gap.abs_diff(rounds / data_rounds) <= 1), "{gaps:?}");
    }
}

const STUDY: &str = "rounds = 40\n[problem]\nloss = \"absolute\"\n\
    [data]\nsource = \"synthetic\"\nclients = 9\nfeatures = 2\n[graph]\nkind = \"ring\"\n\
    [privacy]\nepsilon = 2\ndelta = 1e-5\nclip = 1\ntau = 0.8\n[algorithm]\nname = \"free-rounds\"\neta = 0.5\n";

#[test]
fn only_data_rounds_cost_and_together_they_cost_the_budget() {
    let study = Study::parse(&format!("{STUDY}data_rounds = 6\n"), "t").unwrap();
    let schedule = study.privacy().unwrap().schedule();
    let costly: Vec<u32> = (1..=40).filter(|&n| schedule.phi(n).get() > 0.0).collect();
    assert_eq!(costly, [1, 7, 14, 21, 27, 34]);
    for pair in costly.windows(2) {
        let growth = schedule.phi(pair[1]).get() / schedule.phi(pair[0]).get();
        assert!((growth - 1.0 / 0.8).abs() < 1e-9, "{growth}");
    }
    let (epsilon, delta) = (Epsilon::new(2.0).unwrap(), Delta::new(1e-5).unwrap());
    let total = Accountant::Exact.rho(epsilon, delta).get();
    assert!(schedule.spent(40).get() <= total && schedule.spent(40).get() > total * (1.0 - 1e-9));
    assert_eq!(schedule.spent(6), schedule.spent(1));
    // The same total spread over every round would give different noise.
    let all = Budget::Epsilon(epsilon).schedule(Accountant::Exact, delta, 40, 1.0, 1.0).unwrap();
    assert!(schedule.phi(34).get() > 6.0 * all.phi(34).get());
}

#[test]
fn wrong_parameters_are_named() {
    let eta_of_its_own = "data_rounds = 6\n[client.1]\neta = 0.1\n";
    for (line, word) in [
        ("", "data_rounds is missing"),
        ("data_rounds = 0\n", "from 1 to"),
        ("data_rounds = 40\n", "must be less than rounds = 40"),
        ("data_rounds = 6\nmomentum = 1\n", "from 0 to below 1"),
        ("data_rounds = 6\naverage = 2\n", "from 0 to 1"),
        ("data_rounds = 6\nmixing = \"chebychev\"\n", "did you mean \"chebyshev\"?"),
        ("data_rounds = 6\nprox = 1\n", "true or false"),
        (eta_of_its_own, "free-rounds does not take"),
    ] {
        let error = Study::parse(&format!("{STUDY}{line}"), "t").unwrap_err().to_string();
        assert!(error.contains(word), "{line}: {error}");
    }
}

#[test]
fn extreme_eigenvalues_are_those_of_the_textbook() {
    let near = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-7, "{got} is not {expected}");
    let turn = |j: usize, k: usize| (2.0 * std::f64::consts::PI * j as f64 / k as f64).cos();
    for clients in [5, 50, 500] {
        let ring = graph(GraphSpec::Ring, clients).spectrum();
        near(ring.laplacian_min, 2.0 - 2.0 * turn(1, clients));
        near(ring.laplacian_max, 2.0 - 2.0 * turn(clients / 2, clients));
        // Of a ring of even length the least eigenvalue is zero, and the next one counts.
        near(ring.signless_min, 2.0 + 2.0 * turn((clients - 1) / 2, clients));
        near(ring.signless_max, 4.0);
        near(ring.metropolis.1, 1.0 / 3.0 + 2.0 / 3.0 * turn(1, clients));
        near(ring.metropolis.0, 1.0 / 3.0 + 2.0 / 3.0 * turn(clients / 2, clients));
    }
    let complete = graph(GraphSpec::Complete, 8).spectrum();
    near(complete.laplacian_min, 8.0);
    near(complete.signless_min, 6.0);
    near(complete.signless_max, 14.0);
    near(complete.metropolis.0, 0.0);
    near(complete.metropolis.1, 0.0);
    let star = graph(GraphSpec::Star, 10).spectrum();
    near(star.laplacian_min, 1.0);
    near(star.laplacian_max, 10.0);
    near(star.signless_min, 1.0);
    near(star.noise_factor(), 4.0 * (100.0 + 100.0));
    let pair = graph(GraphSpec::Ring, 2).spectrum();
    near(pair.laplacian_min, 2.0);
    near(pair.metropolis.1, 0.0);
}

/// Distance from the mean after so many steps, relative to the start.
fn left(graph: &Graph, gossip: Gossip, steps: u32, start: &[f64]) -> f64 {
    let w = metropolis(graph);
    let (mut before, mut now) = (start.to_vec(), start.to_vec());
    for step in 1..=steps {
        let (mean, own, last) = gossip.weights(step);
        assert!((mean + own + last - 1.0).abs() < 1e-12, "the mean is kept");
        let mixed = times(&w, &now);
        let next = (0..now.len()).map(|k| mean * mixed[k] + own * now[k] + last * before[k]).collect();
        (before, now) = (now, next);
    }
    let centre = start.iter().sum::<f64>() / start.len() as f64;
    let distance = |v: &[f64]| v.iter().map(|v| (v - centre).powi(2)).sum::<f64>().sqrt();
    distance(&now) / distance(start)
}

#[test]
fn gossip_keeps_the_mean_and_is_as_fast_as_chebyshev_allows() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    for (spec, clients) in [
        (GraphSpec::Ring, 30),
        (GraphSpec::Random { mean_degree: 3.0 }, 50),
        (GraphSpec::Star, 20),
        (GraphSpec::Grid, 25),
        (GraphSpec::Complete, 6),
    ] {
        let graph = graph(spec.clone(), clients);
        let (low, high) = graph.spectrum().metropolis;
        let z = (1.0 - (low + high) / 2.0) / ((high - low) / 2.0).max(1e-12);
        let start: Vec<f64> = (0..clients).map(|_| rng.random_range(-1.0..1.0)).collect();
        for steps in [1, 5, 20, 60] {
            let fast = left(&graph, graph.gossip(), steps, &start);
            let bound = 1.0 / (f64::from(steps) * z.acosh()).cosh();
            assert!(fast <= bound * (1.0 + 1e-6) + 1e-12, "{spec:?}, {steps} steps: {fast} is more than {bound}");
        }
        let (fast, plain) = (left(&graph, graph.gossip(), 20, &start), left(&graph, Gossip::PLAIN, 20, &start));
        assert!(fast < 0.5 * plain || plain < 1e-9, "{spec:?}: {fast} after 20 steps, without acceleration {plain}");
    }
}

#[test]
fn the_prox_is_the_minimiser_and_makes_zeros() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(6);
    for regularizer in
        [Regularizer::None, Regularizer::L1, Regularizer::SquaredL2, Regularizer::ElasticNet { l1: 0.8, l2: 0.4 }]
    {
        let mut zeros = 0;
        for _ in 0..200 {
            let (u, scale): (f64, f64) = (rng.random_range(-2.0..2.0), rng.random_range(0.0..1.5));
            let mut w = [u];
            regularizer.prox(scale, &mut w);
            zeros += usize::from(w[0] == 0.0);
            let value = |w: f64| scale * regularizer.value(&[w]) + (w - u) * (w - u) / 2.0;
            for h in [-1e-3, 1e-3] {
                assert!(value(w[0]) <= value(w[0] + h), "{regularizer:?} at {u}");
            }
        }
        assert_eq!(zeros > 0, !regularizer.is_smooth(), "{regularizer:?}");
    }
    // An intercept is not penalised.
    let problem =
        Problem { loss: AnyLoss::Squared(Squared), regularizer: Regularizer::L1, lambda: 10.0, intercept: true };
    let mut w = [0.5, 0.5];
    problem.prox(1.0, 2, 1, &mut w);
    assert_eq!(w, [0.0, 0.5]);
}
