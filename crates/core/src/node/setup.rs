//! What a node is made of, and what it may spend.

use std::sync::Arc;

use super::{OnLoss, Roster};
use crate::identity::Identity;
use crate::ledger::Begin;
use crate::message::Limits;
use crate::privacy::{Noise, Rho, Schedule};
use crate::records::Dataset;
use crate::study::{Study, StudyDigest};

/// What a node is made of.
pub struct Setup {
    /// The study.
    pub study: Arc<Study>,
    /// Its participants.
    pub roster: Arc<Roster>,
    /// Which of them this is.
    pub me: usize,
    /// Its key.
    pub identity: Arc<Identity>,
    /// Its records.
    pub data: Dataset,
    /// A keyed hash of them.
    pub data_hash: [u8; 32],
    /// Where noise comes from.
    pub noise: Noise,
    /// Whether releases are safe: false for rehearsals.
    pub protected: bool,
    /// What to do about a neighbour that is not there.
    pub on_loss: OnLoss,
    /// The rho that this study may spend at most, if less than it promises.
    pub allowance: Option<f64>,
    /// Last releases that were collected before, when the study was already finished once.
    pub finals: Vec<Vec<u8>>,
    /// Seconds since 1970, for the ledger's reader.
    pub time: u64,
}

impl Setup {
    /// What this peer may spend in each round; none without privacy.
    pub(super) fn costs(&self) -> Option<Costs> {
        let schedule = self.study.schedule(self.study.privacy.as_ref()?).expect("checked with the study");
        let client = self.study.clients.get(&*self.roster.names.get(self.me));
        let factor = client.map_or(1.0, |client| self.study.budget_factor(&schedule, client));
        Some(Costs { schedule, factor })
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { features: self.study.features(), rounds: self.study.rounds, clients: self.roster.names.len() }
    }

    /// The ledger's record of entering the study.
    pub(super) fn begin(&self, digest: &StudyDigest, costs: &Option<Costs>) -> Begin {
        let rho = costs.as_ref().map_or(0.0, Costs::total) * (1.0 + 1e-12);
        let privacy = self.study.privacy.as_ref();
        let proven = Rho::new(rho).expect("a sum of checked terms");
        Begin {
            study: digest.whole(),
            name: self.study.name.clone(),
            rounds: self.study.rounds,
            features: self.study.features() as u32,
            degree: self.roster.graph.degree(self.me) as u32,
            memory: self.study.algorithm.memory() as u32,
            rho,
            epsilon: privacy.map_or(0.0, |p| p.accountant.epsilon(proven, p.delta).get()),
            delta: privacy.map_or(0.0, |p| p.delta.get()),
            next_rho: costs.as_ref().map_or(0.0, |c| c.rho(1)),
            protected: self.protected,
            data: self.data_hash,
            time: self.time,
        }
    }
}

/// The schedule of one peer.
pub(super) struct Costs {
    pub schedule: Schedule,
    /// By what this peer's phi(n) differs from the schedule's.
    pub factor: f64,
}

impl Costs {
    /// phi_k(n); zero after the last round.
    pub fn rho(&self, round: u32) -> f64 {
        if round > self.schedule.rounds() { 0.0 } else { self.schedule.phi(round).get() * self.factor }
    }

    /// All rounds, added up in the order in which the ledger adds them, so that the two are equal to the last bit.
    pub fn total(&self) -> f64 {
        (1..=self.schedule.rounds()).fold(0.0, |sum, n| sum + self.rho(n))
    }
}
