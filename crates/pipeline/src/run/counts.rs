//! What became of the records, and whether that is all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sink::RowCounts;
use crate::step::{Aside, Reject};

/// What became of the records of a run, over all its resumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordCounts {
    /// Records read from the source.
    pub read: u64,
    /// Records that came into being beyond those, because lists were exploded.
    pub added: u64,
    /// New in the sink.
    pub inserted: u64,
    /// Changed in the sink.
    pub updated: u64,
    /// In the sink already, exactly so.
    pub unchanged: u64,
    /// Let go by a filter or a clip.
    pub filtered: u64,
    /// Repeats of another.
    pub deduped: u64,
    /// Given up, by code.
    pub rejected: BTreeMap<String, u64>,
    /// Of the written, how many a service or a lookup had nothing for.
    pub no_match: u64,
    /// Of the written, how many failed at a step that keeps such records.
    pub failed: u64,
    /// Of the written, how many geometries were repaired.
    pub repaired: u64,
}

impl RecordCounts {
    /// In the sink now.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.inserted + self.updated + self.unchanged
    }

    /// Given up.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Rejected, or written as failed: what a person has to look at.
    #[must_use]
    pub fn unsuccessful(&self) -> u64 {
        self.dead() + self.failed
    }

    /// Whether every record has exactly one end.
    #[must_use]
    pub fn balanced(&self) -> bool {
        self.read + self.added == self.written() + self.dead() + self.filtered + self.deduped
    }

    /// Adds what became of a batch.
    pub(super) fn add(&mut self, delta: &RecordCounts) {
        self.read += delta.read;
        self.added += delta.added;
        self.filtered += delta.filtered;
        self.deduped += delta.deduped;
        self.no_match += delta.no_match;
        self.failed += delta.failed;
        self.repaired += delta.repaired;
        for (code, count) in &delta.rejected {
            *self.rejected.entry(code.clone()).or_default() += count;
        }
    }

    pub(super) fn aside(&mut self, aside: &Aside) {
        self.filtered += aside.filtered;
        self.deduped += aside.deduped;
        self.added += aside.added;
        self.no_match += aside.missed.len() as u64;
        self.failed += aside.failed.len() as u64;
        self.repaired += aside.repaired;
        self.rejects(&aside.rejected);
    }

    pub(super) fn rejects(&mut self, rejects: &[Reject]) {
        for reject in rejects {
            let code = reject.problems.first().map_or("UNKNOWN", |problem| problem.code.as_str());
            *self.rejected.entry(code.to_owned()).or_default() += 1;
        }
    }

    pub(super) fn put(&mut self, put: &RowCounts) {
        self.inserted += put.inserted;
        self.updated += put.updated;
        self.unchanged += put.unchanged;
    }
}
