//! Planning: what a study will cost and how well it will do, before anybody touches a record.
//!
//! No records are read. Data of the study's shape is generated from its public bounds, every algorithm that is private and
//! allowed between peers is tuned on it ([`tune`]), and the one with the least error is recommended. The same study gives the
//! same plan everywhere: the search is seeded, and its effort follows from the size of the problem, not from the speed of
//! the machine.
//!
//! ```
//! use undertone_core::graph::GraphSpec;
//! use undertone_core::loss::Squared;
//! use undertone_core::study::{DataSpec, PrivacySpec, StudySpec};
//! use undertone_core::watch::Unwatched;
//!
//! // The algorithm is open, and the clip with it.
//! let spec = StudySpec::new(Squared, DataSpec::synthetic(4, 30, 2), GraphSpec::Ring)
//!     .rounds(10)
//!     .privacy(PrivacySpec::epsilon(3.0, 1e-5));
//! let plan = undertone_plan::plan(&spec, &Unwatched)?;
//! let best = plan.recommended();
//! println!("{}: expected skill {:.2} with {}", best.algorithm, 1.0 - best.regret.median, best.parameters.text());
//! assert!(best.study.privacy().is_some(), "a checked study, ready to run");
//! # Ok::<(), undertone_plan::PlanError>(())
//! ```
//!
//! [`plan_document`] does the same for a TOML document, with errors that name the line, and [`resolve`] plans only where a
//! study says `algorithm = "auto"`.

pub mod account;
mod check;
mod choice;
mod ensemble;
mod error;
mod files;
mod json;
mod made_up;
mod odd;
mod outlook;
mod page;
mod plan;
mod pooled;
mod regret;
mod spread;
mod trust;
pub mod tune;

pub use check::{Checked, check};
pub use choice::{choose, chosen};
pub use error::PlanError;
pub use files::{check_files, count_clients, is_auto};
pub use json::to_json;
pub use made_up::clients;
pub use odd::oddities;
pub use outlook::{Curve, Outlook, Point, outlook};
pub use page::page;
pub use plan::{Plan, RoundNoise, Row, plan, plan_document, resolve};
pub use regret::Regret;
pub use spread::{noise_spread, spread_of};
pub use trust::{TrustRow, trust};
