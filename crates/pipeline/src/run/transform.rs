//! The second thread of a run: turns pages into batches that may be committed.
//!
//! Remote steps have threads of their own before it; see `stream`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use tidegate_core::{Code, Wall};
use tidegate_geo::Batch;

use super::build::Named;
use super::counts::RecordCounts;
use super::lifecycle::RunStatus;
use super::report::{End, RunError};
use super::source::Page;
use super::stream::{InTransit, Upstream, stages};
use crate::audit::AuditEvent;
use crate::gate::{GateTally, Gates, Halt};
use crate::step::{Reject, SeenKey, StepError};
use crate::telemetry::trace::BatchSpan;
use crate::traffic::Traffic;

/// A batch ready for the sink.
pub(super) struct BatchWork {
    pub(super) batch: Batch,
    pub(super) rejected: Vec<Reject>,
    /// Records of the batch that failed at a step with `on_failure: keep`.
    pub(super) failed: Vec<Reject>,
    /// Records without a match.
    pub(super) missed: Vec<u64>,
    pub(super) seen: Vec<SeenKey>,
    /// Calls to services, for the audit.
    pub(super) attempts: Vec<AuditEvent>,
    /// The span of the batch.
    pub(super) span: Option<BatchSpan>,
    /// The outcomes of its records after steps and gates, without the sink.
    pub(super) delta: RecordCounts,
    pub(super) gates: Vec<GateTally>,
    pub(super) position: String,
    pub(super) ended: bool,
}

impl BatchWork {
    /// The end of a source without records after the last batch.
    pub(super) fn empty(batch: Batch, position: String, gates: Vec<GateTally>) -> BatchWork {
        BatchWork {
            batch,
            rejected: Vec::new(),
            failed: Vec::new(),
            missed: Vec::new(),
            seen: Vec::new(),
            attempts: Vec::new(),
            span: None,
            delta: RecordCounts::default(),
            gates,
            position,
            ended: true,
        }
    }
}

/// How the second thread ended.
pub(super) enum TransformEnd {
    Done,
    Halted(Halt),
    Stopped,
    TryLater(Code, Wall),
    /// An incident was opened.
    Suspended(String),
    /// A service failed.
    Failed(Code, String),
    /// The sink is down or locked, and stayed so for as long as the policy waits.
    SinkUnavailable(String),
    Broken(String),
}

impl TransformEnd {
    /// The end, the status and the error that follow.
    pub(super) fn into_end(self) -> (End, RunStatus, Option<RunError>) {
        match self {
            TransformEnd::Done => (End::Done, RunStatus::Done, None),
            TransformEnd::Halted(halt) => (End::Halted(halt), RunStatus::Halted, None),
            TransformEnd::Stopped => (End::Stopped, RunStatus::Stopped, None),
            TransformEnd::TryLater(code, until) => (End::TryLater(code, until), RunStatus::Waiting, None),
            TransformEnd::Suspended(what) => (End::Suspended(what), RunStatus::Suspended, None),
            TransformEnd::Failed(code, said) => {
                (End::Stopped, RunStatus::Failed, Some(RunError::Service { code, until: None, said }))
            }
            TransformEnd::SinkUnavailable(what) => {
                (End::Stopped, RunStatus::Waiting, Some(RunError::SinkUnavailable(what)))
            }
            TransformEnd::Broken(what) => (End::Stopped, RunStatus::Failed, Some(RunError::Broken(what))),
        }
    }
}

/// `None` is the end of the source; a channel that closes without it means stopped.
pub(super) type PageRead = Result<Option<Page>, StepError>;

/// The end of the run that an error of a step or the source causes.
pub(super) fn ended(why: StepError, label: &str) -> TransformEnd {
    match why {
        StepError::TryLater { code, until, .. } => TransformEnd::TryLater(code, until),
        StepError::Cancelled => TransformEnd::Stopped,
        StepError::Failed { code, said } => TransformEnd::Failed(code, format!("{label}: {said}")),
        StepError::Broken(what) => TransformEnd::Broken(format!("{label}: {what}")),
    }
}

pub(super) fn transform(
    pages: Receiver<PageRead>,
    works: &SyncSender<BatchWork>,
    mut steps: Vec<Named>,
    (gates, traffic): (&mut Gates, &Traffic),
    (committed, endless): (u64, Option<&AtomicBool>),
) -> TransformEnd {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (from, last) = stages(scope, pages, &mut steps, &is_over);
        let ended =
            judge_all(&from, works, (last, &is_over), (gates, traffic), (committed, endless.is_some()));
        // The threads before it need not wait for a service or a receiver any more.
        is_over.store(true, Ordering::Relaxed);
        // A source without an end may wait for what nobody takes any more.
        if let Some(stop) = endless {
            stop.store(true, Ordering::Relaxed);
        }
        ended
    })
}

/// Takes batches through the last steps and the gates, in the order of the source. One is held back
/// until it is known whether it is the last, because the gates on the whole run apply to that one. A
/// source without an end has no last one: then none is held back.
fn judge_all(
    from: &Upstream,
    works: &SyncSender<BatchWork>,
    (steps, is_over): (&mut [Named], &AtomicBool),
    (gates, traffic): (&mut Gates, &Traffic),
    (committed, is_endless): (u64, bool),
) -> TransformEnd {
    let mut held: Option<BatchWork> = None;
    let mut passed = committed;
    let gone = || TransformEnd::Broken("the sink has stopped".into());
    loop {
        let next = from.next();
        let is_last = matches!(next, Some(Ok(None)));
        // Whatever happens to the next batch, the previous one was judged and is good.
        if !is_last
            && let Some(work) = held.take()
            && works.send(work).is_err()
        {
            return gone();
        }
        let transit = match next {
            Some(Ok(Some(transit))) => transit,
            Some(Ok(None)) => break,
            Some(Err(ended)) => return ended,
            None => return TransformEnd::Stopped,
        };
        let judged = transit.through(steps, is_over).and_then(|transit| judge(transit, gates, is_over));
        let mut work = match judged {
            Ok(work) => work,
            Err(ended) => return ended,
        };
        work.attempts.splice(0..0, traffic.noted());
        passed += work.batch.len() as u64;
        if is_endless {
            if works.send(work).is_err() {
                return gone();
            }
        } else {
            held = Some(work);
        }
    }
    if let Err(halt) = gates.end(passed) {
        return TransformEnd::Halted(halt);
    }
    if let Some(mut work) = held.take() {
        work.ended = true;
        work.gates = gates.tallies();
        if works.send(work).is_err() {
            return gone();
        }
    }
    TransformEnd::Done
}

/// Takes one batch through the gates.
pub(super) fn judge(
    transit: InTransit,
    gates: &mut Gates,
    is_over: &AtomicBool,
) -> Result<BatchWork, TransformEnd> {
    let InTransit { records, mut aside, read, unreadable, span, position } = transit;
    let batch = records.collect(&mut aside, is_over)?;
    gates.unreadable(aside.rejected.get(..unreadable).unwrap_or_default()).map_err(TransformEnd::Halted)?;
    gates.step_rejects(read, &aside.rejected).map_err(TransformEnd::Halted)?;
    gates.called(&aside, read).map_err(TransformEnd::Halted)?;
    let batch = gates.judge(batch, &mut aside).map_err(TransformEnd::Halted)?;
    gates.write_notes().map_err(TransformEnd::Broken)?;
    // A record that was set aside later does not count as no match, and a record without a match at
    // two steps counts once.
    let missed: HashSet<u64> = aside.missed.drain(..).collect();
    if !missed.is_empty() {
        aside.missed.extend((0..batch.len()).map(|row| batch.record(row)).filter(|n| missed.contains(n)));
    }
    if !aside.failed.is_empty() {
        let there: HashSet<u64> = (0..batch.len()).map(|row| batch.record(row)).collect();
        aside.failed.retain(|reject| there.contains(&reject.record));
    }
    let mut delta = RecordCounts { read, ..RecordCounts::default() };
    delta.aside(&aside);
    Ok(BatchWork {
        batch,
        rejected: aside.rejected,
        failed: aside.failed,
        missed: aside.missed,
        seen: aside.seen,
        attempts: aside.attempts,
        span,
        delta,
        gates: gates.tallies(),
        position,
        ended: false,
    })
}
