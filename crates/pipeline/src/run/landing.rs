//! The third thread of a run: rejects durable, then rows and checkpoint together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_core::Rng;
use tidegate_core::retry::{CommitNext, CommitRetry};
use tidegate_geo::{Batch, Schema};

use super::crash;
use super::drive::RunWatch;
use super::lifecycle::Running;
use super::rejects::{BatchRefused, Rejects, Unsuccessful};
use super::state::RunCheckpoint;
use super::trail::Trail;
use super::transform::{BatchWork, TransformEnd};
use crate::manifest::Policy;
use crate::sink::{RowCounts, Sink, SinkError, Standing};
use crate::step::{Aside, Reject};
use crate::telemetry::{CommittedBatch, Teller};

/// The last stage: rejects durable, then rows and checkpoint together.
pub(super) struct Landing<'a, 's> {
    pub(super) sink: &'a mut dyn Sink,
    pub(super) rejects: &'a mut dyn Rejects,
    pub(super) trail: &'a mut Trail,
    pub(super) checkpoint: RunCheckpoint,
    pub(super) policy: Policy,
    pub(super) retry: bool,
    pub(super) watch: &'a RunWatch,
    pub(super) teller: Teller<'a>,
    /// What was given up of the batch under way, the sink's refusals included.
    pub(super) rejected: Vec<Reject>,
    pub(super) batches: u64,
    /// The run, which notes what the sink has confirmed.
    pub(super) running: Running<'s>,
    /// The sink keeps checkpoints, so that what is confirmed stays after a kill.
    pub(super) keeps: bool,
}

impl Landing<'_, '_> {
    /// Makes a batch durable, with the position after it.
    pub(super) fn land(&mut self, work: BatchWork) -> Result<(), TransformEnd> {
        let mut rng = Rng::new(self.batches);
        let mut retry = CommitRetry::new(&self.policy.call, self.retry);
        let began = Instant::now();
        loop {
            let failed = match self.attempt(&work) {
                Ok(checkpoint) => {
                    return self.landed(checkpoint, &work, began.elapsed()).map_err(TransformEnd::Broken);
                }
                Err(failed) => failed,
            };
            self.sink.rollback();
            self.rejects.rewind(self.checkpoint.rejects).map_err(TransformEnd::Broken)?;
            let (checkpoint, error) = match failed {
                CommitFailure::Put(error) => (None, error),
                CommitFailure::Commit(text, error) => (Some(text), error),
                CommitFailure::Missing(what) | CommitFailure::Rejects(BatchRefused::Failed(what)) => {
                    return Err(TransformEnd::Broken(what));
                }
                CommitFailure::Rejects(BatchRefused::Incident(what)) => {
                    return Err(TransformEnd::Suspended(what));
                }
            };
            let SinkError::Transient { .. } = &error else {
                return Err(TransformEnd::Broken(format!("the sink: {error}")));
            };
            match retry.failed(&mut rng) {
                CommitNext::RetryAfter(wait) => std::thread::sleep(wait),
                CommitNext::GiveUp { attempts } => {
                    return Err(TransformEnd::SinkUnavailable(format!(
                        "the sink: {error}; gave up after {attempts} attempts; use --resume to continue after the last batch"
                    )));
                }
            }
            // A commit whose answer was lost may have counted.
            if let (Some(text), Ok(Some(saved))) = (checkpoint, self.sink.saved())
                && saved.checkpoint == text
            {
                let checkpoint =
                    serde_json::from_str(&text).map_err(|e| TransformEnd::Broken(e.to_string()))?;
                return self.landed(checkpoint, &work, began.elapsed()).map_err(TransformEnd::Broken);
            }
        }
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

    /// Completes a run whose source has ended: the last questions to the sink and to whoever keeps
    /// the rejects, then the sink itself.
    pub(super) fn complete(&mut self, ended: TransformEnd, schema: &Arc<Schema>) -> TransformEnd {
        let ended = match ended {
            TransformEnd::Done => self.end(schema).err().unwrap_or(TransformEnd::Done),
            other => other,
        };
        // Before the sink forgets its checkpoint.
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
        // What is to be visible at once must be whole.
        let finished = self.sink.finish();
        crash::point("finish", 0);
        finished.map_or_else(|error| sink_failed(&error), |()| TransformEnd::Done)
    }

    /// Ends a run whose last page is committed already, or that had none: the sink is asked
    /// whether it holds what was written.
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

    /// One attempt.
    fn attempt(&mut self, work: &BatchWork) -> Result<RunCheckpoint, CommitFailure> {
        let put: RowCounts = self.sink.put(&work.batch).map_err(CommitFailure::Put)?;
        crash::point("put", self.batches);
        let mut aside = Aside { stage: "sink".into(), ..Aside::default() };
        let mut next = self.checkpoint.clone();
        next.counts.add(&work.delta);
        next.counts.put(&put);
        let put_rows = put.inserted;
        let mut rejected = work.rejected.clone();
        if !put.refused.is_empty() {
            drop(aside.set_aside(work.batch.clone(), put.refused));
            next.counts.rejects(&aside.rejected);
            rejected.append(&mut aside.rejected);
        }
        let records = work.delta.read + work.delta.added;
        let unsuccessful = Unsuccessful { rejected: &rejected, failed: &work.failed, records };
        next.rejects = self.rejects.put(&unsuccessful).map_err(CommitFailure::Rejects)?;
        crash::point("rejects", self.batches);
        next.position.clone_from(&work.position);
        next.gates.clone_from(&work.gates);
        next.ended = work.ended;
        next.sink.rows = next.sink.rows.map(|rows| rows + put_rows);
        if work.ended {
            let standing = self.sink.standing().map_err(CommitFailure::Put)?;
            next.sink = check_rows(&next.sink, standing).map_err(CommitFailure::Missing)?;
        }
        self.trail.batch(&mut next, &self.checkpoint.gates, work, &rejected, &self.rejects.place());
        self.rejected = rejected;
        let text =
            serde_json::to_string(&next).map_err(|e| CommitFailure::Put(SinkError::Fatal(e.to_string())))?;
        self.sink.commit(&text, &work.seen).map_err(|e| CommitFailure::Commit(text, e))?;
        Ok(next)
    }
}

/// Holds the rows that a sink has against those that it must have at least: others may have added
/// some, but what a run wrote must be there.
///
/// # Errors
/// If rows are missing.
pub(super) fn check_rows(expected: &Standing, found: Standing) -> Result<Standing, String> {
    match (expected.rows, found.rows) {
        (Some(expected), Some(found)) if found < expected => Err(format!(
            "the sink holds {found} rows, but at least {expected} were expected: another program deleted rows during this run; run again without --resume to write them"
        )),
        _ => Ok(found),
    }
}

/// How a run ends whose sink failed, and is not asked once more.
fn sink_failed(error: &SinkError) -> TransformEnd {
    let what = format!("the sink: {error}");
    match error {
        SinkError::Transient { .. } => TransformEnd::SinkUnavailable(what),
        SinkError::Fatal(_) => TransformEnd::Broken(what),
    }
}

/// At what an attempt failed.
enum CommitFailure {
    /// The rows.
    Put(SinkError),
    /// The sink has lost rows.
    Missing(String),
    /// The rejects.
    Rejects(BatchRefused),
    /// The commit, whose checkpoint this was.
    Commit(String, SinkError),
}
