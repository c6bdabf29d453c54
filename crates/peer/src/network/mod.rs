//! The network: QUIC between Ed25519 keys, by iroh.
//!
//! A thread of its own keeps the connections alive while the node computes or waits for its disk. Nothing but the
//! addresses in the study is dialled; a relay is used only if the study names one.

mod gate;
mod link;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iroh::endpoint::{Connection, QuicTransportConfig, RecvStream, SendStream, VarInt, presets};
use iroh::{Endpoint, EndpointAddr, PublicKey, RelayMode, RelayUrl, SecretKey};
use tokio::sync::mpsc;
use tokio::time::timeout;
use undertone_core::identity::{Identity, PublicId};
use undertone_core::node::{Link, Roster};
use undertone_core::study::Limits;

use crate::NetworkError;
use crate::disk_watch::Alarm;
use crate::metrics::Metrics;
use gate::{Gate, Pass};
pub use link::IrohTransport;
use link::{LinkHandle, why};

const PROTOCOL: &[u8] = b"undertone/1";
/// How long nothing may arrive on a connection before it counts as lost.
const IDLE: Duration = Duration::from_secs(10);
/// How often a quiet connection is kept alive.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// How long to try to reach an address.
const DIAL: Duration = Duration::from_secs(8);
/// How long a connection that was accepted may take for its handshake, and then for its stream.
const ACCEPT: Duration = Duration::from_secs(5);
/// How long to wait for the last frames to arrive before a connection is closed.
const CLOSING: Duration = Duration::from_secs(2);

/// What the network tells the node.
#[derive(Debug)]
pub enum Input {
    /// A connection to a peer of the study exists.
    Up { link: Link, peer: u32, out: LinkHandle },
    /// A frame arrived.
    Frame { link: Link, frame: Vec<u8> },
    /// A connection ended.
    Down { link: Link, reason: String },
    /// A peer of the study could not be reached.
    Unreachable { peer: u32, reason: String },
    /// This process was asked to end.
    Interrupt,
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
    /// Rings when the disk does not answer.
    pub alarm: Arc<Alarm>,
    /// Whether to end at a signal.
    pub takes_signals: bool,
    /// Whether to end when standard input does.
    pub until_input_ends: bool,
}

/// Starts the network. Inputs come out of the receiver.
pub fn start(config: Config) -> Result<(Network, IrohTransport, mpsc::Receiver<Input>), NetworkError> {
    // Few frames wait here: when the channel is full, QUIC flow control slows the sender down.
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
    // Whoever listens to the thread that starts the peer listens to this one too.
    let log = tracing::dispatcher::get_default(Clone::clone);
    let thread = std::thread::Builder::new()
        .name("network".into())
        .spawn(move || {
            let _log = tracing::dispatcher::set_default(&log);
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(e) => return drop(ready.send(Err(NetworkError::Thread(e)))),
            };
            runtime.block_on(async {
                match bind(&config).await {
                    Err(e) => drop(ready.send(Err(e))),
                    Ok(endpoint) => {
                        let _ = ready.send(Ok(endpoint.bound_sockets()));
                        let gate = Gate::new(&config.roster);
                        let hub =
                            Hub { endpoint, config, to_node, next: AtomicU64::new(0), refused: Mutex::default(), gate };
                        hub.run(dials).await;
                    }
                }
            });
        })
        .map_err(NetworkError::Thread)?;
    let address = started.recv().map_err(|_| NetworkError::ThreadEnded)??;
    Ok((Network { thread, address }, IrohTransport::new(dial), from_network))
}

async fn bind(config: &Config) -> Result<Endpoint, NetworkError> {
    let window = (4 * config.limits.longest()).clamp(1 << 18, 1 << 30) as u32;
    let window = VarInt::from_u32(window);
    let transport = QuicTransportConfig::builder()
        .max_idle_timeout(Some(IDLE.try_into().expect("a few seconds")))
        .keep_alive_interval(KEEP_ALIVE)
        .default_path_max_idle_timeout(IDLE)
        .default_path_keep_alive_interval(KEEP_ALIVE)
        // One stream carries everything, and no more than a few frames wait on it.
        .max_concurrent_bidi_streams(1u32.into())
        .max_concurrent_uni_streams(0u32.into())
        .stream_receive_window(window)
        .receive_window(window)
        .build();
    let relay = config.relay.as_deref().map(str::parse::<RelayUrl>).transpose();
    let relay = relay.map_err(|e| NetworkError::Relay(e.into()))?;
    let builder = Endpoint::builder(presets::Minimal)
        .secret_key(SecretKey::from_bytes(&config.identity.secret()))
        .alpns(vec![PROTOCOL.to_vec()])
        .relay_mode(relay.map_or(RelayMode::Disabled, |url| RelayMode::custom([url])))
        .clear_address_lookup()
        .transport_config(transport)
        .clear_ip_transports()
        .bind_addr(config.listen)
        .map_err(|e| NetworkError::ListenAddress { address: config.listen, source: e.into() })?;
    let bound = builder.bind().await;
    bound.map_err(|e| NetworkError::Listen { address: config.listen, source: e.into() })
}

struct Hub {
    endpoint: Endpoint,
    config: Config,
    to_node: mpsc::Sender<Input>,
    next: AtomicU64,
    refused: Mutex<HashSet<PublicKey>>,
    gate: Arc<Gate>,
}

impl Hub {
    /// Accepts and dials until the node drops its transport, then closes what is open.
    async fn run(self, mut dials: mpsc::UnboundedReceiver<u32>) {
        let hub = Arc::new(self);
        let mut links = tokio::task::JoinSet::new();
        if hub.config.takes_signals {
            tokio::spawn(interrupts(hub.to_node.clone()));
        }
        loop {
            tokio::select! {
                incoming = hub.endpoint.accept() => {
                    let Some(incoming) = incoming else { break };
                    if let Some((incoming, pass)) = hub.gate.let_in(incoming) {
                        let hub = hub.clone();
                        links.spawn(async move { hub.accept(incoming, pass).await });
                    }
                }
                peer = dials.recv() => {
                    let Some(peer) = peer else { break };
                    let hub = hub.clone();
                    links.spawn(async move { hub.dial(peer).await });
                }
                Some(_) = links.join_next() => {}
            }
        }
        // With the transport dropped, each connection sends the frames that it still has and then closes.
        let _ = timeout(CLOSING + Duration::from_secs(1), async { while links.join_next().await.is_some() {} }).await;
        let _ = timeout(CLOSING, hub.endpoint.close()).await;
    }

    async fn accept(&self, incoming: iroh::endpoint::Incoming, pass: Pass) {
        let Ok(accepting) = incoming.accept() else { return };
        let Ok(Ok(connection)) = timeout(ACCEPT, accepting).await else { return };
        let Some(peer) = self.peer(&connection) else {
            self.log_refused(connection.remote_id());
            connection.close(1u32.into(), b"this key is not in the study that this peer runs");
            // Until the reason has arrived. The pass is kept for as long, so that few are.
            let _ = timeout(CLOSING, connection.closed()).await;
            return;
        };
        let Some(_seat) = self.gate.seat(peer) else {
            return connection.close(1u32.into(), b"too many connections with this key");
        };
        match timeout(ACCEPT, connection.accept_bi()).await {
            Ok(Ok((send, receive))) => {
                drop(pass);
                self.carry(connection, send, receive, peer).await;
            }
            _ => connection.close(1u32.into(), b"no stream was opened"),
        }
    }

    /// Logs each key that is not in the study once, and only the first hundred, so that a peer cannot fill the log.
    fn log_refused(&self, id: PublicKey) {
        let mut seen = self.refused.lock().expect("no panic while it is held");
        if seen.len() < 100 && seen.insert(id) {
            let id = PublicId::from_bytes(*id.as_bytes()).map_or_else(String::new, |id| id.to_string());
            tracing::warn!(id, "refused a key that is not in the study");
        }
    }

    /// Which peer of the study is at the other end.
    fn peer(&self, connection: &Connection) -> Option<u32> {
        let id = PublicId::from_bytes(*connection.remote_id().as_bytes())?;
        self.config.roster.find(&id).map(|k| k as u32)
    }

    async fn dial(&self, peer: u32) {
        let connected = tokio::select! {
            connected = timeout(DIAL, self.connect(peer)) => connected,
            // The node has ended.
            () = self.to_node.closed() => return,
        };
        let result = match connected {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", DIAL.as_secs())),
        };
        match result {
            // The other side sees the stream when the first frame is sent, which the node does at once.
            Ok((connection, send, receive)) => self.carry(connection, send, receive, peer).await,
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
}

/// Waits for SIGINT or SIGTERM and tells the node.
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
