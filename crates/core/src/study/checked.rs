//! A study that cannot be wrong.

use std::sync::Arc;

use super::{AlgorithmSpec, Document, Limits, NoiseKind, RegularizerSpec, StudyDigest, StudyError, StudySpec};
use crate::algorithm::Algorithm;
use crate::graph::{Graph, GraphError};
use crate::knob::Settings;
use crate::names::Names;
use crate::privacy::{Accountant, Budget, ClientBudget, Clip, Clipping, Delta, Epsilon, Noise, Rho, Schedule};
use crate::problem::Problem;
use crate::regularizer::Regularizer;

/// A checked study. It cannot be changed: what follows from it was computed in the check, once.
///
/// ```
/// # use undertone_core::{graph::GraphSpec, loss::Squared, study::*};
/// # let spec = StudySpec::new(Squared, DataSpec::synthetic(3, 5, 2), GraphSpec::Ring)
/// #     .algorithm(AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 0.1));
/// let study = spec.check()?;
/// let longer = study.spec().clone().rounds(50).check()?;
/// # Ok::<(), StudyError>(())
/// ```
///
/// ```compile_fail
/// # use undertone_core::{graph::GraphSpec, loss::Squared, study::*};
/// # let spec = StudySpec::new(Squared, DataSpec::synthetic(3, 5, 2), GraphSpec::Ring)
/// #     .algorithm(AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 0.1));
/// let mut study = spec.check()?;
/// study.spec.rounds = 50;
/// # Ok::<(), StudyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Study {
    /// With every default written out.
    pub(super) spec: StudySpec,
    pub(super) algorithm: Arc<dyn Algorithm>,
    pub(super) privacy: Option<Privacy>,
    pub(super) features: usize,
    pub(super) digest: StudyDigest,
}

/// The privacy that a study promises, checked.
#[derive(Debug, Clone)]
pub struct Privacy {
    pub(super) clip: Clip,
    pub(super) budget: Budget,
    pub(super) delta: Delta,
    pub(super) accountant: Accountant,
    pub(super) noise: NoiseKind,
    pub(super) schedule: Arc<Schedule>,
    /// By how much more than the schedule the most exposed client spends.
    pub(super) exposure: f64,
}

impl Study {
    /// Reads and checks a study; `origin` is its file's name in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, StudyError> {
        Self::read(&Document::parse(text, origin)?)
    }

    /// Reads and checks a parsed document; errors name the line.
    pub fn read(document: &Document) -> Result<Self, StudyError> {
        document.spec()?.check().map_err(|error| document.locate(error))
    }

    /// The study as written, with every default filled in. To change something, change a clone of it and check that.
    pub fn spec(&self) -> &StudySpec {
        &self.spec
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// T.
    pub fn rounds(&self) -> u32 {
        self.spec.rounds
    }

    /// P, with the intercept if there is one.
    pub fn features(&self) -> usize {
        self.features
    }

    /// How w_k(n) is computed.
    pub fn algorithm(&self) -> &dyn Algorithm {
        &*self.algorithm
    }

    /// The values of the algorithm's parameters, all of them.
    pub fn settings(&self) -> &Settings {
        match &self.spec.algorithm {
            AlgorithmSpec::Named { settings, .. } => settings,
            AlgorithmSpec::Auto => unreachable!("a checked study names its algorithm"),
        }
    }

    /// The privacy that the study promises; none if it is off.
    pub fn privacy(&self) -> Option<&Privacy> {
        self.privacy.as_ref()
    }

    /// What all peers must agree on, hashed.
    pub fn digest(&self) -> &StudyDigest {
        &self.digest
    }

    /// What bounds the frames among so many clients.
    pub fn limits(&self, clients: usize) -> Limits {
        Limits { features: self.features, rounds: self.spec.rounds, clients }
    }

    /// What is minimised. Where lambda1 follows the paper's rule, `paper_lambda1` computes it from the pooled records.
    pub fn problem(&self, paper_lambda1: impl FnOnce() -> f64) -> Problem {
        self.spec.problem_with(match self.spec.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { l2 } => Regularizer::ElasticNet { l1: paper_lambda1(), l2 },
        })
    }

    /// What is minimised, if that can be said without looking at records.
    pub fn public_problem(&self) -> Option<Problem> {
        match self.spec.regularizer {
            RegularizerSpec::Public(regularizer) => Some(self.spec.problem_with(regularizer)),
            RegularizerSpec::PaperRule { .. } => None,
        }
    }

    /// What records are to be stored with.
    pub fn clipping(&self) -> Clipping {
        match &self.privacy {
            None => Clipping::Off,
            Some(privacy) if self.algorithm.clips() => Clipping::Enforced(privacy.clip),
            Some(privacy) => Clipping::Assumed(privacy.clip),
        }
    }

    /// Whether what is released with this noise is private.
    pub fn is_protected_by(&self, noise: &Noise) -> bool {
        self.privacy.is_some() && self.algorithm.clips() && noise.is_safe()
    }

    /// The noise that the study asks for; none without privacy.
    pub fn noise(&self) -> Option<Noise> {
        self.privacy.as_ref().map(|privacy| match privacy.noise {
            NoiseKind::Fast => Noise::fast(self.spec.seed),
            NoiseKind::Secure => Noise::secure(),
        })
    }

    /// What the client of that name may spend; none without privacy.
    pub fn client_budget(&self, name: &str) -> Option<ClientBudget> {
        let own = self.spec.clients.get(name).and_then(|client| client.phi1);
        self.privacy.as_ref().map(|privacy| privacy.client_budget(own.and_then(|phi1| Rho::new(phi1).ok())))
    }

    /// The graph in repetition `trial` of a simulation; between peers there is only trial 0.
    pub fn build_graph(&self, names: &Names, trial: u32) -> Result<Graph, GraphError> {
        self.spec.build_graph(names, trial)
    }

    /// The resolved study as TOML; reading it again gives the same study.
    pub fn to_toml(&self) -> String {
        self.spec.to_toml()
    }
}

impl Privacy {
    /// c1.
    pub fn clip(&self) -> Clip {
        self.clip
    }

    /// What may be spent.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// The delta at which epsilon is stated.
    pub fn delta(&self) -> Delta {
        self.delta
    }

    /// How epsilon is accounted for.
    pub fn accountant(&self) -> Accountant {
        self.accountant
    }

    /// Where noise comes from.
    pub fn noise(&self) -> NoiseKind {
        self.noise
    }

    /// phi(n) for all rounds, of a client without a budget of its own.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The budget of a client; `own` is its phi(1) if it has one of its own.
    pub fn client_budget(&self, own: Option<Rho>) -> ClientBudget {
        ClientBudget::new(self.schedule.clone(), own, self.accountant, self.delta)
    }

    /// The rho that the most exposed client has spent after `round` rounds, and the epsilon of it.
    pub fn spent(&self, round: u32) -> (Rho, Epsilon) {
        let rho = Rho::computed(self.schedule.spent(round).get() * self.exposure);
        (rho, self.accountant.epsilon(rho, self.delta))
    }

    /// The epsilon that the whole run promises: what the classic mechanism proves where that is the accountant and no client
    /// spends more, else that of the rho that is spent.
    pub fn promised(&self) -> Epsilon {
        let classic = self.accountant == Accountant::Classic && matches!(self.budget, Budget::Epsilon(_));
        if classic && self.exposure == 1.0 {
            return self.schedule.classic_epsilon(self.delta);
        }
        self.spent(self.schedule.rounds()).1
    }
}
