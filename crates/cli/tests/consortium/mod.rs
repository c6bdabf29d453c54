//! A study among real processes, with its keys and data in its own folder.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_json::Value;

pub fn undertone() -> Command {
    Command::new(env!("CARGO_BIN_EXE_undertone"))
}

/// What went to standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An address of the loopback network that no other test process has: two test processes cannot get the same port.
fn host() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Only Linux answers on all of 127.0.0.0/8.
    if cfg!(target_os = "linux") { Ipv4Addr::new(127, 64 | (high & 63), middle, low) } else { Ipv4Addr::LOCALHOST }
}

/// An address that nothing else in this process gets: its port is below those that the system assigns, and is given once.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    loop {
        let address = SocketAddr::from((host(), NEXT.fetch_add(1, Ordering::Relaxed)));
        assert!(address.port() < 30_000, "the ports are used up");
        // A service that listens everywhere may still have it.
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// A study with its keys and data in a folder.
pub struct Consortium {
    pub folder: tempfile::TempDir,
    pub names: Vec<String>,
    /// Where each peer serves its metrics.
    pub metrics: Vec<SocketAddr>,
    pub rounds: u32,
}

impl Consortium {
    pub fn new(count: usize, rounds: u32, graph: &str, noise: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..count).map(|k| format!("peer{k}")).collect();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let mut study = format!(
            "name = \"trial\"\nseed = 11\nrounds = {rounds}\n\
             [problem]\nloss = \"squared\"\nregularizer = \"l2\"\nlambda = 0.01\n\
             [data]\nsource = \"folder\"\npath = \"data\"\nrecords = 400\nfeatures = [\"a\", \"b\"]\ntarget = \"y\"\nintercept = true\n\
             bounds.a = [0, 10]\nbounds.b = [0, 10]\nbounds.y = [0, 10]\n\
             [graph]\n{graph}\n\
             [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.3\neta = 2.0\n\
             [privacy]\nepsilon = 3.0\ndelta = 1e-5\nclip = 0.5\nnoise = \"{noise}\"\n"
        );
        for (k, name) in names.iter().enumerate() {
            let output = undertone().arg("keygen").arg(folder.path().join(format!("{name}.key"))).ended();
            assert!(output.status.success(), "{}", errors(&output));
            let id = String::from_utf8(output.stdout).unwrap();
            let address = free_address();
            study += &format!("[client.{name}]\nid = \"{}\"\naddress = \"{address}\"\n", id.trim());
            let mut table = String::from("a,b,y\n");
            for j in 0..400 {
                let (a, b) = ((j * 7 + k * 3) % 101, (j * 13 + k * 5) % 97);
                let (a, b) = (a as f64 / 10.1, b as f64 / 9.7);
                table += &format!("{a:.3},{b:.3},{:.3}\n", (2.0 + 0.5 * a - 0.2 * b).clamp(0.0, 10.0));
            }
            std::fs::write(folder.path().join(format!("data/{name}.csv")), table).unwrap();
        }
        std::fs::write(folder.path().join("study.toml"), study).unwrap();
        let metrics = names.iter().map(|_| free_address()).collect();
        Self { folder, names, metrics, rounds }
    }

    /// Peers of which at most one is assumed to collude; masks, and a part of the budget for private means and spreads.
    pub fn masked(count: usize, rounds: u32, noise: &str) -> Self {
        let consortium = Self::new(count, rounds, "kind = \"ring\"", noise);
        let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
        let study = study.replace("clip = 0.5\n", "clip = 0.5\ncolluders = 1\ntheta = 0.9\nstandardise = 0.2\n");
        std::fs::write(consortium.path("study.toml"), study).unwrap();
        consortium
    }

    /// Peers with ten records each whose features are all zero, one round, and as many features as asked for: the loss
    /// gradient is zero, and what is released is noise alone.
    pub fn of_noise(count: usize, features: usize) -> Self {
        let consortium = Self::new(count, 1, "kind = \"ring\"", "secure");
        let names: Vec<String> = (0..features).map(|p| format!("x{p}")).collect();
        let study = std::fs::read_to_string(consortium.path("study.toml")).unwrap();
        let clients = &study[study.find("[client.").unwrap()..];
        let mut text = format!(
            "name = \"noise\"\nrounds = 1\n[problem]\nloss = \"absolute\"\n[graph]\nkind = \"ring\"\n\
             [algorithm]\nname = \"zcdp-grad-nfl\"\neta = 1.0\n\
             [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 0.25\nnoise = \"secure\"\n\
             [data]\nsource = \"folder\"\nrecords = 10\nfeatures = {names:?}\ntarget = \"y\"\nbounds.y = [-1, 1]\n"
        );
        names.iter().for_each(|name| text += &format!("bounds.{name} = [-1, 1]\n"));
        std::fs::write(consortium.path("study.toml"), text + clients).unwrap();
        let row = format!("{},0.5\n", vec!["0"; features].join(","));
        let table = format!("{},y\n{}", names.join(","), row.repeat(10));
        for name in &consortium.names {
            std::fs::write(consortium.path(&format!("data/{name}.csv")), &table).unwrap();
        }
        consortium
    }

    pub fn path(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    pub fn state(&self, k: usize) -> PathBuf {
        self.path(&format!("state-{}", self.names[k]))
    }

    pub fn log(&self, k: usize) -> PathBuf {
        self.path(&format!("{}.log", self.names[k]))
    }

    /// A peer that begins unusual studies too.
    pub fn command(&self, k: usize) -> Command {
        let mut command = self.plain_command(k);
        command.arg("--yes");
        command
    }

    pub fn plain_command(&self, k: usize) -> Command {
        self.command_in(k, &self.state(k))
    }

    pub fn command_in(&self, k: usize, state: &Path) -> Command {
        let mut command = undertone();
        command.current_dir(self.folder.path()).arg("peer").args(["--study", "study.toml"]);
        command.arg("--key").arg(format!("{}.key", self.names[k]));
        command.arg("--data").arg(format!("data/{}.csv", self.names[k])).arg("--state").arg(state);
        command.stdin(Stdio::null());
        command
    }

    pub fn spawn(&self, k: usize, more: &[&str]) -> Child {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log(k)).unwrap();
        let address = self.metrics[k].to_string();
        let mut command = self.command(k);
        command.args(["--metrics", &address]).args(more).stdout(Stdio::null()).stderr(log);
        command.spawn().unwrap()
    }

    pub fn spawn_all(&self, more: &[&str]) -> Vec<Child> {
        (0..self.names.len()).map(|k| self.spawn(k, more)).collect()
    }

    /// The round that a peer's metrics page shows.
    pub fn round(&self, k: usize) -> Option<u32> {
        let page = self.page(k)?;
        page.lines().find_map(|line| line.strip_prefix("undertone_round ")?.parse().ok())
    }

    pub fn page(&self, k: usize) -> Option<String> {
        let mut stream = TcpStream::connect(self.metrics[k]).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page)
    }

    pub fn result(&self, k: usize, file: &str) -> Value {
        let folder = results(&self.state(k));
        serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
    }

    pub fn logs(&self) -> String {
        let log = |k| format!("--- {}\n{}", self.names[k], std::fs::read_to_string(self.log(k)).unwrap_or_default());
        (0..self.names.len()).map(log).collect()
    }
}

/// The results of the study itself, not of the moments that standardise it.
pub fn results(state: &Path) -> PathBuf {
    let folders = std::fs::read_dir(state).unwrap().map(|e| e.unwrap().path());
    let is_stage =
        |path: &PathBuf| ["-moments-", "-closing-"].iter().any(|stage| path.to_string_lossy().contains(stage));
    let is_main = |path: &PathBuf| path.is_dir() && !is_stage(path);
    folders.into_iter().find(is_main).expect("a folder of results")
}

/// Waits for processes that must end well within two minutes.
pub fn wait(consortium: &Consortium, children: &mut [Child]) {
    let started = Instant::now();
    for child in children.iter_mut() {
        loop {
            match child.try_wait().unwrap() {
                Some(status) => {
                    assert!(status.success(), "{status}\n{}", consortium.logs());
                    break;
                }
                None if started.elapsed() > Duration::from_secs(120) => panic!("hangs\n{}", consortium.logs()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// What a command that ends by itself printed, and how it ended. One that does not end within two minutes is killed.
pub trait Ended {
    fn ended(&mut self) -> Output;
}

impl Ended for Command {
    fn ended(&mut self) -> Output {
        let child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let (done, waiting) = std::sync::mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            let late = waiting.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout);
            late && Command::new("kill").args(["-9", &id.to_string()]).status().is_ok()
        });
        let output = child.wait_with_output().unwrap();
        drop(done);
        assert!(!guard.join().unwrap(), "{self:?} does not end\n{}", errors(&output));
        output
    }
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

pub fn simulate(consortium: &Consortium, more: &[&str], out: &str) -> Value {
    let output = undertone()
        .current_dir(consortium.folder.path())
        .args(["simulate", "study.toml", "--out", out])
        .args(more)
        .ended();
    assert!(output.status.success(), "{}", errors(&output));
    let text = std::fs::read_to_string(consortium.path(out).join("model.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}
