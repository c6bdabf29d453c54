//! Everything that privacy depends on: units, accounting, budget, sensitivity and noise.
//!
//! | question | type |
//! |---|---|
//! | what may be spent in which round | [`Schedule`], and for one client [`ClientBudget`] |
//! | what is that worth | [`Accountant`] |
//! | how far can one record move a release | [`Sensitivity`], which has no constructor that takes a number |
//! | how much noise covers it | [`NoiseScale`], made of a sensitivity and a budget and nothing else |
//! | where does it come from | [`Noise`] |
//! | which part of it cancels between clients that trust each other | [`Trust`], [`Masks`] |

pub mod accountant;
pub mod budget;
pub mod discrete_gaussian;
pub mod masks;
pub mod noise;
pub mod sensitivity;
pub mod trust;
pub mod units;

pub use accountant::Accountant;
pub(crate) use accountant::bisect;
pub use budget::{Budget, BudgetError, ClientBudget, Schedule};
pub use masks::{Masks, PairKeys, RoundMasks};
pub use noise::{Noise, NoiseError, Stream};
pub use sensitivity::{Clipping, Lattice, NoiseScale, Sensitivity};
pub use trust::{MaskedLattice, Masking, OwnNoise, Trust, TrustError};
pub use units::{Clip, Delta, Epsilon, Rho, Spent, UnitError};
