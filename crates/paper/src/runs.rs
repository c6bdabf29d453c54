//! The five plots of section V, from the runs behind them.

use std::fmt::Write;
use std::ops::Range;

use crate::figure::{Figure, FigureKind};
use crate::tuned::Tuned;
use crate::{Case, EPSILONS, LEARNING_EPSILON, Method, Setting};
use undertone_core::watch::{Share, Watch};
use undertone_plan::tune::Parameters;
use undertone_sim::metrics::Band;
use undertone_sim::outcome::Outcome;
use undertone_sim::plot::{Chart, Curve, PALETTE};
use undertone_sim::run::{Shared, SimError, run_sharing};

/// One case, run.
#[derive(Debug, Clone)]
pub struct CaseRun {
    /// What is compared.
    pub case: Case,
    /// With which parameters.
    pub parameters: Parameters,
    /// The result with the first seed.
    pub outcome: Outcome,
    /// The final error of w in every trial, with each of the seeds.
    pub errors: Vec<(u64, Vec<f64>)>,
}

/// How often a case is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeats {
    /// All of these.
    pub seeds: Range<u64>,
    /// So many trials with each; large networks get at most ten.
    pub trials: u32,
}

impl Repeats {
    /// Trials with one seed.
    pub fn once(seed: u64, trials: u32) -> Self {
        Self { seeds: seed..seed + 1, trials }
    }
}

/// Which rounds are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// All, for curves.
    EveryRound,
    /// The last one, which is faster.
    LastRound,
}

impl CaseRun {
    fn compute(
        case: Case,
        parameters: Parameters,
        repeats: &Repeats,
        measure: Measure,
        shared: &Shared,
        watch: &dyn Watch,
    ) -> Result<Self, SimError> {
        let trials =
            if case.setting.clients > Setting::PAPER.clients { repeats.trials.min(10) } else { repeats.trials };
        let outcome = |seed: u64, watch: &dyn Watch| {
            let mut spec = case.study(&parameters, seed, trials).expect("tuned parameters can be used").spec().clone();
            if measure == Measure::LastRound {
                spec.simulation.metrics_every = spec.rounds;
            }
            let study = spec.check().expect("measuring less often is allowed");
            run_sharing(&study, shared, watch)
        };
        let mut first = None;
        let mut errors = Vec::new();
        let count = repeats.seeds.clone().count() as f64;
        for (done, seed) in repeats.seeds.clone().enumerate() {
            let part = Share { whole: watch, from: done as f64 / count, to: (done + 1) as f64 / count };
            let outcome = outcome(seed, &part)?;
            errors.push((seed, outcome.final_errors.iter().map(|error| error.w).collect()));
            first.get_or_insert(outcome);
        }
        let outcome = first.expect("there is at least one seed");
        Ok(Self { case, parameters, outcome, errors })
    }
}

/// All runs behind some figures.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<CaseRun>);

impl Runs {
    /// Computes some cases, every run on the same data in the same trial of the same seed.
    pub fn compute(
        cases: &[Case],
        tuned: &Tuned,
        repeats: &Repeats,
        measure: Measure,
        watch: &dyn Watch,
    ) -> Result<Self, SimError> {
        let mut wanted = cases.to_vec();
        let name = |case: &Case| (case.setting.name(), case.task.name(), case.method.name());
        wanted.sort_by(|a, b| name(a).cmp(&name(b)).then(a.epsilon.total_cmp(&b.epsilon)));
        wanted.dedup();
        let shared = Shared::exact_only();
        let count = wanted.len() as f64;
        let mut runs = Vec::new();
        for (done, case) in wanted.into_iter().enumerate() {
            let part = Share { whole: watch, from: done as f64 / count, to: (done + 1) as f64 / count };
            runs.push(CaseRun::compute(case, tuned.get(&case).clone(), repeats, measure, &shared, &part)?);
        }
        Ok(Self(runs))
    }

    /// These and others.
    pub fn and(mut self, others: Runs) -> Self {
        self.0.extend(others.0);
        self
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &CaseRun> {
        self.0.iter()
    }

    /// The run of a case, if it was computed.
    pub fn get(&self, case: &Case) -> Option<&CaseRun> {
        self.0.iter().find(|run| run.case == *case)
    }

    /// The final error of w in every trial of a case, if it was computed.
    pub fn errors(&self, case: &Case) -> Option<Vec<f64>> {
        Some(self.get(case)?.errors.iter().flat_map(|(_, errors)| errors.clone()).collect())
    }

    /// The curve of one method in a figure: x, then the error of w with its band.
    fn curve(&self, figure: Figure, method: Method) -> Vec<(f64, Band)> {
        let error = |run: &CaseRun, point: usize| run.outcome.points[point].error.expect("solved centrally").w;
        let run = |epsilon| self.get(&Case { setting: Setting::PAPER, task: figure.task, method, epsilon });
        match figure.kind {
            FigureKind::Learning => {
                let Some(run) = run(LEARNING_EPSILON) else { return Vec::new() };
                let points = run.outcome.points.iter().enumerate();
                points.map(|(i, point)| (f64::from(point.round), error(run, i))).collect()
            }
            FigureKind::Tradeoff => {
                let found = EPSILONS.iter().filter_map(|&e| Some((e, run(e)?)));
                found.map(|(epsilon, run)| (epsilon, error(run, run.outcome.points.len() - 1))).collect()
            }
        }
    }

    /// The plot of a figure.
    pub fn chart(&self, figure: Figure) -> Chart {
        let position = |x: f64| match figure.kind {
            FigureKind::Learning => x,
            // Budgets are at even distances, which for these is nearly a logarithmic axis.
            FigureKind::Tradeoff => EPSILONS.iter().position(|&e| e == x).expect("one of them") as f64,
        };
        let curve = |method: Method| Curve {
            name: method.label().into(),
            color: PALETTE[Method::ALL.iter().position(|&m| m == method).expect("listed")],
            points: self
                .curve(figure, method)
                .into_iter()
                .map(|(x, band)| (position(x), band.mean, band.q10, band.q90))
                .collect(),
        };
        let (title, x_label, x_names) = match figure.kind {
            FigureKind::Learning => {
                (format!("{}: learning curves at epsilon {LEARNING_EPSILON}", figure.task.title()), "round", Vec::new())
            }
            FigureKind::Tradeoff => (
                format!("{}: error after 200 rounds", figure.task.title()),
                "total epsilon (at delta 1e-5)",
                EPSILONS.iter().map(f64::to_string).collect(),
            ),
        };
        Chart {
            title,
            x_label: x_label.into(),
            y_label: "normalised error, summed over clients".into(),
            x_names,
            curves: figure.task.methods().iter().map(|&m| curve(m)).collect(),
        }
    }

    /// The final error of w in every trial of every run, from which the verdicts are computed.
    pub fn trials_csv(&self) -> String {
        let mut text = String::from("clients,topology,condition,problem,method,epsilon,seed,trial,error\n");
        for run in &self.0 {
            let Case { setting, task, method, epsilon } = run.case;
            let (clients, topology, condition) = (setting.clients, setting.topology.name(), setting.condition);
            let place = format!("{clients},{topology},{condition},{},{},{epsilon}", task.name(), method.name());
            for (seed, errors) in &run.errors {
                for (trial, error) in errors.iter().enumerate() {
                    let _ = writeln!(text, "{place},{seed},{trial},{error}");
                }
            }
        }
        text
    }

    /// The numbers of a figure.
    pub fn csv(&self, figure: Figure) -> String {
        let x = match figure.kind {
            FigureKind::Learning => "round",
            FigureKind::Tradeoff => "epsilon",
        };
        let mut text = format!("method,{x},error,error_q10,error_q90\n");
        for &method in figure.task.methods() {
            for (x, band) in self.curve(figure, method) {
                let _ = writeln!(text, "{},{x},{},{},{}", method.name(), band.mean, band.q10, band.q90);
            }
        }
        text
    }
}
