//! The check of a study: from what is written to what cannot be wrong.

mod data;
mod privacy;

use std::sync::Arc;

pub(super) use data::{distinct, schema_problems};

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
        if let (Some(quorum), Some(clients)) = (self.quorum, self.stated_clients())
            && quorum > clients
        {
            let message = format!("= {quorum} is more than the {clients} parties; write at most as many");
            return Err(StudyError::at("peers.quorum", message));
        }
        match self.plan.as_ref().and_then(|plan| plan.clients) {
            Some(clients) => count("plan.clients", clients as u64, 2, MOST_CLIENTS),
            None => Ok(()),
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
        let mut full = settings("algorithm", given, entry.knobs)?;
        if self.liars.is_some() && full.get("mixing").is_some() {
            // Acceleration counts what an edge carries several times.
            full.set("mixing", knob::Value::Word("metropolis"));
        }
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
        let liars = self.simulation.liars;
        if let Some(clients) = self.stated_clients().filter(|clients| 2 * liars >= *clients && liars > 0) {
            let message = format!("= {liars} of {clients} clients leaves no honest majority; let fewer lie");
            return Err(StudyError::at("simulation.liars", message));
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

/// Whether text has the form host:port; whether the host exists is known only when it is dialled.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok_and(|p| p > 0)
}
