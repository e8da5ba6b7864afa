//! The response to a call, and how the call ended.

use bytes::Bytes;
use http::HeaderMap;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString};
use tidegate_client::call::{CallOutcome, Later};
use tidegate_client::http::{Answered, Exchange};
use tidegate_client::lane::LaneHandle;

use super::ended::{CallEnd, not_before};

static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// The longest excerpt of a body in a message, in characters.
const EXCERPT_CHARS: usize = 200;

/// A response, or why there is none.
#[pyclass(name = "Response", module = "tidegate._core", frozen)]
pub(crate) struct PyResponse {
    end: CallEnd,
    headers: HeaderMap,
    body: Bytes,
    url: String,
}

/// The result of a call, with the lane's patience.
pub(crate) type PatientOutcome = Result<CallOutcome<Answered>, Later>;

impl PyResponse {
    pub(crate) fn of(
        lane: &LaneHandle,
        exchange: &Exchange,
        url: String,
        outcome: PatientOutcome,
    ) -> PyResponse {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(later) => {
                let end = CallEnd::later(&later, 0, 0.0);
                return PyResponse { end, headers: HeaderMap::new(), body: Bytes::new(), url };
            }
        };
        let said = match &outcome.value {
            _ if outcome.is_accepted() => None,
            Some(Ok(parsed)) => Some(parsed.response.excerpt(EXCERPT_CHARS, &exchange.redactor))
                .filter(|said| !said.is_empty()),
            Some(Err(failure)) => Some(failure.to_string()),
            None => None,
        };
        let end = CallEnd::of(lane, &outcome, said.as_deref());
        match outcome.value {
            Some(Ok(parsed)) => {
                let response = parsed.response;
                PyResponse { end, headers: response.headers, body: response.body, url: response.url.into() }
            }
            _ => PyResponse { end, headers: HeaderMap::new(), body: Bytes::new(), url },
        }
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.end.ok
    }

    /// The response if it was accepted, else the exception.
    pub(crate) fn accepted(self, py: Python<'_>) -> PyResult<Py<PyResponse>> {
        let (is_ok, end) = (self.is_ok(), (!self.is_ok()).then(|| self.end.clone()));
        let response = Py::new(py, self)?;
        match end {
            Some(end) if !is_ok => Err(end.raised(py, Some(response.bind(py).as_any()))),
            _ => Ok(response),
        }
    }
}

#[pymethods]
impl PyResponse {
    /// Whether the answer was accepted; an empty result is an answer.
    #[getter]
    fn ok(&self) -> bool {
        self.end.ok
    }

    /// The outcome as one word: done, no_match, permanent_404, transient_503_exhausted, circuit_open.
    #[getter]
    fn outcome(&self) -> &str {
        &self.end.outcome
    }

    /// The code of the taxonomy, such as OK or RATE_LIMITED.
    #[getter]
    fn code(&self) -> String {
        self.end.code.to_string()
    }

    /// The HTTP status; None if there was no response.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.end.status
    }

    /// The HTTP status, by the name that other clients have for it; 0 if there was no response.
    #[getter]
    fn status_code(&self) -> u16 {
        self.end.status.unwrap_or(0)
    }

    /// The headers, by their names in lower case.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for name in self.headers.keys() {
            let values: Vec<_> = self
                .headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            all.set_item(name.as_str(), values.join(", "))?;
        }
        Ok(all)
    }

    /// The body.
    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.body)
    }

    /// The body as text; what is not UTF-8 is replaced.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, &String::from_utf8_lossy(&self.body))
    }

    /// The body, parsed as JSON.
    fn json(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(LOADS.import(py, "json", "loads")?.call1((self.content(py),))?.unbind())
    }

    /// The URL of the response, without credentials.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The number of attempts.
    #[getter]
    fn attempts(&self) -> u32 {
        self.end.attempts
    }

    /// Seconds from the start of the call to its end, waits included.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.end.elapsed
    }

    /// The earliest time of another call, if the service named one.
    #[getter]
    fn not_before<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        not_before(py, self.end.not_before)
    }

    /// One sentence about a call that failed; empty if it did not.
    #[getter]
    fn message(&self) -> &str {
        &self.end.said
    }

    /// Raises CallError, RateLimitExceeded or CircuitOpen unless the answer was accepted.
    fn raise_for_outcome(slf: &Bound<'_, Self>) -> PyResult<()> {
        let end = &slf.get().end;
        if end.ok { Ok(()) } else { Err(end.raised(slf.py(), Some(slf.as_any()))) }
    }

    fn __repr__(&self) -> String {
        format!("<Response {} {}>", self.end.outcome, self.url)
    }
}
