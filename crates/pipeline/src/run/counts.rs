//! Counts the outcomes of records, and whether they add up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sink::RowCounts;
use crate::step::{Aside, Reject};

/// The outcomes of the records of a run, over all its resumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordCounts {
    /// Records read from the source.
    pub read: u64,
    /// Records created beyond those read, by exploding lists.
    pub added: u64,
    /// Records new in the sink.
    pub inserted: u64,
    /// Records changed in the sink.
    pub updated: u64,
    /// Records that were in the sink already, unchanged.
    pub unchanged: u64,
    /// Rows deleted, marked or ended because the source no longer has their records. They are no
    /// records of the run.
    pub deleted: u64,
    /// Records removed by a filter or a clip.
    pub filtered: u64,
    /// Duplicates of another record.
    pub deduped: u64,
    /// Records rejected, by code.
    pub rejected: BTreeMap<String, u64>,
    /// Of the written records, those without a match at a service or lookup.
    pub no_match: u64,
    /// Of the written records, those that failed at a step with `on_failure: keep`.
    pub failed: u64,
    /// Of the written records, those whose geometry was repaired.
    pub repaired: u64,
    /// Records of tasks that another worker had taken over, or that were cancelled, before the commit.
    pub taken_over: u64,
}

impl RecordCounts {
    /// The number of records in the sink.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.inserted + self.updated + self.unchanged
    }

    /// The number of rejected records.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// The number of records rejected, or written as failed.
    #[must_use]
    pub fn unsuccessful(&self) -> u64 {
        self.dead() + self.failed
    }

    /// Whether every record has exactly one outcome.
    #[must_use]
    pub fn balanced(&self) -> bool {
        self.read + self.added
            == self.written() + self.dead() + self.filtered + self.deduped + self.taken_over
    }

    /// Adds the outcomes of a batch.
    pub(super) fn add(&mut self, delta: &RecordCounts) {
        self.read += delta.read;
        self.added += delta.added;
        self.filtered += delta.filtered;
        self.deduped += delta.deduped;
        self.no_match += delta.no_match;
        self.failed += delta.failed;
        self.repaired += delta.repaired;
        self.taken_over += delta.taken_over;
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

    /// Counts rejected records as those that they are in the sink: repaired before, and unchanged.
    pub(super) fn repaired_before(&mut self, rejects: &[Reject]) {
        for reject in rejects {
            let code = reject.problems.first().map_or("UNKNOWN", |problem| problem.code.as_str());
            if let Some(count) = self.rejected.get_mut(code) {
                *count = count.saturating_sub(1);
            }
        }
        self.rejected.retain(|_, count| *count > 0);
        self.unchanged += rejects.len() as u64;
    }

    /// Leaves out rejected records and rows of tasks that are no longer ours.
    pub(super) fn left_out(&mut self, rejects: &[Reject], rows: u64) {
        let unchanged = self.unchanged;
        self.repaired_before(rejects);
        self.unchanged = unchanged;
        self.taken_over += rejects.len() as u64 + rows;
    }

    pub(super) fn put(&mut self, put: &RowCounts) {
        self.inserted += put.inserted;
        self.updated += put.updated;
        self.unchanged += put.unchanged;
    }
}
