//! The gradient kernel for several trials at once: every record is loaded once for all of them.
//!
//! Number p of trial t is at p `trials` + t, so that a vector holds the same number of neighbouring trials. The sums have the order of the kernel for one trial (four lanes
//! of records, each in file order, added as (0+1)+(2+3)), so each trial has the bits that it has alone.

use super::kernel::{clipped_slope, for_tiles};
use super::{EXTRA, Records};
use crate::loss::Loss;
use crate::simd::{Kernel, LANES, Vector};

pub(super) struct Gradients<'a, L> {
    pub records: Records<'a>,
    pub loss: L,
    pub w: &'a [f64],
    /// How many there are: a multiple of [`LANES`].
    pub trials: usize,
    pub scale: f64,
    /// Room for one number of each record in as many trials as the widest vector has.
    pub slopes: &'a mut [f64],
    pub out: &'a mut [f64],
}

impl<L: Loss> Kernel for Gradients<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vector>(mut self, simd: S) {
        let done = self.tiles(simd.twice().twice(), 0);
        let done = self.tiles(simd.twice(), done);
        self.tiles(simd, done);
    }
}

impl<L: Loss> Gradients<'_, L> {
    /// The trials from `first` on, as long as they fill vectors; which is the first that is left.
    #[inline(always)]
    fn tiles<S: Vector>(&mut self, simd: S, mut first: usize) -> usize {
        while first + S::LANES <= self.trials {
            self.tile(simd, first);
            first += S::LANES;
        }
        first
    }

    /// As many trials as a vector has, from `first` on.
    #[inline(always)]
    fn tile<S: Vector>(&mut self, simd: S, first: usize) {
        let Self { records, loss, w, trials, .. } = *self;
        let slopes = &mut self.slopes[..records.len() * S::LANES];
        for_tiles!(records.features(), |p, N| predict::<S, N>(simd, records, p, &w[first..], trials, slopes));
        let (main, tail, width) = records.parts();
        let (main_z, tail_z) = slopes.split_at_mut(records.len() / LANES * LANES * S::LANES);
        let groups = main.chunks_exact(LANES * (records.features() + EXTRA));
        for (group, z) in groups.zip(main_z.chunks_exact_mut(LANES * S::LANES)) {
            let extra = &group[LANES * records.features()..][..LANES * EXTRA];
            for (lane, z) in z.chunks_exact_mut(S::LANES).enumerate() {
                let (y, limit) = (extra[lane], extra[LANES + lane]);
                z.iter_mut().for_each(|z| *z = clipped_slope(loss, *z, y, limit));
            }
        }
        for (lane, z) in tail_z.chunks_exact_mut(S::LANES).enumerate() {
            let extra = &tail[width * records.features() + lane..];
            let (y, limit) = (extra[0], extra[width]);
            z.iter_mut().for_each(|z| *z = clipped_slope(loss, *z, y, limit));
        }
        let share = simd.splat(self.scale / records.divisor());
        for_tiles!(records.features(), |p, N| {
            let sums: [S::V; N] = sums(simd, records, p, slopes);
            for (i, sum) in sums.into_iter().enumerate() {
                let scaled = simd.multiply(sum, share);
                simd.store(scaled, &mut self.out[(p + i) * trials + first..]);
            }
        });
    }
}

/// Adds what N features from `p` on give to the predictions, in the order of the features.
#[inline(always)]
fn predict<S: Vector, const N: usize>(simd: S, records: Records, p: usize, w: &[f64], trials: usize, z: &mut [f64]) {
    let mut own = [simd.splat(0.0); N];
    for i in 0..N {
        own[i] = simd.load(&w[(p + i) * trials..]);
    }
    let (main, tail, width) = records.parts();
    let (main_z, tail_z) = z.split_at_mut(records.len() / LANES * LANES * S::LANES);
    let groups = main.chunks_exact(LANES * (records.features() + EXTRA));
    for (group, z) in groups.zip(main_z.chunks_exact_mut(LANES * S::LANES)) {
        let columns = &group[p * LANES..][..N * LANES];
        for (lane, z) in z.chunks_exact_mut(S::LANES).enumerate() {
            let mut sum = if p == 0 { simd.splat(0.0) } else { simd.load(z) };
            for i in 0..N {
                sum = simd.multiply_add(sum, simd.splat(columns[i * LANES + lane]), own[i]);
            }
            simd.store(sum, z);
        }
    }
    for (lane, z) in tail_z.chunks_exact_mut(S::LANES).enumerate() {
        let mut sum = if p == 0 { simd.splat(0.0) } else { simd.load(z) };
        for i in 0..N {
            sum = simd.multiply_add(sum, simd.splat(tail[(p + i) * width + lane]), own[i]);
        }
        simd.store(sum, z);
    }
}

/// sum_j slope_j x_jp for N features from `p` on.
#[inline(always)]
fn sums<S: Vector, const N: usize>(simd: S, records: Records, p: usize, slopes: &[f64]) -> [S::V; N] {
    let mut first = lane_sums::<S, N>(simd, records, p, slopes, 0);
    add(simd, &mut first, lane_sums::<S, N>(simd, records, p, slopes, 1));
    let mut second = lane_sums::<S, N>(simd, records, p, slopes, 2);
    add(simd, &mut second, lane_sums::<S, N>(simd, records, p, slopes, 3));
    add(simd, &mut first, second);
    first
}

#[inline(always)]
fn add<S: Vector, const N: usize>(simd: S, sums: &mut [S::V; N], more: [S::V; N]) {
    for i in 0..N {
        sums[i] = simd.add(sums[i], more[i]);
    }
}

/// The same over every fourth record.
#[inline(always)]
fn lane_sums<S: Vector, const N: usize>(simd: S, records: Records, p: usize, slopes: &[f64], lane: usize) -> [S::V; N] {
    let (main, tail, width) = records.parts();
    let (main_slopes, tail_slopes) = slopes.split_at(records.len() / LANES * LANES * S::LANES);
    let mut sums = [simd.splat(0.0); N];
    let groups = main.chunks_exact(LANES * (records.features() + EXTRA));
    for (group, slopes) in groups.zip(main_slopes.chunks_exact(LANES * S::LANES)) {
        let columns = &group[p * LANES..][..N * LANES];
        let slope = simd.load(&slopes[lane * S::LANES..]);
        for i in 0..N {
            sums[i] = simd.multiply_add(sums[i], slope, simd.splat(columns[i * LANES + lane]));
        }
    }
    if lane < width {
        let slope = simd.load(&tail_slopes[lane * S::LANES..]);
        for i in 0..N {
            sums[i] = simd.multiply_add(sums[i], slope, simd.splat(tail[(p + i) * width + lane]));
        }
    }
    sums
}

impl<'a> Records<'a> {
    /// The full groups, the last one, and how many records that has.
    #[inline(always)]
    fn parts(self) -> (&'a [f64], &'a [f64], usize) {
        let full = self.len() / LANES * LANES;
        let (main, tail) = self.storage.split_at(full * (self.features() + EXTRA));
        (main, tail, self.len() - full)
    }
}
