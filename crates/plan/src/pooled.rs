//! The pooled minimum of generated data: quick, and as precise as a comparison of losses needs.
//!
//! Newton's method on a quadratic that lies above the objective (Hunter and Lange 2000): a loss with a kink at r = 0 has the
//! curvature (slope above + slope below)/(2 |r|) there, so no step has to be searched for, except where the loss is logistic and
//! its own curvature is used.

use undertone_core::cholesky::Cholesky;
use undertone_core::loss::{AnyLoss, Shape};
use undertone_core::problem::Problem;
use undertone_sim::central::objective;
use undertone_sim::data::Population;

/// Steps are made until one gains less than this share of the objective, or so many were made.
const GAIN: f64 = 1e-7;
const MOST_STEPS: usize = 200;
/// Residuals and weights below this count as this much: the curvature of a kink is not infinite.
const KINK: f64 = 1e-6;

/// The model with the least objective.
pub(crate) fn minimum(population: &Population, problem: &Problem) -> Vec<f64> {
    let mut w = vec![0.0; population.features()];
    let mut value = objective(population, problem, &w);
    for _ in 0..MOST_STEPS {
        let step = newton_step(population, problem, &w);
        let mut length = 1.0;
        let before = value;
        for _ in 0..20 {
            let trial: Vec<f64> = w.iter().zip(&step).map(|(w, d)| w + length * d).collect();
            let reached = objective(population, problem, &trial);
            if reached <= value {
                (w, value) = (trial, reached);
                break;
            }
            length /= 2.0;
        }
        if before - value <= GAIN * value.abs() {
            break;
        }
    }
    w
}

fn newton_step(population: &Population, problem: &Problem, w: &[f64]) -> Vec<f64> {
    let n = w.len();
    let (mut hessian, mut downhill, mut x) = (vec![0.0; n * n], vec![0.0; n], vec![0.0; n]);
    for k in 0..population.clients() {
        let records = population.records(k);
        let weight = 1.0 / records.divisor();
        for j in 0..records.len() {
            let (y, _) = records.read(j, &mut x);
            let z: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            let (slope, curvature) = (problem.loss.slope(z, y) * weight, curvature(problem.loss, z, y) * weight);
            for (p, &xp) in x.iter().enumerate() {
                downhill[p] -= slope * xp;
                for (h, &xq) in hessian[p * n..=p * n + p].iter_mut().zip(&x) {
                    *h += curvature * xp * xq;
                }
            }
        }
    }
    let (l1, l2) = problem.regularizer.weights();
    for (p, w) in problem.penalized(w).iter().enumerate() {
        downhill[p] -= problem.lambda * (2.0 * l2 * w + if *w == 0.0 { 0.0 } else { l1 * w.signum() });
        hessian[p * n + p] += problem.lambda * (2.0 * l2 + l1 / w.abs().max(KINK));
    }
    // A column that does not vary leaves a zero pivot; the step in it is then limited, not unbounded.
    let largest = (0..n).map(|p| hessian[p * n + p]).fold(0.0, f64::max);
    (0..n).for_each(|p| hessian[p * n + p] += 1e-9 * largest + f64::MIN_POSITIVE);
    Cholesky::new(hessian, n, f64::MIN_POSITIVE).solve(&mut downhill);
    downhill
}

fn curvature(loss: AnyLoss, z: f64, y: f64) -> f64 {
    match loss.shape() {
        Shape::Residual { curvature, above, below } => {
            let kinked = (above + below) / (2.0 * (y - z).abs().max(KINK));
            curvature.map_or(kinked, |curvature| curvature.min(kinked))
        }
        Shape::Hinge => 0.5 / (1.0 - y * z).abs().max(KINK),
        Shape::Logistic => loss.curvature(z, y).max(1e-6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_core::graph::GraphSpec;
    use undertone_core::regularizer::Regularizer;
    use undertone_core::study::{AlgorithmSpec, DataSpec, StudySpec};
    use undertone_sim::central::{Losses, solve};

    #[test]
    fn matches_the_cone_solver_for_every_loss() {
        for (name, knobs) in AnyLoss::ALL {
            let settings = undertone_core::knob::Settings::new().complete(knobs).unwrap_or_default();
            let settings = match *name {
                "huber" => settings.with("threshold", undertone_core::knob::Value::Number(0.3)),
                "quantile" => settings.with("level", undertone_core::knob::Value::Number(0.7)),
                _ => settings,
            };
            let loss = AnyLoss::named(name, &settings).expect("a loss of the list");
            let study = StudySpec::new(loss, DataSpec::synthetic(5, 60, 4), GraphSpec::Ring)
                .regularizer(Regularizer::ElasticNet { l1: 0.3, l2: 0.1 }, 0.2)
                .algorithm(AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 0.1))
                .check()
                .unwrap();
            let population = Population::load(&study, 0).unwrap();
            let problem = study.problem(|| 0.0);
            let exact = solve(&population, &problem, Losses::Exact).unwrap().objective;
            let found = objective(&population, &problem, &minimum(&population, &problem));
            assert!((found / exact - 1.0).abs() < 1e-4, "{name}: {found} {exact}");
        }
    }
}
