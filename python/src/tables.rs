//! Tables of Python: NumPy columns and anything that speaks the Arrow C data interface.

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, StructArray};
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
        let wrong =
            |e: arrow_schema::ArrowError| Fault::from(DataError::new("table", format!("is no Arrow table ({e})")));
        let batch = if data.hasattr("__arrow_c_stream__")? {
            let capsule = data.call_method0("__arrow_c_stream__")?;
            let reader = RecordBatchStreamReader::try_new(taken_stream(&capsule)?).map_err(wrong)?;
            let schema = arrow_array::RecordBatchReader::schema(&reader);
            let batches: Result<Vec<RecordBatch>, _> = reader.collect();
            let mut batches = batches.map_err(wrong)?;
            match batches.len() {
                1 => batches.swap_remove(0),
                _ => arrow_select::concat::concat_batches(&schema, &batches).map_err(wrong)?,
            }
        } else {
            let (schema, array): (Bound<PyAny>, Bound<PyAny>) = data.call_method0("__arrow_c_array__")?.extract()?;
            RecordBatch::from(StructArray::from(taken_array(&schema, &array)?))
        };
        let schema = batch.schema();
        let places: Option<Vec<usize>> =
            wanted.and_then(|wanted| wanted.iter().map(|name| schema.index_of(name).ok()).collect());
        let batch = match places {
            Some(places) => batch.project(&places).map_err(wrong)?,
            None => batch,
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
    fn split(&self, groups: Vec<String>) -> PyResult<Vec<(String, Table)>> {
        let parts = self.0.split(&groups).map_err(Fault::from)?;
        Ok(parts.into_iter().map(|(name, table)| (name, Table(table))).collect())
    }
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
