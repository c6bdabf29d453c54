//! A real peer, its key, and the policy of its data.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use undertone_core::node::OnLoss;
use undertone_core::study::{Document, Study as Checked};
use undertone_data::{Encoder, table};
use undertone_peer::metrics::Standing;
use undertone_peer::run::{self, Confirmed, Options, Source, Update};
use undertone_peer::state::{Anchor, planned_once, read_policy, write_policy};
use undertone_peer::{Cancel, OwnerLimits, keys};

use crate::errors::Fault;
use crate::log;
use crate::study::Study;
use crate::tables::Rows;
use crate::work::{interruptible, pool};

/// What a peer is started with, and the switch that ends it.
#[pyclass(frozen, module = "undertone._native")]
pub struct Peer {
    document: Document,
    text: String,
    key: PathBuf,
    data: Source,
    state: PathBuf,
    anchor: Option<Anchor>,
    listen: Option<SocketAddr>,
    on_loss: OnLoss,
    limits: OwnerLimits,
    marks_conflicts: bool,
    yes: bool,
    rehearsal: bool,
    metrics: Option<SocketAddr>,
    page: Option<SocketAddr>,
    page_token: Option<PathBuf>,
    pace: Duration,
    /// The switch that ends the run, and whether there is one.
    running: Mutex<(Cancel, bool)>,
}

/// What a running peer has told.
#[derive(Default)]
struct Told {
    name: String,
    listening: Vec<String>,
    page: Option<String>,
    standing: Option<Standing>,
    is_new: bool,
}

#[pymethods]
impl Peer {
    #[new]
    #[pyo3(signature = (study, key, data, state, *, anchor, listen, drop_after, max_epsilon, max_epsilon_alone, on_conflict, yes, rehearsal, metrics, page, page_token, pace))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        study: &Study,
        key: PathBuf,
        data: Rows,
        state: PathBuf,
        anchor: Option<String>,
        listen: Option<String>,
        drop_after: Option<f64>,
        max_epsilon: Option<f64>,
        max_epsilon_alone: Option<f64>,
        on_conflict: &str,
        yes: bool,
        rehearsal: bool,
        metrics: Option<String>,
        page: Option<String>,
        page_token: Option<PathBuf>,
        pace: f64,
    ) -> PyResult<Self> {
        let anchor =
            anchor.map(|text| text.parse().map_err(|e| PyValueError::new_err(format!("anchor {e}")))).transpose()?;
        let patience = drop_after.map(|seconds| time("patience", seconds)).transpose()?;
        if patience.is_some_and(|patience| patience.is_zero()) {
            return Err(PyValueError::new_err("patience must be longer than zero"));
        }
        Ok(Self {
            document: study.document().clone(),
            text: study.text().into(),
            key,
            data: match data {
                Rows::File(path) => Source::File(path),
                // Stages read the records again, and nobody may change them in between.
                Rows::Table(table) => Source::Table(table.get().0.owned()),
            },
            state,
            anchor,
            listen: address("listen", listen)?,
            on_loss: patience.map_or(OnLoss::Wait, OnLoss::Drop),
            limits: OwnerLimits { epsilon: max_epsilon, alone: max_epsilon_alone, ..OwnerLimits::default() },
            marks_conflicts: match on_conflict {
                "stop" => false,
                "mark" => true,
                other => {
                    return Err(PyValueError::new_err(format!("on_conflict must be 'stop' or 'mark', got '{other}'")));
                }
            },
            yes,
            rehearsal,
            metrics: address("metrics", metrics)?,
            page: address("page", page)?,
            page_token,
            pace: time("pace", pace)?,
            running: Mutex::default(),
        })
    }

    /// Takes part until the study is finished; returns the folder of the results, the statement as JSON, whether it was stopped before
    /// that, and the seconds it took.
    #[pyo3(signature = (progress=None))]
    fn run(&self, py: Python, progress: Option<Bound<PyAny>>) -> PyResult<(PathBuf, String, bool, f64)> {
        log::collect();
        let cancel = self.begin()?;
        let told = Mutex::new(Told::default());
        let progress = progress.map(Bound::unbind);
        let tick = |py: Python| match &progress {
            Some(call) => report(py, call.bind(py), &told),
            None => Ok(()),
        };
        let ended = interruptible(py, &cancel, tick, || {
            let options = self.options(&cancel)?;
            Ok(run::run(&options, &mut |update| note(&told, update))?)
        });
        *self.lock() = (Cancel::default(), false);
        let report = ended?;
        tick(py)?;
        Ok((report.folder, crate::json(&report.statement), report.interrupted, report.seconds))
    }

    /// Ends `run` from another thread, as an interrupt does, or the next one before it begins. Nothing is lost.
    fn stop(&self) {
        self.lock().0.cancel();
    }
}

impl Peer {
    fn lock(&self) -> std::sync::MutexGuard<'_, (Cancel, bool)> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The switch for a run that begins, and is the only one.
    fn begin(&self) -> PyResult<Cancel> {
        let mut running = self.lock();
        if std::mem::replace(&mut running.1, true) {
            return Err(PyRuntimeError::new_err(
                "this peer is running already, in another thread or further up in this one",
            ));
        }
        Ok(running.0.clone())
    }

    fn options(&self, cancel: &Cancel) -> Result<Options, Fault> {
        let study = Arc::new(self.study(cancel)?);
        let identity = Arc::new(keys::read(&self.key)?);
        let mut options = Options::new(study, identity, self.data.clone(), &self.state);
        options.anchor = self.anchor.clone();
        options.listen = self.listen;
        options.on_loss = self.on_loss;
        options.limits = self.limits;
        options.marks_conflicts = self.marks_conflicts;
        options.confirmed = if self.yes { Confirmed::Yes } else { Confirmed::No };
        options.rehearsal = self.rehearsal;
        options.metrics = self.metrics;
        options.page = self.page;
        options.page_token = self.page_token.clone();
        options.pace = self.pace;
        // The interpreter has its own way with signals.
        options.takes_signals = false;
        options.cancel = cancel.clone();
        options.spread = Some(spread);
        Ok(options)
    }

    /// The study. Planning is done once: its choice is kept in the state folder, as by the program.
    fn study(&self, cancel: &Cancel) -> Result<Checked, Fault> {
        let mut document = self.document.clone();
        undertone_plan::oddities(&document).iter().for_each(|odd| tracing::warn!(target: "undertone", "{odd}"));
        if !undertone_plan::is_auto(&document)? {
            return Ok(Checked::read(&document)?);
        }
        let plan = || {
            self.check_columns(&document)?;
            let study = pool(None)?.install(|| undertone_plan::resolve(&document, &cancel.watching(|_| {})))?;
            Ok(undertone_plan::chosen(&study))
        };
        let (place, chosen) = planned_once(&self.state, self.text.as_bytes(), plan, Fault::from)?;
        undertone_plan::choose(&mut document, &chosen, &place)?;
        tracing::info!(target: "undertone", kept = place, "algorithm = \"auto\" is {}", chosen.join(", "));
        Ok(Checked::read(&document)?)
    }

    /// Finds a misspelt column before planning, which takes a while.
    fn check_columns(&self, document: &Document) -> Result<(), Fault> {
        let spec = document.spec()?;
        let Some(schema) = spec.schema() else { return Ok(()) };
        let encoder = Encoder { schema, classification: spec.loss.is_classification() };
        match &self.data {
            Source::File(path) => Ok(table::check_columns(path, spec.csv(), &encoder.wanted(&[]))?),
            Source::Table(table) => Ok(encoder.encode(table, "data").map(drop)?),
        }
    }
}

/// What privacy noise does to the coefficients, on threads of its own: those of a pool that is kept would be missing after a fork.
fn spread(study: &Checked) -> Option<Vec<f64>> {
    pool(None).ok()?.install(|| undertone_plan::noise_spread(study))
}

/// Keeps what a peer tells until the interpreter asks for it.
fn note(told: &Mutex<Told>, update: Update) {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    match update {
        Update::Served(url) => told.page = Some(url.to_string()),
        Update::Started(started) => {
            let listening: Vec<String> = started.listening.iter().map(ToString::to_string).collect();
            tracing::info!(
                target: "undertone",
                peer = started.name,
                listening = listening.join(", "),
                neighbours = started.neighbours.join(", "),
                records = started.records,
                round = started.round,
                "{}",
                match (started.new_ledger, started.round) {
                    (true, _) => "started with a new ledger: this data has spent nothing so far",
                    (false, 0) => "started",
                    (false, _) => "continuing from the ledger",
                }
            );
            (told.name, told.listening, told.is_new) = (started.name.to_string(), listening, true);
        }
        Update::Standing(standing) => (told.standing, told.is_new) = (Some(standing), true),
        Update::Heard(..) | Update::Released(..) => {}
    }
}

/// Tells the caller what is new.
fn report(py: Python, call: &Bound<PyAny>, told: &Mutex<Told>) -> PyResult<()> {
    let news = PyDict::new(py);
    {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut told.is_new) {
            return Ok(());
        }
        news.set_item("peer", &told.name)?;
        news.set_item("listening", told.listening.clone())?;
        news.set_item("page", told.page.clone())?;
        let standing = told.standing.unwrap_or_default();
        news.set_item("round", standing.round)?;
        news.set_item("rounds", standing.rounds)?;
        news.set_item("neighbours", standing.neighbours)?;
        news.set_item("connected", standing.connected)?;
        news.set_item("epsilon", standing.spent)?;
        news.set_item("epsilon_left", standing.remaining)?;
    }
    call.call1((news,)).map(drop)
}

fn address(name: &str, text: Option<String>) -> PyResult<Option<SocketAddr>> {
    let parse = |text: String| {
        text.parse().map_err(|_| {
            PyValueError::new_err(format!("{name} must be an address such as 127.0.0.1:9100, got '{text}'"))
        })
    };
    text.map(parse).transpose()
}

fn time(name: &str, seconds: f64) -> PyResult<Duration> {
    // Longer ones are mistakes, and sums of times must not overflow.
    let longest = 100.0 * 365.0 * 24.0 * 3600.0;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds <= longest => Ok(time),
        _ => {
            Err(PyValueError::new_err(format!("{name} must be a number of seconds, at most 100 years, got {seconds}")))
        }
    }
}

/// Makes a key, or reads one, and returns its public id.
#[pyfunction]
pub fn keygen(py: Python, path: PathBuf, show: bool) -> PyResult<String> {
    let key = py.detach(|| if show { keys::read(&path) } else { keys::generate(&path) });
    Ok(key.map_err(Fault::from)?.id().to_string())
}

/// What all studies with a data set together may spend: states what is given, and returns what holds, as TOML.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn policy(
    state: PathBuf,
    epsilon: Option<f64>,
    epsilon_alone: Option<f64>,
    delta: Option<f64>,
    rho: Option<f64>,
    studies: Option<u32>,
    allow_large_delta: bool,
    yes: bool,
) -> PyResult<String> {
    let given = OwnerLimits { epsilon, alone: epsilon_alone, delta, rho, studies, large_delta: allow_large_delta };
    Ok(state_policy(&state, given, yes)?.to_toml())
}

fn state_policy(state: &Path, given: OwnerLimits, yes: bool) -> Result<OwnerLimits, Fault> {
    if given == OwnerLimits::default() {
        return Ok(read_policy(state)?);
    }
    let (policy, relaxed) = read_policy(state)?.changed(given);
    if !relaxed.is_empty() && !yes {
        let told = relaxed.join(", ");
        let message = format!(
            "this would relax what was stated before: {told}. Nothing was changed; repeat it with yes=True if it is meant"
        );
        return Err(Fault::new("LimitError", message));
    }
    // What is written must be what is read.
    OwnerLimits::read(&policy.to_toml(), "the policy")?;
    write_policy(state, &policy)?;
    Ok(read_policy(state)?)
}
