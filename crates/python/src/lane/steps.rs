//! A call in steps, for decorators and adapters: admit, send, judge, until it has ended.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tidegate_client::call::{CallSteps, StepsEnd, StepsNext};
use tidegate_client::lock::lock;
use tidegate_core::Verdict;
use tidegate_core::call::{Call, GiveUpReason, Next};
use tidegate_core::hint::Hints;

use super::ended::CallEnd;
use super::exception;
use super::live::LiveLane;
use super::permit::{Came, judge};
use super::signal::{self, JudgedAttempt};
use crate::bridge::ReadyValue;
use crate::{bridge, errors, runtime};

/// The answer is to be taken.
const ACCEPT: u8 = 0;
/// Another attempt follows.
const RETRY: u8 = 1;
/// The call has failed; `error` says how.
const FAILED: u8 = 2;
/// What came is no outcome of a call.
const FOREIGN: u8 = 3;

/// The steps of a call, which are given up in their own runtime, and never in a forked child.
struct OwnedSteps {
    live: Arc<LiveLane>,
    steps: Option<Box<CallSteps>>,
}

impl Drop for OwnedSteps {
    fn drop(&mut self) {
        let Some(steps) = self.steps.take() else { return };
        if self.live.is_ours() {
            let _inside = self.live.runtime.enter();
            drop(steps);
        } else {
            std::mem::forget(steps);
        }
    }
}

/// One call through a lane, whose attempts the caller sends.
#[pyclass(name = "Call", module = "tidegate._core", frozen)]
pub(crate) struct PyCall {
    live: Arc<LiveLane>,
    /// `None` while it waits, and after a wait that was interrupted.
    steps: Mutex<Option<OwnedSteps>>,
    end: Mutex<Option<CallEnd>>,
}

impl PyCall {
    pub(crate) fn new(live: Arc<LiveLane>, is_repeatable: bool) -> PyCall {
        let call = if is_repeatable { Call::new() } else { Call::once() };
        let policy = live.policy();
        let steps = CallSteps::new(live.handle.clone(), policy, call, live.chance(), live.settings.patience);
        let steps = OwnedSteps { live: live.clone(), steps: Some(Box::new(steps)) };
        PyCall { live, steps: Mutex::new(Some(steps)), end: Mutex::new(None) }
    }

    fn take(&self, py: Python<'_>) -> PyResult<OwnedSteps> {
        let steps = lock(&self.steps).take();
        match steps {
            Some(steps) if self.live.is_ours() => Ok(steps),
            Some(_) => {
                Err(errors::failure(py, "the call was begun in another process, which forked this one"))
            }
            None => Err(errors::failure(py, "the call has ended, or waits in another thread")),
        }
    }

    fn keep(&self, steps: OwnedSteps) {
        *lock(&self.steps) = Some(steps);
    }

    /// The end of a call, as an error.
    fn ended(&self, steps: &OwnedSteps, end: StepsEnd) -> CallEnd {
        let attempts = steps.steps.as_ref().map_or(0, |steps| steps.attempts());
        let end = match end {
            StepsEnd::Ended(outcome) => CallEnd::of(&self.live.handle, &outcome, None),
            StepsEnd::Later(later) => CallEnd::later(&later, attempts, 0.0),
        };
        *lock(&self.end) = Some(end.clone());
        end
    }

    fn settle(&self, py: Python<'_>, (verdict, hints): &JudgedAttempt, answers: bool) -> PyResult<u8> {
        let mut steps = self.take(py)?;
        let inside = self.live.runtime.enter();
        let next = match &mut steps.steps {
            Some(steps) => steps.settle(verdict, hints),
            None => Ok(StepsNext::Accept),
        };
        drop(inside);
        let what = match next {
            Ok(StepsNext::Accept) => ACCEPT,
            Ok(StepsNext::Retry) => RETRY,
            Err(StepsEnd::Ended(outcome))
                if answers && outcome.next == Next::GiveUp(GiveUpReason::Permanent) =>
            {
                // The service has answered, if not as hoped.
                self.ended(&steps, StepsEnd::Ended(outcome));
                ACCEPT
            }
            Err(end) => {
                self.ended(&steps, end);
                FAILED
            }
        };
        if what == RETRY {
            self.keep(steps);
        }
        Ok(what)
    }
}

#[pymethods]
impl PyCall {
    /// Waits until an attempt may be sent; raises if none may be sent any more.
    fn admit(&self, py: Python<'_>) -> PyResult<()> {
        let mut steps = self.take(py)?;
        let admitted = runtime::wait_ready(py, self.live.runtime, admit(&mut steps))?;
        match admitted {
            Ok(()) => {
                self.keep(steps);
                Ok(())
            }
            Err(end) => Err(self.ended(&steps, end).raised(py, None)),
        }
    }

    /// The same, to be awaited.
    fn admit_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let mut steps = this.take(py)?;
        if let Some(admitted) = runtime::poll_once(this.live.runtime, admit(&mut steps)) {
            return match admitted {
                Ok(()) => {
                    this.keep(steps);
                    Ok(Bound::new(py, ReadyValue::new(py.None()))?.into_any())
                }
                Err(end) => Err(this.ended(&steps, end).raised(py, None)),
            };
        }
        let own = slf.clone().unbind();
        let work = async move {
            let admitted = admit(&mut steps).await;
            (steps, admitted)
        };
        bridge::spawn(py, work, move |py, (steps, admitted)| {
            let this = own.get();
            match admitted {
                Ok(()) => {
                    this.keep(steps);
                    Ok(py.None())
                }
                Err(end) => Err(this.ended(&steps, end).raised(py, None)),
            }
        })
    }

    /// The attempt returned a value. One with a status is judged by it; anything else is an answer.
    fn returned(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<u8> {
        let status = if is_plain(value) { None } else { signal::status_of(value) };
        let judged = match status {
            Some(_) => {
                let came =
                    Came { response: Some(value), status, headers: None, content: None, exception: None };
                judge(py, &self.live, &came)?
            }
            None => None,
        };
        self.settle(py, &judged.unwrap_or((Verdict::DONE, Hints::default())), true)
    }

    /// The attempt got a response with this status and these headers.
    #[pyo3(signature = (status, headers=None, content=None))]
    fn answered(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        content: Option<&[u8]>,
    ) -> PyResult<u8> {
        let judged = signal::of_response(&self.live, status, headers, content)?;
        self.settle(py, &judged, true)
    }

    /// The attempt raised an exception.
    fn raised(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<u8> {
        match exception::judge(&self.live, error)? {
            Some(judged) => self.settle(py, &judged, false),
            None => {
                self.release();
                Ok(FOREIGN)
            }
        }
    }

    /// Gives up the call; the lane learns nothing.
    fn release(&self) {
        let steps = lock(&self.steps).take();
        drop(steps);
    }

    /// The exception of a call that has failed.
    #[pyo3(signature = (response=None))]
    fn error<'py>(
        &self,
        py: Python<'py>,
        response: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let end = lock(&self.end).clone();
        match end {
            Some(end) => end.error(py, response),
            None => Err(errors::failure(py, "the call has not failed")),
        }
    }

    /// The number of attempts.
    #[getter]
    fn attempts(&self) -> u32 {
        let sent = lock(&self.steps).as_ref().and_then(|steps| Some(steps.steps.as_ref()?.attempts()));
        sent.or_else(|| lock(&self.end).as_ref().map(|end| end.attempts)).unwrap_or(0)
    }
}

async fn admit(steps: &mut OwnedSteps) -> Result<(), StepsEnd> {
    match &mut steps.steps {
        Some(steps) => steps.admit().await,
        None => Ok(()),
    }
}

/// Whether a value is of a type that no client has for a response.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyDict>()
        || value.is_exact_instance_of::<PyList>()
        || value.is_exact_instance_of::<PyTuple>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ACCEPT", ACCEPT)?;
    module.add("RETRY", RETRY)?;
    module.add("FAILED", FAILED)?;
    module.add("FOREIGN", FOREIGN)?;
    module.add_class::<PyCall>()
}
