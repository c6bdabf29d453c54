//! `undertone policy`: what the owner of a data set allows all studies with it.

use std::path::PathBuf;

use undertone_core::ledger::Contents;
use undertone_core::privacy::{Accountant, Delta};
use undertone_peer::OwnerLimits;
use undertone_peer::state::{read_ledger, read_policy, write_policy};

use crate::peer::failed;
use crate::{Failure, digits, print};

#[derive(clap::Args)]
pub struct Arguments {
    /// The state folder of the data set
    state: PathBuf,

    /// At most this epsilon over all studies, as long as no more collude than each study assumes
    #[arg(long, value_name = "EPSILON")]
    epsilon: Option<f64>,

    /// The same if all others collude
    #[arg(long, value_name = "EPSILON")]
    epsilon_alone: Option<f64>,

    /// At this delta, whatever the studies' own
    #[arg(long)]
    delta: Option<f64>,

    /// At most this zCDP rho over all studies, whoever colludes
    #[arg(long)]
    rho: Option<f64>,

    /// At most this many studies
    #[arg(long)]
    studies: Option<u32>,

    /// Accept studies whose delta is above one over the number of records
    #[arg(long)]
    allow_large_delta: bool,

    /// Relax limits that were stated before
    #[arg(long)]
    yes: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let given = OwnerLimits {
        epsilon: arguments.epsilon,
        alone: arguments.epsilon_alone,
        delta: arguments.delta,
        rho: arguments.rho,
        studies: arguments.studies,
        large_delta: arguments.allow_large_delta,
    };
    let mut text = String::new();
    if given != OwnerLimits::default() {
        let (policy, relaxed) = read_policy(&arguments.state).map_err(failed)?.changed(given);
        if !relaxed.is_empty() && !arguments.yes {
            return Err(Failure::Input(format!(
                "this would relax what was stated before: {}. Nothing was changed; repeat it with --yes if it is meant",
                relaxed.join(", ")
            )));
        }
        // What is written must be what is read.
        OwnerLimits::read(&policy.to_toml(), "the policy").map_err(Failure::input)?;
        if !arguments.state.is_dir() {
            text += &format!(
                "# {} was made now: it is for data that took part in nothing so far\n",
                arguments.state.display()
            );
        }
        write_policy(&arguments.state, &policy).map_err(failed)?;
    } else if !arguments.state.is_dir() {
        return Err(Failure::Input(format!(
            "{}: there is no such folder; give the state folder of a peer, or state limits to make one",
            arguments.state.display()
        )));
    }
    let policy = read_policy(&arguments.state).map_err(failed)?;
    match policy == OwnerLimits::default() {
        true => text += "no policy: studies with this data are limited by what the command line says alone\n",
        false => text += &policy.to_toml(),
    }
    if let (Some(delta), Ok(Some(contents))) = (policy.delta, read_ledger(&arguments.state)) {
        text += &spent(&contents, Delta::new(delta).map_err(Failure::input)?);
    }
    print(text.trim_end())
}

fn spent(contents: &Contents, delta: Delta) -> String {
    let Some(spent) = contents.spent() else {
        return "spent so far: without bound, in a rehearsal without safe noise".into();
    };
    let [epsilon, alone] =
        [spent.rho, spent.alone].map(|rho| digits(Accountant::Exact.epsilon(rho, delta).get(), true));
    format!(
        "spent so far: epsilon {epsilon} at delta {:e}, {alone} if all others collude; rho {}; {} entries in the ledger",
        delta.get(),
        digits(spent.alone.get(), true),
        contents.runs.len()
    )
}
