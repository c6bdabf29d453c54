//! A study that cannot be wrong.

use std::sync::Arc;

use super::{
    AlgorithmSpec, Document, Limits, NoiseKind, PrivacySpec, RegularizerSpec, StudyDigest, StudyError, StudySpec,
};
use crate::algorithm::Algorithm;
use crate::graph::{Graph, GraphError};
use crate::knob::Settings;
use crate::names::Names;
use crate::privacy::{
    Accountant, Budget, ClientBudget, Clip, Clipping, Delta, Epsilon, MaskedLattice, Masking, Masks, Noise, NoiseError,
    Rho, Schedule, Sensitivity, Spent,
};
use crate::problem::{Problem, Weights};
use crate::regularizer::Regularizer;
use crate::schema::{Scaling, Schema};

/// Rhos from here on mean nothing, and their epsilon is not computed.
const LARGEST_KNOWN: f64 = 1e12;

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
    /// What is spent before the first round, on private means and spreads.
    pub(super) before: Rho,
    /// What is spent after the last, on intervals and scores.
    pub(super) after: Rho,
    pub(super) schedule: Arc<Schedule>,
    /// By how much more than the schedule the most exposed client spends.
    pub(super) exposure: f64,
    /// As written.
    pub(super) spec: PrivacySpec,
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

    /// How many clients may lie; 0 if the study trusts all.
    pub fn liars(&self) -> usize {
        self.spec.liars.unwrap_or(0)
    }

    /// How many vectors of length P a client of this graph carries from round to round besides its released point.
    pub fn memory(&self, graph: &Graph) -> usize {
        self.algorithm.memory() + if self.liars() > 0 { graph.max_degree() } else { 0 }
    }

    /// How many of so many clients must sign the same set of last releases, with as many in it, for a model of the study: more than half of all and of the
    /// [liars](Self::liars), unless the study says otherwise.
    pub fn quorum(&self, clients: usize) -> usize {
        self.spec.quorum.unwrap_or((clients + self.liars()) / 2 + 1)
    }

    /// What bounds the frames among so many clients.
    pub fn limits(&self, clients: usize) -> Limits {
        Limits { features: self.features, rounds: self.spec.rounds, clients, largest: self.reach(clients) }
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

    /// D, what a client with `own` records divides its sums by. Where records count the same and the study does not say how many
    /// there are, `mean` finds their mean over the clients.
    pub fn divisor(&self, own: usize, mean: impl FnOnce() -> f64) -> f64 {
        match self.spec.weights {
            Weights::Clients => own as f64,
            Weights::Records => self.mean_records().unwrap_or_else(mean),
        }
    }

    /// The public mean number of records that a client trains on, if the study says it.
    pub fn mean_records(&self) -> Option<f64> {
        let records = self.spec.public_records()?;
        // The same sum in the same order for everybody; whole numbers are exact.
        let mean = records.iter().map(|&m| m as f64).sum::<f64>() / records.len() as f64;
        // What is kept out of training is not divided by.
        Some(self.spec.schema().map_or(mean, |schema| mean * (1.0 - schema.holdout)))
    }

    /// Whether a client's file holds about as many records as was agreed: up to a tenth, or one record, more or less.
    ///
    /// With the mean alone nothing is agreed about one client, except that it has no more than all together.
    pub fn check_records(&self, names: &Names, client: usize, records: usize) -> Result<(), StudyError> {
        let name = names.get(client);
        let own = self.spec.clients.get(&*name).and_then(|client| client.records);
        let (key, agreed) = match (own, self.spec.public_records().as_deref()) {
            (Some(agreed), _) => (format!("client.{name}.records"), agreed),
            (None, Some([mean])) => {
                let all = mean.saturating_mul(names.len());
                let message = format!(
                    "= {mean} for each of {} clients, but {name} alone has {records} records, more than all \
                     together; agree on a new number, or check the file",
                    names.len()
                );
                return if records > all { Err(StudyError::at("data.records", message)) } else { Ok(()) };
            }
            (None, Some(each)) if each.len() == names.len() => ("data.records".into(), each[client]),
            (None, Some(each)) => {
                let message = format!(
                    "lists {} numbers for {} clients; write their mean, or one for each",
                    each.len(),
                    names.len()
                );
                return Err(StudyError::at("data.records", message));
            }
            (None, None) => return Ok(()),
        };
        let margin = (agreed / 10).max(1);
        match records.abs_diff(agreed) <= margin {
            true => Ok(()),
            false => Err(StudyError::at(
                key,
                format!(
                    "is {agreed} for {name}, but its file has {records} records, more than {margin} off; agree on the new number, \
                     or check the file"
                ),
            )),
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
            NoiseKind::Fast => Noise::fast(self.noise_seed()),
            NoiseKind::Secure => Noise::secure(),
        })
    }

    /// Moments are noised before the first round of the study that they are for, with other noise than that.
    fn noise_seed(&self) -> u64 {
        const MOMENTS: u64 = 0x6d6f_6d65_6e74_7321; // "moments!"
        const CLOSING: u64 = 0x636c_6f73_696e_6721; // "closing!"
        match self.spec.schema() {
            _ if self.spec.closing.is_some() => self.spec.seed ^ CLOSING,
            Some(Schema { scaling: Scaling::Moments { .. }, .. }) => self.spec.seed ^ MOMENTS,
            _ => self.spec.seed,
        }
    }

    /// What masked noise among so many clients is made for; none without privacy or if nobody is trusted. Where the study does not say how
    /// many records a client has, `mean` finds their mean.
    pub fn masking(&self, clients: usize, mean: impl FnOnce() -> f64) -> Result<Option<Masking>, StudyError> {
        let Some(privacy) = &self.privacy else { return Ok(None) };
        Ok(self.spec.trust(clients)?.map(|trust| {
            let divisor = self.mean_records().unwrap_or_else(mean);
            Masking { trust, reference: Sensitivity::of_clipped_sum(privacy.clip, 1, divisor) }
        }))
    }

    /// What the most exposed of `clients` clients spends in the whole run if at most as many collude as is assumed, and a bound on what it spends
    /// if all others do, whatever the numbers of records; none without privacy.
    pub fn exposure(&self, clients: usize) -> Result<Option<Spent>, StudyError> {
        let Some(privacy) = &self.privacy else { return Ok(None) };
        let (rho, _) = privacy.spent(self.rounds());
        // The ratio of the two does not depend on the size of gradients, but for rounding to the lattice.
        let Some(masking) = self.masking(clients, || 1.0)? else { return Ok(Some(Spent::without_masks(rho))) };
        let alone = |phi: Rho| match phi.get() > 0.0 {
            true => MaskedLattice::new(&masking, phi).map_or(f64::INFINITY, |lattice| phi.get() * lattice.exposure()),
            false => 0.0,
        };
        let rounds: f64 = (1..=self.rounds()).map(|n| alone(privacy.schedule.phi(n))).sum();
        let total = (rounds * privacy.exposure + alone(privacy.before) + alone(privacy.after)) * (1.0 + 1e-6);
        Ok(Some(Spent { rho, alone: Rho::computed(total) }))
    }

    /// Where masks come from in a simulation; none if noise is not masked.
    pub fn simulated_masks(&self) -> Result<Option<Masks>, NoiseError> {
        match &self.privacy {
            Some(privacy) if privacy.spec.colluders.is_some() && privacy.noise == NoiseKind::Secure => {
                Masks::rooted().map(Some).map_err(|e| NoiseError::NoEntropy(e.to_string()))
            }
            _ => Ok(self.seeded_masks()),
        }
    }

    /// Masks as open as seeded noise, for simulations and rehearsals; none if noise is not masked.
    pub fn seeded_masks(&self) -> Option<Masks> {
        let masked = self.privacy.as_ref().is_some_and(|privacy| privacy.spec.colluders.is_some());
        masked.then(|| Masks::Seeded(self.noise_seed()))
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

    /// q, how many clients are assumed to pool what they know at most; none if it may be all of them.
    pub fn colluders(&self) -> Option<usize> {
        self.spec.colluders
    }

    /// phi(n) for all rounds, of a client without a budget of its own.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The budget of a client; `own` is its phi(1) if it has one of its own.
    pub fn client_budget(&self, own: Option<Rho>) -> ClientBudget {
        ClientBudget::new(self.schedule.clone(), own, self.accountant, self.delta)
    }

    /// The rho that is spent before the first round, on private means and spreads.
    pub fn before(&self) -> Rho {
        self.before
    }

    /// The rho that is spent after the last round, on intervals and scores.
    pub fn after(&self) -> Rho {
        self.after
    }

    /// The rho that the most exposed client has spent after `round` rounds, and the epsilon of it.
    pub fn spent(&self, round: u32) -> (Rho, Epsilon) {
        // The closing release follows the last round at once.
        let after = if round >= self.schedule.rounds() { self.after.get() } else { 0.0 };
        let rho = Rho::computed(self.before.get() + self.schedule.spent(round).get() * self.exposure + after);
        (rho, self.accountant.epsilon(rho, self.delta))
    }

    /// The epsilon of a rho; none for one that nothing bounds.
    pub fn epsilon(&self, rho: Rho) -> Option<Epsilon> {
        (rho.get() < LARGEST_KNOWN).then(|| self.accountant.epsilon(rho, self.delta))
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
