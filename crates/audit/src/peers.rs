//! The audit of unmodified peer processes.
//!
//! They are the spokes of a star whose hub is the auditor: a peer too, which takes part in this process and records every frame. What the spokes say is
//! scored as in a simulation. This covers what only a peer has: files, keys, its ledger, frames, and the frames it sends again after it was
//! killed. Two runs are compared for noise that repeats, as from a constant key.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use undertone_core::graph::GraphSpec;
use undertone_core::identity::Identity;
use undertone_core::message::{Message, decode};
use undertone_core::names::Names;
use undertone_core::privacy::{Masks, PairKeys, Stream};
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{BudgetSpec, ClientSpec, DataSpec, NoiseKind, Study};
use undertone_core::watch::{Cancel, Watch};
use undertone_peer::keys;
use undertone_peer::run::{Options as PeerOptions, Source, Update, run};

use crate::findings::{Findings, Part};
use crate::stops::Stops;
use crate::subject::{Seen, Subject};
use crate::{AuditError, Options, PIECES};
use rand::RngExt;

/// Every gradient of this length reaches the clip: features and targets are 1.
const CLIP: f64 = 0.05;
/// P: each is a trial at each spoke.
const FEATURES: usize = 300;
/// Spokes.
const SPOKES: usize = 4;
/// A study this small is done in seconds; beyond this it has hung.
const TOO_LONG: Duration = Duration::from_secs(300);

/// Audits peers: `program` is the program with its first arguments, such as `python -m undertone`, that is run as `program peer`.
pub fn audit_peers(
    study: &Study,
    program: &[OsString],
    options: &Options,
    watch: &dyn Watch,
) -> Result<Findings, AuditError> {
    if study.privacy().is_none() {
        return Err(AuditError::NoPrivacy);
    }
    let own = study.spec().privacy.map(|privacy| privacy.budget);
    let near = options.near.map(BudgetSpec::Epsilon);
    let mut parts = Vec::new();
    let budgets = [("as it is", own, 1u64), ("near another epsilon", near, 2)];
    let alpha = options.alpha / 2.0 / PIECES;
    for (name, budget, runs) in budgets {
        let Some(budget) = budget else { continue };
        let mut all = Seen::default();
        let mut subject = None;
        let mut twice = 0;
        for run in 0..runs {
            let star = Star::new(study, budget, options.seed + run)?;
            let recorded = star.play(program, watch)?;
            twice += recorded.told_twice;
            let heard = star.subject()?;
            all.append(star.hear(&heard, &recorded)?);
            subject = Some(heard);
        }
        let subject = subject.expect("at least one run");
        // Two releases of one round are two draws of noise over the same value.
        let epsilon = if twice > 0 { f64::INFINITY } else { 0.0 };
        let stops = Stops { trials: 0, failed: (twice, 0), size: 0.0, epsilon };
        parts.push(Part::new(&format!("{SPOKES} peer processes, {name}"), &subject, &all, stops, alpha));
    }
    let mut findings = Findings::new(study, options.alpha, parts);
    findings.noise = "secure";
    Ok(findings)
}

/// A study among a hub and spokes, with keys and data in a folder.
struct Star {
    folder: tempfile::TempDir,
    study: Arc<Study>,
    names: Vec<String>,
    identities: Vec<Identity>,
    bits: Vec<Vec<bool>>,
}

/// What the hub heard.
struct Recorded {
    /// What every client released, by round and flat.
    released: Vec<Vec<f64>>,
    /// Frames that carried other values than an earlier one for the same round.
    told_twice: u64,
}

impl Star {
    fn new(study: &Study, budget: BudgetSpec, seed: u64) -> Result<Self, AuditError> {
        let folder = tempfile::tempdir().map_err(machine)?;
        let names: Vec<String> =
            std::iter::once("hub".into()).chain((1..=SPOKES).map(|k| format!("spoke{k}"))).collect();
        let key = |name: &String| keys::generate(&folder.path().join(format!("{name}.key")));
        let identities: Vec<Identity> = names.iter().map(key).collect::<Result<_, _>>().map_err(machine)?;
        let columns = (0..FEATURES).map(|p| Column::number(format!("x{p}"), -1.0, 1.0));
        let target = match study.spec().loss.is_classification() {
            true => Column::words("y", ["no", "yes"]),
            false => Column::number("y", -1.0, 1.0),
        };
        let mut spec = study.spec().clone();
        spec.name = format!("audit-{seed}");
        spec.data = DataSpec::tables(Schema::new(columns).target(target));
        if let DataSpec::Files { records, .. } = &mut spec.data {
            *records = vec![FEATURES];
        }
        spec.inference = None;
        spec.graph = GraphSpec::Edges(names[1..].iter().map(|name| ("hub".to_string(), name.clone())).collect());
        if let Some(privacy) = &mut spec.privacy {
            (privacy.clip, privacy.budget, privacy.noise) = (Some(CLIP), budget, NoiseKind::Secure);
            (privacy.standardise, privacy.spent_share, privacy.score_budget) = (None, 0.0, None);
            privacy.colluders = privacy.colluders.map(|q| q.clamp(1, SPOKES - 1));
            privacy.theta = None;
        }
        spec.clients = names
            .iter()
            .zip(&identities)
            .map(|(name, identity)| {
                let address = (name == "hub").then(free_address);
                (name.clone(), ClientSpec { id: Some(identity.id()), address, ..ClientSpec::default() })
            })
            .collect();
        let study = spec.check()?;
        let mut rng = Stream { trial: 0, client: 0, round: 0 }.fast(seed);
        let bits = (0..SPOKES).map(|_| (0..FEATURES).map(|_| rng.random_bool(0.5)).collect()).collect();
        let star = Self { folder, study: Arc::new(study), names, identities, bits };
        star.write()?;
        Ok(star)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the study and the tables: one record for each column at spokes that are attacked, zeros elsewhere.
    fn write(&self) -> Result<(), AuditError> {
        std::fs::write(self.path("study.toml"), self.study.to_toml()).map_err(machine)?;
        let attacked = self.attacked();
        let head: Vec<String> = (0..FEATURES).map(|p| format!("x{p}")).collect();
        let labels = if self.study.spec().loss.is_classification() { ["no", "yes"] } else { ["-1", "1"] };
        for (k, name) in self.names.iter().enumerate() {
            let mut table = format!("{},y\n", head.join(","));
            for j in 0..FEATURES {
                let is_canary = attacked.contains(&k);
                for p in 0..FEATURES {
                    table += if is_canary && p == j { "1," } else { "0," };
                }
                let bit = k > 0 && is_canary && self.bits[k - 1][j];
                let _ = writeln!(table, "{}", labels[usize::from(bit || !is_canary)]);
            }
            std::fs::write(self.path(&format!("{name}.csv")), table).map_err(machine)?;
        }
        Ok(())
    }

    /// With masks one spoke is attacked, else all are.
    fn attacked(&self) -> Vec<usize> {
        let masked = self.study.privacy().is_some_and(|privacy| privacy.colluders().is_some());
        if masked { vec![1] } else { (1..=SPOKES).collect() }
    }

    fn spawn(&self, program: &[OsString], name: &str) -> Result<Child, AuditError> {
        let log =
            OpenOptions::new().create(true).append(true).open(self.path(&format!("{name}.log"))).map_err(machine)?;
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        command
            .arg("peer")
            .arg("--study")
            .arg(self.path("study.toml"))
            .arg("--key")
            .arg(self.path(&format!("{name}.key")));
        command
            .arg("--data")
            .arg(self.path(&format!("{name}.csv")))
            .arg("--state")
            .arg(self.path(&format!("{name}-state")));
        // At a large epsilon on purpose: the records are made up.
        command.arg("--yes").arg("--until-input-ends").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(machine)
    }

    /// Runs the study; a spoke is killed on the way and started again.
    fn play(&self, program: &[OsString], watch: &dyn Watch) -> Result<Recorded, AuditError> {
        let (features, rounds) = (self.study.features(), self.study.rounds());
        let limits = self.study.limits(self.names.len());
        let mut spokes: Vec<Child> =
            self.names[1..].iter().map(|name| self.spawn(program, name)).collect::<Result<_, _>>()?;
        let identity = Arc::new(keys::read(&self.path("hub.key")).map_err(machine)?);
        let mut options =
            PeerOptions::new(self.study.clone(), identity, Source::File(self.path("hub.csv")), self.path("hub-state"));
        options.cancel = Cancel::default();
        let mut heard: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
        let mut told_twice = 0;
        let due = AtomicBool::new(false);
        let halfway = rounds / 2;
        let mut observe = |update: Update| match update {
            Update::Heard(peer, frame) => {
                if let Ok(Message::Round(release)) = decode(frame, &limits) {
                    let values: Vec<f64> = release.payload.values().collect();
                    due.fetch_or(release.round >= halfway, Ordering::Relaxed);
                    match heard.get(&(release.round, peer)) {
                        Some(before) if *before != values => told_twice += 1,
                        Some(_) => {}
                        None => drop(heard.insert((release.round, peer), values)),
                    }
                }
            }
            Update::Released(round, values) => drop(heard.insert((round, 0), values.to_vec())),
            _ => {}
        };
        let finished = AtomicBool::new(false);
        let cancel = options.cancel.clone();
        let ended = std::thread::scope(|scope| {
            // Kills one spoke halfway and starts it again; and everything if it hangs.
            let killer = scope.spawn(|| {
                let (started, mut killed) = (Instant::now(), false);
                while !finished.load(Ordering::Relaxed) && started.elapsed() < TOO_LONG && !watch.is_cancelled() {
                    if due.load(Ordering::Relaxed) && !killed {
                        killed = true;
                        let last = spokes.len() - 1;
                        let _ = spokes[last].kill().and_then(|()| spokes[last].wait());
                        spokes[last] = self.spawn(program, &self.names[last + 1])?;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                if !finished.load(Ordering::Relaxed) {
                    cancel.cancel();
                }
                for spoke in &mut spokes {
                    // A spoke that has finished ends by itself; others end with their input.
                    drop(spoke.stdin.take());
                    let _ = spoke.wait();
                }
                Ok::<(), AuditError>(())
            });
            let ended = run(&options, &mut observe);
            finished.store(true, Ordering::Relaxed);
            killer.join().expect("it does not panic").and(ended.map_err(machine))
        })?;
        if ended.interrupted && watch.is_cancelled() {
            return Err(AuditError::Cancelled);
        }
        if ended.interrupted {
            let log = std::fs::read_to_string(self.path("spoke1.log")).unwrap_or_default();
            return Err(AuditError::Peers(format!(
                "they did not finish; the log of one ends with: {}",
                log.trim_end().lines().last().unwrap_or("")
            )));
        }
        let clients = self.names.len();
        let mut released = vec![vec![0.0; clients * features]; rounds as usize];
        for ((round, peer), values) in heard {
            released[round as usize - 1][peer as usize * features..][..features].copy_from_slice(&values);
        }
        Ok(Recorded { released, told_twice })
    }

    fn subject(&self) -> Result<Subject, AuditError> {
        let names = Names::listed(self.names.clone());
        let subject = Subject::new(&self.study, &names, &self.attacked())?;
        Ok(subject.with_canary(1.0, 1.0))
    }

    /// The score of what was recorded. The colluders' masks follow from their keys.
    fn hear(&self, subject: &Subject, recorded: &Recorded) -> Result<Seen, AuditError> {
        let attacked = self.attacked();
        let bits = attacked.iter().map(|k| self.bits[k - 1].clone()).collect();
        let digest = self.study.digest().whole();
        let keys = |of: usize| {
            let own = &self.identities[of];
            let keys = self.identities.iter().map(|other| own.mask_key(&other.id(), &digest)).collect();
            Masks::Shared(PairKeys::new(of, keys))
        };
        let known: BTreeMap<usize, Masks> = subject.colluders().into_iter().map(|l| (l, keys(l))).collect();
        let add = |round: u32, honest: usize, colluder: usize, lattice: &_, out: &mut [i128]| {
            let masks = known[&colluder].round(self.names.len(), 0, round, out.len());
            masks.add_mask(honest, colluder, lattice, out);
        };
        Ok(subject.hear(&recorded.released, bits, &add)?)
    }
}

/// An address at loopback that is free now.
fn free_address() -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    socket.map_or_else(|_| "127.0.0.1:47123".into(), |address| address.to_string())
}

fn machine(error: impl std::fmt::Display) -> AuditError {
    AuditError::Peers(error.to_string())
}
