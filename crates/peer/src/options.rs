//! What a peer is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use undertone_core::identity::Identity;
use undertone_core::node::OnLoss;
use undertone_core::study::Study;
use undertone_core::watch::Cancel;
use undertone_data::{DataError, Encoder, Loaded, MemoryTable};

use crate::limit::OwnerLimits;
use crate::state::Anchor;

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
