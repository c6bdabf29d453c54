//! One Undertone client on a real network and a real disk.
//!
//! All decisions are made in [`undertone_core::node`], a state machine without IO. This crate gives it a key file
//! ([`keys`]), a state folder with the ledger ([`state`]), encrypted connections between Ed25519 keys, numbers for operators
//! ([`metrics`]) and the loop that ties them together ([`run`]).
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use undertone_core::study::Study;
//! use undertone_peer::run::{Options, Source, run};
//! use undertone_peer::keys;
//!
//! let study = Study::parse(&std::fs::read_to_string("study.toml")?, "study.toml")?;
//! let identity = keys::read("lakeside.key".as_ref())?;
//! let data = Source::File("mine.csv".into());
//! let report = run(&Options::new(Arc::new(study), Arc::new(identity), data, "lakeside-state"), &mut |_| {})?;
//! println!("epsilon {}, model in {}", report.statement["epsilon"], report.folder.display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Nothing is sent that is not recorded.** Every release is durable in the ledger before its frame exists. After a crash
//! the same call continues, and sends the same bytes. An error ([`PeerError`]) says what was wrong and what to do; no record
//! is lost and no release is noised twice. [`Cancel`] ends a peer from another thread.

#![forbid(unsafe_code)]

mod conversation;
mod disk_watch;
mod error;
mod evidence;
pub mod keys;
mod limit;
mod map;
pub mod metrics;
mod network;
mod options;
pub mod page;
mod results;
pub mod run;
mod stage;
pub mod state;
mod update;

pub use error::{Cause, KeyError, LimitError, NetworkError, PeerError, ServerError, StateError};
pub use evidence::Evidence;
pub use limit::{OwnerLimits, Stated};
pub use undertone_core::watch::Cancel;
