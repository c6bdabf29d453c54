//! Plans.
//!
//! No records are touched. Data of the study's shape is drawn from its public bounds, every private algorithm is tuned on it,
//! and the one with the least error is recommended. The same study gives the same plan everywhere: the search is seeded,
//! and its effort follows from the size of the problem, not from the speed of the machine.

use thiserror::Error;
use undertone_core::algorithm::Facts;
use undertone_core::graph::{Graph, GraphError, Spectrum};
use undertone_core::message::Limits;
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, NoiseScale, Rho};
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{Document, RegularizerSpec, Study, StudyError};

use crate::made_up::MadeUp;
use crate::tune::{Candidate, Found, Judged, Knob, Parameters, Stage, THOROUGH, error, tune};
use undertone_sim::run::{Progress, Shared, SimError};

/// A study that cannot be planned.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The study is wrong.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// Its graph is.
    #[error("graph: {0}")]
    Graph(#[from] GraphError),
    /// Something that planning needs is not said.
    #[error("{0}")]
    Missing(String),
    /// Nothing of this shape can be run.
    #[error("made-up data of this shape cannot be run: {0}")]
    Run(#[from] SimError),
    /// It would take too long.
    #[error(
        "the study is too large to plan by simulation ({0:.0e} operations a run; at most {MOST_WORK:.0e}, and 5000 clients); name an \
         algorithm and its parameters, or plan a smaller study of the same kind"
    )]
    TooLarge(f64),
    /// Nothing came out.
    #[error(
        "no algorithm found a model on made-up data of this shape: its central solution is zero or was not found, or every run \
         diverged; change lambda, the budget or the number of records"
    )]
    Hopeless,
}

/// Operations of one run beyond which nothing is planned: the smallest search would take minutes.
pub(crate) const MOST_WORK: f64 = 1e9;
/// Operations that the search for one algorithm may take, about ten seconds of one core.
const WORK: f64 = 3e10;
/// What a plan promises is the model that everybody gets.
const JUDGED: Judged = Judged::Released;
/// Trials behind the expected errors, and their draw of data, which the search did not see.
const TRIALS: u32 = 20;
const UNSEEN: u64 = 100;

/// The algorithms that are compared: all private, and all allowed between peers.
const CANDIDATES: [(&str, Candidate); 4] = [
    (
        "free-rounds",
        Candidate {
            fixed: &["algorithm={name=\"free-rounds\"}"],
            knobs: &[
                Knob::DATA_ROUNDS,
                Knob::LARGE_ETA,
                Knob::CLIP,
                Knob::ANY_DECAY,
                Knob::STEEP_TAU,
                Knob::MOMENTUM,
                Knob::AVERAGE,
            ],
        },
    ),
    (
        "zcdp-nfl",
        Candidate {
            fixed: &["algorithm={name=\"zcdp-nfl\"}"],
            knobs: &[Knob::RHO, Knob::ETA, Knob::CLIP, Knob::TAU, Knob::DECAY, Knob::AVERAGE],
        },
    ),
    (
        "dp-nfl",
        Candidate {
            fixed: &["algorithm={name=\"dp-nfl\"}"],
            knobs: &[Knob::RHO, Knob::ETA, Knob::CLIP, Knob::TAU, Knob::DECAY, Knob::AVERAGE],
        },
    ),
    (
        "zcdp-grad-nfl",
        Candidate {
            fixed: &["algorithm={name=\"zcdp-grad-nfl\"}"],
            knobs: &[Knob::ETA, Knob::CLIP, Knob::TAU, Knob::ANY_DECAY],
        },
    ),
];

/// What one algorithm can be expected to do.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub algorithm: &'static str,
    /// The study with it and the parameters that were found.
    pub study: Study,
    /// Those parameters.
    pub parameters: Parameters,
    /// Mean over clients and trials of ||w_k - w_c||^2/||w_c||^2 after the last round; 1 for knowing nothing.
    pub error: f64,
}

/// A planned study.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What each algorithm can be expected to do, best first; the first is the recommendation.
    pub rows: Vec<Row>,
    /// Who they are.
    pub names: Names,
    /// Who speaks with whom.
    pub graph: Graph,
    /// The extreme eigenvalues of the graph.
    pub spectrum: Spectrum,
    /// M_k: one number for all, or one for each.
    pub records: Vec<usize>,
}

/// A round's budget and noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundNoise {
    /// n.
    pub round: u32,
    /// phi(n).
    pub phi: f64,
    /// The largest sigma_k(n) of a client, per coordinate of its release.
    pub sigma: f64,
}

/// The study of a document; `algorithm = "auto"` is planned first.
pub fn resolve(document: &Document, progress: Progress) -> Result<Study, PlanError> {
    if !is_auto(document) {
        return Ok(Study::read(document)?);
    }
    Ok(plan(document, progress)?.recommended().study.clone())
}

/// Whether the planner is to choose the algorithm.
pub fn is_auto(document: &Document) -> bool {
    document.is_word("algorithm", "auto")
}

/// Plans a study, whatever algorithm it names.
pub fn plan(document: &Document, progress: Progress) -> Result<Plan, PlanError> {
    let auto = is_auto(document);
    let private = !document.is_word("privacy", "off");
    // With "auto", what the study says about clip and tau is meant; else it belongs to the algorithm that it names.
    let open = |knob: &&Knob| {
        let of_privacy = knob.key.starts_with("privacy.");
        !(of_privacy && (!private || (auto && document.has(knob.key))))
    };
    let knobs = |candidate: &Candidate| -> Vec<Knob> { candidate.knobs.iter().filter(open).copied().collect() };
    let build = |candidate: &Candidate, parameters: &Parameters| {
        let mut document = document.clone();
        parameters.apply(candidate, &mut document)?;
        Study::read(&document)
    };
    let study = readable(document, private)?;
    let made_up = MadeUp::of(&study)?;
    let shared = Shared::exact_only();
    made_up.check(study.clone(), &shared)?;
    let mut rows = Vec::new();
    for (index, (algorithm, candidate)) in CANDIDATES.iter().enumerate() {
        progress(index as f64 / CANDIDATES.len() as f64);
        // The classic mechanism's noise does not follow from rho alone, so fewer records cannot be made up for.
        if *algorithm == "dp-nfl" && made_up.fewer > 1.0 {
            continue;
        }
        let knobs: Vec<Knob> = knobs(candidate).into_iter().map(|knob| knob.within(study.rounds)).collect();
        let on_made_up = |parameters: &Parameters, draw: u64| made_up.study(build(candidate, parameters).ok()?, draw);
        let stages = stages(made_up.work, knobs.len());
        let Found { parameters, error: searched } = tune(&knobs, &stages, None, &on_made_up, JUDGED, &shared);
        let Some(unseen) = on_made_up(&parameters, UNSEEN).filter(|_| searched.is_finite()) else { continue };
        let error = error(unseen, TRIALS, JUDGED, &shared) / made_up.graph.clients() as f64;
        if error.is_finite() {
            rows.push(Row { algorithm, study: build(candidate, &parameters)?, parameters, error });
        }
    }
    rows.sort_by(|a, b| a.error.total_cmp(&b.error));
    if rows.is_empty() {
        return Err(PlanError::Hopeless);
    }
    let MadeUp { names, graph, records, .. } = made_up;
    Ok(Plan { spectrum: graph.spectrum(), rows, names, graph, records })
}

/// The study with an algorithm that any budget suits, to read the rest of it by.
fn readable(document: &Document, private: bool) -> Result<Study, StudyError> {
    let mut document = document.clone();
    let single = matches!(document.reader().integer("rounds", 1, 1), Ok(Some(1)));
    let clients = document.reader().table("client").ok().flatten().map(|table| table.names()).unwrap_or_default();
    let own_eta = clients.iter().any(|name| document.has(&format!("client.{name}.eta")));
    let algorithm = match single || own_eta {
        true => "{name=\"zcdp-nfl\", rho=1, eta=1}",
        false => "{name=\"free-rounds\", data_rounds=1, eta=1}",
    };
    document.assign(&format!("algorithm={algorithm}"), "planning".into())?;
    if private && document.has("privacy") && !document.has("privacy.clip") {
        document.assign("privacy.clip=1", "planning".into())?;
    }
    Study::read(&document)
}

/// How thoroughly to search: fewer points where each takes longer.
fn stages(work: f64, knobs: usize) -> Vec<Stage> {
    let trials: f64 = THOROUGH.iter().map(|stage| stage.points as f64 * f64::from(stage.trials)).sum();
    // A box of few dimensions needs fewer points.
    let share = (WORK / (trials * work)).min(1.0) * (knobs as f64 / 7.0).min(1.0);
    let fewer = |stage: Stage| Stage { points: (stage.points as f64 * share).ceil() as usize, ..stage };
    THOROUGH.map(fewer).to_vec()
}

impl Plan {
    /// The best that was found.
    pub fn recommended(&self) -> &Row {
        &self.rows[0]
    }

    /// Budget and noise of the rounds of a row that touch the records; none without privacy.
    pub fn noise(&self, row: &Row) -> Vec<RoundNoise> {
        let study = &row.study;
        let Some(privacy) = &study.privacy else { return Vec::new() };
        let schedule = study.schedule(privacy).expect("checked with the study");
        let costly = (1..=study.rounds).filter(|&n| study.algorithm.touches_records(n, study.rounds));
        costly
            .map(|round| {
                let phi = schedule.phi(round);
                let sigmas = (0..self.graph.clients()).map(|k| self.sigma(row, k, round, phi));
                RoundNoise { round, phi: phi.get(), sigma: sigmas.fold(0.0, f64::max) }
            })
            .collect()
    }

    fn sigma(&self, row: &Row, k: usize, round: u32, phi: Rho) -> f64 {
        let study = &row.study;
        let privacy = study.privacy.as_ref().expect("asked for with privacy only");
        let regularizer = match study.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { l2 } => Regularizer::ElasticNet { l1: 1.0, l2 },
        };
        let facts = Facts {
            problem: &study.problem(regularizer),
            clients: self.graph.clients(),
            rounds: study.rounds,
            degree: self.graph.degree(k),
            records: self.records[k % self.records.len()],
            clip: privacy.clip,
            eta: study.clients.get(&*self.names.get(k)).and_then(|client| client.eta),
        };
        NoiseScale::new(study.algorithm.sensitivity(facts, round), phi).sigma()
    }

    /// The noise term of the paper's bound on the mean objective gap of zCDP-NFL, with the parameters found for it:
    /// rho P 4 (Phi_max(L-)^2 + Phi_max(L+)^2)/Phi_min(L-) (1/T) sum_n sum_k sigma_k(n)^2.
    pub fn bound(&self) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.algorithm == "zcdp-nfl")?;
        let study = &row.study;
        let schedule = study.schedule(study.privacy.as_ref()?).expect("checked with the study");
        let costly = (1..=study.rounds).filter(|&n| study.algorithm.touches_records(n, study.rounds));
        let squares: f64 = costly
            .map(|n| (0..self.graph.clients()).map(|k| self.sigma(row, k, n, schedule.phi(n)).powi(2)).sum::<f64>())
            .sum();
        let scale = study.algorithm.dual_weight() * study.features() as f64 * self.spectrum.noise_factor();
        Some(scale * squares / f64::from(study.rounds))
    }

    /// The total rho of the recommended study and what it is worth by every accountant.
    pub fn spent(&self) -> Option<(Rho, [(Accountant, f64); 3])> {
        let study = &self.recommended().study;
        let privacy = study.privacy.as_ref()?;
        let (rho, _) = study.spent(privacy, &study.schedule(privacy).expect("checked with the study"), study.rounds);
        Some((rho, Accountant::ALL.map(|a| (a, a.epsilon(rho, privacy.delta).get()))))
    }

    /// Bytes of a round's frame, and of all frames that a client with the most neighbours sends.
    pub fn bytes(&self) -> (usize, usize) {
        let study = &self.recommended().study;
        let limits = Limits { features: study.features(), rounds: study.rounds, clients: self.graph.clients() };
        let degree = (0..self.graph.clients()).map(|k| self.graph.degree(k)).max().unwrap_or(0);
        (limits.frame(1), degree * (1..=study.rounds).map(|n| limits.frame(n)).sum::<usize>())
    }
}
