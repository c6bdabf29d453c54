//! Undertone's side of the benchmarks, which `bench/run` calls together with the baselines.

mod coverage;
mod peers;
mod ranks;

use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rayon::prelude::*;
use undertone_core::privacy::{
    Clip, MaskedLattice, Masking, Masks, Noise, NoiseScale, PairKeys, Rho, Sensitivity, Stream, Trust,
    discrete_gaussian,
};
use undertone_core::records::{self, Precision};
use undertone_core::study::{Redraw, Study};
use undertone_sim::Population;

const RECORDS: usize = 50;
const FEATURES: usize = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| arguments.get(i).map_or(default, |a| a.parse().expect("a whole number"));
    match arguments.first().map(String::as_str) {
        Some("network") => {
            let redraw = if arguments.get(1).is_some_and(|kind| kind == "own") { "all" } else { "noise" };
            println!("{:.6e}", client_rounds_per_second(&study(50, 200, number(2, 100) as u32, redraw)));
        }
        Some("clients") => {
            let is_single = arguments.get(2).is_some_and(|word| word == "single");
            clients(number(1, 1_000_000), if is_single { Precision::Single } else { Precision::Double });
        }
        Some("ranks") => ranks::run(number(1, 1_000_000), number(2, 40) as u32, number(3, 1)),
        Some("cuts") => ranks::cuts(number(1, 1_000_000), number(2, 2)),
        Some("copy") => println!("{:.6e}", copy_bandwidth()),
        Some("noise") => noise(),
        Some("masks") => masks(),
        Some("coverage") => coverage::run(number(1, 1000) as u64, arguments.get(2..).unwrap_or_default()),
        Some("memory") => peers::memory(number(1, 4000) as u32),
        Some("loopback") => {
            let word = |i: usize, word: &str| arguments.get(i).is_some_and(|a| a == word);
            let noise = if word(2, "secure") { "secure" } else { "fast" };
            peers::loopback(number(1, 8), noise, word(3, "durable"), number(4, 5) as u64);
        }
        Some("many") => peers::many(number(1, 1000), number(2, 200) as u32),
        Some("fdatasync") => peers::fdatasync(number(1, 10), number(2, 5) as u64),
        _ => eprintln!(
            "usage: undertone-bench network shared|own [TRIALS] | clients [K] [single] | ranks [K] [ROUNDS] [THREADS] | cuts [K] [PARTS] | copy | noise | masks | coverage [REPEATS] [STUDY TABLE]... | memory [ROUNDS] | \
             loopback [P] [fast|secure] [durable|plain] [SECONDS] | many [PEERS] [ROUNDS] | fdatasync [WRITERS] [SECONDS]"
        ),
    }
}

fn study(clients: usize, rounds: u32, trials: u32, redraw: &str) -> Study {
    let text = format!(
        "rounds = {rounds}\n[problem]\nloss = \"absolute\"\n\
         [data]\nsource = \"synthetic\"\nclients = {clients}\nrecords = {RECORDS}\nfeatures = {FEATURES}\n\
         [graph]\nkind = \"random\"\nmean_degree = 3\n\
         [algorithm]\nname = \"zcdp-nfl\"\nrho = 0.5\neta = 0.5\ndecay = \"sqrt\"\n\
         [privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 3\n\
         [simulation]\ntrials = {trials}\nmetrics_every = {rounds}\ncentral = false\n\
         redraw = \"{redraw}\"\n"
    );
    Study::parse(&text, "bench").expect("a valid study")
}

fn client_rounds_per_second(study: &Study) -> f64 {
    let simulation = study.spec().simulation;
    // The records are drawn before, as those of the rivals are.
    let sets = if simulation.redraw == Redraw::All { simulation.trials } else { 1 };
    let load = |trial| Arc::new(Population::load(study, trial).expect("data that can be drawn"));
    let populations: Vec<_> = (0..sets).map(load).collect();
    let outcome = undertone_sim::run::run_on_loaded(study, &populations, &|_| {}).expect("the study runs");
    let work = outcome.names.len() as f64 * f64::from(study.rounds()) * f64::from(simulation.trials);
    work / (outcome.seconds - outcome.setup_seconds)
}

/// Cost of a client-round, bytes moved per second, and memory for many clients in one process.
fn clients(clients: usize, precision: Precision) {
    let rounds = (20_000_000 / clients).clamp(40, 20_000) as u32;
    let study = study(clients, rounds, 1, "noise").spec().clone().precision(precision).check().expect("a valid study");
    let rate = client_rounds_per_second(&study);
    let vector = 8 * FEATURES;
    // Read: the records, w~ of the client and of three neighbours, gamma, average. Written: w, w~, gamma, average.
    let moved = 8 * records::size(RECORDS, FEATURES, precision) + vector * (1 + 3 + 2) + vector * 4;
    let data = clients * RECORDS * (FEATURES + 1) * 8;
    println!("{clients} {:.3e} {:.6e} {:.3}", 1e9 / rate, rate * moved as f64, peak_memory() as f64 / data as f64);
}

/// Peak memory of this process, in bytes.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0) * 1024
}

/// Bytes read plus bytes written per second by a plain copy on all cores, far beyond the cache. Median of nine.
fn copy_bandwidth() -> f64 {
    const NUMBERS: usize = 1 << 27;
    const PIECE: usize = 1 << 16;
    let source = vec![1.0f64; NUMBERS];
    let mut target = vec![0.0f64; NUMBERS];
    let mut rates: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            target.par_chunks_mut(PIECE).zip(source.par_chunks(PIECE)).for_each(|(t, s)| t.copy_from_slice(s));
            std::hint::black_box(&target);
            (2 * 8 * NUMBERS) as f64 / start.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[4]
}

/// Milliseconds that masks add to a secure release of one client, among 50 and among 1000 clients.
fn masks() {
    let (clip, phi) = (Clip::new(3.0).expect("positive"), Rho::new(1e-4).expect("positive"));
    let reference = Sensitivity::of_clipped_mean(clip, RECORDS);
    let noise = Noise::secure();
    let cost = |clients: usize, count: u32| {
        let trust = Trust::new(clients, 1, None).expect("enough clients");
        let lattice = MaskedLattice::new(&Masking { trust, reference }, phi).expect("representable");
        let own = lattice.own(reference, FEATURES, phi).expect("representable");
        let keys = (0..clients).map(|k| [k as u8; 32].into()).collect();
        let source = Masks::Shared(PairKeys::new(0, keys));
        let mut out = [0.0; FEATURES];
        let mut seconds = |body: &mut dyn FnMut(Stream, &mut [f64])| {
            let start = Instant::now();
            for round in 0..count {
                body(Stream { trial: 0, client: 0, round }, &mut out);
                std::hint::black_box(&out);
            }
            start.elapsed().as_secs_f64()
        };
        let masked = seconds(&mut |stream, out| {
            let masks = source.round(clients, 0, stream.round, FEATURES);
            noise.release_masked(stream, (&lattice, &own), &masks, &[0.5; FEATURES], out).expect("representable");
        });
        let plain = seconds(&mut |stream, out| {
            noise.release(stream, NoiseScale::new(reference, phi), &[0.5; FEATURES], out).expect("representable");
        });
        (masked - plain) * 1e3 / f64::from(count)
    };
    println!("{:.4} {:.4}", cost(50, 2000), cost(1000, 200));
}

/// Nanoseconds per sample of the exact discrete Gaussian, and per coordinate of a secure and a fast release.
fn noise() {
    let time = |count: u32, mut body: Box<dyn FnMut(u32)>| {
        let start = Instant::now();
        (0..count).for_each(&mut body);
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    };
    let mut rng = chacha20::ChaCha20Rng::from_seed([7; 32]);
    let sample = time(
        3_000_000,
        Box::new(move |_| {
            std::hint::black_box(discrete_gaussian::sample((1 << 40) + 1, &mut rng));
        }),
    );
    let clip = Clip::new(3.0).expect("positive");
    let scale = NoiseScale::new(Sensitivity::of_clipped_mean(clip, RECORDS), Rho::new(1e-4).expect("positive"));
    let release = |noise: Noise| {
        let mut out = [0.0; FEATURES];
        time(
            300_000,
            Box::new(move |round| {
                let stream = Stream { trial: 0, client: 0, round };
                noise.release(stream, scale, &[0.5; FEATURES], &mut out).expect("representable");
                std::hint::black_box(&out);
            }),
        ) / FEATURES as f64
    };
    let secure = release(Noise::secure());
    println!("{sample:.1} {secure:.1} {:.1}", release(Noise::fast(1)));
}
