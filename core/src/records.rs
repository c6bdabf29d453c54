//! One client's records, laid out for the gradient kernel, and the kernel.
//!
//! Four records are kept side by side: x_1 of all four, x_2 of all four, ..., then their targets, then their slope limits.
//! One vector instruction then serves four records with no shuffling. The last group holds only the records that are left,
//! so there is no padding in memory.
//!
//! Floating-point sums depend on their order, so the order is part of the definition: record j belongs to lane j mod 4, a lane
//! sums its records in file order, and the four lane sums are added as (0+1)+(2+3). Fused multiply-add is never used. Every
//! instruction set therefore produces the same bits.

use crate::loss::{AnyLoss, Loss};
use crate::privacy::Clip;
use crate::simd::{Kernel, LANES, Lanes, Vector, dispatch};
use crate::with_loss;

/// Numbers kept per record besides the features: the target and the slope limit.
const EXTRA: usize = 2;

/// How many numbers `records` records of `features` features take.
pub fn size(records: usize, features: usize) -> usize {
    records * (features + EXTRA)
}

/// Where number `slot` of record `j` lies.
fn position(j: usize, slot: usize, records: usize, features: usize) -> usize {
    let (group, lane) = (j / LANES, j % LANES);
    let width = LANES.min(records - group * LANES);
    group * LANES * (features + EXTRA) + slot * width + lane
}

/// Writes record `j` of `records` into a client's storage.
///
/// With a clip, the slope limit is c1/||x||, so that no record's gradient is longer than c1; without one it is infinite.
pub fn store(storage: &mut [f64], records: usize, j: usize, x: &[f64], y: f64, clip: Option<Clip>) {
    let features = x.len();
    for (p, &v) in x.iter().enumerate() {
        storage[position(j, p, records, features)] = v;
    }
    let limit = clip.map_or(f64::INFINITY, |clip| slope_limit(x, clip));
    storage[position(j, features, records, features)] = y;
    storage[position(j, features + 1, records, features)] = limit;
}

/// c1/||x||, always finite; zero for x = 0, whose gradient is zero whatever the slope.
fn slope_limit(x: &[f64], clip: Clip) -> f64 {
    // Scaled by the largest entry, so that the squares neither overflow nor vanish.
    let largest = x.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let norm = largest * x.iter().map(|v| (v / largest) * (v / largest)).sum::<f64>().sqrt();
    (clip.get() / norm).min(f64::MAX)
}

/// A view of one client's records.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    storage: &'a [f64],
    records: usize,
    features: usize,
}

/// Working space that the kernels reuse from client to client.
#[derive(Debug, Default, Clone)]
pub struct Scratch {
    slopes: Vec<f64>,
    tail: Vec<f64>,
    /// One vector of the algorithm's own.
    pub(crate) vector: Vec<f64>,
}

impl<'a> Records<'a> {
    /// Views storage filled by [`store`].
    ///
    /// # Panics
    /// If the length is not `size(records, features)` or there are no records: both are checked when data is loaded.
    pub fn new(storage: &'a [f64], records: usize, features: usize) -> Self {
        assert!(records > 0 && storage.len() == size(records, features), "storage does not match its shape");
        Self { storage, records, features }
    }

    /// M, the number of records.
    pub fn len(self) -> usize {
        self.records
    }

    /// A client always has records.
    pub fn is_empty(self) -> bool {
        false
    }

    /// P, the number of features.
    pub fn features(self) -> usize {
        self.features
    }

    /// Copies the features of record `j` to `x` and returns its target and slope limit.
    pub fn read(self, j: usize, x: &mut [f64]) -> (f64, f64) {
        let at = |slot| self.storage[position(j, slot, self.records, self.features)];
        for (p, v) in x.iter_mut().enumerate() {
            *v = at(p);
        }
        (at(self.features), at(self.features + 1))
    }

    /// The mean clipped gradient at `w`: (1/M) sum_j clamp(slope_j, limit_j) x_j, written to `out`.
    ///
    /// This is the only place where records enter a message, and the clip is part of it.
    pub fn gradient(self, loss: AnyLoss, w: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        self.fill_tail(scratch);
        with_loss!(loss, loss => dispatch(Gradient { records: self, loss, w, scratch, out }));
    }

    /// The mean loss at `w`, unclipped: (1/M) sum_j loss(x_j.w, y_j).
    pub fn mean_loss(self, loss: AnyLoss, w: &[f64], scratch: &mut Scratch) -> f64 {
        self.fill_tail(scratch);
        with_loss!(loss, loss => dispatch(MeanLoss { records: self, loss, w, scratch }))
    }

    /// Copies the last, narrower group to the scratch space with empty lanes of zeros: a zero limit silences them.
    fn fill_tail(self, scratch: &mut Scratch) {
        let width = self.records % LANES;
        let slots = self.features + EXTRA;
        scratch.slopes.resize(self.records.next_multiple_of(LANES), 0.0);
        scratch.tail.resize(if width == 0 { 0 } else { slots * LANES }, 0.0);
        let narrow = &self.storage[self.storage.len() - width * slots..];
        for (slot, wide) in scratch.tail.chunks_exact_mut(LANES).enumerate() {
            for (lane, number) in wide.iter_mut().enumerate() {
                *number = if lane < width { narrow[slot * width + lane] } else { 0.0 };
            }
        }
    }

    /// The full groups in memory, and the padded one in the scratch space.
    #[inline(always)]
    fn groups<'b>(self, tail: &'b [f64]) -> (Groups<'a>, Groups<'b>) {
        let features = self.features;
        (Groups { numbers: self.storage, features }, Groups { numbers: tail, features })
    }
}

/// Features handled at a time; their weights or sums stay in registers.
const TILE: usize = 8;

#[inline(always)]
fn sum(lanes: Lanes) -> f64 {
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

/// Runs `$body` for the tiles that cover `$features` features, with `$first` the first feature of each and `$n` its size.
macro_rules! for_tiles {
    ($features:expr, |$first:ident, $n:ident| $body:expr) => {{
        let mut $first = 0;
        while $first < $features {
            $first += match $features - $first {
                TILE.. => {
                    const $n: usize = TILE;
                    $body;
                    $n
                }
                4.. => {
                    const $n: usize = 4;
                    $body;
                    $n
                }
                2.. => {
                    const $n: usize = 2;
                    $body;
                    $n
                }
                _ => {
                    const $n: usize = 1;
                    $body;
                    $n
                }
            };
        }
    }};
}

/// Full groups of records, all of the same size.
#[derive(Clone, Copy)]
struct Groups<'a> {
    numbers: &'a [f64],
    features: usize,
}

impl<'a> Groups<'a> {
    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = &'a [f64]> {
        self.numbers.chunks_exact((self.features + EXTRA) * LANES)
    }

    /// x.w of every record, summed in the order of the features.
    #[inline(always)]
    fn predict<S: Vector>(self, simd: S, w: &[f64], z: &mut [f64]) {
        z.fill(0.0);
        for_tiles!(self.features, |first, N| self.predict_tile::<S, N>(simd, first, w, z));
    }

    #[inline(always)]
    fn predict_tile<S: Vector, const N: usize>(self, simd: S, first: usize, w: &[f64], z: &mut [f64]) {
        let w: [S::V; N] = std::array::from_fn(|i| simd.splat(w[first + i]));
        for (group, z) in self.iter().zip(z.chunks_exact_mut(LANES)) {
            let columns = &group[first * LANES..][..N * LANES];
            let mut sum = simd.load(z);
            for i in 0..N {
                sum = simd.multiply_add(sum, simd.load(&columns[i * LANES..]), w[i]);
            }
            z.copy_from_slice(&simd.lanes(sum));
        }
    }

    /// Replaces every prediction by its clamped slope.
    #[inline(always)]
    fn clipped_slopes<S: Vector, L: Loss>(self, simd: S, loss: L, z: &mut [f64]) {
        for (group, z) in self.iter().zip(z.chunks_exact_mut(LANES)) {
            let extra = &group[self.features * LANES..][..EXTRA * LANES];
            let (y, limit) = (simd.lanes(simd.load(extra)), simd.lanes(simd.load(&extra[LANES..])));
            let clipped: Lanes = std::array::from_fn(|lane| {
                let slope = loss.slope(z[lane], y[lane]);
                // Written so that a NaN, which only a diverged model can cause, becomes the limit and is clipped too.
                let slope = if slope > -limit[lane] { slope } else { -limit[lane] };
                if slope < limit[lane] { slope } else { limit[lane] }
            });
            z.copy_from_slice(&clipped);
        }
    }

    /// Adds slope_j x_jp to the lane sums of `N` features from `first` on.
    #[inline(always)]
    fn add_columns<S: Vector, const N: usize>(
        self,
        simd: S,
        first: usize,
        slopes: &[f64],
        mut sums: [S::V; N],
    ) -> [S::V; N] {
        for (group, slopes) in self.iter().zip(slopes.chunks_exact(LANES)) {
            let columns = &group[first * LANES..][..N * LANES];
            let slopes = simd.load(slopes);
            for i in 0..N {
                sums[i] = simd.multiply_add(sums[i], slopes, simd.load(&columns[i * LANES..]));
            }
        }
        sums
    }
}

struct Gradient<'a, L> {
    records: Records<'a>,
    loss: L,
    w: &'a [f64],
    scratch: &'a mut Scratch,
    out: &'a mut [f64],
}

impl<L: Loss> Kernel for Gradient<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vector>(self, simd: S) {
        let Scratch { slopes, tail, .. } = self.scratch;
        let (main, tail) = self.records.groups(tail);
        let (main_slopes, tail_slopes) = slopes.split_at_mut(self.records.records / LANES * LANES);
        main.predict(simd, self.w, main_slopes);
        main.clipped_slopes(simd, self.loss, main_slopes);
        tail.predict(simd, self.w, tail_slopes);
        tail.clipped_slopes(simd, self.loss, tail_slopes);
        let count = self.records.records as f64;
        for_tiles!(self.records.features, |first, N| {
            let sums = main.add_columns::<S, N>(simd, first, main_slopes, [simd.splat(0.0); N]);
            let sums = tail.add_columns::<S, N>(simd, first, tail_slopes, sums);
            for (out, sums) in self.out[first..].iter_mut().zip(sums) {
                *out = sum(simd.lanes(sums)) / count;
            }
        });
    }
}

struct MeanLoss<'a, L> {
    records: Records<'a>,
    loss: L,
    w: &'a [f64],
    scratch: &'a mut Scratch,
}

impl<L: Loss> Kernel for MeanLoss<'_, L> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Vector>(self, simd: S) -> f64 {
        let Records { records, features, .. } = self.records;
        let Scratch { slopes: z, tail, .. } = self.scratch;
        let (main, tail) = self.records.groups(tail);
        let (main_z, tail_z) = z.split_at_mut(records / LANES * LANES);
        main.predict(simd, self.w, main_z);
        tail.predict(simd, self.w, tail_z);
        let mut sums = [0.0; LANES];
        for (group, z) in main.iter().zip(main_z.chunks_exact(LANES)) {
            let y = &group[features * LANES..][..LANES];
            sums = std::array::from_fn(|lane| sums[lane] + self.loss.value(z[lane], y[lane]));
        }
        for group in tail.iter() {
            for lane in 0..records % LANES {
                sums[lane] += self.loss.value(tail_z[lane], group[features * LANES + lane]);
            }
        }
        sum(sums) / records as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Absolute, Logistic, Squared};
    use crate::simd::Baseline;

    /// What the machine dispatches to and the baseline must agree to the last bit.
    #[test]
    fn dispatch_does_not_change_a_bit() {
        let mut state = 1u64;
        let mut number = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for (count, features) in [(1, 1), (4, 8), (50, 8), (13, 7), (31, 19), (64, 100)] {
            let mut storage = vec![0.0; size(count, features)];
            for j in 0..count {
                let x: Vec<f64> = (0..features).map(|_| number()).collect();
                store(&mut storage, count, j, &x, number(), Some(Clip::new(0.8).unwrap()));
            }
            let records = Records::new(&storage, count, features);
            let w: Vec<f64> = (0..features).map(|_| number()).collect();
            for loss in [AnyLoss::Absolute(Absolute), AnyLoss::Squared(Squared), AnyLoss::Logistic(Logistic)] {
                let mut scratch = Scratch::default();
                let (mut best, mut plain) = (vec![0.0; features], vec![0.0; features]);
                records.gradient(loss, &w, &mut scratch, &mut best);
                with_loss!(loss, loss => {
                    let kernel = Gradient { records, loss, w: &w, scratch: &mut scratch, out: &mut plain };
                    kernel.run(Baseline);
                });
                assert!(best.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits()));
                let best = records.mean_loss(loss, &w, &mut scratch);
                let plain = with_loss!(loss, loss => {
                    MeanLoss { records, loss, w: &w, scratch: &mut scratch }.run(Baseline)
                });
                assert_eq!(best.to_bits(), plain.to_bits());
            }
        }
    }
}
