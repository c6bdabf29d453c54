//! Public facts about the columns of a table, and how a row becomes features inside public bounds.
//!
//! Scaling, clamping, filling of missing cells: each is a public function of one record, the same at every client. What is proven
//! for records holds for their images too.

mod moments;

use std::borrow::Cow;

use thiserror::Error;

use crate::csv_format::parse_number;

/// What is publicly known about one column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name in the table's head.
    pub name: String,
    /// What its cells are.
    pub kind: ColumnKind,
    /// What is typical, if that is publicly known: mean and spread of numbers, the share of each word.
    pub typical: Option<Vec<f64>>,
    /// Whether a feature says that the cell of a number is missing.
    pub indicator: bool,
}

/// The kind of a column's cells.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnKind {
    /// Numbers from `low` to `high`.
    Number {
        /// Public lower bound.
        low: f64,
        /// Public upper bound.
        high: f64,
    },
    /// One of a public list of words.
    Category(Vec<String>),
}

/// What to do with a number outside its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Stop and name the cell.
    Refuse,
    /// Move it to the nearest bound.
    Clamp,
}

/// What to do with an empty cell of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Stop and name the cell.
    Refuse,
    /// Use the typical value, or the middle of the bounds where none is known; for words their typical shares.
    Mean,
}

/// How numbers become features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    /// The typical mean becomes 0 and the typical spread 1, clamped at [`FEATURE_LIMIT`]. Without typical values [low, high]
    /// becomes [-1, 1].
    Bounds,
    /// As they are.
    None,
    /// Not features but their moments, for private standardisation; with those of the target or without.
    Moments {
        /// Whether the target is a number whose moments are included.
        target: bool,
    },
}

/// Features in typical spreads are clamped to this, so that a stray value does not use up the clip.
pub const FEATURE_LIMIT: f64 = 3.0;
/// The target in typical spreads is clamped to this.
pub const TARGET_LIMIT: f64 = 4.0;

/// The columns a study uses.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// The features, in this order.
    pub features: Vec<Column>,
    /// The target.
    pub target: Column,
    /// Whether a feature that is always 1 is added at the end.
    pub intercept: bool,
    /// How numbers are scaled.
    pub scaling: Scaling,
    /// What happens outside the bounds.
    pub outside: Outside,
    /// What happens to empty cells.
    pub missing: Missing,
    /// What the learned target's 0 stands for: so many typical spreads above the typical mean. A study sets it, see
    /// [`Schema::starting_at`].
    pub start: f64,
    /// The share of every client's rows that is kept out of training, to score the model on; 0 for none.
    pub holdout: f64,
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// A number.
    Number(f64),
    /// Text, which may represent a number.
    Text(Cow<'a, str>),
    /// The same, from a file whose numbers have a decimal comma.
    CommaText(Cow<'a, str>),
    /// Nothing.
    Missing,
}

impl Cell<'_> {
    /// What it says, without the blanks around it; none if there is nothing.
    pub fn text(&self) -> Option<String> {
        match self {
            Cell::Text(text) | Cell::CommaText(text) => Some(text.trim().to_string()),
            Cell::Number(v) => Some(v.to_string()),
            Cell::Missing => None,
        }
    }
}

/// A cell that cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("column \"{column}\": {message}")]
pub struct CellError {
    /// The column.
    pub column: String,
    /// What is wrong and what is expected.
    pub message: String,
}

/// A model in the units of the table: prediction = intercept + sum of coefficient times column.
#[derive(Debug, Clone, PartialEq)]
pub struct OriginalUnits {
    /// The constant term.
    pub intercept: f64,
    /// Names of the features ("sex=f" for a category) and their coefficients.
    pub coefficients: Vec<(String, f64)>,
}

impl Column {
    /// A column of numbers inside public bounds.
    pub fn number(name: impl Into<String>, low: f64, high: f64) -> Self {
        Self { name: name.into(), kind: ColumnKind::Number { low, high }, typical: None, indicator: false }
    }

    /// A column of words from a public list.
    pub fn words<W: Into<String>>(name: impl Into<String>, words: impl IntoIterator<Item = W>) -> Self {
        let kind = ColumnKind::Category(words.into_iter().map(Into::into).collect());
        Self { name: name.into(), kind, typical: None, indicator: false }
    }

    /// The same with a public mean and spread; for words, with the share of each.
    pub fn typical(self, values: impl Into<Vec<f64>>) -> Self {
        Self { typical: Some(values.into()), ..self }
    }

    /// The same with a feature that says whether the cell is missing.
    pub fn with_indicator(self) -> Self {
        Self { indicator: true, ..self }
    }

    /// Its typical mean and spread, if it has numbers and they are known.
    fn mean_and_spread(&self) -> Option<(f64, f64)> {
        match (&self.kind, self.typical.as_deref()) {
            (ColumnKind::Number { .. }, Some(&[mean, spread])) => Some((mean, spread)),
            _ => None,
        }
    }

    /// The typical share of word `index`, if it is known.
    fn share(&self, index: usize) -> Option<f64> {
        self.typical.as_ref().map(|shares| shares[index])
    }

    fn error(&self, message: String) -> CellError {
        CellError { column: self.name.clone(), message }
    }

    fn empty(&self) -> CellError {
        self.error(
            "the cell is empty; fill it, remove the row, or, if it is a feature, set data.missing = \"mean\"".into(),
        )
    }

    /// The number of a cell, finite and inside the bounds.
    fn read_number(&self, cell: &Cell, low: f64, high: f64, outside: Outside) -> Result<f64, CellError> {
        let value = match cell {
            Cell::Missing => return Err(self.empty()),
            Cell::Number(v) => *v,
            Cell::Text(text) => parse_number(text, '.').map_err(|message| self.error(message))?,
            Cell::CommaText(text) => parse_number(text, ',').map_err(|message| self.error(message))?,
        };
        if !value.is_finite() {
            return Err(self.error("the cell is not a finite number; correct it or remove the row".into()));
        }
        if (low..=high).contains(&value) {
            return Ok(value);
        }
        match outside {
            Outside::Clamp => Ok(value.clamp(low, high)),
            Outside::Refuse => Err(self.error(format!(
                "the cell is outside the public bounds [{low}, {high}]; correct it, widen the bounds, \
                 or set data.outside = \"clamp\""
            ))),
        }
    }

    /// Which of the words a cell holds.
    fn category(&self, cell: &Cell, words: &[String]) -> Result<usize, CellError> {
        let text = match cell {
            Cell::Missing => return Err(self.empty()),
            Cell::Number(v) => Cow::Owned(v.to_string()),
            Cell::Text(text) => Cow::Borrowed(text.trim()),
            // Categories may be numbers too.
            Cell::CommaText(text) => match parse_number(text, ',') {
                Ok(number) if !words.iter().any(|word| *word == text.trim()) => Cow::Owned(number.to_string()),
                _ => Cow::Borrowed(text.trim()),
            },
        };
        let same = |word: &String| *word == *text;
        words.iter().position(same).or_else(|| words.iter().position(|word| same_number(word, &text))).ok_or_else(
            || self.error(format!("the cell is not in the public list {words:?}; correct it or extend the list")),
        )
    }
}

/// Whether two words are the same number: 3, 3.0 and 3.00 are, whether a table holds them as text, integers or floats.
pub fn same_number(a: &str, b: &str) -> bool {
    let number = |word: &str| word.parse::<f64>().ok().filter(|v| v.is_finite());
    number(a).is_some_and(|a| number(b) == Some(a))
}

/// What becomes 0 and what becomes 1 more than it, of a column of numbers.
fn centre(column: &Column, scaling: Scaling) -> (f64, f64) {
    match (&column.kind, scaling) {
        (ColumnKind::Number { low, high }, Scaling::Bounds | Scaling::Moments { .. }) => {
            column.mean_and_spread().unwrap_or((low + (high - low) / 2.0, (high - low) / 2.0))
        }
        _ => (0.0, 1.0),
    }
}

/// A number in the units of its column's scaling.
fn scaled(column: &Column, scaling: Scaling, value: f64, limit: f64) -> f64 {
    let (middle, half) = centre(column, scaling);
    let scaled = (value - middle) / half;
    // Without typical values the bounds are the limits.
    if column.typical.is_some() { scaled.clamp(-limit, limit) } else { scaled }
}

impl Schema {
    /// Features to learn from, scaled by their bounds, without an intercept; what lies outside the bounds is refused. The
    /// target is a number from -1 to 1 called "target" until [`Schema::target`] says otherwise.
    pub fn new(features: impl IntoIterator<Item = Column>) -> Self {
        Self {
            features: features.into_iter().collect(),
            target: Column::number("target", -1.0, 1.0),
            intercept: false,
            scaling: Scaling::Bounds,
            outside: Outside::Refuse,
            missing: Missing::Refuse,
            start: 0.0,
            holdout: 0.0,
        }
    }

    /// The same with a share of every client's rows kept out of training.
    pub fn holding_out(self, share: f64) -> Self {
        Self { holdout: share, ..self }
    }

    /// Whether a row is kept out of training. It follows from what the row says and nothing else, so it is the same in every
    /// run, for every client, and for all rows that say the same.
    pub fn holds_out<'c>(&self, row: impl IntoIterator<Item = &'c Cell<'c>>) -> bool {
        if self.holdout == 0.0 {
            return false;
        }
        let mut hasher = blake3::Hasher::new_derive_key("undertone 2026 rows kept out of training");
        for cell in row {
            let text = cell.text().unwrap_or_default();
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        let number = u64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes"));
        // 2^64 as a number; the share of hashes below is the share of rows.
        (number as f64) < self.holdout * 18_446_744_073_709_551_616.0
    }

    /// The target of a row in the units of the table, wherever it lies; or -1 and 1 for labels.
    pub fn truth(&self, row: &[Cell], classification: bool) -> Result<f64, CellError> {
        let cell = &row[self.features.len()];
        match (&self.target.kind, classification) {
            (ColumnKind::Number { .. }, false) => {
                self.target.read_number(cell, f64::NEG_INFINITY, f64::INFINITY, Outside::Refuse)
            }
            _ => self.encode_target(cell, classification),
        }
    }

    /// A target in the units that are learned in, from one in those of the table.
    pub fn learned(&self, truth: f64, classification: bool) -> f64 {
        let (middle, half) = self.target_map(classification);
        (truth - middle) / half
    }

    /// A prediction in the units of the table, from one in those that were learned in.
    pub fn predicted(&self, z: f64, classification: bool) -> f64 {
        let (middle, half) = self.target_map(classification);
        middle + half * z
    }

    /// The same with this target.
    pub fn target(self, target: Column) -> Self {
        Self { target, ..self }
    }

    /// The same with a feature that is always 1.
    pub fn with_intercept(self) -> Self {
        Self { intercept: true, ..self }
    }

    /// The same with values outside their bounds moved to the nearest bound.
    pub fn clamped(self) -> Self {
        Self { outside: Outside::Clamp, ..self }
    }

    /// The same with empty cells of features filled by what is typical.
    pub fn filled(self) -> Self {
        Self { missing: Missing::Mean, ..self }
    }

    /// The same for a model of this quantile of the target. Every run starts at w = 0. Where the target's mean and spread are
    /// public, so is roughly where its quantile lies, and 0 is made to stand for that: the quantile of a logistic distribution with
    /// the spread that is left when the features explain half of the variance. The pooled model stays the same, because its intercept
    /// is free to move; without an intercept nothing is changed.
    pub fn starting_at(self, quantile: f64) -> Self {
        const LEFT: f64 = std::f64::consts::FRAC_1_SQRT_2;
        // The logistic distribution with the slope 1.702 is the normal one up to 0.01.
        let normal = libm::log(quantile / (1.0 - quantile)) / 1.702;
        let known = self.intercept && self.scaling == Scaling::Bounds && self.target.mean_and_spread().is_some();
        Self { start: if known { LEFT * normal } else { 0.0 }, ..self }
    }

    /// Names of the features after categories are spread out; the intercept, if any, comes last.
    ///
    /// With an intercept the first word of each category is the reference and has no feature of its own: all of them
    /// together would always add up to the intercept.
    pub fn feature_names(&self) -> Vec<String> {
        if let Scaling::Moments { target } = self.scaling {
            return self.moment_names(target);
        }
        let mut names: Vec<String> = self.features.iter().flat_map(|column| self.names_of(column)).collect();
        if self.intercept {
            names.push("intercept".into());
        }
        names
    }

    /// Names of the features of one column.
    fn names_of(&self, column: &Column) -> Vec<String> {
        match &column.kind {
            ColumnKind::Number { .. } => {
                let indicator = column.indicator.then(|| format!("{}=missing", column.name));
                std::iter::once(column.name.clone()).chain(indicator).collect()
            }
            ColumnKind::Category(words) => {
                self.spread(words).iter().map(|word| format!("{}={word}", column.name)).collect()
            }
        }
    }

    fn spread<'a>(&self, words: &'a [String]) -> &'a [String] {
        &words[usize::from(self.intercept)..]
    }

    /// Turns the cells of one row, features first and target last, into features and target.
    pub fn encode(&self, row: &[Cell], classification: bool, x: &mut Vec<f64>) -> Result<f64, CellError> {
        x.clear();
        for (column, cell) in self.features.iter().zip(row) {
            match self.scaling {
                Scaling::Moments { .. } => self.push_moments(column, cell, FEATURE_LIMIT, x)?,
                _ => self.push_features(column, cell, x)?,
            }
        }
        let target = &row[self.features.len()];
        if let Scaling::Moments { target: included } = self.scaling {
            if included {
                self.push_target_moments(target, x)?;
            }
            return Ok(moments::TARGET);
        }
        if self.intercept {
            x.push(1.0);
        }
        self.encode_target(target, classification)
    }

    /// Whether typical values are known of any column.
    fn has_typical(&self) -> bool {
        self.features.iter().chain([&self.target]).any(|column| column.typical.is_some())
    }

    /// What becomes 0 and what becomes 1 more than it in the feature of a word. Where columns are in units of their spreads, words are
    /// too: that of a word with the share p is sqrt(p (1 - p)), and at most 1/2. A rare word gets no more than `RARE`.
    fn word_map(&self, column: &Column, words: &[String], index: usize) -> (f64, f64) {
        const RARE: f64 = 0.2;
        match column.share(index) {
            Some(share) => (share, (share * (1.0 - share)).sqrt().clamp(RARE, 0.5)),
            None if self.has_typical() => (1.0 / words.len() as f64, 0.5),
            None => (0.0, 1.0),
        }
    }

    /// Whether a cell is empty and to be filled.
    fn is_filled(&self, cell: &Cell) -> bool {
        let is_empty = match cell {
            Cell::Missing => true,
            Cell::Text(text) | Cell::CommaText(text) => text.trim().is_empty(),
            Cell::Number(_) => false,
        };
        is_empty && self.missing == Missing::Mean
    }

    /// The features of one cell.
    fn push_features(&self, column: &Column, cell: &Cell, x: &mut Vec<f64>) -> Result<(), CellError> {
        match &column.kind {
            ColumnKind::Number { low, high } => {
                let is_filled = self.is_filled(cell);
                x.push(match is_filled {
                    // 0 is what is typical, or the middle of the bounds; unscaled, the middle is said in units of the table.
                    true if self.scaling == Scaling::None => low + (high - low) / 2.0,
                    true => 0.0,
                    false => {
                        let value = column.read_number(cell, *low, *high, self.outside)?;
                        scaled(column, self.scaling, value, FEATURE_LIMIT)
                    }
                });
                if column.indicator {
                    x.push(f64::from(is_filled));
                }
            }
            ColumnKind::Category(words) => {
                let skipped = words.len() - self.spread(words).len();
                let even = 1.0 / words.len() as f64;
                // A word that is listed as "" is a word like any other.
                let index = match column.category(cell, words) {
                    Ok(index) => Some(index),
                    Err(_) if self.is_filled(cell) => None,
                    Err(e) => return Err(e),
                };
                x.extend((skipped..words.len()).map(|i| match index {
                    Some(index) => {
                        let (middle, half) = self.word_map(column, words, i);
                        (f64::from(i == index) - middle) / half
                    }
                    None if self.has_typical() => 0.0,
                    None => even,
                }));
            }
        }
        Ok(())
    }

    fn encode_target(&self, cell: &Cell, classification: bool) -> Result<f64, CellError> {
        let target = &self.target;
        match &target.kind {
            ColumnKind::Category(words) => Ok(if target.category(cell, words)? == 0 { -1.0 } else { 1.0 }),
            ColumnKind::Number { low, high } => {
                let value = target.read_number(cell, *low, *high, self.outside)?;
                if !classification {
                    return Ok(scaled(target, self.scaling, value, TARGET_LIMIT) - self.start);
                }
                match value {
                    v if v == *low => Ok(-1.0),
                    v if v == *high => Ok(1.0),
                    _ => Err(target
                        .error(format!("the cell is not a label; the two labels are the bounds {low} and {high}"))),
                }
            }
        }
    }

    /// How far from what is typical a number of a column still counts as it is: three spreads for a feature, four for the target. None without typical values, for words and for labels.
    pub fn typical_range(&self, column: &Column) -> Option<(f64, f64)> {
        let [mean, spread] = column.typical.as_deref()? else { return None };
        let is_number = matches!(column.kind, ColumnKind::Number { .. });
        let limit = if column.name == self.target.name { TARGET_LIMIT } else { FEATURE_LIMIT };
        is_number.then_some((mean - limit * spread, mean + limit * spread))
    }

    /// The range to which numbers of a feature are moved, in the units of the table: its bounds, and with typical values
    /// [`FEATURE_LIMIT`] spreads around the mean. None for words.
    pub fn limits(&self, column: &Column) -> Option<(f64, f64)> {
        let ColumnKind::Number { low, high } = column.kind else { return None };
        Some(match (column.mean_and_spread(), self.scaling) {
            (Some((mean, spread)), Scaling::Bounds) => {
                (low.max(mean - FEATURE_LIMIT * spread), high.min(mean + FEATURE_LIMIT * spread))
            }
            _ => (low, high),
        })
    }

    /// What an empty cell of a feature counts as, in the units of the table: a number, or the share of each word. None where empty
    /// cells are refused.
    pub fn filling(&self, column: &Column) -> Option<Vec<f64>> {
        let fill = match &column.kind {
            ColumnKind::Number { low, high } => match self.scaling {
                Scaling::None => vec![low + (high - low) / 2.0],
                _ => vec![centre(column, self.scaling).0],
            },
            ColumnKind::Category(words) => {
                (0..words.len()).map(|i| column.share(i).unwrap_or(1.0 / words.len() as f64)).collect()
            }
        };
        (self.missing == Missing::Mean).then_some(fill)
    }

    /// What a change of 1 in the learned target is in the units of the table.
    pub fn target_unit(&self) -> f64 {
        centre(&self.target, self.scaling).1
    }

    /// The meaning of the labels -1 and 1.
    pub fn labels(&self) -> [String; 2] {
        match &self.target.kind {
            ColumnKind::Category(words) => [words[0].clone(), words[1].clone()],
            ColumnKind::Number { low, high } => [low.to_string(), high.to_string()],
        }
    }

    /// Undoes the scaling: with z = (x - c)/h and t = (y - c')/h', the prediction c' + h' sum w z becomes a function
    /// of x.
    pub fn original_units(&self, w: &[f64], classification: bool) -> OriginalUnits {
        let (target_centre, target_half) = self.target_map(classification);
        let mut intercept = target_centre;
        let mut coefficients = Vec::new();
        for ((name, (middle, half)), w) in self.maps().into_iter().zip(w) {
            let coefficient = target_half * w / half;
            intercept -= coefficient * middle;
            coefficients.push((name, coefficient));
        }
        if self.intercept {
            intercept += target_half * w.last().expect("the intercept comes last");
        }
        OriginalUnits { intercept, coefficients }
    }

    /// The inverse of [`Schema::original_units`]: the weights of a model that is given in the units of the table. Without an
    /// intercept of its own, the constant term is lost.
    pub fn scaled_units(&self, model: &OriginalUnits, classification: bool) -> Vec<f64> {
        let (target_centre, target_half) = self.target_map(classification);
        let mut constant = model.intercept - target_centre;
        let mut w = Vec::with_capacity(model.coefficients.len() + 1);
        for ((_, (middle, half)), (_, coefficient)) in self.maps().into_iter().zip(&model.coefficients) {
            constant += coefficient * middle;
            w.push(coefficient * half / target_half);
        }
        if self.intercept {
            w.push(constant / target_half);
        }
        w
    }

    /// What becomes 0 and what becomes 1 more than it in the target.
    fn target_map(&self, classification: bool) -> (f64, f64) {
        if classification {
            return (0.0, 1.0);
        }
        let (middle, half) = centre(&self.target, self.scaling);
        (middle + self.start * half, half)
    }

    /// The features except the intercept, each with what becomes 0 and what becomes 1 more than it.
    fn maps(&self) -> Vec<(String, (f64, f64))> {
        let of = |column: &Column| -> Vec<(f64, f64)> {
            match &column.kind {
                ColumnKind::Number { .. } => {
                    let indicator = column.indicator.then_some((0.0, 1.0));
                    std::iter::once(centre(column, self.scaling)).chain(indicator).collect()
                }
                ColumnKind::Category(words) => {
                    let skipped = words.len() - self.spread(words).len();
                    (skipped..words.len()).map(|i| self.word_map(column, words, i)).collect()
                }
            }
        };
        self.features.iter().flat_map(|column| self.names_of(column).into_iter().zip(of(column))).collect()
    }
}
