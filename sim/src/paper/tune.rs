//! Fair tuning: every method gets the same number of evaluations at the same budget, on seeds that no figure uses.
//!
//! The search is the same for all: a quarter of the evaluations is spread evenly over the whole box of parameters (a Halton
//! sequence, in logarithms), then a quarter each over three smaller and smaller boxes around the best found so far. What is
//! minimised is the paper's own measure, the summed error of w after the last round, as the mean over trials.

use std::fmt::Write;

use rayon::prelude::*;
use undertone_core::study::Document;

use super::figures::Figure;
use super::{EPSILONS, Method, Parameters, Problem, study};
use crate::run::{Progress, Shared, run_sharing};

/// Evaluations per method and budget.
pub const EFFORT: usize = 360;
/// Trials per evaluation.
const TRIALS: u32 = 3;
/// Seed of the tuning data; figures refuse to use it.
pub const SEED: u64 = 7_777_777;

/// The first line of the committed table.
pub const COMMENT: &str = "Tuned parameters of the paper's experiments. Made by: undertone reproduce --tune --out new && cp new/tuned.toml sim/src/paper/";
/// The committed result of `undertone reproduce --tune`.
const TUNED: &str = include_str!("tuned.toml");

/// Lower and upper ends of rho, eta, clip and 1 - tau.
const BOX: [(f64, f64); 4] = [(0.03, 100.0), (0.003, 10.0), (0.1, 30.0), (1e-4, 0.1)];
/// Sides of the boxes that are searched one after the other, as shares of the whole.
const SIDES: [f64; 4] = [1.0, 0.5, 0.25, 0.12];

/// A point of the unit cube as parameters; the last coordinate picks between constant and shrinking steps.
fn parameters(point: &[f64; 5]) -> Parameters {
    let [rho, eta, clip, growth] = [0, 1, 2, 3].map(|i| {
        let (low, high) = BOX[i];
        low * (high / low).powf(point[i])
    });
    Parameters { rho, eta, shrinking: point[4] < 0.5, clip, tau: 1.0 - growth }
}

/// Point `index` of the Halton sequence.
fn halton(index: usize) -> [f64; 5] {
    [2usize, 3, 5, 7, 11].map(|base| {
        let (mut rest, mut unit, mut sum) = (index, 1.0, 0.0);
        while rest > 0 {
            unit /= base as f64;
            sum += unit * (rest % base) as f64;
            rest /= base;
        }
        sum
    })
}

/// The best parameters found for one method and budget.
pub fn tune(problem: Problem, method: Method, epsilon: f64, shared: &Shared) -> Parameters {
    let evaluate = |point: &[f64; 5]| {
        let mut study = study(problem, method, epsilon, &parameters(point), SEED, TRIALS);
        study.simulation.metrics_every = study.rounds;
        match run_sharing(&study, shared, &|_| {}) {
            Ok(outcome) => outcome.last().error.map_or(f64::INFINITY, |e| e[0].mean),
            // A diverged run is the worst there is.
            Err(_) => f64::INFINITY,
        }
    };
    let (mut best, mut least) = ([0.5; 5], f64::INFINITY);
    for side in SIDES {
        let spread = |index: usize| {
            let offset = halton(index);
            let mut point: [f64; 5] = std::array::from_fn(|i| (best[i] + side * (offset[i] - 0.5)).clamp(0.0, 1.0));
            // A choice between two cannot be narrowed down, only made.
            point[4] = if side == 1.0 { offset[4] } else { best[4] };
            point
        };
        let points: Vec<[f64; 5]> = (1..=EFFORT / SIDES.len()).map(spread).collect();
        let errors: Vec<f64> = points.par_iter().map(evaluate).collect();
        for (point, error) in points.iter().zip(errors) {
            if error < least {
                (best, least) = (*point, error);
            }
        }
    }
    rounded(parameters(&best))
}

/// The round in which the second preset makes all methods equally good.
pub const MATCHED_ROUND: u32 = 100;
/// Step sizes (or penalties, for P-ADMM) tried for that.
const MATCHED_EFFORT: usize = 16;

/// The paper's way of comparing, as far as it says: the parameters of zCDP-NFL for all, but the rival's step size such
/// that it converges as fast at first, which here means over the first half of the rounds. For P-ADMM, which has no step
/// size, the penalty.
fn matched(problem: Problem, method: Method, epsilon: f64, zcdp: &Parameters, shared: &Shared) -> Parameters {
    let early = |method: Method, parameters: &Parameters| {
        let mut study = study(problem, method, epsilon, parameters, SEED, TRIALS);
        study.simulation.metrics_every = MATCHED_ROUND;
        let outcome = run_sharing(&study, shared, &|_| {}).ok()?;
        Some(outcome.points.first()?.error?[0].mean)
    };
    // (eps,delta)DP-NFL is zCDP-NFL but for its noise.
    let Some(target) = early(Method::Zcdp, zcdp).filter(|_| ![Method::Zcdp, Method::Dp].contains(&method)) else {
        return *zcdp;
    };
    let at = |share: f64| {
        let within = |(low, high): (f64, f64)| low * (high / low).powf(share.clamp(0.0, 1.0));
        let mut parameters = *zcdp;
        match method.has() {
            (_, true) => parameters.eta = within(BOX[1]),
            _ => parameters.rho = within(BOX[0]),
        }
        rounded(parameters)
    };
    let distance = |share: &f64| early(method, &at(*share)).map_or(f64::INFINITY, |error| (error / target).ln().abs());
    // Even steps over the whole range, then over the two steps around the best.
    let step = 1.0 / MATCHED_EFFORT as f64;
    let mut best = 0.5;
    for (low, width) in [(0.0, 1.0), (-step, 2.0 * step)] {
        let from = if width == 1.0 { low } else { best + low };
        let shares: Vec<f64> = (0..MATCHED_EFFORT).map(|i| from + width * (i as f64 + 0.5) * step).collect();
        let distances: Vec<f64> = shares.par_iter().map(distance).collect();
        let nearest = (0..MATCHED_EFFORT).min_by(|&a, &b| distances[a].total_cmp(&distances[b]));
        best = shares[nearest.expect("some were tried")];
    }
    at(best)
}

/// Three digits are all that tuning can tell.
fn rounded(parameters: Parameters) -> Parameters {
    let three = |v: f64| {
        let unit = 10f64.powf(v.log10().floor() - 2.0);
        format!("{:.6}", (v / unit).round() * unit).parse().unwrap_or(v)
    };
    Parameters {
        rho: three(parameters.rho),
        eta: three(parameters.eta),
        clip: three(parameters.clip),
        tau: format!("{:.6}", parameters.tau).parse().unwrap_or(parameters.tau),
        ..parameters
    }
}

/// The table of tuned parameters for all problems, methods and budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    rows: Vec<(Problem, Method, f64, Parameters)>,
}

impl Tuned {
    /// The committed one.
    pub fn committed() -> Self {
        Self::parse(TUNED).expect("the committed table is valid")
    }

    /// Tunes everything anew.
    pub fn anew(progress: Progress) -> Self {
        let shared = Shared::exact_only();
        let mut wanted = Vec::new();
        for problem in Problem::ALL {
            for &method in problem.methods() {
                wanted.extend(EPSILONS.map(|epsilon| (problem, method, epsilon)));
            }
        }
        let mut rows = Vec::new();
        for (done, &(problem, method, epsilon)) in wanted.iter().enumerate() {
            progress(done as f64 / wanted.len() as f64);
            rows.push((problem, method, epsilon, tune(problem, method, epsilon, &shared)));
        }
        Self { rows }
    }

    /// The second preset, for what the figures need: all methods start equally fast.
    pub fn matched(&self, figures: &[Figure], progress: Progress) -> Self {
        let shared = Shared::exact_only();
        let count = self.rows.len() as f64;
        let row = |(done, &(problem, method, epsilon, _)): (usize, &(Problem, Method, f64, Parameters))| {
            progress(done as f64 / count);
            let zcdp = self.get(problem, Method::Zcdp, epsilon);
            let needed = figures.iter().any(|f| f.problem == problem && f.epsilons().contains(&epsilon));
            let parameters = if needed { matched(problem, method, epsilon, zcdp, &shared) } else { *zcdp };
            (problem, method, epsilon, parameters)
        };
        Self { rows: self.rows.iter().enumerate().map(row).collect() }
    }

    /// The parameters of one curve.
    pub fn get(&self, problem: Problem, method: Method, epsilon: f64) -> &Parameters {
        let found = self.rows.iter().find(|r| (r.0, r.1) == (problem, method) && r.2 == epsilon);
        &found.expect("every combination is tuned").3
    }

    /// As TOML, the way it is committed; each method with the parameters that it has.
    pub fn to_toml(&self, comment: &str) -> String {
        let mut text = format!("# {comment}\n");
        for (problem, method, epsilon, p) in &self.rows {
            let (has_rho, has_eta) = method.has();
            let _ = writeln!(text, "\n[{}.{}.\"{epsilon}\"]", problem.name(), method.name());
            if has_rho {
                let _ = writeln!(text, "rho = {}", p.rho);
            }
            if has_eta {
                let _ = writeln!(text, "eta = {}", p.eta);
            }
            if has_rho && has_eta {
                let _ = writeln!(text, "decay = \"{}\"", if p.shrinking { "sqrt" } else { "constant" });
            }
            let _ = writeln!(text, "clip = {}\ntau = {}", p.clip, p.tau);
        }
        text
    }

    fn parse(text: &str) -> Result<Self, undertone_core::study::StudyError> {
        let document = Document::parse(text, "tuned.toml")?;
        let mut top = document.reader();
        let mut rows = Vec::new();
        for problem in Problem::ALL {
            let mut of_problem = top.table_required(problem.name())?;
            for &method in problem.methods() {
                let mut of_method = of_problem.table_required(method.name())?;
                let (has_rho, has_eta) = method.has();
                for epsilon in EPSILONS {
                    let mut table = of_method.table_required(&epsilon.to_string())?;
                    let parameters = Parameters {
                        rho: if has_rho { table.positive("rho")? } else { 1.0 },
                        eta: if has_eta { table.positive("eta")? } else { 1.0 },
                        shrinking: table.choice_or("decay", &[("sqrt", true), ("constant", false)], false)?,
                        clip: table.positive("clip")?,
                        tau: table.positive("tau")?,
                    };
                    rows.push((problem, method, epsilon, parameters));
                }
            }
        }
        Ok(Self { rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_complete_and_prints_as_it_was_read() {
        let tuned = Tuned::committed();
        assert_eq!(tuned.to_toml(COMMENT), TUNED);
        for (problem, method, epsilon, parameters) in &tuned.rows {
            let study = study(*problem, *method, *epsilon, parameters, 1, 2);
            assert_eq!(study.algorithm.clips(), *method != Method::PAdmmUnclipped);
        }
    }

    #[test]
    fn tuning_beats_the_middle_of_the_box_and_repeats() {
        let shared = Shared::exact_only();
        let tuned = || tune(Problem::Lad, Method::GradSqrt, 5.0, &shared);
        let error = |p: &Parameters| {
            let mut study = study(Problem::Lad, Method::GradSqrt, 5.0, p, SEED + 1, 3);
            study.simulation.metrics_every = study.rounds;
            run_sharing(&study, &shared, &|_| {}).unwrap().last().error.unwrap()[0].mean
        };
        let best = tuned();
        assert_eq!(best, tuned());
        assert!(error(&best) < 0.5 * error(&parameters(&[0.5; 5])));
    }
}
