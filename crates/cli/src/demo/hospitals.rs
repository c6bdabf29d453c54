//! The data of the demo: ten hospitals, their keys, their generated patients, and a study.

use std::fmt::Write;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use rand::RngExt;
use undertone_core::privacy::Stream;
use undertone_peer::keys;

use crate::Failure;
use crate::peer::failed;

/// The hospitals.
pub const NAMES: [&str; 10] = [
    "ashford",
    "brookside",
    "cedarview",
    "dunmore",
    "eastgate",
    "fairhaven",
    "glenwood",
    "harbour",
    "ironbridge",
    "junction",
];

const RECORDS: usize = 1000;
const SEED: u64 = 20_26;

const STUDY: &str = r#"# Ten hospitals learn how long recovery takes; no record leaves its hospital.
name = "recovery"
seed = 7
rounds = 1000

[problem]
loss = "huber"
threshold = 0.2
regularizer = "l2"
lambda = 0.001

[data]
source = "folder"             # each hospital has one file
path = "data"                 # only the simulator looks here; a peer is given its own file
records = 1000                # of each hospital: every record counts the same, so all divide by this number
features = ["age", "dose", "exercise", "smoker"]
target = "recovery"
intercept = true
outside = "clamp"
bounds.age = [18, 90]
bounds.dose = [0, 50]
bounds.exercise = [0, 20]
bounds.recovery = [0, 120]
categories.smoker = ["no", "yes"]

[graph]
kind = "random"
mean_degree = 3

[algorithm]
name = "zcdp-nfl"
rho = 0.3
eta = 2.0

[privacy]
epsilon = 2.0
delta = 1e-5
clip = 0.3
noise = "secure"
"#;

/// One hospital of the demo.
pub struct Hospital {
    pub name: &'static str,
    pub key: PathBuf,
    pub data: PathBuf,
    pub state: PathBuf,
    /// Where its page is served.
    pub page: u16,
}

/// Writes keys, data and study into `folder`.
pub fn make(folder: &Path) -> Result<(PathBuf, Vec<Hospital>), Failure> {
    for part in ["data", "keys", "state"] {
        let path = folder.join(part);
        std::fs::create_dir_all(&path)
            .map_err(|e| Failure::machine(format!("{}: cannot be made ({e})", path.display())))?;
    }
    let mut study = STUDY.to_string();
    let mut hospitals = Vec::new();
    // All are held until all are known, so that no two are the same.
    let mut held = Vec::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        let key = folder.join("keys").join(format!("{name}.key"));
        let id = keys::generate(&key).map_err(failed)?.id();
        let free = |e| Failure::machine(format!("no free port on 127.0.0.1 ({e})"));
        let (udp, tcp) =
            (UdpSocket::bind("127.0.0.1:0").map_err(free)?, TcpListener::bind("127.0.0.1:0").map_err(free)?);
        let (port, page) = (udp.local_addr().map_err(free)?.port(), tcp.local_addr().map_err(free)?.port());
        held.push((udp, tcp));
        let _ = write!(study, "\n[client.{name}]\nid = \"{id}\"\naddress = \"127.0.0.1:{port}\"\n");
        let data = folder.join("data").join(format!("{name}.csv"));
        write_file(&data, &patients(index))?;
        hospitals.push(Hospital { name, key, data, state: folder.join("state").join(name), page });
    }
    let path = folder.join("study.toml");
    write_file(&path, &study)?;
    Ok((path, hospitals))
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure::machine(format!("{}: cannot be written ({e})", path.display())))
}

/// Generated patients: ages and doses differ between hospitals, the rule for recovery is the same.
fn patients(hospital: usize) -> String {
    let mut rng = Stream { trial: 0, client: hospital as u32, round: 0 }.fast(SEED);
    let mut text = String::from("age,dose,exercise,smoker,recovery\n");
    for _ in 0..RECORDS {
        let mut uniform = |low: f64, high: f64| low + (high - low) * rng.random::<f64>();
        let age = uniform(18.0 + 2.0 * hospital as f64, 70.0 + 2.0 * hospital as f64).round();
        let dose = uniform(0.0, 50.0 - 2.0 * hospital as f64).round();
        let exercise = uniform(0.0, 20.0).round();
        let smoker = uniform(0.0, 1.0) < 0.3;
        let luck: f64 = (0..12).map(|_| uniform(-0.5, 0.5)).sum();
        let days = 30.0 + 0.6 * age - 0.5 * dose - 1.2 * exercise + if smoker { 12.0 } else { 0.0 } + 8.0 * luck;
        let smoker = if smoker { "yes" } else { "no" };
        let _ = writeln!(text, "{age},{dose},{exercise},{smoker},{}", days.clamp(0.0, 120.0).round());
    }
    text
}
