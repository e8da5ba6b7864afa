//! Calls to services, as entries: one per question, with all its attempts.
//!
//! What was asked of a record is not in it: an address is a value of a record. The record is named
//! by whoever knows which one asked; a page of a source by its place in the layer.

use serde_json::json;

use super::AuditEvent;
use tidegate_client::call::CallOutcome;

/// How a call to a service ended, at this time.
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
