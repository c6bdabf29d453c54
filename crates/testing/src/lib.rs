//! Networks and disks that fail, in one thread and in virtual time.
//!
//! A [`World`] runs all peers of a study: the same [`Node`](undertone_core::node::Node) as between real machines, with a
//! seed and a list of [`Faults`]. Frames are lost, doubled, reordered and delayed, connections cut, networks split, nodes
//! killed in the middle of a write and started again, always the same way for the same seed.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use undertone_core::graph::GraphSpec;
//! use undertone_core::identity::Identity;
//! use undertone_core::loss::Squared;
//! use undertone_core::records::Dataset;
//! use undertone_core::schema::{Column, Schema};
//! use undertone_core::study::{AlgorithmSpec, ClientSpec, DataSpec, PrivacySpec, StudySpec};
//! use undertone_testing::{Cohort, Faults, World};
//!
//! let schema = Schema::new([Column::number("x", -1.0, 1.0)]).target(Column::number("y", -1.0, 1.0));
//! let mut spec = StudySpec::new(Squared, DataSpec::tables(schema), GraphSpec::Ring)
//!     .records([2])
//!     .rounds(20)
//!     .algorithm(AlgorithmSpec::named("zcdp-nfl").number("rho", 0.5).number("eta", 0.5))
//!     .privacy(PrivacySpec::epsilon(2.0, 1e-5).clip(1.0));
//! let identities: Vec<_> = (1..4).map(|k| Arc::new(Identity::from_secret(&[k; 32]))).collect();
//! for (k, identity) in identities.iter().enumerate() {
//!     let address = Some(format!("127.0.0.1:{}", 4700 + k));
//!     spec = spec.client(format!("peer{k}"), ClientSpec { id: Some(identity.id()), address, ..ClientSpec::default() });
//! }
//! let study = spec.check()?;
//! let data = (0..3).map(|_| Dataset::new(&[0.5, -0.5], &[0.4, -0.4], 1, study.clipping())).collect();
//!
//! let faults = Faults { loss: 0.05, latency: (Duration::from_millis(1), Duration::from_millis(40)), ..Faults::default() };
//! let mut world = World::new(Cohort::new(study, identities, data)?, faults, 7);
//! assert!(world.run(Duration::from_secs(3600)).expect("no node stops"), "frames are lost, and all peers finish");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attacker;
mod disk;
mod world;

pub use attacker::{Author, Forgetful, OtherStory};
pub use disk::{Backup, SimDisk};
pub use world::*;
