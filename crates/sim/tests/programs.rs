//! What programs rely on: records from memory, progress, an early end.

use std::sync::Mutex;

use undertone_core::graph::GraphSpec;
use undertone_core::loss::Absolute;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
use undertone_data::MemoryTable;
use undertone_sim::{Cancel, Population, SimError, Unwatched, run, run_on};

fn spec() -> StudySpec {
    let schema = Schema::new([Column::number("a", 0.0, 1.0), Column::number("b", -2.0, 2.0)])
        .target(Column::number("y", 0.0, 4.0))
        .with_intercept();
    StudySpec::new(Absolute, DataSpec::tables(schema), GraphSpec::Ring)
        .rounds(40)
        .algorithm(AlgorithmSpec::named("free-rounds").count("data_rounds", 8).number("eta", 0.5))
        .privacy(PrivacySpec::epsilon(3.0, 1e-5).clip(0.5))
}

/// Rows of client `k`: a, b, y.
fn rows(k: usize) -> Vec<f64> {
    (0..20 + k)
        .flat_map(|j| {
            let (a, b) = (((j * 7 + k) % 11) as f64 / 10.0, ((j * 5 + k) % 9) as f64 / 2.25 - 2.0);
            [a, b, (1.0 + a + 0.5 * b).clamp(0.0, 4.0)]
        })
        .collect()
}

#[test]
fn records_in_memory_give_the_bits_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["west", "east", "north"];
    let mut tables = Vec::new();
    for (k, name) in names.iter().enumerate() {
        let rows = rows(k);
        let lines: String = rows.chunks(3).map(|r| format!("{},{},{}\n", r[0], r[1], r[2])).collect();
        std::fs::write(folder.path().join(format!("{name}.csv")), format!("a,b,y\n{lines}")).unwrap();
        tables.push((name.to_string(), MemoryTable::from_rows(&["a", "b", "y"], &rows).unwrap()));
    }
    let from_files = spec().data_path(folder.path().to_str().unwrap()).check().unwrap();
    let expected = run(&from_files, &Unwatched).unwrap();
    let study = spec().check().unwrap();
    let population = Population::from_tables(&study, tables.clone()).unwrap();
    let outcome = run_on(&study, population, &Unwatched).unwrap();
    assert_eq!(outcome.clients, expected.clients);
    assert_eq!(outcome.points, expected.points);
    // Records are stored with the clip of their study, and no other study takes them.
    let other = spec().privacy(PrivacySpec::epsilon(3.0, 1e-5).clip(0.6)).check().unwrap();
    let population = Population::from_tables(&study, tables.clone()).unwrap();
    assert!(matches!(run_on(&other, population, &Unwatched), Err(SimError::OtherStudy)));
    let wider = Schema::new([Column::number("a", 0.0, 2.0), Column::number("b", -2.0, 2.0)])
        .target(Column::number("y", 0.0, 4.0))
        .with_intercept();
    let other = StudySpec { data: DataSpec::tables(wider), ..spec() }.check().unwrap();
    let population = Population::from_tables(&study, tables.clone()).unwrap();
    assert!(matches!(run_on(&other, population, &Unwatched), Err(SimError::OtherStudy)), "other bounds");
    let twice = vec![tables[0].clone(), tables[0].clone()];
    let error = Population::from_tables(&study, twice).err().unwrap().to_string();
    assert!(error.contains("the name of two clients"), "{error}");
}

#[test]
fn long_runs_report_progress_and_end_when_asked() {
    let study = StudySpec { data: DataSpec::synthetic(6, 10, 2), ..spec() }.rounds(500).trials(4).check().unwrap();
    let shares = Mutex::new(Vec::new());
    run(&study, &|share| shares.lock().unwrap().push(share)).unwrap();
    let shares = shares.into_inner().unwrap();
    assert!(shares.len() > 100 && shares.iter().copied().fold(0.0, f64::max) == 1.0);
    let cancel = Cancel::default();
    let switch = cancel.clone();
    let stopped = run(
        &study,
        &cancel.watching(move |share| {
            if share > 0.2 {
                switch.cancel()
            }
        }),
    );
    assert!(matches!(stopped, Err(SimError::Cancelled)));
}
