//! What all peers agree on: problem, public bounds, graph, algorithm and budget.
//!
//! A [`StudySpec`] is what a person or a program writes: plain data. [`StudySpec::check`] makes a [`Study`] of it, which cannot be
//! changed and carries all that follows from it: algorithm, schedule, digest, each computed once. A TOML text becomes a
//! specification by [`Document`], whose errors name the line.

mod check;
mod checked;
mod digest;
mod odd;
mod reach;
mod spec;
mod stages;
mod toml;

use thiserror::Error;

pub use checked::{Privacy, Study};
pub use digest::StudyDigest;
pub use spec::{
    AlgorithmSpec, Attack, BudgetSpec, ClientSpec, DataSpec, Layout, NoiseKind, PlanSpec, PrivacySpec, Redraw,
    RegularizerSpec, Simulation, StudySpec,
};
pub use stages::is_stage;
pub use toml::{Document, Reader};

/// Most clients, records per client, features and rounds that a study may ask for.
pub const MOST_CLIENTS: i64 = 100_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_RECORDS: i64 = 1_000_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_FEATURES: i64 = 1_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_ROUNDS: i64 = 10_000_000;
/// See [`MOST_CLIENTS`].
pub const MOST_TRIALS: i64 = 1_000_000;

/// Most measured rounds of all trials together.
pub const MOST_MEASUREMENTS: u64 = 20_000_000;

/// A mistake in a study: where it is, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {message}")]
pub struct StudyError {
    /// File and line, or the command-line option; for a study that was written by a program, "study".
    pub place: String,
    /// The key that is wrong, such as `privacy.clip`; empty where the text cannot be read at all.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl StudyError {
    /// A mistake at a key of a study that was not read from a text; [`Document::locate`] finds its line.
    pub fn at(key: impl Into<String>, message: impl std::fmt::Display) -> Self {
        let key = key.into();
        let message = format!("{key} {message}");
        Self { place: "study".into(), key, message }
    }
}

/// What bounds the frames of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// P.
    pub features: usize,
    /// T.
    pub rounds: u32,
    /// K.
    pub clients: usize,
    /// The largest number in a release ([`Study::reach`]).
    pub largest: f64,
}
