//! Why a study could not be run.

use std::path::PathBuf;

use thiserror::Error;
use undertone_core::client::RoundError;
use undertone_core::graph::GraphError;
use undertone_core::privacy::NoiseError;
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
    /// Another of the processes that share the run could not go on.
    #[error("rank {rank}: {message}")]
    OnRank {
        /// Which.
        rank: usize,
        /// What it said.
        message: String,
        /// Whether the machine is to blame and not the input.
        machine: bool,
    },
    /// The state of the run cannot be written or read.
    #[error("{}: cannot be written or read ({reason}); mend that and start the run again, which goes on from its last state", .path.display())]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A state that this run cannot go on from.
    #[error("{}: {reason}; choose another folder with --checkpoint, or remove it", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What is drawn anew by every process, or at every start, where all must have the same.
    #[error("privacy.noise = \"secure\" draws {0}; write privacy.noise = \"fast\" for this simulation")]
    DrawnAnew(&'static str),
    /// Some ranks would have nothing to do.
    #[error(
        "the network has {clients} clients, too few for {ranks} ranks; start fewer, or share trials with --spread trials"
    )]
    TooManyRanks {
        /// How many there are.
        ranks: usize,
        /// K.
        clients: usize,
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

impl SimError {
    /// The round in which it happened; 0 before the first.
    pub(crate) fn round(&self) -> u32 {
        match self {
            Self::Round { round, .. } | Self::Diverged { round } => *round,
            _ => 0,
        }
    }

    /// Whether the machine is to blame and not the input.
    pub fn is_of_the_machine(&self) -> bool {
        match self {
            Self::Round { reason: RoundError::Noise(NoiseError::NoEntropy(_)), .. } => true,
            Self::Checkpoint { .. } => true,
            Self::OnRank { machine, .. } => *machine,
            _ => false,
        }
    }
}
