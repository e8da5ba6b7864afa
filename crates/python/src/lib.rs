//! The Python module `tidegate._core`.
//!
//! Python holds no policy: what a signal means, when a call may go and whether it is tried again is
//! decided by `tidegate-core`, driven by `tidegate-client`. This crate converts values, waits without
//! the interpreter's lock, and gives answers to event loops.
//!
//! | module | holds |
//! |---|---|
//! | `runtime` | the tokio runtime of this process, waits that Ctrl-C ends, forks |
//! | `bridge` | answers for asyncio |
//! | `errors` | the exceptions |
//! | `command` | the program `tidegate` |
//! | `lane` | lanes, permits, responses, retries |
//! | `pipeline` | manifests, runs, geocoding, dead letters, simulation |
//!
//! Each module has a `register` that adds its classes and functions.

mod bridge;
mod command;
mod errors;
mod lane;
mod pipeline;
mod runtime;

use pyo3::prelude::*;

/// The native part of the package `tidegate`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    runtime::register(module)?;
    errors::register(module)?;
    command::register(module)?;
    lane::register(module)?;
    pipeline::register(module)?;
    Ok(())
}
