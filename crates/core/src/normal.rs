//! Standard normal numbers for simulations, with the same bits on every machine.
//!
//! [`Normal`] draws from any generator. [`fill`] and [`add_scaled`] draw from streams that have names and no state: number i of stream (seed, a, b, c) follows from
//! these five alone, so any part of any stream can be drawn by itself, several numbers or several streams side by side.
//!
//! Words come from Philox4x32-10 (Salmon, Moraes, Dror, Shaw, *Parallel random numbers: as easy as 1, 2, 3*, 2011), a function of a counter and a key. Two words become two
//! normals by the transform of Box and Muller (1958), sqrt(-2 ln u) (cos v, sin v), with series of fixed length for the logarithm and the angle: nothing is looked up, nothing is
//! rejected, and nothing is left to the operating system, so that lanes of vectors can be filled with it. The largest of all numbers is 8.57.

use rand::Rng;
use rand::distr::Distribution;

use crate::simd::{Kernel, Vector, dispatch};

/// The standard normal distribution.
#[derive(Debug, Clone, Copy)]
pub struct Normal;

impl Distribution<f64> for Normal {
    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        let ([x], _) = normals([rng.next_u64()], [rng.next_u64()]);
        x
    }
}

/// The name of a stream, with the seed: (a, b, c).
pub type Name = [u32; 3];

/// Numbers 0, 1, 2, ... of a stream.
pub fn fill(seed: u64, name: Name, out: &mut [f64]) {
    out.fill(0.0);
    add_scaled(seed, name, 1, 1.0, out);
}

/// Adds `scale` times the numbers of `streams` streams to `out`: of (seed, a, b, c), (seed, a, b, c + 1) and so on, number i of stream t at i `streams` + t.
///
/// # Panics
/// If there are not as many numbers of each stream, or 2^32 or more.
pub fn add_scaled(seed: u64, name: Name, streams: usize, scale: f64, out: &mut [f64]) {
    draw(Draw { seed, name, varied: Varied::C, streams, scale, out });
}

/// The most streams that are drawn ahead.
const AHEAD: usize = 16;

/// Numbers of several streams, drawn before they are asked for: together they take a fraction of the time.
#[derive(Debug, Default, Clone)]
pub struct Ahead {
    seed: u64,
    /// What the streams have in common: (b, c).
    name: [u32; 2],
    count: usize,
    /// The a of each.
    streams: Vec<u32>,
    /// The stream that is asked for next, most likely.
    next: usize,
    numbers: Vec<f64>,
}

impl Ahead {
    /// The first `count` numbers of a stream. `upcoming` are the a's of those that will be asked for next, from this one on: the first of them are drawn too.
    pub fn stream(&mut self, seed: u64, name: Name, upcoming: &[u32], count: usize) -> Row<'_> {
        let [a, b, c] = name;
        let is_known = (self.seed, self.count, self.name) == (seed, count, [b, c]);
        let mut place = if is_known { self.place(a) } else { None };
        if place.is_none() {
            (self.seed, self.name, self.count) = (seed, [b, c], count);
            self.streams.clear();
            match upcoming.first() {
                Some(first) if *first == a => self.streams.extend(upcoming.iter().take(AHEAD)),
                _ => self.streams.push(a),
            }
            let streams = self.streams.len();
            self.numbers.clear();
            self.numbers.resize(count * streams, 0.0);
            let varied = if streams == 1 { Varied::C } else { Varied::A(&self.streams) };
            draw(Draw { seed, name, varied, streams, scale: 1.0, out: &mut self.numbers });
            place = Some(0);
        }
        let place = place.expect("known or drawn");
        self.next = place + 1;
        Row { numbers: &self.numbers[place.min(self.numbers.len())..], step: self.streams.len() }
    }

    /// Which of the streams that are known this is.
    fn place(&self, a: u32) -> Option<usize> {
        if self.streams.get(self.next) == Some(&a) {
            return Some(self.next);
        }
        self.streams.iter().position(|known| *known == a)
    }
}

/// Numbers of one stream among those of others.
pub struct Row<'a> {
    numbers: &'a [f64],
    step: usize,
}

impl Row<'_> {
    /// Number i.
    #[inline(always)]
    pub fn number(&self, i: usize) -> f64 {
        self.numbers[i * self.step]
    }
}

/// Which part of the name differs from stream to stream.
#[derive(Clone, Copy)]
enum Varied<'a> {
    /// It is one of these, at most 16.
    A(&'a [u32]),
    /// It goes up by one.
    C,
}

/// A draw from several streams.
struct Draw<'a> {
    seed: u64,
    name: Name,
    varied: Varied<'a>,
    streams: usize,
    scale: f64,
    out: &'a mut [f64],
}

fn draw(draw: Draw) {
    let count = draw.out.len() / draw.streams;
    assert!(draw.out.len().is_multiple_of(draw.streams) && u32::try_from(count).is_ok(), "numbers of whole streams");
    dispatch(draw);
}

impl Kernel for Draw<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vector>(mut self, _: S) {
        if self.streams > 1 {
            let mut first = 0;
            while self.streams - first > 8 {
                self.tile::<16>(first);
                first = (first + 16).min(self.streams);
            }
            if first < self.streams {
                self.tile::<8>(first);
            }
            return;
        }
        let mut first = 0;
        while first < self.out.len() {
            self.numbers(first);
            first += 16;
        }
    }
}

impl Draw<'_> {
    /// The next 16 numbers of the only stream.
    #[inline(always)]
    fn numbers(&mut self, first: usize) {
        let pairs = std::array::from_fn(|lane| (first / 2 + lane) as u64);
        let [a, b, c] = self.name.map(u64::from);
        let [u, v] = philox::<8>([pairs, [a; 8], [b; 8], [c; 8]], self.seed);
        let (even, odd) = normals(u, v);
        for (lane, out) in self.out[first..].chunks_mut(2).take(8).enumerate() {
            out.iter_mut().zip([even[lane], odd[lane]]).for_each(|(out, x)| *out += self.scale * x);
        }
    }

    /// All numbers of N streams from `first` on, or of those that there are.
    #[inline(always)]
    fn tile<const N: usize>(&mut self, first: usize) {
        let Self { seed, name, varied, streams, scale, .. } = *self;
        let mut names = name.map(|part| [u64::from(part); N]);
        match varied {
            Varied::A(list) => names[0].iter_mut().zip(&list[first..]).for_each(|(part, a)| *part = u64::from(*a)),
            Varied::C => {
                for (lane, part) in names[2].iter_mut().enumerate() {
                    *part = u64::from(name[2].wrapping_add((first + lane) as u32));
                }
            }
        }
        let [a, b, c] = names;
        for (pair, rows) in self.out.chunks_mut(2 * streams).enumerate() {
            let [u, v] = philox([[pair as u64; N], a, b, c], seed);
            let (even, odd) = normals(u, v);
            for (row, drawn) in rows.chunks_exact_mut(streams).zip([even, odd]) {
                let row = &mut row[first..];
                match row.first_chunk_mut::<N>() {
                    Some(row) => row.iter_mut().zip(drawn).for_each(|(out, x)| *out += scale * x),
                    None => row.iter_mut().zip(drawn).for_each(|(out, x)| *out += scale * x),
                }
            }
        }
    }
}

/// Philox4x32-10 of N counters, whose parts are below 2^32: two words of each.
#[inline(always)]
fn philox<const N: usize>(counter: [[u64; N]; 4], key: u64) -> [[u64; N]; 2] {
    const LOW: u64 = u32::MAX as u64;
    const FACTORS: [u64; 2] = [0xd251_1f53, 0xcd9e_8d57];
    const STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    let [mut a, mut b, mut c, mut d] = counter;
    let (mut k, mut l) = (key as u32, (key >> 32) as u32);
    for _ in 0..10 {
        for lane in 0..N {
            let first = (a[lane] & LOW) * FACTORS[0];
            let second = (c[lane] & LOW) * FACTORS[1];
            // Only the lower halves count; the upper ones are removed at the end.
            a[lane] = (second >> 32) ^ b[lane] ^ u64::from(k);
            b[lane] = second;
            c[lane] = (first >> 32) ^ d[lane] ^ u64::from(l);
            d[lane] = first;
        }
        (k, l) = (k.wrapping_add(STEPS[0]), l.wrapping_add(STEPS[1]));
    }
    [std::array::from_fn(|i| a[i] & LOW | b[i] << 32), std::array::from_fn(|i| c[i] & LOW | d[i] << 32)]
}

/// Two normals from two words each. The loop has no branches, so that it becomes vector instructions.
#[inline(always)]
fn normals<const N: usize>(u: [u64; N], v: [u64; N]) -> ([f64; N], [f64; N]) {
    let (mut first, mut second) = ([0.0; N], [0.0; N]);
    for lane in 0..N {
        let radius = minus_twice_log(u[lane]).sqrt();
        // A point of the arc of 90 degrees around (1, 0).
        let angle = (one_to_two(v[lane]) - 1.5) * std::f64::consts::FRAC_PI_2;
        let square = angle * angle;
        let (sin, cos) = (angle * series(square, SIN), series(square, COS));
        // Two bits of the word say which of the four arcs it is on: mirrored at the diagonal, and at the origin.
        first[lane] = placed(v[lane], radius, cos, sin);
        second[lane] = placed(v[lane], radius, sin, cos);
    }
    (first, second)
}

#[inline(always)]
fn placed(bits: u64, radius: f64, own: f64, other: f64) -> f64 {
    let coordinate = if bits & 1 == 0 { own } else { other };
    f64::from_bits((radius * coordinate).to_bits() ^ ((bits & 2) << 62))
}

/// 1 to 2, from the highest 52 bits.
#[inline(always)]
fn one_to_two(bits: u64) -> f64 {
    f64::from_bits(bits >> 12 | 1.0f64.to_bits())
}

/// -2 ln u for a u from 2^-53 to 1 - 2^-53.
#[inline(always)]
fn minus_twice_log(bits: u64) -> f64 {
    let u = one_to_two(bits) - (1.0 - f64::EPSILON / 2.0);
    // u = 2^k m with m from sqrt(1/2) to sqrt(2).
    let low = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let above = u.to_bits().wrapping_sub(low);
    let m = f64::from_bits((above & ((1 << 52) - 1)) + low);
    // k is between -53 and 0; 2^52 + 2048 + k is exact, and its lowest bits are those of 2048 + k.
    const LARGE: f64 = (1u64 << 52) as f64;
    let k = f64::from_bits(LARGE.to_bits() | (((above >> 52) + 2048) & 4095)) - (LARGE + 2048.0);
    let s = (m - 1.0) / (m + 1.0);
    -2.0 * (k * std::f64::consts::LN_2 + 2.0 * s * series(s * s, ATANH))
}

/// sum_i c_i z^i over 8, 9 or 11 terms, in pairs and pairs of pairs (Estrin): few of the multiplications wait for each other.
#[inline(always)]
fn series<const N: usize>(z: f64, c: [f64; N]) -> f64 {
    let two = z * z;
    let four = two * two;
    let pair = |i: usize| c[i] + z * c[i + 1];
    let quad = |i: usize| pair(i) + two * pair(i + 2);
    let eight = quad(0) + four * quad(4);
    match N {
        8 => eight,
        9 => eight + (four * four) * c[8],
        _ => eight + (four * four) * (pair(8) + two * c[10]),
    }
}

/// artanh(s)/s = sum_i s^2i/(2 i + 1): the first term left out is below 2^-56 for m up to sqrt(2).
const ATANH: [f64; 11] = {
    let mut c = [0.0; 11];
    let mut i = 0;
    while i < c.len() {
        c[i] = 1.0 / (2 * i + 1) as f64;
        i += 1;
    }
    c
};

/// sin(x)/x and cos(x) in powers of x^2: the first terms left out are below 2^-54 for x up to pi/4.
const SIN: [f64; 8] = alternating(1);
const COS: [f64; 9] = alternating(0);

/// (-1)^i/(2 i + first)!
const fn alternating<const N: usize>(first: u64) -> [f64; N] {
    let mut c = [1.0; N];
    let (mut i, mut n, mut factorial) = (1, first, 1u64);
    while i < N {
        factorial *= (n + 1) * (n + 2);
        n += 2;
        c[i] = if i % 2 == 1 { -1.0 } else { 1.0 } / factorial as f64;
        i += 1;
    }
    c
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// The vectors that the authors of Philox published.
    #[test]
    fn philox_is_philox() {
        let one = |counter: [u64; 4], key: u64| {
            let [[a], [b]] = philox(counter.map(|part| [part]), key);
            [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32]
        };
        assert_eq!(one([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = u64::from(u32::MAX);
        assert_eq!(one([ones; 4], u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(one(pi, 0x299f_31d0_a409_3822), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    /// The series against libm, up to five units in the last place; also at both ends.
    #[test]
    fn the_transform_is_that_of_box_and_muller() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let ends = [0, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 12, u64::MAX << 13, 1, 2, 3];
        let drawn: Vec<u64> = (0..100_000).map(|_| rng.next_u64()).collect();
        let words = ends.iter().flat_map(|u| ends.map(|v| [*u, v])).chain(drawn.chunks(2).map(|w| [w[0], w[1]]));
        for [u, v] in words {
            let ([x], [y]) = normals([u], [v]);
            let open = ((u >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
            let radius = (-2.0 * libm::log(open)).sqrt();
            assert!(
                (libm::hypot(x, y) - radius).abs() <= 1e-15 * radius,
                "{u:x}: {} instead of {radius}",
                libm::hypot(x, y)
            );
            let angle = ((v >> 12) as f64 / (1u64 << 52) as f64 - 0.5) * std::f64::consts::FRAC_PI_2;
            let (sin, cos) = libm::sincos(angle);
            let arc = [(cos, sin), (sin, cos), (-cos, -sin), (-sin, -cos)][(v & 3) as usize];
            let near = |a: f64, b: f64| (a - radius * b).abs() <= 1e-15 * radius;
            assert!(near(x, arc.0) && near(y, arc.1), "{v:x}: {x}, {y} instead of {arc:?} times {radius}");
        }
    }

    /// Any number of any stream is the same on every instruction set, drawn alone or beside others.
    #[test]
    fn streams_side_by_side_are_the_streams() {
        for (streams, count) in [(2, 7), (4, 8), (5, 9), (13, 20), (16, 8), (31, 1), (1, 33)] {
            for varied in if streams > AHEAD { &[2][..] } else { &[0, 2] }.iter().copied() {
                let name = [3, u32::MAX - 5, u32::MAX - 7];
                let all = crate::simd::on_each(|| Several { name, varied, streams, count });
                for t in 0..streams {
                    let mut own = name;
                    own[varied] = own[varied].wrapping_add(t as u32);
                    let own = Several { name: own, varied, streams: 1, count }.run(crate::simd::Baseline);
                    for (set, all) in &all {
                        let same = (0..count).all(|i| own[i].to_bits() == all[i * streams + t].to_bits());
                        assert!(same, "{set}: stream {t} of {streams}, {count} numbers");
                    }
                }
            }
        }
    }

    struct Several {
        name: Name,
        varied: usize,
        streams: usize,
        count: usize,
    }

    impl Kernel for Several {
        type Output = Vec<f64>;

        fn run<S: Vector>(self, simd: S) -> Vec<f64> {
            let Self { name, varied, streams, count } = self;
            let mut out = vec![0.25; streams * count];
            let listed: Vec<u32> = (0..streams as u32).map(|stream| name[0].wrapping_add(stream)).collect();
            let varied = if varied == 0 && streams > 1 { Varied::A(&listed) } else { Varied::C };
            Draw { seed: 9, name, varied, streams, scale: 2.0, out: &mut out }.run(simd);
            out
        }
    }

    /// What is drawn ahead is what is asked for, in any order.
    #[test]
    fn numbers_drawn_ahead_are_those_of_their_streams() {
        let mut ahead = Ahead::default();
        for (seed, name, count) in [
            (1, [0, 1, 0], 5),
            (1, [1, 1, 0], 5),
            (1, [15, 1, 0], 5),
            (1, [16, 1, 0], 5),
            (1, [3, 1, 0], 5),
            (1, [4, 1, 0], 6),
            (1, [4, 2, 0], 6),
            (1, [4, 2, 9], 6),
            (2, [4, 2, 9], 6),
            (2, [u32::MAX, 2, 9], 6),
            (2, [0, 2, 9], 6),
            (2, [0, 2, 9], 0),
            (2, [0, 2, 9], 1),
        ] {
            let mut own = vec![0.0; count];
            fill(seed, name, &mut own);
            // Neighbours, others, and none that are known.
            for step in [1, 3] {
                let upcoming: Vec<u32> = (name[0]..18).step_by(step).collect();
                let row = ahead.stream(seed, name, &upcoming, count);
                assert!((0..count).all(|i| row.number(i) == own[i]), "{name:?} of {seed}");
            }
        }
    }
}
