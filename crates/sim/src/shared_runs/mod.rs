//! Tests of runs that several ranks share: the same bits on any number of them.

mod threads;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use undertone_core::study::Study;
use undertone_core::watch::Watch;

use threads::on_ranks;

use crate::checkpoint::Checkpoint;
use crate::folder;
use crate::ranks::Alone;
use crate::run::{Spread, run, run_across};

const SYNTHETIC: &str = "source = \"synthetic\"\nclients = 23\nrecords = [21, 8, 13, 21, 8, 13, 21, 8, 13, 21, 8, 13, 21, 8, 13, 21, 8, 13, 21, 8, 13, 21, 8]\nfeatures = 3";
const SINGLE: &str = "source = \"synthetic\"\nprecision = \"single\"\nclients = 23\nrecords = 11\nfeatures = 3";
const STAND_IN: &str = "source = \"stand-in\"\nclients = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\"]\nrecords = [30, 60, 41, 52, 33, 74, 35]\n\
     features = [\"age\", \"sex\"]\ntarget = \"days\"\nbounds.age = [0, 100]\nbounds.days = [0, 60]\ncategories.sex = [\"f\", \"m\"]\nholdout = 0.2\nintercept = true";
const ZCDP: &str = "name = \"zcdp-nfl\"\nrho = 0.5\neta = 0.4\ndecay = \"sqrt\"";
const FREE: &str = "name = \"free-rounds\"\ndata_rounds = 7\neta = 0.4";
const PRIVATE: &str = "epsilon = 3\ndelta = 1e-3\nclip = 0.8";
/// With a stage before the rounds, and one after them.
const STAGES: &str = "epsilon = 40\ndelta = 1e-3\nclip = 0.8\nstandardise = 0.1\nscore_budget = 0.05";

fn study(data: &str, algorithm: &str, privacy: &str, more: &str) -> Study {
    let privacy = if privacy.is_empty() { String::new() } else { format!("[privacy]\n{privacy}\n") };
    let (data, weights) = data.split_once('#').unwrap_or((data, ""));
    let off = if privacy.is_empty() { "privacy = \"off\"" } else { "" };
    let text = format!(
        "seed = 42\nrounds = 20\n{off}\n[problem]\nloss = \"squared\"\nregularizer = \"l2\"\nlambda = 0.2\n{weights}[data]\n{data}\n\
         [graph]\nkind = \"random\"\nmean_degree = 3\n[algorithm]\n{algorithm}\n{privacy}{more}"
    );
    Study::parse(&text, "test").unwrap()
}

/// The files of a run, without how long it took.
fn files(outcome: &crate::Outcome) -> Vec<String> {
    let mut outcome = outcome.clone();
    (outcome.seconds, outcome.setup_seconds) = (0.0, 0.0);
    ["study.toml", "trace.csv", "clients.csv", "model.json", "summary.json", "report.html"]
        .map(|name| folder::text(&outcome, name).expect("a file of a run"))
        .to_vec()
}

fn same_on_all_ranks(study: &Study, what: &str) {
    let alone = files(&run(study, &|_| {}).unwrap());
    for size in 1..=4 {
        for spread in [Spread::Clients, Spread::Trials] {
            let outcomes = on_ranks(size, |ranks| run_across(study, ranks, spread, None, &|_| {}).unwrap());
            assert!(outcomes[1..].iter().all(Option::is_none), "the first rank reports");
            let outcome = outcomes[0].as_ref().expect("the first rank reports");
            assert_eq!(files(outcome), alone, "{what} on {size} ranks, {spread:?}");
        }
    }
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    for (data, algorithm, privacy, more) in [
        (SYNTHETIC, ZCDP, PRIVATE, "[simulation]\ntrials = 6\nmetrics_every = 7"),
        (SINGLE, FREE, PRIVATE, "[simulation]\ntrials = 6\nmetrics_every = 7"),
        (SYNTHETIC, FREE, PRIVATE, "[simulation]\ntrials = 2\nredraw = \"all\""),
        (SYNTHETIC, ZCDP, "", "[client.3]\neta = 0.2"),
        (SYNTHETIC, "name = \"p-admm\"\nrho = 0.8", PRIVATE, ""),
        (SYNTHETIC, ZCDP, "epsilon = 3\ndelta = 1e-3\nclip = 0.8\ncolluders = 2", ""),
        (SYNTHETIC, ZCDP, PRIVATE, "[simulation]\nlosses = 4"),
        (SYNTHETIC, FREE, PRIVATE, "[robust]\nliars = 1\n[simulation]\nliars = 1\nattack = \"noise\""),
        (STAND_IN, FREE, PRIVATE, "[simulation]\ntrials = 2"),
        (STAND_IN, FREE, STAGES, "[inference]\nlevel = 0.9\n[simulation]\ntrials = 2\nlosses = 1"),
    ] {
        same_on_all_ranks(&study(data, algorithm, privacy, more), &format!("{algorithm} {privacy} {more}"));
    }
}

/// A rank that cannot go on takes the others with it, and the first one says why.
#[test]
fn an_error_of_one_rank_ends_all() {
    let many = study(SYNTHETIC, ZCDP, PRIVATE, "");
    for outcome in on_ranks(24, |ranks| run_across(&many, ranks, Spread::Clients, None, &|_| {})) {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("23 clients, too few for 24 ranks"), "{message}");
    }
    let steep = study(SYNTHETIC, "name = \"zcdp-grad-nfl\"\neta = 1e12", "", "");
    for outcome in on_ranks(3, |ranks| run_across(&steep, ranks, Spread::Clients, None, &|_| {})) {
        assert!(outcome.unwrap_err().to_string().contains("diverged"));
    }
}

/// Each rank reads the files of its own clients alone; which one has a bad one, all learn.
#[test]
fn each_rank_reads_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    for client in 0..6 {
        let rows: Vec<String> = (0..9 + client).map(|j| format!("{},{}", j * (client + 1) % 10, j % 5)).collect();
        std::fs::write(folder.path().join(format!("{client}.csv")), format!("x,y\n{}\n", rows.join("\n"))).unwrap();
    }
    let data = format!(
        "source = \"folder\"\npath = \"{}\"\nfeatures = [\"x\"]\ntarget = \"y\"\nbounds.x = [0, 10]\nbounds.y = [0, 5]",
        folder.path().display()
    );
    // What comes after # belongs to the problem.
    for weights in ["weights = \"clients\"\n", "weights = \"records\"\n"] {
        let study = study(&format!("{data}#{weights}"), FREE, PRIVATE, "[simulation]\ncentral = false");
        same_on_all_ranks(&study, weights);
    }
    std::fs::write(folder.path().join("4.csv"), "x,y\n1,2\n11,3\n").unwrap();
    let study = study(&data, FREE, PRIVATE, "");
    for outcome in on_ranks(3, |ranks| run_across(&study, ranks, Spread::Clients, None, &|_| {})) {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("4.csv"), "{message}");
    }
}

/// A run that is ended again and again goes on from its last state, on other numbers of ranks, with the bits of one that was not.
#[test]
fn a_run_goes_on_from_its_last_state() {
    let study = study(SYNTHETIC, ZCDP, PRIVATE, "[simulation]\ntrials = 20\nmetrics_every = 3");
    let alone = files(&run(&study, &|_| {}).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint { folder: folder.path().join("state"), every: Duration::ZERO };
    let mut ended = 0;
    for attempt in 0.. {
        // Each attempt is cancelled somewhat later than the one before, counted from where that one was.
        let steps = AtomicU32::new(0);
        let cancel = Steps { steps: &steps, most: 4 + attempt % 5 };
        let ranks = 1 + attempt as usize % 4;
        let outcomes = on_ranks(ranks, |ranks| run_across(&study, ranks, Spread::Clients, Some(&checkpoint), &cancel));
        match outcomes.into_iter().next().unwrap() {
            Err(error) => {
                assert!(error.to_string().contains("cancelled"), "{error}");
                ended += 1;
            }
            Ok(outcome) => {
                assert_eq!(files(&outcome.unwrap()), alone);
                break;
            }
        }
    }
    assert!(ended > 5, "it was ended {ended} times");
    checkpoint.clear().unwrap();
    assert!(!checkpoint.folder.exists(), "nothing is left");
}

/// A state that was damaged, or is of another study, is not gone on from.
#[test]
fn another_state_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint { folder: folder.path().into(), every: Duration::ZERO };
    let start = |study: &Study, most: u32| {
        let steps = AtomicU32::new(0);
        run_across(study, &Alone, Spread::Clients, Some(&checkpoint), &Steps { steps: &steps, most })
    };
    let own = study(SYNTHETIC, ZCDP, PRIVATE, "");
    assert!(start(&own, 9).unwrap_err().to_string().contains("cancelled"));
    let other = start(&study(SYNTHETIC, FREE, PRIVATE, ""), 9).unwrap_err().to_string();
    assert!(other.contains("another study") && other.contains("--checkpoint"), "{other}");
    let points = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let points = points.into_iter().find(|path| path.to_string_lossy().contains("points-")).unwrap();
    for name in [points, folder.path().join("progress.undertone")] {
        let whole = std::fs::read(&name).unwrap();
        for broken in [flipped(&whole), whole[..whole.len() - 8].to_vec()] {
            std::fs::write(&name, broken).unwrap();
            let message = start(&own, u32::MAX).unwrap_err().to_string();
            assert!(message.contains("damaged") || message.contains("missing or too short"), "{message}");
        }
        std::fs::write(&name, whole).unwrap();
    }
    assert!(start(&own, u32::MAX).is_ok());
}

/// Of other records, in use, or with files of somebody else beside it.
#[test]
fn a_state_belongs_to_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = |file: &str| folder.path().join("data").join(file);
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for client in ["a", "b", "c", "d"] {
        std::fs::write(data(&format!("{client}.csv")), "x,y\n1,2\n3,4\n").unwrap();
    }
    let own = study(
        &format!(
            "source = \"folder\"\npath = \"{}\"\nfeatures = [\"x\"]\ntarget = \"y\"\nbounds.x = [0, 10]\nbounds.y = [0, 5]",
            folder.path().join("data").display()
        ),
        FREE,
        PRIVATE,
        "",
    );
    let checkpoint = Checkpoint { folder: folder.path().join("state"), every: Duration::ZERO };
    let start = |most: u32| {
        let steps = AtomicU32::new(0);
        run_across(&own, &Alone, Spread::Clients, Some(&checkpoint), &Steps { steps: &steps, most })
    };
    let ended = start(9).unwrap_err().to_string();
    assert!(ended.contains("cancelled"), "{ended}");
    let foreign = checkpoint.folder.join("points-of-sale.csv");
    std::fs::write(&foreign, "precious").unwrap();
    std::fs::write(data("b.csv"), "x,y\n1,2\n3,5\n").unwrap();
    let other = start(u32::MAX).unwrap_err().to_string();
    assert!(other.contains("other records"), "{other}");
    std::fs::write(data("b.csv"), "x,y\n1,2\n3,4\n").unwrap();
    let keeper = checkpoint.open(&own, &Alone).unwrap();
    let second = start(u32::MAX).unwrap_err().to_string();
    assert!(second.contains("in use by another run"), "{second}");
    drop(keeper);
    assert!(start(u32::MAX).is_ok());
    checkpoint.clear().unwrap();
    assert!(!checkpoint.has_state() && foreign.exists());
}

/// Noise that is drawn anew by every process, or at every start, is refused where all must have the same.
#[test]
fn secure_noise_is_refused_where_processes_must_agree() {
    let secure = |privacy: &str, more: &str| {
        let privacy = format!("{privacy}\nnoise = \"secure\"");
        study(STAND_IN, FREE, &privacy, more)
    };
    let masked = secure("epsilon = 3\ndelta = 1e-3\nclip = 0.8\ncolluders = 2", "");
    for outcome in on_ranks(2, |ranks| run_across(&masked, ranks, Spread::Clients, None, &|_| {})) {
        assert!(outcome.unwrap_err().to_string().contains("masks in every process"));
    }
    assert!(on_ranks(2, |ranks| run_across(&masked, ranks, Spread::Trials, None, &|_| {})).iter().all(Result::is_ok));
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint { folder: folder.path().into(), every: Duration::ZERO };
    let staged = secure(STAGES, "");
    let refused = run_across(&staged, &Alone, Spread::Clients, Some(&checkpoint), &|_| {});
    assert!(refused.unwrap_err().to_string().contains("typical values at every start"));
    assert!(on_ranks(2, |ranks| run_across(&staged, ranks, Spread::Clients, None, &|_| {})).iter().all(Result::is_ok));
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes
}

/// Cancels a run after so many looks.
struct Steps<'a> {
    steps: &'a AtomicU32,
    most: u32,
}

impl Watch for Steps<'_> {
    fn progress(&self, _: f64) {}

    fn is_cancelled(&self) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed) >= self.most
    }
}
