//! Planning: what a study will cost and how well it will do, from public facts alone.
//!
//! No records are touched. Data of the study's shape is drawn from its public bounds ([`plan`](fn@plan)), every private
//! algorithm is tuned on it ([`tune`]), and the one with the least error is recommended.

mod made_up;
mod plan;
pub mod tune;

pub use plan::{Plan, PlanError, RoundNoise, Row, is_auto, plan, resolve};
