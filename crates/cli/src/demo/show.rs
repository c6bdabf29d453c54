//! The page of the demo: all hospitals at once, with buttons that kill them and bring them back.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use undertone_peer::page::{Action, Feed, Reply, Server, Site};

use super::peers::{Condition, Peer, Peers};
use super::{LOOK, VICTIM};
use crate::Failure;

/// Events that are kept.
const EVENTS: usize = 200;

/// The page and what it has shown so far.
pub struct Show {
    feed: Arc<Feed>,
    actions: Receiver<(usize, Action, Reply)>,
    server: Server,
    started: Instant,
    events: VecDeque<Value>,
    /// Until when events of each hospital were taken over.
    heard: Vec<f64>,
    /// How many times hospitals were killed.
    kills: u32,
    conditions: Vec<Condition>,
}

impl Show {
    /// Serves the page.
    pub fn start(address: SocketAddr) -> Result<Self, Failure> {
        let feed = Arc::new(Feed::new(json!({ "kind": "demo", "stage": "starting" }).to_string().into()));
        let (wish, actions) = channel();
        // The page is served on another thread, and a sender is for one.
        let wish = Mutex::new(wish);
        let act = move |party, action, reply| {
            let _ = wish.lock().unwrap_or_else(|e| e.into_inner()).send((party, action, reply));
        };
        let site = Site { page: Some(feed.clone()), act: Some(Arc::new(act)), ..Site::default() };
        let server = Server::start(address, site).map_err(Failure::input)?;
        eprintln!("the page is at {}", server.url);
        Ok(Self {
            feed,
            actions,
            server,
            started: Instant::now(),
            events: VecDeque::new(),
            heard: Vec::new(),
            kills: 0,
            conditions: Vec::new(),
        })
    }

    /// Does what the buttons ask for until all hospitals have finished. Returns what happened to them.
    pub fn play(&mut self, peers: &mut Peers) -> Result<String, Failure> {
        while !peers.are_finished() {
            while let Ok((party, action, reply)) = self.actions.try_recv() {
                reply.tell(self.act(peers, party, action));
            }
            let looked = peers.look();
            self.hear(peers);
            self.publish(peers, &json!({ "stage": stage(peers) }));
            looked?;
            std::thread::sleep(LOOK);
        }
        Ok(match self.kills {
            0 => "no hospital was killed".into(),
            1 => "one hospital was killed and came back; it resumed from its ledger and noised no round twice".into(),
            n => format!(
                "hospitals were killed {n} times and came back; they resumed from their ledgers and noised no round twice"
            ),
        })
    }

    /// Shows how it ended until the demo is ended.
    pub fn stay(mut self, peers: &Peers, ended: Result<(), Failure>) -> Result<(), Failure> {
        let result = match &ended {
            Ok(()) => {
                let first = &peers.all[VICTIM].hospital.state;
                let text =
                    format!("All {} hospitals hold the same model. It lies in {}.", peers.all.len(), first.display());
                self.event("info", "The study is finished.".into());
                json!({ "stage": "finished", "result": { "ok": true, "text": text }, "check": check(peers) })
            }
            Err(Failure::Input(reason) | Failure::Machine(reason) | Failure::Result(reason)) => {
                self.event("error", reason.clone());
                json!({ "stage": "stopped", "result": { "ok": false, "text": reason } })
            }
        };
        self.publish(peers, &result);
        if ended.is_ok() {
            eprintln!("the page stays at {} until Ctrl-C", self.server.url);
            while let Ok((_, _, reply)) = self.actions.recv() {
                reply.tell(Err("the study is finished; start the demo anew".into()));
            }
        }
        ended
    }

    fn act(&mut self, peers: &mut Peers, party: usize, action: Action) -> Result<(), String> {
        let Some(peer) = peers.all.get(party) else {
            return Err(format!("there is no hospital {party}; they are 0 to {}", peers.all.len() - 1));
        };
        let name = peer.hospital.name;
        match (action, peer.condition) {
            (Action::Kill, Condition::Running) => {
                let round = peer.round();
                peers.kill(party);
                self.kills += 1;
                self.event("warning", format!("{name} was killed after about round {round}."));
                Ok(())
            }
            (Action::Start, Condition::Killed) => {
                self.event("info", format!("{name} was brought back."));
                peers.bring_back(party).map_err(|failure| match failure {
                    Failure::Input(reason) | Failure::Machine(reason) | Failure::Result(reason) => reason,
                })
            }
            (Action::Kill, Condition::Killed) => Err(format!("{name} is killed already")),
            (Action::Kill, Condition::Starting) => Err(format!("{name} is starting; wait a moment")),
            (_, Condition::Finished) => Err(format!("{name} has finished")),
            (Action::Start, _) => Err(format!("{name} is running")),
        }
    }

    /// Takes over what the hospitals tell of themselves and is worth a word.
    fn hear(&mut self, peers: &Peers) {
        self.heard.resize(peers.all.len(), 0.0);
        for (k, peer) in peers.all.iter().enumerate() {
            let name = peer.hospital.name;
            for event in peer.state["events"].as_array().into_iter().flatten() {
                let (at, kind, text) = (event["at"].as_f64(), event["kind"].as_str(), event["text"].as_str());
                let (Some(at), Some(kind), Some(text)) = (at, kind, text) else { continue };
                if at > self.heard[k] {
                    self.heard[k] = at;
                    if kind != "info" || text.starts_with("Resumed") {
                        self.events.push_back(json!({ "at": at, "kind": kind, "text": format!("{name}: {text}") }));
                    }
                }
            }
            if self.conditions.get(k) != Some(&peer.condition) && peer.condition == Condition::Finished {
                self.event("info", format!("{name} has finished."));
            }
        }
        self.conditions = peers.all.iter().map(|peer| peer.condition).collect();
        self.events.drain(..self.events.len().saturating_sub(EVENTS));
    }

    fn event(&mut self, kind: &str, words: String) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        self.events.push_back(json!({ "at": at, "kind": kind, "text": words }));
    }

    fn publish(&self, peers: &Peers, more: &Value) {
        let all = &peers.all;
        let running = all.iter().find(|peer| peer.condition == Condition::Running);
        let shown = running.or(all.iter().find(|peer| !peer.state.is_null()));
        let of = |key: &str| shown.map_or(Value::Null, |peer| peer.state[key].clone());
        let mut study = of("study");
        if study.is_object() {
            study["parties"] = all.iter().map(|peer| peer.hospital.name).collect();
        }
        let largest = |key: &str| all.iter().filter_map(|peer| peer.state["budget"][key].as_f64()).reduce(f64::max);
        let waiting = longest_wait(all);
        let mut json = json!({
            "kind": "demo",
            "study": study,
            "round": all.iter().map(Peer::round).min(),
            "rounds": of("rounds"),
            "seconds": self.started.elapsed().as_secs_f64(),
            "left": of("left"),
            "waiting": waiting,
            "peers": all.iter().enumerate().map(|(k, peer)| hospital(k, peer)).collect::<Vec<_>>(),
            "curve": of("curve"),
            "coefficients": mean_coefficients(all),
            "budget": { "spent": largest("spent"), "agreed": largest("agreed") },
            "events": self.events,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            json[key] = value.clone();
        }
        self.feed.send_replace(json.to_string().into());
    }
}

/// One row of the table.
fn hospital(party: usize, peer: &Peer) -> Value {
    let state = match peer.condition {
        Condition::Starting => "starting",
        Condition::Running => "running",
        Condition::Killed => "killed",
        Condition::Finished => "finished",
    };
    json!({
        "party": party, "state": state, "round": peer.round(), "noised": peer.state["noised"], "starts": peer.starts,
        "epsilon": peer.epsilon(), "waiting": peer.state["waiting"]["for"], "resumed": peer.state["resumed"],
    })
}

/// The stage of the study: that of the hospital that is least far.
fn stage(peers: &Peers) -> &'static str {
    let stages = peers.all.iter().map(|peer| peer.state["stage"].as_str().unwrap_or("starting"));
    let order = |stage: &str| match stage {
        "starting" => 0,
        "rounds" => 1,
        _ => 2,
    };
    ["starting", "rounds", "finals"][stages.map(order).min().unwrap_or(0)]
}

/// Whom some wait for, and for how long the one that waits longest.
fn longest_wait(all: &[Peer]) -> Value {
    let running = all.iter().filter(|peer| peer.condition == Condition::Running);
    let waits = running.map(|peer| &peer.state["waiting"]);
    let seconds = |wait: &Value| wait["seconds"].as_f64().unwrap_or(0.0);
    waits.max_by(|a, b| seconds(a).total_cmp(&seconds(b))).cloned().unwrap_or(Value::Null)
}

/// The mean of the newest releases of all hospitals, in the units of the table.
fn mean_coefficients(all: &[Peer]) -> Vec<Value> {
    let rows: Vec<&Vec<Value>> = all.iter().filter_map(|peer| peer.state["coefficients"].as_array()).collect();
    let rows: Vec<&Vec<Value>> = rows.into_iter().filter(|row| !row.is_empty()).collect();
    let Some(first) = rows.first() else { return Vec::new() };
    let mean = |i: usize| rows.iter().filter_map(|row| row[i]["value"].as_f64()).sum::<f64>() / rows.len() as f64;
    first.iter().enumerate().map(|(i, row)| json!({ "name": row["name"], "value": mean(i) })).collect()
}

/// Whether every ledger holds each round once. What was shown to others agrees with it: two stories would have ended the study without a model.
fn check(peers: &Peers) -> Value {
    let rounds = |peer: &Peer| {
        let rounds = &peer.statement["rounds"];
        let number = |key: &str| rounds[key].as_u64().unwrap_or(u64::MAX);
        (number("computed"), number("of"))
    };
    let ok = peers.all.iter().map(rounds).all(|(noised, of)| noised <= of);
    let accused = peers.all.iter().any(|peer| {
        peer.statement["released_two_things_in_one_round"].as_array().is_none_or(|accused| !accused.is_empty())
    });
    let noised: u64 = peers.all.iter().map(|peer| rounds(peer).0).sum();
    let (_, of) = rounds(&peers.all[0]);
    let text = match ok && !accused {
        true => format!(
            "No round was noised twice: the {} ledgers count {noised} noised releases for {of} rounds each, and no neighbour was shown two for one round.",
            peers.all.len()
        ),
        false => "A round was noised twice.".into(),
    };
    json!({ "ok": ok && !accused, "text": text })
}
