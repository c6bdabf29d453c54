//! Plans.

use undertone_core::algorithm::Run;
use undertone_core::graph::{Graph, Spectrum};
use undertone_core::names::Names;
use undertone_core::privacy::{Accountant, NoiseScale, Rho, Sensitivity};
use undertone_core::study::{AlgorithmSpec, Document, PrivacySpec, Study, StudyError, StudySpec};
use undertone_core::watch::Watch;
use undertone_sim::run::Shared;

use crate::error::PlanError;
use crate::made_up::MadeUp;
use crate::tune::{Candidate, Dial, Found, Judged, Parameters, Search, Stage, THOROUGH, error, tune};

/// Operations that the search for one algorithm may take, about ten seconds of one core.
const WORK: f64 = 3e10;
/// A plan reports the error of the model that all clients get.
const JUDGED: Judged = Judged::Released;
/// Trials behind the expected errors, and their draw of data, which the search did not use.
const TRIALS: u32 = 20;
const UNSEEN: u64 = 100;

/// The algorithms that are compared: all private, and all allowed between peers.
const CANDIDATES: [Candidate; 4] = [
    Candidate {
        name: "free-rounds",
        algorithm: "free-rounds",
        accountant: None,
        fixed: &[],
        searched: &["data_rounds", "eta", "clip", "decay", "tau", "momentum", "average"],
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
    /// Mean over clients and trials of ||w_k - w_c||^2/||w_c||^2 after the last round; 1 for the zero model.
    pub error: f64,
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
fn open_dials(candidate: &Candidate, spec: &StudySpec) -> Vec<Dial> {
    let kept = |dial: &Dial| {
        let given = match &spec.privacy {
            None => true,
            Some(PrivacySpec { clip, tau, .. }) => {
                let value = if dial.knob.name == "clip" { clip } else { tau };
                spec.algorithm == AlgorithmSpec::Auto && value.is_some()
            }
        };
        !(dial.of_privacy && given)
    };
    let within = |dial: Dial| Dial { scale: dial.scale.within(spec.rounds), ..dial };
    candidate.dials().into_iter().filter(kept).map(within).collect()
}

/// Plans a study, whatever algorithm it names.
pub fn plan(spec: &StudySpec, watch: &dyn Watch) -> Result<Plan, PlanError> {
    spec.check_facts()?;
    let made_up = MadeUp::of(spec)?;
    let shared = Shared::exact_only();
    made_up.check(spec, &shared)?;
    let mut rows = Vec::new();
    for (index, candidate) in CANDIDATES.iter().enumerate() {
        watch.progress(index as f64 / CANDIDATES.len() as f64);
        // The classic mechanism's noise does not follow from rho alone, so fewer records cannot be compensated.
        let study = spec.privacy.as_ref().map(|privacy| privacy.accountant);
        let classic = candidate.accountant.or(study) == Some(Accountant::Classic);
        // Where the study counts classically or not at all, zcdp-nfl is dp-nfl already.
        let twice = candidate.accountant.is_some() && (study.is_none() || candidate.accountant == study);
        if twice || (classic && made_up.fewer > 1.0) {
            continue;
        }
        let rated = rate(candidate, spec, &made_up, &shared, watch)?;
        if watch.is_cancelled() {
            return Err(PlanError::Cancelled);
        }
        rows.extend(rated);
    }
    rows.sort_by(|a, b| a.error.total_cmp(&b.error));
    if rows.is_empty() {
        return Err(PlanError::NoModel);
    }
    let MadeUp { names, graph, records, .. } = made_up;
    Ok(Plan { spectrum: graph.spectrum(), rows, names, graph, records })
}

/// Tunes one candidate on made-up data, and measures it on data that the search has not seen; none if every run diverged.
fn rate(
    candidate: &Candidate,
    spec: &StudySpec,
    made_up: &MadeUp,
    shared: &Shared,
    watch: &dyn Watch,
) -> Result<Option<Row>, StudyError> {
    let with = |parameters: &Parameters| {
        let mut spec = spec.clone();
        candidate.apply(parameters, &mut spec);
        spec
    };
    // A search that is cancelled has nothing left to try.
    let on_made_up = |parameters: &Parameters, draw: u64| {
        if watch.is_cancelled() { None } else { made_up.study(with(parameters), draw).ok().flatten() }
    };
    let dials = open_dials(candidate, spec);
    let stages = stages(made_up.work, dials.len());
    let Found { parameters, error: searched } = tune(&dials, Search::brief(&stages), None, &on_made_up, JUDGED, shared);
    let Some(unseen) = on_made_up(&parameters, UNSEEN).filter(|_| searched.is_finite()) else { return Ok(None) };
    let error = error(&unseen, TRIALS, JUDGED, shared) / made_up.graph.clients() as f64;
    if !error.is_finite() {
        return Ok(None);
    }
    Ok(Some(Row { algorithm: candidate.name, study: with(&parameters).check()?, parameters, error }))
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

    /// The rounds of a row that touch the records; none without privacy.
    fn data_rounds(row: &Row) -> impl Iterator<Item = u32> {
        let (algorithm, rounds) = (row.study.algorithm(), row.study.rounds());
        let private = row.study.privacy().is_some();
        (1..=rounds).filter(move |&n| private && algorithm.touches_records(n, rounds))
    }

    /// Budget and noise of the data rounds of a row; none without privacy.
    pub fn noise(&self, row: &Row) -> Vec<RoundNoise> {
        let noise = |round: u32| {
            let sigmas = self.sigmas(row, round);
            let phi = row.study.privacy().map_or(0.0, |privacy| privacy.schedule().phi(round).get());
            RoundNoise { round, phi, sigma: sigmas.into_iter().fold(0.0, f64::max) }
        };
        Self::data_rounds(row).map(noise).collect()
    }

    /// sigma_k(n) of all clients; none without privacy.
    fn sigmas(&self, row: &Row, round: u32) -> Vec<f64> {
        let study = &row.study;
        let Some(privacy) = study.privacy() else { return Vec::new() };
        // The size of lambda1 does not matter to any sensitivity.
        let problem = study.problem(|| 1.0);
        let run = Run { rounds: study.rounds(), graph: &self.graph, problem: &problem };
        let sigma = |k: usize| {
            let eta = study.spec().clients.get(&*self.names.get(k)).and_then(|client| client.eta);
            let gradient = Sensitivity::of_clipped_mean(privacy.clip(), self.records[k % self.records.len()]);
            let sensitivity = study.algorithm().sensitivity(&run.round(round, k, eta), gradient);
            NoiseScale::new(sensitivity, privacy.schedule().phi(round)).sigma()
        };
        (0..self.graph.clients()).map(sigma).collect()
    }

    /// The noise term of the paper's bound on the mean objective gap of zCDP-NFL, with the parameters found for it:
    /// rho P 4 (Phi_max(L-)^2 + Phi_max(L+)^2)/Phi_min(L-) (1/T) sum_n sum_k sigma_k(n)^2.
    pub fn bound(&self) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.algorithm == "zcdp-nfl")?;
        let study = &row.study;
        study.privacy()?;
        let squares: f64 =
            Self::data_rounds(row).map(|n| self.sigmas(row, n).iter().map(|sigma| sigma.powi(2)).sum::<f64>()).sum();
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

    /// Bytes of a round's frame, and of all frames that a client with the most neighbours sends.
    pub fn bytes(&self) -> (usize, usize) {
        let study = &self.recommended().study;
        let limits = study.limits(self.graph.clients());
        let degree = (0..self.graph.clients()).map(|k| self.graph.degree(k)).max().unwrap_or(0);
        (limits.frame(1), degree * (1..=study.rounds()).map(|n| limits.frame(n)).sum::<usize>())
    }
}
