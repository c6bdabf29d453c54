//! The mathematics and the protocol of Undertone: private learning among peers, with no server.
//!
//! K clients on a connected graph hold records they do not share. Together they minimise
//!
//! ```text
//! sum_k [ (1/M_k) sum_j loss(x_kj, y_kj; w_k) + (lambda/K) R(w_k) ]   subject to all w_k being equal
//! ```
//!
//! In every round a client computes w_k(n) from its records and from points already released, adds Gaussian noise,
//! and releases the sum to its neighbours. Because per-sample gradients are clipped and everything else in the step
//! is public, one record moves w_k(n) by a known amount at most, and the noise makes the whole conversation
//! differentially private.
//!
//! Data walks through the rooms in this order:
//!
//! - [`study`]: what all peers agree on, read from one TOML file and checked;
//! - [`records`]: one client's data and the clipped-gradient kernel;
//! - [`loss`], [`regularizer`], [`problem`]: what is minimised;
//! - [`graph`]: who speaks with whom;
//! - [`algorithm`]: how a step is computed; the paper's Algorithm 1 is [`algorithm::zcdp_nfl`];
//! - [`privacy`]: sensitivity, budget, accounting, noise;
//! - [`client`]: one round, put together.
//!
//! There is no IO here, no clock and no threads; many clients in one process are the business of `undertone-sim`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod algorithm;
pub mod client;
pub mod graph;
pub mod identity;
pub mod ledger;
pub mod loss;
pub mod message;
pub mod names;
pub mod node;
pub mod privacy;
pub mod problem;
pub mod records;
pub mod regularizer;
pub mod schema;
mod simd;
pub mod study;
