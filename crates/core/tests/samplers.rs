//! Statistical tests of the samplers. Every test has false-alarm probability 1e-6 or less, and each is shown to fail on a
//! planted bug.

use chacha20::ChaCha20Rng;
use dashu::rational::RBig;
use opendp::traits::samplers::sample_discrete_gaussian as opendp_sample;
use rand::{Rng, SeedableRng};
use undertone_core::normal;
use undertone_core::privacy::discrete_gaussian::sample;
use undertone_core::privacy::{Clip, Noise, NoiseScale, Rho, Sensitivity, Stream};

/// Upper 1e-6 point of the standard normal.
const Z: f64 = 4.753_424_308_822_9;

/// Upper 1e-6 point of chi-square by Wilson and Hilferty's cube root, good to a few parts in a thousand here.
fn chi_square_limit(degrees: usize) -> f64 {
    let k = degrees as f64;
    let c = 2.0 / (9.0 * k);
    k * (1.0 - c + Z * c.sqrt()).powi(3) * 1.01
}

/// P(Z = z) for z in -bound..=bound, and the rest in a last cell.
fn law(scale: u64, bound: i64) -> Vec<f64> {
    let s = scale as f64;
    let weight = |z: i64| (-(z as f64).powi(2) / (2.0 * s * s)).exp();
    let total: f64 = (-40 * scale as i64..=40 * scale as i64).map(weight).sum();
    let mut law: Vec<f64> = (-bound..=bound).map(|z| weight(z) / total).collect();
    law.push((1.0 - law.iter().sum::<f64>()).max(0.0));
    law
}

/// Chi-square of draws against the exact distribution; true when they agree.
fn follows_the_law(scale: u64, draws: impl Iterator<Item = i64>) -> bool {
    let bound = 3 * scale as i64;
    let law = law(scale, bound);
    let mut counts = vec![0.0; law.len()];
    let mut total = 0.0;
    for z in draws {
        counts[if z.abs() <= bound { (z + bound) as usize } else { law.len() - 1 }] += 1.0;
        total += 1.0;
    }
    let statistic: f64 = counts.iter().zip(&law).map(|(c, p)| (c - total * p).powi(2) / (total * p)).sum();
    statistic < chi_square_limit(law.len() - 1)
}

const DRAWS: usize = 400_000;

fn generator(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

#[test]
fn discrete_gaussian_follows_its_law() {
    for (seed, scale) in [(1, 1), (2, 2), (3, 3), (4, 7), (5, 20)] {
        let mut rng = generator(seed);
        assert!(follows_the_law(scale, (0..DRAWS).map(|_| sample(scale, &mut rng))), "scale {scale}");
    }
}

#[test]
fn planted_sampler_bugs_are_detected() {
    let mut rng = generator(6);
    let doubled_zero = (0..DRAWS).map(|_| {
        // Zero as likely from either sign: the result of not rejecting minus zero.
        let z = sample(3, &mut rng);
        if z != 0 && rng.next_u64().is_multiple_of(17) { 0 } else { z }
    });
    assert!(!follows_the_law(3, doubled_zero));
    let mut rng = generator(7);
    assert!(!follows_the_law(20, (0..DRAWS).map(|_| sample(20, &mut rng) + 1)));
    let mut rng = generator(8);
    assert!(!follows_the_law(20, (0..DRAWS).map(|_| sample(21, &mut rng))));
}

/// Two-sample chi-square over the cells of a histogram.
fn same_law(a: &[f64], b: &[f64]) -> bool {
    let (na, nb): (f64, f64) = (a.iter().sum(), b.iter().sum());
    let mut statistic = 0.0;
    let mut cells = 0;
    for (a, b) in a.iter().zip(b).filter(|(a, b)| *a + *b > 0.0) {
        statistic += ((nb / na).sqrt() * a - (na / nb).sqrt() * b).powi(2) / (a + b);
        cells += 1;
    }
    statistic < chi_square_limit(cells - 1)
}

/// Draws in cells of a quarter of the scale.
fn histogram(scale: u64, draws: impl Iterator<Item = i128>) -> Vec<f64> {
    let mut cells = vec![0.0; 33];
    for z in draws {
        let cell = (4.0 * z as f64 / scale as f64).round().clamp(-16.0, 16.0) + 16.0;
        cells[cell as usize] += 1.0;
    }
    cells
}

#[test]
fn discrete_gaussian_agrees_with_opendp() {
    for scale in [40u64, (1 << 40) + 12_345] {
        let count = 100_000;
        let mut rng = generator(9);
        let ours = histogram(scale, (0..count).map(|_| i128::from(sample(scale, &mut rng))));
        let theirs = histogram(
            scale,
            (0..count).map(|_| opendp_sample(RBig::from(scale)).unwrap().try_into().expect("far below 2^127")),
        );
        assert!(same_law(&ours, &theirs), "scale {scale}");
        let wider = histogram(scale, (0..count).map(|_| i128::from(sample(scale + scale / 20, &mut rng))));
        assert!(!same_law(&wider, &theirs), "a scale 5% too large was not detected at {scale}");
    }
}

/// The largest distance between the empirical distribution of standardised values and the normal distribution, times sqrt(n).
fn kolmogorov(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let normal = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let gap = |(i, x): (usize, &f64)| {
        let p = normal(*x);
        f64::max((i as f64 + 1.0) / n - p, p - i as f64 / n)
    };
    values.iter().enumerate().map(gap).fold(0.0, f64::max) * n.sqrt()
}

/// 2 exp(-2 t^2) = 1e-6.
const KOLMOGOROV_LIMIT: f64 = 2.693_3;

/// Standardised noise of many releases of the same vector.
fn noise_of(noise: &Noise, sigma: f64, scale: NoiseScale, rounds: u32) -> Vec<f64> {
    let value = [0.3, -1.7, 1e3, 0.0];
    let mut released = [0.0; 4];
    let mut all = Vec::new();
    for round in 1..=rounds {
        noise.release(Stream { trial: 0, client: 3, round }, scale, &value, &mut released).unwrap();
        all.extend(released.iter().zip(value).map(|(r, v)| (r - v) / sigma));
    }
    all
}

fn scale(phi: f64) -> NoiseScale {
    NoiseScale::new(Sensitivity::of_clipped_mean(Clip::new(3.0).unwrap(), 50), Rho::new(phi).unwrap())
}

#[test]
fn both_noises_are_normal_with_the_right_scale() {
    let scale = scale(1e-4);
    for noise in [Noise::fast(5), Noise::secure_with_test_key([5; 32])] {
        let sigma = scale.sigma();
        assert!(kolmogorov(noise_of(&noise, sigma, scale, 50_000)) < KOLMOGOROV_LIMIT, "safe: {}", noise.is_safe());
        // Planted: a standard deviation taken where a variance belongs, or one that is 3% off.
        assert!(kolmogorov(noise_of(&noise, sigma * sigma, scale, 50_000)) > KOLMOGOROV_LIMIT);
        assert!(kolmogorov(noise_of(&noise, sigma * 1.03, scale, 50_000)) > KOLMOGOROV_LIMIT);
    }
}

#[test]
fn sigma_is_sensitivity_over_root_two_phi() {
    let (clip, records, phi) = (3.0, 50, 1e-4);
    let expected = (2.0 * clip / records as f64) / f64::sqrt(2.0 * phi);
    assert!((scale(phi).sigma() / expected - 1.0).abs() < 1e-14);
}

#[test]
fn lattice_never_costs_more_than_the_round_may_spend() {
    for features in [1, 8, 10_000] {
        for exponent in -16..=6 {
            let phi = 10f64.powi(exponent);
            let lattice = scale(phi).lattice(features).unwrap();
            assert!(lattice.charge() <= phi, "charge {} of {phi}", lattice.charge());
            // The margin that pays for rounding is small where the budget is not absurd.
            if exponent >= -8 {
                assert!(lattice.charge() > phi * (1.0 - 1e-6), "charge {} of {phi}", lattice.charge());
            }
            assert!(lattice.step() * lattice.scale() as f64 >= scale(phi).sigma(), "less noise than sigma");
            assert!(lattice.scale() >= 1 << 40);
            assert_eq!(lattice.step().log2().fract(), 0.0, "the step is a power of two");
        }
    }
}

#[test]
fn secure_releases_lie_on_the_lattice() {
    let scale = scale(1e-3);
    let step = scale.lattice(4).unwrap().step();
    let noise = Noise::secure_with_test_key([1; 32]);
    for round in 1..1000 {
        let mut released = [0.0; 4];
        noise
            .release(Stream { trial: 0, client: 0, round }, scale, &[0.1, 0.2, 0.3, 1.0 / 3.0], &mut released)
            .unwrap();
        assert!(released.iter().all(|r| (r / step).fract() == 0.0));
    }
}

#[test]
fn operating_system_keys_differ_and_test_keys_repeat() {
    let draw = |noise: &Noise, stream| {
        let mut released = [0.0; 2];
        noise.release(stream, scale(1e-3), &[0.0, 0.0], &mut released).unwrap();
        released
    };
    let stream = Stream { trial: 0, client: 1, round: 1 };
    let secure = Noise::secure();
    let (first, second) = (draw(&secure, stream), draw(&secure, stream));
    assert!(first[0] != second[0] && first[1] != second[1], "every release has a key of its own");
    let key = Noise::secure_with_test_key([3; 32]);
    assert_eq!(draw(&key, stream), draw(&key, stream));
    for noise in [key, Noise::fast(3)] {
        let all: Vec<[f64; 2]> = [(0, 1, 1), (1, 1, 1), (0, 2, 1), (0, 1, 2)]
            .map(|(trial, client, round)| draw(&noise, Stream { trial, client, round }))
            .to_vec();
        for i in 0..all.len() {
            for j in 0..i {
                assert!(all[i][0] != all[j][0] && all[i][1] != all[j][1], "two streams share their noise");
            }
        }
    }
}

#[test]
fn what_is_not_finite_is_never_released() {
    let noise = Noise::secure_with_test_key([1; 32]);
    let stream = Stream { trial: 0, client: 0, round: 1 };
    let mut released = [0.0];
    for value in [f64::NAN, f64::INFINITY, 1e300] {
        let error = noise.release(stream, scale(1e-3), &[value], &mut released).unwrap_err();
        assert!(error.to_string().contains("has diverged"));
    }
}

/// No random state is kept between two releases, so a process and its copy do not draw the same noise.
#[cfg(unix)]
#[test]
#[allow(unsafe_code)]
fn a_fork_does_not_repeat_noise() {
    use std::io::{Read, Write};
    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(code: i32) -> !;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    let draw = || {
        let mut released = [0.0; 2];
        let stream = Stream { trial: 0, client: 1, round: 1 };
        Noise::secure().release(stream, scale(1e-3), &[0.0; 2], &mut released).unwrap();
        released
    };
    // Whatever is made once per process is made here.
    draw();
    let (mut read, mut write) = std::io::pipe().unwrap();
    // SAFETY: the child draws, writes and leaves without running anything of the test harness.
    let child = unsafe { fork() };
    if child == 0 {
        if let Ok(values) = std::panic::catch_unwind(draw) {
            let _ = write.write_all(&values.map(f64::to_le_bytes).concat());
        }
        unsafe { _exit(0) }
    }
    drop(write);
    let own = draw();
    let mut bytes = Vec::new();
    read.read_to_end(&mut bytes).unwrap();
    unsafe { waitpid(child, std::ptr::null_mut(), 0) };
    let theirs: Vec<f64> = bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(theirs.len(), 2, "the child has drawn");
    assert!(own[0] != theirs[0] && own[1] != theirs[1], "the copy has the same noise");
}

/// Keys of 32 bits would repeat: about 19 pairs among so many releases.
#[test]
fn operating_system_keys_are_long() {
    let (noise, stream) = (Noise::secure(), Stream { trial: 0, client: 1, round: 1 });
    let mut all = std::collections::HashSet::new();
    for _ in 0..400_000 {
        let mut released = [0.0; 2];
        noise.release(stream, scale(1e-3), &[0.0; 2], &mut released).unwrap();
        assert!(all.insert(released.map(f64::to_bits)), "two releases have the same noise");
    }
}

/// A million draws show a scale that is off by a hundredth, and tails that are cut. Five standard errors: a significance of 6e-7.
#[test]
fn secure_noise_has_its_scale_and_its_tails() {
    let scale = scale(1e-4);
    let lattice = scale.lattice(4).unwrap();
    let sigma = lattice.step() * lattice.scale() as f64;
    let draws = noise_of(&Noise::secure_with_test_key([6; 32]), sigma, scale, 250_000);
    let count = draws.len() as f64;
    let square = draws.iter().map(|x| x * x).sum::<f64>() / count;
    let error = (2.0 / count).sqrt();
    assert!((square - 1.0).abs() < 5.0 * error, "{square}");
    // Planted: 0.99 of the scale.
    assert!((0.99 * 0.99 * square - 1.0).abs() > 5.0 * error);
    let far = draws.iter().filter(|x| x.abs() > 4.0).count() as f64;
    let expected = count * libm::erfc(4.0 / std::f64::consts::SQRT_2);
    assert!((far - expected).abs() < 6.0 * expected.sqrt(), "{far} beyond four standard deviations, not {expected}");
}

/// Numbers that a test says.
struct Scripted(std::vec::IntoIter<u64>);

impl rand::TryRng for Scripted {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!("the sampler takes 64 bits at a time")
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0.next().expect("the sampler took more numbers than it should"))
    }
    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
        unreachable!("the sampler takes 64 bits at a time")
    }
}

/// 2^64 mod 3 = 1: of all numbers, 0 is the one too many, and must be drawn again.
#[test]
fn integers_that_would_be_counted_twice_are_rejected() {
    const MAX: u64 = u64::MAX;
    // Block 0; offset: 0 is rejected, MAX is 2; accepted; positive.
    let mut rng = Scripted(vec![0, MAX, 0, MAX, MAX, 0].into_iter());
    assert_eq!(sample(3, &mut rng), 2);
    assert_eq!(rng.0.len(), 0);
}

/// (Delta + g sqrt P)^2/(2 s^2 g^2) <= phi, with Delta as floating-point arithmetic can reach it.
#[test]
fn the_lattice_pays_for_rounding_and_for_the_margin() {
    let bound = Sensitivity::of_clipped_mean(Clip::new(3.0).unwrap(), 50).bound();
    for features in [1, 8, 10_000] {
        for exponent in -16..=2 {
            let phi = 10f64.powi(exponent);
            let lattice = scale(phi).lattice(features).unwrap();
            let moved = bound / lattice.step() + (features as f64).sqrt();
            let cost = (moved / lattice.scale() as f64).powi(2) / 2.0;
            assert!(cost <= phi, "{features} coordinates: {cost:e} of {phi:e}");
        }
    }
}

#[test]
fn every_coordinate_has_its_own_noise() {
    for noise in [Noise::fast(5), Noise::secure(), Noise::secure_with_test_key([2; 32])] {
        let mut released = [0.0; 50];
        noise.release(Stream { trial: 0, client: 0, round: 1 }, scale(1e-3), &[0.0; 50], &mut released).unwrap();
        let different: std::collections::HashSet<u64> = released.iter().map(|v| v.to_bits()).collect();
        assert_eq!(different.len(), 50);
    }
}

/// Numbers of neighbouring streams: `next` names the streams, eight numbers of each.
fn neighbours(next: impl Fn(u32) -> (u64, [u32; 3])) -> Vec<[f64; 8]> {
    let one = |i: u32| {
        let (seed, name) = next(i);
        let mut numbers = [0.0; 8];
        normal::fill(seed, name, &mut numbers);
        numbers
    };
    (0..50_000).map(one).collect()
}

/// Chi-square of a table of 8 x 8 cells of equal probability, for pairs that should be independent normals; true when they are.
fn are_independent_normals(pairs: impl Iterator<Item = (f64, f64)>) -> bool {
    let cell = |x: f64| ((8.0 * 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)) as usize).min(7);
    let mut counts = [0.0; 64];
    pairs.for_each(|(x, y)| counts[8 * cell(x) + cell(y)] += 1.0);
    let expected = counts.iter().sum::<f64>() / 64.0;
    counts.iter().map(|c| (c - expected).powi(2) / expected).sum::<f64>() < chi_square_limit(63)
}

/// How many are beyond these, against the law: true when no count is further off than chance allows.
fn has_the_tails(numbers: impl Iterator<Item = f64> + Clone) -> bool {
    [2.5f64, 3.0, 3.5, 4.0].iter().all(|&limit| {
        let total = numbers.clone().count() as f64;
        let expected = total * libm::erfc(limit / std::f64::consts::SQRT_2);
        let seen = numbers.clone().filter(|x| x.abs() > limit).count() as f64;
        // Four limits; the variance of a count is about its mean.
        (seen - expected).abs() < (Z + 0.3) * expected.sqrt() + 1.0
    })
}

/// Noise of simulations: streams whose names differ in one part are independent of each other, and so are numbers of one stream; each is normal, in the tails too.
#[test]
fn streams_of_normals_are_independent() {
    for (what, streams) in [
        ("a", neighbours(|i| (7, [i, 3, 2]))),
        ("b", neighbours(|i| (7, [3, i, 2]))),
        ("c", neighbours(|i| (7, [3, 2, i]))),
        ("seed", neighbours(|i| (u64::from(i), [3, 2, 1]))),
    ] {
        let all = streams.iter().flatten().copied();
        assert!(kolmogorov(all.clone().collect()) < KOLMOGOROV_LIMIT, "{what}");
        assert!(has_the_tails(all), "{what}");
        for (p, q) in [(0, 1), (0, 2), (1, 2), (3, 6)] {
            assert!(are_independent_normals(streams.iter().map(|s| (s[p], s[q]))), "{what}: numbers {p} and {q}");
        }
        let next = streams.iter().zip(&streams[1..]);
        assert!(are_independent_normals(next.map(|(s, t)| (s[0], t[0]))), "{what}: neighbouring streams");
    }
}

#[test]
fn planted_bugs_of_normals_are_detected() {
    let streams = neighbours(|i| (7, [i, 3, 2]));
    // The angle of one arc only: pairs lie in a quarter of the plane.
    let arc = streams.iter().map(|s| if s[0] > s[1].abs() { (s[0], s[1]) } else { (s[1].abs(), s[0]) });
    assert!(!are_independent_normals(arc));
    // A name that is not part of the counter: neighbouring streams are one.
    assert!(!are_independent_normals(streams.iter().map(|s| (s[0], s[0]))));
    // A radius from eight bits instead of 52 ends at 3.4.
    assert!(!has_the_tails(streams.iter().flatten().map(|x| x.clamp(-3.4, 3.4))));
    // sqrt(-2 ln u) with a logarithm that is off by 6%.
    assert!(kolmogorov(streams.iter().flatten().map(|x| x * 1.03).collect()) > KOLMOGOROV_LIMIT);
}
