//! A lock that outlives a panic of another thread.
//!
//! What our mutexes guard is changed in steps that leave it whole, so a poisoned one can be used; giving
//! up a run because one of its threads panicked would lose what the others hold.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also if a thread panicked with the lock in its hands.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
