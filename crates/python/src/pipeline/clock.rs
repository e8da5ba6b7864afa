//! Skipped waits, for tests of code that waits.

use pyo3::prelude::*;
use tidegate_client::lane;

/// Begins or ends to skip the waits of all lanes of this process.
#[pyfunction]
pub(super) fn _skip_waits(on: bool) {
    lane::skip_waits(on);
}

/// The seconds that were skipped in this process.
#[pyfunction]
pub(super) fn _skipped() -> f64 {
    lane::skipped().as_secs_f64()
}
