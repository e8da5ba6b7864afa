//! A gate at work: its check, its limit and its counts.

use std::collections::HashSet;

use tidegate_geo::{Batch, Problem};

use super::check::BoundCheck;
use super::drift::{Baseline, DriftCheck};
use super::{GateTally, Halt};
use crate::manifest::{Check, Gate, Per, Severity};
use crate::step::{Aside, SeenKey};

/// A gate of a running pipeline.
pub(super) struct Live {
    pub(super) form: Gate,
    pub(super) label: String,
    pub(super) scope: u16,
    pub(super) severity: Severity,
    /// The highest failure rate allowed, from 0 to 1.
    pub(super) max_rate: f64,
    pub(super) judge: BoundCheck,
    pub(super) drift: Option<DriftCheck>,
    pub(super) tally: GateTally,
    pub(super) seen: HashSet<[u8; 16]>,
}

/// The findings of one gate in one batch.
#[derive(Default)]
pub(super) struct GateFindings {
    pub(super) looked: u64,
    pub(super) failed: u64,
    pub(super) first: Option<(u64, String)>,
}

impl Live {
    /// Checks a record. The key of one that is the first of its kind is noted.
    pub(super) fn record(&mut self, batch: &Batch, row: usize, aside: &mut Aside) -> Option<Problem> {
        if self.form.check != Check::Unique {
            return self.judge.record(batch, row);
        }
        let hash = self.judge.key(batch, row);
        if self.seen.insert(hash) {
            aside.seen.push(SeenKey { scope: self.scope, hash });
            return None;
        }
        Some(self.judge.repeated(batch, row))
    }

    /// Compares a record with the last run. The numbers of one that goes on are noted.
    pub(super) fn drifted(
        &self,
        batch: &Batch,
        row: usize,
        (baseline, accepts): (&mut Baseline, bool),
    ) -> Option<Problem> {
        let drift = self.drift.as_ref()?;
        let (key, now) = match (drift.key(batch, row), drift.numbers(batch, row)) {
            (key, Ok(now)) => (key, now),
            (_, Err(problem)) => return Some(problem),
        };
        let problem = baseline.last(&key).and_then(|last| drift.judge(&now, last)).filter(|_| !accepts);
        if problem.is_none() || self.severity == Severity::Warn {
            baseline.note(key, now);
        }
        problem
    }

    /// Adds the findings of a batch, and halts if the rate is exceeded.
    pub(super) fn settle(&mut self, found: GateFindings) -> Result<(), Halt> {
        self.tally.looked += found.looked;
        self.tally.failed += found.failed;
        let (failed, looked) = match self.form.per {
            Per::Batch => (found.failed, found.looked),
            Per::Run => (self.tally.failed, self.tally.looked),
        };
        let rate = if looked == 0 { 0.0 } else { failed as f64 / looked as f64 };
        if self.severity == Severity::Warn || rate <= self.max_rate || found.failed == 0 {
            return Ok(());
        }
        let of = if self.form.per == Per::Batch { "in the batch" } else { "in the run so far" };
        let share = format!(
            "{failed} of {looked} {of} failed, above the limit of {} %",
            (self.max_rate * 1e8).round() / 1e6
        );
        let (record, reason) = match found.first {
            Some((record, reason)) if self.max_rate == 0.0 => (Some(record), reason),
            Some((record, reason)) => (Some(record), format!("{reason}; {share}")),
            None => (None, share),
        };
        Err(Halt { gate: self.label.clone(), record, reason })
    }
}
