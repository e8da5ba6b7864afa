//! The program `tidegate`: the same as the binary, started by the console script of the package.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the command with these words, the name of the program first, and returns its exit code.
/// `program` starts it again, for records that are tried alone. To be called once per process.
#[pyfunction]
#[pyo3(signature = (argv, program=None))]
fn main(py: Python<'_>, argv: Vec<OsString>, program: Option<PathBuf>) -> u8 {
    py.detach(|| tidegate_cli::main_with(argv, program))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(main, module)?)
}
