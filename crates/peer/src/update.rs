//! What a running peer tells its observer.

use std::net::SocketAddr;

use crate::metrics::Standing;

/// Reports of a running peer.
#[derive(Debug)]
pub enum Update<'a> {
    /// Its page is served at this address.
    Served(&'a str),
    /// It listens.
    Started(Started<'a>),
    /// Its progress.
    Standing(Standing),
    /// A frame came from a peer, given by its number in the roster; it was not looked at yet.
    Heard(u32, &'a [u8]),
    /// It released these values in a round.
    Released(u32, &'a [f64]),
}

/// How a peer starts.
#[derive(Debug)]
pub struct Started<'a> {
    /// Its name in the study.
    pub name: &'a str,
    /// Where it listens.
    pub listening: &'a [SocketAddr],
    /// Its neighbours.
    pub neighbours: Vec<String>,
    /// Its records.
    pub records: usize,
    /// The round after which it continues.
    pub round: u32,
    /// Whether its ledger was started just now.
    pub new_ledger: bool,
}
