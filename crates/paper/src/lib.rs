//! The experiments of the paper's section V, what goes beyond it, and a verdict on each claim.
//!
//! A [`Case`] is one comparison: a task, a network, a method, a budget. [`figure`] and [`grid`] list the cases behind the
//! paper's five figures and behind the comparison that goes beyond it. [`tuned`] holds the parameters that the same search
//! found for all of them, on data that no figure uses; [`runs`] runs them and draws the figures; [`compare`] compares two of
//! them; [`verdict`] judges the paper's claims by rules that are written down there, [`beyond`] those about free rounds, with [`tables`], and
//! [`trust`] those about masks, [`liars`] those about parties that lie; [`report`] puts it all on one page. `undertone reproduce` is this crate as a command.
//!
//! ```
//! use undertone_core::watch::Unwatched;
//! use undertone_paper::compare::gain;
//! use undertone_paper::runs::{Measure, Repeats, Runs};
//! use undertone_paper::tuned::Tuned;
//! use undertone_paper::{Case, Method, Setting, Task};
//!
//! let case = |method| Case { setting: Setting::PAPER, task: Task::Lad, method, epsilon: 1.0 };
//! let cases = [case(Method::Zcdp), case(Method::FreeRounds)];
//! let repeats = Repeats { seeds: 1..3, trials: 5 };
//! let runs = Runs::compute(&cases, &Tuned::committed(), &repeats, Measure::LastRound, &Unwatched)?;
//! let gain = gain(&runs, &cases[0], Method::Zcdp, Method::FreeRounds).expect("both were run");
//! println!("zCDP-NFL has {}", gain.text());
//! assert!(gain.pairs.low > 1.0 && gain.means > 1.0);
//! # Ok::<(), undertone_sim::SimError>(())
//! ```

pub mod beyond;
mod cases;
pub mod compare;
pub mod figure;
pub mod grid;
pub mod liars;
pub mod report;
pub mod runs;
pub mod tables;
pub mod trust;
pub mod tuned;
pub mod verdict;

pub use cases::{
    Assumed, Case, DELTA, EPSILONS, Ingredient, LEARNING_EPSILON, Lost, Method, ROUNDS, Setting, Task, Topology,
};
