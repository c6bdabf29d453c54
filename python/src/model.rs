//! Models: read back from `model.json`, and predictions from them.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use undertone_core::csv_format::CsvFormat;
use undertone_data::{FittedModel, Rows as DataRows};

use crate::errors::Fault;
use crate::tables::Rows;
use crate::work::watched;

/// A fitted model.
#[pyclass(frozen, module = "undertone._native")]
pub struct Model(FittedModel);

/// Scores, labels, probabilities, and how many cells of which column were moved into the range that was learned.
type Predictions<'py> =
    (Bound<'py, PyBytes>, Option<Vec<String>>, Option<Bound<'py, PyBytes>>, BTreeMap<String, usize>);

#[pymethods]
impl Model {
    /// From the text of `model.json`; `place` is its name in messages.
    #[staticmethod]
    fn parse(text: &str, place: &str) -> PyResult<Self> {
        Ok(Self(FittedModel::parse(text, place).map_err(Fault::from)?))
    }

    /// The columns that it needs, what it predicts, its labels and its loss, as JSON.
    fn facts(&self) -> String {
        let Self(model) = self;
        crate::json(&json!({
            "columns": model.columns(), "target": model.target, "labels": model.labels, "loss": model.loss.name(),
        }))
    }

    /// Predicts every row of a file or a table.
    #[pyo3(signature = (rows, delimiter=None, decimal=None))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        rows: Rows,
        delimiter: Option<&str>,
        decimal: Option<&str>,
    ) -> PyResult<Predictions<'py>> {
        let csv = CsvFormat::read(delimiter, decimal);
        let csv = csv.map_err(|e| Fault::new("DataError", format!("{} {}", e.name, e.message)))?;
        let (path, table) = match &rows {
            Rows::File(path) => (Some(path.clone()), None),
            Rows::Table(table) => (None, Some(table.get())),
        };
        let (scores, labels, probabilities, moved) = watched(py, None, Some(1), |_| {
            let rows = match (&path, table) {
                (Some(path), _) => DataRows::File(path, csv),
                (None, Some(table)) => DataRows::Table(&table.0, "data"),
                (None, None) => return Err(Fault::internal("rows without a place")),
            };
            let (mut scores, mut labels, mut probabilities) = (Vec::new(), Vec::new(), Vec::new());
            let mut moved: BTreeMap<String, usize> = BTreeMap::new();
            self.0.predict(rows, &[], |prediction, _| {
                scores.push(prediction.score);
                labels.extend(prediction.label);
                probabilities.extend(prediction.probability);
                prediction.moved.into_iter().for_each(|column| *moved.entry(column).or_default() += 1);
                Ok(())
            })?;
            Ok((scores, labels, probabilities, moved))
        })?;
        let labels = self.0.labels.is_some().then_some(labels);
        let probabilities = (self.0.loss.name() == "logistic").then(|| crate::bytes(py, &probabilities));
        Ok((crate::bytes(py, &scores), labels, probabilities, moved))
    }
}
