//! Everything that decides about privacy: units, accounting, budget, sensitivity and noise.

pub mod accountant;
pub mod budget;
pub mod discrete_gaussian;
pub mod noise;
pub mod sensitivity;
pub mod units;

pub use accountant::Accountant;
pub use budget::{Budget, BudgetError, Schedule};
pub use noise::{Noise, NoiseError, Stream};
pub use sensitivity::{Lattice, NoiseScale, Sensitivity};
pub use units::{Clip, Delta, Epsilon, Rho, UnitError};
