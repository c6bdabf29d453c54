//! Plans.

use std::ops::Range;

use rayon::prelude::*;
use undertone_core::algorithm::{Run, find};
use undertone_core::graph::{Graph, Spectrum};
use undertone_core::knob::{Scale, Value};
use undertone_core::loss::Shape;
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, Epsilon, NoiseScale, Rho, Sensitivity};
use undertone_core::study::{AlgorithmSpec, Document, PrivacySpec, Study, StudyError, StudySpec};
use undertone_core::watch::Watch;

use crate::error::PlanError;
use crate::made_up::{Lost, MadeUp, SEEN, SETS, Standardised, Work, losses};
use crate::regret::{Regret, score};
use crate::tune::{Candidate, Dial, Found, Parameters, Search, Stage, stage};

/// Operations that the search for one algorithm may take, about a second of one core.
const WORK: f64 = 3e9;
/// The search among free rounds: points, and the made-up sets on which each is tried.
const STAGES: [Stage; 3] = [stage(64, 6), stage(24, 12), stage(12, 24)];
/// The search among algorithms that read the records in every round, which take longer and are there to be compared with.
const SHORT_STAGES: [Stage; 3] = [stage(40, 4), stage(16, 8), stage(8, 16)];
/// The search near parameters that did well on a study that differs in one number.
const NEAR_STAGES: [Stage; 2] = [stage(16, 6), stage(6, 8)];
/// Data rounds of free rounds, roughly, to tell how long a run takes.
const FEW: f64 = 16.0;
/// The shares of the budget that private standardisation gets where it is tried.
const STANDARDISE: [f64; 2] = [0.1, 0.3];

/// The algorithms that are compared: all private, and all allowed between peers.
pub(crate) const CANDIDATES: [Candidate; 4] = [
    Candidate {
        name: "free-rounds",
        algorithm: "free-rounds",
        accountant: None,
        // These values are as good as tuned ones on data that nothing was tuned on, and three parameters are found sooner than seven.
        fixed: &[("decay", Value::Word("slow")), ("momentum", Value::Number(0.3)), ("average", Value::Number(0.5))],
        searched: &["data_rounds", "eta", "clip"],
    },
    Candidate {
        name: "zcdp-nfl",
        algorithm: "zcdp-nfl",
        accountant: None,
        fixed: &[],
        searched: &["rho", "eta", "clip", "tau", "decay", "average"],
    },
    Candidate {
        name: "dp-nfl",
        algorithm: "zcdp-nfl",
        accountant: Some(Accountant::Classic),
        fixed: &[],
        searched: &["rho", "eta", "clip", "tau", "decay", "average"],
    },
    Candidate {
        name: "zcdp-grad-nfl",
        algorithm: "zcdp-grad-nfl",
        accountant: None,
        fixed: &[],
        searched: &["eta", "clip", "tau", "decay"],
    },
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
    /// The regret to expect.
    pub regret: Regret,
}

impl Row {
    /// The algorithm, and whether columns are standardised privately before it.
    pub fn title(&self) -> String {
        match self.study.spec().privacy.and_then(|privacy| privacy.standardise) {
            Some(share) => format!("{}, standardised {share}", self.algorithm),
            None => self.algorithm.into(),
        }
    }
}

/// A planned study.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What each algorithm can be expected to do, best first; the first is the recommendation.
    pub rows: Vec<Row>,
    /// The clients' names.
    pub names: Names,
    /// The communication graph.
    pub graph: Graph,
    /// The extreme eigenvalues of the graph.
    pub spectrum: Spectrum,
    /// M_k: one number for all, or one for each.
    pub records: Vec<usize>,
    /// How many clients are lost on the way in the runs that parameters were chosen on.
    pub losses: usize,
}

/// A round's budget and noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundNoise {
    /// n.
    pub round: u32,
    /// phi(n).
    pub phi: f64,
    /// The largest sigma_k(n) of a client, per coordinate of its release; with masks, of its own noise.
    pub sigma: f64,
    /// The noise of all masks of that client together, which cancels in the sum over all clients; 0 without masks.
    pub masks: f64,
}

/// The study of a document; `algorithm = "auto"` is planned first.
pub fn resolve(document: &Document, watch: &dyn Watch) -> Result<Study, PlanError> {
    let spec = document.spec()?;
    if spec.algorithm != AlgorithmSpec::Auto {
        return Ok(Study::read(document)?);
    }
    Ok(plan_document(document, watch)?.recommended().study.clone())
}

/// Plans the study of a document; errors name the line.
pub fn plan_document(document: &Document, watch: &dyn Watch) -> Result<Plan, PlanError> {
    plan(&document.spec()?, watch).map_err(|error| match error {
        PlanError::Study(error) => PlanError::Study(document.locate(error)),
        other => other,
    })
}

/// What the search decides for a candidate. With an open algorithm, a clip or tau of the study is meant; else it belongs to
/// the algorithm that the study names, and each candidate gets its own.
pub(crate) fn open_dials(candidate: &Candidate, spec: &StudySpec, clients: usize) -> Vec<Dial> {
    let kept = |dial: &Dial| {
        let given = match &spec.privacy {
            None => true,
            Some(PrivacySpec { clip, tau, theta, .. }) => {
                let value = match dial.knob.name {
                    "clip" => clip,
                    "theta" => theta,
                    _ => tau,
                };
                spec.algorithm == AlgorithmSpec::Auto && value.is_some()
            }
        };
        !(dial.of_privacy && given)
    };
    let within = |dial: Dial| Dial { scale: range(&dial, candidate, spec), ..dial };
    let dials = match spec.privacy.and_then(|privacy| privacy.colluders) {
        Some(colluders) => candidate.masked_dials(clients, colluders),
        None => candidate.dials(),
    };
    dials.into_iter().filter(kept).map(within).collect()
}

/// Where the search looks for a parameter. Free rounds of tables are searched where they do well on data in these units: features
/// and targets are of the order of 1, so the gradient of a record is of the order of the root of their number.
fn range(dial: &Dial, candidate: &Candidate, spec: &StudySpec) -> Scale {
    let root = (spec.features() as f64).sqrt();
    let scale = match dial.knob.name {
        _ if candidate.algorithm != "free-rounds" || spec.privacy.is_none() => dial.scale,
        "data_rounds" => Scale::Count(2.0, 128f64.min(f64::from(spec.rounds.max(4) - 1))),
        "eta" if spec.schema().is_some() => Scale::Log(0.05, largest_step(spec)),
        "clip" if spec.schema().is_some() => Scale::Log(0.01 * root, 2.0 * root),
        _ => dial.scale,
    };
    if matches!(dial.scale, Scale::Count(..)) && spec.privacy.is_some() && candidate.algorithm == "free-rounds" {
        return scale;
    }
    scale.within(spec.rounds)
}

/// The largest first step that is tried: where the features are standardised and a little correlated, a larger one overshoots, and only
/// the clip would keep it from diverging.
fn largest_step(spec: &StudySpec) -> f64 {
    match spec.loss.shape() {
        Shape::Residual { curvature: Some(curvature), .. } => 4.0 / curvature,
        Shape::Residual { curvature: None, .. } | Shape::Hinge => 6.0,
        Shape::Logistic => 16.0,
    }
}

/// Plans a study, whatever algorithm it names.
pub fn plan(spec: &StudySpec, watch: &dyn Watch) -> Result<Plan, PlanError> {
    spec.check_facts()?;
    let made_up = MadeUp::of(spec)?;
    made_up.check_trust(spec)?;
    let attempts = attempts(spec, &made_up);
    let mut rows: Vec<(Row, &Attempt)> = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        watch.progress(index as f64 / attempts.len() as f64);
        rows.extend(attempt.rate(&made_up, watch)?.map(|row| (row, attempt)));
        if watch.is_cancelled() {
            return Err(PlanError::Cancelled);
        }
    }
    rows.sort_by(|a, b| a.0.regret.score.total_cmp(&b.0.regret.score));
    if let Some((row, attempt)) = rows.first_mut() {
        attempt.improve(row, &made_up, watch)?;
    }
    let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    if rows.is_empty() {
        return Err(PlanError::NoModel);
    }
    let losses = losses(spec, made_up.names.len());
    let MadeUp { names, graph, records, .. } = made_up;
    Ok(Plan { spectrum: graph.spectrum(), rows, names, graph, records, losses })
}

/// The epsilon of a study if all others of a client collude; none without privacy, or if nothing bounds it.
pub(crate) fn epsilon_alone(study: &Study, clients: usize) -> Option<f64> {
    let spent = study.exposure(clients).ok()??;
    study.privacy()?.epsilon(spent.alone).map(Epsilon::get)
}

/// An algorithm that is tried, on the study with or without private standardisation.
pub(crate) struct Attempt {
    pub candidate: Candidate,
    pub spec: StudySpec,
    pub dials: Vec<Dial>,
}

/// All that are tried.
pub(crate) fn attempts(spec: &StudySpec, made_up: &MadeUp) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for candidate in CANDIDATES {
        // Where the study counts classically or not at all, zcdp-nfl is dp-nfl already.
        let study = spec.privacy.as_ref().map(|privacy| privacy.accountant);
        let twice = candidate.accountant.is_some() && (study.is_none() || candidate.accountant == study);
        if twice || !suits(&candidate, spec, made_up) {
            continue;
        }
        let dials = open_dials(&candidate, spec, made_up.names.len());
        attempts.push(Attempt { candidate, spec: spec.clone(), dials: dials.clone() });
        if candidate.algorithm == "free-rounds" && spec.algorithm == AlgorithmSpec::Auto {
            for share in STANDARDISE {
                let mut spec = spec.clone();
                if let Some(privacy) = spec.privacy.as_mut().filter(|privacy| privacy.standardise.is_none()) {
                    privacy.standardise = Some(share);
                    // Whether the study may standardise is what its check says.
                    if spec.check_facts().is_ok() {
                        attempts.push(Attempt { candidate, spec, dials: dials.clone() });
                    }
                }
            }
        }
    }
    attempts
}

/// Whether a study can use a candidate, and made-up sets can stand for its records.
fn suits(candidate: &Candidate, spec: &StudySpec, made_up: &MadeUp) -> bool {
    let classic = candidate.accountant.or(spec.privacy.map(|privacy| privacy.accountant)) == Some(Accountant::Classic);
    let masked = spec.privacy.is_some_and(|privacy| privacy.colluders.is_some());
    let fooled = spec.liars.is_some() && !find(candidate.algorithm).is_some_and(|entry| entry.bounds_liars);
    // The classic mechanism's noise does not follow from rho alone, so fewer records cannot be compensated.
    !(fooled || (classic && (made_up.fewer > 1.0 || masked)))
}

/// A study in whose simulation so many clients are lost.
fn with_losses(study: &Study, losses: usize) -> Option<Study> {
    let mut spec = study.spec().clone();
    spec.simulation.losses = losses;
    spec.check().ok()
}

impl Attempt {
    fn with(&self, parameters: &Parameters) -> StudySpec {
        let mut spec = self.spec.clone();
        self.candidate.apply(parameters, &mut spec);
        spec
    }

    /// Tunes the candidate on made-up sets, and measures it on sets that the search has not seen; none if every run diverged.
    pub fn rate(&self, made_up: &MadeUp, watch: &dyn Watch) -> Result<Option<Row>, StudyError> {
        let Some(bench) = self.bench(made_up, watch) else { return Ok(None) };
        bench.search(None).map_or(Ok(None), |parameters| bench.measure(parameters))
    }

    /// Where noise is masked, searches once more around what is best without masks: with less noise that is not worse. Keeps what is better.
    fn improve(&self, row: &mut Row, made_up: &MadeUp, watch: &dyn Watch) -> Result<(), StudyError> {
        let Some(privacy) = self.spec.privacy.filter(|privacy| privacy.colluders.is_some()) else { return Ok(()) };
        let mut spec = self.spec.clone();
        spec.plan.get_or_insert_default().losses = Some(losses(&self.spec, made_up.names.len()));
        spec.privacy = Some(PrivacySpec { colluders: None, theta: None, ..privacy });
        let dials = open_dials(&self.candidate, &spec, made_up.names.len());
        let plain = Attempt { candidate: self.candidate, spec, dials };
        let start = plain.bench(made_up, watch).and_then(|bench| bench.search(None));
        let (Some(bench), Some(start)) = (self.bench(made_up, watch), start) else { return Ok(()) };
        let around = bench.search(Some(&self.fitted(&start)));
        let best = bench.best([Some(row.parameters.clone()), around].into_iter().flatten().collect());
        if let Some(better) = bench.measure(best)? {
            *row = better;
        }
        Ok(())
    }

    /// Values for the dials of this attempt, from those of another: what that did not decide is in the middle, and so is a theta that is not
    /// possible here.
    pub fn fitted(&self, parameters: &Parameters) -> Parameters {
        let fit = |dial: &Dial| match (parameters.get(dial.knob.name), dial.scale) {
            (Some(Value::Number(theta)), Scale::BelowOne(_, most))
                if dial.knob.name == "theta" && 1.0 - theta > most =>
            {
                (*dial, dial.scale.at(0.5))
            }
            (Some(value), _) => (*dial, value),
            (None, _) => (*dial, dial.scale.at(0.5)),
        };
        Parameters(self.dials.iter().map(fit).collect())
    }

    /// What is needed to try parameters; none where the columns cannot be standardised as the study asks for, and where the study cannot use
    /// the candidate.
    pub fn bench<'a>(&'a self, made_up: &'a MadeUp, watch: &'a dyn Watch) -> Option<Bench<'a>> {
        if !suits(&self.candidate, &self.spec, made_up) {
            return None;
        }
        let dial = |dial: &Dial| (*dial, dial.scale.at(0.5));
        let any = Parameters(self.dials.iter().map(dial).collect());
        let standardised = made_up.study(self.with(&any)).and_then(|study| made_up.standardised(&study));
        let wanted = self.spec.privacy.is_some_and(|privacy| privacy.standardise.is_some());
        (standardised.is_some() || !wanted).then_some(Bench { attempt: self, made_up, standardised, watch })
    }

    /// The stages of a search of the whole box.
    fn stages(&self) -> &'static [Stage] {
        if self.is_quick() { &STAGES } else { &SHORT_STAGES }
    }

    fn is_quick(&self) -> bool {
        self.candidate.algorithm == "free-rounds"
    }

    /// The same stages with fewer points where each takes longer. It does not depend on the machine.
    fn affordable(&self, stages: &[Stage], work: Work) -> Vec<Stage> {
        let rounds = f64::from(self.spec.rounds);
        let data_rounds = if self.is_quick() { FEW.min(rounds) } else { rounds };
        let run = rounds * work.mixing_round + data_rounds * work.data_round;
        let trials: f64 = stages.iter().map(|stage| stage.points as f64 * f64::from(stage.trials)).sum();
        let share = (WORK / (trials * run)).min(1.0);
        let fewer = |stage: &Stage| Stage { points: ((stage.points as f64 * share).ceil() as usize).max(6), ..*stage };
        stages.iter().map(fewer).collect()
    }
}

/// An attempt with the made-up sets on which its parameters are tried.
pub(crate) struct Bench<'a> {
    pub attempt: &'a Attempt,
    made_up: &'a MadeUp,
    /// The sets as the study standardises them, if it does.
    standardised: Option<Vec<Standardised>>,
    watch: &'a dyn Watch,
}

impl Bench<'_> {
    /// What is lost with these parameters on some of the sets; none if the study cannot be made.
    fn lost(&self, parameters: &Parameters, sets: Range<usize>) -> Option<Vec<Lost>> {
        let Self { attempt, made_up, standardised, watch } = self;
        // A search that is cancelled has nothing left to try.
        let study = if watch.is_cancelled() { None } else { made_up.study(attempt.with(parameters)) }?;
        let whole = with_losses(&study, 0)?;
        let on = |index: usize| {
            // Parameters are chosen for the case that clients are lost; what to expect covers both cases.
            let study = if index >= SEEN && index.is_multiple_of(2) { &whole } else { &study };
            made_up.lost(study, index, standardised.as_ref().map(|sets| &sets[index]))
        };
        Some(sets.into_par_iter().map(on).collect())
    }

    /// Searches, in the whole box or around a start; none if every run diverged.
    pub fn search(&self, start: Option<&Parameters>) -> Option<Parameters> {
        self.search_in(self.attempt.stages(), start)
    }

    /// Searches near parameters that did well on a study that differs in one number: about a third of the effort.
    pub fn search_near(&self, start: &Parameters) -> Option<Parameters> {
        self.search_in(&NEAR_STAGES, Some(start))
    }

    fn search_in(&self, stages: &[Stage], start: Option<&Parameters>) -> Option<Parameters> {
        let judge = |parameters: &Parameters, sets: u32, _: u64| {
            self.lost(parameters, 0..sets as usize).map_or(f64::INFINITY, |lost| score(&lost))
        };
        let stages = self.attempt.affordable(stages, self.made_up.work);
        let mut search = Search::brief(&stages);
        search.last.trials = search.last.trials.min(SEEN as u32);
        let Found { parameters, error } = search.least(&self.attempt.dials, start, &judge);
        error.is_finite().then_some(parameters)
    }

    /// The best of several, on all sets that searches use.
    pub fn best(&self, several: Vec<Parameters>) -> Parameters {
        let judged =
            |parameters: &Parameters| self.lost(parameters, 0..SEEN).map_or(f64::INFINITY, |lost| score(&lost));
        let mut scored: Vec<(f64, Parameters)> = several.into_iter().map(|p| (judged(&p), p)).collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0));
        scored.swap_remove(0).1
    }

    /// What to expect of these parameters, on sets that no search has seen; none if that is without bound.
    pub fn measure(&self, parameters: Parameters) -> Result<Option<Row>, StudyError> {
        let Some(unseen) = self.lost(&parameters, SEEN..SETS) else { return Ok(None) };
        let regret = Regret::of(&unseen);
        if !regret.score.is_finite() {
            return Ok(None);
        }
        let mut spec = self.attempt.with(&parameters);
        // Two digits are what the range is good for, and what all machines agree on.
        let rounded = |regret: f64| (100.0 * (1.0 - regret.min(10.0))).round() / 100.0;
        spec.plan.get_or_insert_default().skill =
            Some((rounded(regret.q90), rounded(regret.q10))).filter(|(worse, better)| better > worse);
        let study = spec.check()?;
        Ok(Some(Row { algorithm: self.attempt.candidate.name, study, parameters, regret }))
    }
}

impl Plan {
    /// How many made-up data sets the expectations rest on.
    pub fn sets(&self) -> usize {
        SETS - SEEN
    }

    /// The best that was found.
    pub fn recommended(&self) -> &Row {
        &self.rows[0]
    }

    /// The recommended algorithm, with its share for private standardisation, on a study that differs a little.
    pub(crate) fn recommended_on(&self, mut spec: StudySpec, clients: usize) -> Attempt {
        let row = self.recommended();
        let candidate = CANDIDATES.into_iter().find(|candidate| candidate.name == row.algorithm).expect("one of them");
        if let Some(privacy) = &mut spec.privacy {
            privacy.standardise = row.study.spec().privacy.and_then(|privacy| privacy.standardise);
        }
        Attempt { candidate, dials: open_dials(&candidate, &spec, clients), spec }
    }

    /// The rounds of a row that touch the records; none without privacy.
    fn data_rounds(row: &Row) -> impl Iterator<Item = u32> {
        let (algorithm, rounds) = (row.study.algorithm(), row.study.rounds());
        let private = row.study.privacy().is_some();
        (1..=rounds).filter(move |&n| private && algorithm.touches_records(n, rounds))
    }

    /// Budget and noise of the data rounds of a row; none without privacy.
    pub fn noise(&self, row: &Row) -> Vec<RoundNoise> {
        let noise = |round: u32| {
            let phi = row.study.privacy().map_or(0.0, |privacy| privacy.schedule().phi(round).get());
            let largest = self.sigmas(row, round).into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            let (sigma, masks) = largest.unwrap_or((0.0, 0.0));
            RoundNoise { round, phi, sigma, masks }
        };
        Self::data_rounds(row).map(noise).collect()
    }

    /// The scales of the noise of all clients, their own and that of all their masks; none without privacy.
    fn sigmas(&self, row: &Row, round: u32) -> Vec<(f64, f64)> {
        let study = &row.study;
        let Some(privacy) = study.privacy() else { return Vec::new() };
        // The size of lambda1 does not matter to any sensitivity.
        let problem = study.problem(|| 1.0);
        let run = Run { rounds: study.rounds(), graph: &self.graph, problem: &problem, robust: None };
        let mean = || self.records.iter().sum::<usize>() as f64 / self.records.len() as f64;
        let masking = study.masking(self.graph.clients(), mean).ok().flatten();
        let budget = privacy.client_budget(None).masked(masking);
        let sigma = |k: usize| {
            let eta = study.spec().clients.get(&*self.names.get(k)).and_then(|client| client.eta);
            let records = self.records[k % self.records.len()];
            let gradient = Sensitivity::of_clipped_sum(privacy.clip(), records, study.divisor(records, mean));
            let public = run.round(round, k, eta);
            if budget.masking().is_some() {
                let scale = study.algorithm().gain(&public).map_or(f64::NAN, f64::abs);
                let made = budget.masked_noise(round, gradient, study.features());
                return made.map_or((f64::NAN, f64::NAN), |(lattice, own)| {
                    let (others, step) = (self.graph.clients() as f64 - 1.0, scale * lattice.step());
                    (own.scale as f64 * step, lattice.mask() as f64 * step * others.sqrt())
                });
            }
            let sensitivity = study.algorithm().sensitivity(&public, gradient);
            (NoiseScale::new(sensitivity, privacy.schedule().phi(round)).sigma(), 0.0)
        };
        (0..self.graph.clients()).map(sigma).collect()
    }

    /// The noise term of the paper's bound on the mean objective gap of zCDP-NFL, with the parameters found for it:
    /// rho P 4 (Phi_max(L-)^2 + Phi_max(L+)^2)/Phi_min(L-) (1/T) sum_n sum_k sigma_k(n)^2.
    pub fn bound(&self) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.algorithm == "zcdp-nfl")?;
        let study = &row.study;
        study.privacy()?;
        let squares: f64 = Self::data_rounds(row)
            .flat_map(|n| self.sigmas(row, n))
            .map(|(own, masks)| own * own + masks * masks)
            .sum();
        let scale = study.algorithm().dual_weight() * study.features() as f64 * self.spectrum.noise_factor();
        Some(scale * squares / f64::from(study.rounds()))
    }

    /// The total rho of the recommended study and what it is worth by every accountant that goes by rho.
    pub fn spent(&self) -> Option<(Rho, [(Accountant, f64); 3])> {
        let study = &self.recommended().study;
        let privacy = study.privacy()?;
        let (rho, _) = privacy.spent(study.rounds());
        Some((rho, Accountant::BY_RHO.map(|a| (a, a.epsilon(rho, privacy.delta()).get()))))
    }

    /// The epsilon of the recommended study if all others of a client collude; none without privacy.
    pub fn epsilon_alone(&self) -> Option<f64> {
        epsilon_alone(&self.recommended().study, self.graph.clients())
    }

    /// Bytes of a round's frame, and of all frames that a client with the most neighbours sends.
    pub fn bytes(&self) -> (usize, usize) {
        let study = &self.recommended().study;
        let limits = study.limits(self.graph.clients());
        let degree = self.graph.max_degree();
        (limits.frame(1), degree * (1..=study.rounds()).map(|n| limits.frame(n)).sum::<usize>())
    }
}
