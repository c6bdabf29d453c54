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

/// How many bits the numbers of a record are stored with.
///
/// Rounding a record when it is stored depends on nothing but the record, so it changes nothing about privacy: slope limits follow from the rounded features, and are
/// rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// 64 bits.
    #[default]
    Double,
    /// 32 bits: half of the memory. All arithmetic has 64.
    Single,
}

/// How many numbers of 64 bits `records` records of `features` features take: what they hold, what reading the last of them four
/// at a time needs, and up to the end of a cache line.
pub fn size(records: usize, features: usize, precision: Precision) -> usize {
    const LINE: usize = 8;
    let whole = records.next_multiple_of(LANES);
    match precision {
        Precision::Double => records * (features + EXTRA) + (whole - records),
        // The last group is filled up with zeros.
        Precision::Single => whole * (features + EXTRA) / 2,
    }
    .next_multiple_of(LINE)
}

/// Where number `slot` of record `j` lies.
fn position(j: usize, slot: usize, records: usize, features: usize) -> usize {
    let (group, lane) = (j / LANES, j % LANES);
    let width = LANES.min(records - group * LANES);
    group * LANES * (features + EXTRA) + slot * width + lane
}

/// The two numbers of 32 bits that share the place of one.
#[inline(always)]
fn halves(word: f64) -> [f32; 2] {
    let bits = word.to_bits();
    [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)]
}

/// The nearest number of 32 bits; the largest in place of what is beyond.
fn single(number: f64) -> f32 {
    (number as f32).clamp(f32::MIN, f32::MAX)
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
    /// How many bits their numbers have.
    pub precision: Precision,
    /// What sums over the records are divided by: M_k where clients count the same, the public mean of all M_k where records do.
    pub divisor: f64,
    /// How many rows the client says that it has: M, and those that it keeps out of training. The margin for rounding goes by this number, because which rows
    /// are kept out, and so M, follows from what they say.
    pub rows: usize,
}

impl RecordLayout {
    /// Numbers of storage.
    pub fn size(self) -> usize {
        size(self.records, self.features, self.precision)
    }

    /// Where number `slot` of record `j` lies: at which place, and in which half of it.
    fn place(self, j: usize, slot: usize) -> (usize, usize) {
        match self.precision {
            Precision::Double => (position(j, slot, self.records, self.features), 0),
            Precision::Single => {
                let at = (j / LANES * (self.features + EXTRA) + slot) * LANES + j % LANES;
                (at / 2, at % 2)
            }
        }
    }

    fn write(self, storage: &mut [f64], j: usize, slot: usize, number: f64) {
        let (at, half) = self.place(j, slot);
        if self.precision == Precision::Double {
            storage[at] = number;
            return;
        }
        let mut both = halves(storage[at]);
        both[half] = number as f32;
        storage[at] = f64::from_bits(u64::from(both[0].to_bits()) | u64::from(both[1].to_bits()) << 32);
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
        assert!(x.len() == self.features && y.is_finite() && x.iter().all(|v| v.is_finite()), "P finite numbers");
        let rounded: Vec<f64>;
        let (x, y) = match self.precision {
            Precision::Double => (x, y),
            Precision::Single => {
                rounded = x.iter().map(|v| single(*v).into()).collect();
                (&rounded[..], single(y).into())
            }
        };
        for (p, &v) in x.iter().enumerate() {
            self.write(storage, j, p, v);
        }
        let mut limit = self.clipping.enforced().map_or(f64::MAX, |clip| slope_limit(x, clip));
        if self.precision == Precision::Single {
            let near = single(limit);
            limit = if f64::from(near) > limit { near.next_down() } else { near }.into();
        }
        self.write(storage, j, self.features, y);
        self.write(storage, j, self.features + 1, limit);
    }

    /// A view of records that this layout wrote.
    ///
    /// # Panics
    /// If the storage has another size, or there are no records: both are checked when data is loaded.
    #[inline]
    pub fn view(self, storage: &[f64]) -> Records<'_> {
        assert!(self.records > 0 && storage.len() == self.size(), "storage does not match its layout");
        assert!(self.rows >= self.records, "all records are rows");
        Records { storage, layout: self }
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
        let precision = Precision::Double;
        Self::with_layout(
            rows,
            targets,
            RecordLayout { records, features, clipping, precision, divisor, rows: records },
        )
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
    layout: RecordLayout,
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
    /// Records of single precision in double precision.
    wide: Vec<f64>,
}

impl<'a> Records<'a> {
    /// What the records were stored with.
    #[inline]
    pub fn clipping(self) -> Clipping {
        self.layout.clipping
    }

    /// How far replacing one record can move the gradient: 2 c1/D, with D the divisor. Without a clip there is no bound.
    #[inline]
    pub fn gradient_sensitivity(self) -> Option<Sensitivity> {
        self.layout.clipping.clip().map(|clip| Sensitivity::of_clipped_sum(clip, self.layout.rows, self.layout.divisor))
    }

    /// D, what sums over the records are divided by.
    #[inline]
    pub fn divisor(self) -> f64 {
        self.layout.divisor
    }

    /// M, the number of records.
    pub fn len(self) -> usize {
        self.layout.records
    }

    /// A client always has records.
    pub fn is_empty(self) -> bool {
        false
    }

    /// P, the number of features.
    pub fn features(self) -> usize {
        self.layout.features
    }

    /// Copies the features of record `j` to `x` and returns its target and slope limit.
    pub fn read(self, j: usize, x: &mut [f64]) -> (f64, f64) {
        for (p, v) in x.iter_mut().enumerate() {
            *v = self.number(j, p);
        }
        (self.target(j), self.number(j, self.features() + 1))
    }

    fn number(self, j: usize, slot: usize) -> f64 {
        let (at, half) = self.layout.place(j, slot);
        match self.layout.precision {
            Precision::Double => self.storage[at],
            Precision::Single => halves(self.storage[at])[half].into(),
        }
    }

    /// The target of record `j`.
    pub fn target(self, j: usize) -> f64 {
        self.number(j, self.features())
    }

    /// `scale` times the clipped gradient at `w`: (scale/D) sum_j clamp(slope_j, limit_j) x_j, written to `out`, with D the
    /// divisor.
    ///
    /// This is the only code that turns records into messages, and it includes the clip.
    pub fn gradient(self, loss: AnyLoss, w: &[f64], scale: f64, scratch: &mut Scratch, out: &mut [f64]) {
        let slopes = self.slopes(scratch);
        match self.layout.precision {
            Precision::Double => {
                with_loss!(loss, loss => dispatch(Gradient::<_, false> { records: self, loss, w, scale, slopes, out }));
            }
            Precision::Single => {
                with_loss!(loss, loss => dispatch(Gradient::<_, true> { records: self, loss, w, scale, slopes, out }));
            }
        }
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
        assert!(w.len() == trials * self.features() && out.len() == w.len(), "P numbers of each trial");
        if trials == 1 {
            return self.gradient(loss, w, scale, scratch, out);
        }
        assert!(trials.is_multiple_of(TRIALS), "whole vectors");
        scratch.slopes.resize(self.len() * WIDEST, 0.0);
        let slopes = &mut scratch.slopes[..];
        let records = self.widened(&mut scratch.wide);
        with_loss!(loss, loss => dispatch(Gradients { records, loss, w, trials, scale, slopes, out }));
    }

    /// The same records in double precision: they are converted once for all trials.
    fn widened<'w>(self, wide: &'w mut Vec<f64>) -> Records<'w>
    where
        'a: 'w,
    {
        if self.layout.precision == Precision::Double {
            return self;
        }
        let layout = RecordLayout { precision: Precision::Double, ..self.layout };
        wide.clear();
        let full = self.len() / LANES * LANES;
        let (groups, _) = self.storage.split_at(full * (self.features() + EXTRA) / 2);
        wide.extend(groups.iter().flat_map(|word| halves(*word)).map(f64::from));
        wide.resize(layout.size(), 0.0);
        for j in full..self.len() {
            (0..self.features() + EXTRA).for_each(|slot| layout.write(wide, j, slot, self.number(j, slot)));
        }
        Records { storage: wide, layout }
    }

    /// The loss at `w`, unclipped: (1/D) sum_j loss(x_j.w, y_j), with D the divisor.
    pub fn mean_loss(self, loss: AnyLoss, w: &[f64], scratch: &mut Scratch) -> f64 {
        let z = self.slopes(scratch);
        match self.layout.precision {
            Precision::Double => with_loss!(loss, loss => dispatch(MeanLoss::<_, false> { records: self, loss, w, z })),
            Precision::Single => with_loss!(loss, loss => dispatch(MeanLoss::<_, true> { records: self, loss, w, z })),
        }
    }

    /// Room for one number per record, in whole groups.
    fn slopes(self, scratch: &mut Scratch) -> &mut [f64] {
        scratch.slopes.resize(self.len().next_multiple_of(LANES), 0.0);
        &mut scratch.slopes
    }

    /// The full groups, and the last one, which may hold fewer records or none. Of single precision all are full: zeros add nothing.
    #[inline(always)]
    fn groups<const SINGLE: bool>(self) -> (Groups<'a, true, SINGLE>, Groups<'a, false, SINGLE>) {
        let RecordLayout { records, features, .. } = self.layout;
        let full = self.full();
        let size = full * (features + EXTRA) / if SINGLE { 2 } else { 1 };
        let (main, tail) = self.storage.split_at(size);
        let tail = if SINGLE { &[] } else { tail };
        let left = records.saturating_sub(full);
        (Groups { numbers: main, features, width: LANES }, Groups { numbers: tail, features, width: left })
    }

    /// Records in full groups, zeros of single precision included.
    #[inline(always)]
    fn full(self) -> usize {
        match self.layout.precision {
            Precision::Double => self.len() / LANES * LANES,
            Precision::Single => self.len().next_multiple_of(LANES),
        }
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
        let sizes = [(1, 1), (4, 8), (50, 8), (13, 7), (31, 19), (64, 100)];
        let both = [Precision::Double, Precision::Single];
        for ((count, features), precision) in sizes.into_iter().flat_map(|size| both.map(|precision| (size, precision)))
        {
            let clipping = Clipping::Enforced(Clip::new(0.8).unwrap());
            let layout = layout(count, features, clipping, precision);
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
                let out = &mut plain[..];
                match precision {
                    Precision::Double => {
                        with_loss!(loss, loss => Gradient::<_, false> { records, loss, w: &w, scale: 1.0, slopes: &mut slopes, out }.run(Baseline))
                    }
                    Precision::Single => {
                        with_loss!(loss, loss => Gradient::<_, true> { records, loss, w: &w, scale: 1.0, slopes: &mut slopes, out }.run(Baseline))
                    }
                }
                for (set, best) in on_each(|| Alone { records, loss, w: &w }) {
                    assert!(same(&best, &plain), "{loss:?} on {set}");
                }
                let mut scratch = Scratch::default();
                let best = records.mean_loss(loss, &w, &mut scratch);
                let z = records.slopes(&mut scratch);
                let plain = match precision {
                    Precision::Double => {
                        with_loss!(loss, loss => MeanLoss::<_, false> { records, loss, w: &w, z }.run(Baseline))
                    }
                    Precision::Single => {
                        with_loss!(loss, loss => MeanLoss::<_, true> { records, loss, w: &w, z }.run(Baseline))
                    }
                };
                assert_eq!(best.to_bits(), plain.to_bits());
            }
        }
    }

    fn layout(records: usize, features: usize, clipping: Clipping, precision: Precision) -> RecordLayout {
        RecordLayout { records, features, clipping, precision, divisor: records as f64, rows: records }
    }

    /// Single precision is double precision on rounded records, to the last bit, alone and beside other trials; its limits are never above those.
    #[test]
    fn single_precision_rounds_records_and_nothing_else() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
        let mut number = || 3.0 * Normal.sample(&mut rng);
        for (count, features) in [(1, 1), (4, 8), (50, 8), (13, 7), (31, 19), (66, 33)] {
            let rows: Vec<f64> = (0..count * features).map(|_| number()).collect();
            let targets: Vec<f64> = (0..count).map(|_| number()).collect();
            let rounded = |all: &[f64]| all.iter().map(|v| f64::from(*v as f32)).collect::<Vec<f64>>();
            let (near, near_targets) = (rounded(&rows), rounded(&targets));
            let w: Vec<f64> = (0..8 * features).map(|_| number()).collect();
            let mut scratch = Scratch::default();
            // Nothing is limited: the bits are the same.
            let off = |precision| layout(count, features, Clipping::Off, precision);
            let single = Dataset::with_layout(&rows, &targets, off(Precision::Single));
            let double = Dataset::with_layout(&near, &near_targets, off(Precision::Double));
            for loss in losses() {
                for trials in [1, 8] {
                    let mut of = |data: &Dataset| {
                        let mut out = vec![0.0; trials * features];
                        data.records().gradients(loss, &w[..trials * features], trials, 0.7, &mut scratch, &mut out);
                        out
                    };
                    assert!(same(&of(&single), &of(&double)), "{loss:?} of {count} records, {trials} trials");
                }
                let mut of = |data: &Dataset| data.records().mean_loss(loss, &w[..features], &mut scratch);
                assert_eq!(of(&single).to_bits(), of(&double).to_bits(), "{loss:?} of {count} records");
            }
            // With a clip every gradient of a record stays below it, by the features that are there.
            let clip = Clip::new(0.37).unwrap();
            let clipped = layout(count, features, Clipping::Enforced(clip), Precision::Single);
            let data = Dataset::with_layout(&rows, &targets, clipped);
            let mut x = vec![0.0; features];
            for j in 0..count {
                let (y, limit) = data.records().read(j, &mut x);
                assert_eq!((&x[..], y), (&near[j * features..][..features], near_targets[j]));
                let exact = slope_limit(&x, clip);
                assert!(limit <= exact && limit > exact * (1.0 - 2e-7), "{limit} for {exact}");
            }
        }
    }

    /// Numbers beyond those of 32 bits become the largest, and what is below them is zero: no record has an infinite feature.
    #[test]
    fn single_precision_stays_finite() {
        let clip = Clipping::Enforced(Clip::new(1.0).unwrap());
        let data = Dataset::with_layout(&[1e300, -1e300, 1e-300], &[f64::MAX], layout(1, 3, clip, Precision::Single));
        let mut x = [0.0; 3];
        let (y, limit) = data.records().read(0, &mut x);
        let most = f64::from(f32::MAX);
        assert_eq!((x, y), ([most, -most, 0.0], most));
        assert!(limit * most * 2f64.sqrt() <= 1.0);
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
            let (mut slopes, mut out) = (vec![0.0; records.len().next_multiple_of(LANES)], vec![0.0; w.len()]);
            let (slopes, to) = (&mut slopes[..], &mut out[..]);
            match records.layout.precision {
                Precision::Double => {
                    with_loss!(loss, loss => Gradient::<_, false> { records, loss, w, scale: 1.0, slopes, out: to }.run(simd))
                }
                Precision::Single => {
                    with_loss!(loss, loss => Gradient::<_, true> { records, loss, w, scale: 1.0, slopes, out: to }.run(simd))
                }
            }
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
            let (mut slopes, mut out) = (vec![0.0; records.len() * WIDEST], vec![0.0; w.len()]);
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
