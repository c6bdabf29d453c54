//! What does not change while a node runs.

use super::setup::NodeSetup;
use crate::algorithm::Robust;
use crate::identity::PublicId;
use crate::message::Chain;
use crate::privacy::{ClientBudget, Masks};
use crate::problem::Problem;
use crate::study::{Limits, StudyDigest};

/// The setup of a node and what follows from it. The parts of a node read it and never change it.
pub(super) struct Context {
    pub setup: NodeSetup,
    pub digest: StudyDigest,
    pub chain: Chain,
    pub limits: Limits,
    pub problem: Problem,
    /// What this peer may spend; none without privacy.
    pub budget: Option<ClientBudget>,
    /// Where masks come from; none if noise is not masked.
    pub masks: Option<Masks>,
    /// How what neighbours say is bounded; none if the study trusts all.
    pub robust: Option<Robust>,
    /// This peer's own step size, if it has one.
    pub eta: Option<f64>,
}

impl Context {
    /// From a setup that was checked.
    pub fn new(setup: NodeSetup) -> Self {
        let digest = *setup.study.digest();
        let client = setup.study.spec().clients.get(&*setup.roster.names.get(setup.me));
        Self {
            digest,
            chain: Chain::new(&digest),
            limits: setup.limits(),
            problem: setup.study.public_problem().expect("checked with the setup"),
            budget: setup.budget(),
            masks: setup.masks(),
            robust: setup.study.robust(&setup.roster.graph),
            eta: client.and_then(|client| client.eta),
            setup,
        }
    }

    /// k, the own id.
    pub fn me(&self) -> u32 {
        self.setup.me as u32
    }

    /// The key of a peer.
    pub fn id(&self, peer: u32) -> &PublicId {
        &self.setup.roster.ids[peer as usize]
    }

    /// The neighbours in the study's graph, by ascending id, including those whose edge was dropped.
    pub fn neighbours(&self) -> &[u32] {
        self.setup.roster.graph.neighbours(self.setup.me)
    }

    /// How many peers must have signed the same set of last releases.
    pub fn quorum(&self) -> usize {
        self.setup.study.quorum(self.limits.clients)
    }

    /// Whether this peer knows a way to connect to another.
    pub fn is_dialable(&self, peer: u32) -> bool {
        self.setup.study.spec().relay.is_some() || self.setup.roster.addresses[peer as usize].is_some()
    }

    /// The weight of the dual, if the algorithm has one.
    pub fn dual_weight(&self) -> Option<f64> {
        Some(self.setup.study.algorithm().dual_weight()).filter(|weight| *weight > 0.0 && self.setup.study.liars() == 0)
    }
}
