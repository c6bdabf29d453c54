//! The native module of the Python package `undertone`.
//!
//! It hands over plain values: JSON as text, numbers as bytes. What users see is made of them in Python, in the folder `undertone`.

mod errors;
mod log;
mod model;
mod peer;
mod program;
mod study;
mod tables;
mod work;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::peer::{Peer, keygen, policy};
    #[pymodule_export]
    use crate::program::{panic_for_tests, run_program};
    #[pymodule_export]
    use crate::study::{Outcome, Plan, Study, account};
    #[pymodule_export]
    use crate::tables::Table;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::work::keep_panics();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// JSON as text; what is written there can always be written.
fn json(value: &serde_json::Value) -> String {
    value.to_string()
}

/// Numbers as bytes, which NumPy reads without a loop.
fn bytes<'py>(py: Python<'py>, numbers: &[f64]) -> Bound<'py, pyo3::types::PyBytes> {
    let flat: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    pyo3::types::PyBytes::new(py, &flat)
}
