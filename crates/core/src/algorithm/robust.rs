//! What bounds the influence of neighbours that may lie: an edge carries no more than honest noise would.

use super::Round;

/// How far what neighbours say may move a client, from public facts alone.
///
/// What edge kl has carried to client k is the sum F_kl of the differences w~_k - w~_l over all rounds. Between honest clients it is made of noise and of what their records differ
/// by through chance, and its size is known. Somebody who wants to move the model has to push in the same direction again and again, which noise does not, so a limit on the sum
/// stops a liar and leaves honest edges alone:
///
/// ```text
/// D_kl = w~_k(n-1) - w~_l(n-1) moved into +-reach(n-1)
/// F_kl(n) = F_kl(n-1) + D_kl moved into +-carried(n-1),    E_kl = F_kl(n) - F_kl(n-1)
/// ```
///
/// and E_kl takes the place of the difference in the step. Both ends have the same limits and the same points, so E_kl = -E_lk to the last bit: honest clients move each other, and not their mean. It is moved by the edges to
/// liars alone, in sum over the whole run by at most `carried` times the weight of each, whatever they say.
#[derive(Debug, Clone, PartialEq)]
pub struct Robust {
    /// (reach, carried) in every coordinate, for points that were released in round n, from 0.
    limits: Vec<(f64, f64)>,
    /// The most that the duals of all edges of a client hold together in one coordinate, in the units of a gradient.
    dual: f64,
}

/// What is public about the steps of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The standard deviation of the noise in one coordinate of a released point.
    pub noise: f64,
    /// By how much steps of two clients with records of one law differ there through chance.
    pub chance: f64,
}

/// The limit of a sum is so many times its standard deviation where every difference is new noise. A difference is that of two points and is carried over several rounds,
/// so that the typical sum of an honest edge comes near the limit, and a few are held back by it.
const CARRIED: f64 = 2.0;
/// Rounds of mixing bring honest points together by at most this factor where the graph is good.
const LEAST_RATE: f64 = 0.6;

impl Robust {
    /// For a run whose data rounds have these spreads (none for mixing rounds), on a graph where a round of mixing leaves this share of what honest points differ by.
    pub fn new(rounds: impl Iterator<Item = Option<Spread>>, rate: f64, dual: f64) -> Self {
        let rate = rate.max(LEAST_RATE);
        let (mut apart, mut noise, mut chance) = (0.0, 0.0, 0.0);
        let mut limits = vec![(0.0, 0.0)];
        for round in rounds {
            apart *= rate;
            if let Some(spread) = round {
                apart = norm([apart, spread.noise, spread.chance]);
                noise = norm([noise, spread.noise, 0.0]);
                chance += spread.chance;
            }
            limits.push((apart, CARRIED * (noise + chance)));
        }
        Self { limits, dual }
    }

    /// The most that the edges of a client hold together as duals, in one coordinate.
    pub fn dual(&self) -> f64 {
        self.dual
    }

    /// The most that an edge carries in sum over the whole run, in one coordinate.
    pub fn carried(&self) -> f64 {
        self.limits.last().map_or(0.0, |limit| limit.1)
    }
}

/// Square roots and sums are the same on every machine, so both ends of an edge have the same limits.
fn norm(values: [f64; 3]) -> f64 {
    values.map(|v| v * v).iter().sum::<f64>().sqrt()
}

impl Round<'_> {
    /// sum_l a_l E_kl over the neighbours, by ascending id. `flows` holds F_kl, one vector for each neighbour in the graph; those of neighbours that were lost stay as they are.
    pub fn bounded_disagreement(
        &self,
        robust: &Robust,
        weight: impl Fn(u32) -> f64,
        flows: &mut [f64],
        out: &mut [f64],
    ) {
        let (reach, carried) = robust.limits[self.number as usize - 1];
        out.fill(0.0);
        for (&l, point) in self.neighbours.iter().zip(self.neighbour_points()) {
            let (weight, flow) = (weight(l), self.flow_mut(l, flows));
            for (((out, flow), own), point) in out.iter_mut().zip(flow).zip(self.own).zip(point) {
                let next = (*flow + (own - point).clamp(-reach, reach)).clamp(-carried, carried);
                *out += weight * (next - *flow);
                *flow = next;
            }
        }
    }

    /// w~_k(n-1) - sum_l a_kl E_kl, with Metropolis weights.
    pub fn bounded_mean(&self, robust: &Robust, flows: &mut [f64], out: &mut [f64]) {
        self.bounded_disagreement(robust, |l| self.metropolis(l), flows, out);
        out.iter_mut().zip(self.own).for_each(|(out, own)| *out = own - *out);
    }

    /// gamma_k of a robust run: the sum over the neighbours that are left of rho F_kl, moved into +-`dual`/max(d_k, d_l).
    pub fn bounded_dual(&self, robust: &Robust, rho: f64, flows: &mut [f64], gamma: &mut [f64]) {
        let graph = self.run.graph;
        gamma.fill(0.0);
        for &l in self.neighbours {
            let bound = robust.dual / graph.degree(self.client).max(graph.degree(l as usize)) as f64;
            let flow = self.flow_mut(l, flows);
            gamma.iter_mut().zip(flow).for_each(|(gamma, flow)| *gamma += (rho * *flow).clamp(-bound, bound));
        }
    }

    /// F_kl of a neighbour in the graph.
    fn flow_mut<'f>(&self, neighbour: u32, flows: &'f mut [f64]) -> &'f mut [f64] {
        let place = self.run.graph.neighbours(self.client).binary_search(&neighbour).expect("a neighbour in the graph");
        &mut flows[place * self.own.len()..][..self.own.len()]
    }
}
