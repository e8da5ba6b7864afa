//! The leases that this worker holds, by its own clock.
//!
//! JetStream does not fence: a late acknowledgement removes the message under its second holder.
//! So a receipt whose lease has ended here is not sent to the server at all. The lease ends here
//! somewhat earlier than there, because the way of the message took time too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::message::Receipt;

/// The receipts that are held, each with the end of its lease.
pub(super) struct HeldLeases {
    length: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    ends: HashMap<String, Instant>,
    /// When ended leases are forgotten next.
    sweep: Instant,
}

impl HeldLeases {
    pub(super) fn new(lease: Duration, now: Instant) -> HeldLeases {
        let inner = Mutex::new(Inner { ends: HashMap::new(), sweep: now });
        HeldLeases { length: lease - lease / 10, inner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message was received or its lease extended at this time.
    pub(super) fn hold(&self, receipt: &str, now: Instant) {
        let mut inner = self.lock();
        if now >= inner.sweep {
            inner.ends.retain(|_, end| *end > now);
            inner.sweep = now + self.length;
        }
        inner.ends.insert(receipt.to_owned(), now + self.length);
    }

    /// Whether it is held still.
    pub(super) fn is_held(&self, receipt: &str, now: Instant) -> bool {
        self.lock().ends.get(receipt).is_some_and(|end| *end > now)
    }

    pub(super) fn release(&self, receipt: &str) {
        self.lock().ends.remove(receipt);
    }

    /// Those that are held still.
    pub(super) fn held<'a>(&self, receipts: &'a [Receipt], now: Instant) -> Vec<&'a str> {
        let inner = self.lock();
        let held = |receipt: &&str| inner.ends.get(*receipt).is_some_and(|end| *end > now);
        receipts.iter().map(|receipt| receipt.0.as_str()).filter(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_early_and_is_forgotten() {
        let start = Instant::now();
        let leases = HeldLeases::new(Duration::from_secs(10), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        leases.hold("a", start);
        assert!(leases.is_held("a", at(8)) && !leases.is_held("a", at(9)) && !leases.is_held("b", start));
        leases.hold("a", at(8));
        leases.hold("b", at(8));
        let receipts = [Receipt("b".into()), Receipt("x".into()), Receipt("a".into())];
        assert_eq!(leases.held(&receipts, at(16)), ["b", "a"]);
        leases.release("b");
        assert_eq!(leases.held(&receipts, at(16)), ["a"]);
        leases.hold("c", at(30));
        assert_eq!(leases.lock().ends.len(), 1);
    }
}
