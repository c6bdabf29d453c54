//! The claims of section V and of the abstract, each measured and judged by a rule that is written down here.
//!
//! Methods are compared trial by trial on the same data: the ratio of two errors is the geometric mean over trials, with
//! the 95% interval of its logarithm's mean.

use undertone_core::graph::GraphSpec;
use undertone_core::loss::{Absolute, AnyLoss, Squared};
use undertone_core::records::Scratch;
use undertone_core::study::{AlgorithmSpec, DataSpec, Study, StudySpec};

use crate::compare::{Ratio, ratio};
use crate::runs::Runs;
use crate::{Case, EPSILONS, LEARNING_EPSILON, Method, Setting, Task};
use undertone_core::watch::Unwatched;
use undertone_sim::data::Population;
use undertone_sim::plot::{Chart, Curve, PALETTE};
use undertone_sim::run::{SimError, run};

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// In every comparison.
    Holds,
    /// In some comparisons but not in all.
    Depends,
    /// In no comparison, and at least one contradicts it.
    DoesNotHold,
    /// No comparison clearly supports or contradicts it.
    Undecided,
}

/// The result of one comparison, with 95% confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    For,
    Against,
    Unclear,
    NotRun,
}

impl Verdict {
    /// The words in the report.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Depends => "depends",
            Verdict::DoesNotHold => "does not hold",
            Verdict::Undecided => "undecided",
        }
    }

    pub(crate) fn of(comparisons: &[Comparison]) -> Self {
        let any = |wanted| comparisons.contains(&wanted);
        match (any(Comparison::For), any(Comparison::Against)) {
            (true, _) if comparisons.iter().all(|c| *c == Comparison::For) => Verdict::Holds,
            (true, _) => Verdict::Depends,
            (false, true) => Verdict::DoesNotHold,
            (false, false) => Verdict::Undecided,
        }
    }
}

/// A claim with what was measured about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The paper's claim.
    pub text: &'static str,
    /// The condition under which it holds.
    pub rule: &'static str,
    /// What was measured, one line per comparison.
    pub measured: Vec<String>,
    /// The result.
    pub verdict: Verdict,
}

/// Judges a claim that other methods have at least `factor` times the error of zCDP-NFL.
fn ahead(
    runs: &Runs,
    text: &'static str,
    rule: &'static str,
    factor: f64,
    comparisons: &[(Task, Method, f64)],
) -> Option<Claim> {
    let mut measured = Vec::new();
    let mut outcomes = Vec::new();
    for &(task, rival, epsilon) in comparisons {
        let case = Case { setting: Setting::PAPER, task, method: rival, epsilon };
        let Some(ratio) = ratio(runs, &case, Method::Zcdp) else {
            outcomes.push(Comparison::NotRun);
            continue;
        };
        outcomes.push(match ratio {
            Ratio { low, .. } if low > factor => Comparison::For,
            Ratio { high, .. } if high < factor => Comparison::Against,
            _ => Comparison::Unclear,
        });
        let name = match rival {
            Method::GradConstant => "zCDP-grad-NFL with constant steps",
            other => other.label(),
        };
        measured.push(format!("{}, epsilon {epsilon}: {name} has {}", task.title(), ratio.text()));
    }
    let missing = outcomes.iter().filter(|o| **o == Comparison::NotRun).count();
    if missing > 0 {
        measured.push(format!("{missing} of {} comparisons belong to figures that were not drawn", outcomes.len()));
    }
    (missing < outcomes.len()).then(|| Claim { text, rule, measured, verdict: Verdict::of(&outcomes) })
}

/// All claims that the runs can judge.
pub fn claims(runs: &Runs, rates: &Rates) -> Vec<Claim> {
    let at = LEARNING_EPSILON;
    let subgradient: Vec<_> = [Task::ElasticNet, Task::Lad]
        .into_iter()
        .flat_map(|p| [(p, Method::GradConstant, at), (p, Method::GradSqrt, at)])
        .collect();
    let tradeoffs = [Task::ElasticNet, Task::Ridge];
    let mut classic: Vec<_> =
        tradeoffs.into_iter().flat_map(|p| EPSILONS.map(|epsilon| (p, Method::Dp, epsilon))).collect();
    classic.push((Task::Lad, Method::Dp, at));
    let smooth: Vec<_> = EPSILONS.iter().map(|&epsilon| (Task::Ridge, Method::PAdmm, epsilon)).collect();
    let mut claims: Vec<Claim> = [
        ahead(
            runs,
            "The ADMM-based method is far ahead of the subgradient method on elastic net and LAD.",
            "holds where the subgradient method has more than twice the error, with 95% confidence",
            2.0,
            &subgradient,
        ),
        ahead(
            runs,
            "At the same total budget, zCDP is ahead of (eps,delta)-DP.",
            "holds where (eps,delta)DP-NFL has the larger error, with 95% confidence",
            1.0,
            &classic,
        ),
        ahead(
            runs,
            "On ridge regression zCDP-NFL is slightly ahead of P-ADMM, for every budget.",
            "holds where P-ADMM, with its clip enforced, has the larger error, with 95% confidence",
            1.0,
            &smooth,
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    claims.push(rates.claim());
    claims
}

/// The slope of ln(y) over ln(x) and its standard error.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let mean = logs.iter().fold((0.0, 0.0), |m, l| (m.0 + l.0 / n, m.1 + l.1 / n));
    let spread: f64 = logs.iter().map(|l| (l.0 - mean.0).powi(2)).sum();
    let slope = logs.iter().map(|l| (l.0 - mean.0) * (l.1 - mean.1)).sum::<f64>() / spread;
    let rest: f64 = logs.iter().map(|l| (l.1 - mean.1 - slope * (l.0 - mean.0)).powi(2)).sum();
    (slope, (rest / (n - 2.0) / spread).sqrt())
}

/// How fast the objective of the average falls to its optimum without noise.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates(Vec<Rate>);

#[derive(Debug, Clone, PartialEq)]
struct Rate {
    name: &'static str,
    /// Rounds and gap.
    points: Vec<(f64, f64)>,
    slope: f64,
    error: f64,
}

impl Rates {
    const ROUNDS: [u32; 5] = [400, 800, 1600, 3200, 6400];

    /// Runs a smooth and a nonsmooth problem with the step sizes that theory supports.
    pub fn measure() -> Result<Self, SimError> {
        let cases = [
            ("smooth, eta = 0.2, below one over the curvature", AnyLoss::from(Squared), 1.0, "constant"),
            ("nonsmooth, eta = 0.2/sqrt(n)", Absolute.into(), 3.0, "sqrt"),
        ];
        let rate = |(name, loss, rho, decay)| {
            let mut points = Vec::new();
            for rounds in Self::ROUNDS {
                let data = DataSpec::synthetic(50, 50, 8);
                let mut spec =
                    StudySpec::new(loss, data, GraphSpec::Random { mean_degree: 3.0 }).rounds(rounds).algorithm(
                        AlgorithmSpec::named("zcdp-nfl").number("rho", rho).number("eta", 0.2).word("decay", decay),
                    );
                spec.simulation.metrics_every = rounds;
                points.push((f64::from(rounds), gap(&spec.check().expect("a fixed study"))?));
            }
            let (slope, error) = fit(&points);
            Ok(Rate { name, points, slope, error })
        };
        Ok(Self(cases.into_iter().map(rate).collect::<Result<_, SimError>>()?))
    }

    fn claim(&self) -> Claim {
        let measured = self.0.iter().map(|r| {
            format!("{}: the gap falls as n^{:.2} (standard error {:.2}), rounds 400 to 6400", r.name, r.slope, r.error)
        });
        let outcomes: Vec<Comparison> = self
            .0
            .iter()
            .map(|r| match r.slope + 2.0 * r.error < -0.9 {
                true => Comparison::For,
                false => Comparison::Against,
            })
            .collect();
        Claim {
            text: "Without noise, the algorithm converges at a rate of O(1/n).",
            rule: "holds where the objective gap of the average of all rounds falls faster than n^-0.9, on one data set like \
                   the paper's; theory covers n^-1 for smooth problems and n^-0.5 for others, and noise limits the accuracy",
            measured: measured.collect(),
            verdict: Verdict::of(&outcomes),
        }
    }

    /// The numbers of the plot.
    pub fn csv(&self) -> String {
        let mut text = String::from("problem,rounds,gap\n");
        for rate in &self.0 {
            let kind = rate.name.split(',').next().unwrap_or_default();
            text.extend(rate.points.iter().map(|(rounds, gap)| format!("{kind},{rounds},{gap}\n")));
        }
        text
    }

    /// The gaps and the fitted lines.
    pub fn chart(&self) -> Chart {
        let curve = |name: String, color: usize, y: Vec<f64>| Curve {
            name,
            color: PALETTE[color],
            points: y.iter().enumerate().map(|(i, &y)| (i as f64, y, y, y)).collect(),
        };
        let mut curves = Vec::new();
        for (i, rate) in self.0.iter().enumerate() {
            let kind = if i == 0 { "smooth" } else { "nonsmooth" };
            let centre = |pick: fn(&(f64, f64)) -> f64| {
                (rate.points.iter().map(|p| pick(p).ln()).sum::<f64>() / rate.points.len() as f64).exp()
            };
            let (x, y) = (centre(|p| p.0), centre(|p| p.1));
            let line = rate.points.iter().map(|p| y * (p.0 / x).powf(rate.slope)).collect();
            curves.push(curve(format!("{kind}, fit n^{:.2}", rate.slope), 5 + i, line));
            curves.push(curve(format!("{kind}, measured"), i, rate.points.iter().map(|p| p.1).collect()));
        }
        Chart {
            title: "Without noise: objective gap of the average of all rounds".into(),
            x_label: "rounds".into(),
            y_label: "F(average) - F(central solution)".into(),
            x_names: Self::ROUNDS.iter().map(u32::to_string).collect(),
            curves,
        }
    }
}

/// F(average over clients and rounds) - F(w_c) on the pooled problem.
fn gap(study: &Study) -> Result<f64, SimError> {
    let outcome = run(study, &Unwatched)?;
    let population = Population::load(study, 0)?;
    let problem = study.problem(|| 0.0);
    let mut scratch = Scratch::default();
    let clients = population.clients();
    let average = &outcome.average;
    let value: f64 =
        (0..clients).map(|k| problem.local_objective(population.records(k), clients, average, &mut scratch)).sum();
    Ok(value - outcome.central.expect("the pooled problem is small").objective)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_their_comparisons() {
        use Comparison::*;
        assert_eq!(Verdict::of(&[For, For]), Verdict::Holds);
        assert_eq!(Verdict::of(&[For, Against]), Verdict::Depends);
        assert_eq!(Verdict::of(&[For, Unclear]), Verdict::Depends);
        assert_eq!(Verdict::of(&[For, NotRun]), Verdict::Depends, "what was not run cannot hold everywhere");
        assert_eq!(Verdict::of(&[Against, Unclear]), Verdict::DoesNotHold);
        assert_eq!(Verdict::of(&[Unclear, NotRun]), Verdict::Undecided);
    }

    #[test]
    fn fits_find_the_slope() {
        let points: Vec<(f64, f64)> = [100.0, 200.0, 400.0].map(|n: f64| (n, 3.0 * n.powf(-1.5))).to_vec();
        let (slope, error) = fit(&points);
        assert!((slope + 1.5).abs() < 1e-12 && error < 1e-12);
    }
}
