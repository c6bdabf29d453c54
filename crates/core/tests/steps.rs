//! The step of Algorithm 1 against a numerical minimiser, slopes against finite differences, the clip, and the duals.

mod common;

use common::{Client, Network};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use undertone_core::algorithm::Algorithm;
use undertone_core::algorithm::subgradient::Subgradient;
use undertone_core::algorithm::zcdp_nfl::ZcdpNfl;
use undertone_core::algorithm::{Decay, Robust, Run, Spread, Step, StepSize};
use undertone_core::graph::Graph;
use undertone_core::knob::{Knob, Settings, Value};
use undertone_core::loss::{Absolute, AnyLoss, Squared};
use undertone_core::names::Names;
use undertone_core::privacy::{Clip, Clipping};
use undertone_core::problem::Problem;
use undertone_core::records::{Dataset, Scratch};
use undertone_core::regularizer::Regularizer;

/// All losses that a study can name, with 0.7 for every parameter.
fn losses() -> Vec<AnyLoss> {
    let loss = |(name, knobs): &(&str, &'static [Knob])| {
        let settings = knobs.iter().fold(Settings::new(), |all, knob| all.with(knob.name, Value::Number(0.7)));
        AnyLoss::named(name, &settings).expect("0.7 is allowed for every parameter of a loss")
    };
    AnyLoss::ALL.iter().map(loss).collect()
}

fn random_rows(rng: &mut Xoshiro256PlusPlus, count: usize, features: usize, labels: bool) -> Vec<(Vec<f64>, f64)> {
    let mut number = || rng.random_range(-2.0..2.0);
    (0..count)
        .map(|_| {
            let x: Vec<f64> = (0..features).map(|_| number()).collect();
            let y: f64 = number();
            (x, if labels { y.signum() } else { y })
        })
        .collect()
}

/// With one edge of a star dropped, the weights of the remaining edges are unchanged.
#[test]
fn a_dropped_edge_does_not_shift_the_weights() {
    let names = Names::numbered(4);
    // Degrees 3, 1, 2, 2.
    let graph = Graph::from_edges(&names, &[(0, 1), (0, 2), (0, 3), (2, 3)]).unwrap();
    let problem =
        Problem { loss: AnyLoss::Squared(Squared), regularizer: Regularizer::None, lambda: 0.0, intercept: false };
    let data = Dataset::new(&[0.0], &[0.0], 1, Clipping::Off);
    // Client 2 without its edge to 0: the remaining neighbour is 3, of degree 2, so its weight is 1/3.
    let run = Run { rounds: 1, graph: &graph, problem: &problem, robust: None };
    let round = run.round(1, 2, None).among(&[3], &[0], &[1.0], &[7.0]);
    let method = Subgradient { eta: StepSize { eta: 0.5, decay: Decay::Constant } };
    let (mut public, mut private) = ([0.0], [0.0]);
    let step = Step { public: &mut public, private: &mut private, scale: -0.5 };
    method.step(&round, data.records(), &mut [0.0], &mut Scratch::default(), step).unwrap();
    assert_eq!(public[0], 1.0 + (7.0 - 1.0) / 3.0);
}

/// What edges carry in a robust run: both ends hold the same with opposite signs, so honest clients do not move their sum. A liar moves it in every round by no more than honest points
/// differ by, and in sum over all rounds by no more than the limit of its edges, whatever it says. A lost edge takes its dual with it.
#[test]
fn an_edge_carries_no_more_than_honest_noise_would() {
    let names = Names::numbered(4);
    // Degrees 3, 1, 2, 2; client 3 lies.
    let graph = Graph::from_edges(&names, &[(0, 1), (0, 2), (0, 3), (2, 3)]).unwrap();
    let problem =
        Problem { loss: AnyLoss::Squared(Squared), regularizer: Regularizer::None, lambda: 0.0, intercept: false };
    // A data round and three mixing rounds in turn, with noise of 1 and differences of .5 by chance.
    let spread = |n: u32| (n % 4 == 1).then_some(Spread { noise: 1.0, chance: 0.5 });
    let robust = Robust::new((1..=99).map(spread), 0.5, 0.6);
    let run = Run { rounds: 99, graph: &graph, problem: &problem, robust: Some(&robust) };
    let (mut rng, mut flows) = (Xoshiro256PlusPlus::seed_from_u64(7), [[0.0; 3]; 3]);
    let (mut all, mut moved, mut most) = (0.0, 0.0, 0.0f64);
    for number in 2..=99 {
        let mut points: [f64; 4] = std::array::from_fn(|_| rng.random_range(-0.1..0.1));
        points[3] = 1e6;
        let carried = |k: usize, flows: &mut [f64], dual: bool| {
            let round = run.round(number, k, None).with_points(&points[k..=k], &points);
            let mut out = [0.0];
            match dual {
                true => round.bounded_dual(&robust, 0.5, flows, &mut out),
                false => round.bounded_disagreement(&robust, |_| 1.0, flows, &mut out),
            }
            out[0]
        };
        let now: f64 = (0..3).map(|k| carried(k, &mut flows[k], false)).sum();
        (all, moved, most) = (all + now, moved + now.abs(), most.max(now.abs()));
        // The edges to the liar hold their bounds as duals from the first round on, 0.6/3 at client 0 and 0.6/2 at client 2; all others cancel.
        let duals: f64 = (0..3).map(|k| carried(k, &mut flows[k], true)).sum();
        assert!((duals + 0.2 + 0.3).abs() < 1e-12, "{duals}");
    }
    // Two edges to the liar, 25 data rounds: 2 (5 + 25/2) each, all of it in one direction, and at most 1.1 of it in a round.
    assert!((all + 2.0 * 35.0).abs() < 1e-9 && (moved + all).abs() < 1e-9, "{all} {moved}");
    assert!(most < 2.0 * 1.25f64.sqrt() * 1.1, "{most}");
    assert_eq!(robust.carried(), 35.0);
    let (points, mut gamma) = ([0.0; 4], [0.0]);
    let round = run.round(99, 2, None).with_points(&points[..1], &points).left_with(&[0], &[0]);
    round.bounded_dual(&robust, 0.01, &mut flows[2], &mut gamma);
    assert_eq!(gamma[0], 0.01 * flows[2][0]);
}

#[test]
fn slopes_match_finite_differences() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for loss in losses() {
        for _ in 0..1000 {
            let z: f64 = rng.random_range(-3.0..3.0);
            let y: f64 = if loss.is_classification() { 1.0 } else { rng.random_range(-3.0..3.0) };
            // Kinks lie at |z - y| = 0 or threshold, and at y z = 1.
            let near_kink = [0.0, 0.7].iter().any(|t| ((z - y).abs() - t).abs() < 1e-3) || (y * z - 1.0).abs() < 1e-3;
            if near_kink {
                continue;
            }
            let h = 1e-6;
            let (slope, finite) = (loss.slope(z, y), (loss.value(z + h, y) - loss.value(z - h, y)) / (2.0 * h));
            assert!((slope - finite).abs() < 1e-7, "{} at z {z}, y {y}: {slope} is not {finite}", loss.name());
            let (curvature, finite) = (loss.curvature(z, y), (loss.slope(z + h, y) - loss.slope(z - h, y)) / (2.0 * h));
            assert!((curvature - finite).abs() < 1e-6, "curvature of {} at z {z}, y {y}", loss.name());
        }
    }
}

#[test]
fn slopes_at_kinks_are_subgradients() {
    for loss in losses() {
        for (z, y) in [(0.5, 0.5), (1.0, 1.0), (-1.0, -1.0), (0.0, 1.0)] {
            let supports = (-40..=40).all(|i| {
                let other = z + f64::from(i) / 10.0;
                loss.value(other, y) >= loss.value(z, y) + loss.slope(z, y) * (other - z) - 1e-12
            });
            assert!(supports, "{} at {z}", loss.name());
        }
    }
}

#[test]
fn regularizer_subgradients_match_finite_differences() {
    for regularizer in [Regularizer::L1, Regularizer::SquaredL2, Regularizer::ElasticNet { l1: 0.3, l2: 0.7 }] {
        let w = [0.8, -1.3, 2.0];
        let mut gradient = [0.0; 3];
        regularizer.add_subgradient(2.0, &w, &mut gradient);
        for p in 0..3 {
            let at = |h: f64| {
                let mut moved = w;
                moved[p] += h;
                2.0 * regularizer.value(&moved)
            };
            assert!((gradient[p] - (at(1e-6) - at(-1e-6)) / 2e-6).abs() < 1e-7);
        }
    }
}

/// The mean of per-sample gradients, each clipped by its norm, computed directly.
fn clipped_gradient_the_long_way(loss: AnyLoss, rows: &[(Vec<f64>, f64)], w: &[f64], clip: Option<f64>) -> Vec<f64> {
    let mut total = vec![0.0; w.len()];
    for (x, y) in rows {
        let z: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
        let slope = loss.slope(z, *y);
        let gradient: Vec<f64> = x.iter().map(|x| slope * x).collect();
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let factor = clip.map_or(1.0, |c| if norm > c { c / norm } else { 1.0 });
        total.iter_mut().zip(&gradient).for_each(|(t, g)| *t += factor * g);
    }
    total.iter().map(|t| t / rows.len() as f64).collect()
}

#[test]
fn kernel_matches_the_clipped_mean_the_long_way_for_every_shape() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    for loss in losses() {
        for count in [1, 2, 3, 4, 5, 7, 8, 13] {
            for features in [1, 2, 3, 4, 7, 8, 9, 15, 17] {
                for clip in [None, Some(0.5)] {
                    let rows = random_rows(&mut rng, count, features, loss.is_classification());
                    let w: Vec<f64> = (0..features).map(|_| rng.random_range(-1.0..1.0)).collect();
                    let client = Client::new(&rows, clip.map(|c| Clip::new(c).unwrap()));
                    let mut out = vec![0.0; features];
                    client.records().gradient(loss, &w, 1.0, &mut Scratch::default(), &mut out);
                    let expected = clipped_gradient_the_long_way(loss, &rows, &w, clip);
                    for (a, b) in out.iter().zip(&expected) {
                        assert!((a - b).abs() < 1e-13, "{} with {count} records of {features}", loss.name());
                    }
                    let mean = client.records().mean_loss(loss, &w, &mut Scratch::default());
                    let value = |(x, y): &(Vec<f64>, f64)| {
                        let z: f64 = x.iter().zip(&w).map(|(x, w)| x * w).sum();
                        loss.value(z, *y)
                    };
                    let expected = rows.iter().map(value).sum::<f64>() / count as f64;
                    assert!((mean - expected).abs() < 1e-13 * expected.max(1.0));
                }
            }
        }
    }
}

#[test]
fn nothing_slips_through_the_clip_even_from_a_diverged_model() {
    let clip = Clip::new(0.5).unwrap();
    let rows =
        vec![(vec![3.0, -4.0], 1e300), (vec![1e-200, 1e-200], 1.0), (vec![0.0, 0.0], 5.0), (vec![1e150, 1e150], -1.0)];
    for loss in losses() {
        for w in [[0.0, 0.0], [1e300, 1e300], [f64::NAN, 0.0], [f64::INFINITY, f64::NEG_INFINITY]] {
            let mut out = [0.0; 2];
            Client::new(&rows, Some(clip)).records().gradient(loss, &w, 1.0, &mut Scratch::default(), &mut out);
            let norm = (out[0] * out[0] + out[1] * out[1]).sqrt();
            assert!(norm <= 0.5 * (1.0 + 1e-9), "{} at {w:?}: norm {norm}", loss.name());
        }
    }
}

/// The function that eq. (PrimalUpdate) minimises, at client 0 of a network.
fn augmented(network: &Network, gamma: &[f64], rho: f64, eta: f64, gradient: &[f64], w: &[f64]) -> f64 {
    let features = network.features();
    let own = &network.released[..features];
    let mut value = 0.0;
    for p in 0..features {
        let step = w[p] - own[p];
        value += gradient[p] * step + step * step / (2.0 * eta) + gamma[p] * w[p];
        for &l in network.graph.neighbours(0) {
            let middle = (own[p] + network.released[l as usize * features + p]) / 2.0;
            value += rho * (w[p] - middle) * (w[p] - middle);
        }
    }
    value
}

#[test]
fn closed_form_step_is_the_numerical_argmin() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let (rho, eta) = (0.8, 0.3);
    let algorithm = ZcdpNfl { rho, eta: StepSize { eta, decay: Decay::Constant }, average: 0.0 };
    for loss in losses() {
        let problem =
            Problem { loss, regularizer: Regularizer::ElasticNet { l1: 0.2, l2: 0.3 }, lambda: 1.5, intercept: false };
        let clients: Vec<Client> =
            (0..4).map(|_| Client::new(&random_rows(&mut rng, 6, 3, loss.is_classification()), None)).collect();
        let mut network = Network::new(&problem, &[(0, 1), (0, 2), (2, 3)], clients);
        network.released.iter_mut().for_each(|v| *v = rng.random_range(-1.0..1.0));
        network.memory.iter_mut().for_each(|v| *v = rng.random_range(-1.0..1.0));
        let mut gradient = vec![0.0; 3];
        network.clients[0].records().gradient(
            loss,
            &network.released[..3],
            1.0,
            &mut Scratch::default(),
            &mut gradient,
        );
        problem.add_regularizer_subgradient(1.0, 4, &network.released[..3], 1, &mut gradient);
        let w = network.step(&algorithm, 1)[..3].to_vec();
        // After the step the memory is gamma(n-1), which the minimised function needs.
        let gamma = network.memory[..3].to_vec();
        let at = |w: &[f64]| augmented(&network, &gamma, rho, eta, &gradient, w);
        for p in 0..3 {
            let moved = |h: f64| {
                let mut moved = w.clone();
                moved[p] += h;
                at(&moved)
            };
            let slope = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            assert!(slope.abs() < 1e-8, "{}: slope {slope:e} at the step", loss.name());
            assert!(moved(1e-3) > at(&w) && moved(-1e-3) > at(&w));
        }
    }
}

#[test]
fn duals_sum_to_zero_in_every_round() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let problem =
        Problem { loss: AnyLoss::Absolute(Absolute), regularizer: Regularizer::None, lambda: 0.0, intercept: false };
    let clients: Vec<Client> = (0..6).map(|_| Client::new(&random_rows(&mut rng, 5, 4, false), None)).collect();
    let mut network = Network::new(&problem, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 4)], clients);
    let algorithm = ZcdpNfl { rho: 2.0, eta: StepSize { eta: 0.5, decay: Decay::Sqrt }, average: 0.0 };
    for round in 1..=50 {
        let w = network.step(&algorithm as &dyn Algorithm, round);
        for p in 0..4 {
            let sum: f64 = network.memory.iter().skip(p).step_by(4).sum();
            assert!(sum.abs() < 1e-9, "round {round}: {sum:e}");
        }
        assert!(round == 1 || network.memory.iter().any(|g| g.abs() > 0.01), "the duals moved");
        network.released = w.iter().map(|w| w + rng.random_range(-1.0..1.0)).collect();
    }
}
