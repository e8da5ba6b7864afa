//! The faulty provider, in this process. It has threads of its own and never takes the interpreter's
//! lock.

use std::ffi::OsString;
use std::sync::Mutex;

use pyo3::prelude::*;
use tidegate_chaos::Handle;
use tidegate_client::lock::lock;

use crate::errors;

/// A running provider; the words are the options of `tidegate chaos`.
#[pyclass(name = "ChaosServer", frozen, module = "tidegate._core")]
pub(super) struct PyChaos {
    url: String,
    handle: Mutex<Option<Handle>>,
}

#[pymethods]
impl PyChaos {
    #[new]
    fn new(py: Python<'_>, words: Vec<OsString>) -> PyResult<PyChaos> {
        let handle =
            py.detach(|| tidegate_cli::start_chaos(words)).map_err(|why| errors::invalid(py, why))?;
        Ok(PyChaos { url: handle.url(), handle: Mutex::new(Some(handle)) })
    }

    /// Its base URL, without a trailing slash.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Its statistics as JSON; `None` after it was stopped.
    fn stats(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let stats = py.detach(|| lock(&self.handle).as_ref().map(Handle::stats));
        stats
            .map(|stats| serde_json::to_string(&stats))
            .transpose()
            .map_err(|why| errors::failure(py, why.to_string()))
    }

    /// Resets statistics, history and layer.
    fn reset(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(handle) = lock(&self.handle).as_ref() {
                handle.reset();
            }
        });
    }

    /// Stops it.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.handle).take()));
    }
}
