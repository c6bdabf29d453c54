//! Clients that say what an attack wants instead of what they computed, as `simulation.liars` and `simulation.attack` ask for.
//!
//! They know what all others release in the same round and agree with each other, which is more than real ones can. They are other ones in every trial, placed so that where
//! the graph allows it no client has more than a fifth of its neighbours, or one, among them.

use rand::Rng;
use undertone_core::graph::Graph;
use undertone_core::privacy::Stream;
use undertone_core::study::{Attack, Study, StudyError};

use crate::data::Population;
use crate::ranks::Ranks;

/// The "client" whose stream draws who lies, and what is random in a lie.
const LIARS: u32 = u32::MAX - 3;
/// What is far outside of any sensible model.
const HUGE: f64 = 1e6;

/// Who lies in a trial, and how.
pub struct Liars {
    attack: Attack,
    lies: Vec<bool>,
    seed: u64,
    trial: u32,
    rounds: u32,
}

impl Liars {
    /// Draws the clients that lie; none if the study asks for none.
    pub fn draw(study: &Study, graph: &Graph, trial: u32) -> Result<Option<Self>, StudyError> {
        let (count, clients) = (study.spec().simulation.liars, graph.clients());
        if count == 0 {
            return Ok(None);
        }
        if 2 * count >= clients {
            let message = format!("= {count} of {clients} clients leaves no honest majority; let fewer lie");
            return Err(StudyError::at("simulation.liars", message));
        }
        let seed = study.spec().seed;
        let mut rng = Stream { trial, client: LIARS, round: 0 }.fast(seed);
        let mut order: Vec<(u64, usize)> = (0..clients).map(|k| (rng.next_u64(), k)).collect();
        order.sort();
        let mut lies = vec![false; clients];
        let crowded = |lies: &[bool], k: usize| {
            let lying = |l: usize| graph.neighbours(l).iter().filter(|&&other| lies[other as usize]).count();
            graph.neighbours(k).iter().any(|&l| lying(l as usize) + 1 > (graph.degree(l as usize) / 5).max(1))
        };
        let mut left = count;
        for strict in [true, false] {
            for &(_, k) in &order {
                if left > 0 && !lies[k] && !(strict && crowded(&lies, k)) {
                    lies[k] = true;
                    left -= 1;
                }
            }
        }
        let attack = study.spec().simulation.attack;
        Ok(Some(Self { attack, lies, seed, trial, rounds: study.rounds() }))
    }

    /// Whether a client lies.
    pub fn is_liar(&self, client: usize) -> bool {
        self.lies[client]
    }

    /// Replaces what liars release in a round, with the clients of this process one after the other.
    pub fn tell(&self, released: &mut [f64], population: &Population, ranks: &dyn Ranks, round: u32) {
        let features = population.features();
        let lies = |place: usize| self.lies[population.client(place)];
        let rows =
            || released.chunks_exact(features).enumerate().filter(|(place, _)| !lies(*place)).map(|(_, row)| row);
        let mean = ranks.mean(rows(), features).0;
        let squares: Vec<f64> =
            rows().flat_map(|row| row.iter().zip(&mean).map(|(v, mean)| (v - mean) * (v - mean))).collect();
        let spread: Vec<f64> =
            ranks.mean(squares.chunks_exact(features), features).0.iter().map(|square| square.sqrt()).collect();
        for (place, row) in released.chunks_exact_mut(features).enumerate().filter(|(place, _)| lies(*place)) {
            let client = population.client(place) as u32;
            // A stream for each liar: who computes the others does not matter.
            let mut rng = Stream { trial: self.trial, client: u32::MAX / 2 + client, round }.fast(self.seed);
            for ((told, mean), spread) in row.iter_mut().zip(&mean).zip(&spread) {
                *told = match self.attack {
                    Attack::Shift => *told + 1.0,
                    Attack::Huge => HUGE,
                    Attack::LastRound if round == self.rounds => HUGE,
                    Attack::LastRound => *told,
                    Attack::Flip => -*told,
                    Attack::Noise => mean + if rng.next_u64().is_multiple_of(2) { 10.0 } else { -10.0 } * spread,
                    Attack::Little => mean - 1.5 * spread,
                    Attack::Inner => 0.5 * mean,
                };
            }
        }
    }
}
