//! The network: QUIC between Ed25519 keys, by iroh.
//!
//! A thread of its own keeps the connections alive while the node computes or waits for its disk. Nothing but the
//! addresses in the study is dialled; a relay is used only if the study names one.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iroh::endpoint::{Connection, ConnectionError, QuicTransportConfig, RecvStream, SendStream, VarInt, presets};
use iroh::{Endpoint, EndpointAddr, PublicKey, RelayMode, RelayUrl, SecretKey};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::timeout;
use undertone_core::identity::{Identity, PublicId};
use undertone_core::message::{Limits, Outgoing};
use undertone_core::node::{Link, Roster, Transport};

use crate::PeerError;
use crate::metrics::Metrics;

const PROTOCOL: &[u8] = b"undertone/1";
/// How long a peer may be silent before its connection counts as lost.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a quiet connection is kept alive.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// How long to try to reach an address.
const DIAL: Duration = Duration::from_secs(8);
/// How long to wait for the last frames to arrive before a connection is closed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Longest reason sent along with the end of a connection, in bytes.
const LONGEST_REASON: usize = 300;

/// What the network tells the node.
#[derive(Debug)]
pub enum Input {
    /// A connection to a participant exists.
    Up { link: Link, peer: u32, out: LinkHandle },
    /// A frame arrived.
    Frame { link: Link, frame: Vec<u8> },
    /// A connection ended.
    Down { link: Link, reason: String },
    /// A participant could not be reached.
    Unreachable { peer: u32, reason: String },
    /// Somebody asked this process to end.
    Interrupt,
}

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
    /// Remembers how to reach a new connection.
    pub fn learn(&mut self, link: Link, out: LinkHandle) {
        self.links.insert(link, out);
    }

    /// Forgets a connection that ended.
    pub fn forget(&mut self, link: Link) {
        self.links.remove(&link);
    }
}

/// A connection or the whole network may end at any time; then there is nobody to tell, and a `Down` is on its way.
impl Transport for IrohTransport {
    fn dial(&mut self, peer: u32) {
        let _ = self.dial.send(peer);
    }

    fn send(&mut self, link: Link, frame: &Outgoing) {
        let Some(out) = self.links.get(&link) else { return };
        if let Err(TrySendError::Full(_)) = out.commands.try_send(Command::Send(frame.shared())) {
            // The other side asks for more and more and reads nothing.
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

/// The network's own thread.
pub struct Network {
    thread: std::thread::JoinHandle<()>,
    /// Where this peer listens.
    pub address: Vec<SocketAddr>,
}

impl Network {
    /// Waits until everything that was sent is delivered or given up. The transport must be gone by then.
    pub fn join(self) {
        let _ = self.thread.join();
    }
}

/// What the network needs to know.
pub struct Config {
    pub identity: Arc<Identity>,
    pub roster: Arc<Roster>,
    pub me: usize,
    pub relay: Option<String>,
    pub listen: SocketAddr,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
    /// Where to serve metrics, if anywhere.
    pub serve: Option<SocketAddr>,
    /// Whether to end when standard input does.
    pub until_input_ends: bool,
}

/// Starts the network. Inputs come out of the receiver.
pub fn start(config: Config) -> Result<(Network, IrohTransport, mpsc::Receiver<Input>), PeerError> {
    // Few frames wait here: a neighbour that floods is slowed down by its own connection.
    let (to_node, from_network) = mpsc::channel(16 + 4 * config.roster.graph.degree(config.me));
    let (dial, dials) = mpsc::unbounded_channel();
    let (ready, started) = std::sync::mpsc::channel();
    if config.until_input_ends {
        let to_node = to_node.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = to_node.blocking_send(Input::Interrupt);
        });
    }
    let thread = std::thread::Builder::new()
        .name("network".into())
        .spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(e) => return drop(ready.send(Err(PeerError::Machine(format!("no network thread ({e})"))))),
            };
            runtime.block_on(async {
                match bind(&config).await {
                    Err(e) => drop(ready.send(Err(e))),
                    Ok((endpoint, metrics)) => {
                        let _ = ready.send(Ok(endpoint.bound_sockets()));
                        Hub { endpoint, config, to_node, next: AtomicU64::new(0), strangers: Mutex::default() }
                            .run(dials, metrics)
                            .await;
                    }
                }
            });
        })
        .map_err(|e| PeerError::Machine(format!("no network thread ({e})")))?;
    let address = started.recv().map_err(|_| PeerError::Machine("the network thread ended at once".into()))??;
    Ok((Network { thread, address }, IrohTransport { dial, links: HashMap::new() }, from_network))
}

async fn bind(config: &Config) -> Result<(Endpoint, Option<tokio::net::TcpListener>), PeerError> {
    let unusable =
        |what: &str, e: &dyn std::fmt::Display| PeerError::Machine(format!("{what}: {e}; choose another address"));
    let metrics = match config.serve {
        None => None,
        Some(address) => {
            let bound = tokio::net::TcpListener::bind(address).await;
            Some(bound.map_err(|e| unusable(&format!("--metrics {address}"), &e))?)
        }
    };
    let window = (4 * config.limits.longest()).clamp(1 << 18, 1 << 30) as u32;
    let window = VarInt::from_u32(window);
    let transport = QuicTransportConfig::builder()
        .max_idle_timeout(Some(SILENCE.try_into().expect("a few seconds")))
        .keep_alive_interval(KEEP_ALIVE)
        .default_path_max_idle_timeout(SILENCE)
        .default_path_keep_alive_interval(KEEP_ALIVE)
        // One stream carries everything, and no more than a few frames wait on it.
        .max_concurrent_bidi_streams(1u32.into())
        .max_concurrent_uni_streams(0u32.into())
        .stream_receive_window(window)
        .receive_window(window)
        .build();
    let relay = config.relay.as_deref().map(str::parse::<RelayUrl>).transpose();
    let relay = relay.map_err(|e| PeerError::Input(format!("network.relay: {e}; write \"https://host\"")))?;
    let builder = Endpoint::builder(presets::Minimal)
        .secret_key(SecretKey::from_bytes(&config.identity.secret()))
        .alpns(vec![PROTOCOL.to_vec()])
        .relay_mode(relay.map_or(RelayMode::Disabled, |url| RelayMode::custom([url])))
        .clear_address_lookup()
        .transport_config(transport)
        .clear_ip_transports()
        .bind_addr(config.listen)
        .map_err(|e| unusable(&format!("--listen {}", config.listen), &e))?;
    let endpoint = builder.bind().await.map_err(|e| {
        let listen = config.listen;
        PeerError::Machine(format!(
            "{listen}: cannot listen there ({e:#}); is the port in use? Free it, or give another with --listen"
        ))
    })?;
    Ok((endpoint, metrics))
}

struct Hub {
    endpoint: Endpoint,
    config: Config,
    to_node: mpsc::Sender<Input>,
    next: AtomicU64,
    strangers: Mutex<HashSet<PublicKey>>,
}

impl Hub {
    /// Accepts and dials until the node lets go of its transport, then says goodbye.
    async fn run(self, mut dials: mpsc::UnboundedReceiver<u32>, metrics: Option<tokio::net::TcpListener>) {
        let hub = Arc::new(self);
        let mut links = tokio::task::JoinSet::new();
        if let Some(listener) = metrics {
            tokio::spawn(crate::metrics::serve(listener, hub.config.metrics.clone()));
        }
        tokio::spawn(interrupts(hub.to_node.clone()));
        loop {
            tokio::select! {
                incoming = hub.endpoint.accept() => {
                    let Some(incoming) = incoming else { break };
                    let hub = hub.clone();
                    links.spawn(async move { hub.accept(incoming).await });
                }
                peer = dials.recv() => {
                    let Some(peer) = peer else { break };
                    let hub = hub.clone();
                    links.spawn(async move { hub.dial(peer).await });
                }
                Some(_) = links.join_next() => {}
            }
        }
        // Connections end by themselves: their last frames are sent and their commands have run out.
        let _ = timeout(FAREWELL + Duration::from_secs(1), async { while links.join_next().await.is_some() {} }).await;
        let _ = timeout(FAREWELL, hub.endpoint.close()).await;
    }

    async fn accept(&self, incoming: iroh::endpoint::Incoming) {
        let Ok(accepting) = incoming.accept() else { return };
        let Ok(Ok(connection)) = timeout(DIAL, accepting).await else { return };
        let Some(peer) = self.participant(&connection) else {
            self.log_stranger(connection.remote_id());
            connection.close(1u32.into(), b"this key is not in the study that this peer runs");
            // Until the other side has heard it.
            let _ = timeout(FAREWELL, connection.closed()).await;
            return;
        };
        match timeout(DIAL, connection.accept_bi()).await {
            Ok(Ok((send, receive))) => self.serve(connection, send, receive, peer).await,
            _ => connection.close(1u32.into(), b"no stream was opened"),
        }
    }

    /// Tells of each key that is not in the study, once, and of the first hundred.
    fn log_stranger(&self, id: PublicKey) {
        let mut seen = self.strangers.lock().expect("nobody panics with it");
        if seen.len() < 100 && seen.insert(id) {
            let id = PublicId::from_bytes(*id.as_bytes()).map_or_else(String::new, |id| id.to_string());
            tracing::warn!(id, "refused a key that is not in the study");
        }
    }

    fn participant(&self, connection: &Connection) -> Option<u32> {
        let id = PublicId::from_bytes(*connection.remote_id().as_bytes())?;
        self.config.roster.find(&id).map(|k| k as u32)
    }

    async fn dial(&self, peer: u32) {
        let connected = tokio::select! {
            connected = timeout(DIAL, self.connect(peer)) => connected,
            // Nobody waits for an answer any more.
            () = self.to_node.closed() => return,
        };
        let result = match connected {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", DIAL.as_secs())),
        };
        match result {
            // The stream exists for the other side when the first frame is sent, which the node does at once.
            Ok((connection, send, receive)) => self.serve(connection, send, receive, peer).await,
            Err(reason) => drop(self.to_node.send(Input::Unreachable { peer, reason }).await),
        }
    }

    async fn connect(&self, peer: u32) -> Result<(Connection, SendStream, RecvStream), String> {
        let id = PublicKey::from_bytes(self.config.roster.ids[peer as usize].as_bytes()).map_err(|e| e.to_string())?;
        let mut address = EndpointAddr::new(id);
        if let Some(text) = &self.config.roster.addresses[peer as usize] {
            let found = tokio::net::lookup_host(text).await.map_err(|e| format!("{text}: {e}"))?;
            for socket in found {
                address = address.with_ip_addr(socket);
            }
        }
        if let Some(relay) = self.config.relay.as_deref().and_then(|r| r.parse().ok()) {
            address = address.with_relay_url(relay);
        }
        let connection = self.endpoint.connect(address, PROTOCOL).await.map_err(|e| e.to_string())?;
        let (send, receive) = connection.open_bi().await.map_err(|e| why(&e))?;
        Ok((connection, send, receive))
    }

    /// Carries frames in both directions until one side ends it.
    async fn serve(&self, connection: Connection, send: SendStream, receive: RecvStream, peer: u32) {
        let link = Link(self.next.fetch_add(1, Ordering::Relaxed));
        // Room for everybody's last release, twice.
        let (commands, to_send) = mpsc::channel(64 + 2 * self.config.limits.clients);
        let cut = Arc::new(Notify::new());
        let out = LinkHandle { commands, cut: cut.clone() };
        if self.to_node.send(Input::Up { link, peer, out }).await.is_err() {
            return;
        }
        let (leaving, end) = (AtomicBool::new(false), Notify::new());
        let mut writing = Box::pin(write(send, to_send, &leaving, &end, &self.config.metrics));
        let mut reading = Box::pin(self.read(receive, link));
        let reason = tokio::select! {
            reason = &mut writing => {
                // This side leaves and its last frame has arrived; what the other side has under way still counts.
                let _ = timeout(FAREWELL, &mut reading).await;
                reason
            }
            () = cut.notified() => "the other side does not read".into(),
            (reason, over) = &mut reading => match (over, leaving.load(Ordering::Relaxed)) {
                // Both are leaving: what was sent last must still arrive.
                (true, true) => writing.await,
                // The other side leaves: end this direction too, and hear its reason.
                (true, false) => {
                    end.notify_one();
                    let _ = timeout(FAREWELL, writing).await;
                    let _ = timeout(FAREWELL, connection.closed()).await;
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

    /// Returns why it ended, and whether that was the other side's doing.
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
            if let Err(e) = receive.read_exact(&mut frame).await {
                return (e.to_string(), true);
            }
            self.config.metrics.received(4 + length);
            // When the node has gone nobody listens, but reading goes on: the other side must be able to say goodbye while
            // the last frames of this side arrive.
            let _ = self.to_node.send(Input::Frame { link, frame }).await;
        }
    }
}

/// Sends frames in order. At the end, by command or because the node is gone, waits until the last one has arrived.
async fn write(
    mut send: SendStream,
    mut commands: mpsc::Receiver<Command>,
    leaving: &AtomicBool,
    end: &Notify,
    metrics: &Metrics,
) -> String {
    let reason = loop {
        let command = tokio::select! {
            biased;
            command = commands.recv() => command,
            // What was asked for before is sent.
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
                metrics.sent(bytes.len());
            }
            Some(Command::Close(reason)) => break reason,
            None => break "this peer has ended".into(),
        }
    };
    leaving.store(true, Ordering::Relaxed);
    let _ = send.finish();
    let _ = timeout(FAREWELL, send.stopped()).await;
    reason
}

/// The reason that the other side gave, or what happened.
fn why(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => "the other side has ended".into(),
        ConnectionError::ApplicationClosed(close) => String::from_utf8_lossy(&close.reason).into_owned(),
        ConnectionError::TimedOut => format!("silent for {} s", SILENCE.as_secs()),
        ConnectionError::LocallyClosed => "closed by this peer".into(),
        other => other.to_string(),
    }
}

/// Passes on the wish to end.
async fn interrupts(to_node: mpsc::Sender<Input>) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        } else {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
    let _ = to_node.send(Input::Interrupt).await;
}
