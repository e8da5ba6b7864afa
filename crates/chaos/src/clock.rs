//! The server's clock, real or manual.
//!
//! Throttles, outages and hints use one monotonic clock. In tests it is manual, so that no test
//! depends on the speed of the machine; service times are then not slept at all. In real time a
//! wait must be precise: a concurrency limit of 8 with a service time of 3 ms is a rate, which the
//! millisecond timer of the runtime would reduce by a quarter. So a separate thread handles short
//! waits; the kernel wakes it within about 0.1 ms.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::lock::lock;

/// 2026-01-01T00:00:00Z, the start of the manual clock, in milliseconds since 1970.
const MANUAL_EPOCH_MS: i64 = 1_767_225_600_000;

/// Waits of at least this length use the timer of the runtime.
const LONG: Duration = Duration::from_millis(100);

/// The clock of the server.
#[derive(Clone, Debug)]
pub struct ChaosClock(TimeSource);

/// The source of the time.
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
    /// A manual clock: it stands still until [`ChaosClock::advance`], and waits on it return at
    /// once.
    #[must_use]
    pub fn manual() -> ChaosClock {
        ChaosClock(TimeSource::Manual(Arc::default()))
    }

    /// Advances a manual clock; no effect on a real one.
    pub fn advance(&self, span: Duration) {
        if let TimeSource::Manual(now) = &self.0 {
            now.fetch_add(tidegate_core::time::nanos(span), Ordering::SeqCst);
        }
    }

    /// The time since the start, in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        match &self.0 {
            TimeSource::Real(start) => tidegate_core::time::nanos(start.elapsed()),
            TimeSource::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// The wall time, in milliseconds since 1970.
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

/// A timer for short, precise waits.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: ChaosClock,
    shared: Arc<AlarmInner>,
}

impl Alarm {
    /// A timer on `clock`. Its thread ends when it is dropped.
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
            let mut held = lock(&self.shared.queue);
            let first = held.0.peek().is_none_or(|head| at < head.0.at);
            held.0.push(Reverse(AlarmEntry { at, bell }));
            first
        };
        if first {
            self.shared.changed.notify_one();
        }
        // The sender is dropped without sending only when the server ends.
        let _ = rung.await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        lock(&self.shared.queue).1 = true;
        self.shared.changed.notify_one();
    }
}

fn ring(shared: &AlarmInner) {
    let mut held = lock(&shared.queue);
    while !held.1 {
        let now = Instant::now();
        let wait = held.0.peek().map(|head| head.0.at.saturating_duration_since(now));
        held = match wait {
            None => shared.changed.wait(held).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => {
                if let Some(Reverse(entry)) = held.0.pop() {
                    // The waiting task may be gone.
                    let _ = entry.bell.send(());
                }
                held
            }
            Some(span) => shared.changed.wait_timeout(held, span).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
}
