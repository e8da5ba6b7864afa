//! What is counted of records: what became of them, and when they were committed.

use super::histogram::Histogram;
use super::{add, get};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// With an answer.
    Matched,
    /// With an empty answer.
    NoMatch,
    /// As a dead letter.
    Failed,
    /// Let go by a filter.
    Filtered,
    /// A repeat of another.
    Deduped,
}

impl RecordEnd {
    /// All ends that there are.
    pub const ALL: [RecordEnd; 5] =
        [RecordEnd::Matched, RecordEnd::NoMatch, RecordEnd::Failed, RecordEnd::Filtered, RecordEnd::Deduped];

    /// The word for it in the rows of an output.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RecordEnd::Matched => "matched",
            RecordEnd::Failed => "failed",
            other => other.outcome(),
        }
    }

    /// The word for it in metrics, where a row of a file and a record of a pipeline are the same.
    #[must_use]
    pub const fn outcome(self) -> &'static str {
        match self {
            RecordEnd::Matched => "committed",
            RecordEnd::NoMatch => "no_match",
            RecordEnd::Failed => "dead",
            RecordEnd::Filtered => "filtered",
            RecordEnd::Deduped => "deduped",
        }
    }
}

/// The counters of the records of a run.
#[derive(Debug)]
pub struct RecordMetrics {
    read: AtomicU64,
    ended: [AtomicU64; 5],
    written: AtomicU64,
    pub(super) commit: Histogram,
    last_commit_ms: AtomicU64,
}

impl Default for RecordMetrics {
    fn default() -> RecordMetrics {
        RecordMetrics {
            read: AtomicU64::new(0),
            ended: Default::default(),
            written: AtomicU64::new(0),
            commit: Histogram::new(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
            last_commit_ms: AtomicU64::new(0),
        }
    }
}

impl RecordMetrics {
    /// Records came from the source.
    pub fn read(&self, n: u64) {
        add(&self.read, n);
    }

    /// A record ended.
    pub fn ended(&self, how: RecordEnd) {
        add(&self.ended[how as usize], 1);
    }

    /// So many have ended so, over all that a resumed run counts.
    pub fn set_ended(&self, how: RecordEnd, n: u64) {
        self.ended[how as usize].store(n, Ordering::Relaxed);
    }

    /// So many are written, over all that a resumed run counts.
    pub fn set_written(&self, n: u64) {
        self.written.store(n, Ordering::Relaxed);
    }

    /// So many were read, over all that a resumed run counts.
    pub fn set_read(&self, n: u64) {
        self.read.store(n, Ordering::Relaxed);
    }

    /// Features were committed, in this time.
    pub fn committed(&self, n: u64, took: Duration, now_ms: i64) {
        add(&self.written, n);
        self.commit.observe(took.as_secs_f64());
        self.last_commit_ms.store(now_ms.max(0) as u64, Ordering::Relaxed);
    }

    /// Records read from the source.
    #[must_use]
    pub fn offered(&self) -> u64 {
        get(&self.read)
    }

    /// Records that have ended.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.ended.iter().map(get).sum()
    }

    /// Records that ended so.
    #[must_use]
    pub fn ended_so(&self, how: RecordEnd) -> u64 {
        get(&self.ended[how as usize])
    }

    /// Features written.
    #[must_use]
    pub fn written(&self) -> u64 {
        get(&self.written)
    }

    /// When the last batch was committed, in seconds since 1970; 0 before the first.
    #[must_use]
    pub fn last_commit(&self) -> f64 {
        get(&self.last_commit_ms) as f64 / 1e3
    }
}
