//! Which clients a rank owns, and whose points it needs of others.

use std::ops::Range;
use std::sync::Arc;

use undertone_core::graph::Graph;
use undertone_core::privacy::Stream;

/// The clients of one rank, at places 0, 1, 2, ...: first those with neighbours elsewhere, so that their points can travel while the others are computed.
///
/// Points of clients elsewhere, of which copies are kept, follow after the own ones.
#[derive(Debug)]
pub struct Share {
    own: Arc<[u32]>,
    boundary: usize,
    copies: usize,
    starts: Vec<u32>,
    slots: Vec<u32>,
    partners: Vec<Partner>,
}

/// A rank with which points are exchanged.
#[derive(Debug)]
pub struct Partner {
    /// Which.
    pub rank: usize,
    /// The places of the own clients whose points it needs, by ascending id.
    pub sent: Vec<u32>,
    /// Which of the copies are of its clients.
    pub received: Range<usize>,
}

/// Divides the clients among ranks: `of[k]` is the rank of client k. Every rank has at least one.
///
/// Few edges should join clients of different ranks. METIS finds such a cut; without it clients are divided at random, which costs time and nothing else.
///
/// # Panics
/// If there are fewer clients than ranks.
pub fn cut(graph: &Graph, ranks: usize, seed: u64) -> Vec<u32> {
    assert!(ranks <= graph.clients(), "a client for every rank");
    #[cfg(feature = "mpi")]
    if let Some(of) = few_edges(graph, ranks) {
        return of;
    }
    at_random(graph.clients(), ranks, seed)
}

/// Parts of the same size, drawn at random.
pub fn at_random(clients: usize, ranks: usize, seed: u64) -> Vec<u32> {
    use rand::seq::SliceRandom;
    /// The "client" whose stream divides the clients.
    const CUT: u32 = u32::MAX - 4;
    let mut of: Vec<u32> = (0..clients).map(|k| (k % ranks) as u32).collect();
    of.shuffle(&mut Stream { trial: 0, client: CUT, round: 0 }.fast(seed));
    of
}

/// What METIS finds, if it takes the graph and gives every rank a client.
#[cfg(feature = "mpi")]
fn few_edges(graph: &Graph, ranks: usize) -> Option<Vec<u32>> {
    use metis::Idx;
    if ranks == 1 {
        return None;
    }
    let clients = graph.clients();
    let mut starts: Vec<Idx> = Vec::with_capacity(clients + 1);
    let mut neighbours: Vec<Idx> = Vec::with_capacity(2 * graph.edges());
    starts.push(0);
    for k in 0..clients {
        neighbours.extend(graph.neighbours(k).iter().map(|&l| l as Idx));
        starts.push(Idx::try_from(neighbours.len()).ok()?);
    }
    let mut parts = vec![0; clients];
    let whole = metis::Graph::new(1, Idx::try_from(ranks).ok()?, &starts, &neighbours).ok()?;
    whole.set_option(metis::option::Seed(0)).part_kway(&mut parts).ok()?;
    let of: Vec<u32> = parts.into_iter().map(|rank| rank as u32).collect();
    let mut seen = vec![false; ranks];
    of.iter().for_each(|&rank| seen[rank as usize] = true);
    seen.into_iter().all(|seen| seen).then_some(of)
}

impl Share {
    /// What belongs to a rank of a cut.
    pub fn new(graph: &Graph, of: &[u32], rank: usize) -> Self {
        let rank = rank as u32;
        let elsewhere = |k: u32| graph.neighbours(k as usize).iter().copied().filter(|&l| of[l as usize] != rank);
        let mine = || (0..graph.clients() as u32).filter(|&k| of[k as usize] == rank);
        let mut own: Vec<u32> = mine().filter(|&k| elsewhere(k).next().is_some()).collect();
        let boundary = own.len();
        own.extend(mine().filter(|&k| elsewhere(k).next().is_none()));
        // Copies by rank and id; and who needs which of the own.
        let mut copies: Vec<(u32, u32)> =
            own[..boundary].iter().flat_map(|&k| elsewhere(k).map(|l| (of[l as usize], l))).collect();
        copies.sort_unstable();
        copies.dedup();
        let mut place = vec![u32::MAX; graph.clients()];
        let ids = own.iter().chain(copies.iter().map(|(_, id)| id));
        ids.enumerate().for_each(|(at, &id)| place[id as usize] = at as u32);
        let mut partners: Vec<Partner> = Vec::new();
        for (i, &(rank, _)) in copies.iter().enumerate() {
            match partners.last_mut() {
                Some(last) if last.rank == rank as usize => last.received.end = i + 1,
                _ => partners.push(Partner { rank: rank as usize, sent: Vec::new(), received: i..i + 1 }),
            }
        }
        for (at, &k) in own[..boundary].iter().enumerate() {
            for l in elsewhere(k) {
                let rank = of[l as usize] as usize;
                let partner = partners.binary_search_by_key(&rank, |partner| partner.rank).expect("it has a copy");
                let sent = &mut partners[partner].sent;
                if sent.last() != Some(&(at as u32)) {
                    sent.push(at as u32);
                }
            }
        }
        let (mut starts, mut slots) = (vec![0], Vec::new());
        for &k in &own {
            slots.extend(graph.neighbours(k as usize).iter().map(|&l| place[l as usize]));
            starts.push(slots.len() as u32);
        }
        Self { own: own.into(), boundary, copies: copies.len(), starts, slots, partners }
    }

    /// The ids of the own clients, by place.
    pub fn own(&self) -> &Arc<[u32]> {
        &self.own
    }

    /// How many of the own clients have neighbours elsewhere.
    pub fn boundary(&self) -> usize {
        self.boundary
    }

    /// How many clients elsewhere are neighbours of own ones.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Where the points of the neighbours of an own client are, by ascending id.
    pub fn slots(&self, place: usize) -> &[u32] {
        &self.slots[self.starts[place] as usize..self.starts[place + 1] as usize]
    }

    /// The ranks with which points are exchanged.
    pub fn partners(&self) -> &[Partner] {
        &self.partners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_core::graph::GraphSpec;
    use undertone_core::names::Names;

    /// What each rank sends is what the other expects, and slots lead to the neighbours.
    #[test]
    fn shares_fit_together() {
        let names = Names::numbered(200);
        let graph = GraphSpec::Random { mean_degree: 4.0 }
            .build(&names, &mut Stream { trial: 0, client: 9, round: 0 }.fast(1))
            .unwrap();
        for ranks in 1..7 {
            for of in [cut(&graph, ranks, 3), at_random(200, ranks, 4)] {
                let shares: Vec<Share> = (0..ranks).map(|rank| Share::new(&graph, &of, rank)).collect();
                let mut owned: Vec<u32> = shares.iter().flat_map(|share| share.own.iter().copied()).collect();
                owned.sort_unstable();
                assert!(owned.into_iter().eq(0..200), "every client once");
                for (rank, share) in shares.iter().enumerate() {
                    let mut ids = share.own.to_vec();
                    for partner in &share.partners {
                        let other = &shares[partner.rank];
                        let back = other.partners.iter().find(|back| back.rank == rank).expect("both exchange");
                        assert_eq!(back.sent.len(), partner.received.len());
                        ids.extend(back.sent.iter().map(|&place| other.own[place as usize]));
                    }
                    assert_eq!(ids.len(), share.own.len() + share.copies);
                    for (place, &k) in share.own.iter().enumerate() {
                        let found: Vec<u32> = share.slots(place).iter().map(|&slot| ids[slot as usize]).collect();
                        assert_eq!(found, graph.neighbours(k as usize));
                    }
                }
            }
        }
    }
}
