//! What a run amounts to, for programs: its exit code and its result as JSON.

use serde_json::{Value, json};
use tidegate_client::lock::lock;
use tidegate_core::{Wall, refusal};
use tidegate_pipeline::run::{End, RunError, RunReport, RunWatch};
use tidegate_pipeline::telemetry::Telemetry;

use crate::exit::Exit;
use crate::remedies::Remedies;

/// The exit code of a run.
pub(crate) fn exit_of(report: &RunReport, telemetry: &Telemetry, remedies: &Remedies) -> Exit {
    match &report.end {
        End::Done if remedies.all_resolved => Exit::Done,
        End::Done if report.counts.unsuccessful() > 0 && nobody_answered(telemetry) => Exit::TryLater,
        End::Done if report.counts.unsuccessful() > 0 => Exit::DeadLetters,
        End::Done => Exit::Done,
        End::Halted(_) => Exit::Halted,
        End::Stopped => Exit::Failure,
        End::TryLater(..) | End::Suspended(_) => Exit::TryLater,
    }
}

/// The result of a run as JSON.
pub(crate) fn result_json(report: &RunReport, telemetry: &Telemetry, remedies: &Remedies) -> Value {
    let mut value = report.to_json(report.status());
    add_counters(&mut value, telemetry);
    if !remedies.done.is_nothing() {
        value["remedied"] = json!(remedies.done);
    }
    value
}

/// The result with the extent of the written records, in the coordinate reference system of the sink.
/// A run that was continued has seen only a part of them. Not for the log, which rounds coordinates.
pub(crate) fn with_extent(json: &Value, watch: &RunWatch, report: Option<&RunReport>) -> Value {
    let whole = report.is_some_and(|report| report.resumed_at == 0);
    let extent = watch.telemetry.places.extent().filter(|_| whole);
    let mut value = json.clone();
    value["extent"] = json!(extent.map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]));
    value
}

/// Whether the services that were called are down: see [`refusal::nobody_answered`].
pub(crate) fn nobody_answered(telemetry: &Telemetry) -> bool {
    let statuses = telemetry.summary().statuses;
    let responses = statuses.iter().filter(|(status, _)| *status != "none").map(|(_, n)| n).sum();
    refusal::nobody_answered(responses, telemetry.groups().iter().map(|group| group.code.as_str()))
}

/// Adds the counters of the registry to the JSON result.
fn add_counters(value: &mut Value, telemetry: &Telemetry) {
    if let (Some(value), Value::Object(counters)) = (value.as_object_mut(), json!(telemetry.summary())) {
        for (name, counter) in counters {
            value.entry(name).or_insert(counter);
        }
    }
}

/// Why the run did not start, or was aborted, as JSON.
pub(crate) fn failure_json(pipeline: &str, error: &RunError, watch: &RunWatch) -> Value {
    let (code, not_before) = match error {
        RunError::Service { code, until, .. } => (Some(code.as_str()), until.map(Wall::millis)),
        _ => (None, None),
    };
    let mut value = json!({
        "pipeline": pipeline,
        "status": error.status(),
        "error": error.to_string(),
        "code": code,
        "not_before_ms": not_before,
        "source": lock(&watch.source).clone(),
    });
    add_counters(&mut value, &watch.telemetry);
    value
}
