//! Who may connect, before it is known who it is: a peer must work on while somebody floods it.
//!
//! A handshake costs memory and about a millisecond of work, and anybody can begin one. So few are under way at a time. When there are some, whoever comes must first show
//! that it receives what is sent to its address (QUIC Retry, which keeps nothing here), and every address has its share only, in number and in rate. The addresses that
//! the study names have a share of their own, which strangers elsewhere cannot use up. A key of the study has few connections at a time.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use iroh::endpoint::{Incoming, IncomingAddr};
use undertone_core::node::Roster;

/// Handshakes under way from which on addresses are validated.
const VALIDATED: usize = 8;
/// Handshakes under way at most, of all addresses that the study does not name.
const MOST: usize = 32;
/// Handshakes of one address under way at most, and this many more for every peer that the study has there.
const MOST_OF_ADDRESS: usize = 16;
const MORE_OF_PEER: usize = 4;
/// Handshakes that begin in a second, once a few have begun at once: of all addresses that the study does not name together, and of one that it does.
const PER_SECOND: f64 = 20.0;
/// How many may begin at once, and this many more for every peer that the study has at the address.
const AT_ONCE: f64 = 40.0;
/// Connections with one key. The node keeps fewer.
const MOST_OF_KEY: usize = 6;

/// A number that grows with time, up to a limit, and is used up.
#[derive(Debug)]
struct Allowance {
    left: f64,
    most: f64,
    at: Instant,
}

impl Allowance {
    fn new(most: f64, now: Instant) -> Self {
        Self { left: most, most, at: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        self.left = (self.left + PER_SECOND * now.saturating_duration_since(self.at).as_secs_f64()).min(self.most);
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

/// What is under way.
#[derive(Debug)]
struct Counts {
    /// Of addresses that the study does not name, and of all.
    of_strangers: usize,
    under_way: usize,
    of_address: HashMap<Option<IpAddr>, usize>,
    /// Of strangers together, under no address, and of addresses that the study names.
    allowances: HashMap<Option<IpAddr>, Allowance>,
    of_key: HashMap<u32, usize>,
}

/// What to do with somebody who comes.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    LetIn,
    Validate,
    Ignore,
}

/// Decides who is let in.
#[derive(Debug)]
pub(super) struct Gate {
    /// The addresses that the study names, with how many peers are there.
    known: HashMap<IpAddr, usize>,
    counts: Mutex<Counts>,
}

impl Gate {
    pub fn new(roster: &Roster) -> Arc<Self> {
        let address = |text: &Option<String>| Some(text.as_ref()?.parse::<SocketAddr>().ok()?.ip());
        let mut known = HashMap::new();
        roster.addresses.iter().filter_map(address).for_each(|address| *known.entry(address).or_default() += 1);
        Self::knowing(known)
    }

    fn knowing(known: HashMap<IpAddr, usize>) -> Arc<Self> {
        let counts = Counts {
            of_strangers: 0,
            under_way: 0,
            of_address: HashMap::new(),
            allowances: HashMap::new(),
            of_key: HashMap::new(),
        };
        Arc::new(Self { known, counts: Mutex::new(counts) })
    }

    /// Lets somebody in, with a pass that counts as long as it is kept, or sends it away without keeping anything.
    pub fn let_in(self: &Arc<Self>, incoming: Incoming) -> Option<(Incoming, Pass)> {
        let address = match incoming.remote_addr() {
            IncomingAddr::Ip(socket) => Some(socket.ip()),
            _ => None,
        };
        match self.answer(address, incoming.remote_addr_validated(), Instant::now()) {
            Answer::LetIn => Some((incoming, Pass { gate: self.clone(), address })),
            Answer::Validate => {
                let _ = incoming.retry();
                None
            }
            Answer::Ignore => {
                incoming.ignore();
                None
            }
        }
    }

    /// How many peers of the study are at an address.
    fn peers_at(&self, address: Option<IpAddr>) -> usize {
        address.and_then(|address| self.known.get(&address)).copied().unwrap_or(0)
    }

    fn answer(&self, address: Option<IpAddr>, is_validated: bool, now: Instant) -> Answer {
        let peers = self.peers_at(address);
        let more = peers * MORE_OF_PEER;
        let mut counts = self.counts.lock().expect("no panic while it is held");
        if !is_validated && counts.under_way >= VALIDATED {
            return Answer::Validate;
        }
        let of_address = counts.of_address.get(&address).copied().unwrap_or(0);
        if of_address >= MOST_OF_ADDRESS + more || (peers == 0 && counts.of_strangers >= MOST) {
            return Answer::Ignore;
        }
        let allowance = counts.allowances.entry(address.filter(|_| peers > 0));
        if !allowance.or_insert_with(|| Allowance::new(AT_ONCE + more as f64, now)).take(now) {
            return Answer::Ignore;
        }
        counts.under_way += 1;
        counts.of_strangers += usize::from(peers == 0);
        *counts.of_address.entry(address).or_default() += 1;
        Answer::LetIn
    }

    /// A place for a connection with a key of the study, if it has not too many.
    pub fn seat(self: &Arc<Self>, peer: u32) -> Option<Seat> {
        let mut counts = self.counts.lock().expect("no panic while it is held");
        let taken = counts.of_key.entry(peer).or_default();
        if *taken >= MOST_OF_KEY {
            return None;
        }
        *taken += 1;
        Some(Seat { gate: self.clone(), peer })
    }
}

/// A handshake that is under way.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    address: Option<IpAddr>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let peers = self.gate.peers_at(self.address);
        let mut counts = self.gate.counts.lock().expect("no panic while it is held");
        counts.under_way -= 1;
        counts.of_strangers -= usize::from(peers == 0);
        if let Some(count) = counts.of_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.of_address.remove(&self.address);
            }
        }
    }
}

/// A connection with a key of the study.
#[derive(Debug)]
pub(super) struct Seat {
    gate: Arc<Gate>,
    peer: u32,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().expect("no panic while it is held");
        if let Some(count) = counts.of_key.get_mut(&self.peer) {
            *count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([127, 0, 0, last]))
    }

    #[test]
    fn strangers_do_not_keep_peers_out() {
        let gate = Gate::knowing(HashMap::from([(address(1).unwrap(), 1)]));
        let now = Instant::now();
        let pass = |who| Pass { gate: gate.clone(), address: who };
        let mut passes = Vec::new();
        // Many strangers, each at an address of its own: the first few are let in as they are, then those that show their address.
        for k in 0..200 {
            match gate.answer(address(10 + k), false, now) {
                Answer::LetIn => passes.push(pass(address(10 + k))),
                Answer::Validate => assert!(passes.len() >= VALIDATED),
                Answer::Ignore => panic!("not before it is validated"),
            }
        }
        assert_eq!(passes.len(), VALIDATED);
        for k in 0..200 {
            if gate.answer(address(10 + k), true, now) == Answer::LetIn {
                passes.push(pass(address(10 + k)));
            }
        }
        assert_eq!(passes.len(), MOST);
        // A peer is validated, and let in.
        assert_eq!(gate.answer(address(1), false, now), Answer::Validate);
        for _ in 0..MOST_OF_ADDRESS + MORE_OF_PEER {
            assert_eq!(gate.answer(address(1), true, now), Answer::LetIn);
            passes.push(pass(address(1)));
        }
        assert_eq!(gate.answer(address(1), true, now), Answer::Ignore);
        passes.clear();
        let left = |counts: &Counts| (counts.under_way, counts.of_strangers);
        assert_eq!(left(&gate.counts.lock().unwrap()), (0, 0));
        assert!(gate.counts.lock().unwrap().of_address.is_empty());
        // However fast they end, they begin no faster than the rate; a second later again.
        let begun = |at| {
            (0..500)
                .filter(|_| {
                    gate.answer(address(9), true, at) == Answer::LetIn && {
                        drop(pass(address(9)));
                        true
                    }
                })
                .count()
        };
        assert_eq!(begun(now), AT_ONCE as usize - MOST);
        assert_eq!(begun(now + Duration::from_secs(1)), PER_SECOND as usize);
        assert_eq!(gate.answer(address(1), true, now), Answer::LetIn);
    }

    #[test]
    fn a_key_has_few_connections() {
        let gate = Gate::knowing(HashMap::new());
        let mut seats: Vec<_> = (0..10).filter_map(|_| gate.seat(3)).collect();
        assert_eq!(seats.len(), MOST_OF_KEY);
        assert!(gate.seat(4).is_some());
        seats.pop();
        assert!(gate.seat(3).is_some());
    }
}
