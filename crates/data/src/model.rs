//! The fitted model: `model.json`, and predictions from it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use undertone_core::csv_format::parse_number;
use undertone_core::exact_sum::of_columns;
use undertone_core::knob::{Settings, Value::Number};
use undertone_core::loss::AnyLoss;
use undertone_core::schema::{Cell, Column, ColumnKind, OriginalUnits, Schema, same_number};
use undertone_core::study::{DataSpec, NoiseKind, Study};

use crate::{Closed, DataError, Rows};

/// What the first line of `model.json` says; another number means another layout.
const FORMAT: &str = "undertone model 1";

/// The fitted model: the mean over clients of what they released last.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// In the units in which it was learned.
    pub w: Vec<f64>,
    /// `w` in the units of the table; synthetic data has no others.
    pub original: OriginalUnits,
}

/// What `model.json` says about a model besides what the study and the model say themselves.
#[derive(Debug, Clone, Default)]
pub struct Background<'a> {
    /// The study's promise, by [`promise`].
    pub privacy: Value,
    /// What was released after the last round, if anything was.
    pub closed: Option<&'a Closed>,
    /// Those whose last releases the model is the mean of.
    pub clients: Vec<Cow<'a, str>>,
}

/// The mean over clients of vectors laid out flat; the order of the clients does not matter.
pub fn mean(flat: &[f64], features: usize) -> Vec<f64> {
    let clients = (flat.len() / features) as f64;
    of_columns(flat.chunks_exact(features), features).iter().map(|sum| sum.value() / clients).collect()
}

/// The mean of points in every coordinate without the `liars` largest and smallest values there: as many of the points may be anything, and it still lies between values of
/// the others.
pub fn trimmed_mean(flat: &[f64], features: usize, liars: usize) -> Vec<f64> {
    let clients = flat.len() / features;
    if liars == 0 || clients <= 2 * liars {
        return mean(flat, features);
    }
    let kept = |p: usize| {
        let mut values: Vec<f64> = flat.iter().skip(p).step_by(features).copied().collect();
        values.sort_by(f64::total_cmp);
        values[liars..clients - liars].iter().sum::<f64>() / (clients - 2 * liars) as f64
    };
    (0..features).map(kept).collect()
}

impl Model {
    /// A model of a study.
    pub fn new(study: &Study, w: Vec<f64>) -> Self {
        Self { original: original(study, &w), w }
    }

    /// The contents of `model.json`, which docs/model.md describes: the model, then its uncertainty, its privacy, and how it was made.
    pub fn to_json(&self, study: &Study, background: &Background) -> Value {
        let coefficients = self.original.coefficients.iter().map(|(name, v)| (name.clone(), json!(v)));
        let loss = study.spec().loss;
        let parameters = loss.settings();
        let parameters = parameters.iter().filter_map(|(name, value)| match value {
            Number(value) => Some((name.to_string(), json!(value))),
            _ => None,
        });
        let (target, labels) = match study.spec().schema() {
            Some(schema) => (schema.target.name.clone(), schema.labels()),
            None => ("y".into(), ["-1".into(), "1".into()]),
        };
        let mut json = json!({
            "format": FORMAT,
            "study": study.name(),
            "target": target,
            "loss": loss.name(),
            "loss_parameters": Value::Object(parameters.collect()),
            "labels": loss.is_classification().then_some(labels),
            "intercept": self.original.intercept,
            "coefficients": Value::Object(coefficients.collect()),
        });
        if let Some(schema) = study.spec().schema() {
            json["columns"] = columns(schema);
        }
        json["uncertainty"] = background.closed.map_or(Value::Null, Closed::to_json);
        json["privacy"] = background.privacy.clone();
        json["made"] = json!({
            "undertone": env!("CARGO_PKG_VERSION"),
            "study_hash": hex::encode(study.digest().whole()),
            "algorithm": study.algorithm().name(),
            "rounds": study.rounds(),
            "clients": background.clients,
            "scaled": self.w,
        });
        json
    }
}

/// What cells of the features may hold: the words, the range of numbers, and what empty cells count as.
fn columns(schema: &Schema) -> Value {
    let each = |of: &dyn Fn(&Column) -> Option<Value>| -> Value {
        Value::Object(schema.features.iter().filter_map(|column| Some((column.name.clone(), of(column)?))).collect())
    };
    let words = |column: &Column| match &column.kind {
        ColumnKind::Category(words) => Some(json!(words)),
        ColumnKind::Number { .. } => None,
    };
    json!({
        "categories": each(&words),
        "limits": each(&|column| schema.limits(column).map(|limits| json!(limits))),
        "filled": each(&|column| schema.filling(column).map(|filling| json!(filling))),
    })
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
    /// What was minimised, which decides what a prediction means and how it is scored.
    pub loss: AnyLoss,
}

/// One prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// intercept + sum of coefficient times column.
    pub score: f64,
    /// Columns whose cell was outside the range that the model was learned in, and was moved to its end, as those of the records were.
    pub moved: Vec<String>,
    /// The score's label, for classification.
    pub label: Option<String>,
    /// The probability of the second label, for logistic models.
    pub probability: Option<f64>,
}

impl FittedModel {
    /// Reads `model.json`.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let wrong = |message: String| DataError::new(path.display(), message);
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e}); check the path")))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads the text of a `model.json`; `place` is its name in messages.
    pub fn parse(text: &str, place: &str) -> Result<Self, DataError> {
        let wrong = |message: String| DataError::new(place, message);
        let json: Value = serde_json::from_str(text)
            .map_err(|e| wrong(format!("is not a model ({e}); give the model.json of a run or of a peer")))?;
        let broken =
            |what: &str| wrong(format!("is not a model: {what} is missing; give a model.json as Undertone wrote it"));
        let number = |value: &Value| value.as_f64().filter(|v| v.is_finite());
        let coefficients = json["coefficients"].as_object().ok_or_else(|| broken("coefficients"))?;
        let coefficients = coefficients.iter().map(|(name, value)| Some((name.clone(), number(value)?)));
        let text = |value: &Value| value.as_str().map(str::to_string);
        if json["format"] != FORMAT {
            let found = json["format"].as_str().unwrap_or("an earlier one");
            return Err(wrong(format!(
                "is a model of another format ({found}); this program reads \"{FORMAT}\", so learn it again or use the program that wrote it"
            )));
        }
        let loss = read_loss(&json).ok_or_else(|| broken("loss"))?;
        let about = &json["columns"];
        let words = |value: &Value| value.as_array().map(|words| words.iter().filter_map(text).collect());
        let categories = about["categories"].as_object().into_iter().flatten();
        let numbers = |value: &Value| -> Option<Vec<f64>> { value.as_array()?.iter().map(number).collect() };
        let ranges = about["limits"].as_object().into_iter().flatten();
        let filled = about["filled"].as_object().into_iter().flatten();
        let damaged = |what: String| {
            wrong(format!(
                "is damaged: {what} is not what Undertone writes there; give a model.json as Undertone wrote it"
            ))
        };
        let range = |(name, value): (&String, &Value)| match numbers(value).as_deref() {
            Some([low, high]) if low <= high => Ok((name.clone(), (*low, *high))),
            _ => Err(damaged(format!("columns.limits.{name}"))),
        };
        let fill = |(name, value): (&String, &Value)| {
            let numbers = numbers(value).or_else(|| Some(vec![number(value)?]));
            numbers.map(|numbers| (name.clone(), numbers)).ok_or_else(|| damaged(format!("columns.filled.{name}")))
        };
        let listed = |(name, value): (&String, &Value)| {
            let words: Option<Vec<String>> = value.as_array().and_then(|words| words.iter().map(text).collect());
            words.map(|words| (name.clone(), words)).ok_or_else(|| damaged(format!("columns.categories.{name}")))
        };
        let labels: Option<[String; 2]> = words(&json["labels"]).and_then(|labels: Vec<String>| labels.try_into().ok());
        if loss.is_classification() != labels.is_some() {
            return Err(damaged("labels".into()));
        }
        Ok(Self {
            limits: ranges.map(range).collect::<Result<_, _>>()?,
            filled: filled.map(fill).collect::<Result<_, _>>()?,
            categories: categories.map(listed).collect::<Result<_, _>>()?,
            units: OriginalUnits {
                intercept: number(&json["intercept"]).ok_or_else(|| broken("intercept"))?,
                coefficients: coefficients.collect::<Option<_>>().ok_or_else(|| broken("a coefficient"))?,
            },
            target: text(&json["target"]).ok_or_else(|| broken("target"))?,
            labels,
            loss,
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

    /// The table's columns that the model uses, in the order of the study.
    pub fn columns(&self) -> Vec<&str> {
        let of_features = self.units.coefficients.iter().map(|(feature, _)| {
            let column = self.word(feature).map(|(column, _)| column);
            column.or(self.indicated(feature)).unwrap_or(feature)
        });
        // A column of one word has no feature.
        let of_words = self.categories.iter().map(|(column, _)| column.as_str());
        let mut columns: Vec<&str> = Vec::new();
        for column in of_features.chain(of_words) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// Predicts every row and passes the prediction to `each`, with the cells of the columns `more`.
    pub fn predict(
        &self,
        rows: Rows,
        more: &[&str],
        mut each: impl FnMut(Prediction, &[Cell]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let columns = self.columns();
        let wanted: Vec<&str> = columns.iter().chain(more).copied().collect();
        rows.read(&wanted, &mut |row, place| {
            let (cells, more) = row.split_at(columns.len());
            let (score, moved) = self.score(&columns, cells).map_err(|message| DataError::new(place(), message))?;
            let moved = moved.into_iter().map(str::to_string).collect();
            let label = self.labels.as_ref().map(|[below, above]| if score < 0.0 { below } else { above }.clone());
            let probability = matches!(self.loss, AnyLoss::Logistic(_)).then(|| 1.0 / (1.0 + libm::exp(-score)));
            each(Prediction { score, moved, label, probability }, more)
        })
    }

    /// What a cell of the target's column says: a number, or -1 and 1 for the two labels.
    pub fn truth(&self, cell: &Cell) -> Result<f64, String> {
        let wrong = |message: String| format!("column \"{}\": {message}", self.target);
        let Some(labels) = &self.labels else { return number(cell).map_err(wrong) };
        let text = cell
            .text()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| wrong("the cell is empty; a label is needed".into()))?;
        match index_of(&text, labels) {
            Some(index) => Ok([-1.0, 1.0][index]),
            None => Err(wrong(format!(
                "the cell is not one of the labels of the model, {labels:?}; correct it or remove the row"
            ))),
        }
    }

    /// The score of a row, and the columns whose cells were moved into the range that was learned.
    fn score<'a>(&'a self, columns: &[&str], row: &[Cell]) -> Result<(f64, Vec<&'a str>), String> {
        let cell = |name: &str| &row[columns.iter().position(|c| *c == name).expect("asked for")];
        let mut found: HashMap<&str, Option<usize>> = HashMap::new();
        for (column, words) in &self.categories {
            let place = |message: String| format!("column \"{column}\": {message}");
            let index = match cell(column).text() {
                Some(text) => Some(index_of(&text, words).ok_or_else(|| {
                    place(format!(
                        "the cell is not one of the words of the model, {words:?}; correct it or remove the row"
                    ))
                })?),
                None if self.filled.contains_key(column) => None,
                None => return Err(place(EMPTY.into())),
            };
            found.insert(column, index);
        }
        let (mut score, mut moved) = (self.units.intercept, Vec::new());
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
                        if value < low || value > high {
                            moved.push(feature.as_str());
                        }
                        value.clamp(low, high)
                    }
                }
            };
            score += coefficient * value;
        }
        match score.is_finite() {
            true => Ok((score, moved)),
            false => Err("the prediction is not a finite number; the coefficients or the row are not possible".into()),
        }
    }
}

/// The loss of a model: its name and its parameters.
fn read_loss(json: &Value) -> Option<AnyLoss> {
    let (name, knobs) = AnyLoss::ALL.iter().find(|(name, _)| json["loss"] == *name)?;
    let mut settings = Settings::new();
    for knob in *knobs {
        settings.set(knob.name, Number(json["loss_parameters"][knob.name].as_f64()?));
    }
    AnyLoss::named(name, &settings)
}

const EMPTY: &str = "the cell is empty; fill it, because the model was learned with missing = \"refuse\"";

fn is_empty(cell: &Cell) -> bool {
    cell.text().is_none_or(|text| text.is_empty())
}

/// Which of the words a text is; numbers among them may be written in any form.
fn index_of(text: &str, words: &[String]) -> Option<usize> {
    let same = |word: &String| word == text;
    words.iter().position(same).or_else(|| words.iter().position(|word| same_number(word, text)))
}

fn number(cell: &Cell) -> Result<f64, String> {
    let number = match cell {
        Cell::Number(v) => *v,
        Cell::Text(text) => parse_number(text, '.')?,
        Cell::CommaText(text) => parse_number(text, ',')?,
        Cell::Missing => return Err(EMPTY.into()),
    };
    if number.is_finite() {
        Ok(number)
    } else {
        Err("the cell is not a finite number; correct it or remove the row".into())
    }
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
