//! `undertone demo`: a complete study on one machine.
//!
//! Ten peers run as separate processes with encrypted connections over loopback, as between machines. One is
//! killed and restarted: by itself, or with `--page` by whoever looks at the page. At the end the model is compared with the solution of the pooled data.

mod compare;
mod hospitals;
mod peers;
mod show;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use undertone_core::study::StudySpec;

use crate::{Failure, free_folder, print};
use compare::compare;
use peers::{Condition, Peers};
use show::Show;

#[derive(clap::Args)]
pub struct Arguments {
    /// Where to put keys, data, study and results; without it the first free one of undertone-demo, undertone-demo-2, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Serve a page with all hospitals, at 127.0.0.1:8470 or at this address. Its buttons kill hospitals and bring them back; the rounds are slow enough to watch
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8470")]
    page: Option<SocketAddr>,
}

/// The peer that is killed, and the share of the rounds after which this happens.
const VICTIM: usize = 6;
const KILL_AT: f64 = 0.3;
/// How long it is down.
const AWAY: Duration = Duration::from_secs(2);
/// A study this small is done in seconds; beyond this the demo has hung.
const TOO_LONG: Duration = Duration::from_secs(300);
/// How often all are asked how they are.
const LOOK: Duration = Duration::from_millis(100);
/// How far apart rounds are, where somebody watches.
const PACE: Duration = Duration::from_millis(50);

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(address) = arguments.page.filter(|address| !address.ip().is_loopback()) {
        return Err(Failure::input(format!(
            "--page {address}: a demo is for this machine; write 127.0.0.1:{}",
            address.port()
        )));
    }
    let folder = arguments.out.clone().unwrap_or_else(|| free_folder("undertone-demo"));
    let mut show = arguments.page.map(Show::start).transpose()?;
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
    let pace = if show.is_some() { PACE } else { Duration::ZERO };
    let mut peers = Peers::start(&study_path, hospitals, pace)?;
    let played = match &mut show {
        Some(show) => show.play(&mut peers),
        None => play(&mut peers, study.rounds()),
    };
    let ended = played.and_then(|comings| {
        let text = compare(&study, &peers, &folder, started.elapsed().as_secs_f64(), &comings)?;
        print(&text)
    });
    match show {
        Some(show) => show.stay(&peers, ended),
        None => ended,
    }
}

/// Watches until all are done; kills one and restarts it. Returns what happened to it.
fn play(peers: &mut Peers, rounds: u32) -> Result<String, Failure> {
    let bars = Bars::new(peers, rounds);
    let started = Instant::now();
    let mut killed: Option<(Instant, u32)> = None;
    while !peers.are_finished() {
        peers.look()?;
        let victim = &peers.all[VICTIM];
        match (killed, victim.condition) {
            (None, Condition::Running) if f64::from(victim.round()) >= KILL_AT * f64::from(rounds) => {
                killed = Some((Instant::now(), victim.round()));
                peers.kill(VICTIM);
            }
            (Some((when, _)), Condition::Killed) if when.elapsed() >= AWAY => peers.bring_back(VICTIM)?,
            _ => {}
        }
        bars.show(peers);
        if started.elapsed() > TOO_LONG {
            let log = peers.all[0].hospital.state.with_extension("log");
            return Err(Failure::machine(format!("the peers did not finish; their logs are {}", log.display())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(match killed {
        Some((_, round)) => format!(
            "{} was killed after about round {round} and restarted {} s later; it resumed from its ledger and noised no round twice",
            peers.all[VICTIM].hospital.name,
            AWAY.as_secs()
        ),
        None => "the study was over before a peer could be killed".into(),
    })
}

/// A progress bar for each hospital.
struct Bars {
    bars: Vec<ProgressBar>,
    _screen: MultiProgress,
}

impl Bars {
    fn new(peers: &Peers, rounds: u32) -> Self {
        let screen = MultiProgress::new();
        let style =
            ProgressStyle::with_template("{prefix:12} [{bar:40}] {pos:>5}/{len} {msg}").expect("a fixed template");
        let bars = peers.all.iter().map(|peer| {
            let bar = screen.add(ProgressBar::new(rounds.into()).with_style(style.clone()));
            bar.set_prefix(peer.hospital.name);
            bar
        });
        Self { bars: bars.collect(), _screen: screen }
    }

    fn show(&self, peers: &Peers) {
        for (bar, peer) in self.bars.iter().zip(&peers.all) {
            bar.set_position(peer.round().into());
            bar.set_message(match peer.condition {
                Condition::Killed => "KILLED; its neighbours wait".into(),
                Condition::Finished => "finished".into(),
                _ => format!("epsilon {:.3}", peer.epsilon()),
            });
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.bars.iter().for_each(ProgressBar::abandon);
    }
}
