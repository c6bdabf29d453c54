//! One Undertone client on a real network and a real disk.
//!
//! The decisions are in [`undertone_core::node`]; this crate gives them a key file ([`keys`]), a state folder with the
//! ledger ([`state`]), encrypted connections (`network`), numbers for operators ([`metrics`]) and a loop that ties them
//! together ([`run`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod keys;
mod limit;
pub mod metrics;
mod network;
mod results;
pub mod run;
pub mod state;

use thiserror::Error;

/// A peer that could not start, or could not go on.
#[derive(Debug, Error)]
pub enum PeerError {
    /// Something given to it is wrong.
    #[error("{0}")]
    Input(String),
    /// The machine did not cooperate.
    #[error("{0}")]
    Machine(String),
}
