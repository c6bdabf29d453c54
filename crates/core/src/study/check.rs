//! The check of a study: from what is written to what cannot be wrong.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use crate::algorithm::{self, Algorithm};
use crate::closing;
use crate::graph::GraphSpec;
use crate::knob::{self, Settings};
use crate::loss::{AnyLoss, Shape};
use crate::privacy::{Accountant, Budget, Clip, Delta, Epsilon, Rho, Schedule, Trust, TrustError};
use crate::problem::{Problem, Weights};
use crate::regularizer::Regularizer;
use crate::rule::{self, Rule};
use crate::schema::{Column, ColumnKind, Missing, Scaling, Schema, same_number};

/// A part of the check.
type Check = fn(&StudySpec) -> Result<(), StudyError>;

/// More features than this have more second derivatives than a release should hold.
const MOST_INFERRED: usize = 200;

impl StudySpec {
    /// Checks everything, and computes what follows from it.
    pub fn check(&self) -> Result<Study, StudyError> {
        self.check_facts()?;
        let mut spec = self.clone();
        // Not where released moments took the place of what is typical: their spread is too uncertain to go by.
        let fitted = self.privacy.is_some_and(|privacy| privacy.spent_share > 0.0);
        let level = match self.loss.shape() {
            Shape::Residual { above, below, .. } if above != below && !fitted => above / (above + below),
            _ => 0.5,
        };
        if let DataSpec::Files { schema, .. } = &mut spec.data
            && self.closing.is_none()
        {
            *schema = schema.clone().starting_at(level);
        }
        let algorithm = self.check_algorithm(&mut spec)?;
        let features = self.features();
        if let Some(reason) = algorithm.refuses(&self.assumed_problem(), features, self.rounds) {
            return Err(StudyError::at("algorithm", format!("cannot solve this problem: {reason}")));
        }
        if self.clients.values().any(|c| c.eta.is_some()) && !algorithm.takes_own_eta() {
            let name = algorithm.name();
            return Err(StudyError::at(
                "client",
                format!("gives a client its own eta, which {name} does not take; remove it"),
            ));
        }
        let privacy = match &mut spec.privacy {
            Some(privacy) => Some(self.check_privacy(privacy, &*algorithm)?),
            None => None,
        };
        let digest = StudyDigest::of(&spec);
        Ok(Study { spec, algorithm, privacy, features, digest })
    }

    /// Checks all that does not depend on the algorithm: what planning needs of a study whose algorithm is open.
    pub fn check_facts(&self) -> Result<(), StudyError> {
        self.checks().into_iter().find_map(|check| check(self).err()).map_or(Ok(()), Err)
    }

    /// Everything that is wrong, one mistake of each part of the check.
    pub fn problems(&self) -> Vec<StudyError> {
        let found: Vec<StudyError> = self.checks().into_iter().filter_map(|check| check(self).err()).collect();
        if !found.is_empty() || self.algorithm == AlgorithmSpec::Auto {
            return found;
        }
        self.check().err().into_iter().collect()
    }

    /// The parts of the check that do not depend on the algorithm.
    fn checks(&self) -> [Check; 10] {
        [
            Self::check_problem,
            Self::check_data,
            |spec| check_graph(&spec.graph),
            Self::check_simulation,
            Self::check_clients,
            Self::check_network,
            Self::check_budget,
            Self::check_liars,
            |spec| spec.privacy.map_or(Ok(()), |privacy| spec.check_standardisation(&privacy)),
            |spec| spec.privacy.map_or(Ok(()), |privacy| spec.check_closing(&privacy)),
        ]
    }

    fn check_problem(&self) -> Result<(), StudyError> {
        count("rounds", u64::from(self.rounds), 1, MOST_ROUNDS)?;
        count("seed", self.seed, 0, i64::MAX)?;
        readable("name", &self.name)?;
        settings("problem", &self.loss.settings(), self.loss.knobs())?;
        let (l1, l2) = match self.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer.weights(),
            RegularizerSpec::PaperRule { l2 } => (0.0, l2),
        };
        for (key, value) in [("problem.lambda", self.lambda), ("problem.lambda1", l1), ("problem.lambda2", l2)] {
            number(key, value, rule::NOT_NEGATIVE)?;
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), StudyError> {
        if let Some(relay) = &self.relay
            && !relay.starts_with("https://")
            && !relay.starts_with("http://")
        {
            return Err(StudyError::at("network.relay", "is not the address of a relay; write \"https://host\""));
        }
        match self.plan.as_ref().and_then(|plan| plan.clients) {
            Some(clients) => count("plan.clients", clients as u64, 2, MOST_CLIENTS),
            None => Ok(()),
        }
    }

    /// What cannot be had together with liars.
    fn check_liars(&self) -> Result<(), StudyError> {
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
                "private means and spreads are sums over all parties, which one liar can move; write data.typical for the columns instead",
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

    fn check_budget(&self) -> Result<(), StudyError> {
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
    fn check_closing(&self, privacy: &PrivacySpec) -> Result<(), StudyError> {
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
    fn check_standardisation(&self, privacy: &PrivacySpec) -> Result<(), StudyError> {
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

    fn check_algorithm(&self, spec: &mut StudySpec) -> Result<Arc<dyn Algorithm>, StudyError> {
        let AlgorithmSpec::Named { name, settings: given } = &self.algorithm else {
            return Err(StudyError::at(
                "algorithm",
                "= \"auto\" is not resolved yet; `undertone plan` writes a study that is",
            ));
        };
        let entry = algorithm::find(name).ok_or_else(|| {
            if name == "dp-nfl" {
                return StudyError::at(
                    "algorithm.name",
                    "= \"dp-nfl\" is zcdp-nfl with the accountant classic; write that",
                );
            }
            let known: Vec<&str> = algorithm::registry().map(|entry| entry.name).collect();
            let choices = knob::quoted(&known);
            StudyError::at("algorithm.name", format!("= \"{name}\" is not possible; write one of {choices}"))
        })?;
        let full = settings("algorithm", given, entry.knobs)?;
        let algorithm = (entry.build)(&full);
        if self.liars.is_some() && !entry.bounds_liars {
            let able: Vec<&str> = algorithm::registry().filter(|entry| entry.bounds_liars).map(|e| e.name).collect();
            let message =
                format!("is not possible: {name} has no rule for what liars say; choose {}", able.join(" or "));
            return Err(StudyError::at("robust.liars", message));
        }
        spec.algorithm = AlgorithmSpec::Named { name: name.clone(), settings: full };
        Ok(algorithm)
    }

    /// The typed promise, with the schedule of all rounds; fills in the defaults of `privacy`.
    fn check_privacy(&self, privacy: &mut PrivacySpec, algorithm: &dyn Algorithm) -> Result<Privacy, StudyError> {
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
    fn assumed_problem(&self) -> Problem {
        self.problem_with(match self.regularizer {
            RegularizerSpec::Public(regularizer) => regularizer,
            RegularizerSpec::PaperRule { l2 } => Regularizer::ElasticNet { l1: 1.0, l2 },
        })
    }

    pub(super) fn problem_with(&self, regularizer: Regularizer) -> Problem {
        let intercept = self.schema().is_some_and(|schema| schema.intercept);
        Problem { loss: self.loss, regularizer, lambda: self.lambda, intercept }
    }

    fn check_data(&self) -> Result<(), StudyError> {
        match &self.data {
            DataSpec::Synthetic { clients, records, features, noise, condition, spread } => {
                count("data.clients", *clients as u64, 2, MOST_CLIENTS)?;
                one_or_each("data.records", records, *clients)?;
                count("data.features", *features as u64, 1, MOST_FEATURES)?;
                number("data.noise", *noise, rule::NOT_NEGATIVE)?;
                number("data.condition", *condition, rule::AT_LEAST_ONE)?;
                number("data.spread", *spread, rule::AT_LEAST_ONE)?;
                check_size(*clients, records, *features)
            }
            DataSpec::Files { layout, schema, records, csv, .. } => {
                csv.check().map_err(|e| StudyError::at(format!("data.csv.{}", e.name), e.message))?;
                self.check_public_records(layout, records)?;
                match layout {
                    Layout::StandIn { clients, records, noise } => {
                        if clients.len() < 2 || !distinct(clients) {
                            let message = "must be at least two, with different names";
                            return Err(StudyError::at("data.clients", message));
                        }
                        one_or_each("data.records", records, clients.len())?;
                        number("data.noise", *noise, rule::NOT_NEGATIVE)?;
                        check_size(clients.len(), records, schema.features.len())?;
                    }
                    Layout::Split(clients) => count("data.clients", *clients as u64, 2, MOST_CLIENTS)?,
                    Layout::Folder | Layout::Column(_) => {}
                }
                number("data.holdout", schema.holdout, rule::HOLDOUT)?;
                if schema.holdout > 0.0 && self.weights == Weights::Clients {
                    let reason = "needs problem.weights = \"records\": the number of rows that are left for training follows from what they say, so nothing \
                                  may be divided by it; write that, or remove it";
                    return Err(StudyError::at("data.holdout", reason));
                }
                schema_problems(schema, self.loss).into_iter().next().map_or(Ok(()), Err)
            }
        }
    }

    /// The public number of records is said once: for all clients, as their mean, or client by client.
    fn check_public_records(&self, layout: &Layout, records: &[usize]) -> Result<(), StudyError> {
        let stated = self.clients.iter().find(|(_, client)| client.records.is_some());
        if let Some((name, _)) = stated {
            let key = format!("client.{name}.records");
            if matches!(layout, Layout::StandIn { .. }) || !records.is_empty() {
                return Err(StudyError::at(key, "and data.records are both given; keep one of them"));
            }
            if let Some((other, _)) = self.clients.iter().find(|(_, client)| client.records.is_none()) {
                let key = format!("client.{other}.records");
                return Err(StudyError::at(
                    key,
                    format!("is missing, while client.{name}.records is given; give all or none"),
                ));
            }
        }
        match layout {
            Layout::Split(clients) if !records.is_empty() => one_or_each("data.records", records, *clients),
            _ if !records.is_empty() => counts("data.records", records),
            _ => Ok(()),
        }
    }

    fn check_simulation(&self) -> Result<(), StudyError> {
        let Simulation { trials, metrics_every, .. } = self.simulation;
        count("simulation.trials", trials.into(), 1, MOST_TRIALS)?;
        count("simulation.metrics_every", metrics_every.into(), 1, MOST_ROUNDS)?;
        let measured = u64::from(self.rounds.div_ceil(metrics_every)) * u64::from(trials);
        if measured > MOST_MEASUREMENTS {
            let message =
                format!("would measure {measured} rounds in all, more than {MOST_MEASUREMENTS}; raise metrics_every");
            return Err(StudyError::at("simulation", message));
        }
        Ok(())
    }

    fn check_clients(&self) -> Result<(), StudyError> {
        for (name, client) in &self.clients {
            readable("client", name)?;
            let key = |part: &str| format!("client.{name}.{part}");
            client.eta.map_or(Ok(()), |eta| number(&key("eta"), eta, rule::POSITIVE))?;
            client.phi1.map_or(Ok(()), |phi1| number(&key("phi1"), phi1, rule::POSITIVE))?;
            client.records.map_or(Ok(()), |records| count(&key("records"), records as u64, 1, MOST_RECORDS))?;
            if client.address.as_deref().is_some_and(|address| !is_address(address)) {
                let message = "is not an address; write \"host:port\", such as \"10.0.0.7:4700\"";
                return Err(StudyError::at(key("address"), message));
            }
            let before = self.clients.iter().take_while(|(other, _)| *other != name);
            if let Some((other, _)) = before.into_iter().find(|(_, c)| client.id.is_some() && c.id == client.id) {
                let message = format!("has the id of \"{other}\"; every client needs a key of its own");
                return Err(StudyError::at(format!("client.{name}"), message));
            }
        }
        Ok(())
    }
}

/// A number that keeps a rule.
fn number(key: &str, value: f64, rule: Rule) -> Result<(), StudyError> {
    match rule.holds(value) {
        true => Ok(()),
        false => Err(StudyError::at(key, format!("= {value} is not possible; {}", rule.expected))),
    }
}

/// A name that does no harm where it is printed: studies come from others.
fn readable(key: &str, name: &str) -> Result<(), StudyError> {
    match name.chars().any(char::is_control) {
        false => Ok(()),
        true => Err(StudyError::at(key, format!("{name:?} holds control characters; remove them"))),
    }
}

/// A whole number inside a range.
fn count(key: &str, value: u64, low: i64, high: i64) -> Result<(), StudyError> {
    match i64::try_from(value).is_ok_and(|value| (low..=high).contains(&value)) {
        true => Ok(()),
        false => {
            Err(StudyError::at(key, format!("= {value} is not possible; write a whole number from {low} to {high}")))
        }
    }
}

/// Numbers of records, at least one.
fn counts(key: &str, records: &[usize]) -> Result<(), StudyError> {
    if records.is_empty() {
        return Err(StudyError::at(key, "is empty; write one number for all or one for each"));
    }
    records.iter().try_for_each(|&m| count(key, m as u64, 1, MOST_RECORDS))
}

/// Numbers of records, one for all or one for each of so many clients.
fn one_or_each(key: &str, records: &[usize], clients: usize) -> Result<(), StudyError> {
    counts(key, records)?;
    if records.len() != 1 && records.len() != clients {
        let message =
            format!("lists {} numbers for {clients} clients; write one for all or one for each", records.len());
        return Err(StudyError::at(key, message));
    }
    Ok(())
}

/// A data set that no machine can hold is refused before it is drawn.
fn check_size(clients: usize, records: &[usize], features: usize) -> Result<(), StudyError> {
    let all: f64 =
        if records.len() == 1 { records[0] as f64 * clients as f64 } else { records.iter().map(|&r| r as f64).sum() };
    if all * (features + 2) as f64 * 8.0 > 1e13 {
        let message = format!(
            "times records times features is {all:e} records of {features} features, more than 10 terabytes; ask for less"
        );
        return Err(StudyError::at("data.clients", message));
    }
    Ok(())
}

/// Values of parameters, complete.
fn settings(table: &str, given: &Settings, knobs: &[knob::Knob]) -> Result<Settings, StudyError> {
    given.complete(knobs).map_err(|e| StudyError::at(format!("{table}.{}", e.name), e.message))
}

fn check_graph(graph: &GraphSpec) -> Result<(), StudyError> {
    match graph {
        GraphSpec::Random { mean_degree } => number("graph.mean_degree", *mean_degree, rule::POSITIVE),
        GraphSpec::SmallWorld { degree, rewire } => {
            count("graph.degree", *degree as u64, 2, MOST_CLIENTS)?;
            number("graph.rewire", *rewire, rule::ZERO_TO_ONE)
        }
        GraphSpec::Regular { degree } => count("graph.degree", *degree as u64, 1, MOST_CLIENTS),
        _ => Ok(()),
    }
}

/// Whether no word is there twice.
pub(super) fn distinct(words: &[String]) -> bool {
    let set: HashSet<_> = words.iter().collect();
    set.len() == words.len()
}

/// Whether two of the words are the same number.
fn numbers_repeat(words: &[String]) -> bool {
    (1..words.len()).any(|i| words[..i].iter().any(|word| same_number(word, &words[i])))
}

/// Typical values of a column that it can have.
fn check_typical(column: &Column, scaling: Scaling) -> Result<(), StudyError> {
    let Some(values) = &column.typical else { return Ok(()) };
    let key = format!("data.typical.{}", column.name);
    if scaling == Scaling::None {
        return Err(StudyError::at(key, "scales the column, but data.scaling is \"none\"; remove one of them"));
    }
    let possible = match &column.kind {
        ColumnKind::Number { low, high } => {
            // A spread of less than this would lose all digits.
            let narrow = 1e-9 * low.abs().max(high.abs());
            matches!(values[..], [mean, spread] if (*low..=*high).contains(&mean) && spread > narrow && spread <= rule::LARGEST)
        }
        ColumnKind::Category(words) => {
            values.len() == words.len() && values.iter().all(|share| rule::ZERO_TO_ONE.holds(*share))
        }
    };
    match possible {
        true => Ok(()),
        false => Err(StudyError::at(key, format!("= {values:?} is not possible; {}", toml::TYPICAL))),
    }
}

/// Whether a column can have a feature that says that its cell is missing.
fn check_indicator(column: &Column, missing: Missing) -> Result<(), StudyError> {
    let reason = match (&column.kind, missing) {
        _ if !column.indicator => return Ok(()),
        (ColumnKind::Category(_), _) => {
            "has words; list \"\" among them instead, and empty cells are a word of their own"
        }
        (_, Missing::Refuse) => "has no missing cells, which are refused; set data.missing = \"mean\"",
        (ColumnKind::Number { .. }, Missing::Mean) => return Ok(()),
    };
    Err(StudyError::at("data.indicators", format!("names \"{}\", which {reason}", column.name)))
}

/// Whether the spread that moments give to a column, a hundredth of its bounds or more, could lose all digits.
fn is_far_off(column: &Column) -> bool {
    match column.kind {
        ColumnKind::Number { low, high } => high - low < 1e-6 * low.abs().max(high.abs()),
        ColumnKind::Category(_) => false,
    }
}

/// Everything for which the columns cannot be learned from with this loss.
pub(super) fn schema_problems(schema: &Schema, loss: AnyLoss) -> Vec<StudyError> {
    let mut names: Vec<String> = schema.features.iter().map(|column| column.name.clone()).collect();
    names.push(schema.target.name.clone());
    if names.len() < 2 || !distinct(&names) {
        let message = "must list at least one column, each once, and not the target";
        return vec![StudyError::at("data.features", message)];
    }
    let mut found = Vec::new();
    for column in schema.features.iter().chain([&schema.target]) {
        let checks = [
            readable("data.features", &column.name),
            check_indicator(column, schema.missing),
            check_range(column),
            check_typical(column, schema.scaling),
        ];
        found.extend(checks.into_iter().filter_map(Result::err));
    }
    found.extend(check_target(&schema.target, loss).err());
    // Columns that are wrong have no features to compare.
    if !found.is_empty() {
        return found;
    }
    let mut names = schema.feature_names();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("give the feature \"{}\" twice; rename a column", pair[0]);
        found.push(StudyError::at("data.features", message));
    }
    found
}

/// What is public about a column.
fn check_range(column: &Column) -> Result<(), StudyError> {
    match &column.kind {
        ColumnKind::Number { low, high } => {
            // A range so narrow that scaling by its width would lose all digits is a mistake too.
            let narrow = (1e-9 * low.abs().max(high.abs())).max(1e-100);
            if *low < -rule::LARGEST
                || *high > rule::LARGEST
                || (high - low).partial_cmp(&narrow).is_none_or(|o| o.is_le())
            {
                let message = format!("= [{low}, {high}] is not possible; {}", toml::BOUNDS);
                return Err(StudyError::at(format!("data.bounds.{}", column.name), message));
            }
            Ok(())
        }
        ColumnKind::Category(words) if words.iter().any(|word| word.chars().any(char::is_control)) => {
            let message = "lists a word with control characters; remove them";
            Err(StudyError::at(format!("data.categories.{}", column.name), message))
        }
        ColumnKind::Category(words) if words.iter().any(|word| word.trim() != word) => {
            let message = "lists a word with spaces around it; remove them, cells are read without";
            Err(StudyError::at(format!("data.categories.{}", column.name), message))
        }
        ColumnKind::Category(words) if words.len() < 2 || !distinct(words) || numbers_repeat(words) => {
            let message = "must list at least two different words (3 and 3.0 are the same)";
            Err(StudyError::at(format!("data.categories.{}", column.name), message))
        }
        ColumnKind::Category(_) => Ok(()),
    }
}

/// Whether the loss can learn the target.
fn check_target(target: &Column, loss: AnyLoss) -> Result<(), StudyError> {
    if target.typical.is_some() && loss.is_classification() {
        let key = format!("data.typical.{}", target.name);
        return Err(StudyError::at(key, format!("has no use: the {} loss learns labels; remove it", loss.name())));
    }
    match &target.kind {
        ColumnKind::Category(_) if !loss.is_classification() => {
            let message = format!("has categories, but the {} loss needs a number; give it bounds", loss.name());
            Err(StudyError::at("data.target", message))
        }
        ColumnKind::Category(words) if words.len() != 2 => {
            let message = format!("has {} categories; classification here needs exactly two", words.len());
            Err(StudyError::at("data.target", message))
        }
        _ => Ok(()),
    }
}

/// Whether text has the form host:port; whether the host exists is known only when it is dialled.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok_and(|p| p > 0)
}
