//! The exceptions of the package. They are defined in Python (`tidegate/errors.py`), because classes
//! with fields and several bases are plain there, and imported here when one is raised.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tidegate_client::secret::mask;

static VALIDATION: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static TIDEGATE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// A class of `tidegate.errors`.
pub(crate) fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, "tidegate.errors", name)
}

/// `tidegate.ValidationError`: what was given is not valid; nothing was sent.
pub(crate) fn invalid(py: Python<'_>, why: impl Into<String>) -> PyErr {
    raised(class(py, &VALIDATION, "ValidationError"), why.into())
}

/// `tidegate.TidegateError`: a failure on our side.
pub(crate) fn failure(py: Python<'_>, why: impl Into<String>) -> PyErr {
    raised(class(py, &TIDEGATE, "TidegateError"), why.into())
}

fn raised(class: PyResult<&Bound<'_, PyType>>, why: String) -> PyErr {
    match class {
        Ok(class) => PyErr::from_type(class.clone(), mask(&why).into_owned()),
        Err(error) => error,
    }
}

pub(crate) fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
