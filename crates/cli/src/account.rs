//! `undertone account`: privacy questions without a study.

use serde_json::Value;
use undertone_core::privacy::Accountant;
use undertone_plan::account::{Given, MOST_ROUNDS, Question};

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
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
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
    let given = match (arguments.rho_total, arguments.epsilon, arguments.phi1) {
        (Some(rho), _, _) => Given::RhoTotal(rho),
        (_, Some(epsilon), _) => Given::Epsilon(epsilon),
        (_, _, Some(phi1)) => Given::First(phi1),
        _ => unreachable!("clap requires one of them"),
    };
    let Arguments { delta, rounds, tau, theta, .. } = *arguments;
    let question = Question { given, delta, rounds, tau, trust: arguments.clients.zip(arguments.colluders), theta };
    let answer =
        question.answer().map_err(|e| Failure::input(format!("--{} {}", e.name.replace('_', "-"), e.message)))?;
    if arguments.json { print(&answer.to_string()) } else { print(&table(&answer)) }
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
