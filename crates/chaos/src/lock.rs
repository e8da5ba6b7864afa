//! Locks a mutex even if it is poisoned.
//!
//! Every update under our mutexes leaves the data consistent, so a poisoned mutex is usable, and a
//! panic in one connection must not stop the server. The same as `tidegate_client::lock`, which this
//! crate cannot use: it is the server in the tests of that crate and must not depend on it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if another thread panicked while holding it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
