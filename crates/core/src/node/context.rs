//! What does not change while a node runs.

use super::setup::{Costs, Setup};
use crate::identity::PublicId;
use crate::message::{Chain, Limits};
use crate::problem::Problem;
use crate::regularizer::Regularizer;
use crate::study::{RegularizerSpec, StudyDigest};

/// The setup of a node and what follows from it. The parts of a node read it and never change it.
pub(super) struct Context {
    pub setup: Setup,
    pub digest: StudyDigest,
    pub chain: Chain,
    pub limits: Limits,
    pub problem: Problem,
    pub costs: Option<Costs>,
}

impl Context {
    pub fn new(setup: Setup) -> Self {
        let digest = StudyDigest::of(&setup.study);
        let regularizer = match setup.study.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { .. } => Regularizer::None,
        };
        Self {
            digest,
            chain: Chain::new(&digest),
            limits: setup.limits(),
            problem: setup.study.problem(regularizer),
            costs: setup.costs(),
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

    /// Whether this peer knows a way to connect to another.
    pub fn is_dialable(&self, peer: u32) -> bool {
        self.setup.study.relay.is_some() || self.setup.roster.addresses[peer as usize].is_some()
    }

    /// The weight of the dual, if the algorithm has one.
    pub fn dual_weight(&self) -> Option<f64> {
        Some(self.setup.study.algorithm.dual_weight()).filter(|weight| *weight > 0.0)
    }
}
