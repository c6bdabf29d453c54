//! Studies: checked, planned, simulated and audited.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::prelude::*;
use serde_json::{Value, json};
use undertone_audit::peers::audit_peers;
use undertone_audit::{Findings, Options, audit, report};
use undertone_core::schema::ColumnKind;
use undertone_core::study::{DataSpec, Document, Layout, Study as Checked};
use undertone_core::watch::Watch;
use undertone_data::{Background, Model, Rows as DataRows};
use undertone_plan::account::{Given, Question};
use undertone_sim::data::Population;
use undertone_sim::folder;

use crate::errors::Fault;
use crate::tables::{Rows, Table};
use crate::work::watched;

/// A study as it is written, and where its own files are looked for.
#[pyclass(frozen, module = "undertone._native")]
pub struct Study {
    document: Document,
    /// As it was given: the name under which a peer keeps what was planned.
    text: String,
    folder: PathBuf,
}

/// The records of a simulation.
#[derive(FromPyObject)]
pub enum Records<'py> {
    /// A table for each client.
    #[pyo3(transparent)]
    Each(Vec<(String, Bound<'py, Table>)>),
    /// A file, a folder, or one table for all.
    #[pyo3(transparent)]
    All(Rows<'py>),
}

/// The same without the interpreter.
enum Source {
    Own,
    Path(PathBuf),
    Each(Vec<(String, undertone_data::MemoryTable)>),
    All(undertone_data::MemoryTable),
}

impl Source {
    fn of(records: Option<Records>) -> Self {
        match records {
            None => Self::Own,
            Some(Records::All(Rows::File(path))) => Self::Path(path),
            Some(Records::All(Rows::Table(table))) => Self::All(table.get().0.clone()),
            Some(Records::Each(tables)) => {
                Self::Each(tables.into_iter().map(|(name, table)| (name, table.get().0.clone())).collect())
            }
        }
    }
}

#[pymethods]
impl Study {
    /// A study from text; `origin` is its name in messages, `folder` where its files are looked for.
    #[staticmethod]
    fn parse(text: &str, origin: &str, folder: PathBuf, assignments: Vec<String>) -> PyResult<Self> {
        let mut document = Document::parse(text, origin).map_err(Fault::from)?;
        assignments.iter().try_for_each(|assignment| document.set(assignment)).map_err(Fault::from)?;
        // What cannot be read at all is said at once; what is wrong as a whole by `check`, all together.
        document.spec().map_err(Fault::from)?;
        Ok(Self { document, text: text.into(), folder })
    }

    /// The same with other values of some keys.
    fn with_set(&self, assignments: Vec<String>) -> PyResult<Self> {
        let mut document = self.document.clone();
        assignments.iter().try_for_each(|assignment| document.set(assignment)).map_err(Fault::from)?;
        let text = document.spec().map_err(Fault::from)?.to_toml();
        Ok(Self { document, text, folder: self.folder.clone() })
    }

    /// The study as TOML, with every default written out.
    fn toml(&self) -> PyResult<String> {
        Ok(self.document.spec().map_err(Fault::from)?.to_toml())
    }

    /// What is public about it, as JSON.
    fn facts(&self) -> PyResult<String> {
        let spec = self.document.spec().map_err(Fault::from)?;
        let columns = spec.schema().map(|schema| {
            let words: serde_json::Map<String, Value> = schema
                .features
                .iter()
                .chain([&schema.target])
                .filter_map(|column| match &column.kind {
                    ColumnKind::Category(words) => Some((column.name.clone(), json!(words))),
                    ColumnKind::Number { .. } => None,
                })
                .collect();
            json!({
                "features": schema.features.iter().map(|column| &column.name).collect::<Vec<_>>(),
                "target": schema.target.name,
                "words": words,
            })
        });
        let layout = match &spec.data {
            DataSpec::Synthetic { .. } => "synthetic",
            DataSpec::Files { layout: Layout::Folder, .. } => "folder",
            DataSpec::Files { layout: Layout::Column(_), .. } => "column",
            DataSpec::Files { layout: Layout::Split(_), .. } => "split",
            DataSpec::Files { layout: Layout::StandIn { .. }, .. } => "stand-in",
        };
        let own = match &spec.data {
            DataSpec::Files { layout: Layout::Column(column), .. } => Some(column.clone()),
            _ => None,
        };
        Ok(crate::json(&json!({
            "name": spec.name,
            "rounds": spec.rounds,
            "loss": spec.loss.name(),
            "classification": spec.loss.is_classification(),
            "private": spec.privacy.is_some(),
            "auto": undertone_plan::is_auto(&self.document).map_err(Fault::from)?,
            "layout": layout,
            "column": own,
            "columns": columns,
            "clients": spec.clients.keys().collect::<Vec<_>>(),
            "oddities": undertone_plan::oddities(&self.document),
        })))
    }

    /// Where the study's own files are.
    fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    /// Everything that is wrong with the study, and with one party's records if they are given, as JSON.
    #[pyo3(signature = (rows=None, name="data"))]
    fn check(&self, py: Python, rows: Option<Rows>, name: &str) -> PyResult<String> {
        let csv = self.document.spec().map(|spec| spec.csv()).unwrap_or_default();
        let file = match &rows {
            Some(Rows::File(path)) => Some(path.clone()),
            _ => None,
        };
        let table = match &rows {
            Some(Rows::Table(table)) => Some(table.get()),
            _ => None,
        };
        let checked = watched(py, None, None, |_| {
            let rows = match (&file, table) {
                (Some(path), _) => Some(DataRows::File(path, csv)),
                (_, Some(table)) => Some(DataRows::Table(&table.0, name)),
                _ => None,
            };
            Ok(undertone_plan::check(&self.document, rows))
        })?;
        let columns = checked.found.as_ref().map(|(_, found)| {
            let column = |c: &undertone_data::ColumnSummary| {
                json!({
                    "column": c.name, "empty": c.missing, "wrong": c.wrong, "below": c.outside.0, "above": c.outside.1,
                    "limited": c.limited, "least": c.numbers.map(|n| n[1]), "mean": c.numbers.map(|n| n[3]),
                    "largest": c.numbers.map(|n| n[2]), "spread": c.numbers.map(|n| n[4]), "words": c.words,
                })
            };
            found.columns.iter().map(column).collect::<Vec<_>>()
        });
        let found = checked.found.as_ref().map(|(_, found)| (found.rows, found.held));
        Ok(crate::json(&json!({
            "problems": checked.problems, "notes": checked.notes, "columns": columns,
            "records": found.map(|f| f.0), "held": found.map(|f| f.1),
        })))
    }

    /// Plans the study; `clients` is how many there are where it does not say so.
    #[pyo3(signature = (clients=0, trust=true, progress=None, threads=None))]
    fn plan(
        &self,
        py: Python,
        clients: usize,
        trust: bool,
        progress: Option<Bound<PyAny>>,
        threads: Option<usize>,
    ) -> PyResult<Plan> {
        watched(py, progress.as_ref(), threads, |watch| {
            let mut document = self.document.clone();
            let spec = document.spec()?;
            match own_path(&self.folder, &spec.data).filter(|path| path.exists()) {
                Some(path) if clients == 0 => undertone_plan::check_files(&mut document, &path)?,
                _ => undertone_plan::count_clients(&mut document, clients, "data")?,
            }
            let plan = undertone_plan::plan_document(&document, watch)?;
            let masked = spec.privacy.is_some_and(|privacy| privacy.colluders.is_some());
            let trust = if masked && trust { undertone_plan::trust(&spec, &plan, watch)? } else { Vec::new() };
            let study = &plan.recommended().study;
            let toml = study.to_toml();
            Ok(Plan { json: undertone_plan::to_json(&plan, &trust), toml, folder: self.folder.clone() })
        })
    }

    /// Runs the study with all clients in this process, on these records in place of its own.
    #[pyo3(signature = (records=None, progress=None, threads=None, spread=true))]
    fn simulate(
        &self,
        py: Python,
        records: Option<Records>,
        progress: Option<Bound<PyAny>>,
        threads: Option<usize>,
        spread: bool,
    ) -> PyResult<Outcome> {
        let source = Source::of(records);
        watched(py, progress.as_ref(), threads, |watch| {
            let (study, chosen) = self.resolved(&source, watch)?;
            let outcome = match source {
                Source::Own | Source::Path(_) => undertone_sim::run(&study, watch)?,
                Source::Each(tables) => {
                    undertone_sim::run_on(&study, Population::from_tables(&study, stable(&study, tables))?, watch)?
                }
                Source::All(table) => {
                    let table = if is_staged(&study) { table.owned() } else { table };
                    undertone_sim::run_on(&study, Population::from_table(&study, table)?, watch)?
                }
            };
            let spread = if spread { undertone_plan::spread_of(&study, &outcome) } else { None };
            Ok(Outcome { outcome: undertone_sim::Outcome { spread, ..outcome }, chosen, folder: self.folder.clone() })
        })
    }

    /// Attacks the study; returns the findings as JSON, the page, and whether a claim is refuted.
    #[pyo3(signature = (trials=None, quick=false, peers=None, seed=1, progress=None, threads=None))]
    #[allow(clippy::too_many_arguments)]
    fn audit(
        &self,
        py: Python,
        trials: Option<u64>,
        quick: bool,
        peers: Option<Vec<OsString>>,
        seed: u64,
        progress: Option<Bound<PyAny>>,
        threads: Option<usize>,
    ) -> PyResult<(String, String, bool, Vec<f64>)> {
        let findings: Findings = watched(py, progress.as_ref(), threads, |watch| {
            let (study, _) = self.resolved(&Source::Own, watch)?;
            let base = if quick { Options::quick() } else { Options::default() };
            // An exact number of trials is not cut short.
            let most = if trials.is_some() { Duration::MAX } else { base.most };
            let options = Options { trials, most, seed, ..base };
            match &peers {
                Some(program) => Ok(audit_peers(&study, program, &options, watch)?),
                None => {
                    let (names, _) = undertone_plan::clients(study.spec())?;
                    Ok(audit(&study, &names, &options, watch)?)
                }
            }
        })?;
        let text = serde_json::to_string_pretty(&findings).map_err(Fault::internal)?;
        let proven = findings.parts.iter().map(undertone_audit::Part::proven).collect();
        Ok((text, report::page(&findings), findings.is_violated(), proven))
    }
}

/// Where the study's own files are, if it says so.
fn own_path(folder: &Path, data: &DataSpec) -> Option<PathBuf> {
    match data {
        DataSpec::Files { path: Some(path), .. } => Some(folder.join(path)),
        _ => None,
    }
}

/// Whether tables are read more than once.
fn is_staged(study: &Checked) -> bool {
    study.moments().is_some() || study.privacy().is_some_and(|privacy| privacy.after().get() > 0.0)
}

/// Tables that are read once are read where they are. Others are copied: between two stages their owner could change them.
fn stable(
    study: &Checked,
    tables: Vec<(String, undertone_data::MemoryTable)>,
) -> Vec<(String, undertone_data::MemoryTable)> {
    let staged = is_staged(study);
    tables.into_iter().map(|(name, table)| (name, if staged { table.owned() } else { table })).collect()
}

impl Study {
    pub fn document(&self) -> &Document {
        &self.document
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The checked study for these records, and what was chosen for it.
    fn resolved(&self, source: &Source, watch: &dyn Watch) -> Result<(Checked, Vec<String>), Fault> {
        let mut document = self.document.clone();
        let data = document.spec()?.data;
        let path = match source {
            Source::Own => own_path(&self.folder, &data),
            Source::Path(path) => Some(path.clone()),
            Source::Each(_) | Source::All(_) => None,
        };
        if let (Source::Path(_), true) = (source, data.is_made_up()) {
            return Err(made_up());
        }
        let is_auto = undertone_plan::is_auto(&document)?;
        let mut chosen = Vec::new();
        if is_auto {
            match (source, &path) {
                (Source::Each(tables), _) => undertone_plan::count_clients(&mut document, tables.len(), "data")?,
                (_, Some(path)) => undertone_plan::check_files(&mut document, path)?,
                _ => {}
            }
        }
        let study = undertone_plan::resolve(&document, watch)?;
        if is_auto {
            chosen = undertone_plan::chosen(&study);
        }
        let spec = study.spec().clone();
        let study = match (source, path) {
            (Source::Each(_) | Source::All(_), _) if matches!(spec.data, DataSpec::Synthetic { .. }) => {
                return Err(made_up());
            }
            // Tables of the parties take the place of whatever the study reads.
            (Source::Each(_), _) => {
                let mut spec = spec;
                if let DataSpec::Files { layout, .. } = &mut spec.data {
                    *layout = Layout::Folder;
                }
                spec.check()?
            }
            (_, Some(path)) => {
                let path = std::path::absolute(&path);
                let path = path.map_err(|e| Fault::new("DataError", format!("data.path: {e}")))?;
                spec.data_path(path.display().to_string()).check()?
            }
            _ => study,
        };
        Ok((study, chosen))
    }
}

fn made_up() -> Fault {
    Fault::new("DataError", "data: the study generates its data; set data.source to folder, column or split")
}

/// A planned study.
#[pyclass(frozen, module = "undertone._native")]
pub struct Plan {
    json: Value,
    toml: String,
    folder: PathBuf,
}

#[pymethods]
impl Plan {
    /// Everything, as JSON.
    fn json(&self) -> String {
        crate::json(&self.json)
    }

    /// The recommended study.
    fn study(&self) -> PyResult<Study> {
        Study::parse(&self.toml, "the planned study", self.folder.clone(), Vec::new())
    }
}

/// The result of a simulation.
#[pyclass(frozen, module = "undertone._native")]
pub struct Outcome {
    outcome: undertone_sim::Outcome,
    chosen: Vec<String>,
    folder: PathBuf,
}

#[pymethods]
impl Outcome {
    /// One of the files of the run folder, as text; none if there is none of that name.
    fn text(&self, py: Python, name: &str) -> Option<String> {
        py.detach(|| folder::text(&self.outcome, name))
    }

    /// What the planner chose, if it did.
    fn chosen(&self) -> Vec<String> {
        self.chosen.clone()
    }

    /// The run folder on disk, which must be new or empty.
    fn save(&self, py: Python, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            folder::prepare(&path).map_err(Fault::from)?;
            Ok(folder::write(&self.outcome, &path).map_err(Fault::from)?)
        })
    }

    /// The study as it was run.
    fn study(&self) -> PyResult<Study> {
        Study::parse(&self.outcome.study.to_toml(), "the study of a simulation", self.folder.clone(), Vec::new())
    }

    /// The coefficients of pooled data without privacy in the units of the table, as JSON; none if there is no such model.
    fn pooled(&self) -> Option<String> {
        let central = self.outcome.central.as_ref().ok()?;
        let model = Model::new(&self.outcome.fitted, central.w.clone());
        Some(crate::json(&model.to_json(&self.outcome.fitted, &Background::default())))
    }

    /// The standard deviation that privacy noise alone gives to each coefficient, the intercept first.
    fn spread(&self) -> Option<Vec<f64>> {
        self.outcome.spread.clone()
    }

    /// Final w of every client in the first trial, row after row.
    fn clients<'py>(&self, py: Python<'py>) -> (Vec<String>, Bound<'py, pyo3::types::PyBytes>) {
        let names = (0..self.outcome.names.len()).map(|k| self.outcome.names.get(k).into_owned()).collect();
        (names, crate::bytes(py, &self.outcome.clients))
    }
}

/// A privacy question without a study; the answer as JSON.
#[pyfunction]
#[pyo3(signature = (delta, epsilon, rho_total, phi1, rounds, tau, clients, colluders, theta))]
#[allow(clippy::too_many_arguments)]
pub fn account(
    py: Python,
    delta: f64,
    epsilon: Option<f64>,
    rho_total: Option<f64>,
    phi1: Option<f64>,
    rounds: i64,
    tau: f64,
    clients: Option<usize>,
    colluders: Option<usize>,
    theta: Option<f64>,
) -> PyResult<String> {
    let given = match (rho_total, epsilon, phi1) {
        (Some(rho), _, _) => Given::RhoTotal(rho),
        (_, Some(epsilon), _) => Given::Epsilon(epsilon),
        (_, _, Some(phi1)) => Given::First(phi1),
        _ => return Err(pyo3::exceptions::PyTypeError::new_err("account() needs one of epsilon, rho_total and phi1")),
    };
    // Whatever is no number of rounds at all is refused as 0 is.
    let rounds = u32::try_from(rounds).unwrap_or(0);
    let question = Question { given, delta, rounds, tau, trust: clients.zip(colluders), theta };
    let answer = py.detach(|| crate::work::caught(|| Ok(question.answer()?)))?;
    Ok(crate::json(&answer))
}
