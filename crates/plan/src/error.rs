//! Why a study cannot be planned.

use thiserror::Error;
use undertone_core::graph::GraphError;
use undertone_core::study::StudyError;
use undertone_data::DataError;
use undertone_sim::run::SimError;

/// Operations of one run beyond which nothing is planned: the smallest search would take minutes.
pub(crate) const MOST_WORK: f64 = 1e9;

/// A study that cannot be planned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The study is wrong.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// Its graph is wrong.
    #[error("graph: {0}")]
    Graph(#[from] GraphError),
    /// Nothing of this shape can be run.
    #[error("generated data of this shape cannot be run: {0}")]
    Run(#[from] SimError),
    /// Its files cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It would take too long.
    #[error(
        "the study is too large to plan by simulation ({0:.0e} operations a run; at most {MOST_WORK:.0e}, and 5000 clients); name an \
         algorithm and its parameters, or plan a smaller study of the same kind"
    )]
    TooLarge(f64),
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// No model was found.
    #[error(
        "no algorithm found a model on generated data of this shape: its central solution is zero or was not found, or every run \
         diverged; change lambda, the budget or the number of records"
    )]
    NoModel,
}
