//! One Undertone client on a real network and a real disk.
//!
//! The decisions are in [`undertone_core::node`]; this crate gives them a key file ([`keys`]), a state folder with the
//! ledger ([`state`]), encrypted connections (`network`), numbers for operators ([`metrics`]) and a loop that ties them
//! together ([`run`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cancel;
mod error;
pub mod keys;
mod limit;
pub mod metrics;
mod network;
mod results;
pub mod run;
pub mod state;

pub use cancel::Cancel;
pub use error::{Cause, KeyError, LimitError, NetworkError, PeerError, StateError};
