//! The five plots of section V, from the runs behind them.

use std::fmt::Write;

use crate::figure::{Figure, FigureKind};
use crate::tuned::Tuned;
use crate::{Case, EPSILONS, LEARNING_EPSILON, Method, Setting};
use undertone_core::watch::{Share, Watch};
use undertone_plan::tune::Parameters;
use undertone_sim::metrics::Band;
use undertone_sim::outcome::Outcome;
use undertone_sim::plot::{Chart, Curve, PALETTE};
use undertone_sim::run::{Shared, SimError, run_sharing};

/// One run behind the plots.
#[derive(Debug, Clone)]
pub struct CaseRun {
    /// What is compared.
    pub case: Case,
    /// With which parameters.
    pub parameters: Parameters,
    /// The result.
    pub outcome: Outcome,
}

/// All runs behind some figures.
#[derive(Debug, Clone)]
pub struct Runs(Vec<CaseRun>);

impl Runs {
    /// Computes some cases, every run on the same data in the same trial. With `curves`, every round is measured, else only
    /// the last. Large networks get at most ten trials.
    pub fn compute(
        cases: &[Case],
        tuned: &Tuned,
        seed: u64,
        trials: u32,
        curves: bool,
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
            let parameters = tuned.get(&case).clone();
            let trials = if case.setting.clients > Setting::PAPER.clients { trials.min(10) } else { trials };
            let mut study = case.study(&parameters, seed, trials).expect("tuned parameters can be used");
            if !curves {
                let mut spec = study.spec().clone();
                spec.simulation.metrics_every = spec.rounds;
                study = spec.check().expect("only the last round is measured");
            }
            let part = Share { whole: watch, from: done as f64 / count, to: (done + 1) as f64 / count };
            let outcome = run_sharing(&study, &shared, &part)?;
            runs.push(CaseRun { case, parameters, outcome });
        }
        Ok(Self(runs))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &CaseRun> {
        self.0.iter()
    }

    /// The run of a case, if it was computed.
    pub fn get(&self, case: &Case) -> Option<&CaseRun> {
        self.0.iter().find(|run| run.case == *case)
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
        let mut text = String::from("clients,topology,condition,problem,method,epsilon,trial,error\n");
        for run in &self.0 {
            let Case { setting, task, method, epsilon } = run.case;
            let (clients, topology, condition) = (setting.clients, setting.topology.name(), setting.condition);
            let place = format!("{clients},{topology},{condition},{},{},{epsilon}", task.name(), method.name());
            for (trial, error) in run.outcome.final_errors.iter().enumerate() {
                let _ = writeln!(text, "{place},{trial},{}", error.w);
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
