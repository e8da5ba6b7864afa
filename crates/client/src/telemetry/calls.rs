//! The counters of the calls to one service.
//!
//! A call is counted once, at its end, from its own history, so the metrics agree with the records.
//! Counting takes no lock and does not allocate.

use super::histogram::Histogram;
use super::{add, get};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tidegate_core::VerdictKind;
use tidegate_core::call::{Attempt, maybe_twice};

/// The number of attempt numbers counted separately; later ones share the last counter.
pub(super) const ATTEMPTS: usize = 16;
/// The number of HTTP statuses counted separately.
const STATUSES: usize = 600;
/// The buckets of the number of retries of one call.
pub const RETRIES: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 13.0, 21.0];

/// The counters of one service.
#[derive(Debug)]
pub struct Calls {
    sent: [AtomicU64; ATTEMPTS],
    succeeded: [AtomicU64; ATTEMPTS],
    statuses: Vec<AtomicU64>,
    no_status: AtomicU64,
    throttled: AtomicU64,
    retries: AtomicU64,
    cached: AtomicU64,
    shared: AtomicU64,
    maybe_twice: AtomicU64,
    /// The number of retries of each call.
    pub retries_per_call: Histogram,
    /// The delays between attempts, in seconds.
    pub backoff_seconds: Histogram,
    /// The time spent in attempts, in nanoseconds.
    call_nanos: AtomicU64,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls {
            sent: Default::default(),
            succeeded: Default::default(),
            statuses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
            no_status: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            maybe_twice: AtomicU64::new(0),
            retries_per_call: Histogram::new(RETRIES),
            backoff_seconds: Histogram::new(&[
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
            ]),
            call_nanos: AtomicU64::new(0),
        }
    }
}

impl Calls {
    /// Counts a call that has ended, with its attempts. One that was refused before its first attempt
    /// is none.
    pub fn call(&self, history: &[Attempt]) {
        if history.is_empty() {
            return;
        }
        for (i, attempt) in history.iter().enumerate() {
            let place = i.min(ATTEMPTS - 1);
            add(&self.sent[place], 1);
            match attempt.verdict.kind {
                VerdictKind::Done | VerdictKind::NoMatch => add(&self.succeeded[place], 1),
                VerdictKind::Throttled { .. } => add(&self.throttled, 1),
                _ => {}
            }
            match attempt.verdict.status {
                Some(status) => {
                    if let Some(counter) = self.statuses.get(usize::from(status)) {
                        add(counter, 1);
                    }
                }
                None => add(&self.no_status, 1),
            }
            add(&self.call_nanos, attempt.settled.since(attempt.sent).as_nanos() as u64);
            if i + 1 < history.len() {
                self.backoff_seconds.observe(attempt.delay.as_secs_f64());
            }
        }
        let retries = history.len().saturating_sub(1);
        add(&self.retries, retries as u64);
        self.retries_per_call.observe(retries as f64);
    }

    /// Counts the attempts of a call without an idempotency key that may have been executed twice.
    pub fn unkeyed(&self, history: &[Attempt]) {
        match maybe_twice(history) {
            0 => {}
            n => add(&self.maybe_twice, n),
        }
    }

    /// The number of calls that may have been executed twice.
    #[must_use]
    pub fn executed_twice_at_most(&self) -> u64 {
        get(&self.maybe_twice)
    }

    /// Counts an answer from the cache.
    pub fn cached(&self) {
        add(&self.cached, 1);
    }

    /// Counts a record that shared the answer of an equal one.
    pub fn shared(&self) {
        add(&self.shared, 1);
    }

    /// The number of answers from the cache, and of answers shared with an equal record.
    #[must_use]
    pub fn reused(&self) -> (u64, u64) {
        (get(&self.cached), get(&self.shared))
    }

    /// Per attempt number (from 1): how many were sent and how many succeeded. The first is always
    /// included, later ones if there were any.
    pub fn by_attempt(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let all = self.sent.iter().zip(&self.succeeded).enumerate();
        all.map(|(i, (sent, ok))| (i + 1, get(sent), get(ok))).filter(|(n, sent, _)| *n == 1 || *sent > 0)
    }

    /// Responses by status; 0 counts network failures and is always included.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let all = self.statuses.iter().enumerate().map(|(status, n)| (status as u16, get(n)));
        all.filter(|(_, n)| *n > 0).chain([(0, get(&self.no_status))])
    }

    /// The number of attempts of calls that have ended.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.sent.iter().map(get).sum()
    }

    /// The number of retries.
    #[must_use]
    pub fn retries(&self) -> u64 {
        get(&self.retries)
    }

    /// The number of throttled responses to calls that have ended.
    #[must_use]
    pub fn throttled(&self) -> u64 {
        get(&self.throttled)
    }

    /// The time spent in attempts.
    #[must_use]
    pub fn in_calls(&self) -> Duration {
        Duration::from_nanos(get(&self.call_nanos))
    }

    /// The time spent waiting between attempts, in seconds.
    #[must_use]
    pub fn in_backoff(&self) -> f64 {
        self.backoff_seconds.sum()
    }
}
