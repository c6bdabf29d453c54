//! A study that cannot be wrong.

use std::sync::Arc;

use super::{
    AlgorithmSpec, BudgetSpec, DataSpec, Document, Limits, NoiseKind, PrivacySpec, RegularizerSpec, Simulation,
    StudyDigest, StudyError, StudySpec,
};
use crate::algorithm::Algorithm;
use crate::closing::{self, Closing, ClosingNoise};
use crate::graph::{Graph, GraphError};
use crate::knob::Settings;
use crate::loss::{Absolute, AnyLoss, Hinge};
use crate::names::Names;
use crate::privacy::{
    Accountant, Budget, ClientBudget, Clip, Clipping, Delta, Epsilon, MaskedLattice, Masking, Masks, Noise, NoiseError,
    Rho, Schedule, Sensitivity, Spent, Trust,
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

    /// The study of one round whose releases are private moments of the columns, if this study asks for standardisation.
    ///
    /// It is a study like any other: the gradient of |1 - z.w| (or max(0, 1 - z.w)) at w = 0 is -z, clipped and noised as every gradient is, so the mean
    /// of all last releases is the mean of the moments z. It goes through the same ledger, and its releases are passed on to everybody.
    pub fn moments(&self) -> Option<Study> {
        let (privacy, spec) = (self.spec.privacy?, &self.spec);
        privacy.standardise?;
        let before = self.privacy.as_ref()?.before;
        let mut study = spec.clone();
        let DataSpec::Files { schema, .. } = &mut study.data else { return None };
        *schema = schema.moments(spec.loss.is_classification());
        let clip = schema.moment_clip();
        study.name = format!("{}-moments", spec.name);
        study.rounds = 1;
        // Both have the slope -1 at 0 where the target is 1; each suits its kind of target.
        study.loss = if spec.loss.is_classification() { Hinge.into() } else { Absolute.into() };
        (study.regularizer, study.lambda) = (RegularizerSpec::Public(Regularizer::None), 0.0);
        study.algorithm = AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 1.0);
        study.simulation = Simulation { central: false, metrics_every: 1, losses: 0, ..spec.simulation };
        study.clients.values_mut().for_each(|client| client.eta = None);
        study.privacy = Some(PrivacySpec {
            clip: Some(clip),
            budget: BudgetSpec::First(before.get()),
            tau: None,
            standardise: None,
            spent_share: 0.0,
            score_budget: None,
            ..privacy
        });
        study.inference = None;
        Some(study.check().expect("made of checked parts"))
    }

    /// The study of one round whose releases give intervals and scores for the model `w` that `clients` clients learned, if this study asks for any. It is a
    /// study like any other, as that of the moments is: the release is the mean of the vectors of [`Closing`], clipped to 1.
    pub fn closing(&self, w: &[f64], clients: usize) -> Option<Study> {
        let (privacy, spec) = (self.spec.privacy?, &self.spec);
        let after = self.privacy.as_ref()?.after;
        let schema = spec.schema()?;
        if after == Rho::ZERO {
            return None;
        }
        let mut study = spec.clone();
        let typical = schema.target.typical.is_some();
        let scaled = schema.features.iter().any(|column| column.typical.is_some());
        let (features, spread) = (w.len() as f64, if typical { 1.0 } else { 0.25 });
        let divisor = self.mean_records().unwrap_or(1.0);
        let sigma = self.closing_sigma(clients, clients, divisor).unwrap_or(1.0);
        // The error of sampling beside the noise of a mean of vectors of the usual length. Where noise is small, records that are far out may count in full.
        let ease = 1.0 / (sigma * (1.5 * features * divisor * clients as f64).sqrt());
        let mut closing = Closing {
            loss: spec.loss,
            w: w.to_vec(),
            hessian: spec.inference.map(|_| 0.0),
            scores: privacy.score_budget.is_some(),
            // Features in units of their spreads have a mean square of about 1; in units of their bounds, of at most 1.
            radius: (if scaled { (0.3 * ease).clamp(1.5, 4.0) * features } else { features }).sqrt(),
            // A slope of 6 is an error of three spreads of the target.
            slope: match spec.loss {
                AnyLoss::Squared(_) => spread * ease.clamp(6.0, 8.0),
                AnyLoss::Huber(huber) => huber.threshold,
                _ => 1.0,
            },
            range: 4.0 * spread,
        };
        if let Some(share) = &mut closing.hessian {
            // As much as makes the matrix three times as large as its noise where it is a twenty-fifth of what is typical, as it is along rare words and
            // columns that say nearly the same; the rest is for the gradient.
            let largest = closing::largest_curvature(spec.loss);
            let unit = if scaled { 1.0 } else { 0.0625 };
            let wanted = largest * unit * 0.04 / (3.0 * (2.0 * features).sqrt());
            *share = (sigma * largest * closing.radius * closing.radius / wanted).powi(2).clamp(0.15, 0.6);
        }
        study.closing = Some(closing);
        study.name = format!("{}-closing", spec.name);
        study.rounds = 1;
        study.loss = if spec.loss.is_classification() { Hinge.into() } else { Absolute.into() };
        (study.regularizer, study.lambda) = (RegularizerSpec::Public(Regularizer::None), 0.0);
        study.algorithm = AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 1.0);
        study.simulation = Simulation { central: false, metrics_every: 1, losses: 0, ..spec.simulation };
        study.clients.values_mut().for_each(|client| client.eta = None);
        study.inference = None;
        study.privacy = Some(PrivacySpec {
            clip: Some(1.0),
            budget: BudgetSpec::First(after.get()),
            tau: None,
            standardise: None,
            spent_share: 0.0,
            score_budget: None,
            ..privacy
        });
        Some(study.check().expect("made of checked parts"))
    }

    /// The standard error to expect for a coefficient among so many clients, and the same without privacy, in spreads of the target for each spread of the feature
    /// (for the logistic loss, in log odds): none without intervals, and `Some(None)` if noise is likely to be too large for them.
    pub fn expected_error(&self, clients: usize) -> Option<Option<(f64, f64)>> {
        self.spec.inference?;
        let closing = self.closing(&vec![0.0; self.features], clients)?;
        let (parts, divisor) = (closing.spec.closing.as_ref()?, self.mean_records()?);
        let sigma = self.closing_sigma(clients, clients, divisor)?;
        let noise = ClosingNoise { sigma, records: divisor * clients as f64, clients };
        let schema = self.spec.schema()?;
        // In units of bounds a feature has a spread of about a quarter.
        let scaled = schema.features.iter().any(|column| column.typical.is_some());
        let spread = if scaled { 1.0 } else { 0.25 };
        let target = if self.spec.loss.is_classification() || schema.target.typical.is_some() { 1.0 } else { 0.25 };
        let in_spreads = |error: f64| error * spread / target;
        Some(
            parts.expected_error(noise, spread * spread).map(|(all, sampling)| (in_spreads(all), in_spreads(sampling))),
        )
    }

    /// The standard deviation of the noise in the mean of the closing releases of `present` of `clients` clients, each dividing by `divisor`.
    pub fn closing_sigma(&self, clients: usize, present: usize, divisor: f64) -> Option<f64> {
        let after = self.privacy.as_ref()?.after.get();
        let trust = self.spec.trust(clients).ok()?;
        let local = 2.0 / divisor / (2.0 * after).sqrt();
        let variance = trust.map_or(1.0 / present as f64, |trust| trust.mean_variance(present));
        (after > 0.0).then(|| local * variance.sqrt())
    }

    /// This study with the typical values that follow from the moments that `clients` clients released on average, each dividing
    /// by `divisor`. With masks, `trust` tells how much noise there is in the mean.
    ///
    /// # Panics
    /// If the study does not ask for standardisation.
    pub fn standardised(
        &self,
        moments: &[f64],
        clients: usize,
        divisor: f64,
        trust: Option<&Trust>,
    ) -> Result<Study, StudyError> {
        let study = self.moments().expect("a study that asks for standardisation");
        let privacy = study.privacy().expect("moments are private");
        let sensitivity = 2.0 * privacy.clip().get() / divisor;
        let local = sensitivity / (2.0 * privacy.schedule().phi(1).get()).sqrt();
        let variance = trust.map_or(1.0 / clients as f64, |trust| trust.mean_variance(clients));
        let sigma = local * variance.sqrt();
        let mut spec = self.spec.clone();
        let classification = spec.loss.is_classification();
        if let DataSpec::Files { schema, .. } = &mut spec.data {
            let unit = schema.target_unit();
            *schema = schema.standardised(classification, moments, sigma);
            // A threshold stays what it is in the units of the table.
            spec.loss = spec.loss.rescaled(unit / schema.target_unit());
        }
        if let Some(privacy) = &mut spec.privacy {
            privacy.spent_share = privacy.standardise.take().unwrap_or(0.0);
        }
        spec.check()
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
