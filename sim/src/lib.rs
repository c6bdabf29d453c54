//! Many Undertone clients in one process: experiments, Monte Carlo, the central solution.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod central;
pub mod data;
pub mod folder;
pub mod metrics;
pub mod outcome;
pub mod plot;
pub mod run;

pub use outcome::Outcome;
pub use run::{SimError, run};
