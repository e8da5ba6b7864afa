//! The server's clock, real or manual.
//!
//! Throttles, outages and hints are judged on one monotonic clock. In a test that clock is manual,
//! so that no test is decided by how fast the machine is: service times are then not
//! slept at all. In real time a wait must be exact: a concurrency limit of 8 with a service time
//! of 3 ms is a rate, and the millisecond wheel of the runtime would make it a quarter slower. So
//! short waits are kept by a thread of our own, which the kernel wakes within about 0.1 ms.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

/// 2026-01-01T00:00:00Z, where the manual clock begins.
const MANUAL_EPOCH_MS: i64 = 1_767_225_600_000;

/// Waits at least this long go to the runtime's timer.
const LONG: Duration = Duration::from_millis(100);

/// The clock of the server.
#[derive(Clone, Debug)]
pub struct ChaosClock(TimeSource);

/// Where the time comes from.
#[derive(Clone, Debug)]
enum TimeSource {
    /// The monotonic clock of the system, from this start.
    Real(Instant),
    /// Nanoseconds since the start, set by the test.
    Manual(Arc<AtomicU64>),
}

impl Default for ChaosClock {
    fn default() -> ChaosClock {
        ChaosClock(TimeSource::Real(Instant::now()))
    }
}

impl ChaosClock {
    /// A manual clock: it stands still until [`ChaosClock::advance`]; waits on it take no time.
    #[must_use]
    pub fn manual() -> ChaosClock {
        ChaosClock(TimeSource::Manual(Arc::default()))
    }

    /// Advances a manual clock; without effect on the real one.
    pub fn advance(&self, span: Duration) {
        if let TimeSource::Manual(now) = &self.0 {
            now.fetch_add(tidegate_core::time::nanos(span), Ordering::SeqCst);
        }
    }

    /// Nanoseconds since the start.
    pub(crate) fn nanos(&self) -> u64 {
        match &self.0 {
            TimeSource::Real(start) => tidegate_core::time::nanos(start.elapsed()),
            TimeSource::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> i64 {
        match &self.0 {
            TimeSource::Real(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            }
            TimeSource::Manual(now) => MANUAL_EPOCH_MS + (now.load(Ordering::SeqCst) / 1_000_000) as i64,
        }
    }

    fn is_real(&self) -> bool {
        matches!(self.0, TimeSource::Real(_))
    }
}

type AlarmQueue = BinaryHeap<Reverse<AlarmEntry>>;

#[derive(Debug)]
struct AlarmEntry {
    at: Instant,
    bell: oneshot::Sender<()>,
}

impl PartialEq for AlarmEntry {
    fn eq(&self, other: &AlarmEntry) -> bool {
        self.at == other.at
    }
}
impl Eq for AlarmEntry {}
impl PartialOrd for AlarmEntry {
    fn partial_cmp(&self, other: &AlarmEntry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for AlarmEntry {
    fn cmp(&self, other: &AlarmEntry) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

#[derive(Debug, Default)]
struct AlarmInner {
    queue: Mutex<(AlarmQueue, bool)>,
    changed: Condvar,
}

impl AlarmInner {
    fn lock(&self) -> MutexGuard<'_, (AlarmQueue, bool)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps short waits exactly.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: ChaosClock,
    shared: Arc<AlarmInner>,
}

impl Alarm {
    /// An alarm on `clock`. Its thread ends when it is dropped.
    pub(crate) fn new(clock: ChaosClock) -> std::io::Result<Alarm> {
        let shared = Arc::new(AlarmInner::default());
        if clock.is_real() {
            let theirs = Arc::clone(&shared);
            std::thread::Builder::new().name("chaos-alarm".into()).spawn(move || ring(&theirs))?;
        }
        Ok(Alarm { clock, shared })
    }

    /// Waits `span`; on a manual clock, not at all.
    pub(crate) async fn wait(&self, span: Duration) {
        if span.is_zero() || !self.clock.is_real() {
            return;
        }
        if span >= LONG {
            return tokio::time::sleep(span).await;
        }
        let (bell, rung) = oneshot::channel();
        let at = Instant::now() + span;
        let first = {
            let mut held = self.shared.lock();
            let first = held.0.peek().is_none_or(|head| at < head.0.at);
            held.0.push(Reverse(AlarmEntry { at, bell }));
            first
        };
        if first {
            self.shared.changed.notify_one();
        }
        // The bell is dropped unrung only when the server ends.
        let _ = rung.await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.lock().1 = true;
        self.shared.changed.notify_one();
    }
}

fn ring(shared: &AlarmInner) {
    let mut held = shared.lock();
    while !held.1 {
        let now = Instant::now();
        let wait = held.0.peek().map(|head| head.0.at.saturating_duration_since(now));
        held = match wait {
            None => shared.changed.wait(held).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => {
                if let Some(Reverse(entry)) = held.0.pop() {
                    // Whoever waited may have gone.
                    let _ = entry.bell.send(());
                }
                held
            }
            Some(span) => shared.changed.wait_timeout(held, span).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
}
