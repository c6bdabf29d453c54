//! A small study with data on disk, for peers in one process and for the simulator.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;

use undertone_core::identity::Identity;
use undertone_core::privacy::{Noise, Stream};
use undertone_core::study::{DataSpec, Study};
use undertone_data::Encoder;
use undertone_testing::Cohort;

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
         [problem]\nloss = \"{loss}\"\nregularizer = \"l2\"\nlambda = 0.01\n\
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
        let loaded = encoder.read(&file, name(k)).unwrap();
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
