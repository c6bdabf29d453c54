//! The mathematics and the protocol of Undertone: private learning among peers, with no server.
//!
//! K clients on a connected graph hold records that they do not share. Together they minimise
//!
//! ```text
//! sum_k [ (1/M_k) sum_j loss(x_kj, y_kj; w_k) + (lambda/K) R(w_k) ]   subject to all w_k being equal
//! ```
//!
//! In every round a client computes w_k(n) from its records and from points that were already released, adds Gaussian
//! noise, and releases the sum to its neighbours. Per-record gradients are clipped and everything else in the step is
//! public, so one record moves w_k(n) by a known amount at most, and the noise makes the whole conversation
//! (epsilon, delta)-differentially private. The proofs are in `docs/algorithm.md`.
//!
//! # A study
//!
//! Everything starts from a study: what is learned, what is public about the data, who the neighbours are, how it is
//! computed and what it may cost. A program writes a [`StudySpec`](study::StudySpec), a person writes the same as TOML. Only
//! a checked [`Study`](study::Study) is used, and it cannot be changed.
//!
//! ```
//! use undertone_core::graph::GraphSpec;
//! use undertone_core::loss::Absolute;
//! use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
//!
//! let study = StudySpec::new(Absolute, DataSpec::synthetic(50, 50, 8), GraphSpec::Random { mean_degree: 3.0 })
//!     .rounds(200)
//!     .algorithm(AlgorithmSpec::named("free-rounds").count("data_rounds", 14).number("eta", 7.5).word("decay", "inverse"))
//!     .privacy(PrivacySpec::epsilon(5.0, 1e-5).clip(0.65))
//!     .check()?;
//! let privacy = study.privacy().expect("asked for above");
//! let (rho, epsilon) = privacy.spent(study.rounds());
//! assert!(epsilon.get() <= 5.0);
//! println!("rho {:.4} in 14 of 200 rounds; the first costs {:.6}", rho.get(), privacy.schedule().phi(1).get());
//! # Ok::<(), undertone_core::study::StudyError>(())
//! ```
//!
//! # A round
//!
//! [`client::Rules::round`] is one round of one client, and the only implementation of it: a simulation calls it for
//! thousands of clients, a peer for itself. It returns a [`client::Release`], which states what it cost. The
//! [`ledger`] records that cost, durably, before it hands out a frame that can be sent; there is no other way to get one.
//!
//! # The modules
//!
//! In the order in which data flows through them:
//!
//! - **What is agreed:** [`study`]; with [`schema`] for the columns of tables, [`csv_format`] for their files, [`names`] of clients, and [`knob`] and [`rule`],
//!   the description of parameters.
//! - **What is minimised:** [`records`], with the gradient kernel that enforces the clip; [`loss`], [`regularizer`],
//!   [`problem`].
//! - **How:** [`graph`]; [`algorithm`], where the paper's Algorithm 1 is [`algorithm::zcdp_nfl`]; [`client`], one round put
//!   together.
//! - **At what cost:** [`privacy`]: budget, accounting, sensitivity, noise.
//! - **Between machines:** [`identity`], [`message`], [`ledger`], and [`node`], a peer as a state machine.
//! - **For those who call it:** [`watch`], progress and early ends; [`cholesky`], a small dense factorisation.
//!
//! There is no IO here, no clock and no threads; many clients in one process are in `undertone-sim`, a peer on a real
//! network is in `undertone-peer`.

#![forbid(unsafe_code)]

pub mod algorithm;
mod bytes;
pub mod cholesky;
pub mod client;
pub mod closing;
pub mod csv_format;
pub mod exact_sum;
pub mod graph;
pub mod identity;
pub mod knob;
pub mod ledger;
pub mod loss;
pub mod message;
pub mod names;
pub mod node;
pub mod normal;
pub mod privacy;
pub mod problem;
pub mod records;
pub mod regularizer;
pub mod rule;
pub mod schema;
mod simd;
pub mod study;
pub mod swing;
pub mod watch;
