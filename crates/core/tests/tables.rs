//! From tables to records: record weights, typical values, missing cells, and private standardisation. Each privacy claim comes
//! with a planted bug that its check finds.

use undertone_core::graph::GraphSpec;
use undertone_core::loss::{Absolute, AnyLoss, Quantile, Squared};
use undertone_core::names::Names;
use undertone_core::privacy::{Clip, Clipping, Sensitivity};
use undertone_core::records::{Dataset, Precision, RecordLayout, Scratch};
use undertone_core::schema::{Cell, Column, Schema};
use undertone_core::study::{AlgorithmSpec, DataSpec, Study, StudySpec};

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// The gradient of the absolute loss at 0 over rows and targets.
fn gradient(rows: &[Vec<f64>], targets: &[f64], clipping: Clipping, divisor: f64) -> Vec<f64> {
    let layout = RecordLayout {
        records: rows.len(),
        features: rows[0].len(),
        clipping,
        precision: Precision::Double,
        divisor,
        rows: rows.len(),
    };
    let data = Dataset::with_layout(&rows.concat(), targets, layout);
    let mut out = vec![0.0; rows[0].len()];
    data.records().gradient(AnyLoss::Absolute(Absolute), &vec![0.0; out.len()], 1.0, &mut Scratch::default(), &mut out);
    out
}

/// Where all clients divide by a public number, the sensitivity follows from it and not from the client's own number.
#[test]
fn one_record_moves_a_weighted_sum_by_at_most_its_sensitivity() {
    let (clip, divisor) = (Clip::new(0.7).unwrap(), 2.5);
    let rows: Vec<Vec<f64>> = (0..6).map(|j| vec![f64::from(j) - 2.5, 4.0, -f64::from(j * j)]).collect();
    let targets = [1.0, -1.0, 1.0, 1.0, -1.0, 1.0];
    let mut other = targets;
    other[3] = -1.0;
    let clipping = Clipping::Enforced(clip);
    let moved = distance(&gradient(&rows, &targets, clipping, divisor), &gradient(&rows, &other, clipping, divisor));
    let sensitivity = Sensitivity::of_clipped_sum(clip, 6, divisor);
    assert!(moved <= sensitivity.bound() && moved > 0.999 * sensitivity.get(), "{moved} {}", sensitivity.get());
    // Planted: noise for a mean over the own records would be too small by 6/2.5.
    assert!(moved > 2.0 * Sensitivity::of_clipped_mean(clip, 6).bound());
    let layout = RecordLayout { records: 6, features: 3, clipping, precision: Precision::Double, divisor, rows: 6 };
    let data = Dataset::with_layout(&rows.concat(), &targets, layout);
    assert_eq!(data.records().gradient_sensitivity(), Some(sensitivity), "what noise is made for");
}

/// How many rows a client keeps out of training follows from what they say, so the noise must not show it, not even in its last digits.
#[test]
fn noise_does_not_tell_how_many_rows_are_kept_out_of_training() {
    let sensitivity = |records: usize| {
        let clipping = Clipping::Enforced(Clip::new(1.0).unwrap());
        let precision = Precision::Double;
        let layout = RecordLayout { records, features: 1, clipping, precision, divisor: 1e4, rows: 40_000 };
        let data = Dataset::with_layout(&vec![1.0; records], &vec![1.0; records], layout);
        data.records().gradient_sensitivity().unwrap()
    };
    assert_eq!(sensitivity(30_000), sensitivity(30_001));
    // It can fail: the number of terms does matter to the margin.
    let clip = Clip::new(1.0).unwrap();
    assert_ne!(Sensitivity::of_clipped_sum(clip, 30_000, 1e4), Sensitivity::of_clipped_sum(clip, 30_001, 1e4));
}

fn schema() -> Schema {
    Schema::new([
        Column::number("age", 0.0, 100.0),
        Column::number("dose", 0.0, 1000.0).typical([100.0, 10.0]),
        Column::words("ward", ["a", "b", "3"]),
    ])
    .target(Column::number("days", 0.0, 60.0))
    .with_intercept()
    .clamped()
}

fn row(age: f64, dose: f64, ward: &'static str, days: f64) -> [Cell<'static>; 4] {
    [Cell::Number(age), Cell::Number(dose), Cell::Text(ward.into()), Cell::Number(days)]
}

/// The release of private moments, whose noise is made for 2 R/D, moves by no more for any row that replaces another.
#[test]
fn one_row_moves_the_moments_by_at_most_their_sensitivity() {
    let encoded = schema().moments(false);
    let clip = Clip::new(encoded.moment_clip()).unwrap();
    let extremes: Vec<_> = [0.0, 50.0, 100.0]
        .iter()
        .flat_map(|&age| [0.0, 100.0, 1000.0].map(|dose| (age, dose)))
        .flat_map(|(age, dose)| ["a", "b", "3"].map(|ward| (age, dose, ward)))
        .flat_map(|(age, dose, ward)| [0.0, 60.0].map(|days| row(age, dose, ward, days)))
        .collect();
    let mut z = Vec::new();
    let moments: Vec<Vec<f64>> = extremes
        .iter()
        .map(|row| {
            assert_eq!(encoded.encode(row, false, &mut z), Ok(1.0));
            z.clone()
        })
        .collect();
    let worst = |clipping: Clipping| {
        let with = |last: &Vec<f64>| {
            let rows = [vec![moments[0].clone(); 4], vec![last.clone()]].concat();
            gradient(&rows, &[1.0; 5], clipping, 4.0)
        };
        let released: Vec<Vec<f64>> = moments.iter().map(with).collect();
        let pairs = released.iter().flat_map(|a| released.iter().map(move |b| distance(a, b)));
        pairs.fold(0.0, f64::max)
    };
    let sensitivity = Sensitivity::of_clipped_sum(clip, 5, 4.0);
    let moved = worst(Clipping::Enforced(clip));
    assert!(moved <= sensitivity.bound() && moved > 0.5 * sensitivity.get(), "{moved} {}", sensitivity.get());
    // Planted: without the clip a dose far from what is typical moves it further.
    assert!(worst(Clipping::Off) > sensitivity.bound());
}

#[test]
fn rows_become_features_by_public_facts_alone() {
    let mut x = Vec::new();
    let schema = Schema {
        features: vec![
            Column::number("age", 0.0, 100.0).with_indicator(),
            Column::number("dose", 0.0, 1000.0).typical([100.0, 10.0]),
            Column::words("ward", ["a", "b", "3"]).typical([0.5, 0.25, 0.25]),
        ],
        ..schema()
    }
    .filled();
    assert_eq!(schema.feature_names(), ["age", "age=missing", "dose", "ward=b", "ward=3", "intercept"]);
    assert_eq!(schema.encode(&row(75.0, 105.0, "b", 45.0), false, &mut x), Ok(0.5));
    // A word with the share p in units of sqrt(p (1 - p)).
    let spread = (0.25f64 * 0.75).sqrt();
    assert_eq!(x, [0.5, 0.0, 0.5, 0.75 / spread, -0.25 / spread, 1.0]);
    // Clamped at the bounds, and at three typical spreads.
    schema.encode(&row(-7.0, 2000.0, "b", 45.0), false, &mut x).unwrap();
    assert_eq!(x[..3], [-1.0, 0.0, 3.0]);
    // Missing: the middle, an indicator, the typical value, the typical shares.
    let missing = [Cell::Missing, Cell::Text(" ".into()), Cell::Missing, Cell::Number(30.0)];
    schema.encode(&missing, false, &mut x).unwrap();
    assert_eq!(x, [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let target = [Cell::Number(1.0), Cell::Number(1.0), Cell::Text("a".into()), Cell::Missing];
    assert!(schema.encode(&target, false, &mut x).unwrap_err().message.contains("the cell is empty"));
    // 3, 3.0 and "3.00" are one word.
    for three in [Cell::Number(3.0), Cell::Text("3.0".into()), Cell::Text(" 3.00 ".into())] {
        let cells = [Cell::Number(1.0), Cell::Number(1.0), three, Cell::Number(1.0)];
        schema.encode(&cells, false, &mut x).unwrap();
        assert_eq!(x[3..5], [-0.25 / spread, 0.75 / spread]);
    }
}

#[test]
fn a_quantile_starts_where_public_facts_say_that_it_lies() {
    let typical = Schema { target: Column::number("days", 0.0, 60.0).typical([20.0, 8.0]), ..schema() };
    let cells = row(50.0, 1.0, "a", 25.0);
    let mut x = Vec::new();
    let mut encoded = |schema: &Schema| schema.encode(&cells, false, &mut x).unwrap();
    for (level, normal) in [(0.9, 1.2816), (0.5, 0.0), (0.25, -0.6745)] {
        let started = typical.clone().starting_at(level);
        assert!((started.start - normal / 2f64.sqrt()).abs() < 0.03, "{level}: {}", started.start);
        assert!((encoded(&started) - (0.625 - started.start)).abs() < 1e-12);
        // The same model in the units of the table, so the intercept is what moves.
        let mut w = vec![0.5; started.feature_names().len()];
        let units = started.original_units(&w, false);
        *w.last_mut().unwrap() += started.start;
        let plain = typical.original_units(&w, false);
        assert!((units.intercept - plain.intercept).abs() < 1e-12 && units.coefficients == plain.coefficients);
        *w.last_mut().unwrap() -= started.start;
        assert!(started.scaled_units(&units, false).iter().zip(&w).all(|(a, b)| (a - b).abs() < 1e-12));
    }
    // Where nothing is known, or where no intercept could make up for it, nothing is moved.
    assert_eq!(schema().starting_at(0.9).start, 0.0);
    assert_eq!(Schema { intercept: false, ..typical.clone() }.starting_at(0.9).start, 0.0);
    // A study does it.
    let study = |loss| {
        let data = DataSpec::tables(typical.clone());
        StudySpec::new(loss, data, GraphSpec::Ring)
            .algorithm(AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 0.1))
            .check()
    };
    let start = |loss| study(loss).unwrap().spec().schema().unwrap().start;
    assert_eq!(start(AnyLoss::Quantile(Quantile { level: 0.9 })), typical.clone().starting_at(0.9).start);
    assert_eq!(start(AnyLoss::Squared(Squared)), 0.0);
}

#[test]
fn models_in_units_of_the_table_and_of_the_records_are_the_same() {
    let schema = Schema {
        target: Column::number("days", 0.0, 60.0).typical([20.0, 8.0]),
        features: vec![
            Column::number("age", 0.0, 100.0).typical([50.0, 20.0]),
            Column::words("sex", ["f", "m"]).typical([0.4, 0.6]),
        ],
        ..schema()
    };
    let w = [0.5, -0.25, 0.125];
    let units = schema.original_units(&w, false);
    let mut x = Vec::new();
    let cells = [Cell::Number(60.0), Cell::Text("m".into()), Cell::Number(25.0)];
    schema.encode(&cells, false, &mut x).unwrap();
    let learned: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
    let told = units.intercept + 60.0 * units.coefficients[0].1 + units.coefficients[1].1;
    assert!((20.0 + 8.0 * learned - told).abs() < 1e-12, "{learned} {told}");
    let back = schema.scaled_units(&units, false);
    assert!(distance(&back, &w) < 1e-12, "{back:?}");
}

const STUDY: &str = r#"
name = "recovery"
rounds = 20
[problem]
loss = "huber"
threshold = 0.5
[data]
source = "folder"
records = 100
features = ["age", "sex"]
target = "days"
intercept = true
bounds.age = [0, 100]
bounds.days = [0, 60]
categories.sex = ["f", "m"]
[graph]
kind = "ring"
[algorithm]
name = "free-rounds"
data_rounds = 5
eta = 1
[privacy]
epsilon = 1
delta = 1e-5
clip = 0.5
standardise = 0.1
"#;

fn study(text: &str) -> Study {
    Study::parse(text, "test").unwrap()
}

fn refused(text: &str, word: &str) {
    let error = Study::parse(text, "test").unwrap_err().to_string();
    assert!(error.contains(word), "{error}");
}

/// Standardisation and rounds together cost what the study promises, and a tenth of it is the former.
#[test]
fn the_budget_is_divided_between_moments_and_rounds() {
    let (plain, standardised) = (study(&STUDY.replace("standardise = 0.1\n", "")), study(STUDY));
    assert!(plain.moments().is_none());
    let total = |study: &Study| study.privacy().unwrap().spent(study.rounds()).0.get();
    let moments = standardised.moments().unwrap();
    let first = total(&moments);
    assert!((first / total(&plain) - 0.1).abs() < 1e-6);
    assert!((total(&standardised) / total(&plain) - 1.0).abs() < 1e-6);
    assert!(standardised.privacy().unwrap().promised().get() <= 1.0);
    // age, its square, one sex, days and its square.
    assert_eq!((moments.features(), moments.rounds(), moments.name()), (5, 1, "recovery-moments"));
    let fitted = standardised.standardised(&[0.1, -0.5, 0.05, -0.2, -1.5], 4, 100.0, None).unwrap();
    assert!(fitted.moments().is_none());
    assert_eq!(total(&fitted), total(&standardised), "what was spent before still counts");
    let rounds = |study: &Study| study.client_budget("x").unwrap().promised().rho.get();
    assert!((rounds(&fitted) + rounds(&moments)) <= total(&plain) * (1.0 + 1e-9), "the ledger's sum");
}

/// The same releases give all peers the same study, others another one, so that a different map cannot go unnoticed.
#[test]
fn the_map_is_part_of_the_digest() {
    let base = study(STUDY);
    let map = |moments: &[f64]| base.standardised(moments, 4, 100.0, None).unwrap();
    let (one, same, other) =
        (map(&[0.1, -0.5, 0.05, -0.2, -1.5]), map(&[0.1, -0.5, 0.05, -0.2, -1.5]), map(&[0.1, -0.5, 0.05, -0.3, -1.5]));
    assert_eq!(one.digest(), same.digest());
    let parts = one.digest().differences(other.digest());
    assert!(parts.contains(&"data"), "{parts:?}");
    // A threshold keeps its meaning in the units of the table: half of 30 days.
    let AnyLoss::Huber(huber) = one.spec().loss else { panic!("the study's loss") };
    assert!((huber.threshold * one.spec().schema().unwrap().target_unit() - 15.0).abs() < 1e-9);
    // What is read again is the same study.
    assert_eq!(study(&one.to_toml()).digest(), one.digest());
}

#[test]
fn what_cannot_be_standardised_is_refused() {
    refused(&STUDY.replace("epsilon = 1\n", "phi1 = 1e-3\n"), "privacy.standardise is a share of a total");
    refused(&STUDY.replace("clip = 0.5", "clip = 0.5\naccountant = \"classic\""), "classic accountant");
    refused(&STUDY.replace("threshold = 0.5", "threshold = 0.5\nweights = \"clients\""), "weights = \"records\"");
    refused(&STUDY.replace("standardise = 0.1", "standardise = 1"), "strictly between 0 and 1");
    refused(&STUDY.replace("[graph]", "scaling = \"none\"\n[graph]"), "data.scaling is \"none\"");
    let stamps = "bounds.age = [1700000000, 1700000002]";
    refused(&STUDY.replace("bounds.age = [0, 100]", stamps), "too far from zero for their width");
}

/// Columns whose names look like those of other columns' moments.
#[test]
fn columns_may_have_any_names() {
    let text = STUDY.replace("\"age\"", "\"age\", \"age^2\", \"age (mean)\"").replace(
        "bounds.age = [0, 100]",
        "bounds.age = [0, 100]\nbounds.\"age^2\" = [0, 10000]\nbounds.\"age (mean)\" = [0, 100]",
    );
    assert!(study(&text).moments().is_some());
}

#[test]
fn typical_values_and_missing_cells_are_checked() {
    for (line, word) in [
        ("typical.age = [150, 10]", "data.typical.age = [150.0, 10.0] is not possible"),
        ("typical.age = [50, 0]", "spread above 0"),
        ("typical.age = 50", "[mean, spread]"),
        ("typical.sex = [0.5]", "the share of each word"),
        ("typical.agee = [50, 10]", "did you mean \"age\"?"),
        ("scaling = \"none\"\ntypical.age = [50, 10]", "data.typical.age scales the column"),
        ("missing = \"median\"", "data.missing = \"median\""),
        ("indicators = [\"age\"]", "set data.missing = \"mean\""),
        ("missing = \"mean\"\nindicators = [\"sex\"]", "list \"\" among them"),
        ("missing = \"mean\"\nindicators = [\"weight\"]", "\"weight\", which is not one of data.features"),
    ] {
        refused(&STUDY.replace("[graph]", &format!("{line}\n[graph]")), word);
    }
    refused(&STUDY.replace("[\"f\", \"m\"]", "[3, \"3.0\"]"), "3 and 3.0 are the same");
    refused(&STUDY.replace("[\"f\", \"m\"]", "[\"f \", \"m\"]"), "a word with spaces around it");
}

/// A file that does not hold what was agreed is refused with both numbers.
#[test]
fn files_must_hold_about_as_many_records_as_agreed() {
    let names = Names::listed(["ash", "birch", "cedar"].map(String::from).to_vec());
    let mean = study(STUDY);
    assert!(mean.check_records(&names, 0, 290).is_ok(), "a mean says little about one client");
    let error = mean.check_records(&names, 1, 301).unwrap_err().to_string();
    assert!(error.contains("data.records = 100") && error.contains("301"), "{error}");
    let each = study(&STUDY.replace("records = 100", "records = [100, 50, 5]"));
    assert_eq!(each.mean_records(), Some(155.0 / 3.0));
    assert!(each.check_records(&names, 1, 55).is_ok() && each.check_records(&names, 2, 4).is_ok());
    let error = each.check_records(&names, 1, 56).unwrap_err().to_string();
    assert!(error.contains("is 50 for birch") && error.contains("56 records"), "{error}");
    let own = "[client.ash]\nrecords = 40\n[client.birch]\nrecords = 60\n";
    let stated = study(&format!("{}{own}", STUDY.replace("records = 100\n", "")));
    assert_eq!(stated.mean_records(), Some(50.0));
    assert!(stated.check_records(&names, 0, 70).unwrap_err().to_string().contains("client.ash.records is 40"));
    refused(&format!("{STUDY}{own}"), "both given");
    refused(
        &format!("{}[client.ash]\nrecords = 40\n[client.birch]\neta = 1\n", STUDY.replace("records = 100\n", "")),
        "client.birch.records is missing",
    );
}

#[test]
fn what_is_held_out_follows_from_the_row_alone() {
    let schema = schema().holding_out(0.2);
    let row = |i: usize| {
        let mut cells = vec![Cell::Text(format!("{}", i % 100).into()); schema.features.len()];
        cells.push(Cell::Text(format!("{i}").into()));
        cells
    };
    let held: Vec<bool> = (0..10_000).map(|i| schema.holds_out(&row(i))).collect();
    let share = held.iter().filter(|held| **held).count() as f64 / 10_000.0;
    // Five standard errors: sqrt(0.2 0.8/10^4) = 0.004.
    assert!((share - 0.2).abs() < 0.02, "{share}");
    assert!((0..10_000).all(|i| schema.holds_out(&row(i)) == held[i]), "the same in every run");
    // A number is the same row whether a file holds it as text or as a number, with blanks or without.
    for (i, held) in held.iter().enumerate().take(200) {
        let numbers: Vec<Cell> =
            row(i).iter().map(|cell| Cell::Number(cell.text().unwrap().parse().unwrap())).collect();
        let blanks: Vec<Cell> =
            row(i).iter().map(|cell| Cell::Text(format!(" {} ", cell.text().unwrap()).into())).collect();
        assert!(schema.holds_out(&numbers) == *held && schema.holds_out(&blanks) == *held);
    }
    assert!(!Schema { holdout: 0.0, ..schema.clone() }.holds_out(&row(3)));
    let more = Schema { holdout: 0.5, ..schema.clone() };
    assert!((0..1000).all(|i| !held[i] || more.holds_out(&row(i))), "a larger share holds out more of the same");
}
