//! Numbers for operators, in the OpenMetrics text format that Prometheus reads.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

type Count = Gauge<u64, AtomicU64>;
type Number = Gauge<f64, AtomicU64>;

/// What is measured; the node and the network write, the page reads.
#[derive(Debug)]
pub struct Metrics {
    round: Count,
    rounds: Count,
    neighbours: Count,
    connected: Count,
    withheld: Counter,
    sent_bytes: Counter,
    sent_frames: Counter,
    received_bytes: Counter,
    received_frames: Counter,
    spent: Number,
    remaining: Number,
    consensus: Number,
    awaited: Count,
    awaited_seconds: Number,
    spent_alone: Number,
    disk_seconds: Number,
    registry: Registry,
}

/// The progress of a peer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    /// n.
    pub round: u32,
    /// T.
    pub rounds: u32,
    /// Remaining neighbours.
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
    /// Neighbours whose release the next round lacks.
    pub awaited: usize,
    /// How long the last round was ago, in seconds, while some are.
    pub awaited_seconds: f64,
    /// Epsilon spent in this study if all others collude.
    pub spent_alone: f64,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("undertone");
        let all = &mut registry;
        // The format adds a full stop to every help text, and `_total` to the name of every counter.
        Self {
            round: register(all, "round", "Last round done"),
            rounds: register(all, "rounds", "Rounds of the study"),
            neighbours: register(all, "neighbours", "Neighbours in the graph"),
            connected: register(all, "neighbours_connected", "Neighbours connected now"),
            withheld: register(all, "rounds_withheld", "Rounds made without the records although planned with them"),
            sent_bytes: register(all, "sent_bytes", "Bytes of frames sent, before encryption"),
            sent_frames: register(all, "sent_frames", "Frames sent"),
            received_bytes: register(all, "received_bytes", "Bytes of frames received"),
            received_frames: register(all, "received_frames", "Frames received"),
            spent: register(all, "epsilon_spent", "Epsilon spent in this study"),
            remaining: register(all, "epsilon_remaining", "Epsilon this study may still spend"),
            consensus: register(all, "consensus_distance", "Root mean square distance to the neighbours' releases"),
            awaited: register(all, "neighbours_awaited", "Neighbours whose release the next round lacks"),
            awaited_seconds: register(
                all,
                "awaited_seconds",
                "How long the last round was ago while neighbours are awaited",
            ),
            spent_alone: register(
                all,
                "epsilon_spent_if_all_others_collude",
                "Epsilon spent in this study if all others collude",
            ),
            disk_seconds: register(all, "disk_write_seconds", "How long the write that is under way has taken"),
            registry,
        }
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.inc_by(bytes as u64);
        self.sent_frames.inc();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.inc_by(bytes as u64);
        self.received_frames.inc();
    }

    pub(crate) fn update(&self, standing: &Standing) {
        self.round.set(standing.round.into());
        self.rounds.set(standing.rounds.into());
        self.neighbours.set(standing.neighbours as u64);
        self.connected.set(standing.connected as u64);
        // The ledger does the counting, across restarts too, and its count never falls.
        self.withheld.inner().store(standing.withheld.into(), Ordering::Relaxed);
        self.spent.set(standing.spent);
        self.remaining.set(standing.remaining);
        self.consensus.set(standing.consensus);
        self.awaited.set(standing.awaited as u64);
        self.awaited_seconds.set(standing.awaited_seconds);
        self.spent_alone.set(standing.spent_alone);
    }

    pub(crate) fn disk_waits(&self, seconds: f64) {
        self.disk_seconds.set(seconds);
    }

    /// All metrics as text.
    pub fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("a string takes any text");
        page
    }
}

/// How long a connection may last. It carries one request, so that a client that sends none, or reads nothing, keeps
/// nothing of this process for longer.
const LONGEST_CONNECTION: Duration = Duration::from_secs(5);

/// Answers requests until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(converse(stream, metrics.clone(), LONGEST_CONNECTION))),
            // For example, no file descriptors are left: try again a little later.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: TcpStream, metrics: Arc<Metrics>, longest: Duration) {
    let answer = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request, &metrics))));
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer);
    match timeout(longest, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for metrics failed"),
        Err(_) => tracing::debug!("a request for metrics took too long"),
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<String> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, kind, body) = if is_read && ["/", "/metrics"].contains(&request.uri().path()) {
        (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.page())
    } else {
        (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "ask for GET /metrics\n".into())
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn lines_are_what_dashboards_parse() {
        let metrics = Metrics::default();
        metrics.sent(40);
        metrics.received(7);
        metrics.update(&Standing {
            round: 17,
            rounds: 200,
            neighbours: 3,
            connected: 2,
            withheld: 1,
            spent: 0.25,
            remaining: 0.75,
            consensus: 1.5,
            awaited: 1,
            awaited_seconds: 12.5,
            spent_alone: 0.5,
        });
        metrics.disk_waits(6.5);
        let page = metrics.page();
        let values: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "undertone_round 17",
                "undertone_rounds 200",
                "undertone_neighbours 3",
                "undertone_neighbours_connected 2",
                "undertone_rounds_withheld_total 1",
                "undertone_sent_bytes_total 40",
                "undertone_sent_frames_total 1",
                "undertone_received_bytes_total 7",
                "undertone_received_frames_total 1",
                "undertone_epsilon_spent 0.25",
                "undertone_epsilon_remaining 0.75",
                "undertone_consensus_distance 1.5",
                "undertone_neighbours_awaited 1",
                "undertone_awaited_seconds 12.5",
                "undertone_epsilon_spent_if_all_others_collude 0.5",
                "undertone_disk_write_seconds 6.5",
            ]
        );
        assert!(page.starts_with("# HELP undertone_round Last round done.\n# TYPE undertone_round gauge\n"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }

    /// What a server on loopback answers to these bytes, until it closes the connection.
    async fn exchange(request: &str, longest: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(converse(stream, Arc::default(), longest));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_page_is_at_two_addresses() {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for path in ["/", "/metrics", "/metrics?name=value"] {
            let answer = exchange(&get(path), LONGEST_CONNECTION).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
            assert!(answer.contains("\nundertone_round 0\n"), "{answer}");
        }
        let post = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
        for request in [&get("/other"), post] {
            let answer = exchange(request, LONGEST_CONNECTION).await;
            assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
            assert!(answer.ends_with("ask for GET /metrics\n"), "{answer}");
        }
        let answer = exchange("not HTTP at all\r\n\r\n", LONGEST_CONNECTION).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_client_that_sends_no_request_is_cut_off() {
        let started = Instant::now();
        for request in ["", "GET /metrics HTTP/1.1\r\n"] {
            assert_eq!(exchange(request, Duration::from_millis(50)).await, "");
        }
        assert!(started.elapsed() < LONGEST_CONNECTION);
    }
}
