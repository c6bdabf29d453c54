//! Clients that lie in a simulation, and numbers that no honest client can release.

use undertone_core::study::{Attack, Study};
use undertone_sim::Outcome;

/// Ten parties, all neighbours, with squared losses.
fn text(algorithm: &str, privacy: &str, more: &str) -> String {
    format!(
        "name = \"t\"\nseed = 4\nrounds = 60\n[problem]\nloss = \"squared\"\n\
         [data]\nsource = \"synthetic\"\nclients = 10\nrecords = 50\nfeatures = 3\nnoise = 0.5\n\
         [graph]\nkind = \"complete\"\n[algorithm]\n{algorithm}\n[privacy]\nepsilon = 5\ndelta = 1e-5\nclip = 3\n{privacy}\n{more}"
    )
}

const FREE: &str = "name = \"free-rounds\"\ndata_rounds = 10\neta = 0.2\nmomentum = 0.3";
const ZCDP: &str = "name = \"zcdp-nfl\"\nrho = 0.2\neta = 0.2";

fn run(text: &str) -> Outcome {
    undertone_sim::run(&Study::parse(text, "t").unwrap(), &|_| {}).unwrap()
}

fn error(outcome: &Outcome) -> f64 {
    outcome.points.last().unwrap().error.as_ref().unwrap().released.mean
}

/// A shift ruins a study that trusts all and does little to one with `[robust]`; and the bits of both depend on the seed alone.
#[test]
fn a_lie_moves_a_trusting_study_and_not_a_robust_one() {
    for algorithm in [FREE, ZCDP] {
        let lying =
            |more: &str| run(&text(algorithm, "", &format!("[simulation]\nliars = 1\nattack = \"shift\"\n{more}")));
        let (trusting, robust) = (lying(""), lying("[robust]\nliars = 1\n"));
        assert!(error(&trusting) > 3.0 * error(&robust), "{} {}", error(&trusting), error(&robust));
        assert_eq!(lying("").model.w, trusting.model.w);
        assert!(trusting.notices().iter().any(|notice| notice.contains("one client lies (attack \"shift\")")));
    }
}

/// Every attack of the list is run, and changes what is released.
#[test]
fn every_attack_changes_the_run() {
    let honest = run(&text(FREE, "", ""));
    for (name, _) in Attack::ALL {
        let text = text(FREE, "", &format!("[robust]\nliars = 2\n[simulation]\nliars = 2\nattack = \"{name}\"\n"));
        assert!(Study::parse(&text, "t").unwrap().to_toml().contains(&format!("attack = \"{name}\"")));
        assert_ne!(run(&text).released, honest.released, "{name}");
    }
    let many = text(FREE, "", "[simulation]\nliars = 5\n");
    let refused = Study::parse(&many, "t").unwrap_err().to_string();
    assert!(refused.contains("simulation.liars = 5 of 10 clients leaves no honest majority"), "{refused}");
}

/// What honest clients release is far inside of what others accept, with and without masks, and what they refuse is not far outside of it.
#[test]
fn honest_releases_are_far_inside_of_the_limit() {
    let methods = [FREE, ZCDP, "name = \"zcdp-grad-nfl\"\neta = 0.2"];
    let cases = methods.into_iter().flat_map(|algorithm| ["", "colluders = 1"].map(|privacy| (algorithm, privacy)));
    for (algorithm, privacy) in cases {
        let text = text(algorithm, privacy, "");
        let (outcome, limit) = (run(&text), Study::parse(&text, "t").unwrap().reach(10));
        let largest = outcome.released.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        assert!(100.0 * largest < limit && limit < 1e7, "{algorithm} {privacy}: {largest} of {limit}");
    }
}
