//! Tables in memory are the same as files with the same cells.

use std::io::Write;

use undertone_core::csv_format::CsvFormat;
use undertone_core::graph::GraphSpec;
use undertone_core::loss::Absolute;
use undertone_core::schema::{Column, Schema};
use undertone_core::study::{AlgorithmSpec, DataSpec, PrivacySpec, StudySpec};
use undertone_data::{Encoder, Loaded, MemoryTable};

fn schema() -> Schema {
    Schema::new([Column::number("age", 0.0, 100.0), Column::words("sex", ["f", "m"])])
        .target(Column::number("days", 0.0, 60.0))
        .with_intercept()
}

const AGES: [f64; 3] = [20.5, 50.0, 75.25];
const DAYS: [f64; 3] = [12.0, 30.0, 41.5];
const SEXES: [&str; 3] = ["f", "m", "f"];

fn encode(table: &MemoryTable) -> Result<Loaded, String> {
    Encoder { schema: &schema(), classification: false }.encode(table, "ward").map_err(|e| e.to_string())
}

fn expected() -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.csv");
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, "age,sex,days").unwrap();
    for j in 0..3 {
        writeln!(file, "{},{},{}", AGES[j], SEXES[j], DAYS[j]).unwrap();
    }
    Encoder { schema: &schema(), classification: false }.read(&path, CsvFormat::default(), "ward").unwrap()
}

#[test]
fn rows_columns_and_both_kinds_of_numbers_are_the_same_records_as_a_file() {
    let expected = expected();
    let rows: Vec<f64> = AGES.iter().zip(DAYS).flat_map(|(age, days)| [*age, days]).collect();
    let by_rows = MemoryTable::from_rows(&["age", "days"], &rows).unwrap().with_words("sex", &SEXES).unwrap();
    assert_eq!(encode(&by_rows).unwrap(), expected);
    // These numbers are exact in single precision too, and the order of columns does not matter.
    let (ages, days) = (AGES.map(|v| v as f32), DAYS.map(|v| v as f32));
    let by_columns = MemoryTable::default().with_words("sex", &SEXES).unwrap();
    let by_columns = by_columns.with_numbers("days", &days).unwrap().with_numbers("age", &ages).unwrap();
    assert_eq!(encode(&by_columns).unwrap(), expected);
    assert_eq!(by_columns.len(), 3);
}

#[test]
fn wrong_tables_are_refused_with_place_and_reason() {
    let table = |age: f64| MemoryTable::from_columns(&[("age", &[50.0, age][..]), ("days", &[1.0, 2.0])]).unwrap();
    let error = encode(&table(f64::NAN).with_words("sex", &["f", "m"]).unwrap()).unwrap_err();
    assert!(error.starts_with("ward: row 2: column \"age\": the cell is empty"), "{error}");
    let error = encode(&table(120.0).with_words("sex", &["f", "m"]).unwrap()).unwrap_err();
    assert!(error.contains("ward: row 2") && error.contains("outside the public bounds"), "{error}");
    let error = encode(&table(1.0).with_words("sex", &["f", "x"]).unwrap()).unwrap_err();
    assert!(error.contains("the cell is not in the public list"), "{error}");
    let error = encode(&table(1.0)).unwrap_err();
    assert!(error.starts_with("ward: has no column \"sex\""), "{error}");
    let error = table(1.0).with_words("sex", &["f"]).unwrap_err().to_string();
    assert!(error.contains("has 1 rows where the columns before it have 2"), "{error}");
    let error = MemoryTable::from_rows(&["a", "b"], &[1.0, 2.0, 3.0]).unwrap_err().to_string();
    assert!(error.contains("do not fill rows of 2 columns"), "{error}");
    let nothing = MemoryTable::from_columns(&[("age", &[0.0f64; 0][..]), ("days", &[]), ("sex", &[])]).unwrap();
    assert!(encode(&nothing).unwrap_err().contains("holds no records"));
}

#[cfg(feature = "arrow")]
mod arrow {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Float32Array, Int64Array, RecordBatch, StringArray};

    use super::*;

    #[test]
    fn record_batches_are_the_same_records_as_a_file() {
        let words: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter(SEXES));
        let plain: ArrayRef = Arc::new(StringArray::from(SEXES.to_vec()));
        for sexes in [words, plain] {
            let ages: ArrayRef = Arc::new(Float32Array::from(AGES.map(|v| v as f32).to_vec()));
            let days: ArrayRef = Arc::new(arrow_array::Float64Array::from(DAYS.to_vec()));
            let batch = RecordBatch::try_from_iter([("days", days), ("sex", sexes), ("age", ages)]).unwrap();
            assert_eq!(encode(&MemoryTable::from_arrow(&batch).unwrap()).unwrap(), expected());
        }
    }

    #[test]
    fn nulls_are_missing_cells_and_other_types_are_refused() {
        let ages: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let days: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let sexes: ArrayRef = Arc::new(StringArray::from(vec!["f", "m"]));
        let batch = RecordBatch::try_from_iter([("age", ages), ("days", days), ("sex", sexes)]).unwrap();
        let error = encode(&MemoryTable::from_arrow(&batch).unwrap()).unwrap_err();
        assert!(error.contains("row 2: column \"age\": the cell is empty"), "{error}");
        let dates: ArrayRef = Arc::new(arrow_array::Date32Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("seen", dates)]).unwrap();
        let error = MemoryTable::from_arrow(&batch).unwrap_err().to_string();
        assert!(error.contains("column \"seen\"") && error.contains("neither a number nor text"), "{error}");
    }
}

/// That all rows are kept out of training follows from what they say, so nothing others see may depend on it: the client takes part with a gradient of zero.
#[test]
fn a_table_splits_into_groups_by_name() {
    let table = MemoryTable::from_columns(&[("age", &[1.0, 2.0, 3.0])]).unwrap();
    let table = table.with_cells("sex", vec![Some("f".into()), None, Some("m".into())]).unwrap();
    let part = |ages: &[f64], words: Vec<Option<String>>| {
        MemoryTable::from_columns(&[("age", ages)]).unwrap().with_cells("sex", words).unwrap()
    };
    let north = part(&[1.0, 3.0], vec![Some("f".into()), Some("m".into())]);
    assert_eq!(
        table.split(&["south", "north", "north"]).unwrap(),
        [
            ("north".to_string(), part(&[2.0, 3.0], vec![None, Some("m".into())])),
            ("south".to_string(), part(&[1.0], vec![Some("f".into())])),
        ]
    );
    assert_eq!(table.split(&["north", "south", "north"]).unwrap()[0].1, north);
    let refused = table.split(&["north"]).unwrap_err().to_string();
    assert_eq!(refused, "groups: have 1 rows where the table has 3");
}

#[test]
fn a_client_that_trains_on_no_row_takes_part() {
    let schema = schema().holding_out(0.9);
    let study = StudySpec::new(Absolute, DataSpec::tables(schema.clone()), GraphSpec::Ring)
        .rounds(3)
        .algorithm(AlgorithmSpec::named("zcdp-grad-nfl").number("eta", 1.0))
        .privacy(PrivacySpec::epsilon(1.0, 1e-5).clip(0.5))
        .records(vec![4])
        .check()
        .unwrap();
    let encoder = Encoder { schema: &schema, classification: false };
    let load = |age: f64| {
        let table = MemoryTable::from_rows(&["age", "days"], &[age, 30.0]).unwrap().with_words("sex", &["f"]).unwrap();
        encoder.encode(&table, "ward").unwrap()
    };
    let all: Vec<Loaded> = (0..100).map(|age| load(f64::from(age))).collect();
    let (trained, none): (Vec<&Loaded>, Vec<&Loaded>) = all.iter().partition(|loaded| !loaded.targets.is_empty());
    assert!(trained.len() > 2 && none.len() > 70, "{} {}", trained.len(), none.len());
    let (trained, none) = (trained[0].dataset(&study), none[0].dataset(&study));
    assert_eq!(none.records().gradient_sensitivity(), trained.records().gradient_sensitivity());
    let mut x = [1.0; 3];
    none.records().read(0, &mut x);
    assert_eq!((none.records().len(), x), (1, [0.0; 3]));
}
