//! One client's records, laid out for the gradient kernel, and the kernel.
//!
//! Four records are interleaved: x_1 of all four, x_2 of all four, ..., then their targets, then their slope
//! limits. One vector instruction then processes four records without shuffling. The last group holds only the remaining
//! records, interleaved in the same way but fewer at a time; a few spare numbers at the end let it
//! be read four at a time too.
//!
//! Floating-point sums depend on their order, so the order is part of the definition: record j belongs to lane j mod
//! 4, a lane sums its records in file order, and the four lane sums are added as (0+1)+(2+3). Fused multiply-add is
//! never used. Every instruction set therefore produces the same bits.

mod kernel;
mod side_by_side;

use kernel::{Gradient, Groups, MeanLoss};
use side_by_side::Gradients;

use crate::loss::{AnyLoss, with_loss};
use crate::normal::Ahead;
use crate::privacy::{Clip, Clipping, Sensitivity};
use crate::simd::{LANES, WIDEST, dispatch};

/// Trials are computed side by side in multiples of this number.
pub const TRIALS: usize = LANES;

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

/// How one client's records lie in memory, and what they are stored with. The same value writes and reads them, so a clip
/// is not stated for records that were stored with another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordLayout {
    /// M.
    pub records: usize,
    /// P.
    pub features: usize,
    /// What they are stored with.
    pub clipping: Clipping,
    /// What sums over the records are divided by: M_k where clients count the same, the public mean of all M_k where records do.
    pub divisor: f64,
    /// How many rows the client says that it has: M, and those that it keeps out of training. The margin for rounding goes by this number, because which rows
    /// are kept out, and so M, follows from what they say.
    pub rows: usize,
}

impl RecordLayout {
    /// Numbers of storage.
    pub fn size(self) -> usize {
        size(self.records, self.features)
    }

    /// Writes record `j` into a client's storage.
    ///
    /// With an enforced clip, the slope limit is c1/||x||, so that no record's gradient is longer than c1; without one it is
    /// beyond any slope, but finite, so that zero times it is zero.
    ///
    /// # Panics
    /// If a number is not finite or there are not P of them: an infinite feature would pass any clip. Both are checked when
    /// data is read.
    pub fn store(self, storage: &mut [f64], j: usize, x: &[f64], y: f64) {
        let Self { records, features, clipping, .. } = self;
        assert!(x.len() == features && y.is_finite() && x.iter().all(|v| v.is_finite()), "P finite numbers");
        for (p, &v) in x.iter().enumerate() {
            storage[position(j, p, records, features)] = v;
        }
        let limit = clipping.enforced().map_or(f64::MAX, |clip| slope_limit(x, clip));
        storage[position(j, features, records, features)] = y;
        storage[position(j, features + 1, records, features)] = limit;
    }

    /// A view of records that this layout wrote.
    ///
    /// # Panics
    /// If the storage has another size, or there are no records: both are checked when data is loaded.
    #[inline]
    pub fn view(self, storage: &[f64]) -> Records<'_> {
        assert!(self.records > 0 && storage.len() == self.size(), "storage does not match its layout");
        assert!(self.rows >= self.records, "all records are rows");
        let Self { records, features, clipping, divisor, rows } = self;
        Records { storage, records, features, clipping, divisor, rows }
    }
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

/// One client's records with their memory, and the clip and divisor that they were stored with.
#[derive(Clone)]
pub struct Dataset {
    storage: Vec<f64>,
    layout: RecordLayout,
}

impl Dataset {
    /// From rows of `features` numbers, one after the other, and their targets; a mean over them is one of its own records.
    ///
    /// # Panics
    /// If there are no records or features, rows and targets do not match, or a number is not finite: data that was read by
    /// `undertone-data` is checked.
    pub fn new(rows: &[f64], targets: &[f64], features: usize, clipping: Clipping) -> Self {
        let (records, divisor) = (targets.len(), targets.len() as f64);
        Self::with_layout(rows, targets, RecordLayout { records, features, clipping, divisor, rows: records })
    }

    /// The same with a layout that says what sums are divided by.
    ///
    /// # Panics
    /// As [`Dataset::new`], and if the divisor is not a positive number.
    pub fn with_layout(rows: &[f64], targets: &[f64], layout: RecordLayout) -> Self {
        let features = layout.features;
        assert!(
            layout.records == targets.len() && layout.divisor > 0.0 && layout.divisor.is_finite(),
            "a layout of these"
        );
        assert!(features > 0 && !targets.is_empty() && rows.len() == targets.len() * features, "rows match targets");
        let mut storage = vec![0.0; layout.size()];
        for ((j, x), y) in rows.chunks_exact(features).enumerate().zip(targets) {
            layout.store(&mut storage, j, x, *y);
        }
        Self { storage, layout }
    }

    /// A view of them.
    pub fn records(&self) -> Records<'_> {
        self.layout.view(&self.storage)
    }
}

/// A view of one client's records.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    storage: &'a [f64],
    records: usize,
    features: usize,
    clipping: Clipping,
    divisor: f64,
    rows: usize,
}

/// Working space that the kernels reuse from client to client.
#[derive(Debug, Default, Clone)]
pub struct Scratch {
    slopes: Vec<f64>,
    /// One vector of the algorithm's own.
    pub(crate) vector: Vec<f64>,
    /// The public part of a step.
    pub(crate) public: Vec<f64>,
    /// Noise of the clients that come next in a simulation.
    pub(crate) ahead: Ahead,
}

impl<'a> Records<'a> {
    /// What the records were stored with.
    #[inline]
    pub fn clipping(self) -> Clipping {
        self.clipping
    }

    /// How far replacing one record can move the gradient: 2 c1/D, with D the divisor. Without a clip there is no bound.
    #[inline]
    pub fn gradient_sensitivity(self) -> Option<Sensitivity> {
        self.clipping.clip().map(|clip| Sensitivity::of_clipped_sum(clip, self.rows, self.divisor))
    }

    /// D, what sums over the records are divided by.
    #[inline]
    pub fn divisor(self) -> f64 {
        self.divisor
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

    /// The target of record `j`.
    pub fn target(self, j: usize) -> f64 {
        self.storage[position(j, self.features, self.records, self.features)]
    }

    /// `scale` times the clipped gradient at `w`: (scale/D) sum_j clamp(slope_j, limit_j) x_j, written to `out`, with D the
    /// divisor.
    ///
    /// This is the only code that turns records into messages, and it includes the clip.
    pub fn gradient(self, loss: AnyLoss, w: &[f64], scale: f64, scratch: &mut Scratch, out: &mut [f64]) {
        let slopes = self.slopes(scratch);
        with_loss!(loss, loss => dispatch(Gradient { records: self, loss, w, scale, slopes, out }));
    }

    /// The same at the points of several trials side by side, number p of trial t at p `trials` + t: each has the bits that it has alone.
    ///
    /// # Panics
    /// If there is not one trial or a multiple of [`TRIALS`], or `w` is not that long.
    pub fn gradients(
        self,
        loss: AnyLoss,
        w: &[f64],
        trials: usize,
        scale: f64,
        scratch: &mut Scratch,
        out: &mut [f64],
    ) {
        assert!(w.len() == trials * self.features && out.len() == w.len(), "P numbers of each trial");
        if trials == 1 {
            return self.gradient(loss, w, scale, scratch, out);
        }
        assert!(trials.is_multiple_of(TRIALS), "whole vectors");
        scratch.slopes.resize(self.records * WIDEST, 0.0);
        let slopes = &mut scratch.slopes[..];
        with_loss!(loss, loss => dispatch(Gradients { records: self, loss, w, trials, scale, slopes, out }));
    }

    /// The loss at `w`, unclipped: (1/D) sum_j loss(x_j.w, y_j), with D the divisor.
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
        let Records { records, features, storage, .. } = self;
        let full = records / LANES * LANES;
        let (main, tail) = storage.split_at(full * (features + EXTRA));
        (Groups { numbers: main, features, width: LANES }, Groups { numbers: tail, features, width: records - full })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::distr::Distribution;

    use super::*;
    use crate::knob::Settings;
    use crate::normal::Normal;
    use crate::simd::{Baseline, Kernel, on_each};

    /// The dispatched code and the baseline must agree to the last bit.
    #[test]
    fn dispatch_does_not_change_a_bit() {
        let mut state = 1u64;
        let mut number = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for (count, features) in [(1, 1), (4, 8), (50, 8), (13, 7), (31, 19), (64, 100)] {
            let clipping = Clipping::Enforced(Clip::new(0.8).unwrap());
            let layout = RecordLayout { records: count, features, clipping, divisor: count as f64, rows: count };
            let mut storage = vec![0.0; layout.size()];
            for j in 0..count {
                let x: Vec<f64> = (0..features).map(|_| number()).collect();
                layout.store(&mut storage, j, &x, number());
            }
            let records = layout.view(&storage);
            let w: Vec<f64> = (0..features).map(|_| number()).collect();
            for loss in losses() {
                let mut plain = vec![0.0; features];
                let mut slopes = vec![0.0; count.next_multiple_of(LANES)];
                with_loss!(loss, loss => Gradient { records, loss, w: &w, scale: 1.0, slopes: &mut slopes, out: &mut plain }.run(Baseline));
                for (set, best) in on_each(|| Alone { records, loss, w: &w }) {
                    assert!(same(&best, &plain), "{loss:?} on {set}");
                }
                let mut scratch = Scratch::default();
                let best = records.mean_loss(loss, &w, &mut scratch);
                let z = records.slopes(&mut scratch);
                let plain = with_loss!(loss, loss => MeanLoss { records, loss, w: &w, z }.run(Baseline));
                assert_eq!(best.to_bits(), plain.to_bits());
            }
        }
    }

    /// Every loss that there is.
    fn losses() -> Vec<AnyLoss> {
        let one = |(name, knobs): &(&str, &[crate::knob::Knob])| {
            let given =
                knobs.iter().fold(Settings::new(), |all, knob| all.with(knob.name, crate::knob::Value::Number(0.3)));
            AnyLoss::named(name, &given).expect("a loss of the list")
        };
        AnyLoss::ALL.iter().map(one).collect()
    }

    fn same(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
    }

    struct Alone<'a> {
        records: Records<'a>,
        loss: AnyLoss,
        w: &'a [f64],
    }

    impl Kernel for Alone<'_> {
        type Output = Vec<f64>;

        fn run<S: crate::simd::Vector>(self, simd: S) -> Vec<f64> {
            let Self { records, loss, w } = self;
            let (mut slopes, mut out) = (vec![0.0; records.records.next_multiple_of(LANES)], vec![0.0; w.len()]);
            with_loss!(loss, loss => Gradient { records, loss, w, scale: 1.0, slopes: &mut slopes, out: &mut out }.run(simd));
            out
        }
    }

    struct Together<'a> {
        records: Records<'a>,
        loss: AnyLoss,
        w: &'a [f64],
        trials: usize,
    }

    impl Kernel for Together<'_> {
        type Output = Vec<f64>;

        fn run<S: crate::simd::Vector>(self, simd: S) -> Vec<f64> {
            let Self { records, loss, w, trials } = self;
            let (mut slopes, mut out) = (vec![0.0; records.records * WIDEST], vec![0.0; w.len()]);
            let slopes = &mut slopes[..];
            with_loss!(loss, loss => Gradients { records, loss, w, trials, scale: -0.7, slopes, out: &mut out }.run(simd));
            out
        }
    }

    /// Every trial side by side has the bits that it has alone, on every instruction set.
    #[test]
    fn trials_side_by_side_are_the_trials() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
        let mut number = || Normal.sample(&mut rng);
        for (count, features, trials) in
            [(1, 1, 4), (2, 3, 8), (50, 8, 16), (13, 7, 12), (31, 19, 28), (64, 10, 20), (7, 8, 36)]
        {
            let clipping = Clipping::Enforced(Clip::new(0.8).unwrap());
            let rows: Vec<f64> = (0..count * features).map(|_| number()).collect();
            let targets: Vec<f64> = (0..count).map(|_| number().signum()).collect();
            let data = Dataset::new(&rows, &targets, features, clipping);
            let records = data.records();
            let w: Vec<f64> = (0..trials * features).map(|_| number()).collect();
            for loss in losses() {
                let of = |all: &[f64], t: usize| all.iter().skip(t).step_by(trials).copied().collect::<Vec<f64>>();
                for (set, all) in on_each(|| Together { records, loss, w: &w, trials }) {
                    for t in 0..trials {
                        let mut alone = vec![0.0; features];
                        records.gradient(loss, &of(&w, t), -0.7, &mut Scratch::default(), &mut alone);
                        assert!(same(&of(&all, t), &alone), "{loss:?} on {set}: trial {t} of {trials}");
                    }
                }
            }
        }
    }
}
