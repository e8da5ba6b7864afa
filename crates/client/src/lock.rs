//! Locks a mutex even if it is poisoned.
//!
//! Every update under our mutexes leaves the data consistent, so a poisoned mutex is usable.
//! Aborting a run because one thread panicked would lose the work of the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if another thread panicked while holding it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
