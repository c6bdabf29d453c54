//! The studies of one release before and after the rounds: private moments of the columns, and what intervals and scores are made of.

use super::{
    AlgorithmSpec, BudgetSpec, DataSpec, PrivacySpec, RegularizerSpec, Simulation, Study, StudyError, StudySpec,
};
use crate::closing::{self, Closing, ClosingNoise};
use crate::loss::{Absolute, AnyLoss, Hinge};
use crate::privacy::{Rho, Trust};
use crate::regularizer::Regularizer;

impl StudySpec {
    /// Becomes a study of one round, whose release is the mean of its records' features clipped to `clip`, for this rho: the gradient of |1 - z.w| and of
    /// max(0, 1 - z.w) at w = 0 is -z where the target is 1. Each suits its kind of target.
    fn become_one_release(&mut self, clip: f64, rho: Rho) {
        self.rounds = 1;
        self.loss = if self.loss.is_classification() { Hinge.into() } else { Absolute.into() };
        (self.regularizer, self.lambda) = (RegularizerSpec::Public(Regularizer::None), 0.0);
        self.algorithm = AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 1.0);
        self.simulation = Simulation { central: false, metrics_every: 1, losses: 0, liars: 0, ..self.simulation };
        self.clients.values_mut().for_each(|client| client.eta = None);
        self.inference = None;
        self.privacy = self.privacy.map(|privacy| PrivacySpec {
            clip: Some(clip),
            budget: BudgetSpec::First(rho.get()),
            tau: None,
            standardise: None,
            spent_share: 0.0,
            score_budget: None,
            ..privacy
        });
    }
}

/// How the names of the studies end that are stages of another one.
const STAGES: [&str; 2] = ["-moments", "-closing"];

/// Whether a study of this name is what another one spends before or after its rounds.
pub fn is_stage(name: &str) -> bool {
    STAGES.iter().any(|end| name.ends_with(end))
}

impl Study {
    /// Whether other studies are run before or after this one for the same purpose, or this is one of them.
    pub fn has_stages(&self) -> bool {
        let privacy = self.spec.privacy.as_ref();
        is_stage(self.name())
            || privacy.is_some_and(|privacy| privacy.standardise.is_some() || privacy.spent_share > 0.0)
            || self.privacy.as_ref().is_some_and(|privacy| privacy.after > Rho::ZERO)
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
        study.become_one_release(clip, before);
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
        study.become_one_release(1.0, after);
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
}
