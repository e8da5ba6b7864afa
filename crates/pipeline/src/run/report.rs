//! How a run ended, for people and machines.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_core::{Code, Wall};
use tidegate_geo::crs::Operation;

use super::counts::Counts;
use super::source::Told;
use super::state::Status;
use crate::gate::{Halt, Tally};
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

/// What a run did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pipeline.
    pub pipeline: String,
    /// How it ended.
    pub end: End,
    /// What became of the records, over all resumes.
    pub counts: Counts,
    /// What the gates counted.
    pub gates: Vec<Tally>,
    /// What to tell.
    pub warnings: Vec<String>,
    /// Where the rejects are.
    pub rejects: String,
    /// Where the records are.
    pub sink: String,
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
}

/// Why a run did not start or broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing was begun: the manifest, the source or the sink cannot be used.
    Setup(String),
    /// Nothing was begun: a service wants no calls for now, or the pipeline is suspended.
    Later(String),
    /// It broke off; what was committed stays, and `--resume` goes on.
    Broken(String),
}

impl From<StepError> for RunError {
    fn from(error: StepError) -> RunError {
        match error {
            StepError::TryLater { .. } => RunError::Later(error.into()),
            StepError::Cancelled => RunError::Broken(error.into()),
            StepError::Broken(what) => RunError::Setup(what),
        }
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Setup(what) | RunError::Later(what) | RunError::Broken(what) => f.write_str(what),
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

impl Report {
    /// There was nothing to do: the last run is complete.
    pub(super) fn nothing_to_resume(id: &str, began: Instant) -> Report {
        Report {
            pipeline: id.to_owned(),
            end: End::Done,
            counts: Counts::default(),
            gates: Vec::new(),
            warnings: vec!["the last run finished: there is nothing to resume".to_owned()],
            rejects: String::new(),
            sink: String::new(),
            resumed_at: 0,
            source: None,
            calls: 0,
            operations: Vec::new(),
            batches: 0,
            elapsed: began.elapsed(),
        }
    }

    /// The result for machines.
    #[must_use]
    pub fn to_json(&self, status: Status) -> serde_json::Value {
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
            "repaired": self.counts.repaired,
            "balanced": self.counts.balanced(),
            "gates": self.gates,
            "halt": halt,
            "incident": incident,
            "not_before_ms": until,
            "warnings": self.warnings,
            "rejects": self.rejects,
            "sink": self.sink,
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
    pub fn status(&self) -> Status {
        match self.end {
            End::Done => Status::Done,
            End::Halted(_) => Status::Halted,
            End::Stopped => Status::Stopped,
            End::TryLater(..) => Status::TryLater,
            End::Suspended(_) => Status::Suspended,
        }
    }
}
