//! The communication graph: connected and undirected.

mod generate;
mod spectrum;

use std::sync::OnceLock;

pub use generate::GraphSpec;
pub use spectrum::{Gossip, Spectrum};

use thiserror::Error;

use crate::names::{Names, shorten};

/// A graph that no study can run on.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum GraphError {
    /// Some clients cannot reach some others.
    #[error(
        "the graph has {} components that cannot reach each other: {}; add edges between them",
        .0.len(), components_text(.0)
    )]
    Disconnected(Vec<Vec<String>>),
    /// An edge that joins nothing, or a client with itself.
    #[error("{0}")]
    BadEdge(String),
    /// The requested graph does not exist.
    #[error("{0}")]
    Impossible(String),
}

fn components_text(components: &[Vec<String>]) -> String {
    let sets: Vec<String> = components.iter().map(|members| format!("{{{}}}", shorten(members, 4))).collect();
    shorten(&sets, 4)
}

/// A connected undirected graph; neighbours are listed by ascending id, which is the order of every sum over them.
#[derive(Debug, Clone)]
pub struct Graph {
    starts: Vec<u32>,
    neighbours: Vec<u32>,
    gossip: OnceLock<Gossip>,
}

/// Compares edges only, not what was computed from them.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        (&self.starts, &self.neighbours) == (&other.starts, &other.neighbours)
    }
}

impl Graph {
    /// From undirected edges between the clients 0..K; repeated edges count once. The names are used in messages.
    pub fn from_edges(names: &Names, edges: &[(u32, u32)]) -> Result<Self, GraphError> {
        let clients = names.len();
        let mut degree = vec![0u32; clients + 1];
        for &(a, b) in edges {
            if a == b || a.max(b) as usize >= clients {
                return Err(GraphError::BadEdge(format!(
                    "edge (\"{}\", \"{}\") must join two different clients",
                    names.get(a as usize),
                    names.get(b as usize)
                )));
            }
            degree[a as usize + 1] += 1;
            degree[b as usize + 1] += 1;
        }
        let mut starts = degree;
        for k in 0..clients {
            starts[k + 1] += starts[k];
        }
        let mut next = starts.clone();
        let mut neighbours = vec![0; edges.len() * 2];
        for &(a, b) in edges {
            for (from, to) in [(a, b), (b, a)] {
                neighbours[next[from as usize] as usize] = to;
                next[from as usize] += 1;
            }
        }
        drop(next);
        let graph = Self { starts, neighbours, gossip: OnceLock::new() }.sorted();
        let components = graph.components();
        if components.len() > 1 {
            let named = |members: &Vec<usize>| members.iter().map(|&k| names.get(k).into_owned()).collect();
            return Err(GraphError::Disconnected(components.iter().map(named).collect()));
        }
        Ok(graph)
    }

    /// Sorts each list and drops repetitions, in place.
    fn sorted(mut self) -> Self {
        let mut write = 0;
        for k in 0..self.clients() {
            let (start, end) = (self.starts[k] as usize, self.starts[k + 1] as usize);
            self.neighbours[start..end].sort_unstable();
            self.starts[k] = write as u32;
            for i in start..end {
                let neighbour = self.neighbours[i];
                if i == start || self.neighbours[write - 1] != neighbour {
                    self.neighbours[write] = neighbour;
                    write += 1;
                }
            }
        }
        *self.starts.last_mut().expect("one more than clients") = write as u32;
        self.neighbours.truncate(write);
        self
    }

    /// K, the number of clients.
    pub fn clients(&self) -> usize {
        self.starts.len() - 1
    }

    /// E, the number of undirected edges.
    pub fn edges(&self) -> usize {
        self.neighbours.len() / 2
    }

    /// The neighbours of client `k` by ascending id.
    pub fn neighbours(&self, k: usize) -> &[u32] {
        &self.neighbours[self.starts[k] as usize..self.starts[k + 1] as usize]
    }

    /// |N_k|.
    pub fn degree(&self, k: usize) -> usize {
        self.neighbours(k).len()
    }

    /// The largest number of neighbours.
    pub fn max_degree(&self) -> usize {
        self.starts.windows(2).map(|ends| (ends[1] - ends[0]) as usize).max().unwrap_or(0)
    }

    /// The sets of clients that can reach each other, each sorted, by their least member.
    fn components(&self) -> Vec<Vec<usize>> {
        let mut seen = vec![false; self.clients()];
        let mut components = Vec::new();
        let mut queue = Vec::new();
        for root in 0..self.clients() {
            if seen[root] {
                continue;
            }
            seen[root] = true;
            queue.push(root);
            let mut members = Vec::new();
            while let Some(k) = queue.pop() {
                members.push(k);
                for &l in self.neighbours(k) {
                    if !std::mem::replace(&mut seen[l as usize], true) {
                        queue.push(l as usize);
                    }
                }
            }
            members.sort_unstable();
            components.push(members);
        }
        components
    }
}
