//! Skips waits, for tests of code that waits: hours of retries pass in milliseconds.
//!
//! While waits are skipped, the clock is moved to the end of the wait that ends first, as soon as
//! nothing else happens for [`PAUSE`]. So the order of events is that of real time, and every policy
//! sees the time that it would have seen. The time of an attempt on the wire is not skipped. A deadline
//! is no wait: what it limits ends first, or else it passes as in real time. Why not tokio's paused clock:
//! it needs a runtime of a single thread, and calls come from several.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// How long nothing must happen before the clock is moved.
const PAUSE: Duration = Duration::from_millis(1);

static IS_ON: AtomicBool = AtomicBool::new(false);
/// How far the clock is ahead, in nanoseconds. It never goes back.
static AHEAD: AtomicU64 = AtomicU64::new(0);
/// The ends of the waits.
static WAITS: Mutex<Vec<Instant>> = Mutex::new(Vec::new());

/// Begins or ends to skip the waits of all lanes of this process.
pub fn skip_waits(on: bool) {
    IS_ON.store(on, Ordering::SeqCst);
}

/// The time that was skipped in this process.
#[must_use]
pub fn skipped() -> Duration {
    Duration::from_nanos(AHEAD.load(Ordering::Relaxed))
}

pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The time of this process, with what was skipped.
pub(super) fn now() -> Instant {
    let now = Instant::now();
    now.checked_add(skipped()).unwrap_or(now)
}

/// Waits until `end` of the time with what was skipped.
pub(super) async fn until(end: Instant) {
    let _here = SkippedWait::new(end);
    while now() < end {
        tokio::time::sleep(PAUSE).await;
        if lock(&WAITS).iter().min() == Some(&end) {
            let ahead = end.saturating_duration_since(Instant::now());
            AHEAD.fetch_max(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }
}

/// Resolves when `end` of the time with what was skipped has passed. It does not move the clock.
pub(super) async fn passed(end: Instant) {
    while now() < end {
        tokio::time::sleep(PAUSE).await;
    }
}

/// A wait in [`WAITS`]; it leaves when it ends or is dropped.
struct SkippedWait(Instant);

impl SkippedWait {
    fn new(end: Instant) -> SkippedWait {
        lock(&WAITS).push(end);
        SkippedWait(end)
    }
}

impl Drop for SkippedWait {
    fn drop(&mut self) {
        let mut waits = lock(&WAITS);
        if let Some(at) = waits.iter().position(|end| *end == self.0) {
            waits.swap_remove(at);
        }
    }
}
