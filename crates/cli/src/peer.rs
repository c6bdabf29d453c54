//! `undertone peer`: one peer of a study on a network.

use std::fmt::Display;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use undertone_core::node::OnLoss;
use undertone_core::study::{Document, Study};
use undertone_data::{Encoder, table};
use undertone_peer::run::{self, Confirmed, Options, Report, Source, Started, Update};
use undertone_peer::state::{Anchor, planned_once};
use undertone_peer::{Cancel, OwnerLimits, PeerError, keys};

use crate::{Failure, digits, print, study};

#[derive(clap::Args)]
pub struct Arguments {
    /// The study, the same at every party
    #[arg(long, value_name = "FILE")]
    study: PathBuf,

    /// This party's secret key, from `undertone keygen`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// This party's records, as .csv or .parquet
    #[arg(long, value_name = "FILE")]
    data: PathBuf,

    /// The state folder of this data set: its ledger, and results
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    /// Keep a mark of the ledger here too, on another disk or a network share, or by `command:PROGRAM`: it shows if the state folder is restored from a backup
    #[arg(long, value_name = "PATH")]
    anchor: Option<Anchor>,

    /// Where to listen; without it, the port of this party's address in the study
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// What to do about a neighbour that is not connected, or connected and silent
    #[arg(long, value_enum, default_value = "wait")]
    on_loss: Loss,

    /// How long to wait before an edge is dropped, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = parse_time, allow_hyphen_values = true)]
    patience: Duration,

    /// Refuse a study after which all studies with this data together would have spent more, at the smallest delta of them
    #[arg(long, value_name = "EPSILON", allow_negative_numbers = true)]
    max_epsilon: Option<f64>,

    /// The same for the case that all others collude, whatever the studies assume
    #[arg(long, value_name = "EPSILON", allow_negative_numbers = true)]
    max_epsilon_alone: Option<f64>,

    /// What to do if a party released different things to different peers: end without a model, or write one that says so. The exit code is 3 in both cases
    #[arg(long, value_enum, default_value = "stop")]
    on_conflict: OnConflict,

    /// Begin a study that is unusual, such as one with a large epsilon, without asking: for services
    #[arg(long)]
    yes: bool,

    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9100
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,

    /// Serve a page to look at, at 127.0.0.1:8470 or at this address: how far the study is, with whom, and what it has cost. It can only be looked at
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8470")]
    page: Option<SocketAddr>,

    /// Ask everybody who opens the page for the token in this file, which is made if there is none; needed where others than this machine can reach the address
    #[arg(long, value_name = "FILE", requires = "page")]
    page_token: Option<PathBuf>,

    /// Rounds are at least so far apart
    #[arg(long, hide = true, value_parser = humantime::parse_duration, default_value = "0s")]
    pace: Duration,

    /// How to log to standard error
    #[arg(long, value_enum, default_value = "text")]
    log: Log,

    /// Accept a study whose noise is not safe to release, for public data
    #[arg(long)]
    rehearsal: bool,

    /// End when standard input does
    #[arg(long, hide = true)]
    until_input_ends: bool,

    /// Do not wait for the disk: for measurements of rehearsals
    #[arg(long, hide = true, requires = "rehearsal")]
    no_sync: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Loss {
    /// Wait until it comes back
    Wait,
    /// Drop the edge when patience ends, and continue
    Drop,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum OnConflict {
    /// No model
    Stop,
    /// A model that says so
    Mark,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Log {
    /// Human-readable text
    Text,
    /// One JSON object per line
    Json,
    /// Nothing
    None,
}

/// Longest patience: a longer one is a mistake, and sums of times must not overflow.
const LONGEST_PATIENCE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = |reason: &dyn Display| Err(format!("{reason}; write 90s, 5m or 1h"));
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => wrong(&"must be longer than zero"),
        Ok(time) if time > LONGEST_PATIENCE => wrong(&"is longer than 100 years"),
        Ok(time) => Ok(time),
        Err(e) => wrong(&e),
    }
}

/// The error of a peer, with the matching exit code.
pub fn failed(error: PeerError) -> Failure {
    match () {
        () if error.is_result() => Failure::Result(error.to_string()),
        () if error.is_input() => Failure::input(error),
        () => Failure::machine(error),
    }
}

/// The study. Planning is done once: its choice is kept in the state folder, so that a restart uses it
/// at once, also with a later version that would choose differently. Everything else comes from the study.
fn read_study(arguments: &Arguments) -> Result<Study, Failure> {
    let mut document = study::document(&arguments.study, &[])?;
    undertone_plan::oddities(&document).iter().for_each(|odd| tracing::warn!("{odd}"));
    if !study::is_auto(&document)? {
        return Ok(study::resolve(&document)?.0);
    }
    let unreadable = |path: &Path, e: std::io::Error| Failure::machine(format!("{}: {e}", path.display()));
    let bytes = std::fs::read(&arguments.study).map_err(|e| unreadable(&arguments.study, e))?;
    let plan = || {
        check_columns(arguments, &document)?;
        Ok(undertone_plan::chosen(&study::resolve(&document)?.0))
    };
    let (place, chosen) = planned_once(&arguments.state, &bytes, plan, failed)?;
    undertone_plan::choose(&mut document, &chosen, &place).map_err(Failure::input)?;
    tracing::info!(kept = place, "algorithm = \"auto\" is {}", chosen.join(", "));
    Study::read(&document).map_err(Failure::input)
}

/// Finds a misspelt column before planning, which takes a while. Reads the head of the file and no records.
fn check_columns(arguments: &Arguments, document: &Document) -> Result<(), Failure> {
    let spec = document.spec().map_err(Failure::input)?;
    let Some(schema) = spec.schema() else { return Ok(()) };
    let encoder = Encoder { schema, classification: spec.loss.is_classification() };
    table::check_columns(&arguments.data, spec.csv(), &encoder.wanted(&[])).map_err(Failure::input)
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bar = ProgressBar::new(1).with_style(
        ProgressStyle::with_template("{prefix} [{bar:40}] round {pos}/{len} {msg} {elapsed}")
            .expect("a fixed template"),
    );
    start_log(arguments.log, &bar);
    let study = read_study(arguments)?;
    let options = Options {
        study: Arc::new(study),
        identity: Arc::new(keys::read(&arguments.key).map_err(failed)?),
        data: Source::File(arguments.data.clone()),
        state: arguments.state.clone(),
        anchor: arguments.anchor.clone(),
        listen: arguments.listen,
        on_loss: match arguments.on_loss {
            Loss::Wait => OnLoss::Wait,
            Loss::Drop => OnLoss::Drop(arguments.patience),
        },
        limits: OwnerLimits {
            epsilon: arguments.max_epsilon,
            alone: arguments.max_epsilon_alone,
            ..OwnerLimits::default()
        },
        marks_conflicts: arguments.on_conflict == OnConflict::Mark,
        confirmed: match (arguments.yes, std::io::stdin().is_terminal()) {
            (true, _) => Confirmed::Yes,
            (false, true) => Confirmed::Ask(ask),
            (false, false) => Confirmed::No,
        },
        rehearsal: arguments.rehearsal,
        metrics: arguments.metrics,
        page: arguments.page,
        page_token: arguments.page_token.clone(),
        pace: arguments.pace,
        takes_signals: true,
        until_input_ends: arguments.until_input_ends,
        durable: !arguments.no_sync,
        cancel: Cancel::default(),
        spread: Some(undertone_plan::noise_spread),
    };
    let json = arguments.log == Log::Json;
    let mut watch = |update: Update| match update {
        Update::Started(started) => announce(&started, &bar),
        Update::Standing(standing) => {
            bar.set_length(standing.rounds.into());
            bar.set_position(standing.round.into());
            bar.set_message(format!(
                "neighbours {}/{}, epsilon {:.4}",
                standing.connected, standing.neighbours, standing.spent
            ));
        }
        _ => {}
    };
    let report = run::run(&options, &mut watch);
    bar.finish_and_clear();
    let report = report.map_err(failed)?;
    if report.interrupted {
        return Err(Failure::Machine(format!(
            "interrupted after round {} of {}; nothing is lost: the same command continues from here",
            report.statement["rounds"]["done"], report.statement["rounds"]["of"]
        )));
    }
    if json {
        print(&report.statement.to_string())?
    } else {
        print(&summary(&report))?
    }
    let accused = report.statement["released_two_things_in_one_round"].as_array().into_iter().flatten();
    match accused.filter_map(Value::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(()),
        ref names => Err(Failure::Result(format!(
            "{} released two different things in one round: the model may differ from that of others; the evidence is in {}",
            names.join(", "),
            report.folder.display()
        ))),
    }
}

/// Asks whoever sits at the terminal.
fn ask(unusual: &[String]) -> bool {
    eprintln!("this study is unusual:");
    unusual.iter().for_each(|one| eprintln!("  {one}"));
    eprint!("begin it? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// Logs go to standard error, between the bar's redraws. Only Undertone's own logs, not those of the network library.
fn start_log(log: Log, bar: &ProgressBar) {
    let level = std::env::var("UNDERTONE_LOG").ok().and_then(|l| l.parse().ok()).unwrap_or(tracing::Level::INFO);
    let filter =
        tracing_subscriber::filter::Targets::new().with_target("undertone", level).with_target("undertone_peer", level);
    let bar = bar.clone();
    let writer = move || AboveBar(bar.clone());
    let registry = tracing_subscriber::registry().with(filter);
    let started = match log {
        Log::Text => registry
            .with(tracing_subscriber::fmt::layer().with_target(false).with_ansi(false).with_writer(writer))
            .try_init(),
        Log::Json => registry.with(tracing_subscriber::fmt::layer().json().with_writer(writer)).try_init(),
        Log::None => Ok(()),
    };
    // A program that brings this one along may have a log already, where the lines go then.
    drop(started);
}

/// Writes to standard error without breaking the progress bar.
struct AboveBar(ProgressBar);

impl std::io::Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.suspend(|| std::io::stderr().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

fn announce(started: &Started, bar: &ProgressBar) {
    let Started { name, listening, neighbours, records, round, new_ledger } = started;
    bar.set_prefix(name.to_string());
    let listening: Vec<String> = listening.iter().map(ToString::to_string).collect();
    tracing::info!(
        peer = name,
        listening = listening.join(", "),
        neighbours = neighbours.join(", "),
        records,
        round,
        "{}",
        match (new_ledger, round) {
            (true, _) => "started with a new ledger: this data has spent nothing so far",
            (false, 0) => "started",
            (false, _) => "continuing from the ledger",
        }
    );
}

/// What is spent if all others collude, where that is more.
fn alone(statement: &Value) -> String {
    let number = |key: &str| statement[key].as_f64().unwrap_or_default();
    let (all, alone) =
        (number("epsilon_of_all_studies_with_this_data"), number("epsilon_of_all_studies_if_all_others_collude"));
    let of_all = digits(alone, true);
    match statement["colluders"].as_u64() {
        Some(colluders) => format!(
            "\n  as long as no more than {colluders} of the other parties pool what they know; if all do: epsilon {}, with all studies {of_all}",
            digits(number("epsilon_if_all_others_collude"), true)
        ),
        None if alone > all * (1.0 + 1e-9) => format!(
            "\n  as long as no more parties collude than each of these studies assumes; if all others do: epsilon {of_all}"
        ),
        None => String::new(),
    }
}

fn summary(report: &Report) -> String {
    let statement = &report.statement;
    let number = |value: &Value| value.as_f64().map_or("-".into(), |v| digits(v, true));
    let rounds = &statement["rounds"];
    let mut text = format!(
        "{}: {} rounds, {} from the records, {} mixed, {} withheld, {:.1} s\n",
        statement["study"].as_str().unwrap_or_default(),
        rounds["done"],
        rounds["computed"],
        rounds["mixed"],
        rounds["withheld"],
        report.seconds
    );
    text += &format!(
        "model of {} of {} clients: {}\n",
        statement["clients_in_model"],
        statement["clients"],
        report.folder.join("model.json").display()
    );
    if let [Some(worse), Some(better)] = [0, 1].map(|i| statement["expected_skill"][i].as_f64()) {
        text += &format!(
            "planned skill {worse:.2} to {better:.2} (1: as good as pooled data without privacy, 0: no better than the mean)\n"
        );
    }
    if statement["overshoots"].as_bool() == Some(true) {
        text += "the steps overshoot: the releases swing to and fro and gain nothing by it; a study with half the eta would do better\n";
    }
    for line in crate::uncertainty::lines(&statement["uncertainty"]) {
        text += &format!("{line}\n");
    }
    text += &if statement["protected"].as_bool() == Some(true) {
        format!(
            "privacy spent: epsilon {} at delta {:e}, rho {}; with all studies of this data: epsilon {}{}",
            number(&statement["epsilon"]),
            statement["delta"].as_f64().unwrap_or_default(),
            number(&statement["rho"]),
            number(&statement["epsilon_of_all_studies_with_this_data"]),
            alone(statement)
        )
    } else {
        "NOT PRIVATE: a rehearsal without safe noise".into()
    };
    text
}
