//! The states of a run, one type each, and what is written down of it.
//!
//! ```text
//!   begin ──▶ Started ──▶ Running ──▶ done
//!                │ ▲         │
//!                │ │         ▼
//!                │ └───── Unfinished: halted, stopped, waiting, suspended, failed, or killed
//!                └───────────▲
//! ```
//!
//! A run is written down before the source, the sink or a service is touched, so a process that
//! is killed at any moment leaves a run that can be named. Without that, a killed run looks like
//! the finished one before it, and `--resume` would find nothing to do.
//!
//! `run.json` holds the [`RunEntry`] and, once the run has ended, its result. `committed` beside it
//! holds the number of the last batch that the sink has confirmed. It is written after each commit
//! without waiting for the disk: a killed process does not lose it, and after a power cut it only
//! says less. It is what shows that a sink was dropped or restored from a backup.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::described::Described;
use super::report::RunError;
use super::state::{RunCheckpoint, StateDir};
use crate::letter::now_ms;

/// The name of the file that holds the last run of a pipeline.
pub(super) const RUN_FILE: &str = "run.json";
/// The name of the file that holds the last batch that was committed.
const COMMITTED_FILE: &str = "committed";

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It is written down and has not read anything, or was killed before it did.
    Started,
    /// It is running, or was killed.
    Running,
    /// It is complete.
    Done,
    /// A gate ended it.
    Halted,
    /// It was stopped by a person or a signal.
    Stopped,
    /// A service or the sink asked for more time than the run may wait.
    Waiting,
    /// An incident ended it.
    Suspended,
    /// It failed.
    Failed,
}

impl RunStatus {
    /// All of them.
    pub const ALL: [RunStatus; 8] = [
        RunStatus::Started,
        RunStatus::Running,
        RunStatus::Done,
        RunStatus::Halted,
        RunStatus::Stopped,
        RunStatus::Waiting,
        RunStatus::Suspended,
        RunStatus::Failed,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RunStatus::Started => "started",
            RunStatus::Running => "running",
            RunStatus::Done => "done",
            RunStatus::Halted => "halted",
            RunStatus::Stopped => "stopped",
            RunStatus::Waiting => "waiting",
            RunStatus::Suspended => "suspended",
            RunStatus::Failed => "failed",
        }
    }

    /// How a run with this status came to be unfinished, after "it was".
    pub(super) const fn ending(self) -> &'static str {
        match self {
            RunStatus::Started | RunStatus::Running => "killed",
            RunStatus::Done => "complete",
            RunStatus::Halted => "halted by a gate",
            RunStatus::Stopped => "stopped",
            RunStatus::Waiting => "stopped by a service that asked to wait",
            RunStatus::Suspended => "suspended by an incident",
            RunStatus::Failed => "stopped by a failure",
        }
    }
}

/// What is written down of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// The id of the run.
    #[serde(default)]
    pub run: String,
    /// The pipeline.
    pub pipeline: String,
    /// Its status.
    pub status: RunStatus,
    /// Which source, steps and sink it was started with.
    #[serde(default)]
    pub fingerprint: String,
    /// When it began, in milliseconds since 1970.
    #[serde(default)]
    pub began_ms: i64,
    /// When this was written, in milliseconds since 1970.
    #[serde(default)]
    pub at_ms: i64,
    /// How often it was resumed.
    #[serde(default)]
    pub resumes: u32,
    /// What the source said of itself when it was first read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Described>,
    /// The last checkpoint, once only the sink's finish was left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finishing: Option<Box<RunCheckpoint>>,
}

impl RunEntry {
    fn to_json(&self, result: Option<Value>) -> Result<Value, String> {
        let mut fields = match result {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        if let Value::Object(own) = serde_json::to_value(self).map_err(|e| e.to_string())? {
            fields.extend(own);
        }
        Ok(Value::Object(fields))
    }

    fn keep(&mut self, state: &StateDir, status: RunStatus, result: Option<Value>) -> Result<(), String> {
        self.status = status;
        self.at_ms = now_ms();
        state.write(RUN_FILE, &self.to_json(result)?)
    }

    fn end(&mut self, state: &StateDir, status: RunStatus, result: Value) -> Result<(), String> {
        if status == RunStatus::Done {
            self.finishing = None;
        }
        self.keep(state, status, Some(result))?;
        if status == RunStatus::Done {
            // A file that was not made is not there, which is as good.
            let _ = std::fs::remove_file(state.file(COMMITTED_FILE));
        }
        Ok(())
    }
}

/// The last run of a pipeline.
#[derive(Debug)]
pub enum Last {
    /// There was none.
    Never,
    /// It is complete.
    Done(RunEntry),
    /// It is not, and can be resumed.
    Unfinished(Unfinished),
}

impl Last {
    /// Reads it.
    ///
    /// # Errors
    /// When it is there and cannot be read: to go on as if there had been none could append
    /// records twice.
    pub(super) fn read(state: &StateDir) -> Result<Last, String> {
        let path = state.file(RUN_FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Last::Never),
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        let entry: RunEntry = serde_json::from_slice(&bytes).map_err(|e| {
            format!(
                "cannot read {} ({e}), so the state of the last run is unknown; remove the file to start a new run",
                path.display()
            )
        })?;
        if entry.status == RunStatus::Done {
            return Ok(Last::Done(entry));
        }
        let committed = committed(&state.file(COMMITTED_FILE), &entry.run);
        Ok(Last::Unfinished(Unfinished { entry, committed }))
    }

    /// Its status, if there was a run.
    #[must_use]
    pub fn status(&self) -> Option<RunStatus> {
        match self {
            Last::Never => None,
            Last::Done(entry) => Some(entry.status),
            Last::Unfinished(run) => Some(run.entry.status),
        }
    }
}

/// The last batch of a run that its sink confirmed; 0 if none is known.
fn committed(path: &Path, run: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match text.trim_end().split_once(' ') {
        Some((of, batch)) if of == run => batch.parse().unwrap_or(0),
        _ => 0,
    }
}

/// A run that did not end, or ended before all was done.
#[derive(Debug)]
pub struct Unfinished {
    /// What is written down of it.
    pub entry: RunEntry,
    /// The last batch that the sink confirmed.
    pub committed: u64,
}

impl Unfinished {
    /// Whether rows of it may be in the sink.
    #[must_use]
    pub fn has_committed(&self) -> bool {
        self.committed > 0
    }

    /// Resumes it.
    pub(super) fn resume(self, state: &StateDir) -> Result<Started<'_>, String> {
        let mut entry = self.entry;
        entry.resumes += 1;
        entry.keep(state, RunStatus::Started, None)?;
        Ok(Started { entry, state })
    }
}

/// A run that is written down and has not touched its source or sink.
pub(super) struct Started<'a> {
    pub(super) entry: RunEntry,
    state: &'a StateDir,
}

impl<'a> Started<'a> {
    /// Begins a new run.
    pub(super) fn new(state: &'a StateDir, pipeline: &str, fingerprint: &str) -> Result<Started<'a>, String> {
        let now = now_ms();
        let mut entry = RunEntry {
            run: new_id(now)?,
            pipeline: pipeline.to_owned(),
            status: RunStatus::Started,
            fingerprint: fingerprint.to_owned(),
            began_ms: now,
            at_ms: now,
            resumes: 0,
            layer: None,
            finishing: None,
        };
        entry.keep(state, RunStatus::Started, None)?;
        Ok(Started { entry, state })
    }

    /// The source was looked at, the sink is open: records are read from now on.
    pub(super) fn running(mut self, layer: Described) -> Result<Running<'a>, String> {
        self.entry.layer = Some(layer);
        self.entry.keep(self.state, RunStatus::Running, None)?;
        Ok(Running { entry: self.entry, state: self.state })
    }

    /// It could not begin: why is written down and handed on.
    pub(super) fn fail(mut self, why: RunError) -> RunError {
        let result = serde_json::json!({ "error": why.to_string() });
        match self.entry.keep(self.state, why.status(), Some(result)) {
            Ok(()) => why,
            Err(e) => RunError::Broken(format!("{why}; also, the state of the run could not be saved: {e}")),
        }
    }

    /// An earlier attempt had done all that was to do.
    pub(super) fn done(mut self, result: Value) -> Result<(), String> {
        self.entry.end(self.state, RunStatus::Done, result)
    }
}

/// A run that reads and writes.
pub(super) struct Running<'a> {
    pub(super) entry: RunEntry,
    state: &'a StateDir,
}

impl<'a> Running<'a> {
    /// Notes a batch that the sink has confirmed.
    pub(super) fn committed(&self, batch: u64) -> Result<(), String> {
        let path = self.state.file(COMMITTED_FILE);
        std::fs::write(&path, format!("{} {batch}\n", self.entry.run))
            .map_err(|e| format!("{}: {e}", path.display()))
    }

    /// All batches are committed; the sink is completed next. Where it is one transaction, that is
    /// noted as committed: whether it was, only the sink can tell.
    pub(super) fn finishing(&mut self, checkpoint: &RunCheckpoint) -> Result<(), String> {
        self.committed(checkpoint.batch)?;
        self.entry.finishing = Some(Box::new(checkpoint.clone()));
        self.entry.keep(self.state, RunStatus::Running, None)
    }

    /// Whether the sink may be complete.
    pub(super) fn is_finishing(&self) -> bool {
        self.entry.finishing.is_some()
    }

    /// Writes down how it ended.
    pub(super) fn end(mut self, status: RunStatus, result: Value) -> Result<(), String> {
        self.entry.end(self.state, status, result)
    }
}

/// An id that sorts by time and is never given twice: the moment in milliseconds and 32 random
/// bits, both in hexadecimal.
fn new_id(now_ms: i64) -> Result<String, String> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|e| format!("cannot get random numbers from the system: {e}"))?;
    Ok(format!("{now_ms:x}-{:08x}", u32::from_le_bytes(random)))
}
