//! The experiments of the paper's section V, what goes beyond it, and the parameters that tuning found for them.

pub mod beyond;
mod cases;
pub mod figures;
pub mod report;
pub mod tuned;
pub mod verdict;

pub use cases::*;
