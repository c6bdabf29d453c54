//! The server of pages and metrics, as a browser, a dashboard or an attacker sees it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use undertone_peer::ServerError;
use undertone_peer::metrics::Metrics;
use undertone_peer::page::{Action, Feed, Server, Site, State};

const LOCAL: &str = "127.0.0.1:0";

fn feed() -> Arc<Feed> {
    Arc::new(Feed::new(r#"{"round":1}"#.into()))
}

fn page(feed: &Arc<Feed>) -> Site {
    Site { metrics: Some(Arc::new(Metrics::default())), page: Some(feed.clone()), ..Site::default() }
}

fn start(site: Site) -> Server {
    Server::start(LOCAL.parse().unwrap(), site).unwrap()
}

fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The whole answer to a request.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut answer = String::new();
    send(address, request).read_to_string(&mut answer).unwrap();
    answer
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> String {
    exchange(address, &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"))
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status in {answer:?}"))
}

/// The messages of a stream, one at a time.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: SocketAddr) -> Self {
        Self(BufReader::new(send(address, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")))
    }

    /// The next message; nothing when the stream has ended.
    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.0.read_line(&mut line).unwrap() > 0 {
            if let Some(message) = line.strip_prefix("data: ") {
                return Some(message.trim().into());
            }
            line.clear();
        }
        None
    }
}

#[test]
fn a_page_loads_nothing_from_elsewhere() {
    let feed = feed();
    let server = start(page(&feed));
    let answer = ask(server.address, "GET", "/", "");
    assert_eq!(status(&answer), 200);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'nonce-"), "{head}");
    for header in [
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "referrer-policy: no-referrer",
        "x-frame-options: DENY",
    ] {
        assert!(head.contains(header), "{head}");
    }
    assert!(!body.contains("{{NONCE}}"));
    // The only address in the page is the name of the SVG namespace.
    let addresses = body.matches("://").count();
    assert_eq!(addresses, body.matches("http://www.w3.org/2000/svg").count());
    assert_ne!(
        ask(server.address, "GET", "/", "").split("\r\n").find(|l| l.starts_with("content-security")),
        head.split("\r\n").find(|l| l.starts_with("content-security"))
    );
    let head_only = ask(server.address, "HEAD", "/", "");
    assert!(head_only.ends_with("\r\n\r\n") && status(&head_only) == 200, "{head_only}");
}

#[test]
fn metrics_are_served_beside_the_page_and_alone() {
    let feed = feed();
    let beside = start(page(&feed));
    let alone = start(Site { metrics: Some(Arc::new(Metrics::default())), ..Site::default() });
    for (server, path) in [(&beside, "/metrics"), (&alone, "/metrics"), (&alone, "/"), (&alone, "/metrics?name=value")]
    {
        let answer = ask(server.address, "GET", path, "");
        assert_eq!(status(&answer), 200);
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
        assert!(answer.contains("\nundertone_round 0\n"), "{answer}");
    }
    // Dashboards ask under any name.
    let request = "GET /metrics HTTP/1.1\r\nHost: peer.example:9100\r\n\r\n";
    assert_eq!(status(&exchange(alone.address, request)), 200);
    for path in ["/other", "/events", "/state"] {
        let answer = ask(alone.address, "GET", path, "");
        assert!(status(&answer) == 404 && answer.ends_with("ask for GET /metrics\n"), "{answer}");
    }
}

#[test]
fn what_does_not_belong_there_gets_a_clear_answer() {
    let feed = feed();
    let server = start(page(&feed));
    let length = "Content-Length: 0\r\n";
    for (method, path, wanted) in [
        ("POST", "/", 405),
        ("POST", "/events", 405),
        ("PUT", "/state", 405),
        ("DELETE", "/metrics", 405),
        ("GET", "/nothing-here", 404),
        ("GET", "/peers/0/kill", 404),
        ("POST", "/peers/0/kill", 404),
    ] {
        let answer = ask(server.address, method, path, length);
        assert_eq!(status(&answer), wanted, "{method} {path}: {answer}");
        assert!(wanted != 405 || answer.contains("allow: GET, HEAD"), "{answer}");
    }
    for host in ["evil.example", "evil.example:80", ""] {
        let answer = exchange(server.address, &format!("GET /state HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(status(&answer) == 421 && !answer.contains("round"), "{answer}");
    }
    assert_eq!(status(&exchange(server.address, "GET /state HTTP/1.1\r\n\r\n")), 421);
    assert_eq!(status(&exchange(server.address, "not HTTP at all\r\n\r\n")), 400);
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    assert!((400..500).contains(&status(&exchange(server.address, &long))));
    assert_eq!(status(&ask(server.address, "GET", "/state", "")), 200);
}

#[test]
fn streams_get_every_newest_state_and_the_last_one() {
    let feed = feed();
    let server = start(page(&feed));
    let mut events = Events::open(server.address);
    assert_eq!(events.next().as_deref(), Some(r#"{"round":1}"#));
    feed.send_replace(r#"{"round":2}"#.into());
    assert_eq!(events.next().as_deref(), Some(r#"{"round":2}"#));
    // Many in one moment: the newest comes, not all.
    (3..1000).for_each(|round| drop(feed.send_replace(format!("{{\"round\":{round}}}").into())));
    let mut seen = 0;
    while events.next().as_deref() != Some(r#"{"round":999}"#) {
        seen += 1;
        assert!(seen < 10);
    }
    feed.send_replace(r#"{"stage":"finished"}"#.into());
    drop(server);
    let mut last = None;
    while let Some(message) = events.next() {
        last = Some(message);
    }
    assert_eq!(last.as_deref(), Some(r#"{"stage":"finished"}"#));
}

#[test]
fn too_many_streams_are_turned_away_and_nothing_is_kept_of_them() {
    let feed = feed();
    let server = start(page(&feed));
    let request = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let streams: Vec<TcpStream> = (0..150).map(|_| send(server.address, request)).collect();
    let refused = ask(server.address, "GET", "/", "");
    assert!(status(&refused) == 503 && refused.contains("too many connections"), "{refused}");
    // States that nobody reads: one waits for each stream at most.
    let large: State = format!("{{\"x\":\"{}\"}}", "x".repeat(1 << 16)).into();
    (0..1000).for_each(|_| drop(feed.send_replace(large.clone())));
    drop(streams);
    let end = Instant::now() + Duration::from_secs(30);
    while status(&ask(server.address, "GET", "/", "")) != 200 {
        assert!(Instant::now() < end, "seats of clients that are gone are not given back");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_client_that_is_gone_in_the_middle_leaves_its_seat() {
    let feed = feed();
    let server = start(page(&feed));
    for _ in 0..200 {
        let mut events = Events::open(server.address);
        assert!(events.next().is_some());
    }
    let end = Instant::now() + Duration::from_secs(30);
    while feed.receiver_count() > 0 {
        assert!(Instant::now() < end, "{} streams are left", feed.receiver_count());
        feed.send_replace(r#"{"round":2}"#.into());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn only_the_page_itself_does_what_its_buttons_do() {
    let done = Arc::new(Mutex::new(Vec::new()));
    let log = done.clone();
    let act = Arc::new(move |party: usize, action: Action, reply: undertone_peer::page::Reply| {
        log.lock().unwrap().push((party, action));
        reply.tell(if party < 3 { Ok(()) } else { Err(format!("there is no hospital {party}")) });
    });
    let feed = feed();
    let server = start(Site { act: Some(act), ..page(&feed) });
    let post =
        |path: &str, headers: &str| ask(server.address, "POST", path, &format!("Content-Length: 0\r\n{headers}"));
    assert_eq!(status(&post("/peers/1/kill", "")), 403);
    assert_eq!(status(&post("/peers/1/kill", "X-Undertone: page\r\nSec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(status(&ask(server.address, "GET", "/peers/1/kill", "X-Undertone: page\r\n")), 405);
    for path in ["/peers/x/kill", "/peers/1", "/peers/-1/kill", "/peers/1/other"] {
        assert_eq!(status(&post(path, "X-Undertone: page\r\n")), 404, "{path}");
    }
    assert!(done.lock().unwrap().is_empty());
    assert_eq!(status(&post("/peers/1/kill", "X-Undertone: page\r\nSec-Fetch-Site: same-origin\r\n")), 200);
    assert_eq!(status(&post("/peers/1/start", "X-Undertone: page\r\n")), 200);
    let refused = post("/peers/7/kill", "X-Undertone: page\r\n");
    assert!(status(&refused) == 409 && refused.ends_with("there is no hospital 7\n"), "{refused}");
    assert_eq!(*done.lock().unwrap(), [(1, Action::Kill), (1, Action::Start), (7, Action::Kill)]);
}

#[test]
fn a_token_opens_the_page_and_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let feed = feed();
    let server = start(Site { token: Some(token.clone()), ..page(&feed) });
    let secret = std::fs::read_to_string(token).unwrap().trim().to_string();
    assert_eq!(server.url, format!("http://{}/?token={secret}", server.address));
    for path in ["/", "/events", "/state", "/metrics"] {
        assert_eq!(status(&ask(server.address, "GET", path, "")), 403, "{path}");
        assert_eq!(status(&ask(server.address, "GET", &format!("{path}?token={}x", &secret[1..]), "")), 403, "{path}");
    }
    for path in ["/", "/state", "/metrics"] {
        let request = format!("GET {path}?token={secret} HTTP/1.1\r\nHost: peer.example\r\n\r\n");
        assert_eq!(status(&exchange(server.address, &request)), 200, "{path}");
    }
}

/// Whoever has not asked with the token holds no seat, and makes room for whoever comes later.
#[test]
fn strangers_do_not_keep_the_owner_of_the_token_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let feed = feed();
    let server = start(Site { token: Some(path.clone()), ..page(&feed) });
    let started = Instant::now();
    let silent: Vec<TcpStream> = (0..260).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let wrong: Vec<TcpStream> =
        (0..40).map(|_| send(server.address, "GET /events?token=0123456789abcdef HTTP/1.1\r\n")).collect();
    let token = std::fs::read_to_string(path).unwrap();
    let answer = ask(server.address, "GET", &format!("/state?token={}", token.trim()), "");
    assert_eq!(status(&answer), 200, "{answer}");
    // Before they are cut off for saying nothing, which takes five seconds.
    let mut first = &silent[0];
    first.set_read_timeout(Some(Duration::from_millis(4500).saturating_sub(started.elapsed()))).unwrap();
    let ended = first.read(&mut [0]);
    let is_cut_off = matches!(ended, Ok(0)) || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
    assert!(is_cut_off && started.elapsed() < Duration::from_millis(4500));
    drop(wrong);
}

#[test]
fn an_address_that_cannot_be_used_is_named() {
    let feed = feed();
    let server = start(page(&feed));
    let error = Server::start(server.address, page(&feed)).unwrap_err();
    assert!(matches!(error, ServerError::Address { .. }));
    assert!(
        error.to_string().contains(&server.address.to_string()) && error.to_string().contains("choose another"),
        "{error}"
    );
    let open = Server::start("0.0.0.0:0".parse().unwrap(), page(&feed)).unwrap_err();
    assert!(open.to_string().contains("--page-token"), "{open}");
    // Numbers for operators are no secret.
    drop(
        Server::start("0.0.0.0:0".parse().unwrap(), Site { metrics: Some(Arc::default()), ..Site::default() }).unwrap(),
    );
}
