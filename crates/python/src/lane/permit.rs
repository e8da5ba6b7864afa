//! A permit of a lane, for a client of one's own.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use tidegate_client::lane::LanePermit;
use tidegate_client::lock::lock;
use tidegate_core::hint::Hints;
use tidegate_core::{Verdict, VerdictKind, Wall};

use super::ended::not_before;
use super::live::LiveLane;
use super::signal::JudgedAttempt;
use super::{exception, signal};
use crate::errors;

/// The right to make one call. Settle it with what came back; if it is dropped, it is given back.
#[pyclass(name = "Permit", module = "tidegate._core", frozen)]
pub(crate) struct PyPermit {
    live: Arc<LiveLane>,
    permit: Mutex<Option<LanePermit>>,
}

impl PyPermit {
    pub(crate) fn new(live: Arc<LiveLane>, permit: LanePermit) -> PyPermit {
        PyPermit { live, permit: Mutex::new(Some(permit)) }
    }

    fn take(&self) -> Option<LanePermit> {
        let permit = lock(&self.permit).take()?;
        if self.live.is_ours() {
            return Some(permit);
        }
        // The lane of the parent must not be touched in a child.
        std::mem::forget(permit);
        None
    }

    fn give(&self, permit: LanePermit, (verdict, hints): &JudgedAttempt) {
        let _inside = self.live.runtime.enter();
        permit.settle(verdict, hints, |_, _| ());
    }
}

impl Drop for PyPermit {
    fn drop(&mut self) {
        if let Some(permit) = self.take() {
            let _inside = self.live.runtime.enter();
            drop(permit);
        }
    }
}

#[pymethods]
impl PyPermit {
    /// Settles the permit with a response of any client, a status with headers, or an exception.
    #[pyo3(signature = (response=None, *, status=None, headers=None, content=None, exception=None))]
    fn settle(
        &self,
        py: Python<'_>,
        response: Option<&Bound<'_, PyAny>>,
        status: Option<u16>,
        headers: Option<&Bound<'_, PyAny>>,
        content: Option<&[u8]>,
        exception: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyVerdict> {
        let judged = judge(py, &self.live, &Came { response, status, headers, content, exception })?;
        let Some(permit) = self.take() else {
            return Err(errors::invalid(py, "the permit was settled or released before"));
        };
        match judged {
            Some(judged) => {
                self.give(permit, &judged);
                Ok(PyVerdict::of(&self.live, &judged))
            }
            None => {
                let _inside = self.live.runtime.enter();
                drop(permit);
                Err(errors::invalid(py, "the exception is not an outcome of a call; the permit was released"))
            }
        }
    }

    /// Gives the permit back; the lane learns nothing.
    fn release(&self) {
        if let Some(permit) = self.take() {
            let _inside = self.live.runtime.enter();
            drop(permit);
        }
    }

    /// Whether it has been settled or released.
    #[getter]
    fn settled(&self) -> bool {
        lock(&self.permit).is_none()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind=None, error=None, trace=None))]
    fn __exit__(
        &self,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (kind, trace);
        if let Some(permit) = self.take() {
            let judged = error.map(|error| exception::judge(&self.live, error)).transpose()?.flatten();
            match judged {
                Some(judged) => self.give(permit, &judged),
                None => {
                    let _inside = self.live.runtime.enter();
                    drop(permit);
                }
            }
        }
        Ok(false)
    }
}

/// What came back of an attempt, as it was given.
pub(crate) struct Came<'a, 'py> {
    pub(crate) response: Option<&'a Bound<'py, PyAny>>,
    pub(crate) status: Option<u16>,
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) content: Option<&'a [u8]>,
    pub(crate) exception: Option<&'a Bound<'py, PyAny>>,
}

/// What it means; `None` for an exception that is no outcome of a call.
pub(crate) fn judge(py: Python<'_>, live: &LiveLane, came: &Came<'_, '_>) -> PyResult<Option<JudgedAttempt>> {
    if let Some(error) = came.exception.filter(|error| !error.is_none()) {
        return exception::judge(live, error);
    }
    let response = came.response.filter(|response| !response.is_none());
    let Some(status) = came.status.or_else(|| response.and_then(signal::status_of)) else {
        return Err(errors::invalid(
            py,
            "settle takes a response with a status, `status=` with `headers=`, or `exception=`",
        ));
    };
    let own = match (came.headers, response) {
        (None, Some(response)) => response.getattr_opt("headers")?,
        _ => None,
    };
    let headers = came.headers.or(own.as_ref()).filter(|headers| !headers.is_none());
    signal::of_response(live, status, headers, came.content).map(Some)
}

/// What an attempt meant.
#[pyclass(name = "Verdict", module = "tidegate._core", frozen)]
pub(crate) struct PyVerdict {
    verdict: Verdict,
    until: Option<Wall>,
}

impl PyVerdict {
    pub(crate) fn of(live: &LiveLane, (verdict, _): &(Verdict, Hints)) -> PyVerdict {
        let until = verdict.until().map(|until| live.handle.clock().wall_of(until));
        PyVerdict { verdict: *verdict, until }
    }
}

#[pymethods]
impl PyVerdict {
    /// done, no_match, throttled, transient, permanent or quota_spent.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.verdict.kind {
            VerdictKind::Done => "done",
            VerdictKind::NoMatch => "no_match",
            VerdictKind::Throttled { .. } => "throttled",
            VerdictKind::Transient { .. } => "transient",
            VerdictKind::Permanent => "permanent",
            VerdictKind::QuotaSpent { .. } => "quota_spent",
        }
    }

    /// The code of the taxonomy.
    #[getter]
    fn code(&self) -> String {
        self.verdict.code.to_string()
    }

    /// The HTTP status, if there was a response.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.verdict.status
    }

    /// The earliest time of the next call, if the server said.
    #[getter]
    fn not_before<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        not_before(py, self.until)
    }

    fn __repr__(&self) -> String {
        format!("<Verdict {} {}>", self.kind(), self.verdict.code)
    }
}
