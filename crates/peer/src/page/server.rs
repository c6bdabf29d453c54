//! A small HTTP server for people and for Prometheus: a page that shows what happens, its live state as server-sent events, and numbers.
//!
//! It runs on a thread of its own, so whatever a browser does, no round waits for it. Memory is bounded: so many connections at a time, one message
//! waiting for each, and deadlines for everything that a client may leave undone.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::access::{Access, Refused};
use crate::ServerError;
use crate::metrics::Metrics;

/// Connections at a time; the next ones are told to come back later.
const MOST: usize = 128;
/// Connections at a time that have not asked for anything yet, or not with the token. Whoever comes after them takes the place of the first.
const MOST_WAITING: usize = 256;
/// How long a client may take to ask, and to read an answer that ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may leave a message of the stream unread. Messages come at least every `QUIET`.
const UNREAD: Duration = Duration::from_secs(20);
/// A stream says something at least this often, so that a client that is gone is noticed.
const QUIET: Duration = Duration::from_secs(5);
/// Messages of a stream are at least this far apart.
const PACE: Duration = Duration::from_millis(150);
/// How long streams have for their last message when the server ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long whoever carries out an action may take to say so.
const ACTION: Duration = Duration::from_secs(3);
/// What a page must send with an action: other sites cannot, without asking first.
const MARK: HeaderName = HeaderName::from_static("x-undertone");

const PAGE: &str = include_str!("page.html");

/// The newest state of whatever a page shows, as JSON. Whoever knows it sends it; every stream gets the newest.
pub type Feed = watch::Sender<State>;

/// What the page shows at one moment, in the form in which it is sent: all streams share the memory.
#[derive(Debug, Clone)]
pub struct State(Bytes);

impl State {
    const BEFORE: &str = "data: ";
    const AFTER: &str = "\n\n";

    fn event(&self) -> Bytes {
        self.0.clone()
    }

    fn json(&self) -> Bytes {
        self.0.slice(Self::BEFORE.len()..self.0.len() - Self::AFTER.len())
    }
}

impl From<&str> for State {
    fn from(json: &str) -> Self {
        Self([Self::BEFORE, json, Self::AFTER].concat().into())
    }
}

impl From<String> for State {
    fn from(json: String) -> Self {
        Self::from(&*json)
    }
}

/// Does what a button of the page asks for, with the party of this number.
pub type Act = Arc<dyn Fn(usize, Action, Reply) + Send + Sync>;

/// Tells the page whether an action was carried out, and otherwise why not.
#[derive(Debug)]
pub struct Reply(oneshot::Sender<Result<(), String>>);

impl Reply {
    /// Tells it.
    pub fn tell(self, outcome: Result<(), String>) {
        // A browser may be gone by then.
        let _ = self.0.send(outcome);
    }
}

/// What the buttons of a demo do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ends a process without warning.
    Kill,
    /// Starts it again.
    Start,
}

/// What is served.
#[derive(Clone, Default)]
pub struct Site {
    /// Numbers, at /metrics.
    pub metrics: Option<Arc<Metrics>>,
    /// The page at /, its state at /state, and all states to come at /events.
    pub page: Option<Arc<Feed>>,
    /// What its buttons do, at /peers/NUMBER/kill and /peers/NUMBER/start.
    pub act: Option<Act>,
    /// The file of the token that everybody must give who is not on this machine; it is made if there is none. Without it only loopback addresses are served.
    pub token: Option<PathBuf>,
}

/// A server on a thread of its own. When it is dropped, streams get the last state and end.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where a browser finds the page, with the token if there is one.
    pub url: String,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts to serve.
    pub fn start(address: SocketAddr, site: Site) -> Result<Self, ServerError> {
        let access = match &site.page {
            Some(_) => Access::of(address, site.token.as_deref())?,
            None => Access::anybody(),
        };
        let failed = |source| ServerError::Address { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let url = format!("http://{address}/{}", access.query());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Thread)?;
        let (end, ended) = oneshot::channel();
        let hall = Arc::new(Hall { site, access, port: address.port(), seats: Arc::new(Semaphore::new(MOST)) });
        let log = tracing::dispatcher::get_default(Clone::clone);
        let serve = move || {
            let _log = tracing::dispatcher::set_default(&log);
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    accept(listener, hall, ended).await;
                }
            });
        };
        let thread = std::thread::Builder::new().name("page".into()).spawn(serve).map_err(ServerError::Thread)?;
        Ok(Self { address, url, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What all connections share.
struct Hall {
    site: Site,
    access: Access,
    port: u16,
    seats: Arc<Semaphore>,
}

/// Accepts connections until the server ends.
async fn accept(listener: TcpListener, hall: Arc<Hall>, mut ended: oneshot::Receiver<()>) {
    let mut waiting: VecDeque<(Arc<Guest>, AbortHandle)> = VecDeque::new();
    let (farewell, leaving) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut ended => break,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            // For example, no file descriptors are left: try again a little later.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        waiting.retain(|(guest, connection)| !guest.is_admitted() && !connection.is_finished());
        // Whoever has asked for nothing yet makes room for others, the first come first.
        if waiting.len() >= MOST_WAITING
            && let Some((_, connection)) = waiting.pop_front()
        {
            connection.abort();
        }
        let guest = Arc::new(Guest::default());
        let connection = connections.spawn(converse(stream, hall.clone(), leaving.clone(), guest.clone(), PATIENCE));
        waiting.push_back((guest, connection));
    }
    farewell.send_replace(true);
    let _ = timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
}

/// A connection and its seat, which it gets when it has asked for something that it may have.
#[derive(Default)]
struct Guest(Mutex<Option<OwnedSemaphorePermit>>);

impl Guest {
    fn is_admitted(&self) -> bool {
        self.0.lock().is_ok_and(|seat| seat.is_some())
    }

    /// Takes a seat, if there is one.
    fn admit(&self, seats: &Arc<Semaphore>) -> bool {
        let Ok(mut seat) = self.0.lock() else { return false };
        if seat.is_none() {
            *seat = seats.clone().try_acquire_owned().ok();
        }
        seat.is_some()
    }
}

/// One connection, which carries one request.
async fn converse(
    stream: TcpStream,
    hall: Arc<Hall>,
    leaving: watch::Receiver<bool>,
    guest: Arc<Guest>,
    patience: Duration,
) {
    // Until when the client has to do something; a stream that is read puts it off.
    let until = Arc::new(watch::Sender::new(Instant::now() + patience));
    let answer = service_fn(|request| {
        let (hall, guest, leaving, until) = (hall.clone(), guest.clone(), leaving.clone(), until.clone());
        async move { Ok::<_, Infallible>(hall.answer(&request, &guest, leaving, until).await) }
    });
    let mut builder = http1::Builder::new();
    let connection = builder.keep_alive(false).max_buf_size(1 << 16).serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    loop {
        let end = *until.borrow();
        tokio::select! {
            result = &mut connection => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a request failed");
                }
                return;
            }
            () = sleep_until(end) => {
                if *until.borrow() <= Instant::now() {
                    tracing::debug!("a client took too long");
                    return;
                }
            }
        }
    }
}

impl Hall {
    async fn answer(
        &self,
        request: &Request<Incoming>,
        guest: &Guest,
        leaving: watch::Receiver<bool>,
        until: Arc<watch::Sender<Instant>>,
    ) -> Response<Answer> {
        let header = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
        let host = header(HOST).or(request.uri().authority().map(|authority| authority.as_str()));
        if let Err(refused) = self.access.check(host, request.uri().query(), self.port) {
            return match refused {
                Refused::Host => plain(
                    StatusCode::MISDIRECTED_REQUEST,
                    "this is not served under that name; open it at the address that the program printed\n",
                ),
                Refused::Token => plain(
                    StatusCode::FORBIDDEN,
                    "the token is missing or wrong; open the address that the program printed, with its token\n",
                ),
            };
        }
        if !guest.admit(&self.seats) {
            let mut response =
                plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections; close some, or try again later\n");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
            return response;
        }
        let (path, is_read) = (request.uri().path(), [Method::GET, Method::HEAD].contains(request.method()));
        let from_elsewhere = header(HeaderName::from_static("sec-fetch-site")).is_some_and(|site| site == "cross-site");
        if let (Some(act), Some(wanted)) = (&self.site.act, path.strip_prefix("/peers/")) {
            if *request.method() != Method::POST {
                return not_allowed("POST");
            }
            if from_elsewhere || header(MARK) != Some("page") {
                return plain(StatusCode::FORBIDDEN, "only the page itself may do this\n");
            }
            return carry_out(act, wanted).await;
        }
        let (shows_page, shows_metrics) = (self.site.page.as_ref(), self.site.metrics.as_ref());
        match (path, shows_page, shows_metrics) {
            ("/" | "/events" | "/state", Some(_), _) | ("/metrics", _, Some(_)) | ("/", None, Some(_)) if !is_read => {
                not_allowed("GET, HEAD")
            }
            ("/", Some(_), _) => page(),
            ("/state", Some(feed), _) => text("application/json", feed.borrow().json()),
            ("/events", Some(feed), _) if *request.method() == Method::GET => events(feed.subscribe(), leaving, until),
            ("/metrics", _, Some(metrics)) | ("/", None, Some(metrics)) => {
                text("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.page())
            }
            (_, None, _) => plain(StatusCode::NOT_FOUND, "ask for GET /metrics\n"),
            _ => plain(StatusCode::NOT_FOUND, "there is nothing here; the page is at /\n"),
        }
    }
}

/// Does what a button asks for: `wanted` is such as `3/kill`.
async fn carry_out(act: &Act, wanted: &str) -> Response<Answer> {
    let parsed = wanted.split_once('/').and_then(|(party, action)| {
        let action = match action {
            "kill" => Action::Kill,
            "start" => Action::Start,
            _ => return None,
        };
        Some((party.parse().ok()?, action))
    });
    let Some((party, action)) = parsed else {
        return plain(
            StatusCode::NOT_FOUND,
            "there is no such action; ask for /peers/NUMBER/kill or /peers/NUMBER/start\n",
        );
    };
    let (reply, outcome) = oneshot::channel();
    act(party, action, Reply(reply));
    match timeout(ACTION, outcome).await {
        Ok(Ok(Ok(()))) => plain(StatusCode::OK, "done\n"),
        Ok(Ok(Err(reason))) => plain(StatusCode::CONFLICT, &format!("{reason}\n")),
        _ => plain(StatusCode::SERVICE_UNAVAILABLE, "the demo is ending, or busy; try again\n"),
    }
}

/// The page, which a browser that obeys its policy lets load nothing from elsewhere and run nothing but its own script.
fn page() -> Response<Answer> {
    let Ok(random) = getrandom::u64().and_then(|a| Ok((a, getrandom::u64()?))) else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "the operating system returned no random number\n");
    };
    let nonce = format!("{:016x}{:016x}", random.0, random.1);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = text("text/html; charset=utf-8", PAGE.replace("{{NONCE}}", &nonce));
    let policy = HeaderValue::from_str(&policy).expect("hexadecimal digits");
    response.headers_mut().insert("content-security-policy", policy);
    response
}

/// The state now, and every one to come, as server-sent events.
fn events(
    mut feed: watch::Receiver<State>,
    mut leaving: watch::Receiver<bool>,
    until: Arc<watch::Sender<Instant>>,
) -> Response<Answer> {
    let (to_client, messages) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut last = false;
        loop {
            let message = feed.borrow_and_update().event();
            // There is room as soon as the one before was taken.
            if to_client.send(message).await.is_err() || last {
                return;
            }
            until.send_replace(Instant::now() + UNREAD);
            let quiet = Instant::now() + QUIET;
            tokio::time::sleep(PACE).await;
            last = tokio::select! {
                changed = feed.changed() => changed.is_err(),
                () = async { drop(leaving.wait_for(|leaving| *leaving).await) } => true,
                () = sleep_until(quiet) => false,
            };
        }
    });
    answer(StatusCode::OK, "text/event-stream", Answer::Stream(messages))
}

fn text(kind: &'static str, body: impl Into<Bytes>) -> Response<Answer> {
    answer(StatusCode::OK, kind, Answer::Whole(Some(body.into())))
}

fn plain(status: StatusCode, words: &str) -> Response<Answer> {
    answer(status, "text/plain; charset=utf-8", Answer::Whole(Some(words.as_bytes().to_vec().into())))
}

fn not_allowed(methods: &'static str) -> Response<Answer> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, &format!("ask with {methods}\n"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn answer(status: StatusCode, kind: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        // The address may contain the token.
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("x-frame-options"), "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// What is sent back: all at once, or message by message.
enum Answer {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Answer::Whole(body) => Poll::Ready(body.take().map(|bytes| Ok(Frame::data(bytes)))),
            Answer::Stream(messages) => {
                messages.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Whole(None))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Answer::Whole(body) => hyper::body::SizeHint::with_exact(body.as_ref().map_or(0, |b| b.len() as u64)),
            Answer::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What a page answers to these bytes with so much patience, until it closes the connection.
    async fn exchange(request: &str, patience: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let site = Site { page: Some(Arc::new(Feed::new("{}".into()))), ..Site::default() };
        let hall = Arc::new(Hall { site, access: Access::Anybody, port: 0, seats: Arc::new(Semaphore::new(1)) });
        let (_farewell, leaving) = watch::channel(false);
        tokio::spawn(converse(stream, hall, leaving, Arc::default(), patience));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_client_that_sends_no_request_is_cut_off() {
        let started = Instant::now();
        for request in ["", "GET / HTTP/1.1\r\n"] {
            assert_eq!(exchange(request, Duration::from_millis(50)).await, "");
        }
        assert!(started.elapsed() < PATIENCE);
    }
}
