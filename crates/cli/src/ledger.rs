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
    let total = contents.spent().zip(delta).and_then(|(spent, delta)| {
        Some(Total {
            rho: spent.rho.get(),
            epsilon: [epsilon(spent.rho, delta.get())?, epsilon(spent.alone, delta.get())?],
            delta,
        })
    });
    if *json {
        let run = |r: &Participation| {
            json!({
                "study": r.begin.name, "study_hash": hex::encode(r.begin.study), "begun": r.begin.time, "protected": r.begin.protected,
                "rounds": r.begin.rounds, "done": r.round, "computed": r.fresh, "mixed": r.mixed, "withheld": r.withheld(), "rho": r.spent.rho.get(),
                "epsilon": epsilon(r.spent.rho, r.begin.delta), "delta": r.begin.delta, "promised_rho": r.begin.total.rho.get(),
                "clients": r.begin.clients, "colluders": r.begin.colluders, "rho_if_all_others_collude": r.spent.alone.get(),
                "epsilon_if_all_others_collude": epsilon(r.spent.alone, r.begin.delta),
            })
        };
        let runs: Vec<_> = contents.runs.iter().map(run).collect();
        let json = json!({
            "owner": contents.owner.to_string(), "studies": runs, "rho": contents.spent().map(|spent| spent.rho.get()),
            "epsilon": total.as_ref().map(|total| total.epsilon[0]), "rho_if_all_others_collude": contents.spent().map(|spent| spent.alone.get()),
            "epsilon_if_all_others_collude": total.as_ref().map(|total| total.epsilon[1]),
            "delta": delta.map(Delta::get), "last_record_was_cut_off": contents.torn,
        });
        return print(&json.to_string());
    }
    print(&report(&contents, total, &epsilon))
}

/// What all studies together have spent.
struct Total {
    rho: f64,
    /// If at most as many collude as each study assumes, and if all others do.
    epsilon: [f64; 2],
    delta: Delta,
}

fn report(contents: &Contents, total: Option<Total>, epsilon: &dyn Fn(Rho, f64) -> Option<f64>) -> String {
    let mut text = format!("ledger of {}\n\n", contents.owner);
    text += &format!(
        "{:24} {:10} {:>13} {:>12} {:>6} {:>8} {:>12} {:>9} {:>12} {:>12} {:>8}\n",
        "study",
        "hash",
        "rounds",
        "from records",
        "mixed",
        "withheld",
        "rho",
        "colluders",
        "epsilon",
        "if all do",
        "delta"
    );
    for run in &contents.runs {
        let written = |rho: Rho| epsilon(rho, run.begin.delta).map_or("-".into(), |e| digits(e, true));
        let (spent, alone, note) = match (run.begin.protected, run.round) {
            (true, _) => (written(run.spent.rho), written(run.spent.alone), ""),
            (false, 0) => ("0".into(), "0".into(), ""),
            (false, _) => ("unbounded".into(), "unbounded".into(), "  NOT PRIVATE: a rehearsal without safe noise"),
        };
        let colluders = match run.begin.colluders {
            all if all + 1 == run.begin.clients => "all".into(),
            some => some.to_string(),
        };
        let name: String = run.begin.name.chars().take(24).collect();
        text += &format!(
            "{name:24} {:10} {:>13} {:>12} {:>6} {:>8} {:>12} {colluders:>9} {spent:>12} {alone:>12} {:>8e}{note}\n",
            hex::encode(&run.begin.study[..4]),
            format!("{} of {}", run.round, run.begin.rounds),
            run.fresh,
            run.mixed,
            run.withheld(),
            digits(run.spent.rho.get(), true),
            run.begin.delta
        );
    }
    text += "\nfrom records: noised and charged; mixed: made from earlier releases in mixing rounds, at no cost; withheld: planned from records,\n\
             but made without them after a crash or when the budget was spent, at no cost; epsilon: if at most so many others collude as\n\
             the study assumes, and if all do\n";
    if contents.torn {
        text +=
            "\nThe last record was truncated by a crash; its round is charged above and will not be noised again.\n";
    }
    text += &match (total, contents.spent()) {
        (Some(Total { rho, epsilon: [trusting, alone], delta }), Some(_)) => {
            let alone = match alone > trusting {
                true => format!("; {} if all others collude", digits(alone, true)),
                false => String::new(),
            };
            format!(
                "\ntotal: epsilon {} at delta {:e}, rho {} (exact accountant){alone}",
                digits(trusting, true),
                delta.get(),
                digits(rho, true)
            )
        }
        (_, None) => "\ntotal: no bound, because of releases without safe noise".into(),
        _ => "\ntotal: nothing".into(),
    };
    text
}
