//! model.json: written by a study, read back, and used to predict new rows.

use undertone_core::csv_format::CsvFormat;
use undertone_core::schema::Cell;
use undertone_core::study::Study;
use undertone_data::{Background, DataError, FittedModel, Model, Rows};

const STUDY: &str = "name = \"m\"\nrounds = 1\n[problem]\nloss = \"LOSS\"\n[data]\nsource = \"folder\"\n\
    features = [\"age\", \"sex\", \"a=b\"]\ntarget = \"days\"\nintercept = true\n\
    bounds.age = [0, 100]\nbounds.\"a=b\" = [0, 1]\ncategories.sex = [\"f\", \"m\", \"x\"]\nbounds.days = [10, 30]\n\
    [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 1.0\neta = 1.0\n\
    [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n";

fn predict(loss: &str, table: &str) -> Result<Vec<(f64, Option<String>)>, DataError> {
    predict_as(CsvFormat::default(), loss, table)
}

fn predict_as(format: CsvFormat, loss: &str, table: &str) -> Result<Vec<(f64, Option<String>)>, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let study = Study::parse(&STUDY.replace("LOSS", loss), "t").unwrap();
    // age, sex=m, sex=x, a=b, intercept, in scaled units.
    let model = Model::new(&study, vec![0.5, 0.25, -0.25, 1.0, 0.125]).to_json(&study, &Background::default());
    let (file, data) = (folder.path().join("model.json"), folder.path().join("new.csv"));
    std::fs::write(&file, model.to_string()).unwrap();
    std::fs::write(&data, table).unwrap();
    let mut found = Vec::new();
    FittedModel::read(&file)?.predict(Rows::File(&data, format), &[], |p, _| {
        found.push((p.score, p.label));
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn predictions_are_the_scaled_model_in_the_units_of_the_table() {
    let found = predict("squared", "id,sex,a=b,age\n1,f,0.5,50\n2,m,0.5,50\n3,x,1,100\n").unwrap();
    // t = 20 + 10 (0.5 (age - 50)/50 + 1.0 (ab - 0.5)/0.5 + words + 0.125)
    let expected = [21.25, 23.75, 20.0 + 10.0 * (0.5 + 1.0 - 0.25 + 0.125)];
    assert_eq!(found.len(), 3);
    for ((score, label), expected) in found.iter().zip(expected) {
        assert!((score - expected).abs() < 1e-12 && label.is_none(), "{score} {expected}");
    }
}

#[test]
fn labels_are_those_of_the_study() {
    let found = predict("logistic", "sex,a=b,age\nf,0,0\nm,1,100\n").unwrap();
    let labels: Vec<_> = found.iter().map(|f| f.1.as_deref().unwrap()).collect();
    assert_eq!(labels, ["10", "30"]);
}

#[test]
fn rows_that_the_model_cannot_use_are_named() {
    let wrong = |table: &str| predict("squared", table).unwrap_err().to_string();
    assert!(wrong("sex,a=b,age\nf,0,0\nwoman,0,0\n").contains("new.csv:3: column \"sex\": the cell is not one of"));
    assert!(wrong("sex,a=b,age\nf,0,old\n").contains("new.csv:2: column \"age\": the cell is not a number"));
    assert!(wrong("sex,a=b,age\nf,0,inf\n").contains("new.csv:2: column \"age\": the cell is not a finite number"));
    assert!(wrong("sex,a=b,age\nf,0,\n").contains("new.csv:2: column \"age\": the cell is empty"));
    assert!(wrong("sex,age\nf,0\n").contains("has no column \"a=b\""));
}

#[test]
fn tables_with_semicolons_and_decimal_commas_predict_the_same() {
    let plain = predict("squared", "sex,a=b,age\nf,0.5,50.25\nm,1,99.5\n").unwrap();
    let format = CsvFormat { delimiter: b';', decimal: ',' };
    let written = "sex;a=b;age\nf;0,5;50,25\nm;1;99,5\n";
    assert_eq!(predict_as(format, "squared", written).unwrap(), plain);
    let error = predict("squared", written).unwrap_err().to_string();
    assert!(error.contains("has no column") && error.contains("--delimiter"), "{error}");
    let error = predict_as(format, "squared", "sex;a=b;age\nf;0,5;50.25\n").unwrap_err().to_string();
    assert!(error.contains("new.csv:2: column \"age\": the cell is not a number with decimal comma"), "{error}");
}

/// Whatever a cell holds, a prediction is what the encoded row gives: limits, filled cells, indicators and numbers among words.
#[test]
fn predictions_treat_cells_as_learning_does() {
    let text = "name = \"m\"\nrounds = 1\n[problem]\nloss = \"squared\"\n[data]\nsource = \"folder\"\nrecords = 20\n\
        features = [\"age\", \"dose\", \"ward\", \"sex\"]\ntarget = \"days\"\nintercept = true\noutside = \"clamp\"\nmissing = \"mean\"\n\
        indicators = [\"dose\"]\nbounds.age = [0, 100]\nbounds.dose = [0, 1000]\nbounds.days = [0, 60]\n\
        typical.dose = [100, 20]\ntypical.days = [20, 8]\ntypical.sex = [0.4, 0.6]\n\
        categories.ward = [\"3\", \"7\", \"9\"]\ncategories.sex = [\"f\", \"m\"]\n\
        [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 1.0\neta = 1.0\n\
        [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n";
    let study = Study::parse(text, "t").unwrap();
    let schema = study.spec().schema().unwrap();
    let w: Vec<f64> = (0..study.features()).map(|p| 0.3 + 0.1 * p as f64).collect();
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("model.json"), folder.path().join("new.csv"));
    std::fs::write(&file, Model::new(&study, w.clone()).to_json(&study, &Background::default()).to_string()).unwrap();
    let rows = [
        ["50", "110", "3", "f"],
        ["-7", "900", "7.0", "m"],
        ["", "", "", ""],
        ["200", "3", "9.00", "m"],
        ["1", " ", "7", ""],
    ];
    let table: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    std::fs::write(&data, format!("age,dose,ward,sex\n{}\n", table.join("\n"))).unwrap();
    let mut found = Vec::new();
    let fitted = FittedModel::read(&file).unwrap();
    let each = |p: undertone_data::Prediction, _: &[Cell]| {
        found.push((p.score, p.moved.len()));
        Ok(())
    };
    fitted.predict(Rows::File(&data, CsvFormat::default()), &[], each).unwrap();
    let mut x = Vec::new();
    for (row, (score, _)) in rows.iter().zip(&found) {
        let mut cells: Vec<Cell> = row.iter().map(|cell| Cell::Text((*cell).into())).collect();
        cells.push(Cell::Number(20.0));
        schema.encode(&cells, false, &mut x).unwrap();
        // The target's typical mean and spread.
        let expected = 20.0 + 8.0 * x.iter().zip(&w).map(|(x, w)| x * w).sum::<f64>();
        assert!((score - expected).abs() < 1e-9, "{row:?}: {score} {expected}");
    }
    assert_eq!(found.iter().map(|f| f.1).collect::<Vec<_>>(), [0, 2, 0, 2, 0], "cells that were moved");
}

#[test]
fn the_model_comes_first_in_the_order_of_the_study_and_says_its_format() {
    let study = Study::parse(&STUDY.replace("LOSS", "squared"), "t").unwrap();
    let text =
        Model::new(&study, vec![0.5, 0.25, -0.25, 1.0, 0.125]).to_json(&study, &Background::default()).to_string();
    let places: Vec<usize> =
        ["format", "target", "intercept", "\"age\"", "sex=m", "a=b", "uncertainty", "privacy", "made"]
            .iter()
            .map(|key| text.find(key).unwrap_or_else(|| panic!("{key} is missing in {text}")))
            .collect();
    assert!(places.is_sorted(), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    std::fs::write(&file, text.replace("undertone model 1", "undertone model 9")).unwrap();
    let error = FittedModel::read(&file).unwrap_err().to_string();
    assert!(error.contains("another format (undertone model 9)"), "{error}");
}

#[test]
fn truths_are_numbers_or_labels() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    let fitted = |loss: &str| {
        let study = Study::parse(&STUDY.replace("LOSS", loss), "t").unwrap();
        let model = Model::new(&study, vec![0.0; 5]).to_json(&study, &Background::default());
        std::fs::write(&file, model.to_string()).unwrap();
        FittedModel::read(&file).unwrap()
    };
    assert_eq!(fitted("squared").truth(&Cell::Text("12.5".into())), Ok(12.5));
    assert_eq!(fitted("hinge").truth(&Cell::Text("30".into())), Ok(1.0));
    assert_eq!(fitted("hinge").truth(&Cell::Number(10.0)), Ok(-1.0));
    assert!(fitted("hinge").truth(&Cell::Text("12".into())).unwrap_err().contains("not one of the labels"));
    assert!(fitted("squared").truth(&Cell::Missing).is_err());
}
