//! Many Undertone clients in one process: experiments, Monte Carlo, the central solution.
//!
//! A study is one TOML text. Running it gives the learning curve, the fitted model and the privacy that was spent:
//!
//! ```
//! use undertone_core::study::Study;
//!
//! let study = Study::parse(
//!     r#"
//!     rounds = 100
//!     problem = { loss = "absolute" }
//!     data = { source = "synthetic", clients = 20, records = 50, features = 4 }
//!     graph = { kind = "small-world", degree = 4 }
//!     algorithm = { name = "zcdp-nfl", rho = 0.5, eta = 0.5, decay = "sqrt" }
//!     privacy = { epsilon = 5.0, delta = 1e-5, clip = 2.0 }
//!     simulation = { trials = 10 }
//!     "#,
//!     "inline",
//! )?;
//! let outcome = undertone_sim::run(&study, &|_share_done| {})?;
//! let last = outcome.last();
//! let [_, released, _] = last.error.expect("a problem of this size is solved centrally");
//! assert!(released.mean < 20.0, "better than knowing nothing, where it is the number of clients");
//! assert!(last.epsilon.expect("privacy is on") <= 5.0);
//! println!("model: {:?}", outcome.model.w);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`data`]: records drawn at random or read from CSV and Parquet, checked and laid out flat;
//! - [`run`](mod@run): the rounds, in parallel over clients and trials, with bits that do not depend on the threads;
//! - [`central`]: what one party holding all records would compute;
//! - [`metrics`], [`outcome`]: what is measured and what is left in the end;
//! - [`folder`], [`plot`]: the run folder on disk;
//!
//! How a client computes a step and what may be released is not decided here but in `undertone-core`.

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod aligned;
pub mod central;
pub mod data;
pub mod folder;
pub mod metrics;
mod network;
pub mod outcome;
#[cfg(feature = "plot")]
pub mod plot;
mod prefetch;
pub mod run;

pub use outcome::Outcome;
pub use run::{Shared, SimError, run, run_sharing};
