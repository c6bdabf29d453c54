//! Somebody who floods a peer: half-open dials, strange keys, and a key of the study that misbehaves; and a party that says what it likes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iroh::endpoint::{Connection, presets};
use iroh::{Endpoint, EndpointAddr, PublicKey, RelayMode, SecretKey};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PROTOCOL: &[u8] = b"undertone/1";

/// Whom to flood, and from where.
#[derive(Clone, Copy)]
pub struct Target {
    pub id: PublicKey,
    pub address: SocketAddr,
    /// Where the attacker is; the study does not name it.
    pub from: std::net::IpAddr,
}

impl Target {
    fn at(&self, address: SocketAddr) -> EndpointAddr {
        EndpointAddr::new(self.id).with_ip_addr(address)
    }

    async fn endpoint(&self, secret: [u8; 32]) -> Endpoint {
        Endpoint::builder(presets::Minimal)
            .secret_key(SecretKey::from_bytes(&secret))
            .relay_mode(RelayMode::Disabled)
            .clear_address_lookup()
            .clear_ip_transports()
            .bind_addr((self.from, 0))
            .unwrap()
            .bind()
            .await
            .unwrap()
    }
}

/// Runs something often, many at a time.
async fn often<F: Future<Output = ()> + Send + 'static>(count: usize, at_once: usize, make: impl Fn(usize) -> F) {
    let room = Arc::new(Semaphore::new(at_once));
    for k in 0..count {
        let permit = room.clone().acquire_owned().await.unwrap();
        let work = make(k);
        tokio::spawn(async move {
            work.await;
            drop(permit);
        });
    }
    let _ = room.acquire_many(at_once as u32).await;
}

/// Dials that send the first packet and never hear an answer: nothing of what the target says is passed on. Returns how many packets arrived at the target.
pub async fn half_open(target: Target, count: usize) -> usize {
    // What is sent here goes on to the target, each from a port of its own.
    let sink = Arc::new(UdpSocket::bind((target.from, 0)).await.unwrap());
    let address = sink.local_addr().unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let counted = passed.clone();
    let forward = tokio::spawn(async move {
        let mut packet = [0; 2048];
        loop {
            let (length, _) = sink.recv_from(&mut packet).await.unwrap();
            let out = UdpSocket::bind((target.from, 0)).await.unwrap();
            if out.send_to(&packet[..length], target.address).await.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let clients: Vec<Endpoint> = {
        let mut clients = Vec::new();
        for k in 0..8 {
            clients.push(target.endpoint([100 + k; 32]).await);
        }
        clients
    };
    often(count, 256, |k| {
        let client = clients[k % clients.len()].clone();
        async move {
            let _ = timeout(Duration::from_millis(400), client.connect(target.at(address), PROTOCOL)).await;
        }
    })
    .await;
    forward.abort();
    passed.load(Ordering::Relaxed)
}

/// Handshakes with keys that are not in the study. Returns how many were finished.
pub async fn strangers(target: Target, count: usize) -> usize {
    let finished = Arc::new(AtomicUsize::new(0));
    often(count, 128, |k| {
        let finished = finished.clone();
        async move {
            let mut secret = [7; 32];
            secret[..8].copy_from_slice(&(k as u64).to_le_bytes());
            let client = target.endpoint(secret).await;
            let connecting = client.connect(target.at(target.address), PROTOCOL);
            if let Ok(Ok(connection)) = timeout(Duration::from_secs(1), connecting).await {
                finished.fetch_add(1, Ordering::Relaxed);
                let _ = timeout(Duration::from_secs(1), connection.closed()).await;
            }
            let _ = timeout(Duration::from_secs(1), client.close()).await;
        }
    })
    .await;
    finished.load(Ordering::Relaxed)
}

/// Connections with a key of the study: some open no stream, some send half a frame, some send what is no hello. Returns how many were up.
pub async fn member(target: Target, secret: [u8; 32], count: usize) -> usize {
    let client = target.endpoint(secret).await;
    let up = Arc::new(AtomicUsize::new(0));
    often(count, 128, |k| {
        let (client, up) = (client.clone(), up.clone());
        async move {
            let connecting = client.connect(target.at(target.address), PROTOCOL);
            if let Ok(Ok(connection)) = timeout(Duration::from_secs(1), connecting).await {
                up.fetch_add(1, Ordering::Relaxed);
                let _ = misbehave(&connection, k).await;
                let _ = timeout(Duration::from_secs(8), connection.closed()).await;
            }
        }
    })
    .await;
    up.load(Ordering::Relaxed)
}

async fn misbehave(connection: &Connection, k: usize) -> Option<()> {
    if k.is_multiple_of(4) {
        return None;
    }
    let (mut send, _receive) = connection.open_bi().await.ok()?;
    let frame: &[u8] = match k % 4 {
        1 => &[200, 0, 0, 0, 1, 2, 3],
        2 => &[7, 0, 0, 0, 4, 1, 1, 9, 0, 0, 0],
        _ => &[255, 255, 255, 255],
    };
    send.write_all(frame).await.ok()?;
    let _ = timeout(Duration::from_secs(8), connection.closed()).await;
    Some(())
}

/// Connects with a key of the study, says these frames and listens for a while.
pub async fn say(target: Target, secret: [u8; 32], frames: &[Vec<u8>]) {
    let client = target.endpoint(secret).await;
    let connection = client.connect(target.at(target.address), PROTOCOL).await.unwrap();
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    for frame in frames {
        let bytes = [&(frame.len() as u32).to_le_bytes(), &frame[..]].concat();
        if send.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let _ = timeout(Duration::from_secs(5), connection.closed()).await;
}
