//! The third thread of a run: rejects durable, then rows and checkpoint together.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_core::Rng;

use super::crash;
use super::drive::Watch;
use super::rejects::{Refused, Rejects};
use super::state::Checkpoint;
use super::trail::Trail;
use super::transform::{Ended, Work};
use crate::manifest::Policy;
use crate::sink::{Put, Sink, SinkError};
use crate::step::{Aside, Reject};
use crate::telemetry::{Landed, Teller};

/// The last stage: rejects durable, then rows and checkpoint together.
pub(super) struct Landing<'a> {
    pub(super) sink: &'a mut dyn Sink,
    pub(super) rejects: &'a mut dyn Rejects,
    pub(super) trail: &'a mut Trail,
    pub(super) checkpoint: Checkpoint,
    pub(super) policy: Policy,
    pub(super) retry: bool,
    pub(super) watch: &'a Watch,
    pub(super) teller: Teller<'a>,
    /// What was given up of the batch under way, the sink's refusals included.
    pub(super) rejected: Vec<Reject>,
    pub(super) batches: u64,
}

impl Landing<'_> {
    /// Makes a batch durable, with the position after it.
    pub(super) fn land(&mut self, work: Work) -> Result<(), Ended> {
        let mut rng = Rng::new(self.batches);
        let mut attempt = 0;
        let mut waited = Duration::ZERO;
        let began = Instant::now();
        loop {
            let failed = match self.attempt(&work) {
                Ok(checkpoint) => {
                    return self.landed(checkpoint, &work, began.elapsed()).map_err(Ended::Broken);
                }
                Err(failed) => failed,
            };
            self.sink.rollback();
            self.rejects.rewind(self.checkpoint.rejects).map_err(Ended::Broken)?;
            let (checkpoint, error) = match failed {
                Failed::Put(error) => (None, error),
                Failed::Commit(text, error) => (Some(text), error),
                Failed::Rejects(Refused::Failed(what)) => return Err(Ended::Broken(what)),
                Failed::Rejects(Refused::Incident(what)) => return Err(Ended::Suspended(what)),
            };
            let SinkError::Transient { .. } = &error else {
                return Err(Ended::Broken(format!("the sink: {error}")));
            };
            attempt += 1;
            if !self.retry || attempt >= self.policy.call.attempts_max {
                return Err(Ended::Broken(format!(
                    "the sink: {error}; gave up after {attempt} attempts, --resume goes on from the last batch"
                )));
            }
            let wait = self.policy.call.backoff.delay(attempt - 1, waited, &mut rng);
            waited = wait;
            std::thread::sleep(wait);
            // A commit whose answer was lost may have counted.
            if let (Some(text), Ok(Some(saved))) = (checkpoint, self.sink.saved())
                && saved.checkpoint == text
            {
                let checkpoint = serde_json::from_str(&text).map_err(|e| Ended::Broken(e.to_string()))?;
                return self.landed(checkpoint, &work, began.elapsed()).map_err(Ended::Broken);
            }
        }
    }

    fn landed(&mut self, checkpoint: Checkpoint, work: &Work, took: Duration) -> Result<(), String> {
        let landed = Landed {
            batch: &work.batch,
            rejects: &self.rejected,
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
        self.trail.landed(&mut self.checkpoint)
    }

    /// One attempt.
    fn attempt(&mut self, work: &Work) -> Result<Checkpoint, Failed> {
        let put: Put = self.sink.put(&work.batch).map_err(Failed::Put)?;
        crash::point("put", self.batches);
        let mut aside = Aside { stage: "sink".into(), ..Aside::default() };
        let mut next = self.checkpoint.clone();
        next.counts.add(&work.delta);
        next.counts.put(&put);
        let mut rejected = work.rejected.clone();
        if !put.refused.is_empty() {
            drop(aside.set_aside(work.batch.clone(), put.refused));
            next.counts.rejects(&aside.rejected);
            rejected.append(&mut aside.rejected);
        }
        let records = work.delta.read + work.delta.added;
        next.rejects = self.rejects.put(&rejected, records).map_err(Failed::Rejects)?;
        crash::point("rejects", self.batches);
        next.position.clone_from(&work.position);
        next.gates.clone_from(&work.gates);
        next.ended = work.ended;
        self.trail.batch(&mut next, &self.checkpoint.gates, work, &rejected, &self.rejects.place());
        self.rejected = rejected;
        let text = serde_json::to_string(&next).map_err(|e| Failed::Put(SinkError::Fatal(e.to_string())))?;
        self.sink.commit(&text, &work.seen).map_err(|e| Failed::Commit(text, e))?;
        Ok(next)
    }
}

/// At what an attempt failed.
enum Failed {
    /// The rows.
    Put(SinkError),
    /// The rejects.
    Rejects(Refused),
    /// The commit, whose checkpoint this was.
    Commit(String, SinkError),
}
