//! Tables of Python: NumPy columns and anything that speaks the Arrow C data interface.

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, Float64Array, RecordBatch, StructArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use undertone_data::{DataError, MemoryTable};

use crate::errors::Fault;

/// A table in memory.
#[pyclass(frozen, module = "undertone._native")]
pub struct Table(pub MemoryTable);

#[pymethods]
impl Table {
    /// From columns: a NumPy array of 64-bit floats, which is not copied, or a list of words and Nones.
    #[staticmethod]
    fn from_columns(columns: Vec<(String, Bound<PyAny>)>) -> PyResult<Self> {
        let mut table = MemoryTable::default();
        for (name, values) in columns {
            table = match values.hasattr("__array_interface__")? {
                true => table.with_shared(&name, Arc::new(Floats::of(&values)?)).map_err(Fault::from)?,
                false => {
                    let words: Vec<Option<String>> = values.extract()?;
                    table.with_cells(&name, words).map_err(Fault::from)?
                }
            };
        }
        Ok(Self(table))
    }

    /// From an object with `__arrow_c_stream__` or `__arrow_c_array__`: the wanted columns, or all where one of them is missing.
    #[staticmethod]
    #[pyo3(signature = (data, wanted=None))]
    fn from_arrow(data: &Bound<PyAny>, wanted: Option<Vec<String>>) -> PyResult<Self> {
        // The library of Arrow ends with a panic where something is no table, or is not what the interface promises.
        let read = std::panic::AssertUnwindSafe(|| batch_of(data));
        let batch = std::panic::catch_unwind(read).unwrap_or_else(|_| {
            let message =
                "is no Arrow table: it must be a table or a batch of columns, without rows that are empty as a whole";
            Err(Fault::from(DataError::new("table", message)).into())
        })?;
        let schema = batch.schema();
        let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|other| other == name));
        let is_complete = wanted.iter().flatten().all(|name| schema.index_of(name).is_ok());
        let mut columns: Vec<(String, arrow_array::ArrayRef)> = Vec::new();
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let name = field.name();
            if is_wanted(name) {
                if columns.iter().any(|(other, _)| other == name) {
                    let message = format!("has two columns named \"{name}\"; rename one");
                    return Err(Fault::from(DataError::new("table", message)).into());
                }
                // Offsets, text and indices may come from anywhere, and are only promised to be right.
                array.to_data().validate_full().map_err(|e| {
                    Fault::from(DataError::new(format!("column \"{name}\""), format!("is broken Arrow data ({e})")))
                })?;
                columns.push((name.clone(), array.clone()));
            } else if !is_complete {
                // Not read, but there, so that the message can list it.
                columns.push((name.clone(), Arc::new(Float64Array::new_null(batch.num_rows()))));
            }
        }
        let batch = match columns.is_empty() {
            true => batch,
            false => RecordBatch::try_from_iter(columns).map_err(wrong)?,
        };
        Ok(Self(MemoryTable::from_arrow(&batch).map_err(Fault::from)?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The names of the columns.
    fn names(&self) -> Vec<String> {
        self.0.names().map(str::to_string).collect()
    }

    /// One table for each group, in the order of the names of the groups.
    fn split(&self, py: Python, groups: Vec<String>) -> PyResult<Vec<(String, Table)>> {
        let parts = py.detach(|| self.0.split(&groups)).map_err(Fault::from)?;
        Ok(parts.into_iter().map(|(name, table)| (name, Table(table))).collect())
    }
}

fn wrong(e: arrow_schema::ArrowError) -> Fault {
    Fault::from(DataError::new("table", format!("is no Arrow table ({e})")))
}

/// All of a table that speaks Arrow.
fn batch_of(data: &Bound<PyAny>) -> PyResult<RecordBatch> {
    if !data.hasattr("__arrow_c_stream__")? {
        let (schema, array): (Bound<PyAny>, Bound<PyAny>) = data.call_method0("__arrow_c_array__")?.extract()?;
        return Ok(RecordBatch::from(StructArray::from(taken_array(&schema, &array)?)));
    }
    let capsule = data.call_method0("__arrow_c_stream__")?;
    let reader = RecordBatchStreamReader::try_new(taken_stream(&capsule)?).map_err(wrong)?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let batches: Result<Vec<RecordBatch>, _> = reader.collect();
    let mut batches = batches.map_err(wrong)?;
    Ok(match batches.len() {
        1 => batches.swap_remove(0),
        _ => arrow_select::concat::concat_batches(&schema, &batches).map_err(wrong)?,
    })
}

/// A NumPy array that is kept alive and not copied.
struct Floats {
    first: NonNull<f64>,
    count: usize,
    _owner: Py<PyAny>,
}

// SAFETY: the memory is read only, and the owner, which keeps it, is released through the interpreter. As with every function of NumPy that
// lets other threads run, an array must not be changed while it is used.
#[allow(unsafe_code)]
unsafe impl Send for Floats {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Floats {}

impl Floats {
    /// Of an array of one dimension, by NumPy's array interface.
    fn of(array: &Bound<PyAny>) -> PyResult<Self> {
        let interface = array.getattr("__array_interface__")?;
        let kind: String = interface.get_item("typestr")?.extract()?;
        let shape: Vec<usize> = interface.get_item("shape")?.extract()?;
        let strides: Option<Vec<isize>> = interface.get_item("strides")?.extract()?;
        let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
        let native = if cfg!(target_endian = "little") { "<f8" } else { ">f8" };
        let [count] = shape[..] else {
            return Err(PyValueError::new_err(format!("a column has one dimension, got shape {shape:?}")));
        };
        if kind != native || (count > 1 && strides.is_some_and(|strides| strides != [8])) {
            return Err(PyTypeError::new_err("a column is a contiguous array of 64-bit floats"));
        }
        match NonNull::new(address as *mut f64).filter(|first| first.is_aligned()) {
            Some(first) => Ok(Self { first, count, _owner: array.clone().unbind() }),
            None => Err(PyValueError::new_err("a column's memory is not aligned; copy the array")),
        }
    }
}

impl AsRef<[f64]> for Floats {
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[f64] {
        // SAFETY: the array interface promises so many floats there, contiguous as was checked, for as long as the owner lives.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// The stream in a capsule, which is left empty, as the interface asks for.
#[allow(unsafe_code)]
fn taken_stream(capsule: &Bound<PyAny>) -> PyResult<FFI_ArrowArrayStream> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds such a structure, by the Arrow PyCapsule interface.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) })
}

/// The array in two capsules, of which the second is left empty.
#[allow(unsafe_code)]
fn taken_array(schema: &Bound<PyAny>, array: &Bound<PyAny>) -> PyResult<arrow_data::ArrayData> {
    let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_schema"))?;
    let array = array.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_array"))?;
    // SAFETY: capsules of these names hold such structures, by the Arrow PyCapsule interface.
    let data =
        unsafe { from_ffi(FFI_ArrowArray::from_raw(array.cast().as_ptr()), schema.cast::<FFI_ArrowSchema>().as_ref()) };
    data.map_err(|e| Fault::from(DataError::new("table", format!("is no Arrow table ({e})"))).into())
}

/// A file or a table in memory.
pub enum Rows<'py> {
    /// A path.
    File(std::path::PathBuf),
    /// A table.
    Table(Bound<'py, Table>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Rows<'py> {
    type Error = PyErr;

    fn extract(data: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(table) = data.cast::<Table>() {
            return Ok(Self::Table(table.to_owned()));
        }
        data.extract().map(Self::File)
    }
}
