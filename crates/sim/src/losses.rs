//! Clients that are lost for good in the middle of a run, as `simulation.losses` asks for.
//!
//! They release nothing more, their edges are dropped with their share of the dual, and the model is the mean over those that are left. The
//! masks that others share with them stay in place, as between peers. Clients that are cut off from most of the others by it count as lost too: a peer
//! without neighbours stops, and a small part of a network has no model of the study.

use rand::Rng;
use undertone_core::graph::Graph;
use undertone_core::privacy::Stream;
use undertone_core::study::{Study, StudyError};

/// Who is lost in a trial, and when.
pub struct LostClients {
    /// The last round of those that are lost.
    pub after: u32,
    lost: Vec<bool>,
    /// Of every client, those that are left.
    neighbours: Vec<Vec<u32>>,
}

impl LostClients {
    /// Draws the clients that are lost after half of the rounds; none if the study asks for none.
    pub fn draw(study: &Study, graph: &Graph, trial: u32) -> Result<Option<Self>, StudyError> {
        /// The "client" whose stream draws them.
        const LOSSES: u32 = u32::MAX - 2;
        let (count, clients) = (study.spec().simulation.losses, graph.clients());
        if count == 0 {
            return Ok(None);
        }
        if count + 2 > clients {
            let message = format!("= {count} of {clients} clients leaves fewer than two; lose fewer");
            return Err(StudyError::at("simulation.losses", message));
        }
        let mut rng = Stream { trial, client: LOSSES, round: 0 }.fast(study.spec().seed);
        let mut order: Vec<(u64, usize)> = (0..clients).map(|k| (rng.next_u64(), k)).collect();
        order.sort();
        let mut lost = vec![false; clients];
        order[..count].iter().for_each(|(_, k)| lost[*k] = true);
        let largest = largest_part(graph, &lost);
        lost.iter_mut().zip(largest).for_each(|(lost, stays)| *lost |= !stays);
        let left = |k: usize| graph.neighbours(k).iter().copied().filter(|&l| !lost[l as usize]).collect();
        let neighbours = (0..clients).map(left).collect();
        Ok(Some(Self { after: study.rounds() / 2, lost, neighbours }))
    }

    /// Whether a client is lost.
    pub fn is_lost(&self, client: usize) -> bool {
        self.lost[client]
    }

    /// The neighbours of a client that are left.
    pub fn neighbours(&self, client: usize) -> &[u32] {
        &self.neighbours[client]
    }
}

/// Who belongs to the largest connected part of a graph without those that are lost; the first of several.
fn largest_part(graph: &Graph, lost: &[bool]) -> Vec<bool> {
    let mut seen = lost.to_vec();
    let mut largest: Vec<usize> = Vec::new();
    for start in 0..lost.len() {
        if seen[start] {
            continue;
        }
        let (mut part, mut next) = (vec![start], 0);
        seen[start] = true;
        while next < part.len() {
            for &l in graph.neighbours(part[next]) {
                if !std::mem::replace(&mut seen[l as usize], true) {
                    part.push(l as usize);
                }
            }
            next += 1;
        }
        if part.len() > largest.len() {
            largest = part;
        }
    }
    let mut stays = vec![false; lost.len()];
    largest.into_iter().for_each(|k| stays[k] = true);
    stays
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_core::names::Names;

    #[test]
    fn those_that_are_cut_off_are_lost_too() {
        // 0 - 1 - 2 - 3 - 4, and 5 at 1.
        let graph = Graph::from_edges(&Names::numbered(6), &[(0, 1), (1, 2), (2, 3), (3, 4), (1, 5)]).unwrap();
        let without = |k: usize| largest_part(&graph, &std::array::from_fn::<bool, 6, _>(|l| l == k));
        assert_eq!(without(3), [true, true, true, false, false, true]);
        assert_eq!(without(1), [false, false, true, true, true, false]);
        assert_eq!(without(4), [true, true, true, true, false, true]);
    }
}
