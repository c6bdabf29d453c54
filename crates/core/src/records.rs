//! One client's records, laid out for the gradient kernel, and the kernel.
//!
//! Four records are kept side by side: x_1 of all four, x_2 of all four, ..., then their targets, then their slope
//! limits. One vector instruction then serves four records with no shuffling. The last group holds only the records
//! that are left, its numbers side by side in the same way but fewer at a time; a few spare numbers at the end let it
//! be read four at a time too.
//!
//! Floating-point sums depend on their order, so the order is part of the definition: record j belongs to lane j mod
//! 4, a lane sums its records in file order, and the four lane sums are added as (0+1)+(2+3). Fused multiply-add is
//! never used. Every instruction set therefore produces the same bits.

use crate::loss::{AnyLoss, Loss};
use crate::privacy::Clip;
use crate::simd::{Kernel, LANES, Lanes, Vector, dispatch};
use crate::with_loss;

/// Numbers kept per record besides the features: the target and the slope limit.
const EXTRA: usize = 2;

/// How many numbers `records` records of `features` features take: what they hold, what reading the last of them four
/// at a time needs, and up to the end of a cache line.
pub fn size(records: usize, features: usize) -> usize {
    const LINE: usize = 8;
    (records * (features + EXTRA) + (records.next_multiple_of(LANES) - records)).next_multiple_of(LINE)
}

/// Where number `slot` of record `j` lies.
fn position(j: usize, slot: usize, records: usize, features: usize) -> usize {
    let (group, lane) = (j / LANES, j % LANES);
    let width = LANES.min(records - group * LANES);
    group * LANES * (features + EXTRA) + slot * width + lane
}

/// Writes record `j` of `records` into a client's storage.
///
/// With a clip, the slope limit is c1/||x||, so that no record's gradient is longer than c1; without one it is beyond
/// any slope, but finite, so that zero times it is zero.
pub fn store(storage: &mut [f64], records: usize, j: usize, x: &[f64], y: f64, clip: Option<Clip>) {
    let features = x.len();
    for (p, &v) in x.iter().enumerate() {
        storage[position(j, p, records, features)] = v;
    }
    let limit = clip.map_or(f64::MAX, |clip| slope_limit(x, clip));
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

/// One client's records with the memory they lie in.
#[derive(Debug, Clone)]
pub struct Dataset {
    storage: Vec<f64>,
    records: usize,
    features: usize,
}

impl Dataset {
    /// From rows of `features` numbers, one after the other, and their targets; at least one.
    pub fn new(rows: &[f64], targets: &[f64], features: usize, clip: Option<Clip>) -> Self {
        let records = targets.len();
        let mut storage = vec![0.0; size(records, features)];
        for ((j, x), y) in rows.chunks_exact(features).enumerate().zip(targets) {
            store(&mut storage, records, j, x, *y, clip);
        }
        Self { storage, records, features }
    }

    /// A view of them.
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.storage, self.records, self.features)
    }
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
    /// One vector of the algorithm's own.
    pub(crate) vector: Vec<f64>,
    /// The public part of a step.
    pub(crate) public: Vec<f64>,
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

    /// `scale` times the mean clipped gradient at `w`: (scale/M) sum_j clamp(slope_j, limit_j) x_j, written to `out`.
    ///
    /// This is the only place where records enter a message, and the clip is part of it.
    pub fn gradient(self, loss: AnyLoss, w: &[f64], scale: f64, scratch: &mut Scratch, out: &mut [f64]) {
        let slopes = self.slopes(scratch);
        with_loss!(loss, loss => dispatch(Gradient { records: self, loss, w, scale, slopes, out }));
    }

    /// The mean loss at `w`, unclipped: (1/M) sum_j loss(x_j.w, y_j).
    pub fn mean_loss(self, loss: AnyLoss, w: &[f64], scratch: &mut Scratch) -> f64 {
        let z = self.slopes(scratch);
        with_loss!(loss, loss => dispatch(MeanLoss { records: self, loss, w, z }))
    }

    /// Room for one number per record, in whole groups.
    fn slopes(self, scratch: &mut Scratch) -> &mut [f64] {
        scratch.slopes.resize(self.records.next_multiple_of(LANES), 0.0);
        &mut scratch.slopes
    }

    /// The full groups, and the last one, which may hold fewer records or none.
    #[inline(always)]
    fn groups(self) -> (Groups<'a, true>, Groups<'a, false>) {
        let Records { records, features, storage } = self;
        let full = records / LANES * LANES;
        let (main, tail) = storage.split_at(full * (features + EXTRA));
        (Groups { numbers: main, features, width: LANES }, Groups { numbers: tail, features, width: records - full })
    }
}

/// Features handled at a time; their weights or sums stay in registers.
const TILE: usize = 8;

#[inline(always)]
fn sum(lanes: Lanes) -> f64 {
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

/// Runs `$body` for the tiles that cover `$features` features, with `$first` the first feature of each and `$n` its
/// size.
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

/// Groups of `width` records each; `FULL` says at compile time that the width is `LANES`.
#[derive(Clone, Copy)]
struct Groups<'a, const FULL: bool> {
    numbers: &'a [f64],
    features: usize,
    width: usize,
}

impl<'a, const FULL: bool> Groups<'a, FULL> {
    #[inline(always)]
    fn width(self) -> usize {
        if FULL { LANES } else { self.width }
    }

    /// The groups; a narrow one stands alone and brings the spare numbers at its end.
    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = &'a [f64]> {
        let size = if FULL { LANES * (self.features + EXTRA) } else { self.numbers.len().max(1) };
        self.numbers.chunks_exact(size)
    }

    /// The numbers of `count` slots from `first` on, as far as reading each four at a time needs.
    #[inline(always)]
    fn slots(self, group: &[f64], first: usize, count: usize) -> &[f64] {
        &group[first * self.width()..][..(count - 1) * self.width() + LANES]
    }

    /// Slot `i` of some; lanes beyond the width hold whatever comes next in memory.
    #[inline(always)]
    fn load<S: Vector>(self, simd: S, slots: &[f64], i: usize) -> S::V {
        simd.load(&slots[i * self.width()..])
    }

    /// x.w of every record, summed in the order of the features.
    #[inline(always)]
    fn predict<S: Vector>(self, simd: S, w: &[f64], z: &mut [f64]) {
        for_tiles!(self.features, |first, N| self.predict_tile::<S, N>(simd, first, w, z));
    }

    #[inline(always)]
    fn predict_tile<S: Vector, const N: usize>(self, simd: S, first: usize, w: &[f64], z: &mut [f64]) {
        let w: [S::V; N] = std::array::from_fn(|i| simd.splat(w[first + i]));
        for (group, z) in self.iter().zip(z.chunks_exact_mut(LANES)) {
            let columns = self.slots(group, first, N);
            let mut sum = if first == 0 { simd.splat(0.0) } else { simd.load(z) };
            for (i, &w) in w.iter().enumerate() {
                sum = simd.multiply_add(sum, self.load(simd, columns, i), w);
            }
            z.copy_from_slice(&simd.lanes(sum));
        }
    }

    /// Replaces every prediction by its clamped slope; lanes beyond the width get zero, so that they add nothing.
    #[inline(always)]
    fn clipped_slopes<S: Vector, L: Loss>(self, simd: S, loss: L, z: &mut [f64]) {
        for (group, z) in self.iter().zip(z.chunks_exact_mut(LANES)) {
            let extra = self.slots(group, self.features, EXTRA);
            let (y, limit) = (simd.lanes(self.load(simd, extra, 0)), simd.lanes(self.load(simd, extra, 1)));
            let clipped: Lanes = std::array::from_fn(|lane| {
                let slope = loss.slope(z[lane], y[lane]);
                // Written so that a NaN, which only a diverged model can cause, becomes the limit and is clipped too.
                let slope = if slope > -limit[lane] { slope } else { -limit[lane] };
                let slope = if slope < limit[lane] { slope } else { limit[lane] };
                if lane < self.width() { slope } else { 0.0 }
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
            let slopes = simd.load(slopes);
            let columns = self.slots(group, first, N);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = simd.multiply_add(*sum, slopes, self.load(simd, columns, i));
            }
        }
        sums
    }

    /// Adds the loss of every record to its lane sum.
    #[inline(always)]
    fn add_losses<L: Loss>(self, loss: L, z: &[f64], mut sums: Lanes) -> Lanes {
        for (group, z) in self.iter().zip(z.chunks_exact(LANES)) {
            let y = self.slots(group, self.features, 1);
            for lane in 0..self.width() {
                sums[lane] += loss.value(z[lane], y[lane]);
            }
        }
        sums
    }
}

struct Gradient<'a, L> {
    records: Records<'a>,
    loss: L,
    w: &'a [f64],
    scale: f64,
    slopes: &'a mut [f64],
    out: &'a mut [f64],
}

impl<L: Loss> Kernel for Gradient<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vector>(self, simd: S) {
        let (main, tail) = self.records.groups();
        let (main_slopes, tail_slopes) = self.slopes.split_at_mut(self.records.records / LANES * LANES);
        main.predict(simd, self.w, main_slopes);
        main.clipped_slopes(simd, self.loss, main_slopes);
        tail.predict(simd, self.w, tail_slopes);
        tail.clipped_slopes(simd, self.loss, tail_slopes);
        let share = self.scale / self.records.records as f64;
        for_tiles!(self.records.features, |first, N| {
            let sums = main.add_columns::<S, N>(simd, first, main_slopes, [simd.splat(0.0); N]);
            let sums = tail.add_columns::<S, N>(simd, first, tail_slopes, sums);
            for (out, sums) in self.out[first..].iter_mut().zip(sums) {
                *out = sum(simd.lanes(sums)) * share;
            }
        });
    }
}

struct MeanLoss<'a, L> {
    records: Records<'a>,
    loss: L,
    w: &'a [f64],
    z: &'a mut [f64],
}

impl<L: Loss> Kernel for MeanLoss<'_, L> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Vector>(self, simd: S) -> f64 {
        let records = self.records.records;
        let (main, tail) = self.records.groups();
        let (main_z, tail_z) = self.z.split_at_mut(records / LANES * LANES);
        main.predict(simd, self.w, main_z);
        tail.predict(simd, self.w, tail_z);
        let sums = main.add_losses(self.loss, main_z, [0.0; LANES]);
        let sums = tail.add_losses(self.loss, tail_z, sums);
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
                records.gradient(loss, &w, 1.0, &mut scratch, &mut best);
                let slopes = records.slopes(&mut scratch);
                with_loss!(loss, loss => Gradient { records, loss, w: &w, scale: 1.0, slopes, out: &mut plain }.run(Baseline));
                assert!(best.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits()));
                let best = records.mean_loss(loss, &w, &mut scratch);
                let z = records.slopes(&mut scratch);
                let plain = with_loss!(loss, loss => MeanLoss { records, loss, w: &w, z }.run(Baseline));
                assert_eq!(best.to_bits(), plain.to_bits());
            }
        }
    }
}
