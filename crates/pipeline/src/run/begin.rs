//! Decides whether a run continues an unfinished one or starts anew, and whether the sink is still
//! the one that the unfinished run wrote to.
//!
//! One cron line with `--resume` always works: it continues an unfinished run, and starts a new one
//! if there is none or if the source or the manifest has changed, because a position in another
//! source is meaningless. The exception is a sink that appends: starting over would duplicate what
//! the unfinished run wrote, so it is refused.
//!
//! A sink that lost what the unfinished run wrote is refused too. Continuing after the gap would
//! end as "done" with rows missing.

use super::landing::check_rows;
use super::lifecycle::{Last, RunEntry, Unfinished};
use super::report::RunError;
use super::state::RunCheckpoint;
use crate::manifest::WriteMode;
use crate::sink::{Saved, Standing};
use tidegate_core::time::calendar::rfc3339;

/// The decision.
pub(super) enum Begin {
    /// Start a new run; with `--resume`, the reason.
    New(String),
    /// Continue this run.
    Continue(Box<Unfinished>),
}

/// The start time of a run, for people.
fn when(entry: &RunEntry) -> String {
    rfc3339(entry.began_ms)
}

/// Decides from the recorded state.
pub(super) fn decide(
    last: Last,
    resume: bool,
    fingerprint: &str,
    mode: WriteMode,
) -> Result<Begin, RunError> {
    let run = match (last, resume) {
        (Last::Never, true) => return Ok(Begin::New("no earlier run".into())),
        (Last::Done(entry), true) => {
            return Ok(Begin::New(format!("run {} of {} is complete", entry.run, when(&entry))));
        }
        (Last::Unfinished(run), false) if mode == WriteMode::Append && run.has_committed() => {
            return Err(appended(&run.entry, "use --resume"));
        }
        (Last::Never | Last::Done(_) | Last::Unfinished(_), false) => return Ok(Begin::New(String::new())),
        (Last::Unfinished(run), true) => run,
    };
    if run.entry.fingerprint == fingerprint {
        return Ok(Begin::Continue(Box::new(run)));
    }
    anew(&run.entry, run.committed, mode, "the source, steps or sink of the manifest have changed")
        .map(Begin::New)
}

/// Decides after the source was opened: the reason to start a new run, if there is one.
pub(super) fn same_source(
    entry: &RunEntry,
    committed: u64,
    (stamp, mode): (&str, WriteMode),
) -> Result<Option<String>, RunError> {
    match &entry.layer {
        Some(layer) if layer.stamp != stamp && committed > 0 => {
            let why = format!("the source has changed (from {} to {stamp})", layer.stamp);
            anew(entry, committed, mode, &why).map(Some)
        }
        _ => Ok(None),
    }
}

fn anew(entry: &RunEntry, committed: u64, mode: WriteMode, why: &str) -> Result<String, RunError> {
    let since = format!("{why} since run {} of {} stopped", entry.run, when(entry));
    if mode == WriteMode::Append && committed > 0 {
        return Err(appended(entry, &format!("{since}, so it cannot be resumed; undo the change")));
    }
    Ok(since)
}

fn appended(entry: &RunEntry, instead: &str) -> RunError {
    RunError::Setup(format!(
        "run {} of {} did not finish, and `mode: append` would add its records again; {instead}, or delete its rows and remove the state directory of {}",
        entry.run, entry.pipeline, entry.pipeline
    ))
}

/// The state of the run to continue, according to the sink.
pub(super) enum SinkProgress {
    /// The sink has this checkpoint.
    Checkpoint(Box<RunCheckpoint>),
    /// The sink has nothing of the run, and the run has committed nothing.
    Nothing,
}

/// The error of a run that cannot be continued with this sink.
pub(super) fn refuse(entry: &RunEntry, what: &str) -> RunError {
    RunError::Broken(format!(
        "run {} cannot be resumed: {what}. Run it without --resume to read the source from the beginning",
        entry.run
    ))
}

/// The commits that a run has recorded.
#[derive(Clone, Copy)]
pub(super) struct Commits {
    /// The number of committed batches, according to the state directory.
    pub(super) batches: u64,
    /// Whether the sink stores a checkpoint with each batch.
    pub(super) keeps: bool,
}

/// Compares the sink with what the run has committed.
pub(super) fn find(
    entry: &RunEntry,
    Commits { batches: committed, keeps }: Commits,
    saved: Option<&Saved>,
    standing: Standing,
) -> Result<SinkProgress, RunError> {
    let known = match saved {
        Some(saved) => serde_json::from_str::<RunCheckpoint>(&saved.checkpoint)
            .map_err(|e| RunError::Broken(format!("the checkpoint in the sink cannot be read: {e}")))
            .map(Some)?,
        None => None,
    };
    let Some(known) = known.filter(|known| known.run == entry.run) else {
        // A sink that becomes visible only at the end holds all of a run or nothing.
        if committed == 0 || !keeps {
            return Ok(SinkProgress::Nothing);
        }
        return Err(refuse(
            entry,
            &format!(
                "it has committed {committed} batches, but the sink has no record of them: it was dropped, replaced or restored from a backup"
            ),
        ));
    };
    if known.batch < committed {
        return Err(refuse(
            entry,
            &format!(
                "it has committed {committed} batches, but the sink is at batch {}: it was restored from a backup",
                known.batch
            ),
        ));
    }
    if known.sink.identity != standing.identity {
        return Err(refuse(
            entry,
            &format!(
                "the sink is not the one it wrote to: it was dropped and recreated, or replaced (was {:?}, is {:?})",
                known.sink.identity, standing.identity
            ),
        ));
    }
    if check_rows(&known.sink, standing.clone()).is_err() {
        return Err(refuse(
            entry,
            &format!(
                "the sink holds {} rows, but the run wrote {}: it was truncated, or rows were deleted",
                standing.rows.unwrap_or(0),
                known.sink.rows.unwrap_or(0)
            ),
        ));
    }
    Ok(SinkProgress::Checkpoint(Box::new(known)))
}

/// Checks whether an appending sink holds an unfinished run that the state directory does not know.
pub(super) fn stray(saved: Option<&Saved>) -> Result<(), RunError> {
    let Some(found) = saved.and_then(|saved| serde_json::from_str::<RunCheckpoint>(&saved.checkpoint).ok())
    else {
        return Ok(());
    };
    if found.ended || found.run.is_empty() {
        return Ok(());
    }
    Err(RunError::Setup(format!(
        "the sink holds {} rows of run {}, which did not finish and is not in this state directory; `mode: append` would add them again. Pass the state directory of that run with --state, or delete its rows and its entry in tidegate_checkpoint",
        found.counts.inserted, found.run
    )))
}
