//! `undertone ledger show`: what a data set has spent.

use std::path::PathBuf;

use serde_json::json;
use undertone_core::ledger::{Contents, Participation};
use undertone_core::privacy::{Accountant, Delta, Rho};
use undertone_peer::state::read_ledger;

use crate::peer::failed;
use crate::{Failure, digits, print};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List every study that used a data set, and the total that it has spent
    Show {
        /// The state folder of a peer
        folder: PathBuf,

        /// The delta at which the total is stated; without it, the smallest of the studies
        #[arg(long)]
        delta: Option<f64>,

        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Verb::Show { folder, delta, json } = &arguments.verb;
    let Some(contents) = read_ledger(folder).map_err(failed)? else {
        return print("the ledger is empty: this data was used in no study");
    };
    let smallest = contents.runs.iter().map(|r| r.begin.delta).filter(|d| *d > 0.0).reduce(f64::min);
    let delta = match delta.or(smallest) {
        None => None,
        Some(value) => Some(Delta::new(value).map_err(|e| Failure::input(format!("--delta: {e}")))?),
    };
    let epsilon = |rho: Rho, delta: f64| Some(Accountant::Exact.epsilon(rho, Delta::new(delta).ok()?).get());
    let total = contents.spent().zip(delta).and_then(|(rho, delta)| epsilon(rho, delta.get()));
    if *json {
        let run = |r: &Participation| {
            json!({
                "study": r.begin.name, "study_hash": hex::encode(r.begin.study), "begun": r.begin.time, "protected": r.begin.protected,
                "rounds": r.begin.rounds, "done": r.round, "computed": r.fresh, "mixed": r.mixed, "withheld": r.withheld(), "rho": r.spent.get(),
                "epsilon": epsilon(r.spent, r.begin.delta), "delta": r.begin.delta, "promised_rho": r.begin.rho.get(),
            })
        };
        let runs: Vec<_> = contents.runs.iter().map(run).collect();
        let json = json!({
            "owner": contents.owner.to_string(), "studies": runs, "rho": contents.spent().map(Rho::get), "epsilon": total,
            "delta": delta.map(Delta::get), "last_record_was_cut_off": contents.torn,
        });
        return print(&json.to_string());
    }
    print(&report(&contents, total, delta, &epsilon))
}

fn report(
    contents: &Contents,
    total: Option<f64>,
    delta: Option<Delta>,
    epsilon: &dyn Fn(Rho, f64) -> Option<f64>,
) -> String {
    let mut text = format!("ledger of {}\n\n", contents.owner);
    text += &format!(
        "{:24} {:10} {:>13} {:>12} {:>6} {:>8} {:>12} {:>12} {:>8}\n",
        "study", "hash", "rounds", "from records", "mixed", "withheld", "rho", "epsilon", "delta"
    );
    for run in &contents.runs {
        let (spent, note) = match (run.begin.protected, run.round) {
            (true, _) => (epsilon(run.spent, run.begin.delta).map_or("-".into(), |e| digits(e, true)), ""),
            (false, 0) => ("0".into(), ""),
            (false, _) => ("unbounded".into(), "  NOT PRIVATE: a rehearsal without safe noise"),
        };
        let name: String = run.begin.name.chars().take(24).collect();
        text += &format!(
            "{name:24} {:10} {:>13} {:>12} {:>6} {:>8} {:>12} {spent:>12} {:>8e}{note}\n",
            hex::encode(&run.begin.study[..4]),
            format!("{} of {}", run.round, run.begin.rounds),
            run.fresh,
            run.mixed,
            run.withheld(),
            digits(run.spent.get(), true),
            run.begin.delta
        );
    }
    text += "\nfrom records: noised and charged; mixed: made from earlier releases in mixing rounds, at no cost; withheld: planned from records,\n\
             but made without them after a crash or when the budget was spent, at no cost\n";
    if contents.torn {
        text +=
            "\nThe last record was truncated by a crash; its round is charged above and will not be noised again.\n";
    }
    text += &match (total, contents.spent(), delta) {
        (Some(total), Some(rho), Some(delta)) => format!(
            "\ntotal: epsilon {} at delta {:e}, rho {} (exact accountant)",
            digits(total, true),
            delta.get(),
            digits(rho.get(), true)
        ),
        (_, None, _) => "\ntotal: no bound, because of releases without safe noise".into(),
        _ => "\ntotal: nothing".into(),
    };
    text
}
