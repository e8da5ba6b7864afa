//! The result of a run, for people and programs.

use std::time::Duration;

use serde_json::json;
use tidegate_core::{Code, Wall};
use tidegate_geo::crs::Operation;

use super::counts::RecordCounts;
use super::lifecycle::RunStatus;
use super::since::ReadScope;
use super::source::Told;
use super::state::StateError;
use crate::error::SetupError;
use crate::gate::{GateTally, Halt};
use crate::sink::SinkError;
use crate::step::StepError;
use crate::traffic::ServiceCalls;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All records have an outcome.
    Done,
    /// A gate halted it.
    Halted(Halt),
    /// It was stopped from outside.
    Stopped,
    /// The remote side asks for a longer wait than the run allows.
    TryLater(Code, Wall),
    /// A batch failed as a whole: an incident was opened, which suspends the pipeline.
    Suspended(String),
}

/// How a run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Began {
    /// The id of the run.
    pub run: String,
    /// Whether an unfinished run is continued.
    pub resumed: bool,
    /// Why it is continued, or why a new one was started.
    pub why: String,
}

impl Began {
    /// When the run began, in milliseconds since 1970: the first part of its id.
    #[must_use]
    pub fn began_ms(&self) -> Option<i64> {
        i64::from_str_radix(self.run.split('-').next()?, 16).ok()
    }
}

impl std::fmt::Display for Began {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Began { run, resumed, why } = self;
        let word = if *resumed { "resuming run" } else { "starting run" };
        write!(f, "{word} {run}")?;
        if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The id of the run, and whether it was resumed.
    pub began: Began,
    /// How it ended.
    pub end: End,
    /// The outcomes of the records, over all resumes.
    pub counts: RecordCounts,
    /// The counts of the gates.
    pub gates: Vec<GateTally>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// The location of the rejects.
    pub rejects: String,
    /// The sink.
    pub sink: String,
    /// The coordinate reference system in the sink.
    pub crs: String,
    /// The number of rows in the sink at the end, as counted by the sink; `None` if it was not
    /// asked, or is a file that is written as a whole.
    pub sink_rows: Option<u64>,
    /// The number of the first record of this attempt; 0 if it was not resumed.
    pub resumed_at: u64,
    /// The counts of a remote source.
    pub source: Option<Told>,
    /// The number of calls to services.
    pub calls: u64,
    /// The calls to each service.
    pub services: Vec<ServiceCalls>,
    /// The coordinate operations applied to the records.
    pub operations: Vec<Operation>,
    /// The number of batches committed by this attempt.
    pub batches: u64,
    /// Its duration.
    pub elapsed: Duration,
    /// The message of the service that the run waits for.
    pub said: Option<String>,
    /// What it read, if the source is read incrementally.
    pub scope: Option<ReadScope>,
    /// The version of the data in the sink: the id of the last run that changed it.
    pub data_version: String,
}

/// Why a run did not start or was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing was started: the manifest, the source or the sink cannot be used.
    Setup(String),
    /// Nothing was started: a service asks for a wait, the pipeline is suspended, or another run of
    /// it is in progress.
    Later(String),
    /// A service that the source needs failed.
    Service {
        /// The code of the failure.
        code: Code,
        /// The earliest time to try again; `None` if that does not help.
        until: Option<Wall>,
        /// The message.
        said: String,
    },
    /// Nothing was started: it was stopped while the source was examined. Downloaded data is kept.
    Stopped,
    /// The sink is down or locked; what was committed stays, and `--resume` continues.
    SinkUnavailable(String),
    /// It was aborted; what was committed stays, and `--resume` continues.
    Broken(String),
}

impl RunError {
    /// The status of a run that could not start.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        match self {
            RunError::Later(_) | RunError::SinkUnavailable(_) | RunError::Service { until: Some(_), .. } => {
                RunStatus::Waiting
            }
            RunError::Stopped => RunStatus::Stopped,
            RunError::Setup(_) | RunError::Service { until: None, .. } | RunError::Broken(_) => {
                RunStatus::Failed
            }
        }
    }
}

impl RunError {
    /// The error of a sink that could not be opened or read.
    pub(super) fn of_sink(error: SinkError) -> RunError {
        match error {
            SinkError::Transient { .. } => RunError::SinkUnavailable(format!("the sink: {error}")),
            SinkError::Fatal(what) => RunError::Setup(what),
        }
    }
}

impl From<SetupError> for RunError {
    fn from(error: SetupError) -> RunError {
        RunError::Setup(error.into())
    }
}

impl From<StateError> for RunError {
    fn from(error: StateError) -> RunError {
        match error {
            StateError::Locked(what) => RunError::Later(what),
            StateError::Failed(what) => RunError::Setup(what),
        }
    }
}

impl From<StepError> for RunError {
    fn from(error: StepError) -> RunError {
        match error {
            StepError::TryLater { code, until, said } => RunError::Service { code, until: Some(until), said },
            StepError::Failed { code, said } => RunError::Service { code, until: None, said },
            StepError::Cancelled => RunError::Stopped,
            StepError::Broken(what) => RunError::Setup(what),
        }
    }
}

impl std::error::Error for RunError {}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Stopped => f.write_str("interrupted"),
            RunError::Setup(what)
            | RunError::Later(what)
            | RunError::SinkUnavailable(what)
            | RunError::Service { said: what, .. }
            | RunError::Broken(what) => f.write_str(what),
        }
    }
}

/// A coordinate operation as JSON: its name, its accuracy, the grids used and those missing.
#[must_use]
pub fn operation(operation: &Operation) -> serde_json::Value {
    json!({
        "from": operation.from.to_string(),
        "to": operation.to.to_string(),
        "accuracy_m": operation.accuracy,
        "ballpark": operation.accuracy.is_none(),
        "definition": [operation.definition.0, operation.definition.1],
        "grids": operation.grids.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "missing_grids": operation.missing.iter().map(|missing| json!({
            "crs": missing.crs.to_string(),
            "files": missing.grid.files,
            "operation": missing.grid.operation,
            "accuracy_m": missing.grid.accuracy,
        })).collect::<Vec<_>>(),
    })
}

impl RunReport {
    /// The result as JSON.
    #[must_use]
    pub fn to_json(&self, status: RunStatus) -> serde_json::Value {
        let (mut halt, mut until, mut incident) = (None, None, None);
        match &self.end {
            End::Halted(why) => halt = Some(why),
            End::TryLater(_, when) => until = Some(when.millis()),
            End::Suspended(what) => incident = Some(what),
            End::Done | End::Stopped => {}
        }
        json!({
            "pipeline": self.pipeline,
            "status": status,
            "read": self.counts.read,
            "added": self.counts.added,
            "written": self.counts.written(),
            "inserted": self.counts.inserted,
            "updated": self.counts.updated,
            "unchanged": self.counts.unchanged,
            "deleted": self.counts.deleted,
            "rejected": self.counts.dead(),
            "rejected_by_code": self.counts.rejected,
            "filtered": self.counts.filtered,
            "deduped": self.counts.deduped,
            "no_match": self.counts.no_match,
            "failed": self.counts.failed,
            "repaired": self.counts.repaired,
            "balanced": self.counts.balanced(),
            "gates": self.gates,
            "halt": halt,
            "incident": incident,
            "not_before_ms": until,
            "error": self.said,
            "warnings": self.warnings,
            "rejects": self.rejects,
            "sink": self.sink,
            "crs": self.crs,
            "sink_rows": self.sink_rows,
            "run": self.began.run,
            "resumed": self.began.resumed,
            "resumed_at": self.resumed_at,
            "data_version": self.data_version,
            "source": self.source,
            "scope": self.scope.as_ref().map(ToString::to_string),
            "calls": self.calls,
            "services": self.services,
            "operations": self.operations.iter().map(operation).collect::<Vec<_>>(),
            "batches": self.batches,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
        })
    }

    /// The status for this end.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        match self.end {
            End::Done => RunStatus::Done,
            End::Halted(_) => RunStatus::Halted,
            End::Stopped => RunStatus::Stopped,
            End::TryLater(..) => RunStatus::Waiting,
            End::Suspended(_) => RunStatus::Suspended,
        }
    }
}
