//! A study of a few hospitals, written and run from a program, on tables that are in memory.
//!
//! `cargo run --release -p undertone-examples --example simulate`

use std::error::Error;

use undertone_core::graph::GraphSpec;
use undertone_core::loss::Huber;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
use undertone_core::watch::Cancel;
use undertone_data::MemoryTable;
use undertone_sim::{Population, run_on};

fn main() -> Result<(), Box<dyn Error>> {
    // What is public about the columns. Values outside the bounds would be refused.
    let schema = Schema::new([Column::number("age", 18.0, 90.0), Column::words("smoker", ["no", "yes"])])
        .target(Column::number("days", 0.0, 120.0))
        .with_intercept();
    let study = StudySpec::new(Huber { threshold: 0.2 }, DataSpec::tables(schema), GraphSpec::Ring)
        .name("recovery")
        .rounds(100)
        .algorithm(AlgorithmSpec::named("free-rounds").count("data_rounds", 12).number("eta", 1.5))
        .privacy(PrivacySpec::epsilon(2.0, 1e-5).clip(0.3))
        .check()?;

    let hospitals = ["ashford", "brookside", "cedarview", "dunmore", "eastgate"];
    let tables = (0..).zip(hospitals).map(|(k, name)| Ok((name.to_string(), patients(k)?)));
    let population = Population::from_tables(&study, tables.collect::<Result<_, Box<dyn Error>>>()?)?;

    // Another thread could keep a clone of the switch, and end the run with it.
    let watch = Cancel::default();
    let outcome = run_on(&study, population, &watch.watching(|share| eprint!("\r{:3.0}% ", 100.0 * share)))?;
    let last = outcome.last();
    println!("\nepsilon {:.3}", outcome.epsilon.expect("privacy is on"));
    println!("error of the released models: {:.4}", last.error.expect("small enough to pool").released.mean);
    println!("days = {:.1}", outcome.model.original.intercept);
    for (column, coefficient) in &outcome.model.original.coefficients {
        println!("     {coefficient:+.3} {column}");
    }
    Ok(())
}

/// 300 made-up patients of one hospital.
fn patients(hospital: u32) -> Result<MemoryTable, Box<dyn Error>> {
    let rows = 0..300u32;
    let ages: Vec<f64> = rows.clone().map(|j| f64::from(18 + (j * 7 + hospital * 13) % 73)).collect();
    let smokers: Vec<&str> =
        rows.clone().map(|j| if (j + hospital).is_multiple_of(3) { "yes" } else { "no" }).collect();
    let days: Vec<f64> = rows
        .map(|j| {
            let (age, smoker) = (ages[j as usize], smokers[j as usize] == "yes");
            10.0 + 0.6 * age + if smoker { 12.0 } else { 0.0 } + f64::from(j % 11) - 5.0
        })
        .collect();
    Ok(MemoryTable::from_columns(&[("age", &ages[..]), ("days", &days)])?.with_words("smoker", &smokers)?)
}
