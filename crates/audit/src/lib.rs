//! An empirical lower bound on the epsilon of a study, by the best attack we know.
//!
//! A proof can be right and the program wrong. An audit runs the program: clients of the study, with its algorithm, loss, graph, budget, noise and
//! masks, through [`Rules::round`](undertone_core::client::Rules::round), the function that simulations and peers call. Their records are made for
//! the attack: client k has P records x = a e_p, y = +-b, whose signs are fair bits. Each has a gradient of the length of the clip, on an axis
//! of its own, so every coordinate of every client is an independent trial of the worst pair of neighbouring data sets.
//!
//! The adversary hears every message, knows all but the bit, replays the public part, and adds up the log-likelihood ratio of the bit over all
//! data rounds. From how often the guess is wrong follows, with a stated probability of error, that mu is at least some number: whoever guesses a bit from the
//! outcome of a mu-GDP mechanism is wrong with probability Phi(-mu/2) or more. Beside it stands a bound that assumes no law, from the tails
//! at a threshold fixed beforehand: epsilon >= ln((P(hit) - delta)/P(miss)). Other guesses subtract the noise of the next coordinate or of another client,
//! in case they have the same; noise that repeats is counted; and stops of a client are counted as outcomes, under releases of any size.
//!
//! With masks the adversary knows the secrets of q clients, and weighs what the others say by the inverse of the covariance that is left.
//!
//! ```no_run
//! use undertone_audit::{Options, audit};
//! use undertone_core::{names::Names, study::Study, watch::Unwatched};
//!
//! let study = Study::parse(&std::fs::read_to_string("study.toml")?, "study.toml")?;
//! let findings = audit(&study, &Names::numbered(10), &Options::default(), &Unwatched)?;
//! assert!(!findings.is_violated());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod bound;
mod findings;
pub mod peers;
mod repeats;
pub mod report;
mod stops;
mod subject;

use std::time::{Duration, Instant};

use rayon::prelude::*;
use thiserror::Error;
use undertone_core::client::RoundError;
use undertone_core::graph::GraphError;
use undertone_core::names::Names;
use undertone_core::study::{BudgetSpec, Study, StudyError};
use undertone_core::watch::Watch;

use bound::{epsilon_of, mu_of, trials_for};
pub use findings::{Attack, Findings, Part};
pub use repeats::Repeats;
pub use stops::Stops;
use subject::{Seen, Subject};

/// A study that cannot be audited.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// There is nothing to audit.
    #[error("privacy = \"off\": this study promises nothing, so there is nothing to audit; give it a table [privacy]")]
    NoPrivacy,
    /// The clip is not enforced.
    #[error("{0} does not enforce its clip, so no epsilon is claimed that could be audited; use another algorithm")]
    Unclipped(&'static str),
    /// The study cannot be changed as the audit needs it.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The graph cannot be used.
    #[error("graph: {0}")]
    Graph(#[from] GraphError),
    /// Noise could not be drawn.
    #[error("{0}")]
    Noise(String),
    /// A run of the study ended early.
    #[error("a run of the study ended in an error: {0}")]
    Round(#[from] RoundError),
    /// The peers of an audit could not be run.
    #[error("the audit of peers failed: {0}")]
    Peers(String),
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// How thorough an audit is.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many bits are guessed at each epsilon; as many as are expected to prove 92% of the claim, unless given.
    pub trials: Option<u64>,
    /// The most wall time for each epsilon.
    pub most: Duration,
    /// The probability with which an audit of a study that keeps its claim says otherwise.
    pub alpha: f64,
    /// Another epsilon at which the same study is audited: a deficit of noise shows with fewer trials where noise is small.
    pub near: Option<f64>,
    /// The seed of the bits, and of noise that is seeded.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { trials: None, most: Duration::from_secs(30), alpha: 1e-3, near: Some(10.0), seed: 1 }
    }
}

impl Options {
    /// A few seconds: enough to see gross mistakes, and deficits of a few hundredths near epsilon 10.
    pub fn quick() -> Self {
        Self { most: Duration::from_secs(2), ..Self::default() }
    }
}

/// Audits a study among these clients: as it is and near another epsilon, with the standardisation before it and the closing release after it if it has them.
pub fn audit(study: &Study, names: &Names, options: &Options, watch: &dyn Watch) -> Result<Findings, AuditError> {
    if study.privacy().is_none() {
        return Err(AuditError::NoPrivacy);
    }
    if !study.algorithm().clips() {
        return Err(AuditError::Unclipped(study.algorithm().name()));
    }
    let mut stages = stages(study, names, "as it is")?;
    if let Some(epsilon) = options.near {
        let mut spec = study.spec().clone();
        if let Some(privacy) = &mut spec.privacy {
            privacy.budget = BudgetSpec::Epsilon(epsilon);
        }
        // A budget for each client has no meaning at another epsilon.
        spec.clients.values_mut().for_each(|client| client.phi1 = None);
        if let Ok(other) = spec.check() {
            stages.extend(self::stages(&other, names, &format!("at epsilon {epsilon}"))?);
        }
    }
    let mut subjects = Vec::new();
    for (name, stage) in &stages {
        for class in classes(stage, names) {
            subjects.push((name.clone(), Subject::new(stage, names, &class)?));
        }
    }
    // Every part has several attacks, each with its own chance of a false alarm.
    let alpha = options.alpha / subjects.len() as f64;
    let mut parts = Vec::new();
    for (i, (name, subject)) in subjects.iter().enumerate() {
        let share = |done: f64| watch.progress((i as f64 + done) / subjects.len() as f64);
        parts.push(examine(name, subject, options, alpha, &share, watch)?);
    }
    Ok(Findings::new(study, options.alpha, parts))
}

/// The study, the standardisation before it, and the closing release after it. What the one before released decides nothing about the sensitivity of the next, so
/// zeros stand for it.
fn stages(study: &Study, names: &Names, name: &str) -> Result<Vec<(String, Study)>, AuditError> {
    let mut stages = Vec::new();
    let mut rounds = study.clone();
    if let Some(moments) = study.moments() {
        let divisor = study.divisor(1, || 1.0);
        let trust = study.masking(names.len(), || divisor)?.map(|masking| masking.trust);
        rounds = study.standardised(&vec![0.0; moments.features()], names.len(), divisor, trust.as_ref())?;
        stages.push((format!("{name}, standardisation"), moments));
    }
    let closing = rounds.closing(&vec![0.0; rounds.features()], names.len());
    let whole = stages.is_empty() && closing.is_none();
    stages.push((if whole { name.to_string() } else { format!("{name}, rounds") }, rounds));
    stages.extend(closing.map(|closing| (format!("{name}, closing release"), closing)));
    Ok(stages)
}

/// Clients with the same budget, the common one first.
fn classes(study: &Study, names: &Names) -> Vec<Vec<usize>> {
    let own = |k: usize| study.spec().clients.get(&*names.get(k)).and_then(|client| client.phi1).unwrap_or(0.0);
    let mut budgets: Vec<f64> = (0..names.len()).map(own).collect();
    let all = budgets.clone();
    budgets.sort_by(f64::total_cmp);
    budgets.dedup();
    budgets.iter().map(|phi1| (0..names.len()).filter(|k| all[*k] == *phi1).collect()).collect()
}

/// One study at one budget.
fn examine(
    name: &str,
    subject: &Subject,
    options: &Options,
    alpha: f64,
    progress: &dyn Fn(f64),
    watch: &dyn Watch,
) -> Result<Part, AuditError> {
    let (delta, mu) = (subject.delta(), mu_of(subject.rho()));
    let each = alpha / PIECES;
    // Where noise is small, a deficit of a hundredth shows.
    let share = if epsilon_of(mu, delta) > 5.0 { 0.985 } else { 0.925 };
    let wanted = options.trials.unwrap_or_else(|| trials_for(mu, share, delta, each));
    let stops = stops::stops(subject, 400, delta, each);
    let seen = gather(subject, wanted, options, progress, watch)?;
    Ok(Part::new(name, subject, &seen, stops, each))
}

/// How many pieces of evidence a part may have: stops, repeats, and two bounds of each of three guesses.
pub(crate) const PIECES: f64 = 8.0;

/// Runs until there are as many trials as wanted, or the time is up.
fn gather(
    subject: &Subject,
    wanted: u64,
    options: &Options,
    progress: &dyn Fn(f64),
    watch: &dyn Watch,
) -> Result<Seen, AuditError> {
    let started = Instant::now();
    let mut seen = Seen::default();
    let (mut next, mut batch) = (0u32, 2 * rayon::current_num_threads() as u32);
    while (seen.bits.len() as u64) < wanted && (next == 0 || started.elapsed() < options.most) {
        if watch.is_cancelled() {
            return Err(AuditError::Cancelled);
        }
        let left = (wanted - seen.bits.len() as u64).div_ceil(subject.bits() as u64);
        let runs = next..next + batch.min(left.min(u64::from(u32::MAX / 2)) as u32);
        next = runs.end;
        let begun = Instant::now();
        let more: Result<Vec<Seen>, RoundError> =
            runs.clone().into_par_iter().map(|trial| subject.run(trial, options.seed)).collect();
        more?.into_iter().for_each(|one| seen.append(one));
        // Batches of about a tenth of a second.
        let seconds = begun.elapsed().as_secs_f64().max(1e-4);
        batch = ((runs.len() as f64 * 0.1 / seconds) as u32).clamp(2, 1 << 16);
        progress(f64::max(
            seen.bits.len() as f64 / wanted as f64,
            started.elapsed().as_secs_f64() / options.most.as_secs_f64(),
        ));
    }
    Ok(seen)
}
