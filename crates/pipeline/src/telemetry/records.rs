//! The counters of records: their outcomes, and the times of commits.

use super::histogram::Histogram;
use super::{add, get};
use crate::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// Written, with a match.
    Matched,
    /// No match.
    NoMatch,
    /// Rejected as a dead letter.
    Failed,
    /// Removed by a filter.
    Filtered,
    /// A duplicate of another record.
    Deduped,
}

impl RecordEnd {
    /// All outcomes.
    pub const ALL: [RecordEnd; 5] =
        [RecordEnd::Matched, RecordEnd::NoMatch, RecordEnd::Failed, RecordEnd::Filtered, RecordEnd::Deduped];

    /// Its name in the rows of an output.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RecordEnd::Matched => "matched",
            RecordEnd::Failed => "failed",
            other => other.outcome(),
        }
    }

    /// Its name in metrics, where rows of a file and records of a pipeline are the same.
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

/// What became of the records to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WriteTally {
    written: u64,
    dead: u64,
    /// The records of a batch that the sink has not taken: it is retried, or ended the run.
    refused: u64,
}

/// The counters of the records of a run.
#[derive(Debug)]
pub struct RecordMetrics {
    read: AtomicU64,
    ended: [AtomicU64; 5],
    written: AtomicU64,
    deleted: AtomicU64,
    /// What became of the records to be written, read and changed as one.
    writes: Mutex<WriteTally>,
    pub(super) commit: Histogram,
    /// Time of the last commit, in milliseconds since 1970; 0 before the first.
    last_commit_ms: AtomicU64,
}

impl Default for RecordMetrics {
    fn default() -> RecordMetrics {
        RecordMetrics {
            read: AtomicU64::new(0),
            ended: Default::default(),
            written: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            writes: Mutex::default(),
            commit: Histogram::new(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
            last_commit_ms: AtomicU64::new(0),
        }
    }
}

impl RecordMetrics {
    /// Counts records read from the source.
    pub fn read(&self, n: u64) {
        add(&self.read, n);
    }

    /// Counts the outcome of a record.
    pub fn ended(&self, how: RecordEnd) {
        add(&self.ended[how as usize], 1);
    }

    /// Sets the number of records with an outcome, including those before a resume.
    pub fn set_ended(&self, how: RecordEnd, n: u64) {
        self.ended[how as usize].store(n, Ordering::Relaxed);
    }

    /// Sets the number of records written, including those before a resume.
    pub fn set_written(&self, n: u64) {
        self.written.store(n, Ordering::Relaxed);
    }

    /// Sets the number of rows deleted because the source no longer has their records.
    pub fn set_deleted(&self, n: u64) {
        self.deleted.store(n, Ordering::Relaxed);
    }

    /// The number of rows deleted because the source no longer has their records.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        get(&self.deleted)
    }

    /// Sets the number of records read, including those before a resume.
    pub fn set_read(&self, n: u64) {
        self.read.store(n, Ordering::Relaxed);
    }

    /// Counts a commit of `n` features.
    pub fn committed(&self, n: u64, took: Duration, now_ms: i64) {
        add(&self.written, n);
        self.commit.observe(took.as_secs_f64());
        self.last_commit_ms.store(now_ms.max(0) as u64, Ordering::Relaxed);
    }

    /// Sets what became of the records to be written, in all committed batches.
    pub fn set_writes(&self, written: u64, dead: u64) {
        *lock(&self.writes) = WriteTally { written, dead, refused: 0 };
    }

    /// The sink did not take a batch of `n` records. A commit or another attempt replaces it.
    pub fn refused(&self, n: u64) {
        lock(&self.writes).refused = n;
    }

    /// A replay wrote `n` records that were dead.
    pub fn resolved(&self, n: u64) {
        let mut writes = lock(&self.writes);
        let n = n.min(writes.dead);
        writes.dead -= n;
        writes.written += n;
    }

    /// The share of the records to be written that were written; 1 before there are any.
    #[must_use]
    pub fn write_success(&self) -> f64 {
        let WriteTally { written, dead, refused } = *lock(&self.writes);
        let all = written + dead + refused;
        if all == 0 { 1.0 } else { written as f64 / all as f64 }
    }

    /// The number of records read from the source.
    #[must_use]
    pub fn offered(&self) -> u64 {
        get(&self.read)
    }

    /// The number of records with an outcome.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.ended.iter().map(get).sum()
    }

    /// The number of records with this outcome.
    #[must_use]
    pub fn ended_so(&self, how: RecordEnd) -> u64 {
        get(&self.ended[how as usize])
    }

    /// The number of features written.
    #[must_use]
    pub fn written(&self) -> u64 {
        get(&self.written)
    }

    /// Time of the last commit, in seconds since 1970; 0 before the first.
    #[must_use]
    pub fn last_commit(&self) -> f64 {
        get(&self.last_commit_ms) as f64 / 1e3
    }
}
