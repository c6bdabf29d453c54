//! The program `undertone` inside of a Python process.

use std::ffi::OsString;
use std::io::Write;

use pyo3::prelude::*;

use crate::errors::Fault;
use crate::work::{caught, printing_panics};

/// Runs the program with these arguments, the first of which is its name, and returns the exit code. `program` starts other processes of it.
#[pyfunction]
pub fn run_program(py: Python, arguments: Vec<OsString>, program: Vec<OsString>) -> u8 {
    py.detach(|| {
        // As the binary would exit; what went wrong was printed by the panic.
        let code = printing_panics(|| caught(|| Ok(undertone_cli::run(arguments, Some(program))))).unwrap_or(101);
        // Where standard output is gone, nobody can be told.
        let _ = std::io::stdout().flush();
        code
    })
}

/// Panics, so that tests can see what becomes of it.
#[pyfunction(name = "_panic")]
pub fn panic_for_tests(py: Python) -> PyResult<()> {
    crate::work::watched(py, None, Some(1), |_| -> Result<(), Fault> { panic!("on purpose") })
}
