//! How many features to ask for on a page: what was said, else a number that shrinks until the
//! service takes it. Some servers refuse a `limit` above their own (422) where others send less.

use std::sync::atomic::{AtomicU64, Ordering};

/// Below this nothing is gained by asking for less.
const LEAST: u64 = 10;

/// The number, shared by all requests.
pub(super) struct PageSize {
    now: AtomicU64,
    /// Somebody said it, and it is not changed.
    said: bool,
}

impl PageSize {
    /// What was said, or the usual number.
    pub(super) fn new(said: Option<u64>, usual: u64) -> PageSize {
        PageSize { now: AtomicU64::new(said.unwrap_or(usual).max(1)), said: said.is_some() }
    }

    pub(super) fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Halves it; false if it stays.
    pub(super) fn halve(&self) -> bool {
        let now = self.get();
        if self.said || now <= LEAST {
            return false;
        }
        self.now.store((now / 2).max(LEAST), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_stays_and_the_usual_number_shrinks() {
        let said = PageSize::new(Some(500), 1000);
        assert!(!said.halve() && said.get() == 500);
        let usual = PageSize::new(None, 1000);
        let mut tries = 0;
        while usual.halve() {
            tries += 1;
        }
        assert_eq!((usual.get(), tries), (LEAST, 7));
    }
}
