//! How often intervals hold what they should: many data sets with many draws of noise.
//!
//! Synthetic data has a known truth; a real table is resampled with replacement, and its own coefficients without privacy are the truth. Every repeat has new
//! records and new noise; parameters are planned once, from public facts.

use rand::distr::Distribution;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use undertone_core::normal::Normal;
use undertone_core::schema::Schema;
use undertone_core::study::{Document, Study};
use undertone_core::watch::Unwatched;
use undertone_data::{MemoryTable, Model};
use undertone_sim::data::Population;

const PARTIES: usize = 10;

/// Rows of a table: numbers, and words where a column has some.
type Rows = Vec<Vec<String>>;

/// A source of data sets, and the truth about it.
struct Case {
    name: String,
    /// The study without its budget.
    text: String,
    columns: Vec<String>,
    records: usize,
    draw: Box<dyn Fn(&mut Xoshiro256PlusPlus) -> Rows + Sync>,
    truth: Vec<(String, f64)>,
}

/// Measures coverage at two budgets, with masks and without: on synthetic data, or on `files`, a study and a table each.
pub fn run(repeats: u64, files: &[String]) {
    println!("case,epsilon,masks,repeats,refused,coefficient,coverage,median width,widening");
    let cases: Vec<Case> = match files {
        [] => ["squared", "huber", "logistic"].map(synthetic).into(),
        files => files.chunks_exact(2).map(|pair| real(&pair[0], &pair[1])).collect(),
    };
    for case in &cases {
        for epsilon in [4.0, 10.0] {
            for masks in [false, true] {
                measure(case, epsilon, masks, repeats);
            }
        }
    }
}

fn measure(case: &Case, epsilon: f64, masks: bool, repeats: u64) {
    let colluders = if masks { "colluders = 2\n" } else { "" };
    let text = format!(
        "algorithm = \"auto\"\nrounds = 60\n{}[graph]\nkind = \"complete\"\n[inference]\nlevel = 0.95\n\
         [privacy]\nepsilon = {epsilon}\ndelta = 1e-6\n{colluders}[plan]\nclients = {PARTIES}\nlosses = 0\n\
         [simulation]\nmetrics_every = 60\ncentral = false\n",
        case.text
    );
    let document = Document::parse(&text, &case.name).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let planned = undertone_plan::resolve(&document, &Unwatched).unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<Option<Vec<(bool, f64, f64)>>> = (0..repeats)
        .into_par_iter()
        .map(|repeat| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1000 + repeat);
            let rows = (case.draw)(&mut rng);
            let mut spec = planned.spec().clone();
            spec.seed = repeat;
            let study = spec.check().expect("only the seed differs");
            let tables = divide(case, study.spec().schema().expect("tables"), &rows);
            let population = Population::from_tables(&study, tables).unwrap_or_else(|e| panic!("{e}"));
            let outcome = undertone_sim::run_on(&study, population, &Unwatched).unwrap_or_else(|e| panic!("{e}"));
            let intervals = outcome.closed[0].intervals.clone().expect("asked for").ok()?;
            let one = |(name, truth): &(String, f64)| {
                let interval = intervals.iter().find(|i| i.name == *name).unwrap_or_else(|| panic!("{name}"));
                let (low, high) = interval.range;
                ((low..=high).contains(truth), high - low, interval.widening)
            };
            Some(case.truth.iter().map(one).collect())
        })
        .collect();
    let given: Vec<&Vec<(bool, f64, f64)>> = found.iter().flatten().collect();
    for (at, (name, _)) in case.truth.iter().enumerate() {
        let covered = given.iter().filter(|row| row[at].0).count() as f64 / given.len().max(1) as f64;
        let median = |pick: fn(&(bool, f64, f64)) -> f64| {
            let mut values: Vec<f64> = given.iter().map(|row| pick(&row[at])).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        println!(
            "{},{epsilon},{masks},{repeats},{},{name},{covered:.3},{:.3e},{:.2}",
            case.name,
            found.len() - given.len(),
            median(|v| v.1),
            median(|v| v.2)
        );
    }
}

/// Deals the rows out to the parties in turn.
fn divide(case: &Case, schema: &Schema, rows: &Rows) -> Vec<(String, MemoryTable)> {
    let table = |k: usize| {
        let own: Vec<&Vec<String>> = rows.iter().skip(k).step_by(PARTIES).collect();
        let mut table = MemoryTable::default();
        for (at, name) in case.columns.iter().enumerate() {
            let cells: Vec<&str> = own.iter().map(|row| row[at].as_str()).collect();
            let column = schema.features.iter().chain([&schema.target]).find(|column| column.name == *name);
            let words = column.is_some_and(|c| matches!(c.kind, undertone_core::schema::ColumnKind::Category(_)));
            table = match words {
                true => table.with_words(name, &cells),
                false => {
                    let numbers: Vec<f64> = cells.iter().map(|cell| cell.parse().expect("a number")).collect();
                    table.with_numbers(name, &numbers)
                }
            }
            .expect("columns of one length");
        }
        table
    };
    (0..PARTIES).map(|k| (format!("party{k}"), table(k))).collect()
}

/// Three numbers and a word, correlated, and a target that follows them.
fn synthetic(loss: &'static str) -> Case {
    let records = 6000;
    let threshold = if loss == "huber" { "threshold = 1.0\n" } else { "" };
    let target = match loss {
        "logistic" => "categories.y = [\"no\", \"yes\"]\n",
        _ => "bounds.y = [-100, 140]\ntypical.y = [25, 12]\n",
    };
    let text = format!(
        "[problem]\nloss = \"{loss}\"\n{threshold}[data]\nsource = \"folder\"\nrecords = {}\nfeatures = [\"age\", \"dose\", \"weight\", \"sex\"]\n\
         target = \"y\"\nintercept = true\noutside = \"clamp\"\nbounds.age = [0, 110]\nbounds.dose = [-20, 60]\nbounds.weight = [0, 200]\n\
         categories.sex = [\"f\", \"m\"]\ntypical.age = [50, 12]\ntypical.dose = [20, 8]\ntypical.weight = [70, 15]\n{target}",
        records / PARTIES
    );
    // In the units of the table; for logistic the log odds.
    let scale = if loss == "logistic" { 0.1 } else { 1.0 };
    let truth = [("intercept", 4.0), ("age", 0.3), ("dose", -0.4), ("weight", 0.15), ("sex=m", 3.0)];
    let truth: Vec<(String, f64)> = truth
        .map(|(name, v)| (name.to_string(), scale * if name == "intercept" && loss == "logistic" { -20.0 } else { v }))
        .into();
    let weights: Vec<f64> = truth.iter().map(|t| t.1).collect();
    let draw = move |rng: &mut Xoshiro256PlusPlus| {
        let mut normal = || -> f64 { Normal.sample(rng) };
        let mut rows = Rows::new();
        for _ in 0..records {
            let shared = normal();
            let age = 50.0 + 12.0 * (0.6 * shared + 0.8 * normal()).clamp(-2.9, 2.9);
            let dose = 20.0 + 8.0 * (0.5 * shared + 0.866 * normal()).clamp(-2.4, 2.4);
            let weight = 70.0 + 15.0 * normal().clamp(-2.9, 2.9);
            let male = normal() > 0.2;
            let z =
                weights[0] + weights[1] * age + weights[2] * dose + weights[3] * weight + weights[4] * f64::from(male);
            let y = match loss {
                "logistic" => {
                    let uniform = 0.5 * libm::erfc(-normal() / std::f64::consts::SQRT_2);
                    if uniform < 1.0 / (1.0 + (-z).exp()) { "yes".into() } else { "no".to_string() }
                }
                _ => (z + 6.0 * normal()).to_string(),
            };
            rows.push(vec![
                age.to_string(),
                dose.to_string(),
                weight.to_string(),
                if male { "m" } else { "f" }.into(),
                y,
            ]);
        }
        rows
    };
    let columns = ["age", "dose", "weight", "sex", "y"].map(String::from).into();
    Case { name: format!("synthetic {loss}"), text, columns, records, draw: Box::new(draw), truth }
}

/// A table, resampled; its own coefficients without privacy are the truth.
fn real(study: &str, data: &str) -> Case {
    let text = std::fs::read_to_string(study).unwrap_or_else(|e| panic!("{study}: {e}"));
    let mut reader = csv::Reader::from_path(data).unwrap_or_else(|e| panic!("{data}: {e}"));
    let columns: Vec<String> = reader.headers().expect("a head").iter().map(String::from).collect();
    let rows: Rows = reader.records().map(|row| row.expect("a row").iter().map(String::from).collect()).collect();
    let records = rows.len();
    let text = text.replace("RECORDS", &(records / PARTIES).to_string());
    let name = data.rsplit('/').next().unwrap_or(data).to_string();
    let mut case = Case { name, text, columns, records, draw: Box::new(|_| Vec::new()), truth: Vec::new() };
    // The pooled solution of the table as it is, without a clip.
    let whole = format!(
        "rounds = 1\nprivacy = \"off\"\nalgorithm = {{ name = \"zcdp-grad-nfl\", eta = 1e-9 }}\n{}[graph]\nkind = \"complete\"\n",
        case.text
    );
    let study = Study::parse(&whole, "whole").unwrap_or_else(|e| panic!("{e}"));
    let tables = divide(&case, study.spec().schema().expect("tables"), &rows);
    let population = Population::from_tables(&study, tables).unwrap_or_else(|e| panic!("{e}"));
    let outcome = undertone_sim::run_on(&study, population, &Unwatched).unwrap_or_else(|e| panic!("{e}"));
    let central = outcome.central.unwrap_or_else(|e| panic!("{e}"));
    let units = Model::new(&study, central.w).original;
    case.truth = std::iter::once(("intercept".to_string(), units.intercept)).chain(units.coefficients).collect();
    case.draw = Box::new(move |rng| (0..rows.len()).map(|_| rows[rng.random_range(0..rows.len())].clone()).collect());
    assert!(case.records > 0, "a table without records");
    case
}
