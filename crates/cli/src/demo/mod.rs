//! `undertone demo`: a complete study on one machine.
//!
//! Ten peers run as separate processes with encrypted connections over loopback, as between machines. One is
//! killed and restarted. At the end the model is compared with the solution of the pooled data.

mod hospitals;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;
use undertone_core::study::{Study, StudySpec};
use undertone_core::watch::Unwatched;

use crate::{Failure, digits, free_folder, print};
use hospitals::Hospital;

#[derive(clap::Args)]
pub struct Arguments {
    /// Where to put keys, data, study and results; without it the first free one of undertone-demo, undertone-demo-2, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The peer that is killed, and the share of the rounds after which this happens.
const VICTIM: usize = 6;
const KILL_AT: f64 = 0.3;
/// Number of simulations for comparison.
const SIMULATIONS: usize = 20;
/// How long it is down.
const AWAY: Duration = Duration::from_secs(2);
/// A study this small is done in seconds; beyond this the demo has hung.
const TOO_LONG: Duration = Duration::from_secs(300);

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = arguments.out.clone().unwrap_or_else(|| free_folder("undertone-demo"));
    undertone_sim::folder::prepare(&folder).map_err(Failure::input)?;
    let folder = std::path::absolute(&folder).map_err(Failure::machine)?;
    let (study_path, hospitals) = hospitals::make(&folder)?;
    let text = std::fs::read_to_string(&study_path).map_err(Failure::machine)?;
    let spec = StudySpec::parse(&text, "the demo's study").map_err(Failure::input)?;
    let study = spec.data_path(folder.join("data").display().to_string()).check().map_err(Failure::input)?;
    eprintln!(
        "{} hospitals, {} rounds, epsilon {:.3} each; keys, data and study are in {}",
        hospitals.len(),
        study.rounds(),
        study.privacy().map_or(0.0, |privacy| privacy.promised().get()),
        folder.display()
    );
    let started = Instant::now();
    let mut peers = Peers::start(&study_path, hospitals, study.rounds())?;
    let done = peers.play();
    peers.stop();
    let seconds = started.elapsed().as_secs_f64();
    let comings = done?;
    compare(&study, &peers, &folder, seconds, &comings)
}

/// The peers as processes, and their progress bars.
struct Peers {
    study: PathBuf,
    hospitals: Vec<Hospital>,
    rounds: u32,
    processes: Vec<Child>,
    bars: Vec<ProgressBar>,
    _screen: MultiProgress,
}

impl Peers {
    fn start(study: &Path, hospitals: Vec<Hospital>, rounds: u32) -> Result<Self, Failure> {
        let screen = MultiProgress::new();
        let style =
            ProgressStyle::with_template("{prefix:12} [{bar:40}] {pos:>5}/{len} {msg}").expect("a fixed template");
        let bars = hospitals.iter().map(|hospital| {
            let bar = screen.add(ProgressBar::new(rounds.into()).with_style(style.clone()));
            bar.set_prefix(hospital.name);
            bar
        });
        let mut peers = Self {
            study: study.into(),
            bars: bars.collect(),
            hospitals,
            rounds,
            processes: Vec::new(),
            _screen: screen,
        };
        for index in 0..peers.hospitals.len() {
            let process = peers.spawn(index)?;
            peers.processes.push(process);
        }
        Ok(peers)
    }

    fn spawn(&self, index: usize) -> Result<Child, Failure> {
        let hospital = &self.hospitals[index];
        let program = crate::program()?;
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.log(index)).map_err(Failure::machine)?;
        let mut command = Command::new(&program[0]);
        command
            .args(&program[1..])
            .arg("peer")
            .arg("--study")
            .arg(&self.study)
            .arg("--key")
            .arg(&hospital.key)
            .arg("--data")
            .arg(&hospital.data);
        command.arg("--state").arg(&hospital.state).args(["--metrics", &format!("127.0.0.1:{}", hospital.metrics)]);
        // However the demo ends, its end of the pipe closes, and the peer ends too.
        command.arg("--until-input-ends").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|e| Failure::machine(format!("a peer could not be started ({e})")))
    }

    fn log(&self, index: usize) -> PathBuf {
        self.hospitals[index].state.with_extension("log")
    }

    /// Watches until all are done; kills one and restarts it. Returns what happened to it.
    fn play(&mut self) -> Result<String, Failure> {
        let started = Instant::now();
        let mut killed: Option<(Instant, u32)> = None;
        let mut came_back = None;
        let mut rounds = vec![0; self.hospitals.len()];
        loop {
            for (index, round) in rounds.iter_mut().enumerate() {
                let away = index == VICTIM && killed.is_some() && came_back.is_none();
                if let Some((done, epsilon)) = (!away).then(|| ask(self.hospitals[index].metrics)).flatten() {
                    *round = done;
                    self.bars[index].set_position(done.into());
                    self.bars[index].set_message(format!("epsilon {epsilon:.3}"));
                }
            }
            if killed.is_none() && f64::from(rounds[VICTIM]) >= KILL_AT * f64::from(self.rounds) {
                let _ = self.processes[VICTIM].kill();
                let _ = self.processes[VICTIM].wait();
                killed = Some((Instant::now(), rounds[VICTIM]));
                self.bars[VICTIM].set_message("KILLED; its neighbours wait");
            }
            if let (Some((when, _)), None) = (killed, came_back)
                && when.elapsed() >= AWAY
            {
                self.processes[VICTIM] = self.spawn(VICTIM)?;
                came_back = Some(Instant::now());
            }
            let mut running = 0;
            for index in 0..self.processes.len() {
                match self.processes[index].try_wait().map_err(Failure::machine)? {
                    None => running += 1,
                    Some(status) if status.success() => {
                        self.bars[index].set_position(self.rounds.into());
                        self.bars[index].set_message("finished");
                    }
                    Some(_) if index == VICTIM && came_back.is_none() && killed.is_some() => running += 1,
                    Some(status) => return Err(self.died(index, &status.to_string())),
                }
            }
            if running == 0 {
                break;
            }
            if started.elapsed() > TOO_LONG {
                return Err(Failure::machine(format!(
                    "the peers did not finish; their logs are {}",
                    self.log(0).display()
                )));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(match killed {
            Some((_, round)) => format!(
                "{} was killed after about round {round} and restarted {} s later; it resumed from its ledger and noised no round twice",
                self.hospitals[VICTIM].name,
                AWAY.as_secs()
            ),
            None => "the study was over before a peer could be killed".into(),
        })
    }

    fn died(&self, index: usize, status: &str) -> Failure {
        let log = std::fs::read_to_string(self.log(index)).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default();
        Failure::machine(format!("{} ended with {status}: {last}", self.hospitals[index].name))
    }

    /// No process remains after the demo.
    fn stop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        self.bars.iter().for_each(ProgressBar::abandon);
    }
}

/// The round and the epsilon that a peer's metrics page shows.
fn ask(port: u16) -> Option<(u32, f64)> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let value = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    Some((value("undertone_round ")? as u32, value("undertone_epsilon_spent ")?))
}

/// Compares the peers' model with the solution of the pooled data and with simulations of the same study.
fn compare(study: &Study, peers: &Peers, folder: &Path, seconds: f64, comings: &str) -> Result<(), Failure> {
    let (models, statements): (Vec<Value>, Vec<Value>) = peers
        .hospitals
        .iter()
        .map(|hospital| Some((result(&hospital.state, "model.json")?, result(&hospital.state, "statement.json")?)))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Failure::machine("a peer wrote no model"))?
        .into_iter()
        .unzip();
    // Secure noise is new in every run, so each simulation is an independent sample.
    let mut spec = study.spec().clone();
    spec.simulation.metrics_every = study.rounds();
    let first = undertone_sim::run(&spec.check().map_err(Failure::input)?, &Unwatched).map_err(Failure::input)?;
    let central = first.central.map_err(Failure::machine)?;
    let mut distances = vec![distance(&first.model.w, &central.w)];
    spec.simulation.central = false;
    let rehearsal = spec.check().map_err(Failure::input)?;
    for _ in 1..SIMULATIONS {
        let outcome = undertone_sim::run(&rehearsal, &Unwatched).map_err(Failure::input)?;
        distances.push(distance(&outcome.model.w, &central.w));
    }
    let w = numbers(&models[0]["made"]["scaled"]);
    let own = distance(&w, &central.w);
    let same = models.iter().all(|model| numbers(&model["made"]["scaled"]) == w);
    let (low, high) = (fold(&distances, f64::min), fold(&distances, f64::max));
    let computed: Vec<u64> = statements.iter().map(|s| s["rounds"]["computed"].as_u64().unwrap_or(0)).collect();
    let spent = statements.iter().filter_map(|s| s["epsilon"].as_f64()).fold(0.0, f64::max);
    let mut text = format!("{comings}\n\n");
    text += &format!("{:12} {:>14} {:>14}\n", "", "ten peers", "pooled data");
    let pooled = undertone_data::Model::new(study, central.w.clone()).to_json(study, &Default::default());
    text += &format!(
        "{:12} {:>14.4} {:>14.4}\n",
        "intercept",
        models[0]["intercept"].as_f64().unwrap_or(f64::NAN),
        pooled["intercept"].as_f64().unwrap_or(f64::NAN)
    );
    for (name, value) in pooled["coefficients"].as_object().into_iter().flatten() {
        let own = &models[0]["coefficients"][name];
        text += &format!(
            "{name:12} {:>14.4} {:>14.4}\n",
            own.as_f64().unwrap_or(f64::NAN),
            value.as_f64().unwrap_or(f64::NAN)
        );
    }
    text += &format!(
        "\nrelative distance of the two: {own:.4}; {SIMULATIONS} simulations of the same study gave {low:.4} to {high:.4}\n\
         all ten peers hold {} model; rounds computed: {} to {} of {}\n\
         privacy spent by each: epsilon {} at delta {:e}; {:.1} s\n\
         results: {}/state/NAME/; see what a peer spent: undertone ledger show {}",
        if same { "the same" } else { "NOT the same" },
        computed.iter().min().unwrap_or(&0),
        computed.iter().max().unwrap_or(&0),
        study.rounds(),
        digits(spent, true),
        study.privacy().map_or(0.0, |p| p.delta().get()),
        seconds,
        folder.display(),
        peers.hospitals[VICTIM].state.display(),
    );
    print(&text)
}

fn fold(values: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(pick).unwrap_or(f64::NAN)
}

fn result(state: &Path, file: &str) -> Option<Value> {
    let folders = std::fs::read_dir(state).ok()?.filter_map(|e| Some(e.ok()?.path()));
    let text = folders.filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok()).next()?;
    serde_json::from_str(&text).ok()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// ||a - b||/||b||.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}
