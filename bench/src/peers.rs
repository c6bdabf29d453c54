//! Peers: many in memory, ten as processes over loopback, and the limit set by the disk.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use undertone_core::identity::Identity;
use undertone_core::privacy::Stream;
use undertone_core::records::Dataset;
use undertone_core::study::Study;
use undertone_testing::{Cohort, Faults, World};

const RECORDS: usize = 50;

/// A study for peers with these keys.
fn study(features: usize, rounds: u32, noise: &str, clients: &[(String, Option<u16>)]) -> String {
    let names: Vec<String> = (1..=features).map(|p| format!("\"x{p}\"")).collect();
    let mut text = format!(
        "name = \"bench\"\nrounds = {rounds}\n[problem]\nloss = \"absolute\"\n\
         [graph]\nkind = \"random\"\nmean_degree = 3\n\
         [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.5\neta = 0.5\ndecay = \"sqrt\"\n\
         [privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 1\nnoise = \"{noise}\"\n\
         [data]\nsource = \"folder\"\nrecords = {RECORDS}\ntarget = \"y\"\nfeatures = [{}]\nbounds.y = [-1, 1]\n",
        names.join(", ")
    );
    (1..=features).for_each(|p| writeln!(text, "bounds.x{p} = [-1, 1]").expect("text"));
    for (k, (id, port)) in clients.iter().enumerate() {
        let _ = writeln!(text, "[client.peer{k:03}]\nid = \"{id}\"\naddress = \"127.0.0.1:{}\"", port.unwrap_or(1));
    }
    text
}

fn rows(k: usize, records: usize, features: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Stream { trial: 0, client: k as u32, round: 0 }.fast(1);
    let mut draw = |count: usize| (0..count).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect::<Vec<f64>>();
    (draw(records * features), draw(records))
}

/// Rounds per second of 50 peers in one process and one thread.
pub fn memory(rounds: u32) {
    const CLIENTS: usize = 50;
    let identities: Vec<_> = (0..CLIENTS).map(|k| Arc::new(Identity::from_secret(&[k as u8 + 1; 32]))).collect();
    let clients: Vec<_> = identities.iter().map(|i| (i.id().to_string(), None)).collect();
    let study = Study::parse(&study(8, rounds, "fast", &clients), "bench").expect("a valid study");
    let data = |k| {
        let (x, y) = rows(k, RECORDS, 8);
        Dataset::new(&x, &y, 8, study.clipping())
    };
    let data = (0..CLIENTS).map(data).collect();
    let cohort = Cohort::new(study.clone(), identities, data).expect("a valid roster");
    let mut world = World::new(cohort, Faults::default(), 1);
    let started = Instant::now();
    let all = |world: &World| (0..CLIENTS).all(|k| world.node(k).is_some_and(|n| n.round() == rounds));
    assert!(world.run_until(Duration::MAX, all).expect("no node stops"));
    println!("{:.1}", f64::from(rounds) / started.elapsed().as_secs_f64());
}

/// So many peers with secure noise and durable ledgers in one process, over real sockets of loopback, from start to model: seconds, rounds per second, the memory of the process
/// in MB, its threads at most, and whether all have the same model.
pub fn many(count: usize, rounds: u32) {
    use undertone_peer::run::{Confirmed, Options, Source, run};
    let folder = std::env::temp_dir().join(format!("undertone-bench-many-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for measurements");
    let secret = |k: usize| {
        let mut secret = [7; 32];
        secret[..8].copy_from_slice(&(k as u64).to_le_bytes());
        secret
    };
    let identities: Vec<_> = (0..count).map(|k| Arc::new(Identity::from_secret(&secret(k)))).collect();
    // All ports are held until all are known, so that they differ.
    let held: Vec<_> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let port = |k: usize| held[k].local_addr().expect("bound").port();
    let clients: Vec<_> = identities.iter().enumerate().map(|(k, i)| (i.id().to_string(), Some(port(k)))).collect();
    let text = study(8, rounds, "secure", &clients);
    let study = Arc::new(Study::parse(&text, "bench").expect("a valid study"));
    drop(held);
    let started = Instant::now();
    let (rounds_done, most_threads) = (AtomicU32::new(0), AtomicU64::new(0));
    let models: Vec<String> = std::thread::scope(|scope| {
        let peers: Vec<_> = identities
            .into_iter()
            .enumerate()
            .map(|(k, identity)| {
                let file = folder.join(format!("peer{k:03}.csv"));
                std::fs::write(&file, table(k, RECORDS, 8)).expect("data");
                let state = folder.join(format!("state{k}"));
                let mut options = Options::new(study.clone(), identity, Source::File(file), state);
                (options.confirmed, options.takes_signals) = (Confirmed::Yes, false);
                let rounds_done = &rounds_done;
                let peer = move || {
                    let report = run(&options, &mut |_| {}).unwrap_or_else(|e| panic!("peer {k}: {e}"));
                    rounds_done.fetch_add(1, Ordering::Relaxed);
                    let model = std::fs::read_to_string(report.folder.join("model.json")).expect("a model");
                    let at = model.find("\"scaled\"").expect("what all agree on");
                    model[at..].split(']').next().expect("numbers").to_string()
                };
                std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, peer).expect("a thread")
            })
            .collect();
        while (rounds_done.load(Ordering::Relaxed) as usize) < count && !peers.iter().any(|peer| peer.is_finished()) {
            most_threads.fetch_max(threads(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
        peers.into_iter().map(|peer| peer.join().expect("no peer fails")).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let same = models.iter().all(|model| *model == models[0]);
    println!(
        "{count} peers, {rounds} rounds: {seconds:.1} s, {:.1} MB, {} threads, the same model: {same}",
        crate::peak_memory() as f64 / 1e6,
        most_threads.into_inner()
    );
    let _ = std::fs::remove_dir_all(&folder);
}

/// Threads of this process.
fn threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Threads:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

struct Peer {
    process: Child,
    metrics: u16,
}

impl Peer {
    fn value(&self, name: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.lines().find_map(|line| line.strip_prefix(&format!("undertone_{name} "))?.parse().ok())
    }

    /// Peak memory of the process, in MB.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1000.0
    }
}

/// Ends processes even if the measurement fails.
struct Peers(Vec<Peer>);

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in &mut self.0 {
            let _ = peer.process.kill();
            let _ = peer.process.wait();
        }
    }
}

/// Bytes that have crossed the loopback device.
fn loopback_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|l| l.trim().strip_prefix("lo:").map(str::to_string)).unwrap_or_default();
    line.split_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(f64::NAN)
}

/// Rounds per second, MB of the largest peer, and bytes on the wire per message, of ten processes over loopback.
pub fn loopback(features: usize, noise: &str, durable: bool, seconds: u64) {
    let folder = std::env::temp_dir().join(format!("undertone-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for measurements");
    let program = std::env::current_exe().expect("this program").with_file_name("undertone");
    let held: Vec<_> = (0..10)
        .map(|_| (UdpSocket::bind("127.0.0.1:0").expect("a port"), TcpListener::bind("127.0.0.1:0").expect("a port")))
        .collect();
    let port = |k: usize| held[k].0.local_addr().expect("bound").port();
    let metrics: Vec<u16> = held.iter().map(|h| h.1.local_addr().expect("bound").port()).collect();
    let mut clients = Vec::new();
    for k in 0..10 {
        let key = Identity::from_secret(&[k as u8 + 1; 32]);
        write_key(&folder.join(format!("{k}.key")), &hex::encode(key.secret()));
        clients.push((key.id().to_string(), Some(port(k))));
        let records = if features > 1000 { 8 } else { RECORDS };
        std::fs::write(folder.join(format!("{k}.csv")), table(k, records, features)).expect("data");
    }
    std::fs::write(folder.join("study.toml"), study(features, 200_000, noise, &clients)).expect("the study");
    drop(held);
    let peers = metrics.into_iter().enumerate().map(|(k, metrics)| {
        let mut command = Command::new(&program);
        let file = |name: String| -> PathBuf { folder.join(name) };
        command.args(["peer", "--log", "none", "--study"]).arg(file("study.toml".into()));
        command.arg("--key").arg(file(format!("{k}.key"))).arg("--data").arg(file(format!("{k}.csv")));
        command.arg("--state").arg(file(format!("state{k}"))).args(["--metrics", &format!("127.0.0.1:{metrics}")]);
        command.arg("--rehearsal").args((!durable).then_some("--no-sync"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Peer { process: command.spawn().expect("target/release/undertone is built"), metrics }
    });
    let peers = Peers(peers.collect());
    let round = || peers.0[0].value("round").unwrap_or(0.0);
    let patience = Instant::now();
    while round() < 5.0 {
        assert!(patience.elapsed() < Duration::from_secs(120), "the peers do not start");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    let frames = || peers.0.iter().filter_map(|s| s.value("sent_frames_total")).sum::<f64>();
    let (from, started, sent, bytes) = (round(), Instant::now(), frames(), loopback_bytes());
    std::thread::sleep(Duration::from_secs(seconds));
    let (rate, bytes) = ((round() - from) / started.elapsed().as_secs_f64(), loopback_bytes() - bytes);
    let memory = peers.0.iter().map(Peer::memory).fold(0.0, f64::max);
    println!("{rate:.1} {memory:.1} {:.1}", bytes / (frames() - sent));
    drop(peers);
    let _ = std::fs::remove_dir_all(&folder);
}

fn write_key(path: &Path, secret: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| writeln!(file, "{secret}")).expect("a key");
}

fn table(k: usize, records: usize, features: usize) -> String {
    let (x, y) = rows(k, records, features);
    let head: Vec<String> = (1..=features).map(|p| format!("x{p}")).collect();
    let mut text = format!("{},y\n", head.join(","));
    for (x, y) in x.chunks(features).zip(y) {
        x.iter().for_each(|v| write!(text, "{v:.4},").expect("text"));
        let _ = writeln!(text, "{y:.4}");
    }
    text
}

/// Durable writes per second of each of `writers` threads that do nothing else, written as in the ledger: in a file whose
/// space was allocated in advance.
pub fn fdatasync(writers: usize, seconds: u64) {
    const RECORD: usize = 700;
    let folder = std::env::temp_dir();
    let counts = std::thread::scope(|scope| {
        let write = |k: usize| {
            let path = folder.join(format!("undertone-bench-sync-{}-{k}", std::process::id()));
            let file = std::fs::File::create(&path).expect("a file");
            file.write_all_at(&vec![0; 64 << 20], 0).and_then(|()| file.sync_all()).expect("room");
            let (started, mut count) = (Instant::now(), 0u64);
            while started.elapsed() < Duration::from_secs(seconds) {
                let at = count * RECORD as u64 % (63 << 20);
                file.write_all_at(&[1; RECORD], at).and_then(|()| file.sync_data()).expect("a write");
                count += 1;
            }
            let _ = std::fs::remove_file(path);
            count as f64 / started.elapsed().as_secs_f64()
        };
        let threads: Vec<_> = (0..writers).map(|k| scope.spawn(move || write(k))).collect();
        threads.into_iter().map(|t| t.join().expect("no writer fails")).collect::<Vec<f64>>()
    });
    println!("{:.1}", counts.iter().copied().fold(f64::INFINITY, f64::min));
}
