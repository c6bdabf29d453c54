//! The parts of a node.

use std::sync::Arc;

use thiserror::Error;

use super::{OnLoss, Roster};
use crate::identity::{Identity, PublicId};
use crate::ledger::Begin;
use crate::privacy::{ClientBudget, Masks, Noise, PairKeys, Spent};
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
    /// What this study may spend at most, if less than its budget.
    pub allowance: Option<Spent>,
    /// Last releases collected earlier, if the study was already finished.
    pub finals: Vec<Vec<u8>>,
    /// Seconds since 1970, for the ledger's reader.
    pub time: u64,
    /// A random number that no other start of this peer has.
    pub nonce: u64,
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
    /// So few records among masks made for so many more need noise that cannot be drawn.
    #[error(
        "masked noise for this peer's records cannot be represented: it has far fewer than data.records says, or the budget is extreme; \
         agree on another number, write problem.weights = \"records\", or leave privacy.colluders out"
    )]
    Masks,
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
        // A ledger cannot hold a cost without bound.
        if self.budget().is_some_and(|budget| !budget.promised().alone.get().is_finite()) {
            return Err(SetupError::Masks);
        }
        Ok(())
    }

    /// What this peer may spend; none without privacy.
    pub(super) fn budget(&self) -> Option<ClientBudget> {
        let budget = self.roster.budget(&self.study, self.me, self.data.records())?;
        Some(match self.allowance {
            Some(allowance) => budget.allowing(allowance),
            None => budget,
        })
    }

    pub(super) fn limits(&self) -> Limits {
        self.study.limits(self.roster.names.len())
    }

    /// Where masks come from; none if noise is not masked. In a rehearsal they are as open as the noise.
    pub(super) fn masks(&self) -> Option<Masks> {
        self.study.privacy()?.colluders()?;
        if self.noise.as_ref().is_some_and(|noise| !noise.is_safe()) {
            return self.study.seeded_masks();
        }
        let study = self.study.digest().whole();
        let key = |other: &PublicId| self.identity.mask_key(other, &study);
        Some(Masks::Shared(PairKeys::new(self.me, self.roster.ids.iter().map(key).collect())))
    }

    /// The ledger's record of entering the study.
    pub(super) fn begin(&self, budget: Option<&ClientBudget>) -> Begin {
        let promised = budget.map(ClientBudget::promised);
        let clients = self.roster.names.len() as u32;
        let colluders = self.study.privacy().and_then(|privacy| privacy.colluders());
        Begin {
            study: self.study.digest().whole(),
            name: self.study.name().into(),
            rounds: self.study.rounds(),
            features: self.study.features() as u32,
            degree: self.roster.graph.degree(self.me) as u32,
            memory: self.study.memory(&self.roster.graph) as u32,
            clients,
            colluders: colluders.map_or(clients - 1, |colluders| colluders as u32),
            total: promised.unwrap_or(Spent::ZERO),
            epsilon: budget.zip(promised).map_or(0.0, |(budget, total)| budget.epsilon(total.rho).get()),
            delta: budget.map_or(0.0, |budget| budget.delta().get()),
            next: budget.map_or(Spent::ZERO, |budget| budget.cost(1)),
            protected: self.noise.as_ref().is_some_and(|noise| self.study.is_protected_by(noise)),
            data: self.data_hash,
            time: self.time,
        }
    }
}
