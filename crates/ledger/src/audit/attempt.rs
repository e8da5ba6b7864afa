//! Audit entries for calls to services: one entry per call, with all its attempts.
//!
//! An entry does not contain the request, because its URL holds values of the record, such as an
//! address. The caller adds the key of the record or, for a page of a source, its position in the
//! layer.

use serde_json::json;

use super::AuditEvent;
use tidegate_client::call::CallOutcome;

/// The audit event of a finished call.
#[must_use]
pub fn attempt<T>(service: &str, outcome: &CallOutcome<T>, at_ms: i64) -> AuditEvent {
    let attempts: Vec<_> = outcome
        .history()
        .iter()
        .map(|attempt| {
            let verdict = &attempt.verdict;
            json!({
                "code": verdict.code.as_str(), "status": verdict.status,
                "took_ms": attempt.settled.since(attempt.sent).as_millis() as u64,
                "waited_ms": attempt.delay.as_millis() as u64,
            })
        })
        .collect();
    let detail = json!({
        "ended": outcome.word(), "attempts": attempts, "calls": outcome.attempts(),
        "elapsed_ms": outcome.elapsed.as_millis() as u64,
    });
    AuditEvent::new(at_ms, "attempt", detail).code(outcome.verdict.code.as_str()).to(service)
}
