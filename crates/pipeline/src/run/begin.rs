//! Whether a run continues an unfinished one or starts anew, and whether the sink is still the one
//! that the unfinished run wrote to.
//!
//! `--resume` serves for ever in one line of cron: it continues what is unfinished, starts a new run
//! if nothing is, and starts a new one where the source or the manifest has changed since, because
//! a position in another source means nothing. Only records that are appended are not started over:
//! what the unfinished run wrote would be there twice.
//!
//! A sink that lost what the unfinished run wrote is refused. To go on behind the gap would end in
//! "done" with rows missing.

use super::landing::check_rows;
use super::lifecycle::{Last, RunEntry, Unfinished};
use super::report::RunError;
use super::state::RunCheckpoint;
use crate::manifest::WriteMode;
use crate::sink::{Saved, Standing};
use tidegate_core::time::calendar::rfc3339;

/// What to do.
pub(super) enum Begin {
    /// Start a new run, and why where `--resume` asked for the other.
    New(String),
    /// Continue this one.
    Continue(Box<Unfinished>),
}

/// When a run of the state directory began, for people.
fn when(entry: &RunEntry) -> String {
    rfc3339(entry.began_ms)
}

/// Decides by what is written down.
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

/// Decides once the source was looked at: why a new run is to be started, if it is.
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

/// What the sink says about the run that is to be continued.
pub(super) enum SinkProgress {
    /// Its last checkpoint.
    Checkpoint(Box<RunCheckpoint>),
    /// Nothing of it, and it has committed nothing.
    Nothing,
}

/// The run cannot go on with what is there.
pub(super) fn refuse(entry: &RunEntry, what: &str) -> RunError {
    RunError::Broken(format!(
        "run {} cannot be resumed: {what}. `tidegate run` without --resume reads the source from the beginning",
        entry.run
    ))
}

/// What a run knows of its own commits.
#[derive(Clone, Copy)]
pub(super) struct Commits {
    /// Batches that are committed, as the state directory says.
    pub(super) batches: u64,
    /// The sink keeps a checkpoint with each batch.
    pub(super) keeps: bool,
}

/// Holds what the sink has against what the run has committed.
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
        // A sink that shows a run at its end only holds all of it or nothing.
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

/// Whether a sink that appends holds an unfinished run that the state directory does not know.
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
