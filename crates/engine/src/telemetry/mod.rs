//! What happened, in numbers: one registry, read by the progress line, the summary, the report
//! and Prometheus.
//!
//! A call is recorded once, when it has ended, from its own history: so what the numbers say and
//! what the records say cannot differ. Everything is an atomic counter; recording takes no lock
//! and allocates nothing. Labels are few and fixed: a status, an attempt number, an outcome, a
//! host. No URL and no coordinate is ever one.

mod histogram;
mod prometheus;
mod summary;

pub use histogram::Histogram;
pub use summary::{AttemptSummary, Summary};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::Kind;
use tidegate_core::call::Attempt;

/// Attempt numbers counted apart; later ones share the last place.
pub const ATTEMPTS: usize = 16;
/// Statuses counted apart.
const STATUSES: usize = 600;

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an answer.
    Matched,
    /// With an empty answer.
    NoMatch,
    /// As a dead letter.
    Failed,
}

impl Ended {
    /// The word for it, in every output.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Ended::Matched => "matched",
            Ended::NoMatch => "no_match",
            Ended::Failed => "failed",
        }
    }
}

/// The registry.
#[derive(Debug)]
pub struct Meter {
    ended: [AtomicU64; 3],
    cached: AtomicU64,
    shared: AtomicU64,
    written: AtomicU64,
    sent: [AtomicU64; ATTEMPTS],
    succeeded: [AtomicU64; ATTEMPTS],
    statuses: Vec<AtomicU64>,
    no_status: AtomicU64,
    throttled: AtomicU64,
    retries: AtomicU64,
    retries_per_call: Histogram,
    backoff_seconds: Histogram,
    call_nanos: AtomicU64,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            ended: Default::default(),
            cached: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            written: AtomicU64::new(0),
            sent: Default::default(),
            succeeded: Default::default(),
            statuses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
            no_status: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            retries_per_call: Histogram::new(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 13.0, 21.0]),
            backoff_seconds: Histogram::new(&[
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
            ]),
            call_nanos: AtomicU64::new(0),
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Meter {
    /// A call ended; its attempts are told once.
    pub fn call(&self, history: &[Attempt]) {
        for (i, attempt) in history.iter().enumerate() {
            let place = i.min(ATTEMPTS - 1);
            add(&self.sent[place], 1);
            match attempt.verdict.kind {
                Kind::Done | Kind::NoMatch => add(&self.succeeded[place], 1),
                Kind::Throttled { .. } => add(&self.throttled, 1),
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

    /// A record ended.
    pub fn ended(&self, how: Ended) {
        add(&self.ended[how as usize], 1);
    }

    /// An answer came from the cache.
    pub fn cached(&self) {
        add(&self.cached, 1);
    }

    /// A record shared the answer of an equal one.
    pub fn shared(&self) {
        add(&self.shared, 1);
    }

    /// Features were written.
    pub fn written(&self, n: u64) {
        add(&self.written, n);
    }

    /// Records that have ended.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.ended.iter().map(get).sum()
    }

    /// Records that ended so.
    #[must_use]
    pub fn ended_so(&self, how: Ended) -> u64 {
        get(&self.ended[how as usize])
    }

    /// Attempts sent by calls that have ended.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.sent.iter().map(get).sum()
    }

    /// Throttled answers to calls that have ended.
    #[must_use]
    pub fn throttled(&self) -> u64 {
        get(&self.throttled)
    }

    /// Answers from the cache, and answers shared with an equal record.
    #[must_use]
    pub fn reused(&self) -> (u64, u64) {
        (get(&self.cached), get(&self.shared))
    }

    /// Time in calls.
    #[must_use]
    pub fn in_calls(&self) -> Duration {
        Duration::from_nanos(get(&self.call_nanos))
    }
}

#[cfg(test)]
mod tests;
