//! Calls to services, as entries: one per question, with all its attempts.
//!
//! What was asked of a record is not in it: an address is a value of a record. The record is named
//! by whoever knows which one asked; a page of a source by its place in the layer.

use serde_json::json;

use super::Act;
use crate::call::Outcome;
use crate::lock::lock;

/// How a call to a service ended, at this time.
pub(crate) fn attempt<T>(service: &str, outcome: &Outcome<T>, at_ms: i64) -> Act {
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
    Act::new(at_ms, "attempt", detail).code(outcome.verdict.code.as_str()).to(service)
}

/// Notes calls on their way to the audit.
#[derive(Debug)]
pub(crate) struct Attempts {
    service: String,
    /// Every call, and not only those that failed in the end.
    all: bool,
    noted: std::sync::Mutex<Vec<([u8; 32], Act)>>,
}

impl Attempts {
    pub(crate) fn new(service: &str, all: bool) -> Attempts {
        Attempts { service: service.to_owned(), all, noted: std::sync::Mutex::default() }
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Vec<([u8; 32], Act)>> {
        lock(&self.noted)
    }

    /// Notes how the call of a question ended, at this time.
    pub(crate) fn note<T>(&self, question: &[u8; 32], outcome: &Outcome<T>, at_ms: i64) {
        if self.all || !outcome.is_accepted() {
            self.noted().push((*question, attempt(&self.service, outcome, at_ms)));
        }
    }

    /// What was noted, each with the first row that asked; `keys` are the questions by row.
    pub(crate) fn take(&self, keys: &[Option<[u8; 32]>]) -> Vec<(usize, Act)> {
        let mut noted = std::mem::take(&mut *self.noted());
        let row = |question: &[u8; 32]| keys.iter().position(|key| key.as_ref() == Some(question));
        let mut acts: Vec<(usize, Act)> =
            noted.drain(..).map(|(question, act)| (row(&question).unwrap_or(usize::MAX), act)).collect();
        acts.sort_by_key(|(row, _)| *row);
        acts
    }
}
