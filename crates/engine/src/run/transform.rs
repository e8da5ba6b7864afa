//! The second thread of a run: pages become batches that may be committed.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, SyncSender};

use tidegate_core::{Code, Wall};
use tidegate_geo::Batch;

use super::build::Named;
use super::counts::Counts;
use super::source::{self, Page};
use crate::audit::Act;
use crate::gate::{Gates, Halt, Tally};
use crate::step::{Aside, Reject, Seen, StepError};
use crate::telemetry::trace::{self, BatchSpan, Tracer};
use crate::traffic::Traffic;

/// A batch on its way to the sink.
pub(super) struct Work {
    pub(super) batch: Batch,
    pub(super) rejected: Vec<Reject>,
    /// Records that a service had nothing for.
    pub(super) missed: Vec<u64>,
    pub(super) seen: Vec<Seen>,
    /// Calls to services, for the audit.
    pub(super) attempts: Vec<Act>,
    /// Since when it is under way, for its span.
    pub(super) span: Option<BatchSpan>,
    /// What steps and gates say became of its records; what the sink does is not in it yet.
    pub(super) delta: Counts,
    pub(super) gates: Vec<Tally>,
    pub(super) position: String,
    pub(super) ended: bool,
}

/// How the middle ended.
pub(super) enum Ended {
    Done,
    Halted(Halt),
    Stopped,
    TryLater(Code, Wall),
    /// An incident was opened.
    Suspended(String),
    Broken(String),
}

/// `None` is the end of the source; a channel that closes without it is a stop.
pub(super) type Read = Result<Option<Page>, StepError>;

/// Why the run ends, if a step or the source says so.
fn ended(why: StepError, label: &str) -> Ended {
    match why {
        StepError::TryLater { code, until, .. } => Ended::TryLater(code, until),
        StepError::Cancelled => Ended::Stopped,
        StepError::Broken(what) => Ended::Broken(format!("{label}: {what}")),
    }
}

pub(super) fn transform(
    pages: &Receiver<Read>,
    works: &SyncSender<Work>,
    mut steps: Vec<Named>,
    (gates, traffic): (&mut Gates, &Traffic),
    committed: u64,
) -> Ended {
    let mut held: Option<Work> = None;
    let mut passed = committed;
    let gone = || Ended::Broken("the sink has stopped".into());
    loop {
        let page = match pages.recv() {
            Ok(Ok(Some(page))) => page,
            Ok(Ok(None)) => break,
            Ok(Err(why)) => {
                // What was judged before is good.
                if let Some(work) = held.take() {
                    let _ = works.send(work);
                }
                return ended(why, "source");
            }
            Err(_) => {
                if let Some(work) = held.take()
                    && works.send(work).is_err()
                {
                    return gone();
                }
                return Ended::Stopped;
            }
        };
        let work = match process(page, &mut steps, gates) {
            Ok(mut work) => {
                work.attempts.splice(0..0, traffic.noted());
                work
            }
            Err(ended) => {
                if let Some(work) = held.take()
                    && works.send(work).is_err()
                {
                    return gone();
                }
                return ended;
            }
        };
        passed += work.batch.len() as u64;
        if let Some(before) = held.replace(work)
            && works.send(before).is_err()
        {
            return gone();
        }
    }
    if let Err(halt) = gates.end(passed) {
        return Ended::Halted(halt);
    }
    if let Some(mut work) = held.take() {
        work.ended = true;
        work.gates = gates.tallies();
        if works.send(work).is_err() {
            return gone();
        }
    }
    Ended::Done
}

/// One page through steps and gates.
fn process(page: Page, steps: &mut [Named], gates: &mut Gates) -> Result<Work, Ended> {
    let span = trace::tracer().map(Tracer::batch);
    let mut aside = Aside { stage: "read".into(), ..Aside::default() };
    aside.seen.extend(page.marks.iter().map(|hash| Seen { scope: source::SCOPE, hash: *hash }));
    let mut delta = Counts { read: (page.batch.len() + page.rejected.len()) as u64, ..Counts::default() };
    for rejected in page.rejected {
        aside.rejected.push(Reject {
            record: rejected.record,
            stage: "read".into(),
            problems: rejected.problems,
            feature: String::from_utf8(rejected.raw.clone()).unwrap_or_default(),
            raw: rejected.raw,
        });
    }
    gates.unreadable(&aside.rejected).map_err(Ended::Halted)?;
    let mut batch = page.batch;
    for named in steps {
        aside.stage.clone_from(&named.label);
        batch = named.step.apply(batch, &mut aside).map_err(|why| ended(why, &named.label))?;
    }
    let batch = gates.judge(batch, &mut aside).map_err(Ended::Halted)?;
    // A record that was set aside later did not end without a match, and one that two steps had
    // nothing for did so once.
    let missed: HashSet<u64> = aside.missed.drain(..).collect();
    if !missed.is_empty() {
        aside.missed.extend((0..batch.len()).map(|row| batch.record(row)).filter(|n| missed.contains(n)));
    }
    delta.aside(&aside);
    Ok(Work {
        batch,
        rejected: aside.rejected,
        missed: aside.missed,
        seen: aside.seen,
        attempts: aside.attempts,
        span,
        delta,
        gates: gates.tallies(),
        position: page.position,
        ended: false,
    })
}
