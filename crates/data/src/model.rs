//! The fitted model: `model.json`, and predictions from it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use undertone_core::csv_format::{CsvFormat, parse_number};
use undertone_core::schema::{Cell, ColumnKind, OriginalUnits, same_number};
use undertone_core::study::{DataSpec, NoiseKind, Study};

use crate::{DataError, table};

/// The fitted model: the mean over clients of what they released last.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// In the units in which it was learned.
    pub w: Vec<f64>,
    /// The mean over clients and rounds, in the same units, if it was kept.
    pub average: Option<Vec<f64>>,
    /// `w` in the units of the table; synthetic data has no others.
    pub original: OriginalUnits,
    /// The same of `average`.
    pub average_original: Option<OriginalUnits>,
}

/// The mean over clients of vectors laid out flat, summed in the order of the clients.
pub fn mean(flat: &[f64], features: usize) -> Vec<f64> {
    let mut sum = vec![0.0; features];
    for point in flat.chunks_exact(features) {
        for (sum, v) in sum.iter_mut().zip(point) {
            *sum += v;
        }
    }
    let clients = (flat.len() / features) as f64;
    sum.iter().map(|s| s / clients).collect()
}

impl Model {
    /// A model of a study.
    pub fn new(study: &Study, w: Vec<f64>, average: Option<Vec<f64>>) -> Self {
        let average_original = average.as_deref().map(|average| original(study, average));
        Self { original: original(study, &w), w, average, average_original }
    }

    /// The contents of `model.json`.
    ///
    /// What it promises is added by [`promise`], which has to know how many clients there are.
    pub fn to_json(&self, study: &Study) -> Value {
        let units = |model: &OriginalUnits| {
            let coefficients: Map<String, Value> =
                model.coefficients.iter().map(|(name, v)| (name.clone(), json!(v))).collect();
            json!({ "intercept": model.intercept, "coefficients": coefficients })
        };
        let mut json = units(&self.original);
        json["study"] = json!(study.name());
        json["loss"] = json!(study.spec().loss.name());
        json["score"] = json!("intercept + sum of coefficient times column");
        json["scaled"] = json!({ "released": self.w });
        if let DataSpec::Files { schema, .. } = &study.spec().data {
            let words = schema.features.iter().filter_map(|column| match &column.kind {
                ColumnKind::Category(words) => Some((column.name.clone(), json!(words))),
                ColumnKind::Number { .. } => None,
            });
            json["categories"] = Value::Object(words.collect());
            let limits = schema.features.iter().filter_map(|c| Some((c.name.clone(), json!(schema.limits(c)?))));
            json["limits"] = Value::Object(limits.collect());
            let filled = schema.features.iter().filter_map(|c| Some((c.name.clone(), json!(schema.filling(c)?))));
            let filled: Map<String, Value> = filled.collect();
            if !filled.is_empty() {
                json["filled"] = Value::Object(filled);
            }
        }
        if let (Some(average), Some(original)) = (&self.average, &self.average_original) {
            json["average"] = units(original);
            json["scaled"]["average"] = json!(average);
        }
        json["prediction"] = match (study.spec().loss.is_classification(), &study.spec().data) {
            (false, DataSpec::Files { schema, .. }) => json!({ "target": schema.target.name }),
            (false, DataSpec::Synthetic { .. }) => json!({ "target": "y" }),
            (true, DataSpec::Files { schema, .. }) => {
                let [negative, positive] = schema.labels();
                json!({ "target": schema.target.name, "score below 0": negative, "score above 0": positive })
            }
            (true, DataSpec::Synthetic { .. }) => json!({ "target": "y", "score below 0": "-1", "score above 0": "1" }),
        };
        json
    }
}

fn original(study: &Study, w: &[f64]) -> OriginalUnits {
    match &study.spec().data {
        DataSpec::Files { schema, .. } => schema.original_units(w, study.spec().loss.is_classification()),
        DataSpec::Synthetic { .. } => OriginalUnits {
            intercept: 0.0,
            coefficients: w.iter().enumerate().map(|(p, w)| (format!("x{}", p + 1), *w)).collect(),
        },
    }
}

/// A model read back from `model.json`, ready to predict.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedModel {
    units: OriginalUnits,
    /// The words that each column of words may hold.
    categories: Vec<(String, Vec<String>)>,
    /// The range in which numbers of a column were learned from.
    limits: HashMap<String, (f64, f64)>,
    /// What an empty cell counts as: a number, or the share of each word.
    filled: HashMap<String, Vec<f64>>,
    /// What is predicted.
    pub target: String,
    /// The labels for a score below and above zero; none for regression.
    pub labels: Option<[String; 2]>,
}

/// One prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// intercept + sum of coefficient times column.
    pub score: f64,
    /// Cells that were outside the range that the model was learned in, and were moved to its end, as those of the records were.
    pub moved: usize,
    /// The score's label, for classification.
    pub label: Option<String>,
}

impl FittedModel {
    /// Reads `model.json`.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let wrong = |message: String| DataError::new(path.display(), message);
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e}); check the path")))?;
        let json: Value = serde_json::from_str(&text)
            .map_err(|e| wrong(format!("is not a model ({e}); give the model.json of a run or of a peer")))?;
        let broken =
            |what: &str| wrong(format!("is not a model: {what} is missing; give a model.json as Undertone wrote it"));
        let number = |value: &Value| value.as_f64().filter(|v| v.is_finite());
        let coefficients = json["coefficients"].as_object().ok_or_else(|| broken("coefficients"))?;
        let coefficients = coefficients.iter().map(|(name, value)| Some((name.clone(), number(value)?)));
        let text = |value: &Value| value.as_str().map(str::to_string);
        let prediction = &json["prediction"];
        let words = |value: &Value| value.as_array().map(|words| words.iter().filter_map(text).collect());
        let categories = json["categories"].as_object().into_iter().flatten();
        let numbers = |value: &Value| -> Option<Vec<f64>> { value.as_array()?.iter().map(number).collect() };
        let ranges = json["limits"].as_object().into_iter().flatten();
        let filled = json["filled"].as_object().into_iter().flatten();
        Ok(Self {
            limits: ranges
                .filter_map(|(name, value)| match numbers(value)?[..] {
                    [low, high] if low <= high => Some((name.clone(), (low, high))),
                    _ => None,
                })
                .collect(),
            filled: filled.filter_map(|(name, value)| Some((name.clone(), numbers(value)?))).collect(),
            categories: categories.filter_map(|(name, value)| Some((name.clone(), words(value)?))).collect(),
            units: OriginalUnits {
                intercept: number(&json["intercept"]).ok_or_else(|| broken("intercept"))?,
                coefficients: coefficients.collect::<Option<_>>().ok_or_else(|| broken("a coefficient"))?,
            },
            target: text(&prediction["target"]).ok_or_else(|| broken("prediction.target"))?,
            labels: text(&prediction["score below 0"]).zip(text(&prediction["score above 0"])).map(|(a, b)| [a, b]),
        })
    }

    /// The column of words and the word that a feature such as "sex=f" represents.
    fn word<'a>(&'a self, feature: &'a str) -> Option<(&'a str, &'a str)> {
        let belongs = |(column, _): &&(String, Vec<String>)| {
            feature.strip_prefix(&**column).is_some_and(|rest| rest.starts_with('='))
        };
        let (column, _) = self.categories.iter().find(belongs)?;
        Some((column, &feature[column.len() + 1..]))
    }

    /// The column of numbers whose empty cells a feature such as "age=missing" tells.
    fn indicated<'a>(&self, feature: &'a str) -> Option<&'a str> {
        feature.strip_suffix("=missing").filter(|column| self.filled.contains_key(*column))
    }

    /// The table's columns that the model uses: those of numbers, then those of words.
    fn columns(&self) -> Vec<&str> {
        let is_number = |feature: &&str| self.word(feature).is_none() && self.indicated(feature).is_none();
        let numbers = self.units.coefficients.iter().map(|(feature, _)| feature.as_str()).filter(is_number);
        numbers.chain(self.categories.iter().map(|(column, _)| column.as_str())).collect()
    }

    /// Predicts every row of a table and passes the prediction to `each`; `csv` says how a CSV file is written.
    pub fn predict(
        &self,
        data: &Path,
        csv: CsvFormat,
        mut each: impl FnMut(Prediction) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let columns = self.columns();
        table::read(data, csv, &columns, &mut |row, place| {
            let (score, moved) = self.score(&columns, row).map_err(|message| DataError::new(place(), message))?;
            let label = self.labels.as_ref().map(|[below, above]| if score < 0.0 { below } else { above }.clone());
            each(Prediction { score, moved, label })
        })
    }

    /// The score of a row, and how many of its cells were moved into the range that was learned.
    fn score(&self, columns: &[&str], row: &[Cell]) -> Result<(f64, usize), String> {
        let cell = |name: &str| &row[columns.iter().position(|c| *c == name).expect("asked for")];
        let mut found: HashMap<&str, Option<usize>> = HashMap::new();
        for (column, words) in &self.categories {
            let place = |message: String| format!("column \"{column}\": {message}");
            let index = match text(cell(column)) {
                Some(text) => Some(
                    index_of(&text, words)
                        .ok_or_else(|| place(format!("\"{text}\" is not one of the words of the model, {words:?}")))?,
                ),
                None if self.filled.contains_key(column) => None,
                None => return Err(place(EMPTY.into())),
            };
            found.insert(column, index);
        }
        let (mut score, mut moved) = (self.units.intercept, 0);
        for (feature, coefficient) in &self.units.coefficients {
            let value = if let Some((column, word)) = self.word(feature) {
                let listed = |words: &[String]| words.iter().position(|w| w == word);
                let (_, words) = self.categories.iter().find(|(name, _)| name == column).expect("it has words");
                match (found[column], listed(words)) {
                    (Some(index), at) => f64::from(Some(index) == at),
                    (None, at) => at.and_then(|at| self.filled[column].get(at).copied()).unwrap_or(0.0),
                }
            } else if let Some(column) = self.indicated(feature) {
                f64::from(is_empty(cell(column)))
            } else {
                let cell = cell(feature);
                match self.filled.get(feature) {
                    Some(fill) if is_empty(cell) => fill.first().copied().unwrap_or(0.0),
                    _ => {
                        let value = number(cell).map_err(|message| format!("column \"{feature}\": {message}"))?;
                        let (low, high) = self.limits.get(feature).copied().unwrap_or((value, value));
                        moved += usize::from(value < low || value > high);
                        value.clamp(low, high)
                    }
                }
            };
            score += coefficient * value;
        }
        Ok((score, moved))
    }
}

const EMPTY: &str = "the cell is empty; fill it, because the model was learned with missing = \"refuse\"";

fn is_empty(cell: &Cell) -> bool {
    text(cell).is_none_or(|text| text.is_empty())
}

/// Which of the words a text is; numbers among them may be written in any form.
fn index_of(text: &str, words: &[String]) -> Option<usize> {
    let same = |word: &String| word == text;
    words.iter().position(same).or_else(|| words.iter().position(|word| same_number(word, text)))
}

fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Text(text) | Cell::CommaText(text) => Some(text.trim().to_string()),
        Cell::Number(v) => Some(v.to_string()),
        Cell::Missing => None,
    }
}

fn number(cell: &Cell) -> Result<f64, String> {
    let number = match cell {
        Cell::Number(v) => *v,
        Cell::Text(text) => parse_number(text, '.')?,
        Cell::CommaText(text) => parse_number(text, ',')?,
        Cell::Missing => return Err(EMPTY.into()),
    };
    if number.is_finite() { Ok(number) } else { Err(format!("the value is {number}; a finite number is needed")) }
}

/// The privacy of a model, as `model.json` states it: what any client that took part has spent, if at most the assumed number of clients pool
/// what they know, and if all others of a client do. Null without privacy; the epsilons are null
/// where noise is not safe to release.
pub fn promise(study: &Study, clients: usize, epsilon: Option<f64>, epsilon_alone: Option<f64>) -> Value {
    let Some(privacy) = study.privacy() else { return Value::Null };
    let safe = privacy.noise() == NoiseKind::Secure;
    let (epsilon, epsilon_alone) = (epsilon.filter(|_| safe), epsilon_alone.filter(|_| safe));
    json!({
        "epsilon": epsilon,
        "delta": privacy.delta().get(),
        "accountant": privacy.accountant().name(),
        "clients": clients,
        "colluders": privacy.colluders(),
        "epsilon_if_all_others_collude": epsilon_alone,
        "noise": match privacy.noise() { NoiseKind::Secure => "secure", NoiseKind::Fast => "fast" },
    })
}
