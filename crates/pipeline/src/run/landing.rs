//! The third thread of a run: makes rejects durable, then rows and checkpoint together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_core::Rng;
use tidegate_core::retry::{CommitNext, CommitRetry};
use tidegate_geo::{Batch, Schema};
use tracing::{info, warn};

use super::crash;
use super::drive::RunWatch;
use super::in_work::InWork;
use super::lifecycle::Running;
use super::rejects::{BatchRefused, Rejects, Unsuccessful};
use super::row_keys::{RejectKey, RowKeys, key_of};
use super::since::{self, ReadScope};
use super::state::RunCheckpoint;
use super::trail::Trail;
use super::transform::{BatchWork, TransformEnd};
use crate::gate::Halt;
use crate::gate::deletions::{DeletionVerdict, Deletions, ReadVerdict};
use crate::lock::lock;
use crate::manifest::Policy;
use crate::sink::{RowCounts, Sink, SinkError, Standing};
use crate::source::CountTolerance;
use crate::step::{Aside, Reject};
use crate::telemetry::{CommittedBatch, Teller};
use crate::worker::TaskLink;

/// The last stage: makes rejects durable, then rows and checkpoint together.
pub(super) struct Landing<'a, 's> {
    pub(super) sink: &'a mut dyn Sink,
    pub(super) rejects: &'a mut dyn Rejects,
    pub(super) trail: &'a mut Trail,
    pub(super) checkpoint: RunCheckpoint,
    pub(super) policy: Policy,
    pub(super) retry: bool,
    pub(super) watch: &'a RunWatch,
    pub(super) teller: Teller<'a>,
    /// The rejects of the current batch, including those of the sink.
    pub(super) rejected: Vec<Reject>,
    /// The number of batches committed by this attempt.
    pub(super) batches: u64,
    /// The run, which records the commits that the sink has confirmed.
    pub(super) running: Running<'s>,
    /// Whether the sink stores checkpoints, so that commits survive a kill.
    pub(super) keeps: bool,
    /// The rows of rejected records, if the sink is written by key.
    pub(super) row_keys: Option<RowKeys>,
    /// With `mode: sync`: what may be deleted at the end.
    pub(super) sync: Option<Sync>,
    /// With `source.since`: the field, and what this run reads.
    pub(super) since: Option<(String, ReadScope)>,
    /// Warnings about what was not done.
    pub(super) warnings: Vec<String>,
    pub(super) in_work: &'a InWork,
    /// The desk of a worker, if the source is a queue.
    pub(super) tasks: Option<TaskLink>,
}

/// The settings of `mode: sync`.
#[derive(Clone, Debug)]
pub(super) struct Sync {
    /// The fields of the key.
    pub(super) key: Vec<String>,
    /// The most rows that may be deleted.
    pub(super) max: CountTolerance,
    /// Whether rows stay in the table when they are deleted.
    pub(super) keeps_rows: bool,
}

impl Landing<'_, '_> {
    /// Makes a batch durable, with the position after it.
    pub(super) fn land(&mut self, mut work: BatchWork) -> Result<(), TransformEnd> {
        let mut rng = Rng::new(self.batches);
        let mut retry = CommitRetry::new(&self.policy.call, self.retry);
        let began = Instant::now();
        // The checkpoint of a commit whose reply was lost: it may have succeeded.
        let mut unknown = None;
        loop {
            let failed = match self.settle(&mut unknown, &work) {
                Ok(checkpoint) => {
                    return self.landed(checkpoint, &work, began.elapsed()).map_err(TransformEnd::Broken);
                }
                Err(failed) => failed,
            };
            self.watch.telemetry.records.refused(work.batch.len() as u64);
            self.sink.rollback();
            self.rejects.rewind(self.checkpoint.rejects).map_err(TransformEnd::Broken)?;
            if let CommitFailure::TakenOver(keys) = &failed {
                self.leave_out(&mut work, keys);
                continue;
            }
            let (checkpoint, error) = match failed {
                CommitFailure::Put(error) => (None, error),
                CommitFailure::Commit(text, error) => (Some(text), error),
                CommitFailure::TakenOver(_) => continue,
                CommitFailure::Halted(halt) => return Err(TransformEnd::Halted(halt)),
                CommitFailure::Missing(what) | CommitFailure::Rejects(BatchRefused::Failed(what)) => {
                    return Err(TransformEnd::Broken(what));
                }
                CommitFailure::Rejects(BatchRefused::Unavailable(what)) => {
                    return Err(TransformEnd::SinkUnavailable(what));
                }
                CommitFailure::Rejects(BatchRefused::Incident(what)) => {
                    return Err(TransformEnd::Suspended(what));
                }
            };
            let SinkError::Transient { code, .. } = &error else {
                warn!(target: "tidegate::sink", "gave up: {error}");
                return Err(TransformEnd::Broken(format!("the sink: {error}")));
            };
            match retry.failed(&mut rng) {
                CommitNext::RetryAfter(wait) => {
                    let (attempt, wait_ms) = (retry.failed_attempts(), wait.as_millis() as u64);
                    let code = code.as_str();
                    info!(target: "tidegate::sink", attempt, code, wait_ms, asked_by = "backoff", "retry: {error}");
                    std::thread::sleep(wait);
                }
                CommitNext::GiveUp { attempts } => {
                    warn!(target: "tidegate::sink", attempts, code = code.as_str(), "gave up: {error}");
                    return Err(TransformEnd::SinkUnavailable(format!(
                        "the sink: {error}; gave up after {attempts} attempts; use --resume to continue after the last batch"
                    )));
                }
            }
            unknown = checkpoint;
        }
    }

    /// Asks the sink about a commit whose outcome is unknown; otherwise, or if it did not succeed,
    /// makes an attempt. While the sink does not say, nothing is written: it could be twice.
    fn settle(
        &mut self,
        unknown: &mut Option<String>,
        work: &BatchWork,
    ) -> Result<RunCheckpoint, CommitFailure> {
        if let Some(text) = unknown.take() {
            match self.sink.saved() {
                Ok(Some(saved)) if saved.checkpoint == text => {
                    return serde_json::from_str(&text)
                        .map_err(|e| CommitFailure::Put(SinkError::Fatal(e.to_string())));
                }
                Ok(_) => {}
                Err(error) => return Err(CommitFailure::Commit(text, error)),
            }
        }
        self.attempt(work)
    }

    fn landed(&mut self, checkpoint: RunCheckpoint, work: &BatchWork, took: Duration) -> Result<(), String> {
        let landed = CommittedBatch {
            batch: &work.batch,
            rejects: &self.rejected,
            failed: &work.failed,
            missed: &work.missed,
            span: work.span,
            took,
        };
        self.teller.landed(&checkpoint, &landed);
        if let Some(link) = &self.tasks {
            link.committed(&work.position, &self.rejected);
        }
        self.in_work.landed(checkpoint.counts.read);
        self.watch.done.store(checkpoint.counts.read, Ordering::Relaxed);
        self.watch.written.store(checkpoint.counts.written(), Ordering::Relaxed);
        self.watch.dead.store(checkpoint.counts.dead(), Ordering::Relaxed);
        self.checkpoint = checkpoint;
        crash::point("commit", self.batches);
        self.batches += 1;
        if self.keeps {
            self.running.committed(self.checkpoint.batch)?;
        }
        self.trail.landed(&mut self.checkpoint)
    }

    /// Completes a run whose source has ended: verifies sink and rejects, then finishes the sink.
    pub(super) fn complete(&mut self, ended: TransformEnd, schema: &Arc<Schema>) -> TransformEnd {
        let ended = match ended {
            TransformEnd::Done => self.end(schema).err().unwrap_or(TransformEnd::Done),
            other => other,
        };
        // Before the sink removes its checkpoint.
        let flushed = self.trail.flush(&mut self.checkpoint);
        let TransformEnd::Done = ended else { return ended };
        let counts = &self.checkpoint.counts;
        let balanced = if counts.balanced() {
            Ok(())
        } else {
            Err(format!("the totals do not match, records are missing; please report this bug: {counts:?}"))
        };
        let mark = self.checkpoint.rejects;
        let finished = flushed
            .and(balanced)
            .and_then(|()| self.rejects.verify(mark, counts))
            .and_then(|()| self.running.finishing(&self.checkpoint));
        if let Err(what) = finished {
            return TransformEnd::Broken(what);
        }
        crash::point("finishing", 0);
        // What becomes visible at once must be complete.
        let finished = self.sink.finish();
        crash::point("finish", 0);
        finished.map_or_else(|error| sink_failed(&error), |()| TransformEnd::Done)
    }

    /// Ends a run whose last page is already committed, or that had none: verifies that the sink
    /// holds what was written.
    fn end(&mut self, schema: &Arc<Schema>) -> Result<(), TransformEnd> {
        if !self.checkpoint.ended {
            let position = self.checkpoint.position.clone();
            let gates = self.checkpoint.gates.clone();
            return self.land(BatchWork::empty(Batch::new(schema.clone()), position, gates));
        }
        let standing = self.sink.standing().map_err(|e| sink_failed(&e))?;
        self.checkpoint.sink = check_rows(&self.checkpoint.sink, standing).map_err(TransformEnd::Broken)?;
        Ok(())
    }

    /// Makes one attempt.
    fn attempt(&mut self, work: &BatchWork) -> Result<RunCheckpoint, CommitFailure> {
        let put: RowCounts = self.sink.put(&work.batch).map_err(CommitFailure::Put)?;
        crash::point("put", self.batches);
        let mut aside = Aside { stage: "sink".into(), ..Aside::default() };
        let mut next = self.checkpoint.clone();
        next.counts.add(&work.delta);
        next.counts.put(&put);
        let put_rows = put.inserted + put.versions;
        let mut rejected = work.rejected.clone();
        if !put.refused.is_empty() {
            drop(aside.set_aside(work.batch.clone(), put.refused));
            next.counts.rejects(&aside.rejected);
            rejected.append(&mut aside.rejected);
        }
        self.spare(&rejected, &mut next)?;
        self.repaired_before(&mut rejected, &mut next)?;
        self.end_tasks(work, &rejected)?;
        let records = work.delta.read + work.delta.added;
        let unsuccessful = Unsuccessful { rejected: &rejected, failed: &work.failed, records };
        next.rejects = self.rejects.put(&unsuccessful).map_err(CommitFailure::Rejects)?;
        crash::point("rejects", self.batches);
        next.highest = next.highest.max(*lock(&self.watch.highest));
        next.position.clone_from(&work.position);
        next.gates.clone_from(&work.gates);
        next.ended = work.ended;
        next.sink.rows = next.sink.rows.map(|rows| rows + put_rows);
        if work.ended {
            self.retire(&mut next)?;
            let standing = self.sink.standing().map_err(CommitFailure::Put)?;
            next.sink = check_rows(&next.sink, standing).map_err(CommitFailure::Missing)?;
            self.advance(&next)?;
        }
        self.trail.batch(&mut next, &self.checkpoint.gates, work, &rejected, &self.rejects.place());
        self.rejected = rejected;
        let text =
            serde_json::to_string(&next).map_err(|e| CommitFailure::Put(SinkError::Fatal(e.to_string())))?;
        self.sink.commit(&text, &work.seen).map_err(|e| CommitFailure::Commit(text, e))?;
        Ok(next)
    }
}

impl Landing<'_, '_> {
    /// Leaves the rows of rejected records as they are: the source still has them.
    fn spare(&mut self, rejected: &[Reject], next: &mut RunCheckpoint) -> Result<(), CommitFailure> {
        let Some(sync) = &self.sync else { return Ok(()) };
        let mut known = Vec::new();
        for reject in rejected {
            match key_of(reject, &sync.key) {
                RejectKey::Known(key) => known.push(key),
                RejectKey::Unknown => next.unknown_keys += 1,
                RejectKey::None => {}
            }
        }
        self.sink.spare(&known).map_err(CommitFailure::Put)
    }

    /// Takes records out of the rejects that were repaired before, if the sink holds them: the source
    /// still has them as they were, and nobody has to repair them again.
    fn repaired_before(
        &mut self,
        rejected: &mut Vec<Reject>,
        next: &mut RunCheckpoint,
    ) -> Result<(), CommitFailure> {
        let Some(rows) = self.row_keys.as_ref().filter(|_| !rejected.is_empty()) else { return Ok(()) };
        let repaired = self.rejects.repaired(rejected).map_err(CommitFailure::Rejects)?;
        let key = |(reject, repaired): (&Reject, bool)| rows.key(reject).filter(|_| repaired);
        let keys: Vec<Option<Vec<String>>> = rejected.iter().zip(repaired).map(key).collect();
        let asked: Vec<Vec<String>> = keys.iter().flatten().cloned().collect();
        if asked.is_empty() {
            return Ok(());
        }
        let mut there = self.sink.has(&asked).map_err(CommitFailure::Put)?.into_iter();
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for (reject, key) in std::mem::take(rejected).into_iter().zip(keys) {
            let is_there = key.is_some() && there.next() == Some(true);
            if is_there { known.push(reject) } else { new.push(reject) }
        }
        *rejected = new;
        next.counts.repaired_before(&known);
        Ok(())
    }

    /// Ends the tasks of the batch, in its transaction.
    fn end_tasks(&mut self, work: &BatchWork, rejected: &[Reject]) -> Result<(), CommitFailure> {
        let Some(link) = &self.tasks else { return Ok(()) };
        let ends = link.ends(&work.position, rejected);
        if ends.is_empty() {
            return Ok(());
        }
        let lost = self.sink.finish_tasks(&ends).map_err(CommitFailure::Put)?;
        if lost.is_empty() { Ok(()) } else { Err(CommitFailure::TakenOver(lost)) }
    }

    /// Leaves tasks out of a batch that are no longer ours.
    fn leave_out(&mut self, work: &mut BatchWork, keys: &[String]) {
        let Some(link) = &self.tasks else { return };
        warn!(target: "tidegate::queue", tasks = keys.len(), "not committed: another worker has taken over these tasks, or they were cancelled");
        let records = link.lose(&work.position, keys);
        let is_lost = |record: u64| records.iter().any(|range| range.contains(&record));
        let keep: Vec<bool> = (0..work.batch.len()).map(|row| !is_lost(work.batch.record(row))).collect();
        let batch = std::mem::replace(&mut work.batch, Batch::new(Arc::default()));
        let rows = batch.len();
        work.batch = batch.filter(&keep);
        let (lost, rejected): (Vec<Reject>, Vec<Reject>) =
            std::mem::take(&mut work.rejected).into_iter().partition(|reject| is_lost(reject.record));
        work.rejected = rejected;
        work.failed.retain(|reject| !is_lost(reject.record));
        work.missed.retain(|record| !is_lost(*record));
        work.delta.left_out(&lost, (rows - work.batch.len()) as u64);
    }

    /// Deletes what the source no longer has, in the transaction of the last batch.
    fn retire(&mut self, next: &mut RunCheckpoint) -> Result<(), CommitFailure> {
        let Some(sync) = self.sync.clone() else { return Ok(()) };
        self.warnings.clear();
        if matches!(self.since, Some((_, ReadScope::Changes { .. }))) {
            // What has not changed was not read.
            self.sink.retire(false).map_err(CommitFailure::Put)?;
            return Ok(());
        }
        let read = self.incomplete();
        let rows = self.sink.absent().map_err(CommitFailure::Put)?;
        let (inserted, unknown) = (next.counts.inserted, next.unknown_keys);
        let verdict = Deletions { rows, inserted, unknown, read, max: sync.max }.judge();
        let retire = match verdict {
            DeletionVerdict::Retire => true,
            DeletionVerdict::Keep(why) => {
                self.warnings.push(why);
                false
            }
            DeletionVerdict::Halt(halt) => return Err(CommitFailure::Halted(halt)),
        };
        let retired = self.sink.retire(retire).map_err(CommitFailure::Put)?;
        next.counts.deleted = retired;
        let removed = if sync.keeps_rows { 0 } else { retired };
        next.sink.rows = next.sink.rows.map(|rows| rows.saturating_sub(removed));
        Ok(())
    }

    /// Why the source may not have been read completely.
    fn incomplete(&self) -> Option<ReadVerdict> {
        let told = lock(&self.watch.source).as_ref().and_then(|told| told.verdict.clone());
        match told.as_deref() {
            Some("changed") => Some(ReadVerdict::Changed),
            Some("tolerated" | "mismatch") => Some(ReadVerdict::Tolerated),
            _ => None,
        }
    }

    /// Stores how far the source was read, in the transaction of the last batch.
    fn advance(&mut self, next: &RunCheckpoint) -> Result<(), CommitFailure> {
        let Some((field, scope)) = &self.since else { return Ok(()) };
        if self.incomplete().is_some() {
            return Ok(());
        }
        let began = self.running.entry.began_ms;
        match since::advance(scope, field, next.highest, (began, &next.sink)) {
            Some(watermark) => self.sink.set_watermark(&watermark).map_err(CommitFailure::Put),
            None => Ok(()),
        }
    }
}

/// Compares the rows of a sink with those it must have at least: others may have added rows, but
/// those of the run must be there.
///
/// # Errors
/// When rows are missing.
pub(super) fn check_rows(expected: &Standing, found: Standing) -> Result<Standing, String> {
    match (expected.rows, found.rows) {
        (Some(expected), Some(found)) if found < expected => Err(format!(
            "the sink holds {found} rows, but at least {expected} were expected: another program deleted rows during this run; run again without --resume to write them"
        )),
        _ => Ok(found),
    }
}

/// The end of a run whose sink failed and is not retried.
fn sink_failed(error: &SinkError) -> TransformEnd {
    let what = format!("the sink: {error}");
    match error {
        SinkError::Transient { .. } => TransformEnd::SinkUnavailable(what),
        SinkError::Fatal(_) => TransformEnd::Broken(what),
    }
}

/// The operation at which an attempt failed.
enum CommitFailure {
    /// Writing the rows.
    Put(SinkError),
    /// The check: the sink has lost rows.
    Missing(String),
    /// Another worker has taken over these tasks, or somebody has cancelled them.
    TakenOver(Vec<String>),
    /// More rows would be deleted than may be.
    Halted(Halt),
    /// Storing the rejects.
    Rejects(BatchRefused),
    /// The commit, with its checkpoint.
    Commit(String, SinkError),
}
