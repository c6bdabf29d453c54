//! Intervals hold what they say, in runs of the whole study with new records and new noise each.

use undertone_core::graph::GraphSpec;
use undertone_core::loss::Squared;
use undertone_core::privacy::Stream;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
use undertone_data::{Interval, MemoryTable};
use undertone_sim::{Population, Unwatched, run_on};

use rand::distr::Distribution;
use undertone_core::normal::Normal;

const CLIENTS: usize = 6;
const RECORDS: usize = 400;
/// y = 20 + 2 a - 6 b + 4 normal: in the units of the table.
const TRUTH: [(&str, f64); 3] = [("intercept", 20.0), ("a", 2.0), ("b", -6.0)];

fn spec(colluders: Option<usize>, losses: usize) -> StudySpec {
    let schema = Schema::new([
        Column::number("a", -100.0, 100.0).typical([3.0, 2.0]),
        Column::number("b", -50.0, 50.0).typical([0.0, 0.5]),
    ])
    .target(Column::number("y", -500.0, 500.0).typical([26.0, 6.0]))
    .with_intercept()
    .clamped();
    let mut spec = StudySpec::new(Squared, DataSpec::tables(schema), GraphSpec::Complete)
        .rounds(12)
        .algorithm(AlgorithmSpec::named("free-rounds").count("data_rounds", 4).number("eta", 0.5))
        .privacy(PrivacySpec { colluders, ..PrivacySpec::epsilon(8.0, 1e-6).clip(2.0) })
        .records(vec![RECORDS]);
    spec.inference = Some(0.9);
    spec.simulation.central = false;
    spec.simulation.metrics_every = 12;
    spec.simulation.losses = losses;
    spec
}

fn tables(repeat: u32) -> Vec<(String, MemoryTable)> {
    let table = |k: usize| {
        let mut rng = Stream { trial: repeat, client: k as u32, round: 0 }.fast(99);
        let mut normal = || -> f64 { Normal.sample(&mut rng) };
        let row = |_| {
            // Within the three spreads to which columns are limited.
            let (a, b) = (3.0 + 2.0 * normal().clamp(-2.9, 2.9), 0.5 * normal().clamp(-2.9, 2.9));
            [a, b, 20.0 + 2.0 * a - 6.0 * b + 4.0 * normal()]
        };
        let rows: Vec<f64> = (0..RECORDS).flat_map(row).collect();
        MemoryTable::from_rows(&["a", "b", "y"], &rows).unwrap()
    };
    (0..CLIENTS).map(|k| (format!("c{k}"), table(k))).collect()
}

/// The intervals of many repeats.
fn repeats(colluders: Option<usize>, losses: usize, count: u32) -> Vec<Vec<Interval>> {
    let one = |repeat: u32| {
        let mut spec = spec(colluders, losses);
        spec.seed = u64::from(repeat) + 1;
        let study = spec.check().unwrap();
        let population = Population::from_tables(&study, tables(repeat)).unwrap();
        let outcome = run_on(&study, population, &Unwatched).unwrap();
        outcome.closed[0].intervals.clone().expect("asked for").expect("noise is small enough")
    };
    (0..count).map(one).collect()
}

/// How often the truth lies inside intervals whose halves are `share` of their own; over all coefficients.
fn coverage(all: &[Vec<Interval>], share: impl Fn(&Interval) -> f64) -> f64 {
    let held = |interval: &Interval| {
        let truth = TRUTH.iter().find(|(name, _)| *name == interval.name).expect("a coefficient").1;
        (truth - interval.estimate).abs() <= share(interval) * (interval.range.1 - interval.range.0) / 2.0
    };
    let each: Vec<bool> = all.iter().flatten().map(held).collect();
    each.iter().filter(|held| **held).count() as f64 / each.len() as f64
}

/// Those that are lost take their records with them.
#[test]
fn intervals_are_of_the_records_that_are_left() {
    let error = |losses: usize| {
        let mut spec = spec(None, losses);
        spec.privacy = Some(PrivacySpec::epsilon(1e4, 1e-6).clip(2.0));
        let study = spec.check().unwrap();
        let outcome = run_on(&study, Population::from_tables(&study, tables(1)).unwrap(), &Unwatched).unwrap();
        outcome.closed[0].intervals.clone().unwrap().unwrap()[1].error
    };
    let ratio = error(4) / error(0);
    assert!((1.5..2.0).contains(&ratio), "a third of the records: sqrt 3, but {ratio}");
}

/// Nominal 90%; of 300 repeats, the three coefficients together. Sampling alone would move the share by .014 if the three were one (standard error .017), so
/// these bounds are left by chance with a probability below 1e-4. Variances are a tenth larger than they would have to be, so .914 is expected.
#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    for (colluders, losses) in [(None, 0), (Some(1), 0), (None, 1), (Some(1), 1)] {
        let all = repeats(colluders, losses, 300);
        let found = coverage(&all, |_| 1.0);
        assert!((0.85..0.98).contains(&found), "colluders {colluders:?}, lost {losses}: {found}");
        // Planted: intervals as if there were no privacy noise, or three quarters of it.
        let naive = coverage(&all, |interval| 1.0 / interval.widening);
        assert!(naive < 0.8, "the test can fail: {naive}");
        let short = coverage(&all, |_| 0.75);
        assert!(short < 0.85, "the test can fail: {short}");
    }
}
