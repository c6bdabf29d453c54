//! How large the numbers can get that honest clients of a study release, and how much they differ.

use super::Study;
use crate::algorithm::{Robust, Run, Spread};
use crate::client::LARGEST_VALUE;
use crate::graph::Graph;
use crate::names::Names;
use crate::problem::Weights;

/// How much larger than the sum of all steps a number may be before it is refused: steps of peers that were apart can overshoot.
const ROOM: f64 = 64.0;
/// Noise of more standard deviations does not occur: its probability is below 10^-32.
const DEVIATIONS: f64 = 12.0;

impl Study {
    /// The largest number that a peer accepts or releases among so many clients, from public facts alone.
    ///
    /// Every client starts at zero, and in data round n moves by at most its public factor g(n) times a gradient of norm G = c1 (K c1 where records
    /// count the same: one client may have most of them) with lambda1 lambda/K, and noise of scale s(n), masks included, that only the fewest records and the least
    /// budget make so large. Mixing is a mean over the network, whose norm it does not raise: in one coordinate at most sqrt(K) times the largest. So
    ///
    /// ```text
    /// |w~| <= 64 sqrt(K) A sum_n g(n) (G + 12 s(n))
    /// ```
    ///
    /// with A = 1/(1 - momentum), and 64 times room for what this does not count. Where nothing clips gradients there is only the
    /// [largest value](LARGEST_VALUE) of any study.
    pub fn reach(&self, clients: usize) -> f64 {
        let (Some(privacy), true) = (&self.privacy, self.algorithm.clips()) else { return LARGEST_VALUE };
        let (k, clip) = (clients as f64, privacy.clip.get());
        let (largest, divisor) = match self.spec.weights {
            Weights::Records => (clip * k, self.mean_records()),
            Weights::Clients => (clip, self.spec.public_records().and_then(|m| m.into_iter().min()).map(|m| m as f64)),
        };
        let problem = self.problem(|| 1.0);
        let regularizer = problem.lambda / k * problem.regularizer.weights().0;
        // A client has at least one record.
        let sensitivity = 2.0 * clip / divisor.unwrap_or(1.0).max(1.0);
        // Own noise is never more than without masks, and masks add (K - 1) c^2 to its variance.
        let masks = self.spec.trust(clients).ok().flatten().map_or(0.0, |trust| trust.variances().1 * (k - 1.0));
        let least = |name: &String| self.client_budget(name).map(|budget| budget.phi(1).get());
        let first = privacy.schedule.phi(1).get();
        let factor = self.spec.clients.keys().filter_map(least).fold(first, f64::min) / first;
        let pair = Graph::from_edges(&Names::numbered(2), &[(0, 1)]).expect("a pair is a graph");
        let run = Run { rounds: self.rounds(), graph: &pair, problem: &problem, robust: None };
        let etas = self.etas();
        let steps: f64 = (1..=self.rounds())
            .filter(|&n| self.algorithm.touches_records(n, self.rounds()))
            .map(|n| {
                let gain = self.largest_gain(run, n, 0, &etas);
                let sigma = sensitivity / (2.0 * privacy.schedule.phi(n).get() * factor).sqrt();
                gain * (largest + regularizer + DEVIATIONS * sigma * (1.0 + masks).sqrt())
            })
            .sum();
        let reach = ROOM * k.sqrt() * self.algorithm.amplification() * steps;
        // Never so little that rounding matters, and never more than sums can hold.
        reach.clamp(1.0, LARGEST_VALUE)
    }
    /// The step sizes of clients, with none for the algorithm's own.
    fn etas(&self) -> Vec<Option<f64>> {
        let mut etas: Vec<Option<f64>> =
            std::iter::once(None).chain(self.spec.clients.values().map(|client| client.eta)).collect();
        etas.dedup();
        etas
    }

    /// The largest public factor of a gradient in round n at client k, whichever of the step sizes it has.
    fn largest_gain(&self, run: Run, number: u32, client: usize, etas: &[Option<f64>]) -> f64 {
        let gain =
            |eta: &Option<f64>| self.algorithm.gain(&run.round(number, client, *eta)).map_or(f64::INFINITY, f64::abs);
        etas.iter().map(gain).fold(0.0, f64::max)
    }

    /// How what neighbours say is bounded on this graph; none if the study trusts all.
    ///
    /// In data round n the noise of a released point is g(n) s(n), with g(n) the largest public factor of a step among the clients, and s(n) = 2 c1/(M sqrt(2 phi(n))).
    /// Gradients of two clients with records of one law differ by about c1/sqrt(M) in norm, c1 the length of a record's gradient, which is the clip; a study without a clip takes the one
    /// that is usually planned. At the solution the dual of a client is its own gradient, so that length bounds the dual too.
    pub fn robust(&self, graph: &Graph) -> Option<Robust> {
        const USUAL_CLIP: f64 = 0.2;
        if self.liars() == 0 {
            return None;
        }
        let root = (self.features as f64).sqrt();
        let clip = self.privacy.as_ref().map_or(USUAL_CLIP * root, |privacy| privacy.clip.get());
        let records = self.mean_records().expect("a study with liars says how many records there are");
        let chance = clip / records.sqrt();
        let problem = self.problem(|| 1.0);
        let run = Run { rounds: self.rounds(), graph, problem: &problem, robust: None };
        let etas = self.etas();
        // Whether a factor grows or falls with the number of neighbours, one of these has the largest.
        let by_degree = |k: &usize| graph.degree(*k);
        let fewest = (0..graph.clients()).min_by_key(by_degree).unwrap_or(0);
        let most = (0..graph.clients()).max_by_key(by_degree).unwrap_or(0);
        let gain = |n: u32| [fewest, most].map(|k| self.largest_gain(run, n, k, &etas)).into_iter().fold(0.0, f64::max);
        let spread = |n: u32| {
            self.algorithm.touches_records(n, self.rounds()).then(|| {
                let phi = self.privacy.as_ref().map(|privacy| privacy.schedule.phi(n).get());
                let noise = phi.map_or(0.0, |phi| 2.0 * clip / (records * (2.0 * phi).sqrt()));
                Spread { noise: gain(n) * noise, chance: gain(n) * chance / root }
            })
        };
        // With a dual a step follows neighbours by rho g(n) of a difference, not by the Metropolis weight 1/(1 + d), and points stay apart for longer.
        let weight = self.algorithm.dual_weight();
        let share = if weight > 0.0 { weight * gain(1) * (1.0 + graph.degree(most) as f64) } else { 1.0 };
        let rate = 1.0 - share.min(1.0) * (1.0 - graph.gossip().plain_rate());
        Some(Robust::new((1..=self.rounds()).map(spread), rate, chance))
    }
}
