//! What is checked about what a study promises: budget, trust, liars, and the releases before and after the rounds.

use super::data::is_far_off;
use super::*;

/// More features than this have more second derivatives than a release should hold.
const MOST_INFERRED: usize = 200;

impl StudySpec {
    /// What cannot be had together with liars.
    pub(super) fn check_liars(&self) -> Result<(), StudyError> {
        let Some(liars) = self.liars else { return Ok(()) };
        count("robust.liars", liars as u64, 1, MOST_CLIENTS)?;
        let refuse = |with: &str, reason: &str| {
            Err(StudyError::at("robust.liars", format!("is not possible with {with}: {reason}")))
        };
        if self.public_records().is_none() {
            return Err(StudyError::at(
                "robust.liars",
                "needs data.records: what honest parties differ by through chance follows from it; write the mean number of records per party",
            ));
        }
        if let Some(clients) = self.stated_clients().filter(|clients| 2 * liars >= *clients) {
            let message = format!(
                "= {liars} of {clients} parties: half of them can say anything and be believed; no rule helps, so write a smaller number"
            );
            return Err(StudyError::at("robust.liars", message));
        }
        let Some(privacy) = &self.privacy else { return Ok(()) };
        if privacy.colluders.is_some() {
            return refuse(
                "privacy.colluders",
                "masks cancel only in a sum of which nothing is left out; remove one of them",
            );
        }
        if privacy.standardise.is_some() {
            return refuse(
                "privacy.standardise",
                "private means and spreads are sums over all parties, which one liar can move; remove it, and write data.typical for the columns if there is none",
            );
        }
        if self.inference.is_some() || privacy.score_budget.is_some() {
            return refuse(
                "intervals and private scores",
                "they are computed for a mean over all parties; leave out [inference] and privacy.score_budget",
            );
        }
        Ok(())
    }

    pub(super) fn check_budget(&self) -> Result<(), StudyError> {
        let Some(privacy) = &self.privacy else {
            return match self.clients.iter().find(|(_, c)| c.phi1.is_some()) {
                Some((name, _)) => Err(StudyError::at(
                    "client",
                    format!("\"{name}\" has a phi1, but privacy is off; remove one of them"),
                )),
                None => Ok(()),
            };
        };
        number("privacy.delta", privacy.delta, rule::BETWEEN_ZERO_AND_ONE)?;
        match privacy.budget {
            BudgetSpec::Epsilon(epsilon) => number("privacy.epsilon", epsilon, rule::POSITIVE)?,
            BudgetSpec::First(phi1) => number("privacy.phi1", phi1, rule::POSITIVE)?,
        }
        privacy.clip.map_or(Ok(()), |clip| number("privacy.clip", clip, rule::POSITIVE))?;
        privacy.tau.map_or(Ok(()), |tau| number("privacy.tau", tau, rule::ABOVE_ZERO_TO_ONE))?;
        number("privacy.spent_share", privacy.spent_share, rule::BELOW_ONE)?;
        self.check_trust(privacy)
    }

    /// What is released after the last round splits a total rho, as standardisation does.
    pub(super) fn check_closing(&self, privacy: &PrivacySpec) -> Result<(), StudyError> {
        let key = match (self.inference, privacy.score_budget) {
            (Some(level), _) => {
                number("inference.level", level, rule::BETWEEN_ZERO_AND_ONE)?;
                if let Some(reason) = closing::refuses(self.loss) {
                    return Err(StudyError::at("inference", reason));
                }
                if !matches!(self.regularizer, RegularizerSpec::Public(regularizer) if regularizer.is_smooth()) {
                    let reason = "is for models without an l1 penalty, whose coefficients have no normal law; use the regularizer none or l2, or remove it";
                    return Err(StudyError::at("inference", reason));
                }
                if self.features() > MOST_INFERRED {
                    let reason = format!(
                        "releases P (P + 1)/2 second derivatives, too many for P = {}; use at most {MOST_INFERRED} features, or remove it",
                        self.features()
                    );
                    return Err(StudyError::at("inference", reason));
                }
                "inference"
            }
            (None, Some(share)) => {
                number("privacy.score_budget", share, rule::BETWEEN_ZERO_AND_ONE)?;
                "privacy.score_budget"
            }
            (None, None) => return Ok(()),
        };
        let refuse = |key: &str, reason: &str| Err(StudyError::at(key, reason));
        if privacy.score_budget.is_some() && self.schema().is_none_or(|schema| schema.holdout == 0.0) {
            return refuse(
                "privacy.score_budget",
                "scores records that were held out, but none are; give data.holdout, or remove it",
            );
        }
        if !matches!(privacy.budget, BudgetSpec::Epsilon(_)) || self.clients.values().any(|c| c.phi1.is_some()) {
            return refuse(
                key,
                "takes a share of a total, which phi1 does not give; write privacy.epsilon, or remove it",
            );
        }
        if privacy.accountant == Accountant::Classic {
            return refuse(
                key,
                "takes a share of rho, by which the classic accountant does not go; choose another, or remove it",
            );
        }
        if self.schema().is_none() || self.weights == Weights::Clients {
            return refuse(
                key,
                "needs tables whose records count the same; write problem.weights = \"records\", or remove it",
            );
        }
        match 1.0 - privacy.standardise.unwrap_or(privacy.spent_share) - self.closing_share() > 0.0 {
            true => Ok(()),
            false => refuse(key, "and privacy.standardise leave nothing for the rounds; lower one of them"),
        }
    }

    /// Masks need somebody to share them with; how many clients there are may be known only later.
    fn check_trust(&self, privacy: &PrivacySpec) -> Result<(), StudyError> {
        let Some(colluders) = privacy.colluders else {
            return match privacy.theta {
                Some(_) => Err(StudyError::at(
                    "privacy.theta",
                    "divides noise between masks and own noise, but there are no masks; give privacy.colluders, or remove it",
                )),
                None => Ok(()),
            };
        };
        count("privacy.colluders", colluders as u64, 0, MOST_CLIENTS)?;
        privacy.theta.map_or(Ok(()), |theta| number("privacy.theta", theta, rule::THETA))?;
        if privacy.accountant == Accountant::Classic {
            let message =
                "is accounted for by rho, by which the classic accountant does not go; choose another, or remove it";
            return Err(StudyError::at("privacy.colluders", message));
        }
        if let Some((name, _)) = self.clients.iter().find(|(_, client)| client.eta.is_some()) {
            let message = "weighs this client's masks differently from the others', so that they would not cancel; remove it, or privacy.colluders";
            return Err(StudyError::at(format!("client.{name}.eta"), message));
        }
        self.stated_clients().map_or(Ok(()), |clients| self.trust(clients).map(|_| ()))
    }

    /// What so many clients assume about each other; none without privacy or if nobody is trusted.
    pub fn trust(&self, clients: usize) -> Result<Option<Trust>, StudyError> {
        let Some(PrivacySpec { colluders: Some(colluders), theta, .. }) = self.privacy else { return Ok(None) };
        Trust::new(clients, colluders, theta).map(Some).map_err(|error| {
            let key = if matches!(error, TrustError::Share { .. }) { "privacy.theta" } else { "privacy.colluders" };
            StudyError::at(key, error)
        })
    }

    /// Private standardisation splits a total rho, and gives all records of all clients one map.
    pub(super) fn check_standardisation(&self, privacy: &PrivacySpec) -> Result<(), StudyError> {
        let part = match privacy.standardise {
            Some(share) => {
                number("privacy.standardise", share, rule::BETWEEN_ZERO_AND_ONE)?;
                "standardise"
            }
            None if privacy.spent_share > 0.0 => "spent_share",
            None => return Ok(()),
        };
        let refuse = |reason: &str| Err(StudyError::at(format!("privacy.{part}"), reason));
        if !matches!(privacy.budget, BudgetSpec::Epsilon(_)) || self.clients.values().any(|c| c.phi1.is_some()) {
            return refuse("is a share of a total, which phi1 does not give; write privacy.epsilon, or remove it");
        }
        if privacy.accountant == Accountant::Classic {
            return refuse(
                "is a share of rho, by which the classic accountant does not go; choose another, or remove it",
            );
        }
        if privacy.standardise.is_none() {
            return Ok(());
        }
        match self.schema() {
            _ if privacy.spent_share > 0.0 => refuse("was spent already, as spent_share says; remove one of them"),
            None => refuse("needs tables with columns; synthetic data has none, so remove it"),
            Some(schema) if schema.scaling != Scaling::Bounds => {
                refuse("scales the columns, but data.scaling is \"none\"; remove one of them")
            }
            Some(_) if self.weights == Weights::Clients => refuse(
                "needs problem.weights = \"records\", so that all clients release alike; write that, or remove it",
            ),
            Some(schema) => match schema.features.iter().chain([&schema.target]).find(|column| is_far_off(column)) {
                Some(column) => {
                    let reason = "has bounds too far from zero for their width to be standardised; subtract a constant from the column";
                    Err(StudyError::at(format!("data.bounds.{}", column.name), reason))
                }
                None => Ok(()),
            },
        }
    }

    /// The typed promise, with the schedule of all rounds; fills in the defaults of `privacy`.
    pub(super) fn check_privacy(
        &self,
        privacy: &mut PrivacySpec,
        algorithm: &dyn Algorithm,
    ) -> Result<Privacy, StudyError> {
        let clip = privacy
            .clip
            .ok_or_else(|| StudyError::at("privacy.clip", format!("is missing; {}", knob::CLIP.domain.expected())))?;
        let tau = *privacy.tau.get_or_insert(1.0);
        let unit = |e| StudyError::at("privacy", e);
        let (clip, delta) = (Clip::new(clip).map_err(unit)?, Delta::new(privacy.delta).map_err(unit)?);
        let budget = match privacy.budget {
            BudgetSpec::Epsilon(epsilon) => Budget::Epsilon(Epsilon::new(epsilon).map_err(unit)?),
            BudgetSpec::First(phi1) => Budget::First(Rho::new(phi1).map_err(unit)?),
        };
        if privacy.colluders.is_some()
            && let Some(reason) = algorithm.refuses_masks()
        {
            return Err(StudyError::at(
                "privacy.colluders",
                format!("is not possible with {}: {reason}", algorithm.name()),
            ));
        }
        let touches = |n: u32| algorithm.touches_records(n, self.rounds);
        let data_rounds = (1..=self.rounds).filter(|&n| touches(n)).count() as u32;
        let cannot = |e| StudyError::at("privacy", format!("cannot be kept: {e}"));
        let (share, closing) = (privacy.standardise.unwrap_or(privacy.spent_share), self.closing_share());
        let part = |share| budget.part(privacy.accountant, delta, share).map_err(cannot);
        let (before, after) = (part(share)?, part(closing)?);
        let left = 1.0 - share - closing;
        let costs = budget.schedule(privacy.accountant, delta, data_rounds, tau, left).map_err(cannot)?;
        let schedule = Arc::new(costs.spread(self.rounds, touches));
        let mut exposure = 1.0f64;
        for (name, client) in &self.clients {
            let Some(phi1) = client.phi1 else { continue };
            // A client's own phi(1) must be as representable in every round as the common one.
            let own = Rho::new(phi1).map_err(unit)?;
            Schedule::geometric_from_first(own, data_rounds, tau)
                .map_err(|e| StudyError::at("client", format!("\"{name}\" has a phi1 that cannot be kept: {e}")))?;
            exposure = exposure.max(phi1 / schedule.phi(1).get());
        }
        let PrivacySpec { accountant, noise, .. } = *privacy;
        Ok(Privacy { clip, budget, delta, accountant, noise, before, after, schedule, exposure, spec: *privacy })
    }

    /// The problem as far as an algorithm has to know it before there is data: the paper's rule gives some l1.
    pub(super) fn assumed_problem(&self) -> Problem {
        self.problem_with(match self.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { l2 } => Regularizer::ElasticNet { l1: 1.0, l2 },
        })
    }

    pub(in crate::study) fn problem_with(&self, regularizer: Regularizer) -> Problem {
        let intercept = self.schema().is_some_and(|schema| schema.intercept);
        Problem { loss: self.loss, regularizer, lambda: self.lambda, intercept }
    }
}
