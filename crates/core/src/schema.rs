//! Public facts about the columns of a table, and how a row becomes features inside public bounds.

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

/// How numbers become features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    /// [low, high] becomes [-1, 1].
    Bounds,
    /// As they are.
    None,
}

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
        Self { name: name.into(), kind: ColumnKind::Number { low, high } }
    }

    /// A column of words from a public list.
    pub fn words<W: Into<String>>(name: impl Into<String>, words: impl IntoIterator<Item = W>) -> Self {
        Self { name: name.into(), kind: ColumnKind::Category(words.into_iter().map(Into::into).collect()) }
    }

    fn error(&self, message: String) -> CellError {
        CellError { column: self.name.clone(), message }
    }

    /// The number of a cell, finite and inside the bounds.
    fn read_number(&self, cell: &Cell, low: f64, high: f64, outside: Outside) -> Result<f64, CellError> {
        let value = match cell {
            Cell::Missing => return Err(self.error("the cell is empty; fill it or remove the row".into())),
            Cell::Number(v) => *v,
            Cell::Text(text) => parse_number(text, '.').map_err(|message| self.error(message))?,
            Cell::CommaText(text) => parse_number(text, ',').map_err(|message| self.error(message))?,
        };
        if !value.is_finite() {
            return Err(self.error(format!("the value is {value}; a finite number is needed")));
        }
        if (low..=high).contains(&value) {
            return Ok(value);
        }
        match outside {
            Outside::Clamp => Ok(value.clamp(low, high)),
            Outside::Refuse => Err(self.error(format!(
                "{value} is outside the public bounds [{low}, {high}]; correct it, widen the bounds, \
                 or set data.outside = \"clamp\""
            ))),
        }
    }

    /// Which of the words a cell holds.
    fn category(&self, cell: &Cell, words: &[String]) -> Result<usize, CellError> {
        let text = match cell {
            Cell::Missing => return Err(self.error("the cell is empty; fill it or remove the row".into())),
            Cell::Number(v) => v.to_string(),
            Cell::Text(text) | Cell::CommaText(text) => text.trim().to_string(),
        };
        words.iter().position(|w| *w == text).ok_or_else(|| {
            self.error(format!("\"{text}\" is not in the public list {words:?}; correct it or extend the list"))
        })
    }
}

/// Centre and half-width of a scaled column.
fn centre(kind: &ColumnKind, scaling: Scaling) -> (f64, f64) {
    match (kind, scaling) {
        (ColumnKind::Number { low, high }, Scaling::Bounds) => (low + (high - low) / 2.0, (high - low) / 2.0),
        _ => (0.0, 1.0),
    }
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
        }
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

    /// Names of the features after categories are spread out; the intercept, if any, comes last.
    ///
    /// With an intercept the first word of each category is the reference and has no feature of its own: all of them
    /// together would always add up to the intercept.
    pub fn feature_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for column in &self.features {
            match &column.kind {
                ColumnKind::Number { .. } => names.push(column.name.clone()),
                ColumnKind::Category(words) => {
                    names.extend(self.spread(words).iter().map(|word| format!("{}={word}", column.name)));
                }
            }
        }
        if self.intercept {
            names.push("intercept".into());
        }
        names
    }

    fn spread<'a>(&self, words: &'a [String]) -> &'a [String] {
        &words[usize::from(self.intercept)..]
    }

    /// Turns the cells of one row, features first and target last, into features and target.
    pub fn encode(&self, row: &[Cell], classification: bool, x: &mut Vec<f64>) -> Result<f64, CellError> {
        x.clear();
        for (column, cell) in self.features.iter().zip(row) {
            match &column.kind {
                ColumnKind::Number { low, high } => {
                    let value = column.read_number(cell, *low, *high, self.outside)?;
                    let (middle, half) = centre(&column.kind, self.scaling);
                    x.push((value - middle) / half);
                }
                ColumnKind::Category(words) => {
                    let skipped = words.len() - self.spread(words).len();
                    let index = column.category(cell, words)?;
                    x.extend((skipped..words.len()).map(|i| f64::from(i == index)));
                }
            }
        }
        if self.intercept {
            x.push(1.0);
        }
        self.encode_target(&row[self.features.len()], classification)
    }

    fn encode_target(&self, cell: &Cell, classification: bool) -> Result<f64, CellError> {
        let target = &self.target;
        match &target.kind {
            ColumnKind::Category(words) => Ok(if target.category(cell, words)? == 0 { -1.0 } else { 1.0 }),
            ColumnKind::Number { low, high } => {
                let value = target.read_number(cell, *low, *high, self.outside)?;
                if !classification {
                    let (middle, half) = centre(&target.kind, self.scaling);
                    return Ok((value - middle) / half);
                }
                match value {
                    v if v == *low => Ok(-1.0),
                    v if v == *high => Ok(1.0),
                    v => {
                        Err(target.error(format!("{v} is not a label; the two labels are the bounds {low} and {high}")))
                    }
                }
            }
        }
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
        let (target_centre, target_half) =
            if classification { (0.0, 1.0) } else { centre(&self.target.kind, self.scaling) };
        let mut intercept = target_centre;
        let mut coefficients = Vec::new();
        let mut weights = w.iter();
        for column in &self.features {
            let (middle, half) = centre(&column.kind, self.scaling);
            let names = match &column.kind {
                ColumnKind::Number { .. } => vec![column.name.clone()],
                ColumnKind::Category(words) => {
                    self.spread(words).iter().map(|word| format!("{}={word}", column.name)).collect()
                }
            };
            for name in names {
                let coefficient = target_half * weights.next().expect("one weight per feature") / half;
                intercept -= coefficient * middle;
                coefficients.push((name, coefficient));
            }
        }
        if self.intercept {
            intercept += target_half * weights.next().expect("the intercept comes last");
        }
        OriginalUnits { intercept, coefficients }
    }
}
