//! `undertone account`: privacy questions without a study.

use serde_json::{Map, Value, json};
use undertone_core::privacy::{Accountant, Budget, Delta, Epsilon, Rho, Schedule, Trust, TrustError};

use crate::{Failure, digits, print};

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("given").required(true).args(["rho_total", "epsilon", "phi1"])))]
pub struct Arguments {
    /// A total zCDP rho: which epsilon does it give?
    #[arg(long, allow_negative_numbers = true, value_name = "R", conflicts_with_all = ["rounds", "tau"])]
    rho_total: Option<f64>,

    /// A total epsilon: how much zCDP rho may be spent, and how much in the first round?
    #[arg(long, allow_negative_numbers = true, value_name = "E")]
    epsilon: Option<f64>,

    /// The zCDP rho of the first round: what does the whole run cost?
    #[arg(long, allow_negative_numbers = true, value_name = "PHI")]
    phi1: Option<f64>,

    /// The delta at which epsilon is stated
    #[arg(long, allow_negative_numbers = true, value_name = "D")]
    delta: f64,

    /// Number of rounds
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rounds: u32,

    /// Growth of the cost from round to round: phi(n+1) = phi(n)/tau, 0 < tau <= 1
    #[arg(long, value_name = "t", default_value_t = 1.0)]
    tau: f64,

    /// Number of clients, with --colluders: what does it cost if all others collude?
    #[arg(long, value_name = "K", requires = "colluders")]
    clients: Option<usize>,

    /// At most so many of the clients pool what they know; noise is then masked
    #[arg(long, value_name = "Q", requires = "clients")]
    colluders: Option<usize>,

    /// How near own noise is to the least that masks allow, above 1/(K-Q) and at most 0.995; in the middle unless given. A plan tunes it
    #[arg(long, value_name = "THETA", requires = "colluders", allow_negative_numbers = true)]
    theta: Option<f64>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let delta = Delta::new(arguments.delta).map_err(Failure::input)?;
    if !(arguments.tau > 0.0 && arguments.tau <= 1.0) {
        return Err(Failure::input(format!(
            "--tau {} is not possible; write a number above 0 and at most 1",
            arguments.tau
        )));
    }
    let trust = match (arguments.clients, arguments.colluders) {
        (Some(clients), Some(colluders)) => {
            let key = |e: TrustError| match e {
                TrustError::Share { .. } => format!("--theta {e}"),
                _ => format!("--colluders {e}"),
            };
            Some(Trust::new(clients, colluders, arguments.theta).map_err(|e| Failure::input(key(e)))?)
        }
        _ => None,
    };
    let mut answer = match (arguments.rho_total, arguments.epsilon, arguments.phi1) {
        (Some(rho), _, _) => {
            let rho = Rho::new(rho).map_err(Failure::input)?;
            of_rho(rho, delta)
        }
        (_, Some(epsilon), _) => {
            let epsilon = Epsilon::new(epsilon).map_err(Failure::input)?;
            of_epsilon(epsilon, delta, arguments)?
        }
        (_, _, Some(phi1)) => {
            let phi1 = Rho::new(phi1).map_err(Failure::input)?;
            let schedule =
                Schedule::geometric_from_first(phi1, arguments.rounds, arguments.tau).map_err(Failure::input)?;
            of_rho(schedule.spent(arguments.rounds), delta)
        }
        _ => unreachable!("clap requires one of them"),
    };
    if let Some(trust) = trust {
        add_trust(&mut answer, &trust, delta)?;
    }
    if arguments.json { print(&answer.to_string()) } else { print(&table(&answer)) }
}

/// What is known of a study with masks: the scales of noise, relative to those without trust, and what remains if all others collude.
fn add_trust(answer: &mut Value, trust: &Trust, delta: Delta) -> Result<(), Failure> {
    let (own, mask) = trust.variances();
    // Own noise alone is worth sigma_loc^2/sigma_min^2 times the rho.
    let alone = |accountant: Accountant| {
        let total = &answer["rho_total"];
        let rho = total.as_f64().or_else(|| total[accountant.name()].as_f64()).expect("every answer has a rho");
        let rho = Rho::new(rho / own * (1.0 + 1e-12)).map_err(Failure::input)?;
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

/// One number per accountant.
fn each(f: impl Fn(Accountant) -> Result<f64, Failure>) -> Result<Value, Failure> {
    let numbers: Result<Map<String, Value>, Failure> =
        Accountant::BY_RHO.iter().map(|&a| Ok((a.name().to_string(), json!(f(a)?)))).collect();
    Ok(Value::Object(numbers?))
}

fn of_rho(rho: Rho, delta: Delta) -> Value {
    let epsilon = each(|a| Ok(a.epsilon(rho, delta).get())).unwrap_or(Value::Null);
    json!({ "delta": delta.get(), "rho_total": rho.get(), "epsilon": epsilon })
}

fn of_epsilon(epsilon: Epsilon, delta: Delta, arguments: &Arguments) -> Result<Value, Failure> {
    let (rounds, tau) = (arguments.rounds, arguments.tau);
    let first = |a: Accountant| {
        let schedule = Budget::Epsilon(epsilon).schedule(a, delta, rounds, tau, 1.0).map_err(Failure::input)?;
        Ok(schedule.phi(1).get())
    };
    Ok(json!({
        "delta": delta.get(),
        "epsilon": epsilon.get(),
        "rounds": rounds,
        "tau": tau,
        "phi_1": each(first)?,
        "rho_total": each(|a| Ok(a.rho(epsilon, delta).get()))?,
    }))
}

/// The plain numbers in one line, then a column for every question and a row for every accountant.
fn table(answer: &Value) -> String {
    let fields = answer.as_object().expect("an answer is an object");
    let is_noise = |key: &str| key.contains("noise") || key.contains("mask");
    let given: Vec<String> = fields
        .iter()
        .filter(|(key, v)| v.is_number() && !is_noise(key))
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    let asked: Vec<(&String, &Value)> = fields.iter().filter(|(_, v)| v.is_object()).collect();
    let mut lines = vec![given.join(", "), String::new()];
    let head: String = asked.iter().map(|(key, _)| format!("{key:>16}")).collect();
    lines.push(format!("{:<12}{head}", "accountant"));
    for accountant in Accountant::BY_RHO {
        let name = accountant.name();
        let row: String = asked
            .iter()
            .map(|(key, v)| {
                format!(
                    "{:>16}",
                    digits(v[name].as_f64().unwrap_or(f64::NAN), ["epsilon", "all_collude"].contains(&&***key))
                )
            })
            .collect();
        lines.push(format!("{name:<12}{row}"));
    }
    if let (Some(own), Some(mask)) = (fields.get("own_noise"), fields.get("one_mask")) {
        let number = |value: &Value| format!("{:.4}", value.as_f64().unwrap_or(f64::NAN));
        let after = |key: &str| number(&fields[key]);
        lines.push(format!(
            "\nall_collude: the epsilon that own noise alone is worth with this theta, if all other clients pool what they know; `undertone plan` tunes theta\n\
             noise, relative to that of a study that trusts nobody: own {}, each mask {}, in the mean over all clients {}, \
             and {} if one of them is lost",
            number(own),
            number(mask),
            after("noise_in_mean"),
            after("noise_in_mean_if_one_is_lost")
        ));
    }
    lines.join("\n")
}
