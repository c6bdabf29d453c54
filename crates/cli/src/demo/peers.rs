//! The hospitals of the demo as processes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::compare::result;
use super::hospitals::Hospital;
use crate::Failure;

/// How a hospital is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Its process was started and has said nothing yet.
    Starting,
    Running,
    Killed,
    Finished,
}

/// One hospital with its process.
pub struct Peer {
    pub hospital: Hospital,
    process: Child,
    pub condition: Condition,
    /// How often it was started.
    pub starts: u32,
    /// The last that its page said.
    pub state: Value,
    /// What it spent, once it has finished.
    pub statement: Value,
}

impl Peer {
    /// The last round that it has done.
    pub fn round(&self) -> u32 {
        self.state["round"].as_u64().unwrap_or(0) as u32
    }

    pub fn epsilon(&self) -> f64 {
        self.state["budget"]["spent"].as_f64().unwrap_or(0.0)
    }

    /// What it has done in all, which it wrote down when it ended.
    fn take_statement(&mut self) {
        let Some(statement) = result(&self.hospital.state, "statement.json") else { return };
        let rounds = &statement["rounds"];
        (self.state["round"], self.state["rounds"]) = (rounds["done"].clone(), rounds["of"].clone());
        self.state["noised"] = rounds["computed"].clone();
        self.state["budget"]["spent"] = statement["epsilon"].clone();
        self.statement = statement;
    }

    fn log(&self) -> PathBuf {
        self.hospital.state.with_extension("log")
    }
}

/// All of them. No process remains after this is dropped.
pub struct Peers {
    study: PathBuf,
    pub all: Vec<Peer>,
    /// How far apart rounds are at least.
    pace: Duration,
}

impl Peers {
    /// Starts all.
    pub fn start(study: &Path, hospitals: Vec<Hospital>, pace: Duration) -> Result<Self, Failure> {
        let mut peers = Self { study: study.into(), all: Vec::new(), pace };
        for hospital in hospitals {
            let process = peers.spawn(&hospital)?;
            let (condition, state, statement) = (Condition::Starting, Value::Null, Value::Null);
            peers.all.push(Peer { hospital, process, condition, starts: 1, state, statement });
        }
        Ok(peers)
    }

    fn spawn(&self, hospital: &Hospital) -> Result<Child, Failure> {
        let program = crate::program()?;
        let log = hospital.state.with_extension("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).map_err(Failure::machine)?;
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg("peer");
        command.arg("--study").arg(&self.study).arg("--key").arg(&hospital.key).arg("--data").arg(&hospital.data);
        command.arg("--state").arg(&hospital.state).args(["--page", &format!("127.0.0.1:{}", hospital.page)]);
        command.args(["--pace", &format!("{}ms", self.pace.as_millis())]);
        // However the demo ends, its end of the pipe closes, and the peer ends too.
        command.arg("--until-input-ends").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|e| Failure::machine(format!("a peer could not be started ({e})")))
    }

    /// Ends one without warning.
    pub fn kill(&mut self, index: usize) {
        let peer = &mut self.all[index];
        let _ = peer.process.kill();
        let _ = peer.process.wait();
        peer.condition = Condition::Killed;
    }

    /// Starts one again, in its folder.
    pub fn bring_back(&mut self, index: usize) -> Result<(), Failure> {
        let process = self.spawn(&self.all[index].hospital)?;
        let peer = &mut self.all[index];
        (peer.process, peer.condition, peer.starts) = (process, Condition::Starting, peer.starts + 1);
        Ok(())
    }

    /// Asks all that run how they are, and notices those that have ended.
    pub fn look(&mut self) -> Result<(), Failure> {
        for peer in &mut self.all {
            if !matches!(peer.condition, Condition::Starting | Condition::Running) {
                continue;
            }
            if let Some(state) = ask(peer.hospital.page).filter(|state| !state["round"].is_null()) {
                (peer.state, peer.condition) = (state, Condition::Running);
            }
            match peer.process.try_wait().map_err(Failure::machine)? {
                None => {}
                Some(status) if status.success() => {
                    peer.condition = Condition::Finished;
                    peer.take_statement();
                }
                Some(status) => return Err(died(peer, status)),
            }
        }
        Ok(())
    }

    /// Whether all have finished.
    pub fn are_finished(&self) -> bool {
        self.all.iter().all(|peer| peer.condition == Condition::Finished)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in &mut self.all {
            let _ = peer.process.kill();
            let _ = peer.process.wait();
        }
    }
}

fn died(peer: &Peer, status: ExitStatus) -> Failure {
    let log = std::fs::read_to_string(peer.log()).unwrap_or_default();
    let last = log.lines().last().unwrap_or_default();
    Failure::machine(format!("{} ended with {status}: {last}", peer.hospital.name))
}

/// What the page of a peer knows.
fn ask(port: u16) -> Option<Value> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    stream.write_all(b"GET /state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}
