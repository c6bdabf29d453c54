//! What a study can be expected to do, before anybody touches a record.
//!
//! `cargo run --release -p undertone-examples --example plan`

use std::error::Error;

use undertone_core::graph::GraphSpec;
use undertone_core::loss::Absolute;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{DataSpec, PlanSpec, PrivacySpec, StudySpec};
use undertone_core::watch::Unwatched;

fn main() -> Result<(), Box<dyn Error>> {
    let schema = Schema::new([Column::number("age", 0.0, 100.0), Column::number("dose", 0.0, 50.0)])
        .target(Column::number("recovery", 0.0, 365.0))
        .with_intercept();
    // The algorithm is left open, and with it the clip: the planner chooses them.
    let mut spec = StudySpec::new(Absolute, DataSpec::tables(schema), GraphSpec::Ring)
        .rounds(60)
        .privacy(PrivacySpec::epsilon(2.0, 1e-5).secure());
    spec.plan = Some(PlanSpec { clients: Some(8), ..PlanSpec::default() });
    spec = spec.records([200]);

    let plan = undertone_plan::plan(&spec, &Unwatched)?;
    for row in &plan.rows {
        println!("{:14} expected skill {:.2}   {}", row.algorithm, 1.0 - row.regret.median, row.parameters.text());
    }
    println!("\nready to run:\n\n{}", plan.recommended().study.to_toml());
    Ok(())
}
