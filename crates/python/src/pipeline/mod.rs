//! Manifests, runs, geocoding, dead letters, simulation and the faulty provider, for Python.
//!
//! Python calls the commands of the program, as a host of them: the same options, the same path from
//! source to sink, the same messages. `tidegate/_call.py` writes the words.

mod chaos;
mod clock;
mod command;

use pyo3::prelude::*;

/// Adds the classes and functions of this module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<command::PyCommand>()?;
    module.add_class::<chaos::PyChaos>()?;
    module.add_function(wrap_pyfunction!(clock::_skip_waits, module)?)?;
    module.add_function(wrap_pyfunction!(clock::_skipped, module)?)
}
