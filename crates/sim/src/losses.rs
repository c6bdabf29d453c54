//! Clients that are lost for good in the middle of a run, as `simulation.losses` asks for.
//!
//! They release nothing more, their edges are dropped with their share of the dual, and the model is the mean over those that are left. The
//! masks that others share with them stay in place, as between peers.

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

    /// The vectors of the clients that are left, one after the other.
    pub fn left(&self, all: &[f64], features: usize) -> Vec<f64> {
        let rows = all.chunks_exact(features).zip(&self.lost);
        rows.filter(|(_, lost)| !**lost).flat_map(|(row, _)| row.iter().copied()).collect()
    }
}
