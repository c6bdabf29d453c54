//! Numbers for operators, in the text format that Prometheus reads.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// What is measured; the node and the network write, the page reads.
#[derive(Debug, Default)]
pub struct Metrics {
    sent_bytes: AtomicU64,
    sent_frames: AtomicU64,
    received_bytes: AtomicU64,
    received_frames: AtomicU64,
    round: AtomicU64,
    rounds: AtomicU64,
    neighbours: AtomicU64,
    connected: AtomicU64,
    withheld: AtomicU64,
    spent: Number,
    remaining: Number,
    consensus: Number,
}

/// A number that several threads share.
#[derive(Debug, Default)]
struct Number(AtomicU64);

impl Number {
    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Where a peer stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    /// n.
    pub round: u32,
    /// T.
    pub rounds: u32,
    /// Neighbours that are left.
    pub neighbours: usize,
    /// How many of them are connected.
    pub connected: usize,
    /// Rounds that were planned as fresh but made without the records.
    pub withheld: u32,
    /// Epsilon spent in this study.
    pub spent: f64,
    /// Epsilon that this study may still spend.
    pub remaining: f64,
    /// Distance to the neighbours.
    pub consensus: f64,
}

impl Metrics {
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sent_frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.received_frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn update(&self, standing: &Standing) {
        self.round.store(standing.round.into(), Ordering::Relaxed);
        self.rounds.store(standing.rounds.into(), Ordering::Relaxed);
        self.neighbours.store(standing.neighbours as u64, Ordering::Relaxed);
        self.connected.store(standing.connected as u64, Ordering::Relaxed);
        self.withheld.store(standing.withheld.into(), Ordering::Relaxed);
        self.spent.set(standing.spent);
        self.remaining.set(standing.remaining);
        self.consensus.set(standing.consensus);
    }

    /// The page.
    pub fn page(&self) -> String {
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        let rows = [
            ("round", "gauge", "Last round done", count(&self.round)),
            ("rounds", "gauge", "Rounds of the study", count(&self.rounds)),
            ("neighbours", "gauge", "Neighbours in the graph", count(&self.neighbours)),
            ("neighbours_connected", "gauge", "Neighbours connected now", count(&self.connected)),
            (
                "rounds_withheld_total",
                "counter",
                "Rounds made without the records although planned with them",
                count(&self.withheld),
            ),
            ("sent_bytes_total", "counter", "Bytes of frames sent, before encryption", count(&self.sent_bytes)),
            ("sent_frames_total", "counter", "Frames sent", count(&self.sent_frames)),
            ("received_bytes_total", "counter", "Bytes of frames received", count(&self.received_bytes)),
            ("received_frames_total", "counter", "Frames received", count(&self.received_frames)),
            ("epsilon_spent", "gauge", "Epsilon spent in this study", self.spent.get()),
            ("epsilon_remaining", "gauge", "Epsilon this study may still spend", self.remaining.get()),
            (
                "consensus_distance",
                "gauge",
                "Root mean square distance to the neighbours' releases",
                self.consensus.get(),
            ),
        ];
        let mut page = String::new();
        for (name, kind, help, value) in rows {
            let _ = writeln!(
                page,
                "# HELP undertone_{name} {help}.\n# TYPE undertone_{name} {kind}\nundertone_{name} {value}"
            );
        }
        page
    }
}

/// Answers requests for the page, one connection each.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    let _ = timeout(Duration::from_secs(5), answer(stream, &metrics)).await;
                });
            }
            // Out of descriptors, say: try again a little later.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Longest request that is read.
const LONGEST_REQUEST: usize = 4096;

async fn answer(mut stream: TcpStream, metrics: &Metrics) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < LONGEST_REQUEST {
        let mut part = [0; 512];
        match stream.read(&mut part).await? {
            0 => break,
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ") {
        ("200 OK", metrics.page())
    } else {
        ("404 Not Found", "ask for /metrics\n".into())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
