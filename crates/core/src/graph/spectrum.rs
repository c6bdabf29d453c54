//! Mixing on the public graph: extreme eigenvalues, and the fastest gossip that they allow.

use super::Graph;

/// Lanczos steps after which an eigenvalue is taken as it is.
const MOST_STEPS: usize = 1000;
/// Steps between two checks of the eigenvalues.
const LOOK_EVERY: usize = 20;
/// Relative change below which they count as converged.
const SETTLED: f64 = 1e-10;

/// The extreme eigenvalues of a graph's Laplacians, as in the convergence bound of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spectrum {
    /// Phi_min(L-): the least eigenvalue of D - A above zero, the algebraic connectivity.
    pub laplacian_min: f64,
    /// Phi_max(L-).
    pub laplacian_max: f64,
    /// Phi_min(L+): the least eigenvalue of D + A above zero.
    pub signless_min: f64,
    /// Phi_max(L+).
    pub signless_max: f64,
    /// The least and the second largest eigenvalue of the Metropolis weights.
    pub metropolis: (f64, f64),
}

impl Spectrum {
    /// 4 (Phi_max(L-)^2 + Phi_max(L+)^2)/Phi_min(L-), by which the paper's bound multiplies the noise.
    pub fn noise_factor(&self) -> f64 {
        4.0 * (self.laplacian_max.powi(2) + self.signless_max.powi(2)) / self.laplacian_min
    }
}

/// Accelerated gossip: v_j = p_j(W) v_0 with p_j the polynomial of degree j that is 1 at 1 and otherwise as small as
/// possible on the interval of W's other eigenvalues (Chebyshev's, scaled and shifted).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gossip {
    /// m, the middle of the interval.
    middle: f64,
    /// c = h/(1 - m), h half the interval's length; below 1.
    ratio: f64,
}

impl Gossip {
    /// p_j(W) = W^j.
    pub const PLAIN: Gossip = Gossip { middle: 0.0, ratio: 0.0 };

    /// What a step of plain mixing, v = W v, leaves of a difference at most: the largest eigenvalue of W in size but for the 1 of the constant vector.
    pub fn plain_rate(self) -> f64 {
        self.middle.abs() + self.ratio * (1.0 - self.middle)
    }

    /// The weights of W v_{j-1}, v_{j-1} and v_{j-2} in v_j; they add up to 1.
    ///
    /// With A = (W - m I)/(1 - m): v_1 = A v_0 and v_j = 2 q_j A v_{j-1} - c^2 q_j q_{j-1} v_{j-2}, where q_1 = 1 and
    /// q_j = 1/(2 - c^2 q_{j-1}).
    pub fn weights(self, step: u32) -> (f64, f64, f64) {
        let square = self.ratio * self.ratio;
        let (mut q, mut last) = (1.0, 1.0);
        for _ in 1..step {
            last = q;
            q = 1.0 / (2.0 - square * last);
            if q == last {
                break;
            }
        }
        let first = step == 1;
        let mean = if first { 1.0 } else { 2.0 * q } / (1.0 - self.middle);
        (mean, -mean * self.middle, if first { 0.0 } else { -square * q * last })
    }
}

impl Graph {
    /// All extreme eigenvalues.
    pub fn spectrum(&self) -> Spectrum {
        let (laplacian_min, laplacian_max) = self.extremes(true, |_, _, own, other| own - other);
        // The eigenvalues of D + A are above zero, unless the graph is bipartite: changing the signs of one colour makes D - A
        // of it, so it has the same eigenvalues, and the zero among them has to be left out.
        let (signless_min, signless_max) = match self.is_bipartite() {
            true => (laplacian_min, laplacian_max),
            false => self.extremes(false, |_, _, own, other| own + other),
        };
        Spectrum { laplacian_min, laplacian_max, signless_min, signless_max, metropolis: self.metropolis_interval() }
    }

    /// Whether two colours suffice for neighbours to differ in colour.
    fn is_bipartite(&self) -> bool {
        let mut colours: Vec<Option<bool>> = vec![None; self.clients()];
        colours[0] = Some(true);
        // The graph is connected: everybody is reached from the first client.
        let mut queue = vec![0];
        while let Some(k) = queue.pop() {
            for l in self.neighbours(k).iter().map(|&l| l as usize) {
                match colours[l] {
                    None => {
                        colours[l] = colours[k].map(|colour| !colour);
                        queue.push(l);
                    }
                    same if same == colours[k] => return false,
                    Some(_) => {}
                }
            }
        }
        true
    }

    /// The fastest gossip on this graph, computed on first use.
    pub fn gossip(&self) -> Gossip {
        *self.gossip.get_or_init(|| {
            let (low, high) = self.metropolis_interval();
            let middle = (low + high) / 2.0;
            Gossip { middle, ratio: ((high - low) / 2.0 / (1.0 - middle)).clamp(0.0, 1.0) }
        })
    }

    /// The eigenvalues of W other than the 1 of the constant vector lie in this interval.
    fn metropolis_interval(&self) -> (f64, f64) {
        // Eigenvalues of I - W, whose rows are sums over edges.
        let weight = |k: usize, l: usize| 1.0 / (1.0 + self.degree(k).max(self.degree(l)) as f64);
        let (low, high) = self.extremes(true, |k, l, own, other| weight(k, l) * (own - other));
        (1.0 - high, 1.0 - low)
    }

    /// The least and the largest eigenvalue of the symmetric matrix with (B x)_k = sum over neighbours of
    /// `edge`(k, l, x_k, x_l), on all vectors or only on those that add up to zero, by Lanczos iteration.
    ///
    /// Plain sums in a fixed order: every machine finds the same bits.
    fn extremes(&self, zero_sum: bool, edge: impl Fn(usize, usize, f64, f64) -> f64) -> (f64, f64) {
        let clients = self.clients();
        let normalize = |v: &mut [f64]| {
            if zero_sum {
                let mean = v.iter().sum::<f64>() / clients as f64;
                v.iter_mut().for_each(|v| *v -= mean);
            }
            let norm = v.iter().map(|v| v * v).sum::<f64>().sqrt();
            if norm > 0.0 {
                v.iter_mut().for_each(|v| *v /= norm);
            }
            norm
        };
        // Any vector with a component in all eigenvectors will do; this one has no symmetry.
        let mut current: Vec<f64> = (0..clients).map(|k| ((k as f64 + 1.0) * 0.618_033_988_75).fract() - 0.4).collect();
        normalize(&mut current);
        let mut last = vec![0.0; clients];
        let (mut diagonal, mut off) = (Vec::new(), Vec::new());
        let mut beta = 0.0;
        let mut found = (0.0, 0.0);
        // On vectors that add up to zero there is one dimension less.
        for step in 1..=clients.saturating_sub(usize::from(zero_sum)).clamp(1, MOST_STEPS) {
            let mut next: Vec<f64> = (0..clients)
                .map(|k| {
                    let terms =
                        self.neighbours(k).iter().map(|&l| edge(k, l as usize, current[k], current[l as usize]));
                    terms.sum::<f64>() - beta * last[k]
                })
                .collect();
            let alpha: f64 = next.iter().zip(&current).map(|(n, c)| n * c).sum();
            next.iter_mut().zip(&current).for_each(|(n, c)| *n -= alpha * c);
            diagonal.push(alpha);
            beta = normalize(&mut next);
            let exhausted = beta < 1e-12;
            if step % LOOK_EVERY == 0 || exhausted {
                let now = tridiagonal_extremes(&diagonal, &off);
                let settled = |a: f64, b: f64| (a - b).abs() <= SETTLED * b.abs();
                if exhausted || (settled(found.0, now.0) && settled(found.1, now.1)) {
                    return now;
                }
                found = now;
            }
            off.push(beta);
            (last, current) = (current, next);
        }
        off.pop();
        tridiagonal_extremes(&diagonal, &off)
    }
}

/// The least and the largest eigenvalue of a symmetric tridiagonal matrix, by bisection on the number of eigenvalues
/// below a point.
fn tridiagonal_extremes(diagonal: &[f64], off: &[f64]) -> (f64, f64) {
    let below = |x: f64| {
        let mut count = 0;
        let mut pivot = 1.0;
        for (i, d) in diagonal.iter().enumerate() {
            let coupling = if i == 0 { 0.0 } else { off[i - 1] * off[i - 1] };
            pivot = d - x - coupling / pivot;
            if pivot == 0.0 {
                pivot = f64::MIN_POSITIVE;
            }
            count += usize::from(pivot < 0.0);
        }
        count
    };
    let reach = |i: usize| off.get(i).map_or(0.0, |v| v.abs()) + if i > 0 { off[i - 1].abs() } else { 0.0 };
    let ends = diagonal.iter().enumerate().map(|(i, d)| (d - reach(i), d + reach(i)));
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (c, d)| (a.min(c), b.max(d)));
    let nth = |index: usize| {
        let (mut a, mut b) = (low, high);
        for _ in 0..200 {
            let middle = a + (b - a) / 2.0;
            if middle <= a || middle >= b {
                break;
            }
            if below(middle) > index { b = middle } else { a = middle }
        }
        b
    };
    (nth(0), nth(diagonal.len() - 1))
}
