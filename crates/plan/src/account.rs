//! Privacy questions without a study.

use serde_json::{Map, Value, json};
use thiserror::Error;
use undertone_core::privacy::{Accountant, Budget, Delta, Epsilon, Rho, Schedule, Trust, TrustError};

/// More rounds are added up for too long.
pub const MOST_ROUNDS: u32 = 10_000_000;

/// What is known of a budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Given {
    /// A total zCDP rho: which epsilon does it give?
    RhoTotal(f64),
    /// A total epsilon: how much rho may be spent, and how much in the first round?
    Epsilon(f64),
    /// The rho of the first round: what does the whole run cost?
    First(f64),
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// What is known.
    pub given: Given,
    /// The delta at which epsilon is stated.
    pub delta: f64,
    /// T.
    pub rounds: u32,
    /// phi(n+1) = phi(n)/tau.
    pub tau: f64,
    /// K and q: noise is masked, and at most q of the K clients pool what they know.
    pub trust: Option<(usize, usize)>,
    /// How near own noise is to the least that masks allow; in the middle unless given.
    pub theta: Option<f64>,
}

/// A question that has no answer: which of its parts is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{name} {message}")]
pub struct NoAnswer {
    /// The name of the part.
    pub name: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl NoAnswer {
    fn at(name: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Self {
        move |message| {
            let message = message.to_string();
            // Some begin with the name, which is said before them.
            Self {
                name,
                message: message.strip_prefix(name).map(|rest| rest.trim_start().to_string()).unwrap_or(message),
            }
        }
    }
}

impl Question {
    /// The answer by every accountant that goes by rho, as JSON; epsilons are rounded up and rhos down.
    pub fn answer(&self) -> Result<Value, NoAnswer> {
        let delta = Delta::new(self.delta).map_err(|e| NoAnswer::at("delta")(&e))?;
        if !(1..=MOST_ROUNDS).contains(&self.rounds) {
            let message = format!("= {} is not possible; write a whole number from 1 to {MOST_ROUNDS}", self.rounds);
            return Err(NoAnswer { name: "rounds", message });
        }
        if !(self.tau > 0.0 && self.tau <= 1.0) {
            let message = format!("{} is not possible; write a number above 0 and at most 1", self.tau);
            return Err(NoAnswer { name: "tau", message });
        }
        let trust = match self.trust {
            Some((clients, colluders)) => {
                let name = |e: &TrustError| if matches!(e, TrustError::Share { .. }) { "theta" } else { "colluders" };
                Some(Trust::new(clients, colluders, self.theta).map_err(|e| NoAnswer::at(name(&e))(&e))?)
            }
            None => None,
        };
        let mut answer = match self.given {
            Given::RhoTotal(rho) => of_rho(Rho::new(rho).map_err(|e| NoAnswer::at("rho_total")(&e))?, delta),
            Given::Epsilon(epsilon) => {
                self.of_epsilon(Epsilon::new(epsilon).map_err(|e| NoAnswer::at("epsilon")(&e))?, delta)?
            }
            Given::First(phi1) => {
                let phi1 = Rho::new(phi1).map_err(|e| NoAnswer::at("phi1")(&e))?;
                let schedule = Schedule::geometric_from_first(phi1, self.rounds, self.tau);
                of_rho(schedule.map_err(|e| NoAnswer::at("phi1")(&e))?.spent(self.rounds), delta)
            }
        };
        if let Some(trust) = trust {
            add_trust(&mut answer, &trust, delta)?;
        }
        Ok(answer)
    }

    fn of_epsilon(&self, epsilon: Epsilon, delta: Delta) -> Result<Value, NoAnswer> {
        let first = |a: Accountant| {
            let schedule = Budget::Epsilon(epsilon).schedule(a, delta, self.rounds, self.tau, 1.0);
            Ok(schedule.map_err(|e| NoAnswer::at("epsilon")(&e))?.phi(1).get())
        };
        Ok(json!({
            "delta": delta.get(),
            "epsilon": epsilon.get(),
            "rounds": self.rounds,
            "tau": self.tau,
            "phi_1": each(first)?,
            "rho_total": each(|a| Ok(a.rho(epsilon, delta).get()))?,
        }))
    }
}

/// One number per accountant.
fn each(f: impl Fn(Accountant) -> Result<f64, NoAnswer>) -> Result<Value, NoAnswer> {
    let numbers: Result<Map<String, Value>, NoAnswer> =
        Accountant::BY_RHO.iter().map(|&a| Ok((a.name().to_string(), json!(f(a)?)))).collect();
    Ok(Value::Object(numbers?))
}

fn of_rho(rho: Rho, delta: Delta) -> Value {
    let epsilon = each(|a| Ok(a.epsilon(rho, delta).get())).unwrap_or(Value::Null);
    json!({ "delta": delta.get(), "rho_total": rho.get(), "epsilon": epsilon })
}

/// What is known of a study with masks: the scales of noise, relative to those without trust, and what remains if all others collude.
fn add_trust(answer: &mut Value, trust: &Trust, delta: Delta) -> Result<(), NoAnswer> {
    let (own, mask) = trust.variances();
    // Own noise alone is worth sigma_loc^2/sigma_min^2 times the rho.
    let alone = |accountant: Accountant| {
        let total = &answer["rho_total"];
        let rho = total.as_f64().or_else(|| total[accountant.name()].as_f64()).expect("every answer has a rho");
        let rho = Rho::new(rho / own * (1.0 + 1e-12)).map_err(|e| NoAnswer::at("theta")(&e))?;
        Ok(accountant.epsilon(rho, delta).get())
    };
    let all = each(alone)?;
    let unmasked = 1.0 / trust.clients() as f64;
    for (key, value) in [
        ("clients", json!(trust.clients())),
        ("colluders", json!(trust.colluders())),
        ("theta", json!(trust.theta())),
        ("own_noise", json!(own.sqrt())),
        ("one_mask", json!(mask.sqrt())),
        ("noise_in_mean", json!((trust.mean_variance(trust.clients()) / unmasked).sqrt())),
        ("noise_in_mean_if_one_is_lost", json!((trust.mean_variance(trust.clients() - 1) / unmasked).sqrt())),
        ("all_collude", all),
    ] {
        answer[key] = value;
    }
    Ok(())
}
