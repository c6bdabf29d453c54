//! One peer from start to end: what it is started with, who is told of it, and how it ended.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use undertone_core::identity::Identity;
use undertone_core::node::OnLoss;
use undertone_core::study::Study;
use undertone_core::watch::Cancel;
use undertone_data::{DataError, Encoder, Loaded, MemoryTable};

use crate::PeerError;
use crate::limit::OwnerLimits;
use crate::metrics::Metrics;
use crate::page::{Board, Server, Site};
use crate::stage::run_stages;
use crate::state::Anchor;
pub use crate::update::{Started, Update};

/// What a peer is started with.
pub struct Options {
    /// The study.
    pub study: Arc<Study>,
    /// Its key.
    pub identity: Arc<Identity>,
    /// Its table.
    pub data: Source,
    /// Its state folder.
    pub state: PathBuf,
    /// Where a mark is kept that shows whether the state folder is an old one.
    pub anchor: Option<Anchor>,
    /// Where to listen; without it, the port of its own address in the study.
    pub listen: Option<SocketAddr>,
    /// What to do about a neighbour that is not connected.
    pub on_loss: OnLoss,
    /// What the owner of the data allows.
    pub limits: OwnerLimits,
    /// Whether there is a model, which then says so, although a party released different things to different peers.
    pub marks_conflicts: bool,
    /// Whether the owner has seen and confirmed what is unusual about the study, if anything is.
    pub confirmed: Confirmed,
    /// Whether noise that is not safe to release is accepted.
    pub rehearsal: bool,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Where to serve the page, with the metrics beside it.
    pub page: Option<SocketAddr>,
    /// The file of the token that the page asks for, which is made if there is none; without it only this machine may see the page.
    pub page_token: Option<PathBuf>,
    /// Rounds are at least this far apart, so that people can watch.
    pub pace: Duration,
    /// Whether SIGINT and SIGTERM end the peer; false in a program that has its own way with them and uses `cancel`.
    pub takes_signals: bool,
    /// Whether to end when standard input does, for a program that starts peers and must not leave any behind.
    pub until_input_ends: bool,
    /// Whether records must survive a loss of power; false only for measurements.
    pub durable: bool,
    /// Ends the peer from another thread, as an interrupt does.
    pub cancel: Cancel,
    /// Computes from the study alone how far privacy noise moves each coefficient, for the report; without it the report does not say.
    pub spread: Option<NoiseSpread>,
}

impl Options {
    /// A peer that waits for its neighbours, has no limit of its owner and serves no metrics.
    pub fn new(study: Arc<Study>, identity: Arc<Identity>, data: Source, state: impl Into<PathBuf>) -> Self {
        Self {
            study,
            identity,
            data,
            state: state.into(),
            anchor: None,
            listen: None,
            on_loss: OnLoss::Wait,
            limits: OwnerLimits::default(),
            confirmed: Confirmed::No,
            marks_conflicts: false,
            rehearsal: false,
            metrics: None,
            page: None,
            page_token: None,
            pace: Duration::ZERO,
            takes_signals: true,
            until_input_ends: false,
            durable: true,
            cancel: Cancel::default(),
            spread: None,
        }
    }

    /// What privacy noise alone does to the coefficients, by public facts.
    pub(crate) fn noise_spread(&self) -> Option<Vec<f64>> {
        self.spread.and_then(|of| of(&self.study))
    }
}

/// Whether a study that is unusual may begin.
#[derive(Debug, Clone, Copy)]
pub enum Confirmed {
    /// It may not: an error says what is unusual.
    No,
    /// It may.
    Yes,
    /// Whoever this asks decides.
    Ask(fn(&[String]) -> bool),
}

/// Computes from a study alone what privacy noise does to each coefficient.
pub type NoiseSpread = fn(&Study) -> Option<Vec<f64>>;

/// Where a peer's records come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A CSV or Parquet file.
    File(PathBuf),
    /// A table in memory.
    Table(MemoryTable),
}

impl Source {
    /// All records, checked against the study's public bounds.
    pub(crate) fn load(&self, study: &Study, name: &str) -> Result<Loaded, DataError> {
        let schema = study.spec().schema().expect("the roster refuses other sources");
        let encoder = Encoder { schema, classification: study.spec().loss.is_classification() };
        match self {
            Source::File(path) => encoder.read(path, study.spec().csv(), name),
            Source::Table(table) => encoder.encode(table, name),
        }
    }
}

/// How a peer ended.
#[derive(Debug)]
pub struct Report {
    /// Where the results are.
    pub folder: PathBuf,
    /// The statement of what was spent.
    pub statement: Value,
    /// Whether it was asked to end before it had finished.
    pub interrupted: bool,
    /// Wall time from start to end.
    pub seconds: f64,
    /// The last releases that are in the model, with their authors.
    pub(crate) finals: Vec<(u32, Vec<f64>)>,
    /// Whether it was asked to end at all.
    pub(crate) stopped: bool,
}

/// Runs a peer until the study is finished, it is interrupted, or it must stop.
///
/// A study that standardises its columns privately, or that has intervals or a private score, is run in stages: first the moments, whose last releases all peers
/// pass on to each other, then the study with the typical values that follow from them, then one closing release for the model that came out. What follows from a
/// stage is part of the next one's digest, so peers that hold different ones do not go on together. It is written down before
/// the next stage starts and read from there ever after: releases that arrive later must not start it anew, which would spend its budget twice.
pub fn run(options: &Options, observe: &mut dyn FnMut(Update)) -> Result<Report, PeerError> {
    let metrics = Arc::new(Metrics::default());
    let mut board = options.page.map(|_| Board::new(&options.study));
    let _servers = serve(options, &metrics, board.as_ref(), observe)?;
    let report = run_stages(options, &mut Audience { metrics, board: board.as_mut(), observe });
    if let Some(board) = &mut board {
        board.end(report.as_ref().map(|report| report.interrupted).map_err(ToString::to_string));
    }
    report
}

/// Who is told of a run: dashboards, the page, and whoever called.
pub(crate) struct Audience<'a> {
    pub metrics: Arc<Metrics>,
    pub board: Option<&'a mut Board>,
    pub observe: &'a mut dyn FnMut(Update),
}

/// Serves metrics and the page, each where the options say.
fn serve(
    options: &Options,
    metrics: &Arc<Metrics>,
    board: Option<&Board>,
    observe: &mut dyn FnMut(Update),
) -> Result<Vec<Server>, PeerError> {
    let mut servers = Vec::new();
    // The page's server has the metrics too.
    if let Some(address) = options.metrics.filter(|_| options.metrics != options.page) {
        servers.push(Server::start(address, Site { metrics: Some(metrics.clone()), ..Site::default() })?);
    }
    if let (Some(address), Some(board)) = (options.page, board) {
        let (metrics, page, token) = (Some(metrics.clone()), Some(board.feed()), options.page_token.clone());
        let server = Server::start(address, Site { metrics, page, act: None, token })?;
        tracing::info!(page = server.url, "the page is served");
        observe(Update::Served(&server.url));
        servers.push(server);
    }
    Ok(servers)
}
