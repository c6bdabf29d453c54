//! The result of a run.

use serde_json::{Value, json};
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Budget, Rho};
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{NoiseKind, RegularizerSpec, Study};
use undertone_data::report::{begin_report, score_table, spent_by_round};
use undertone_data::{Closed, Held, Model, Scored};

use crate::burden::burden;
use crate::caveat::Caveat;
use crate::central::{Central, CentralError};
use crate::metrics::{Band, PerModel};

/// One measured round, over all trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// n.
    pub round: u32,
    /// Total rho spent by the client with the largest budget.
    pub rho: Option<f64>,
    /// The epsilon of this rho.
    pub epsilon: Option<f64>,
    /// Against the central solution.
    pub error: Option<PerModel<Band>>,
    /// Against the solution of the clipped problem.
    pub surrogate_error: Option<PerModel<Band>>,
    /// sum_k f_k(w~_k).
    pub objective: Band,
    /// Root mean square distance of the released models from their mean.
    pub consensus: Band,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The study as it was run.
    pub study: Study,
    /// The same in the first trial, with the typical values that private standardisation gave it.
    pub fitted: Study,
    /// The learning curve.
    pub points: Vec<Point>,
    /// Errors in the last round, trial by trial; empty where there is no central solution.
    pub final_errors: Vec<PerModel>,
    /// What the models lose against pooled data in the objective, as a share of what pooled data gains over a model without
    /// features: 0 as good as pooled, 1 no better than the mean. None where pooled data gains nothing, or is not compared with.
    pub regret: Option<Band>,
    /// The fitted model, of the first trial.
    pub model: Model,
    /// The mean over clients and rounds of what they released, of the first trial, in the units in which it was learned.
    pub average: Vec<f64>,
    /// The clients' names.
    pub names: Names,
    /// Final w of every client in the first trial, flat.
    pub clients: Vec<f64>,
    /// Final w~ of every client in the first trial, flat.
    pub released: Vec<f64>,
    /// E.
    pub edges: usize,
    /// How many records each client trained on.
    pub records: Vec<usize>,
    /// What was released after the last round, trial by trial; empty if nothing was.
    pub closed: Vec<Closed>,
    /// The standard deviation that privacy noise alone gives to each coefficient, the intercept first, where somebody has computed it for the report.
    pub spread: Option<Vec<f64>>,
    /// Scores on what was kept out of training, if anything was.
    pub held_out: Option<HeldOut>,
    /// Whether the steps are too large: the released means swing to and fro.
    pub overshoots: bool,
    /// The regulariser with its resolved weights.
    pub regularizer: Regularizer,
    /// The central solution, or why there is none.
    pub central: Result<Central, CentralError>,
    /// The solution of the clipped problem.
    pub surrogate: Option<Central>,
    /// The objective of the best model without features, in the first trial.
    pub null_objective: Option<f64>,
    /// The epsilon of the run at the study's delta; none if the run is not private.
    pub epsilon: Option<f64>,
    /// The same of the most exposed client if all others collude; without masks the two are equal.
    pub epsilon_alone: Option<f64>,
    /// Wall time of loading the first trial's data and solving it centrally.
    pub setup_seconds: f64,
    /// Wall time of everything.
    pub seconds: f64,
}

/// How the models of the first trial predict the records that were kept out of training.
#[derive(Debug, Clone)]
pub struct HeldOut {
    /// How many records each client kept out.
    pub records: Vec<usize>,
    /// The private model.
    pub private: Scored,
    /// The model of pooled data without privacy, where there is one.
    pub pooled: Option<Scored>,
}

impl HeldOut {
    /// Of models in the units that they were learned in.
    pub(crate) fn new(study: &Study, held: &[Held], private: &[f64], pooled: Option<&[f64]>) -> Option<Self> {
        let records: Vec<usize> = held.iter().map(|held| held.truths.len()).collect();
        let score = |w: &[f64]| {
            let mut scored = Scored::new(study.spec().loss);
            held.iter().for_each(|held| held.score(study, w, &mut scored));
            scored
        };
        let any = records.iter().any(|count| *count > 0);
        any.then(|| Self { private: score(private), pooled: pooled.map(score), records })
    }
}

/// The means, or nulls where there is nothing to compare with.
fn means(bands: Option<PerModel<Band>>) -> PerModel<Option<f64>> {
    bands.map_or(PerModel::default(), |bands| bands.map(|band| Some(band.mean)))
}

impl Outcome {
    /// The last measured round.
    pub fn last(&self) -> &Point {
        self.points.last().expect("the last round is always measured")
    }

    /// Warnings about the numbers.
    pub fn notices(&self) -> Vec<String> {
        let study = &self.study;
        let mut notices = Vec::new();
        match study.privacy() {
            None => notices
                .push("PRIVACY IS OFF: nothing is clipped, nothing is noised, every message reveals the data".into()),
            Some(_) if !study.algorithm().clips() => notices.push(format!(
                "NOT PRIVATE: {} does not enforce the clip its noise assumes; it is a reference only",
                study.algorithm().name()
            )),
            Some(privacy) if privacy.noise() == NoiseKind::Fast => {
                notices.push(
                    "noise = \"fast\": for simulation only, not safe to release; use \"secure\" for releases".into(),
                );
            }
            Some(_) => notices.push(
                "noise = \"secure\": drawn from the operating system, so the seed does not repeat this run".into(),
            ),
        }
        if !study.spec().data.is_made_up() && study.privacy().is_some() {
            notices.push(
                "treat this folder like the records: w, clients.csv, errors and objectives are \
                 computed from the records without noise"
                    .into(),
            );
            if study.spec().simulation.trials > 1 {
                notices.push(format!(
                    "{} trials on the same records: epsilon is that of one; releasing all would spend {} times the rho",
                    study.spec().simulation.trials,
                    study.spec().simulation.trials
                ));
            }
        }
        if let (Some(Budget::Epsilon(asked)), Some(epsilon)) = (study.privacy().map(|p| p.budget()), self.epsilon)
            && epsilon > asked.get()
        {
            notices.push(format!(
                "a client with a phi1 of its own spends epsilon {epsilon:.6}, more than the study's {}",
                asked.get()
            ));
        }
        if let RegularizerSpec::PaperRule { .. } = study.spec().regularizer {
            let (l1, _) = self.regularizer.weights();
            notices.push(format!(
                "lambda1 = {l1:.6} by the paper's rule, which depends on private data; \
                 a deployment must use a public constant"
            ));
        }
        if let Some(burden) = study.privacy().and_then(|_| burden(&self.records, study.spec())) {
            notices.push(burden.sentence(|k| self.names.get(k).into_owned(), &self.records));
        }
        if study.spec().simulation.losses > 0 {
            let lost = match study.spec().simulation.losses {
                1 => "one client is".to_string(),
                some => format!("{some} clients are"),
            };
            notices.push(format!("{lost} lost for good after half of the rounds, chosen anew in every trial"));
        }
        let simulation = study.spec().simulation;
        if simulation.liars > 0 {
            let (count, attack) = (simulation.liars, simulation.attack.name());
            let lie = if count == 1 { "one client lies".into() } else { format!("{count} clients lie") };
            let is_masked = study.privacy().is_some_and(|privacy| privacy.colluders().is_some());
            let defence =
                if study.liars() < count && !is_masked { "; [robust] liars bounds what that does" } else { "" };
            notices.push(format!(
                "{lie} (attack \"{attack}\"), chosen anew in every trial; errors are those of the others{defence}"
            ));
        }
        notices.extend(self.misstated_records());
        if self.overshoots {
            notices.push(
                "the steps overshoot: the released means swing to and fro and gain nothing by it; halve algorithm.eta"
                    .into(),
            );
        }
        notices.extend(self.central_notices());
        notices
    }

    /// Warnings about what the models are compared with.
    fn central_notices(&self) -> Vec<String> {
        let mut notices = match &self.central {
            Err(reason) => vec![format!("no central solution: {reason}; normalised errors are left out")],
            Ok(central) => central.caveats.iter().map(|caveat| self.explain(caveat)).collect(),
        };
        if self.central.as_ref().is_ok_and(|central| central.size().is_some()) {
            if self.last().error.is_none() {
                notices.push(
                    "the central solution of a later trial is zero or was not found; normalised errors are left out"
                        .into(),
                );
            }
            if self.surrogate.as_ref().is_some_and(|surrogate| surrogate.size().is_none()) {
                notices.push("the solution of the clipped problem is zero; errors relative to it are left out".into());
            }
        }
        notices
    }

    /// A client whose file does not hold what the study says; peers would refuse it.
    fn misstated_records(&self) -> Option<String> {
        let held = |k: usize| self.held_out.as_ref().map_or(0, |held| held.records[k]);
        let check = |k: usize| self.study.check_records(&self.names, k, self.records[k] + held(k)).err();
        if let Some(error) = (0..self.records.len()).find_map(check) {
            return Some(format!("{}; a peer would refuse this", error.message));
        }
        // A mean that is wrong for all together is noticed by no peer alone.
        let stated = self.study.mean_records().filter(|_| self.study.spec().schema().is_some())?;
        let mean = self.records.iter().sum::<usize>() as f64 / self.records.len() as f64;
        let off = (mean - stated).abs() > (stated / 10.0).max(1.0);
        off.then(|| {
            format!("data.records says {stated:.0} for a client, but the files hold {mean:.0} on average; correct it, and plan again")
        })
    }

    fn explain(&self, caveat: &Caveat) -> String {
        match caveat {
            Caveat::Zero => "the central solution is zero; normalised errors are left out".into(),
            Caveat::NotUnique { columns, certain } => {
                let verdict = if *certain { "is not unique" } else { "may not be unique" };
                let why = self.dependence(columns);
                format!("the central solution {verdict} ({why}); distances to it depend on the solver")
            }
            Caveat::Separable => {
                "the records are separable: the central solution has no finite length unless what separates \
                                  them is penalised; distances to it depend on the solver"
                    .into()
            }
        }
    }

    /// Why other models predict the same.
    fn dependence(&self, columns: &[usize]) -> String {
        /// More names than this would hide the rest of the sentence.
        const SHOWN: usize = 8;
        let name = |p: usize| match self.study.spec().schema() {
            Some(schema) => schema.feature_names()[p].clone(),
            None => format!("x{}", p + 1),
        };
        let names: Vec<String> = columns.iter().take(SHOWN).map(|&p| name(p)).collect();
        let more = if columns.len() > SHOWN { format!(" and {} more", columns.len() - SHOWN) } else { String::new() };
        match columns {
            [] => "there are more features than records".into(),
            [_] => format!("the feature {} is zero in every record", names[0]),
            _ => format!("the features are collinear: {}{more}", names.join(", ")),
        }
    }

    /// The report of the run, as a page.
    pub fn report(&self) -> String {
        let pooled = self.central.as_ref().ok().map(|central| Model::new(&self.fitted, central.w.clone()));
        let mut report =
            begin_report(&self.fitted, &self.model, self.closed.first(), pooled.as_ref(), self.spread.as_deref());
        report.toml = self.study.to_toml();
        report.private = !self.study.spec().data.is_made_up();
        if let Some(held) = &self.held_out {
            let title = format!("On {} records that were kept out of training", held.private.len());
            let models = [("private model", &held.private)]
                .into_iter()
                .chain(held.pooled.as_ref().map(|pooled| ("pooled data", pooled)));
            report.scores.push(score_table(&title, &models.collect::<Vec<_>>()));
        }
        if let (Ok(central), Some(null)) = (&self.central, self.null_objective)
            && null - central.objective > 1e-9 * null.abs()
        {
            let skill = |point: &Point| 1.0 - (point.objective.mean - central.objective) / (null - central.objective);
            let stride = self.points.len().div_ceil(400);
            let points =
                self.points.iter().step_by(stride.max(1)).map(|point| (f64::from(point.round), skill(point).max(-1.0)));
            report.learning = points.collect();
        }
        if let (Some(privacy), Some(epsilon)) = (self.study.privacy(), self.epsilon) {
            report.cost.push(format!(
                "Every party spends epsilon {epsilon:.4} at delta {:e} (accountant {}).",
                privacy.delta().get(),
                privacy.accountant().name()
            ));
            if let Some(colluders) = privacy.colluders() {
                let alone = self.epsilon_alone.map_or("without bound".into(), |alone| format!("{alone:.4}"));
                report.cost.push(format!("This holds as long as at most {colluders} of {} parties pool what they know; if all others of a party do, epsilon is {alone}.", self.names.len()));
            }
            report.spent = spent_by_round(&self.study);
            report.agreed = match privacy.budget() {
                Budget::Epsilon(epsilon) => Some(epsilon.get()),
                Budget::First(_) => None,
            };
        }
        let shown = self.names.len().min(50);
        report.parties =
            (0..shown).map(|k| (self.names.get(k).into_owned(), format!("{} records", self.records[k]))).collect();
        if shown < self.names.len() {
            report.parties.push((format!("and {} more", self.names.len() - shown), String::new()));
        }
        report.happened = vec![format!(
            "A simulation, {} trial(s), {:.1} seconds; the first trial is shown.",
            self.study.spec().simulation.trials,
            self.seconds
        )];
        report.happened.extend(self.notices());
        report.html()
    }

    /// The contents of `summary.json`.
    pub fn to_json(&self) -> Value {
        let last = self.last();
        let privacy = self.study.privacy();
        json!({
            "name": self.study.name(),
            "algorithm": self.study.algorithm().name(),
            "normalized_error": means(last.error),
            "skill": self.regret.map(|regret| json!({
                "mean": 1.0 - regret.mean, "q10": 1.0 - regret.q90, "q90": 1.0 - regret.q10,
            })),
            "held_out": self.held_out.as_ref().map(|held| json!({
                "private": held.private.to_json(), "pooled": held.pooled.as_ref().map(Scored::to_json),
            })),
            "surrogate_error": means(last.surrogate_error),
            "objective": last.objective.mean,
            "central_objective": self.central.as_ref().ok().map(|c| c.objective),
            "consensus": last.consensus.mean,
            "epsilon": self.epsilon,
            "colluders": privacy.and_then(|p| p.colluders()),
            "epsilon_if_all_others_collude": self.epsilon_alone,
            "delta": privacy.map(|p| p.delta().get()),
            "rho_total": last.rho,
            "accountant": privacy.map(|p| p.accountant().name()),
            "rounds": self.study.rounds(),
            "clients": self.names.len(),
            "records": self.records.iter().sum::<usize>(),
            "features": self.model.w.len(),
            "edges": self.edges,
            "trials": self.study.spec().simulation.trials,
            "seconds": self.seconds,
            "notices": self.notices(),
        })
    }

    /// epsilon by every accountant that goes by rho, for the total rho spent.
    pub fn epsilons(&self) -> Option<Vec<(Accountant, f64)>> {
        let privacy = self.study.privacy()?;
        let rho = Rho::new(self.last().rho?).ok()?;
        Some(Accountant::BY_RHO.map(|a| (a, a.epsilon(rho, privacy.delta()).get())).to_vec())
    }
}
