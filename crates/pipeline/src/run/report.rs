//! How a run ended, for people and machines.

use std::time::Duration;

use serde_json::json;
use tidegate_core::{Code, Wall};
use tidegate_geo::crs::Operation;

use super::counts::RecordCounts;
use super::lifecycle::RunStatus;
use super::source::Told;
use super::state::StateError;
use crate::error::SetupError;
use crate::gate::{GateTally, Halt};
use crate::sink::SinkError;
use crate::step::StepError;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All records have an end.
    Done,
    /// A gate ended it.
    Halted(Halt),
    /// It was stopped from outside.
    Stopped,
    /// The other side wants more patience than there is.
    TryLater(Code, Wall),
    /// A batch failed as a whole: an incident was opened, which suspends the pipeline.
    Suspended(String),
}

/// How a run began: for people, who asked for one or the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Began {
    /// The id of the run.
    pub run: String,
    /// An unfinished run goes on.
    pub resumed: bool,
    /// Why it goes on, or why a new one was started.
    pub why: String,
}

impl std::fmt::Display for Began {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Began { run, resumed, why } = self;
        let word = if *resumed { "resuming run" } else { "starting run" };
        write!(f, "{word} {run}")?;
        if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
    }
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The pipeline.
    pub pipeline: String,
    /// Which run it was, and whether it was resumed.
    pub began: Began,
    /// How it ended.
    pub end: End,
    /// What became of the records, over all resumes.
    pub counts: RecordCounts,
    /// What the gates counted.
    pub gates: Vec<GateTally>,
    /// What to tell.
    pub warnings: Vec<String>,
    /// Where the rejects are.
    pub rejects: String,
    /// Where the records are.
    pub sink: String,
    /// Their reference system there.
    pub crs: String,
    /// Rows in the sink at the end, as the sink counted them; `None` if it has not been asked, or is
    /// a file that was written whole.
    pub sink_rows: Option<u64>,
    /// From which record on this run worked; 0 if it began anew.
    pub resumed_at: u64,
    /// What a remote source counted.
    pub source: Option<Told>,
    /// Calls to services.
    pub calls: u64,
    /// The ways between systems that the records went.
    pub operations: Vec<Operation>,
    /// Batches committed by this run.
    pub batches: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// What a service said for which the run waits, in a sentence.
    pub said: Option<String>,
}

/// Why a run did not start or broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing was begun: the manifest, the source or the sink cannot be used.
    Setup(String),
    /// Nothing was begun: a service asks for time, the pipeline is suspended, or another run of it
    /// is under way.
    Later(String),
    /// A service that the source needs did not give what it was asked for.
    Service {
        /// Why.
        code: Code,
        /// When to come again; `None` if it will not help.
        until: Option<Wall>,
        /// The same in a sentence.
        said: String,
    },
    /// Nothing was begun: it was stopped while the source was looked at. What was received of it is
    /// kept.
    Stopped,
    /// The sink is down or locked; what was committed stays, and `--resume` goes on.
    SinkUnavailable(String),
    /// It broke off; what was committed stays, and `--resume` goes on.
    Broken(String),
}

impl RunError {
    /// The status that a run ends with that could not begin.
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
    /// Of a sink that could not be opened or asked.
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

/// A way between systems for machines: what it is, how accurate, over which grids and which not.
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
    /// The result for machines.
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
            "source": self.source,
            "calls": self.calls,
            "operations": self.operations.iter().map(operation).collect::<Vec<_>>(),
            "batches": self.batches,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
        })
    }

    /// The status that its end means.
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
