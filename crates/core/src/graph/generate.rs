//! The graphs a study can name.

use std::collections::HashSet;

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use super::{Graph, GraphError};
use crate::names::Names;

/// A recipe for a graph.
#[derive(Debug, Clone, PartialEq)]
pub enum GraphSpec {
    /// A random spanning tree plus random edges up to a mean degree.
    Random {
        /// 2E/K.
        mean_degree: f64,
    },
    /// Each client has edges to the previous and the next one.
    Ring,
    /// Each client has one edge, to client 1.
    Star,
    /// A square grid, filled row by row.
    Grid,
    /// All pairs of clients have an edge.
    Complete,
    /// A ring lattice whose edges are rewired at random (Watts, Strogatz 1998).
    SmallWorld {
        /// Neighbours in the lattice; even.
        degree: usize,
        /// Probability that an edge is rewired.
        rewire: f64,
    },
    /// Random, every client with the same number of neighbours.
    Regular {
        /// The number of neighbours.
        degree: usize,
    },
    /// Edges written in the study, by client name.
    Edges(Vec<(String, String)>),
}

impl GraphSpec {
    /// The names a study can use.
    pub const NAMES: [&'static str; 8] =
        ["random", "ring", "star", "grid", "complete", "small-world", "regular", "edges"];

    /// The name of this one.
    pub fn name(&self) -> &'static str {
        match self {
            GraphSpec::Random { .. } => "random",
            GraphSpec::Ring => "ring",
            GraphSpec::Star => "star",
            GraphSpec::Grid => "grid",
            GraphSpec::Complete => "complete",
            GraphSpec::SmallWorld { .. } => "small-world",
            GraphSpec::Regular { .. } => "regular",
            GraphSpec::Edges(_) => "edges",
        }
    }

    /// Builds the graph over the named clients; `rng` is used by the random kinds.
    pub fn build(&self, names: &Names, rng: &mut impl Rng) -> Result<Graph, GraphError> {
        let clients = names.len();
        let k = clients as u32;
        let edges = match self {
            GraphSpec::Random { mean_degree } => random(k, *mean_degree, rng)?,
            GraphSpec::Ring => (0..k).map(|a| (a, (a + 1) % k)).filter(|(a, b)| a != b).collect(),
            GraphSpec::Star => (1..k).map(|a| (0, a)).collect(),
            GraphSpec::Grid => grid(k),
            GraphSpec::Complete => complete(k)?,
            GraphSpec::SmallWorld { degree, rewire } => small_world(k, *degree, *rewire, rng)?,
            GraphSpec::Regular { degree } => regular(k, *degree, rng)?,
            GraphSpec::Edges(pairs) => named(pairs, names)?,
        };
        Graph::from_edges(names, &edges)
    }
}

/// More edges than this are treated as an error.
const MOST_EDGES: usize = 100_000_000;

fn random(k: u32, mean_degree: f64, rng: &mut impl Rng) -> Result<Vec<(u32, u32)>, GraphError> {
    let clients = f64::from(k);
    let wanted = (clients * mean_degree / 2.0).round() as usize;
    let most = (clients * (clients - 1.0) / 2.0) as usize;
    let least = k as usize - 1;
    if wanted < least || wanted > most.min(MOST_EDGES) {
        return Err(GraphError::Impossible(format!(
            "a connected random graph of {k} clients needs a mean degree from {:.4} to {}",
            2.0 * least as f64 / clients,
            2.0 * most.min(MOST_EDGES) as f64 / clients
        )));
    }
    // A tree grown by attaching each client, in random order, to a random earlier one.
    let mut order: Vec<u32> = (0..k).collect();
    order.shuffle(rng);
    let mut edges: Vec<(u32, u32)> = Vec::with_capacity(wanted);
    for i in 1..order.len() {
        edges.push(ordered(order[i], order[rng.random_range(0..i)]));
    }
    // Draw what is missing, drop repetitions, and draw again: sorting needs a tenth of the memory of a hash set.
    if wanted * 2 > most {
        let have: HashSet<_> = edges.iter().copied().collect();
        let mut rest: Vec<_> = complete(k)?.into_iter().filter(|e| !have.contains(e)).collect();
        let (chosen, _) = rest.partial_shuffle(rng, wanted - least);
        edges.extend_from_slice(chosen);
        return Ok(edges);
    }
    loop {
        while edges.len() < wanted {
            let (a, b) = (rng.random_range(0..k), rng.random_range(0..k));
            if a != b {
                edges.push(ordered(a, b));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        if edges.len() == wanted {
            return Ok(edges);
        }
    }
}

fn ordered(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

fn complete(k: u32) -> Result<Vec<(u32, u32)>, GraphError> {
    if u64::from(k) * u64::from(k.saturating_sub(1)) / 2 > MOST_EDGES as u64 {
        return Err(GraphError::Impossible(format!(
            "a complete graph of {k} clients has more than {MOST_EDGES} edges; choose a sparser kind"
        )));
    }
    Ok((0..k).flat_map(|a| (a + 1..k).map(move |b| (a, b))).collect())
}

fn grid(k: u32) -> Vec<(u32, u32)> {
    let width = f64::from(k).sqrt().ceil() as u32;
    let mut edges = Vec::new();
    for a in 0..k {
        if (a + 1) % width != 0 && a + 1 < k {
            edges.push((a, a + 1));
        }
        if a + width < k {
            edges.push((a, a + width));
        }
    }
    edges
}

fn small_world(k: u32, degree: usize, rewire: f64, rng: &mut impl Rng) -> Result<Vec<(u32, u32)>, GraphError> {
    let most = (k as usize / 2) & !1;
    if most < 2 {
        return Err(GraphError::Impossible(format!(
            "a small world needs at least 4 clients and there are {k}; use kind = \"complete\""
        )));
    }
    if degree < 2 || !degree.is_multiple_of(2) || degree > most {
        return Err(GraphError::Impossible(format!(
            "a small world of {k} clients needs an even degree from 2 to {most}; for more use kind = \"random\" or \"complete\""
        )));
    }
    // Rewiring may disconnect the graph; as with any random kind, try again until it is connected.
    for _ in 0..1000 {
        let mut edges: HashSet<(u32, u32)> = HashSet::new();
        let lattice = (0..k).flat_map(|a| (1..=degree as u32 / 2).map(move |d| (a, (a + d) % k)));
        for (a, b) in lattice {
            let mut edge = ordered(a, b);
            if rng.random::<f64>() < rewire {
                let c = rng.random_range(0..k);
                if c != a && !edges.contains(&ordered(a, c)) {
                    edge = ordered(a, c);
                }
            }
            edges.insert(edge);
        }
        let mut edges: Vec<_> = edges.into_iter().collect();
        edges.sort_unstable();
        if Graph::from_edges(&Names::numbered(k as usize), &edges).is_ok() {
            return Ok(edges);
        }
    }
    Err(GraphError::Impossible(format!(
        "1000 small worlds of {k} clients with degree {degree} were all disconnected; raise the degree"
    )))
}

/// Random perfect matchings of edge ends (Steger, Wormald 1999): pair ends at random, keep the pairs that make a
/// simple graph, continue with the remaining ends, and restart when they cannot be paired.
fn regular(k: u32, degree: usize, rng: &mut impl Rng) -> Result<Vec<(u32, u32)>, GraphError> {
    let most = k as usize / 2;
    if most < 2 {
        return Err(GraphError::Impossible(format!(
            "a regular graph needs at least 4 clients and there are {k}; use kind = \"complete\""
        )));
    }
    let even = (degree * k as usize).is_multiple_of(2);
    if !(2..=most).contains(&degree) || !even || degree * k as usize > 2 * MOST_EDGES {
        return Err(GraphError::Impossible(format!(
            "a connected regular graph of {k} clients needs a degree from 2 to {most}, and degree times clients must be even; \
             for more use kind = \"random\" or \"complete\""
        )));
    }
    for _ in 0..1000 {
        let mut edges: HashSet<(u32, u32)> = HashSet::new();
        let mut ends: Vec<u32> = (0..k).flat_map(|a| std::iter::repeat_n(a, degree)).collect();
        for _ in 0..200 {
            ends.shuffle(rng);
            let mut left = Vec::new();
            for pair in ends.chunks_exact(2) {
                if pair[0] == pair[1] || !edges.insert(ordered(pair[0], pair[1])) {
                    left.extend_from_slice(pair);
                }
            }
            ends = left;
            if ends.is_empty() {
                break;
            }
        }
        if ends.is_empty() {
            let edges: Vec<_> = edges.into_iter().collect();
            if Graph::from_edges(&Names::numbered(k as usize), &edges).is_ok() {
                return Ok(edges);
            }
        }
    }
    Err(GraphError::Impossible(format!("no connected random graph of {k} clients with degree {degree} was found")))
}

fn named(pairs: &[(String, String)], names: &Names) -> Result<Vec<(u32, u32)>, GraphError> {
    let find = |name: &str| {
        names.find(name).map(|k| k as u32).ok_or_else(|| {
            GraphError::BadEdge(format!(
                "graph.edges names client \"{name}\", which does not exist; the clients are {names}"
            ))
        })
    };
    pairs.iter().map(|(a, b)| Ok((find(a)?, find(b)?))).collect()
}
