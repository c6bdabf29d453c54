//! Tables in memory: slices with column names, or an Arrow record batch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use undertone_core::schema::Cell;

use crate::DataError;
use crate::table::{Each, columns};

/// A table in memory, column by column.
///
/// ```
/// use undertone_data::MemoryTable;
///
/// let rows = [54.0, 12.5, 61.0, 9.0];
/// let table = MemoryTable::from_rows(&["age", "days"], &rows)?.with_words("sex", &["f", "m"])?;
/// assert_eq!(table.len(), 2);
/// # Ok::<(), undertone_data::DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryTable {
    columns: Vec<(String, Values)>,
    rows: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Values {
    /// NaN for a missing cell.
    Numbers(Numbers),
    Words(Arc<[Option<String>]>),
}

/// Numbers in memory of any owner: copies of a table share them.
#[derive(Clone)]
struct Numbers(Arc<dyn AsRef<[f64]> + Send + Sync>);

impl Numbers {
    fn get(&self) -> &[f64] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl MemoryTable {
    /// From numbers that lie row after row.
    pub fn from_rows<T: Into<f64> + Copy>(names: &[&str], values: &[T]) -> Result<Self, DataError> {
        let width = names.len();
        if width == 0 || !values.len().is_multiple_of(width) {
            let message = format!("has {} values, which do not fill rows of {width} columns", values.len());
            return Err(DataError::new("table", message));
        }
        let column = |i: usize| values.iter().skip(i).step_by(width).map(|v| (*v).into()).collect();
        let numbers = |i: usize| -> Values {
            let column: Vec<f64> = column(i);
            Values::Numbers(Numbers(Arc::new(column)))
        };
        let columns = names.iter().enumerate().map(|(i, name)| (name.to_string(), numbers(i)));
        Ok(Self { columns: columns.collect(), rows: values.len() / width })
    }

    /// From columns of numbers.
    pub fn from_columns<T: Into<f64> + Copy>(columns: &[(&str, &[T])]) -> Result<Self, DataError> {
        columns.iter().try_fold(Self::default(), |table, (name, values)| table.with_numbers(name, values))
    }

    /// The same with one more column of numbers.
    pub fn with_numbers<T: Into<f64> + Copy>(self, name: &str, values: &[T]) -> Result<Self, DataError> {
        let numbers: Vec<f64> = values.iter().map(|v| (*v).into()).collect();
        self.with_shared(name, Arc::new(numbers))
    }

    /// The same with one more column of numbers that somebody else owns, which are not copied; NaN is a missing cell.
    pub fn with_shared(self, name: &str, numbers: Arc<dyn AsRef<[f64]> + Send + Sync>) -> Result<Self, DataError> {
        let numbers = Numbers(numbers);
        self.with(name, numbers.get().len(), Values::Numbers(numbers))
    }

    /// The same with one more column of words.
    pub fn with_words<T: AsRef<str>>(self, name: &str, words: &[T]) -> Result<Self, DataError> {
        self.with_cells(name, words.iter().map(|w| Some(w.as_ref().to_string())).collect())
    }

    /// The same with one more column of words, some of which may be missing.
    pub fn with_cells(self, name: &str, words: Vec<Option<String>>) -> Result<Self, DataError> {
        self.with(name, words.len(), Values::Words(words.into()))
    }

    /// The same table with memory of its own, which nobody else can change.
    pub fn owned(&self) -> Self {
        let own = |values: &Values| match values {
            Values::Numbers(numbers) => Values::Numbers(Numbers(Arc::new(numbers.get().to_vec()))),
            words => words.clone(),
        };
        Self {
            columns: self.columns.iter().map(|(name, values)| (name.clone(), own(values))).collect(),
            rows: self.rows,
        }
    }

    fn with(mut self, name: &str, rows: usize, values: Values) -> Result<Self, DataError> {
        if !self.columns.is_empty() && rows != self.rows {
            let message = format!("has {rows} rows where the columns before it have {}", self.rows);
            return Err(DataError::new(format!("column \"{name}\""), message));
        }
        self.rows = rows;
        self.columns.push((name.into(), values));
        Ok(self)
    }

    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// One table for each group, in the order of the names of the groups; row i belongs to `groups[i]`.
    pub fn split<G: AsRef<str>>(&self, groups: &[G]) -> Result<Vec<(String, Self)>, DataError> {
        if groups.len() != self.rows {
            let message = format!("have {} rows where the table has {}", groups.len(), self.rows);
            return Err(DataError::new("groups", message));
        }
        let mut rows: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (row, group) in groups.iter().enumerate() {
            rows.entry(group.as_ref()).or_default().push(row);
        }
        let only = |values: &Values, rows: &[usize]| match values {
            Values::Numbers(numbers) => {
                let all = numbers.get();
                let own: Vec<f64> = rows.iter().map(|&row| all[row]).collect();
                Values::Numbers(Numbers(Arc::new(own)))
            }
            Values::Words(words) => Values::Words(rows.iter().map(|&row| words[row].clone()).collect()),
        };
        let part = |(group, rows): (&str, Vec<usize>)| {
            let columns = self.columns.iter().map(|(name, values)| (name.clone(), only(values, &rows))).collect();
            (group.to_string(), Self { columns, rows: rows.len() })
        };
        Ok(rows.into_iter().map(part).collect())
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Hands the wanted columns of each row, in the wanted order, to `each`; `title` names the table in messages.
    pub(crate) fn read(&self, title: &str, wanted: &[&str], each: Each) -> Result<(), DataError> {
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let places = columns(title, &head, wanted, "")?;
        for row in 0..self.rows {
            let cell = |&i: &usize| match &self.columns[i].1 {
                Values::Numbers(values) => match values.get()[row] {
                    gone if gone.is_nan() => Cell::Missing,
                    value => Cell::Number(value),
                },
                Values::Words(words) => words[row].as_deref().map_or(Cell::Missing, |w| Cell::Text(Cow::Borrowed(w))),
            };
            let cells: Vec<Cell> = places.iter().map(cell).collect();
            each(&cells, &|| format!("{title}: row {}", row + 1))?;
        }
        Ok(())
    }
}

#[cfg(feature = "arrow")]
mod arrow {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;
    use arrow_array::{Array, RecordBatch};
    use arrow_cast::cast;
    use arrow_schema::DataType;

    use super::{MemoryTable, Numbers, Values};
    use crate::DataError;

    impl MemoryTable {
        /// From an Arrow record batch: numbers and booleans become numbers, strings (also dictionaries of them) words; nulls
        /// are missing cells. A column of 64-bit floats without nulls is not copied.
        pub fn from_arrow(batch: &RecordBatch) -> Result<Self, DataError> {
            let schema = batch.schema();
            let mut table = Self { columns: Vec::new(), rows: batch.num_rows() };
            for (field, array) in schema.fields().iter().zip(batch.columns()) {
                table.columns.push((field.name().clone(), values(field.name(), array)?));
            }
            Ok(table)
        }
    }

    fn values(name: &str, array: &dyn Array) -> Result<Values, DataError> {
        let unusable = || {
            let kind = array.data_type();
            DataError::new(format!("column \"{name}\""), format!("holds {kind}, which is neither a number nor text"))
        };
        let converted = |kind: &DataType| cast(array, kind).map_err(|_| unusable());
        let is_text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let kind = array.data_type();
        let text = is_text(kind) || matches!(kind, DataType::Dictionary(_, inner) if is_text(inner));
        if text {
            let words = converted(&DataType::Utf8)?;
            return Ok(Values::Words(words.as_string::<i32>().iter().map(|w| w.map(str::to_string)).collect()));
        }
        if !(kind.is_numeric() || matches!(kind, DataType::Boolean)) {
            return Err(unusable());
        }
        let numbers = converted(&DataType::Float64)?;
        let numbers = numbers.as_primitive::<Float64Type>();
        if numbers.null_count() == 0 {
            return Ok(Values::Numbers(Numbers(Arc::new(numbers.values().clone()))));
        }
        let filled: Vec<f64> = numbers.iter().map(|v| v.unwrap_or(f64::NAN)).collect();
        Ok(Values::Numbers(Numbers(Arc::new(filled))))
    }
}
