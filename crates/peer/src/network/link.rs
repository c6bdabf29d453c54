//! One connection: the node's end of it, and the tasks that carry its frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iroh::endpoint::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::timeout;
use undertone_core::message::{Outgoing, stuck};
use undertone_core::node::{Link, Transport};

use super::{CLOSING, Config, Hub, IDLE, Input};

/// Longest reason sent along with the end of a connection, in bytes.
const LONGEST_REASON: usize = 300;

/// How long the rest of a frame may take after its length, besides what its bytes take on the slowest line.
const FRAME: Duration = Duration::from_secs(5);
/// Bytes per second of the slowest line.
const SLOWEST: usize = 10_000;

/// What the node tells a connection.
#[derive(Debug)]
pub enum Command {
    Send(Arc<[u8]>),
    Close(String),
}

/// How the node reaches a connection.
#[derive(Debug)]
pub struct LinkHandle {
    commands: mpsc::Sender<Command>,
    /// Ends the connection at once.
    cut: Arc<Notify>,
}

/// The node's side of the network.
pub struct IrohTransport {
    dial: mpsc::UnboundedSender<u32>,
    links: HashMap<Link, LinkHandle>,
}

impl IrohTransport {
    /// Without connections yet; peers to connect to go to `dial`.
    pub(super) fn new(dial: mpsc::UnboundedSender<u32>) -> Self {
        Self { dial, links: HashMap::new() }
    }

    /// Remembers how to reach a new connection.
    pub fn learn(&mut self, link: Link, out: LinkHandle) {
        self.links.insert(link, out);
    }

    /// Forgets a connection that ended.
    pub fn forget(&mut self, link: Link) {
        self.links.remove(&link);
    }
}

/// A connection or the whole network may end at any time. Sending then fails, which is ignored: the node is told by an
/// [`Input::Down`].
impl Transport for IrohTransport {
    fn dial(&mut self, peer: u32) {
        let _ = self.dial.send(peer);
    }

    fn send(&mut self, link: Link, frame: &Outgoing) {
        let Some(out) = self.links.get(&link) else { return };
        if let Err(TrySendError::Full(_)) = out.commands.try_send(Command::Send(frame.shared())) {
            // The other side sends requests but does not read the answers.
            out.cut.notify_one();
        }
    }

    fn close(&mut self, link: Link, reason: &str) {
        let Some(out) = self.links.remove(&link) else { return };
        if out.commands.try_send(Command::Close(reason.into())).is_err() {
            out.cut.notify_one();
        }
    }
}

impl Hub {
    /// Carries frames in both directions until one side ends it.
    pub(super) async fn carry(&self, connection: Connection, send: SendStream, receive: RecvStream, peer: u32) {
        let link = Link(self.next.fetch_add(1, Ordering::Relaxed));
        // Room for the last release and the head of every peer, twice.
        let (commands, to_send) = mpsc::channel(64 + 4 * self.config.limits.clients);
        let cut = Arc::new(Notify::new());
        let out = LinkHandle { commands, cut: cut.clone() };
        if self.to_node.send(Input::Up { link, peer, out }).await.is_err() {
            return;
        }
        let (closing, end) = (AtomicBool::new(false), Notify::new());
        let mut writing = Box::pin(write(send, to_send, &closing, &end, &self.config));
        let mut reading = Box::pin(self.read(receive, link));
        let reason = tokio::select! {
            reason = &mut writing => {
                // This side closes and its last frame has arrived; frames that the other side has already sent still count.
                let _ = timeout(CLOSING, &mut reading).await;
                reason
            }
            () = cut.notified() => "the other side does not read".into(),
            (reason, over) = &mut reading => match (over, closing.load(Ordering::Relaxed)) {
                // Both sides close: what was sent last must still arrive.
                (true, true) => writing.await,
                // The other side closes: end this direction too, and wait for the reason.
                (true, false) => {
                    end.notify_one();
                    let _ = timeout(CLOSING, writing).await;
                    let _ = timeout(CLOSING, connection.closed()).await;
                    reason
                }
                (false, _) => reason,
            },
        };
        let reason = match connection.close_reason() {
            Some(error) => why(&error),
            None => {
                let cut = &reason[..reason.floor_char_boundary(LONGEST_REASON)];
                connection.close(0u32.into(), cut.as_bytes());
                reason
            }
        };
        let _ = self.to_node.send(Input::Down { link, reason }).await;
    }

    /// Passes frames on to the node. Returns why it ended, and whether the other side ended it.
    async fn read(&self, mut receive: RecvStream, link: Link) -> (String, bool) {
        loop {
            let mut length = [0; 4];
            if let Err(e) = receive.read_exact(&mut length).await {
                return (e.to_string(), true);
            }
            let length = u32::from_le_bytes(length) as usize;
            if length > self.config.limits.longest() {
                let longest = self.config.limits.longest();
                return (format!("a frame of {length} bytes, where the study allows {longest}"), false);
            }
            let mut frame = vec![0; length];
            let patience = FRAME + Duration::from_secs((length / SLOWEST) as u64);
            match timeout(patience, receive.read_exact(&mut frame)).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => return (e.to_string(), true),
                Err(_) => return ("half a frame came".into(), false),
            }
            self.config.metrics.received(4 + length);
            // After the node has ended frames are dropped, but reading goes on: the other side must be able to finish its
            // stream while the last frames of this side arrive.
            let _ = self.to_node.send(Input::Frame { link, frame }).await;
        }
    }
}

/// Sends frames in order. At the end, by command or because the node has ended, waits until the last one has arrived.
async fn write(
    mut send: SendStream,
    mut commands: mpsc::Receiver<Command>,
    closing: &AtomicBool,
    end: &Notify,
    config: &Config,
) -> String {
    let mut alarm = config.alarm.subscribe();
    let reason = loop {
        let command = tokio::select! {
            biased;
            command = commands.recv() => command,
            // The node waits for the disk and can say nothing itself.
            Ok(()) = alarm.changed() => Some(Command::Send(stuck().shared())),
            // Only when no command waits: what the node has asked for is sent first.
            () = end.notified() => None,
        };
        match command {
            Some(Command::Send(frame)) => {
                let mut bytes = Vec::with_capacity(4 + frame.len());
                bytes.extend((frame.len() as u32).to_le_bytes());
                bytes.extend_from_slice(&frame);
                if let Err(e) = send.write_all(&bytes).await {
                    return e.to_string();
                }
                config.metrics.sent(bytes.len());
            }
            Some(Command::Close(reason)) => break reason,
            None => break "this peer has ended".into(),
        }
    };
    closing.store(true, Ordering::Relaxed);
    let _ = send.finish();
    let _ = timeout(CLOSING, send.stopped()).await;
    reason
}

/// The reason that the other side gave, or what happened.
pub(super) fn why(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => "the other side has ended".into(),
        ConnectionError::ApplicationClosed(close) => String::from_utf8_lossy(&close.reason).into_owned(),
        ConnectionError::TimedOut => format!("silent for {} s", IDLE.as_secs()),
        ConnectionError::LocallyClosed => "closed by this peer".into(),
        other => other.to_string(),
    }
}
