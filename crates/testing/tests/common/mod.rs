//! A small study with data on disk, for peers in one process and for the simulator.
#![allow(dead_code)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use undertone_core::client::LARGEST_VALUE;
use undertone_core::identity::Identity;
use undertone_core::message::{Message, decode};
use undertone_core::privacy::{Noise, Stream};
use undertone_core::study::Limits;
use undertone_core::study::{DataSpec, Study};
use undertone_data::Encoder;
use undertone_testing::{Cohort, Faults, World};

pub const MINUTE: Duration = Duration::from_secs(60);
pub const RANDOM: &str = "kind = \"random\"\nmean_degree = 3";
pub const RING: &str = "kind = \"ring\"";
pub const FREE: &str = "name = \"free-rounds\"\ndata_rounds = 6\neta = 0.5\ndecay = \"sqrt\"\nmomentum = 0.3";

pub fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The seeds of a test: UNDERTONE_SEED=17 runs only that one, UNDERTONE_SEEDS=5000 runs this many, UNDERTONE_SEEDS=5000..9000 these.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    if let Ok(seed) = std::env::var("UNDERTONE_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    match std::env::var("UNDERTONE_SEEDS") {
        Ok(text) => match text.split_once("..") {
            Some((first, end)) => number(first)..number(end),
            None => 0..number(&text),
        },
        Err(_) => 0..count,
    }
}
pub const ZCDP: &str = "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5";

/// The secret key of client `k`.
pub fn identity(k: usize) -> Identity {
    Identity::from_secret(&[k as u8 + 1; 32])
}

/// A study of `clients` peers, with its data written to `folder`.
pub fn study(folder: &Path, clients: usize, rounds: u32, algorithm: &str, graph: &str, loss: &str) -> String {
    for k in 0..clients {
        use rand::RngExt;
        let mut rng = Stream { trial: 0, client: k as u32, round: 0 }.fast(5);
        let mut text = String::from("a,b,c,y\n");
        for _ in 0..20 + k {
            let x: [f64; 3] = [rng.random(), rng.random(), rng.random()];
            let y = (0.2 + 0.5 * x[0] - 0.3 * x[1] + 0.1 * x[2] + 0.05 * rng.random::<f64>()).clamp(0.0, 1.0);
            text += &format!("{},{},{},{y}\n", x[0], x[1], x[2]);
        }
        std::fs::write(folder.join(format!("{}.csv", name(k))), text).unwrap();
    }
    let mut text = format!(
        "name = \"test\"\nseed = 3\nrounds = {rounds}\n\
         [problem]\nloss = \"{loss}\"\nregularizer = \"l2\"\nlambda = 0.01\nweights = \"clients\"\n\
         [data]\nsource = \"folder\"\npath = \"{}\"\nfeatures = [\"a\", \"b\", \"c\"]\ntarget = \"y\"\n\
         bounds.a = [0, 1]\nbounds.b = [0, 1]\nbounds.c = [0, 1]\nbounds.y = [0, 1]\n\
         [graph]\n{graph}\n[algorithm]\n{algorithm}\n\
         [privacy]\nepsilon = 5.0\ndelta = 1e-5\nclip = 0.5\n",
        folder.display()
    );
    for k in 0..clients {
        text += &format!("[client.{}]\nid = \"{}\"\naddress = \"127.0.0.1:{}\"\n", name(k), identity(k).id(), 4700 + k);
    }
    text
}

pub fn name(k: usize) -> String {
    format!("site-{k:02}")
}

/// The peers of a study, with the simulator's noise.
pub fn cohort(text: &str) -> Cohort {
    let study = Study::parse(text, "test.toml").unwrap();
    let DataSpec::Files { schema, path, .. } = &study.spec().data else { unreachable!() };
    let encoder = Encoder { schema, classification: false };
    let read = |k: usize| {
        let file = Path::new(path.as_ref().unwrap()).join(format!("{}.csv", name(k)));
        let loaded = encoder.read(&file, study.spec().csv(), name(k)).unwrap();
        loaded.dataset(&study)
    };
    let clients = study.spec().clients.len();
    let data = (0..clients).map(read).collect();
    let identities = (0..clients).map(|k| Arc::new(identity(k))).collect();
    Cohort::new(study.clone(), identities, data).unwrap()
}

/// Exact noise with a key that differs from start to start, so that a round noised twice gives different bytes.
pub fn fresh_noise(_: &Study, node: usize, start: u32) -> Option<Noise> {
    let mut key = [node as u8; 32];
    key[..4].copy_from_slice(&start.to_le_bytes());
    Some(Noise::secure_with_test_key(key))
}

/// All frames that nodes send, and how many differ from an earlier one of the same round.
#[derive(Default)]
pub struct Witness {
    pub sent: BTreeMap<(usize, u32), Vec<u8>>,
    pub contradictions: u32,
}

pub fn watched(world: &mut World, limits: Limits) -> Rc<RefCell<Witness>> {
    let witness = Rc::new(RefCell::new(Witness::default()));
    let spied = witness.clone();
    world.spy = Some(Box::new(move |node, frame| {
        if let Ok(Message::Round(release)) = decode(frame, &limits) {
            let mut witness = spied.borrow_mut();
            let first = witness.sent.entry((node, release.round)).or_insert_with(|| frame.to_vec());
            let differs = first != frame;
            witness.contradictions += u32::from(differs);
        }
    }));
    witness
}

pub const LIMITS: Limits = Limits { features: 3, rounds: 40, clients: 6, largest: LARGEST_VALUE };

/// Rounds of a node whose release differs from the previous one.
pub fn fresh_rounds(witness: &Witness, node: usize) -> Vec<u32> {
    let payload = |round: u32| match decode(witness.sent.get(&(node, round))?, &LIMITS) {
        Ok(Message::Round(release)) => Some(release.payload.bytes().to_vec()),
        _ => None,
    };
    let zero = Some(vec![0; 24]);
    let fresh = |n: &u32| payload(*n) != if *n == 1 { zero.clone() } else { payload(n - 1) };
    (1..=LIMITS.rounds).filter(fresh).collect()
}

/// Runs until node 2 has done `rounds` rounds, and kills it.
pub fn up_to(text: &str, rounds: u32) -> World {
    let mut cohort = cohort(text);
    cohort.noise = fresh_noise;
    let latency = (milliseconds(5), milliseconds(5));
    let mut world = World::new(cohort, Faults { latency, silence: Duration::from_secs(1), ..Faults::default() }, 1);
    world.run_until(MINUTE, |w| w.node(2).is_some_and(|n| n.round() >= rounds)).unwrap();
    world
}
