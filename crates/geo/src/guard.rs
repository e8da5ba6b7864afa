//! Calls of libraries that may panic on a damaged file.
//!
//! A panic there is no bug of ours that a person should report: it becomes an error about the file,
//! and the hook that reports panics stays silent ([`is_guarded`]).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<u32> = const { Cell::new(0) };
}

/// Calls the library; nothing if it panics. What it was working on must not be used any more then.
pub fn guarded<T>(what: impl FnOnce() -> T) -> Option<T> {
    GUARDED.set(GUARDED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(what));
    GUARDED.set(GUARDED.get() - 1);
    done.ok()
}

/// Whether a panic of this thread would become an error about a file, and should not be reported.
#[must_use]
pub fn is_guarded() -> bool {
    GUARDED.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::panic, reason = "it is what is guarded against")]
    fn a_panic_is_nothing_and_the_guard_ends_with_it() {
        assert_eq!(guarded(is_guarded), Some(true));
        let inner = || {
            guarded(|| {
                if is_guarded() {
                    panic!("a library fails")
                }
            })
        };
        assert_eq!(guarded(|| (inner(), is_guarded())), Some((None, true)));
        assert!(!is_guarded());
    }
}
