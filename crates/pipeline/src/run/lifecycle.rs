//! The states of a run, one type each, and its record on disk.
//!
//! ```text
//!   begin ──▶ Started ──▶ Running ──▶ done
//!                │ ▲         │
//!                │ │         ▼
//!                │ └───── Unfinished: halted, stopped, waiting, suspended, failed, or killed
//!                └───────────▲
//! ```
//!
//! A run is recorded before the source, the sink or a service is used, so a process that is killed
//! at any moment leaves a run that can be identified. Otherwise a killed run would look like the
//! finished one before it, and `--resume` would find nothing to do.
//!
//! `run.json` holds the [`RunEntry`] and, once the run has ended, its result. `committed` beside it
//! holds the number of the last batch that the sink has confirmed. It is written after each commit
//! without flushing: it survives a kill, and after a power failure it is at worst outdated. It
//! shows whether a sink was dropped or restored from a backup.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::alone::{self, PoisonRecord};
use super::counts::RecordCounts;
use super::described::Described;
use super::in_work::InWork;
use super::report::RunError;
use super::since::ReadScope;
use super::state::{RunCheckpoint, StateDir};
use crate::durable;
use crate::letter::now_ms;

/// The file with the last run of a pipeline.
pub(super) const RUN_FILE: &str = "run.json";
/// The file with the number of the last committed batch.
const COMMITTED_FILE: &str = "committed";

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It is recorded and has not read anything, or was killed before it did.
    Started,
    /// It is running, or was killed.
    Running,
    /// It is complete.
    Done,
    /// A gate halted it.
    Halted,
    /// A person or a signal stopped it.
    Stopped,
    /// A service or the sink asked for a longer wait than the run allows.
    Waiting,
    /// An incident suspended it.
    Suspended,
    /// It failed.
    Failed,
}

impl RunStatus {
    /// All statuses.
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

    /// Its name.
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

    /// How the run ended, after "it was".
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

/// The record of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// The id of the run.
    #[serde(default)]
    pub run: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// Its status.
    pub status: RunStatus,
    /// The fingerprint of its source, steps and sink.
    #[serde(default)]
    pub fingerprint: String,
    /// Time of its start, in milliseconds since 1970.
    #[serde(default)]
    pub began_ms: i64,
    /// Time of this record, in milliseconds since 1970.
    #[serde(default)]
    pub at_ms: i64,
    /// The number of resumes.
    #[serde(default)]
    pub resumes: u32,
    /// The description of the source when it was first read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Described>,
    /// What it reads, if the source is read incrementally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ReadScope>,
    /// The last checkpoint, once only finishing the sink was left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finishing: Option<Box<RunCheckpoint>>,
    /// The records that were in work when the process died: first, end, and the number of deaths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspects: Option<(u64, u64, u32)>,
    /// The records that kill the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poison: Vec<PoisonRecord>,
    /// The version of the data in the sink: the last run that changed it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data_version: String,
}

impl RunEntry {
    /// Sets the version of the data in the sink after a run with these outcomes, and returns it.
    pub(super) fn version(&mut self, counts: &RecordCounts) -> String {
        if counts.inserted + counts.updated + counts.deleted > 0 || self.data_version.is_empty() {
            self.data_version.clone_from(&self.run);
        }
        self.data_version.clone()
    }

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
            // A missing file is fine.
            let _ = std::fs::remove_file(state.file(COMMITTED_FILE));
        }
        Ok(())
    }
}

/// The last run of a pipeline.
#[derive(Debug)]
pub enum Last {
    /// There is none.
    Never,
    /// It is complete.
    Done(RunEntry),
    /// It is unfinished and can be resumed.
    Unfinished(Unfinished),
}

impl Last {
    /// Reads the record.
    ///
    /// # Errors
    /// When it exists and cannot be read: treating it as missing could append records twice.
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

    /// The description of the source of the last run.
    #[must_use]
    pub fn layer(&self) -> Option<Described> {
        match self {
            Last::Never => None,
            Last::Done(entry) => entry.layer.clone(),
            Last::Unfinished(run) => run.entry.layer.clone(),
        }
    }

    /// The version of the data in the sink. A run that was killed may have changed it.
    fn data_version(&self) -> String {
        match self {
            Last::Never => String::new(),
            Last::Unfinished(run) if run.has_committed() => run.entry.run.clone(),
            Last::Done(entry) | Last::Unfinished(Unfinished { entry, .. }) => entry.data_version.clone(),
        }
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

/// The number of the last batch of a run that its sink confirmed; 0 if none is known.
fn committed(path: &Path, run: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match text.trim_end().split_once(' ') {
        Some((of, batch)) if of == run => batch.parse().unwrap_or(0),
        _ => 0,
    }
}

/// A run that did not end, or ended before everything was done.
#[derive(Debug)]
pub struct Unfinished {
    /// Its record.
    pub entry: RunEntry,
    /// The number of the last batch that the sink confirmed.
    pub committed: u64,
}

impl Unfinished {
    /// Whether the sink may have rows of it.
    #[must_use]
    pub fn has_committed(&self) -> bool {
        self.committed > 0
    }

    /// Resumes the run.
    pub(super) fn resume(self, state: &StateDir) -> Result<Started<'_>, String> {
        let mut entry = self.entry;
        entry.resumes += 1;
        let died = InWork::found(state, &entry.run);
        if let Some(in_work) = died {
            entry.suspects = alone::after_death(entry.suspects, in_work);
        }
        entry.keep(state, RunStatus::Started, None)?;
        if died.is_some() {
            InWork::forget(state);
        }
        Ok(Started { entry, state })
    }
}

/// A run that is recorded and has not used its source or sink.
pub(super) struct Started<'a> {
    pub(super) entry: RunEntry,
    state: &'a StateDir,
}

impl<'a> Started<'a> {
    /// Starts a new run.
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
            scope: None,
            finishing: None,
            suspects: None,
            poison: Vec::new(),
            data_version: Last::read(state)?.data_version(),
        };
        entry.keep(state, RunStatus::Started, None)?;
        Ok(Started { entry, state })
    }

    /// The source was examined and the sink is open: reading starts.
    pub(super) fn running(mut self, layer: Described) -> Result<Running<'a>, String> {
        self.entry.layer = Some(layer);
        self.entry.keep(self.state, RunStatus::Running, None)?;
        Ok(Running { entry: self.entry, state: self.state })
    }

    /// Records that kill the process were found.
    pub(super) fn poisoned(&mut self, poison: Vec<PoisonRecord>) -> Result<(), String> {
        self.entry.poison = poison;
        self.entry.suspects = None;
        self.entry.keep(self.state, RunStatus::Started, None)
    }

    /// The run could not start: records the reason and returns it.
    pub(super) fn fail(mut self, why: RunError) -> RunError {
        let result = serde_json::json!({ "error": why.to_string() });
        match self.entry.keep(self.state, why.status(), Some(result)) {
            Ok(()) => why,
            Err(e) => RunError::Broken(format!("{why}; also, the state of the run could not be saved: {e}")),
        }
    }

    /// An earlier attempt had completed the run.
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
    /// Records a batch that the sink has confirmed.
    pub(super) fn committed(&self, batch: u64) -> Result<(), String> {
        let path = self.state.file(COMMITTED_FILE);
        let line = format!("{} {batch}\n", self.entry.run);
        let write = || -> std::io::Result<()> {
            let mut file = durable::private(&path)?;
            file.write_all(line.as_bytes())?;
            file.set_len(line.len() as u64)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// All batches are committed; finishing the sink comes next. If the run is one transaction, it
    /// is recorded as committed: only the sink knows whether it was.
    pub(super) fn finishing(&mut self, checkpoint: &RunCheckpoint) -> Result<(), String> {
        self.committed(checkpoint.batch)?;
        self.entry.finishing = Some(Box::new(checkpoint.clone()));
        self.entry.keep(self.state, RunStatus::Running, None)
    }

    /// Whether the sink may be complete.
    pub(super) fn is_finishing(&self) -> bool {
        self.entry.finishing.is_some()
    }

    /// Records how the run ended.
    pub(super) fn end(mut self, status: RunStatus, result: Value) -> Result<(), String> {
        self.entry.end(self.state, status, result)
    }
}

/// A unique id that sorts by time: the time in milliseconds and 32 random bits, both in
/// hexadecimal.
fn new_id(now_ms: i64) -> Result<String, String> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|e| format!("cannot get random numbers from the system: {e}"))?;
    Ok(format!("{now_ms:x}-{:08x}", u32::from_le_bytes(random)))
}
