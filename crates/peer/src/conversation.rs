//! The loop between a node, its network and its observer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use undertone_core::ledger::Disk;
use undertone_core::node::{Event, Link, News, Node};
use undertone_core::watch::Cancel;

use crate::PeerError;
use crate::metrics::{Metrics, Standing};
use crate::network::{Input, IrohTransport};
use crate::page::{Board, Scene, Sight};
use crate::results::Results;
use crate::update::Update;

/// A node, what it is connected to, and what is told about it.
pub(crate) struct Conversation<'a, D> {
    node: Node<D>,
    /// Why neighbours could not be reached.
    unreachable: HashMap<u32, String>,
    results: &'a Results<'a>,
    setting: Setting<'a>,
    clock: AwakeClock,
    /// When the last round was done, where rounds have a pace.
    stepped: (u32, Instant),
    /// Who is at the other end of each connection.
    links: HashMap<Link, u32>,
    board: Option<&'a mut Board>,
    observe: &'a mut dyn FnMut(Update),
}

/// What a conversation is about, and what it obeys.
pub(crate) struct Setting<'a> {
    pub results: &'a Results<'a>,
    pub metrics: &'a Metrics,
    pub cancel: &'a Cancel,
    /// Rounds are at least this far apart.
    pub pace: Duration,
    pub scene: Scene<'a>,
}

/// A clock that stands still while this process is stopped, as when a machine sleeps: that it heard nothing then is not the neighbours' fault.
#[derive(Debug)]
struct AwakeClock {
    now: Duration,
    read: Instant,
}

impl AwakeClock {
    /// The loop reads the clock once a second, so more than this was not waited for.
    const LONGEST: Duration = Duration::from_secs(2);

    fn new(started: Instant) -> Self {
        Self { now: started.elapsed(), read: Instant::now() }
    }

    /// The time at an instant; with how long the process was stopped before it, if it was for long.
    fn read(&mut self, at: Instant) -> (Duration, Option<Duration>) {
        let passed = at.saturating_duration_since(self.read);
        self.read = at;
        self.now += passed.min(Self::LONGEST);
        (self.now, (passed > 5 * Self::LONGEST).then_some(passed))
    }
}

/// How often progress is reported.
const TELL: Duration = Duration::from_millis(100);

impl<'a, D: Disk> Conversation<'a, D> {
    /// Nothing was sent yet.
    pub fn new(
        node: Node<D>,
        setting: Setting<'a>,
        started: Instant,
        board: Option<&'a mut Board>,
        observe: &'a mut dyn FnMut(Update),
    ) -> Self {
        let (unreachable, links) = (HashMap::new(), HashMap::new());
        let (results, stepped) = (setting.results, (node.round(), Instant::now()));
        Self { node, unreachable, results, setting, clock: AwakeClock::new(started), stepped, links, board, observe }
    }

    /// The loop. Returns whether it was interrupted.
    pub fn run(&mut self, mut net: IrohTransport, mut inputs: mpsc::Receiver<Input>) -> Result<bool, PeerError> {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clock = clock.map_err(PeerError::Clock)?;
        let mut told = Duration::ZERO;
        let now = self.now();
        self.node.handle(Event::Tick, now, &mut net)?;
        loop {
            if self.tell(&mut told)? {
                self.node.saved();
                let now = self.now();
                self.node.handle(Event::Tick, now, &mut net)?;
                continue;
            }
            self.keep_pace();
            let now = self.now();
            if self.node.is_finished(now) {
                return Ok(false);
            }
            if self.setting.cancel.is_cancelled() {
                return Ok(true);
            }
            // At most a second, so that a cancelled peer ends soon.
            let wait = self.node.deadline(now).saturating_sub(now).min(Duration::from_secs(1));
            let input = match inputs.try_recv() {
                Ok(input) => Some(input),
                Err(_) => clock.block_on(async { tokio::time::timeout(wait, inputs.recv()).await }).ok().flatten(),
            };
            let now = self.now();
            match input {
                None => self.node.handle(Event::Tick, now, &mut net),
                Some(Input::Up { link, peer, out }) => {
                    tracing::debug!(link = link.0, peer = %self.results.roster.names.get(peer as usize), "connection up");
                    net.learn(link, out);
                    self.links.insert(link, peer);
                    self.node.handle(Event::Up { link, peer }, now, &mut net)
                }
                Some(Input::Frame { link, frame }) => {
                    tracing::trace!(link = link.0, kind = frame.first(), bytes = frame.len(), "frame");
                    if let Some(peer) = self.links.get(&link) {
                        (self.observe)(Update::Heard(*peer, &frame));
                    }
                    self.node.handle(Event::Frame { link, frame: &frame }, now, &mut net)
                }
                Some(Input::Down { link, reason }) => {
                    tracing::debug!(link = link.0, reason, "connection down");
                    net.forget(link);
                    self.links.remove(&link);
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

    /// The node when the conversation is over; after an error, what led to it is logged.
    pub fn end(mut self, failed: bool) -> Node<D> {
        if failed {
            self.node.take_news().iter().for_each(|news| self.log(news));
        }
        self.node
    }

    /// Waits after a round until the next one may be made.
    fn keep_pace(&mut self) {
        if self.node.round() > self.stepped.0 && self.setting.pace > Duration::ZERO {
            std::thread::sleep(self.setting.pace.saturating_sub(self.stepped.1.elapsed()));
            self.stepped = (self.node.round(), Instant::now());
        }
    }

    fn now(&mut self) -> Duration {
        let (now, stopped) = self.clock.read(Instant::now());
        if let Some(stopped) = stopped {
            let seconds = stopped.as_secs();
            tracing::warn!(
                seconds,
                "this process was stopped, or waited for its disk; nobody is dropped for that time"
            );
        }
        now
    }

    /// Reports news, and progress from time to time. Returns whether the result was just written.
    fn tell(&mut self, told: &mut Duration) -> Result<bool, PeerError> {
        let mut written = false;
        for news in self.node.take_news() {
            self.log(&news);
            if let Some(board) = &mut self.board {
                board.news(&news);
            }
            match &news {
                News::Voted | News::Agreed(_) | News::GaveUp(_) => {
                    self.results.write_finals(&self.node)?;
                    self.results.write_model(&self.node)?;
                    written = true;
                }
                News::Conflict(conflict) => {
                    self.results.write_conflict(conflict)?;
                    // More rounds would be spent on what will be no model. Others have been told in the same breath.
                    if let Some(error) = self.results.contradicted(&self.node) {
                        return Err(error);
                    }
                }
                News::Round(round) if *round == self.node.round() => {
                    (self.observe)(Update::Released(*round, self.node.released()));
                    if let Some(board) = &mut self.board {
                        board.released(*round, self.node.released());
                    }
                }
                _ => {}
            }
        }
        let now = self.now();
        if now >= *told + TELL || self.node.round() == self.results.study.rounds() {
            *told = now;
            let standing = self.standing();
            self.setting.metrics.update(&standing);
            (self.observe)(Update::Standing(standing));
            self.show(standing);
        }
        Ok(written)
    }

    /// Tells the page, if there is one, how things stand.
    fn show(&mut self, standing: Standing) {
        let Some(board) = &mut self.board else { return };
        let run = self.node.ledger().run();
        let sight = Sight {
            standing,
            neighbours: self.node.neighbours().collect(),
            awaited: self.node.awaited().0,
            budget: self.results.budget(self.node.ledger().contents(), run),
            fresh: run.fresh,
        };
        board.update(&self.setting.scene, sight);
    }

    fn log(&self, news: &News) {
        let name = |id: &u32| self.results.roster.names.get(*id as usize).into_owned();
        match news {
            News::Greeted(id) => tracing::info!(neighbour = name(id), "connected"),
            News::Lost(id, reason) => tracing::warn!(neighbour = name(id), reason, "connection lost"),
            News::Waiting(id) => {
                let address =
                    self.results.roster.addresses[*id as usize].as_deref().unwrap_or("none, it connects to this peer");
                let reason = self.unreachable.get(id).map_or("", String::as_str);
                let (round, (_, since)) = (self.node.round(), self.node.awaited());
                let seconds = self.clock.now.saturating_sub(since).as_secs();
                match self.node.neighbours().any(|(peer, is_connected)| peer == *id && is_connected) {
                    true => tracing::warn!(
                        neighbour = name(id),
                        round,
                        seconds,
                        "waiting for a neighbour that is connected and silent: it hangs, or its disk does"
                    ),
                    false if reason.is_empty() => {
                        tracing::warn!(neighbour = name(id), address, round, seconds, "waiting for a neighbour")
                    }
                    false => {
                        tracing::warn!(neighbour = name(id), address, reason, round, seconds, "waiting for a neighbour")
                    }
                }
            }
            News::Missing(ids) => {
                let missing: Vec<String> = ids.iter().map(name).collect();
                tracing::info!(missing = missing.join(", "), "all rounds are done; waiting for last releases");
            }
            News::Stuck(id) => tracing::warn!(neighbour = name(id), "a neighbour says that its disk does not answer"),
            News::Refused(id, reason) => tracing::warn!(neighbour = name(id), reason, "connection refused"),
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
                let provable = c.is_provable();
                tracing::error!(
                    author = name(&c.author),
                    round = c.round,
                    provable,
                    "told different peers different things"
                )
            }
            News::Voted => tracing::info!("signed which last releases are here; waiting for others to sign the same"),
            News::Agreed(ids) if ids.is_empty() => tracing::info!("the last releases of all peers make the model"),
            News::Agreed(ids) => {
                let missing: Vec<String> = ids.iter().map(name).collect();
                tracing::warn!(
                    missing = missing.join(", "),
                    "the model does not include peers whose last release did not arrive"
                );
            }
            News::GaveUp(ids) => {
                let missing: Vec<String> = ids.iter().map(name).collect();
                tracing::error!(
                    missing = missing.join(", "),
                    signed = self.node.most_votes(),
                    "no longer waiting: too few peers have signed the same set of last releases"
                );
            }
            News::Serving(ids) => {
                let waiting: Vec<String> = ids.iter().map(name).collect();
                tracing::info!(neighbours = waiting.join(", "), "finished; staying online for neighbours that are not");
            }
        }
    }

    fn standing(&self) -> Standing {
        let run = self.node.ledger().run();
        let spent = self.results.epsilon(run.spent.rho);
        let (awaited, since) = self.node.awaited();
        Standing {
            awaited: awaited.len(),
            awaited_seconds: if awaited.is_empty() { 0.0 } else { self.clock.now.saturating_sub(since).as_secs_f64() },
            spent_alone: self.results.epsilon(run.spent.alone),
            round: self.node.round(),
            rounds: self.results.study.rounds(),
            neighbours: self.node.neighbours().count(),
            connected: self.node.neighbours().filter(|n| n.1).count(),
            withheld: run.withheld(),
            spent,
            remaining: (run.begin.epsilon - spent).max(0.0),
            consensus: self.node.consensus(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_stands_still_while_the_process_does() {
        let started = Instant::now();
        let mut clock = AwakeClock::new(started);
        let (zero, seconds) = (clock.now, Duration::from_secs);
        let mut at = clock.read;
        for second in 1..100 {
            at += seconds(1);
            assert_eq!(clock.read(at), (zero + seconds(second), None));
        }
        // A night.
        at += seconds(30_000);
        assert_eq!(clock.read(at), (zero + seconds(101), Some(seconds(30_000))));
        at += seconds(1);
        assert_eq!(clock.read(at).0, zero + seconds(102));
    }
}
