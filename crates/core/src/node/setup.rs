//! The parts of a node.

use std::sync::Arc;

use thiserror::Error;

use super::{OnLoss, Roster};
use crate::identity::Identity;
use crate::ledger::Begin;
use crate::privacy::{ClientBudget, Noise, Rho};
use crate::records::Dataset;
use crate::study::{Limits, Study};

/// The parts of a node.
pub struct NodeSetup {
    /// The study.
    pub study: Arc<Study>,
    /// Its peers.
    pub roster: Arc<Roster>,
    /// The index of this peer.
    pub me: usize,
    /// Its key.
    pub identity: Arc<Identity>,
    /// Its records, stored with the study's clip.
    pub data: Dataset,
    /// A keyed hash of them.
    pub data_hash: [u8; 32],
    /// Where noise comes from; none without privacy. It decides whether the ledger counts the releases as protected.
    pub noise: Option<Noise>,
    /// What to do about a neighbour that is not connected.
    pub on_loss: OnLoss,
    /// The zCDP rho that this study may spend at most, if less than its budget.
    pub allowance: Option<Rho>,
    /// Last releases collected earlier, if the study was already finished.
    pub finals: Vec<Vec<u8>>,
    /// Seconds since 1970, for the ledger's reader.
    pub time: u64,
}

/// Parts of a node that do not belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The key is not the one that the roster has for this peer.
    #[error("the identity is not that of the peer `me` in the roster; find `me` with Roster::find")]
    Identity,
    /// The records have another clip, divisor or other features than the study.
    #[error(
        "the records were stored for another study: their clip, divisor or features differ; store them for this one"
    )]
    Data,
    /// A study with privacy has no noise, or one without has some.
    #[error("noise is given exactly if the study has privacy; take it from Study::noise")]
    Noise,
    /// The study is for simulation only.
    #[error("the study is for simulation only; Roster::new says why")]
    NotForPeers,
}

impl NodeSetup {
    /// Whether the parts belong together.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let (study, records) = (&self.study, self.data.records());
        if study.public_problem().is_none() || study.algorithm().refuses_peers().is_some() {
            return Err(SetupError::NotForPeers);
        }
        if self.roster.ids.get(self.me) != Some(&self.identity.id()) {
            return Err(SetupError::Identity);
        }
        let divisor = study.divisor(records.len(), || f64::NAN);
        let fits = records.features() == study.features() && records.divisor() == divisor;
        if records.clipping() != study.clipping() || !fits {
            return Err(SetupError::Data);
        }
        if study.privacy().is_some() != self.noise.is_some() {
            return Err(SetupError::Noise);
        }
        Ok(())
    }

    /// What this peer may spend; none without privacy.
    pub(super) fn budget(&self) -> Option<ClientBudget> {
        let budget = self.study.client_budget(&self.roster.names.get(self.me))?;
        Some(match self.allowance {
            Some(allowance) => budget.allowing(allowance),
            None => budget,
        })
    }

    pub(super) fn limits(&self) -> Limits {
        self.study.limits(self.roster.names.len())
    }

    /// The ledger's record of entering the study.
    pub(super) fn begin(&self, budget: Option<&ClientBudget>) -> Begin {
        let promised = budget.map(ClientBudget::promised);
        Begin {
            study: self.study.digest().whole(),
            name: self.study.name().into(),
            rounds: self.study.rounds(),
            features: self.study.features() as u32,
            degree: self.roster.graph.degree(self.me) as u32,
            memory: self.study.algorithm().memory() as u32,
            rho: promised.unwrap_or(Rho::ZERO),
            epsilon: budget.zip(promised).map_or(0.0, |(budget, rho)| budget.epsilon(rho).get()),
            delta: budget.map_or(0.0, |budget| budget.delta().get()),
            next_rho: budget.map_or(Rho::ZERO, |budget| budget.phi(1)),
            protected: self.noise.as_ref().is_some_and(|noise| self.study.is_protected_by(noise)),
            data: self.data_hash,
            time: self.time,
        }
    }
}
