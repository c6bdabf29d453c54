//! Why a study could not be run.

use thiserror::Error;
use undertone_core::client::RoundError;
use undertone_core::graph::GraphError;
use undertone_core::study::StudyError;
use undertone_data::DataError;

/// A study that could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The columns cannot be standardised.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The graph cannot be used.
    #[error("graph: {0}")]
    Graph(#[from] GraphError),
    /// The study names a client that does not exist.
    #[error("client.{name}: there is no client of that name; the clients are {clients}")]
    UnknownClient {
        /// The name in the study.
        name: String,
        /// The names there are.
        clients: String,
    },
    /// The records were stored for a study with another clip or other features.
    #[error(
        "the records were stored for another study: its columns, loss or clip differ; make the population for this one"
    )]
    OtherStudy,
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A client could not finish a round.
    #[error("client \"{client}\" could not finish round {round}: {reason}")]
    Round {
        /// Which client.
        client: String,
        /// Which round.
        round: u32,
        /// Why.
        reason: RoundError,
    },
    /// The models diverged.
    #[error(
        "the run diverged: in round {round} the models are no longer finite; lower eta, raise rho, or raise lambda"
    )]
    Diverged {
        /// The first measured round with infinite models.
        round: u32,
    },
}
