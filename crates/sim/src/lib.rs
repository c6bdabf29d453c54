//! Many Undertone clients in one process: experiments, Monte Carlo, the central solution.
//!
//! [`run`](fn@run) takes a checked study and gives the learning curve, the fitted model and the privacy that was spent. Its
//! data is drawn at random or read from files, as the study says; [`run_on`] takes records that are in memory. How a client
//! computes a step and what may be released is not decided here but in `undertone-core`, in the same code that peers run.
//!
//! ```
//! use undertone_core::graph::GraphSpec;
//! use undertone_core::loss::Absolute;
//! use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
//!
//! let study = StudySpec::new(Absolute, DataSpec::synthetic(20, 50, 4), GraphSpec::SmallWorld { degree: 4, rewire: 0.1 })
//!     .rounds(100)
//!     .algorithm(AlgorithmSpec::named("zcdp-nfl").number("rho", 0.5).number("eta", 0.5).word("decay", "sqrt"))
//!     .privacy(PrivacySpec::epsilon(5.0, 1e-5).clip(2.0))
//!     .trials(10)
//!     .check()?;
//! let outcome = undertone_sim::run(&study, &|share_done| eprintln!("{:.0}%", 100.0 * share_done))?;
//! let last = outcome.last();
//! let error = last.error.expect("a problem of this size is solved centrally");
//! assert!(error.released.mean < 20.0, "better than the zero model, whose error is the number of clients");
//! assert!(last.epsilon.expect("privacy is on") <= 5.0);
//! println!("model: {:?}", outcome.model.w);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Long runs report their progress to a [`Watch`], which can also end them: [`Cancel`] does so from another thread. The bits of
//! a result follow from the seed and do not depend on the number of threads.
//!
//! - [`data`]: the records of all clients, laid out flat;
//! - [`run`](mod@run): the rounds, in parallel over clients and trials;
//! - [`ranks`]: runs that several processes share; [`checkpoint`]: the state of a run on disk;
//! - [`central`]: what one party holding all records would compute; [`caveat`]: what to know before comparing with it;
//! - [`metrics`], [`outcome`]: what is measured, and what is left in the end;
//! - [`folder`]: the run folder on disk; `plot`, with the feature of that name: curves as SVG and PNG.

mod aligned;
pub mod burden;
pub mod caveat;
pub mod central;
pub mod checkpoint;
pub mod data;
mod error;
pub mod folder;
mod liars;
mod losses;
pub mod metrics;
mod network;
pub mod outcome;
#[cfg(feature = "plot")]
pub mod plot;
mod prefetch;
pub mod ranks;
pub mod run;
#[cfg(test)]
mod shared_runs;
mod trial;

pub use data::Population;
pub use outcome::Outcome;
pub use run::{Shared, SimError, Spread, run, run_across, run_on, run_sharing};
pub use undertone_core::watch::{Cancel, Unwatched, Watch};
