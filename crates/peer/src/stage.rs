//! A study as a peer runs it: the moments before its rounds, the rounds, the closing release after them. Each stage is a study of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use undertone_core::ledger::Contents;
use undertone_core::node::{Node, NodeSetup, Roster, RosterError};
use undertone_core::privacy::{Budget, ClientBudget, Rho, Spent};
use undertone_core::study::{Study, StudyError, is_stage};
use undertone_data::{Closed, mean};

use crate::PeerError;
use crate::conversation::{Conversation, Setting};
use crate::disk_watch::Alarm;
use crate::limit::{Claim, Later, OwnerLimits, Stated};
use crate::map::Map;
use crate::metrics::Metrics;
use crate::network;
use crate::options::{Confirmed, Options};
use crate::page::{Board, Scene};
use crate::results::{Results, Told, add_closing, read_finals};
use crate::state::{Anchor, StateFolder, make_folder};
use crate::update::{Started, Update};

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
    /// The last releases that are in the model, with their authors.
    pub(crate) finals: Vec<(u32, Vec<f64>)>,
    /// Whether it was asked to end at all.
    pub(crate) stopped: bool,
}

/// Who is told of a run: dashboards, the page, and whoever called.
pub(crate) struct Audience<'a> {
    pub metrics: Arc<Metrics>,
    pub board: Option<&'a mut Board>,
    pub observe: &'a mut dyn FnMut(Update),
}

/// Runs a study with the stages before and after its rounds, if it has any.
pub(crate) fn run_stages(options: &Options, audience: &mut Audience) -> Result<Report, PeerError> {
    let study = &options.study;
    if is_stage(study.name()) {
        let message = format!(
            "= \"{}\" is the name of a stage, which a policy does not count; choose a name that does not end with -moments or -closing",
            study.name()
        );
        return Err(StudyError::at("name", message).into());
    }
    if study.moments().is_none() && study.privacy().is_none_or(|privacy| privacy.after() == Rho::ZERO) {
        return run_stage(options, study, None, true, audience);
    }
    let (roster, me) = place(study, options)?;
    let clients = roster.names.len();
    // A row that only a later stage refuses must not be found after an earlier one was paid for.
    let loaded = options.data.load(study, &roster.names.get(me))?;
    let promised = |stage: &Study| {
        let data = loaded.clone().closed(stage).dataset(stage);
        roster.budget(stage, me, data.records()).as_ref().map_or(Spent::ZERO, ClientBudget::promised)
    };
    let unknown = study.closing(&vec![0.0; study.features()], clients);
    let closing_cost = unknown.as_ref().map_or(Spent::ZERO, promised);
    let fitted = match study.moments() {
        None => study.clone(),
        Some(moments) => {
            let divisor = study.mean_records().expect("the roster refuses a study without it");
            let trust = roster.masking.map(|masking| masking.trust);
            let follow =
                |mean: &[f64], clients: usize| Ok(study.standardised(mean, clients, divisor, trust.as_ref())?);
            let map = Map::of(&options.state, &moments, study.name(), Box::new(follow));
            let next = map.next()?.map(|fitted| fitted.digest().whole());
            let later = Later { total: promised(study).plus(closing_cost), study: next };
            let mut stage = run_stage(options, &Arc::new(moments), Some(later), true, audience)?;
            if stage.stopped {
                stage.interrupted = true;
                return Ok(stage);
            }
            tracing::info!(clients = stage.finals.len(), "the columns are standardised by what they released");
            Arc::new(map.keep(&stage.finals)?)
        }
    };
    if unknown.is_none() {
        return run_stage(options, &fitted, None, false, audience);
    }
    let follow = |mean: &[f64], _: usize| Ok(fitted.closing(mean, clients).expect("it asks for a closing release"));
    let map = Map::of(&options.state, &fitted, format!("{}-closing", fitted.name()), Box::new(follow));
    let later = Later { total: closing_cost, study: map.next()?.map(|closing| closing.digest().whole()) };
    let mut main = run_stage(options, &fitted, Some(later), study.moments().is_none(), audience)?;
    if main.stopped {
        main.interrupted = true;
        return Ok(main);
    }
    let closing = Arc::new(map.keep(&main.finals)?);
    let last = run_stage(options, &closing, None, false, audience)?;
    if last.stopped {
        return Ok(Report { interrupted: true, ..main });
    }
    let flat: Vec<f64> = last.finals.iter().flat_map(|(_, values)| values.iter().copied()).collect();
    let divisor = closing.mean_records().expect("the roster refuses a study without it");
    let present = last.finals.len();
    let closed = Closed::new(&fitted, &closing, &mean(&flat, closing.features()), (clients, present), divisor);
    add_closing(&fitted, &main.folder, &mut main.statement, &last.statement, closed.as_ref())?;
    let held = options.data.load(&fitted, &roster.names.get(me))?.held;
    let (folder, finals, statement) = (&main.folder, &main.finals, &main.statement);
    let names = &roster.names;
    let withheld = closed.as_ref().is_none_or(|closed| !matches!(closed.intervals, Some(Ok(_))));
    let spread = if withheld { options.noise_spread() } else { None };
    let (closed, spread) = (closed.as_ref(), spread.as_deref());
    Told { study: &fitted, names, folder, finals, statement, closed, held: &held, spread }.write()?;
    main.seconds += last.seconds;
    Ok(main)
}

/// The peers of a study, and which of them this one is.
fn place(study: &Study, options: &Options) -> Result<(Roster, usize), PeerError> {
    let roster = Roster::new(study, options.rehearsal)?;
    let id = options.identity.id();
    let me = roster.find(&id).ok_or_else(|| RosterError::Unlisted(id.to_string()))?;
    Ok((roster, me))
}

/// Runs one study. `later` is what will be spent after it, for the same purpose; `is_first` says that nothing was spent before it.
fn run_stage(
    options: &Options,
    study: &Arc<Study>,
    later: Option<Later>,
    is_first: bool,
    audience: &mut Audience,
) -> Result<Report, PeerError> {
    let started = Instant::now();
    let (roster, me) = place(study, options)?;
    let roster = Arc::new(roster);
    let name = roster.names.get(me).into_owned();
    let loaded = options.data.load(study, &name)?;
    study.check_records(&roster.names, me, loaded.total())?;
    let state = StateFolder::open(&options.state, options.anchor.clone())?;
    let data_hash = options.identity.fingerprint(loaded.numbers());
    let held = loaded.held.clone();
    let records = loaded.total();
    let data = loaded.closed(study).dataset(study);
    let (digest, noise, budget) = (*study.digest(), study.noise(), roster.budget(study, me, data.records()));
    let is_protected = noise.as_ref().is_some_and(|noise| study.is_protected_by(noise));
    let contents = state.contents()?;
    let claim = Claim { budget: budget.as_ref(), later, is_protected, study: &digest.whole(), name: study.name() };
    let allowance = allowance(options, &claim, &state.policy()?, contents.as_ref())?;
    if is_first {
        check_start(options, &claim, &state, contents.as_ref(), (records, roster.names.len()))?;
    }
    let folder = state.results(study.name(), &digest.whole());
    let (metrics, alarm) = (audience.metrics.clone(), Arc::new(Alarm::default()));
    let disk = state.disk(options.durable || is_protected)?.in_study(&digest.whole()).watched(&metrics, &alarm);
    let (network, transport, inputs) = network::start(network_config(options, study, &roster, me, (&metrics, &alarm)))?;
    let setup = NodeSetup {
        study: study.clone(),
        roster: roster.clone(),
        me,
        identity: options.identity.clone(),
        data_hash,
        data,
        noise,
        on_loss: options.on_loss,
        allowance,
        finals: read_finals(&folder),
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        nonce: getrandom::u64().map_err(PeerError::Random)?,
    };
    let node = Node::new(setup, disk, started.elapsed())?;
    // The ledger is created first: a folder with other files but no ledger counts as one whose ledger was lost.
    make_folder(&folder)?;
    (audience.observe)(Update::Started(Started {
        name: &name,
        listening: &network.address,
        neighbours: node.neighbours().map(|(id, _)| roster.names.get(id as usize).into_owned()).collect(),
        records,
        round: node.round(),
        new_ledger: state.is_new,
    }));
    let marks_conflicts = options.marks_conflicts;
    let whole = &options.study;
    let later_cost = later.as_ref().map_or(Spent::ZERO, |later| later.total);
    let results =
        Results { study, whole, roster: &roster, folder: &folder, held: &held, marks_conflicts, later: later_cost };
    let scene = Scene { whole, study, roster: &roster, me, is_model: results.is_model() };
    if let Some(board) = &mut audience.board {
        board.begin(&scene, node.round(), state.is_new);
    }
    let Audience { board, observe, .. } = audience;
    let setting = Setting { results: &results, metrics: &metrics, cancel: &options.cancel, pace: options.pace, scene };
    let mut conversation = Conversation::new(node, setting, started, board.as_deref_mut(), *observe);
    let ended = conversation.run(transport, inputs);
    let node = conversation.end(ended.is_err());
    let report = ended.and_then(|interrupted| {
        let agreed = node.is_agreed();
        let statement = results.write_statement(&node, options.rehearsal)?;
        // Interrupted, it may still become one.
        if node.round() == study.rounds()
            && !interrupted
            && let Some(reason) = results.refused(&node)
        {
            return Err(reason);
        }
        let (finals, seconds) = (node.finals(), started.elapsed().as_secs_f64());
        if results.is_model() && agreed {
            let (names, statement, folder) = (&roster.names, &statement, &*folder);
            // What a closing release adds is written when it is there.
            let spread = if later.is_none() { options.noise_spread() } else { None };
            let spread = spread.as_deref();
            Told { study, names, folder, finals: &finals, statement, closed: None, held: &held, spread }.write()?;
        }
        let (stopped, interrupted) = (interrupted, interrupted && !agreed);
        Ok(Report { folder: folder.clone(), statement, interrupted, seconds, finals, stopped })
    });
    // Also after an error: the frames sent before it must still arrive.
    network.join();
    report
}

/// What the study may spend under the owner's policy and the options, whichever is less; nothing if neither limits it.
fn allowance(
    options: &Options,
    claim: &Claim,
    policy: &OwnerLimits,
    ledger: Option<&Contents>,
) -> Result<Option<Spent>, PeerError> {
    let by_policy = claim.allowance(*policy, Stated::Policy, ledger)?;
    let by_option = claim.allowance(options.limits, Stated::Option, ledger)?;
    Ok(match (by_policy, by_option) {
        (Some(a), Some(b)) => Some(a.at_most(b)),
        (a, b) => a.or(b),
    })
}

/// Says what the anchor is good for. Before the first start of a study, refuses a large delta, and asks about whatever is unusual.
fn check_start(
    options: &Options,
    claim: &Claim,
    state: &StateFolder,
    ledger: Option<&Contents>,
    (records, parties): (usize, usize),
) -> Result<(), PeerError> {
    match &options.anchor {
        Some(Anchor::File(path)) => tracing::info!(anchor = %path.display(), "the ledger has an anchor"),
        Some(Anchor::Command(command)) => tracing::info!(anchor = command, "the ledger has an anchor"),
        None => tracing::info!("the ledger has no anchor: only others can tell that the state folder is an old one"),
    }
    if options.anchor.is_some() && ledger.is_some_and(|ledger| !ledger.runs.is_empty() && !ledger.is_anchored()) {
        tracing::warn!(
            "the anchor is new, or was left out for a while: until the next release from the records only others can tell that the state folder is an old one"
        );
    }
    if ledger.is_some_and(|ledger| ledger.runs.iter().any(|run| run.begin.study == *claim.study)) {
        return Ok(());
    }
    if !state.policy()?.large_delta {
        let public = options.study.spec().public_records().filter(|records| !records.is_empty());
        let mean = public.map(|all| all.iter().sum::<usize>() as f64 / all.len() as f64);
        claim.check_delta(mean.unwrap_or(records as f64) * parties as f64)?;
    }
    let unusual = claim.unusual(options.study.privacy().and_then(|privacy| match privacy.budget() {
        Budget::Epsilon(epsilon) => Some(epsilon.get()),
        Budget::First(_) => None,
    }));
    let may_begin = match options.confirmed {
        Confirmed::Yes => true,
        Confirmed::No => false,
        Confirmed::Ask(ask) => unusual.is_empty() || ask(&unusual),
    };
    if !unusual.is_empty() && !may_begin {
        return Err(PeerError::Unconfirmed(unusual));
    }
    Ok(())
}

fn network_config(
    options: &Options,
    study: &Study,
    roster: &Arc<Roster>,
    me: usize,
    (metrics, alarm): (&Arc<Metrics>, &Arc<Alarm>),
) -> network::Config {
    network::Config {
        identity: options.identity.clone(),
        roster: roster.clone(),
        me,
        relay: study.spec().relay.clone(),
        listen: options.listen.unwrap_or_else(|| own_address(roster.addresses[me].as_deref())),
        limits: study.limits(roster.names.len()),
        metrics: metrics.clone(),
        alarm: alarm.clone(),
        takes_signals: options.takes_signals,
        until_input_ends: options.until_input_ends,
    }
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
