//! Golden runs: every algorithm and loss at a fixed seed, with and without privacy, and a rehearsal among peers.
//!
//! `golden/runs.txt` holds a hash of every number that a seed fixes. A refactoring must not change a line of it; a change of the
//! mathematics may, and is listed in the CHANGELOG. `UNDERTONE_GOLDEN=write cargo test --release --test golden` writes it anew.

mod common;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use undertone_core::client::LARGEST_VALUE;
use undertone_core::message::{Message, decode};
use undertone_core::study::{Document, Limits, Study};
use undertone_sim::Outcome;
use undertone_testing::{Faults, World};

/// FNV-1a, 64 bits.
#[derive(Clone)]
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn numbers<'a>(&mut self, numbers: impl IntoIterator<Item = &'a f64>) {
        numbers.into_iter().for_each(|v| self.bytes(&v.to_bits().to_le_bytes()));
    }
}

/// One hash of all models, and one of all that was measured.
fn hashes(outcome: &Outcome) -> (u64, u64) {
    let (mut models, mut measured) = (Hash::new(), Hash::new());
    models.numbers(outcome.clients.iter().chain(&outcome.released).chain(&outcome.model.w));
    models.numbers(&outcome.average);
    for point in &outcome.points {
        measured.numbers(point.rho.iter());
        let errors = point.error.iter().chain(&point.surrogate_error).flat_map(|e| [&e.w, &e.released, &e.average]);
        for band in errors.chain([&point.objective, &point.consensus]) {
            measured.numbers([band.mean, band.q10, band.q90].iter());
        }
    }
    measured.numbers(outcome.epsilon.iter());
    (models.0, measured.0)
}

const ALGORITHMS: [(&str, &str); 9] = [
    (
        "free-rounds",
        "name = \"free-rounds\"\ndata_rounds = 7\neta = 0.6\nmomentum = 0.3\naverage = 0.5\ndecay = \"sqrt\"",
    ),
    ("free-rounds-plain", "name = \"free-rounds\"\ndata_rounds = 9\neta = 0.4\nprox = false\nmixing = \"metropolis\""),
    ("zcdp-nfl", "name = \"zcdp-nfl\"\nrho = 0.5\neta = 0.4\ndecay = \"sqrt\""),
    ("zcdp-nfl-average", "name = \"zcdp-nfl\"\nrho = 0.5\neta = 0.4\naverage = 0.3"),
    ("dp-nfl", "name = \"dp-nfl\"\nrho = 0.5\neta = 0.4\ndecay = \"inverse\""),
    ("zcdp-grad-nfl", "name = \"zcdp-grad-nfl\"\neta = 0.3\ndecay = \"sqrt\""),
    ("zcdp-grad-nfl-constant", "name = \"zcdp-grad-nfl\"\neta = 0.3"),
    ("p-admm", "name = \"p-admm\"\nrho = 0.8"),
    ("p-admm-unclipped", "name = \"p-admm-unclipped\"\nrho = 0.8"),
];

const LOSSES: [(&str, &str, bool); 6] = [
    ("squared", "loss = \"squared\"", true),
    ("absolute", "loss = \"absolute\"", false),
    ("huber", "loss = \"huber\"\nthreshold = 0.5", true),
    ("quantile", "loss = \"quantile\"\nlevel = 0.3", false),
    ("logistic", "loss = \"logistic\"", true),
    ("hinge", "loss = \"hinge\"", false),
];

const REGULARIZERS: [(&str, &str, bool); 5] = [
    ("none", "regularizer = \"none\"", true),
    ("l1", "regularizer = \"l1\"\nlambda = 0.2", false),
    ("l2", "regularizer = \"l2\"\nlambda = 0.2", true),
    ("elastic-net", "regularizer = \"elastic-net\"\nlambda1 = 0.1\nlambda2 = 0.2\nlambda = 0.5", false),
    ("paper", "regularizer = \"elastic-net\"\nlambda1 = \"paper\"\nlambda2 = 1.0", false),
];

const ON: &str = "[privacy]\nepsilon = 3\ndelta = 1e-5\nclip = 0.8\ntau = 0.97\n";

fn text(algorithm: &str, loss: &str, regularizer: &str, privacy: &str, more: &str) -> String {
    let off = if privacy.is_empty() { "privacy = \"off\"\n" } else { "" };
    format!(
        "seed = 42\nrounds = 30\n{off}[problem]\n{loss}\n{regularizer}\n\
         [data]\nsource = \"synthetic\"\nclients = 9\nrecords = [21, 8, 13, 20, 5, 17, 18, 9, 11]\nfeatures = 3\ncondition = 4\n\
         [graph]\nkind = \"random\"\nmean_degree = 3\n[algorithm]\n{algorithm}\n{privacy}\
         [simulation]\ntrials = 2\nmetrics_every = 10\n{more}"
    )
}

/// The folder of three clients with numbers, words and an intercept.
fn table_study(folder: &std::path::Path, target: &str, loss: &str) -> String {
    let sexes = ["f", "m"];
    for k in 0..3 {
        let mut rows = String::from("age,sex,days,ill\n");
        for j in 0..(12 + 5 * k) {
            let (age, sex) = (20 + (j * 7 + k * 11) % 60, sexes[(j + k) % 2]);
            let days = 10.0 + 0.3 * f64::from(age as u32) + if sex == "m" { 4.0 } else { 0.0 } + ((j * j) % 5) as f64;
            rows += &format!("{age},{sex},{days},{}\n", if days > 25.0 { "yes" } else { "no" });
        }
        std::fs::write(folder.join(format!("{}.csv", ["ash", "birch", "cedar"][k])), rows).unwrap();
    }
    let range = if target == "days" { "bounds.days = [0, 60]" } else { "categories.ill = [\"no\", \"yes\"]" };
    format!(
        "seed = 5\nrounds = 25\n[problem]\nloss = \"{loss}\"\nregularizer = \"l2\"\nlambda = 0.05\nweights = \"clients\"\n\
         [data]\nsource = \"folder\"\npath = \"{}\"\nfeatures = [\"age\", \"sex\"]\ntarget = \"{target}\"\nintercept = true\n\
         bounds.age = [0, 100]\n{range}\ncategories.sex = [\"f\", \"m\"]\n[graph]\nkind = \"ring\"\n\
         [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.4\neta = 1.0\n{ON}[client.birch]\nphi1 = 1e-3\neta = 0.5\n",
        folder.display()
    )
}

/// Name and study of every golden run.
fn studies(folder: &std::path::Path) -> Vec<(String, String)> {
    let mut studies = Vec::new();
    for (algorithm, table) in ALGORITHMS {
        for (loss, loss_table, smooth) in LOSSES {
            if algorithm.starts_with("p-admm") && !smooth {
                continue;
            }
            for (name, privacy) in [("on", ON), ("off", "")] {
                let text = text(table, loss_table, REGULARIZERS[2].1, privacy, "");
                studies.push((format!("{algorithm} {loss} {name}"), text));
            }
        }
        for (regularizer, regularizer_table, smooth) in REGULARIZERS {
            if !algorithm.starts_with("p-admm") || smooth {
                let text = text(table, LOSSES[0].1, regularizer_table, ON, "redraw = \"all\"\n");
                studies.push((format!("{algorithm} squared {regularizer} redrawn"), text));
            }
        }
    }
    for accountant in ["paper", "cks", "exact"] {
        let privacy = format!("{ON}accountant = \"{accountant}\"\n");
        studies.push((format!("accountant {accountant}"), text(ALGORITHMS[0].1, LOSSES[1].1, "", &privacy, "")));
    }
    let first = "[privacy]\nphi1 = 1e-3\ndelta = 1e-6\nclip = 0.5\n";
    studies.push(("phi1".into(), text(ALGORITHMS[2].1, LOSSES[1].1, "", first, "[client.4]\nphi1 = 2e-3\n")));
    studies.push(("dp-nfl phi1".into(), text(ALGORITHMS[4].1, LOSSES[1].1, "", first, "")));
    for (target, loss) in [("days", "absolute"), ("days", "squared"), ("ill", "logistic"), ("ill", "hinge")] {
        studies.push((format!("table {target} {loss}"), table_study(folder, target, loss)));
    }
    let stand_in = table_study(folder, "days", "absolute").replace(
        "source = \"folder\"",
        "source = \"stand-in\"\nclients = [\"ash\", \"birch\", \"cedar\"]\nrecords = 30",
    );
    let path = stand_in.lines().filter(|line| !line.starts_with("path")).collect::<Vec<_>>().join("\n");
    studies.push(("stand-in".into(), path));
    studies
}

#[test]
fn golden_runs_keep_their_bits() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = String::new();
    for (name, text) in studies(folder.path()) {
        let study = Study::parse(&text, &name).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let outcome = undertone_sim::run(&study, &|_| {}).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (models, measured) = hashes(&outcome);
        found += &format!("{name}: {models:016x} {measured:016x}\n");
    }
    for (name, algorithm) in &ALGORITHMS[..7] {
        found += &format!("rehearsal {name}: {:016x}\n", rehearsal(algorithm, *name != "dp-nfl"));
    }
    found += &planned();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/runs.txt");
    if std::env::var("UNDERTONE_GOLDEN").is_ok_and(|word| word == "write") {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differing: Vec<&str> = found.lines().filter(|line| !expected.lines().any(|known| known == *line)).collect();
    assert!(differing.is_empty(), "{} of {}:\n{}", differing.len(), found.lines().count(), differing.join("\n"));
    assert_eq!(found.lines().count(), expected.lines().count(), "runs were left out");
}

/// What planning finds for a small study, algorithm by algorithm.
fn planned() -> String {
    let text = "rounds = 20\nalgorithm = \"auto\"\n[problem]\nloss = \"absolute\"\n\
                [data]\nsource = \"split\"\nclients = 4\nfeatures = [\"a\", \"b\"]\ntarget = \"y\"\nintercept = true\n\
                bounds.a = [0, 1]\nbounds.b = [-3, 5]\nbounds.y = [0, 9]\n[graph]\nkind = \"ring\"\n\
                [privacy]\nepsilon = 4\ndelta = 1e-5\n[plan]\nrecords = 40\n";
    let document = Document::parse(text, "planned").unwrap();
    let plan = undertone_plan::plan_document(&document, &|_| {}).unwrap();
    let mut lines: Vec<String> = plan
        .rows
        .iter()
        .map(|row| format!("plan {}: {:016x} {}\n", row.algorithm, row.regret.score.to_bits(), row.parameters.text()))
        .collect();
    lines.sort();
    lines.concat()
}

/// Everything that five peers send in their rounds, frame by frame.
fn rehearsal(algorithm: &str, tags: bool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let text = common::study(folder.path(), 5, 70, algorithm, "kind = \"ring\"", "squared");
    let mut world = World::new(common::cohort(&text), Faults::default(), 1);
    let sent = Rc::new(RefCell::new(vec![Hash::new(); 5]));
    let spied = sent.clone();
    let limits = Limits { features: 3, rounds: 70, clients: 5, largest: LARGEST_VALUE };
    let mut last = [0; 5];
    world.spy = Some(Box::new(move |node, frame| {
        if let Ok(Message::Round(release)) = decode(frame, &limits)
            && release.round > last[node]
        {
            last[node] = release.round;
            let hash = &mut spied.borrow_mut()[node];
            hash.bytes(release.payload.bytes());
            // The tag depends on the digest of the study.
            hash.bytes(if tags { &release.tag } else { &[] });
        }
    }));
    assert!(world.run(Duration::from_secs(60)).unwrap());
    let mut all = Hash::new();
    sent.borrow().iter().for_each(|hash| all.bytes(&hash.0.to_le_bytes()));
    all.0
}
