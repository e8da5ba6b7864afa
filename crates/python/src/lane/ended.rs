//! How a call ended, and the exception for one that failed.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use tidegate_client::call::{CallOutcome, Later};
use tidegate_client::lane::LaneHandle;
use tidegate_core::call::Next;
use tidegate_core::{Code, VerdictKind, Wall};

use crate::errors;

static CALL_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static RATE_LIMIT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CIRCUIT_OPEN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static DATETIME: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static UTC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// How a call ended, in the words of the taxonomy.
#[derive(Clone, Debug)]
pub(crate) struct CallEnd {
    /// Whether an answer was accepted.
    pub(crate) ok: bool,
    /// Such as `done` or `transient_503_exhausted`.
    pub(crate) outcome: String,
    pub(crate) code: Code,
    pub(crate) status: Option<u16>,
    pub(crate) attempts: u32,
    pub(crate) elapsed: f64,
    /// The earliest time of another call, if the service or the breaker named one.
    pub(crate) not_before: Option<Wall>,
    /// The service refused because of a limit.
    is_limit: bool,
    /// One sentence.
    pub(crate) said: String,
}

impl CallEnd {
    /// Of an outcome; `said` is what the server or the network said.
    pub(crate) fn of<T>(lane: &LaneHandle, outcome: &CallOutcome<T>, said: Option<&str>) -> CallEnd {
        let verdict = &outcome.verdict;
        let until = match outcome.next {
            Next::Park(until, _) => Some(until),
            Next::GiveUp(_) => verdict.until(),
            Next::Accept | Next::RetryAt(_) => None,
        };
        let word = outcome.word();
        let ok = outcome.is_accepted();
        let sentence = if ok {
            String::new()
        } else {
            let attempts = outcome.attempts();
            let plural = if attempts == 1 { "" } else { "s" };
            let host = lane.key().host();
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            format!("{host}: {word} after {attempts} attempt{plural}{said}")
        };
        CallEnd {
            ok,
            outcome: word,
            code: verdict.code,
            status: verdict.status,
            attempts: outcome.attempts(),
            elapsed: outcome.elapsed.as_secs_f64(),
            not_before: until.map(|until| lane.clock().wall_of(until)),
            is_limit: matches!(verdict.kind, VerdictKind::Throttled { .. } | VerdictKind::QuotaSpent { .. }),
            said: sentence,
        }
    }

    /// Of a wait that is longer than the patience of the caller.
    pub(crate) fn later(later: &Later, attempts: u32, elapsed: f64) -> CallEnd {
        let outcome = match later.code {
            Code::CIRCUIT_OPEN => "circuit_open".to_owned(),
            Code::QUOTA_EXHAUSTED => "quota_spent".to_owned(),
            code => format!("{}_hint_too_far", code.as_str().to_ascii_lowercase()),
        };
        CallEnd {
            ok: false,
            outcome,
            code: later.code,
            status: None,
            attempts,
            elapsed,
            not_before: Some(later.until),
            is_limit: false,
            said: later.said.clone(),
        }
    }

    /// The exception: `CircuitOpen`, `RateLimitExceeded` if the service said when to come back or
    /// refused because of a limit, else `CallError`.
    pub(crate) fn error<'py>(
        &self,
        py: Python<'py>,
        response: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = if self.code == Code::CIRCUIT_OPEN {
            errors::class(py, &CIRCUIT_OPEN, "CircuitOpen")
        } else if (self.not_before.is_some() && self.code != Code::DNS_FAILURE) || self.is_limit {
            errors::class(py, &RATE_LIMIT, "RateLimitExceeded")
        } else {
            errors::class(py, &CALL_ERROR, "CallError")
        }?;
        let fields = PyDict::new(py);
        fields.set_item("outcome", &self.outcome)?;
        fields.set_item("code", self.code.as_str())?;
        fields.set_item("status", self.status)?;
        fields.set_item("attempts", self.attempts)?;
        fields.set_item("not_before", not_before(py, self.not_before)?)?;
        fields.set_item("response", response)?;
        class.call((&self.said,), Some(&fields))
    }

    /// The same, to be raised.
    pub(crate) fn raised(&self, py: Python<'_>, response: Option<&Bound<'_, PyAny>>) -> PyErr {
        match self.error(py, response) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }
}

/// A time as an aware `datetime`.
pub(crate) fn not_before<'py>(py: Python<'py>, at: Option<Wall>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(at) = at else { return Ok(None) };
    let class = DATETIME.import(py, "datetime", "datetime")?;
    let utc = UTC.import(py, "datetime", "UTC")?;
    class.call_method1("fromtimestamp", (at.millis() as f64 / 1000.0, utc)).map(Some)
}
