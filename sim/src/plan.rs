//! Planning: what a study will cost and how well it will do, from public facts alone.
//!
//! No records are touched. Data of the study's shape is drawn from its public bounds, every private algorithm is tuned on it,
//! and the one with the least error is recommended. The same study gives the same plan everywhere: the search is seeded,
//! and its effort follows from the size of the problem, not from the speed of the machine.

use thiserror::Error;
use undertone_core::algorithm::Facts;
use undertone_core::graph::{Graph, GraphError, GraphSpec, Spectrum};
use undertone_core::message::Limits;
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Budget, NoiseScale, Rho};
use undertone_core::regularizer::Regularizer;
use undertone_core::study::{DataSpec, Document, Layout, NoiseKind, RegularizerSpec, Study, StudyError};

use crate::run::{Progress, Shared};
use crate::tune::{Candidate, Found, Knob, Parameters, Stage, THOROUGH, error, tune};

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
    /// It would take too long.
    #[error(
        "the study is too large to plan by simulation ({0:.0e} operations a run, at most {MOST_WORK:.0e}); name an algorithm and \
         its parameters, or plan a smaller study of the same kind"
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
const MOST_WORK: f64 = 1e9;
/// Operations of one run beyond which fewer records are made up than the study has.
const GOOD_WORK: f64 = 1e8;
/// But not fewer than these.
const FEWEST: usize = 30;
/// Operations that the search for one algorithm may take, about ten seconds of one core.
const WORK: f64 = 3e10;
/// Added to the study's seed, so that a simulation of the planned study is not judged by the data it was planned on.
const OTHER_DATA: u64 = 7_777_777;
/// Trials behind the expected errors, and their draw of data, which the search did not see.
const TRIALS: u32 = 20;
const UNSEEN: u64 = 100;

/// The algorithms that are compared; all private.
const CANDIDATES: [(&str, Candidate); 5] = [
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
    ("p-admm", Candidate { fixed: &["algorithm={name=\"p-admm\"}"], knobs: &[Knob::RHO, Knob::CLIP, Knob::TAU] }),
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
    // Any algorithm will do to read the rest of the study by, with a budget that does not grow.
    let (_, any) = &CANDIDATES[3];
    let even: Vec<Knob> = knobs(any).into_iter().filter(|knob| *knob != Knob::TAU).collect();
    let study = build(any, &tune(&even, &[], None, &|_, _| None, &Shared::default()).parameters)?;
    let made_up = MadeUp::of(&study)?;
    let shared = Shared::exact_only();
    let mut rows = Vec::new();
    for (index, (algorithm, candidate)) in CANDIDATES.iter().enumerate() {
        progress(index as f64 / CANDIDATES.len() as f64);
        let knobs: Vec<Knob> = knobs(candidate).into_iter().map(|knob| knob.within(study.rounds)).collect();
        let on_made_up =
            |parameters: &Parameters, draw: u64| Some(made_up.study(build(candidate, parameters).ok()?, draw));
        // An exact minimiser in every step has a matrix to fill.
        let matrix = if *algorithm == "p-admm" { 1.0 + study.features() as f64 / 4.0 } else { 1.0 };
        let stages = stages(made_up.work * matrix, knobs.len());
        let Found { parameters, error: searched } = tune(&knobs, &stages, None, &on_made_up, &shared);
        if !searched.is_finite() {
            continue;
        }
        let study = build(candidate, &parameters)?;
        let error = error(made_up.study(study.clone(), UNSEEN), TRIALS, &shared) / made_up.graph.clients() as f64;
        if error.is_finite() {
            rows.push(Row { algorithm, study, parameters, error });
        }
    }
    rows.sort_by(|a, b| a.error.total_cmp(&b.error));
    if rows.is_empty() {
        return Err(PlanError::Hopeless);
    }
    let MadeUp { graph, records, .. } = made_up;
    Ok(Plan { spectrum: graph.spectrum(), rows, graph, records })
}

/// How thoroughly to search: fewer points where each takes longer.
fn stages(work: f64, knobs: usize) -> Vec<Stage> {
    let trials: f64 = THOROUGH.iter().map(|stage| stage.points as f64 * f64::from(stage.trials)).sum();
    // A box of few dimensions needs fewer points.
    let share = (WORK / (trials * work)).min(1.0) * (knobs as f64 / 7.0).min(1.0);
    let fewer = |stage: Stage| Stage { points: (stage.points as f64 * share).ceil() as usize, ..stage };
    THOROUGH.map(fewer).to_vec()
}

/// What takes the place of the study's records.
struct MadeUp {
    data: DataSpec,
    graph: Graph,
    /// M_k of the study.
    records: Vec<usize>,
    /// By how much fewer records are made up. The noise of a mean of M records has a scale of 1/M, so the same factor is
    /// made up for in the budget: rho grows by its square.
    fewer: f64,
    /// Operations of one run, roughly.
    work: f64,
}

impl MadeUp {
    fn of(study: &Study) -> Result<Self, PlanError> {
        if let Some(privacy) = &study.privacy
            && let Budget::First(_) = privacy.budget
        {
            return Err(PlanError::Missing(
                "privacy.phi1 gives every algorithm another total; write privacy.epsilon to compare them".into(),
            ));
        }
        let (names, mut data) = stand_in(study)?;
        let graph = study.build_graph(&names, 0)?;
        let made = match &mut data {
            DataSpec::Synthetic { records, .. } | DataSpec::Files { layout: Layout::StandIn { records, .. }, .. } => {
                records
            }
            DataSpec::Files { .. } => unreachable!("made up above"),
        };
        let records = made.clone();
        let mean = |records: &[usize]| records.iter().sum::<usize>() as f64 / records.len() as f64;
        let work = |records: &[usize]| {
            let (clients, edges) = (graph.clients() as f64, graph.edges() as f64);
            let numbers = 4.0 * clients * mean(records) + 4.0 * edges + 20.0 * clients;
            f64::from(study.rounds) * study.features() as f64 * numbers
        };
        let share = (GOOD_WORK / work(&records)).min(1.0);
        made.iter_mut().for_each(|m| *m = ((*m as f64 * share) as usize).max(FEWEST.min(*m)));
        let (fewer, work) = (mean(&records) / mean(made), work(made));
        if work > MOST_WORK {
            return Err(PlanError::TooLarge(work));
        }
        Ok(Self { data, graph, records, fewer, work })
    }

    /// The study on made-up data; `draw` picks the data.
    fn study(&self, mut study: Study, draw: u64) -> Study {
        study.data = self.data.clone();
        study.seed = study.seed.wrapping_add(OTHER_DATA + draw) & i64::MAX as u64;
        study.simulation.central = true;
        if let Some(privacy) = &mut study.privacy {
            privacy.noise = NoiseKind::Fast;
            if let Budget::Epsilon(epsilon) = privacy.budget {
                let rho = privacy.accountant.rho(epsilon, privacy.delta).get() * self.fewer * self.fewer;
                let rho = Rho::new(rho).expect("a budget times a modest number");
                privacy.budget = Budget::Epsilon(privacy.accountant.epsilon(rho, privacy.delta));
            }
        }
        study
    }
}

/// Made-up data of the study's shape.
fn stand_in(study: &Study) -> Result<(Names, DataSpec), PlanError> {
    let (layout, schema) = match &study.data {
        DataSpec::Synthetic { clients, .. } => return Ok((Names::numbered(*clients), study.data.clone())),
        DataSpec::Files { layout: Layout::StandIn { clients, .. }, .. } => {
            return Ok((Names::listed(clients.clone()), study.data.clone()));
        }
        DataSpec::Files { layout, schema, .. } => (layout, schema),
    };
    let Some(plan) = &study.plan else {
        return Err(PlanError::Missing(
            "plan.records is missing; planning reads no data, so write about how many records each client has in a table [plan]"
                .into(),
        ));
    };
    let numbered = |count: usize| (1..=count).map(|k| k.to_string()).collect();
    let clients: Vec<String> = match (layout, &study.graph) {
        _ if study.clients.len() >= 2 && study.clients.values().all(|c| c.id.is_some()) => {
            study.clients.keys().cloned().collect()
        }
        (Layout::Split(count), _) => numbered(*count),
        (_, GraphSpec::Edges(edges)) => {
            let mut names: Vec<String> = edges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
            names.sort();
            names.dedup();
            names
        }
        _ => numbered(plan.clients.ok_or_else(|| {
            PlanError::Missing("plan.clients is missing; write how many clients there will be".into())
        })?),
    };
    if plan.records.len() != 1 && plan.records.len() != clients.len() {
        let (listed, clients) = (plan.records.len(), clients.len());
        return Err(PlanError::Missing(format!(
            "plan.records lists {listed} numbers for {clients} clients; write one for all or one for each"
        )));
    }
    let layout = Layout::StandIn { clients: clients.clone(), records: plan.records.clone(), noise: plan.noise };
    Ok((Names::listed(clients), DataSpec::Files { layout, path: None, schema: schema.clone() }))
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
            eta: None,
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
