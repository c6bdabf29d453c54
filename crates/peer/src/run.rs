//! One peer from start to end: data, ledger, network, and the loop between them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::mpsc;
use undertone_core::identity::Identity;
use undertone_core::ledger::Disk;
use undertone_core::message::Limits;
use undertone_core::node::{Event, News, Node, OnLoss, Roster, RosterError, Setup};
use undertone_core::privacy::{Noise, Rho};
use undertone_core::records::Dataset;
use undertone_core::study::{DataSpec, NoiseKind, Study, StudyDigest};
use undertone_data::Encoder;

use crate::PeerError;
use crate::cancel::Cancel;
use crate::limit::allowance;
use crate::metrics::{Metrics, Standing};
use crate::network::{self, Input, IrohTransport};
use crate::results::{pretty, read_finals};
use crate::state::{StateFolder, make_folder, write_whole};

/// What a peer is started with.
pub struct Options {
    /// The study.
    pub study: Arc<Study>,
    /// Its key.
    pub identity: Arc<Identity>,
    /// Its table.
    pub data: PathBuf,
    /// Its state folder.
    pub state: PathBuf,
    /// Where to listen; without it, the port of its own address in the study.
    pub listen: Option<SocketAddr>,
    /// What to do about a neighbour that is not there.
    pub on_loss: OnLoss,
    /// The epsilon that all studies with this data together may spend, at the smallest delta of them.
    pub max_epsilon: Option<f64>,
    /// Whether noise that is not safe to release is accepted.
    pub rehearsal: bool,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Whether to end when standard input does, for a program that starts peers and must not leave any behind.
    pub until_input_ends: bool,
    /// Whether records must survive a loss of power; false only for measurements.
    pub durable: bool,
    /// Ends the peer from another thread, as an interrupt does.
    pub cancel: Cancel,
}

/// What a peer tells while it runs.
#[derive(Debug)]
pub enum Update<'a> {
    /// It listens.
    Started(Started<'a>),
    /// Where it stands.
    Standing(Standing),
}

/// How a peer starts.
#[derive(Debug)]
pub struct Started<'a> {
    /// Its name in the study.
    pub name: &'a str,
    /// Where it listens.
    pub listening: &'a [SocketAddr],
    /// Its neighbours.
    pub neighbours: Vec<String>,
    /// Its records.
    pub records: usize,
    /// The round after which it goes on.
    pub round: u32,
    /// Whether its ledger was started just now.
    pub new_ledger: bool,
}

/// How a peer ended.
#[derive(Debug)]
pub struct Report {
    /// Where the results are.
    pub folder: PathBuf,
    /// The statement of what was spent.
    pub statement: Value,
    /// Whether it was asked to end before it had finished.
    pub interrupted: bool,
    /// Wall time from start to end.
    pub seconds: f64,
}

/// Runs a peer until the study is finished, it is interrupted, or it must stop.
pub fn run(options: &Options, observe: &mut dyn FnMut(Update)) -> Result<Report, PeerError> {
    let started = Instant::now();
    let study = &options.study;
    let roster = Arc::new(Roster::new(study, options.rehearsal)?);
    let id = options.identity.id();
    let me = roster.find(&id).ok_or_else(|| RosterError::Unlisted(id.to_string()))?;
    let name = roster.names.get(me).into_owned();
    let data = load(study, &options.data, &name)?;
    let folder = StateFolder::open(&options.state)?;
    let digest = StudyDigest::of(study);
    let allowance = allowance(options, folder.contents()?.as_ref(), &digest)?;
    let disk = folder.disk(options.durable || is_protected(study))?;
    let results = folder.results(&study.name, &digest.whole());
    let metrics = Arc::new(Metrics::default());
    let (network, transport, inputs) = network::start(network_config(options, &roster, me, &metrics))?;
    let setup = Setup {
        study: study.clone(),
        roster: roster.clone(),
        me,
        identity: options.identity.clone(),
        data_hash: data.hash(&options.identity),
        data: data.dataset,
        noise: noise(study)?,
        protected: is_protected(study),
        on_loss: options.on_loss,
        allowance,
        finals: read_finals(&results),
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    };
    let records = setup.data.records().len();
    let node = Node::new(setup, disk, started.elapsed())?;
    // The ledger came first: a folder with anything else but no ledger is taken for one whose ledger was lost.
    make_folder(&results)?;
    observe(Update::Started(Started {
        name: &name,
        listening: &network.address,
        neighbours: node.neighbours().map(|(id, _)| roster.names.get(id as usize).into_owned()).collect(),
        records,
        round: node.round(),
        new_ledger: folder.is_new,
    }));
    let unreachable = HashMap::new();
    let mut peer = Peer {
        node,
        unreachable,
        study,
        roster: &roster,
        digest,
        results: &results,
        metrics: &metrics,
        started,
        cancel: &options.cancel,
        observe,
    };
    let ended = peer.converse(transport, inputs);
    if ended.is_err() {
        // What led to it.
        peer.node.take_news().iter().for_each(|news| peer.log(news));
    }
    let result = ended.and_then(|interrupted| peer.report(interrupted, options.rehearsal));
    // Also after an error: the frames sent before it must still arrive.
    network.join();
    result
}

fn network_config(options: &Options, roster: &Arc<Roster>, me: usize, metrics: &Arc<Metrics>) -> network::Config {
    let study = &options.study;
    network::Config {
        identity: options.identity.clone(),
        roster: roster.clone(),
        me,
        relay: study.relay.clone(),
        listen: options.listen.unwrap_or_else(|| own_address(roster.addresses[me].as_deref())),
        limits: Limits { features: study.features(), rounds: study.rounds, clients: roster.names.len() },
        metrics: metrics.clone(),
        serve: options.metrics,
        until_input_ends: options.until_input_ends,
    }
}

/// What a peer releases is safe if its noise is.
pub(crate) fn is_protected(study: &Study) -> bool {
    study.privacy.is_some_and(|p| p.noise == NoiseKind::Secure) && study.algorithm.clips()
}

fn noise(study: &Study) -> Result<Noise, PeerError> {
    match study.privacy.map(|p| p.noise) {
        None => Ok(Noise::off()),
        Some(NoiseKind::Fast) => Ok(Noise::fast(study.seed)),
        Some(NoiseKind::Secure) => Ok(Noise::secure()),
    }
}

struct Data {
    dataset: Dataset,
    rows: Vec<f64>,
    targets: Vec<f64>,
}

impl Data {
    fn hash(&self, identity: &Identity) -> [u8; 32] {
        identity.fingerprint([&self.rows[..], &self.targets[..]])
    }
}

fn load(study: &Study, path: &Path, name: &str) -> Result<Data, PeerError> {
    let DataSpec::Files { schema, .. } = &study.data else { unreachable!("the roster refuses other sources") };
    let encoder = Encoder { schema, classification: study.loss.is_classification() };
    let loaded = encoder.read(path, name)?;
    let clip = study.privacy.filter(|_| study.algorithm.clips()).map(|p| p.clip);
    let dataset = Dataset::new(&loaded.rows, &loaded.targets, study.features(), clip);
    Ok(Data { dataset, rows: loaded.rows, targets: loaded.targets })
}

/// Where to listen for a peer that is reached at `address`: at loopback if that is where it is reached, else everywhere.
fn own_address(address: Option<&str>) -> SocketAddr {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let Some(address) = address else { return (everywhere, 0).into() };
    match address.parse::<SocketAddr>() {
        Ok(socket) if socket.ip().is_loopback() => socket,
        _ => (everywhere, address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)).into(),
    }
}

pub(crate) struct Peer<'a, D> {
    pub node: Node<D>,
    /// Why neighbours could not be reached.
    unreachable: HashMap<u32, String>,
    pub study: &'a Study,
    pub roster: &'a Roster,
    pub digest: StudyDigest,
    pub results: &'a Path,
    metrics: &'a Metrics,
    started: Instant,
    cancel: &'a Cancel,
    observe: &'a mut dyn FnMut(Update),
}

/// How often those who watch are told.
const TELL: Duration = Duration::from_millis(100);

impl<D: Disk> Peer<'_, D> {
    /// The loop. Returns whether it was interrupted.
    fn converse(&mut self, mut net: IrohTransport, mut inputs: mpsc::Receiver<Input>) -> Result<bool, PeerError> {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clock = clock.map_err(PeerError::Clock)?;
        let mut told = Duration::ZERO;
        self.node.handle(Event::Tick, self.now(), &mut net)?;
        loop {
            if self.tell(&mut told)? {
                self.node.saved();
                self.node.handle(Event::Tick, self.now(), &mut net)?;
                continue;
            }
            if self.node.is_finished(self.now()) {
                return Ok(false);
            }
            if self.cancel.is_cancelled() {
                return Ok(true);
            }
            // At most a second, so that a cancelled peer ends soon.
            let wait = self.node.deadline(self.now()).saturating_sub(self.now()).min(Duration::from_secs(1));
            let input = match inputs.try_recv() {
                Ok(input) => Some(input),
                Err(_) => clock.block_on(async { tokio::time::timeout(wait, inputs.recv()).await }).ok().flatten(),
            };
            let now = self.now();
            match input {
                None => self.node.handle(Event::Tick, now, &mut net),
                Some(Input::Up { link, peer, out }) => {
                    tracing::debug!(link = link.0, peer = %self.roster.names.get(peer as usize), "connection up");
                    net.learn(link, out);
                    self.node.handle(Event::Up { link, peer }, now, &mut net)
                }
                Some(Input::Frame { link, frame }) => {
                    tracing::trace!(link = link.0, kind = frame.first(), bytes = frame.len(), "frame");
                    self.node.handle(Event::Frame { link, frame: &frame }, now, &mut net)
                }
                Some(Input::Down { link, reason }) => {
                    tracing::debug!(link = link.0, reason, "connection down");
                    net.forget(link);
                    self.node.handle(Event::Down { link, reason }, now, &mut net)
                }
                Some(Input::Unreachable { peer, reason }) => {
                    self.unreachable.insert(peer, reason.clone());
                    self.node.handle(Event::Unreachable { peer, reason }, now, &mut net)
                }
                Some(Input::Interrupt) => return Ok(true),
            }?;
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Passes news on, and now and then how things stand. Returns whether the result was just written.
    fn tell(&mut self, told: &mut Duration) -> Result<bool, PeerError> {
        let mut written = false;
        for news in self.node.take_news() {
            self.log(&news);
            match &news {
                News::Complete | News::GaveUp(_) => {
                    self.write_model()?;
                    written = true;
                }
                News::Conflict(conflict) => self.write_conflict(conflict)?,
                _ => {}
            }
        }
        let now = self.now();
        if now >= *told + TELL || self.node.round() == self.study.rounds {
            *told = now;
            let standing = self.standing();
            self.metrics.update(&standing);
            (self.observe)(Update::Standing(standing));
        }
        Ok(written)
    }

    fn log(&self, news: &News) {
        let name = |id: &u32| self.roster.names.get(*id as usize).into_owned();
        match news {
            News::Greeted(id) => tracing::info!(neighbour = name(id), "connected"),
            News::Lost(id, reason) => tracing::warn!(neighbour = name(id), reason, "connection lost"),
            News::Waiting(id) => {
                let address = self.roster.addresses[*id as usize].as_deref().unwrap_or("none, it dials us");
                let reason = self.unreachable.get(id).map_or("", String::as_str);
                let round = self.node.round();
                tracing::warn!(neighbour = name(id), address, reason, round, "waiting for a neighbour");
            }
            News::Missing(ids) => {
                let missing: Vec<String> = ids.iter().map(name).collect();
                tracing::info!(missing = missing.join(", "), "all rounds are done; waiting for last releases");
            }
            News::Refused(id, reason) => tracing::warn!(neighbour = name(id), reason, "no conversation"),
            News::Round(round) => tracing::debug!(round, "released"),
            News::Withheld(round) => {
                tracing::warn!(round, "made without the records: the round was charged already or the budget is spent")
            }
            News::Dropped { neighbour, theirs, .. } => {
                let left: Vec<String> = self.node.neighbours().map(|(id, _)| name(&id)).collect();
                let by = if *theirs { "the other end" } else { "this peer" };
                tracing::warn!(neighbour = name(neighbour), by, neighbours_left = left.join(", "), "edge dropped");
            }
            News::Conflict(c) => {
                tracing::error!(author = name(&c.author), round = c.round, "said two different things")
            }
            News::Complete => tracing::info!("everybody's last release is here"),
            News::GaveUp(ids) => {
                let missing: Vec<String> = ids.iter().map(name).collect();
                tracing::warn!(
                    missing = missing.join(", "),
                    "the model is without those whose last release never came"
                );
            }
            News::Serving(ids) => {
                let waiting: Vec<String> = ids.iter().map(name).collect();
                tracing::info!(neighbours = waiting.join(", "), "finished; staying for neighbours that are not");
            }
        }
    }

    pub fn standing(&self) -> Standing {
        let run = self.node.ledger().run();
        let epsilon = |rho: f64| match &self.study.privacy {
            Some(p) => Rho::new(rho).map_or(f64::NAN, |rho| p.accountant.epsilon(rho, p.delta).get()),
            None => 0.0,
        };
        let spent = epsilon(run.spent);
        Standing {
            round: self.node.round(),
            rounds: self.study.rounds,
            neighbours: self.node.neighbours().count(),
            connected: self.node.neighbours().filter(|n| n.1).count(),
            withheld: run.withheld(),
            spent,
            remaining: (run.begin.epsilon - spent).max(0.0),
            consensus: self.node.consensus(),
        }
    }

    fn report(&mut self, interrupted: bool, rehearsal: bool) -> Result<Report, PeerError> {
        let complete = self.node.is_complete();
        let rounds_done = self.node.round() == self.study.rounds;
        if rounds_done && !complete && interrupted {
            self.write_model()?;
        }
        let statement = self.statement(rehearsal);
        write_whole(&self.results.join("statement.json"), pretty(&statement).as_bytes())?;
        Ok(Report {
            folder: self.results.into(),
            statement,
            interrupted: interrupted && !complete,
            seconds: self.started.elapsed().as_secs_f64(),
        })
    }
}
