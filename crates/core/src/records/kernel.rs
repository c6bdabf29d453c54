//! The gradient kernel: every record's clipped slope, and the sum of slopes times features.

use super::{EXTRA, Records};
use crate::loss::Loss;
use crate::simd::{Kernel, LANES, Lanes, Vector};

/// Features handled at a time; their weights or sums stay in registers.
pub(super) const TILE: usize = 8;

#[inline(always)]
fn sum(lanes: Lanes) -> f64 {
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

#[inline(always)]
fn lanes<S: Vector>(simd: S, v: S::V) -> Lanes {
    let mut lanes = [0.0; LANES];
    simd.store(v, &mut lanes);
    lanes
}

/// The slope of the loss, no further from zero than the limit.
#[inline(always)]
pub(super) fn clipped_slope<L: Loss>(loss: L, z: f64, y: f64, limit: f64) -> f64 {
    let slope = loss.slope(z, y);
    // Written so that a NaN, which only a diverged model can cause, becomes the limit and is clipped too.
    let slope = if slope > -limit { slope } else { -limit };
    if slope < limit { slope } else { limit }
}

/// Runs `$body` for the tiles that cover `$features` features, with `$first` the first feature of each and `$n` its
/// size.
macro_rules! for_tiles {
    ($features:expr, |$first:ident, $n:ident| $body:expr) => {{
        let mut $first = 0;
        while $first < $features {
            $first += match $features - $first {
                $crate::records::kernel::TILE.. => {
                    const $n: usize = $crate::records::kernel::TILE;
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

pub(super) use for_tiles;

/// Groups of `width` records each; `FULL` says at compile time that the width is `LANES`, and `SINGLE` that two numbers share a place.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a, const FULL: bool, const SINGLE: bool> {
    pub numbers: &'a [f64],
    pub features: usize,
    pub width: usize,
}

impl<'a, const FULL: bool, const SINGLE: bool> Groups<'a, FULL, SINGLE> {
    #[inline(always)]
    fn width(self) -> usize {
        if FULL { LANES } else { self.width }
    }

    /// Places that a slot takes, and that reading it four numbers at a time needs.
    #[inline(always)]
    fn places(self) -> (usize, usize) {
        if SINGLE { (LANES / 2, LANES / 2) } else { (self.width(), LANES) }
    }

    /// The groups; a narrow one is alone and includes the spare numbers at its end.
    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = &'a [f64]> {
        let size = if FULL { self.places().0 * (self.features + EXTRA) } else { self.numbers.len().max(1) };
        self.numbers.chunks_exact(size)
    }

    /// The numbers of `count` slots from `first` on, as far as reading each four at a time needs.
    #[inline(always)]
    fn slots(self, group: &[f64], first: usize, count: usize) -> &[f64] {
        let (step, last) = self.places();
        &group[first * step..][..(count - 1) * step + last]
    }

    /// Slot `i` of some; lanes beyond the width hold whatever comes next in memory.
    #[inline(always)]
    fn load<S: Vector>(self, simd: S, slots: &[f64], i: usize) -> S::V {
        let slot = &slots[i * self.places().0..];
        if SINGLE { simd.load_single(slot) } else { simd.load(slot) }
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
            simd.store(sum, z);
        }
    }

    /// Replaces every prediction by its clamped slope; lanes beyond the width get zero, so that they add nothing.
    #[inline(always)]
    fn clipped_slopes<S: Vector, L: Loss>(self, simd: S, loss: L, z: &mut [f64]) {
        for (group, z) in self.iter().zip(z.chunks_exact_mut(LANES)) {
            let extra = self.slots(group, self.features, EXTRA);
            let (y, limit) = (lanes(simd, self.load(simd, extra, 0)), lanes(simd, self.load(simd, extra, 1)));
            let clipped: Lanes = std::array::from_fn(|lane| {
                if lane < self.width() { clipped_slope(loss, z[lane], y[lane], limit[lane]) } else { 0.0 }
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

    /// Adds the loss of every record, of which there are so many, to its lane sum.
    #[inline(always)]
    fn add_losses<S: Vector, L: Loss>(self, simd: S, loss: L, z: &[f64], records: usize, mut sums: Lanes) -> Lanes {
        for ((group, z), first) in self.iter().zip(z.chunks_exact(LANES)).zip((0..).step_by(LANES)) {
            let y = lanes(simd, self.load(simd, self.slots(group, self.features, 1), 0));
            for lane in 0..self.width().min(records - first) {
                sums[lane] += loss.value(z[lane], y[lane]);
            }
        }
        sums
    }
}

pub(super) struct Gradient<'a, L, const SINGLE: bool> {
    pub records: Records<'a>,
    pub loss: L,
    pub w: &'a [f64],
    pub scale: f64,
    pub slopes: &'a mut [f64],
    pub out: &'a mut [f64],
}

impl<L: Loss, const SINGLE: bool> Kernel for Gradient<'_, L, SINGLE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vector>(self, simd: S) {
        let (main, tail) = self.records.groups::<SINGLE>();
        let (main_slopes, tail_slopes) = self.slopes.split_at_mut(self.records.full());
        main.predict(simd, self.w, main_slopes);
        main.clipped_slopes(simd, self.loss, main_slopes);
        tail.predict(simd, self.w, tail_slopes);
        tail.clipped_slopes(simd, self.loss, tail_slopes);
        let share = self.scale / self.records.divisor();
        for_tiles!(self.records.features(), |first, N| {
            let sums = main.add_columns::<S, N>(simd, first, main_slopes, [simd.splat(0.0); N]);
            let sums = tail.add_columns::<S, N>(simd, first, tail_slopes, sums);
            for (out, sums) in self.out[first..].iter_mut().zip(sums) {
                *out = sum(lanes(simd, sums)) * share;
            }
        });
    }
}

pub(super) struct MeanLoss<'a, L, const SINGLE: bool> {
    pub records: Records<'a>,
    pub loss: L,
    pub w: &'a [f64],
    pub z: &'a mut [f64],
}

impl<L: Loss, const SINGLE: bool> Kernel for MeanLoss<'_, L, SINGLE> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Vector>(self, simd: S) -> f64 {
        let (records, full) = (self.records.len(), self.records.full());
        let (main, tail) = self.records.groups::<SINGLE>();
        let (main_z, tail_z) = self.z.split_at_mut(full);
        main.predict(simd, self.w, main_z);
        tail.predict(simd, self.w, tail_z);
        let sums = main.add_losses(simd, self.loss, main_z, records.min(full), [0.0; LANES]);
        let sums = tail.add_losses(simd, self.loss, tail_z, records - records.min(full), sums);
        sum(sums) / self.records.divisor()
    }
}
