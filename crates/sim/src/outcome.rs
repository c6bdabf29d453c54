//! What a run leaves behind.

use serde::Serialize;
use serde_json::{Value, json};
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Budget};
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{NoiseKind, Privacy, RegularizerSpec, Study};
use undertone_data::Model;

use crate::central::Central;
use crate::metrics::{Band, PerModel};

/// One measured round, over all trials. Errors are of w, of w~ and of the running average, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// n.
    pub round: u32,
    /// Total rho spent by the most exposed client.
    pub rho: Option<f64>,
    /// The epsilon that goes with it.
    pub epsilon: Option<f64>,
    /// Against the central solution.
    pub error: Option<[Band; 3]>,
    /// Against the solution of the clipped problem.
    pub surrogate_error: Option<[Band; 3]>,
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
    /// The learning curve.
    pub points: Vec<Point>,
    /// Errors in the last round, trial by trial; empty where there is no central solution.
    pub final_errors: Vec<PerModel>,
    /// The fitted model, of the first trial.
    pub model: Model,
    /// The clients' names.
    pub names: Names,
    /// Final w of every client in the first trial, flat.
    pub clients: Vec<f64>,
    /// Final w~ of every client in the first trial, flat.
    pub released: Vec<f64>,
    /// E.
    pub edges: usize,
    /// Records of all clients.
    pub records: usize,
    /// The regulariser with its resolved weights.
    pub regularizer: Regularizer,
    /// The central solution, or why there is none.
    pub central: Result<Central, String>,
    /// The solution of the clipped problem.
    pub surrogate: Option<Central>,
    /// The epsilon that the run promises at the study's delta; none for what is not private.
    pub epsilon: Option<f64>,
    /// Wall time of loading the first trial's data and solving it centrally.
    pub setup_seconds: f64,
    /// Wall time of everything.
    pub seconds: f64,
}

#[derive(Serialize)]
struct Errors {
    w: Option<f64>,
    released: Option<f64>,
    average: Option<f64>,
}

impl Errors {
    fn of(bands: &Option<[Band; 3]>) -> Self {
        let [w, released, average] = [0, 1, 2].map(|i| bands.map(|b| b[i].mean));
        Self { w, released, average }
    }
}

impl Outcome {
    /// The last measured round.
    pub fn last(&self) -> &Point {
        self.points.last().expect("the last round is always measured")
    }

    /// What a reader must know before believing the numbers.
    pub fn notices(&self) -> Vec<String> {
        let study = &self.study;
        let mut notices = Vec::new();
        match &study.privacy {
            None => notices
                .push("PRIVACY IS OFF: nothing is clipped, nothing is noised, every message reveals the data".into()),
            Some(_) if !study.algorithm.clips() => notices.push(format!(
                "NOT PRIVATE: {} does not enforce the clip its noise assumes; it is a reference only",
                study.algorithm.name()
            )),
            Some(privacy) if privacy.noise == NoiseKind::Fast => {
                notices
                    .push("noise = \"fast\": good for simulation, never for release; use \"secure\" for that".into());
            }
            Some(_) => notices.push(
                "noise = \"secure\": drawn from the operating system, so the seed does not repeat this run".into(),
            ),
        }
        if !study.data.is_made_up() && study.privacy.is_some() {
            notices.push(
                "this folder is for the eyes of whoever may see the records: w, clients.csv, errors and objectives are \
                 computed from them without noise"
                    .into(),
            );
            if study.simulation.trials > 1 {
                notices.push(format!(
                    "{} trials on the same records: epsilon is that of one; releasing all would spend {} times the rho",
                    study.simulation.trials, study.simulation.trials
                ));
            }
        }
        if let (Some(Privacy { budget: Budget::Epsilon(asked), .. }), Some(epsilon)) = (&study.privacy, self.epsilon)
            && epsilon > asked.get()
        {
            notices.push(format!(
                "a client with a phi1 of its own spends epsilon {epsilon:.6}, more than the study's {}",
                asked.get()
            ));
        }
        if let RegularizerSpec::PaperRule { .. } = study.regularizer {
            let (l1, _) = self.regularizer.weights();
            notices.push(format!(
                "lambda1 = {l1:.6} by the paper's rule, which looks at private data; \
                 a deployment takes a public constant"
            ));
        }
        if let Err(reason) = &self.central {
            notices.push(format!("no central solution: {reason}; normalised errors are left out"));
        } else if self.last().error.is_none() {
            notices.push("the central solution is zero; normalised errors are left out".into());
        }
        notices
    }

    /// As `summary.json` holds it.
    pub fn to_json(&self) -> Value {
        let last = self.last();
        let privacy = self.study.privacy.as_ref();
        json!({
            "name": self.study.name,
            "algorithm": self.study.algorithm.name(),
            "normalized_error": Errors::of(&last.error),
            "surrogate_error": Errors::of(&last.surrogate_error),
            "objective": last.objective.mean,
            "central_objective": self.central.as_ref().ok().map(|c| c.objective),
            "consensus": last.consensus.mean,
            "epsilon": self.epsilon,
            "delta": privacy.map(|p| p.delta.get()),
            "rho_total": last.rho,
            "accountant": privacy.map(|p| if self.has_own_proof() { "classic" } else { p.accountant.name() }),
            "rounds": self.study.rounds,
            "clients": self.names.len(),
            "records": self.records,
            "features": self.model.w.len(),
            "edges": self.edges,
            "trials": self.study.simulation.trials,
            "seconds": self.seconds,
            "notices": self.notices(),
        })
    }

    /// Whether the epsilon comes from the algorithm's own proof.
    fn has_own_proof(&self) -> bool {
        self.epsilon.is_some() && self.epsilon != self.last().epsilon
    }

    /// epsilon by every accountant for the rho spent in the end.
    pub fn epsilons(&self) -> Option<Vec<(Accountant, f64)>> {
        let privacy = self.study.privacy.as_ref()?;
        let rho = undertone_core::privacy::Rho::new(self.last().rho?).ok()?;
        Some(Accountant::ALL.map(|a| (a, a.epsilon(rho, privacy.delta).get())).to_vec())
    }
}
