//! Lanes for Python.
//!
//! | file | holds |
//! |---|---|
//! | `settings` | the arguments of a lane, checked |
//! | `home` | the lanes of this process |
//! | `live` | a lane in this process |
//! | `request`, `response`, `ended` | requests, responses, and how a call ended |
//! | `many` | many requests in a bounded window |
//! | `permit` | permits for clients of one's own |
//! | `signal`, `exception` | what responses and exceptions of other clients mean |
//! | `steps` | a call in steps, for decorators and adapters |
//! | `log` | events of the engine for `logging` |

mod ended;
mod exception;
mod home;
mod live;
mod log;
mod many;
mod permit;
mod request;
mod response;
mod settings;
mod signal;
mod steps;

use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate_client::call::{Later, given_up, patient};
use tidegate_client::http::Request;
use tidegate_client::lane::{LaneKey, LanePermit, Refused};
use tidegate_core::Code;
use tidegate_core::breaker::BreakerState;
use tidegate_core::patience::TryLater;

use crate::bridge::ReadyValue;
use crate::{bridge, errors, runtime};
use ended::CallEnd;
use live::{LiveLane, LiveSlot};
use many::{PyAsyncResponseIterator, PyResponseIterator};
use permit::{PyPermit, PyVerdict};
use request::{RequestArguments, request};
use response::{PatientOutcome, PyResponse};
use settings::{LaneArguments, LaneSettings};
use steps::PyCall;

/// A lane: all calls to one host with one credential, below its limits.
#[pyclass(name = "Lane", module = "tidegate._core", subclass, frozen)]
struct PyLane {
    settings: Arc<LaneSettings>,
    slot: LiveSlot,
}

impl PyLane {
    fn live(&self, py: Python<'_>) -> PyResult<Arc<LiveLane>> {
        self.slot.get(py, &self.settings)
    }

    fn send(
        &self,
        py: Python<'_>,
        method: Method,
        from: &RequestArguments<'_, '_>,
    ) -> PyResult<Py<PyResponse>> {
        let live = self.live(py)?;
        let request = request(py, &self.settings, method, from)?;
        let exchange = live.exchange(py)?;
        let outcome = runtime::wait(py, call(&live, exchange, &request))?;
        PyResponse::of(&live.handle, exchange, request.url.into(), outcome).accepted(py)
    }

    fn send_async<'py>(
        &self,
        py: Python<'py>,
        method: Method,
        from: &RequestArguments<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let live = self.live(py)?;
        let request = request(py, &self.settings, method, from)?;
        let exchange = live.exchange(py)?.clone();
        let work = async move {
            let outcome = call(&live, &exchange, &request).await;
            PyResponse::of(&live.handle, &exchange, request.url.into(), outcome)
        };
        bridge::spawn(py, work, |py, response| response.accepted(py).map(Py::into_any))
    }
}

/// One call, with the patience of its lane.
async fn call(
    live: &LiveLane,
    exchange: &tidegate_client::http::Exchange,
    request: &Request,
) -> PatientOutcome {
    let lane = &live.handle;
    patient(lane, live.settings.patience, |_| exchange.call_in(lane, request, live.chance())).await
}

/// Waits for a permit, with the patience of the lane.
async fn acquire(live: &LiveLane) -> Result<LanePermit, Later> {
    let lane = &live.handle;
    let turn = tokio::select! {
        biased;
        turn = lane.acquire(None) => turn,
        later = given_up(lane, live.settings.patience) => return Err(later),
    };
    turn.map_err(|refused| {
        let (until, code) = match refused {
            Refused::Shut(until, code) => (until, code),
            Refused::Late(until) => (until, Code::DEADLINE_EXCEEDED),
            Refused::Closed => (lane.clock().mono(), Code::CANCELLED),
        };
        Later::of(lane, TryLater { code, until })
    })
}

#[pymethods]
impl PyLane {
    #[new]
    #[pyo3(signature = (
        url=None, *, profile=None, profiles=None, policy=None, key=None, headers=None, user_agent=None,
        patience=None, shared=None, state=None, allow_private=false, allow_hosts=Vec::new()
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        url: Option<&str>,
        profile: Option<&str>,
        profiles: Option<PathBuf>,
        policy: Option<&Bound<'_, PyAny>>,
        key: Option<&str>,
        headers: Option<&Bound<'_, PyAny>>,
        user_agent: Option<&str>,
        patience: Option<&Bound<'_, PyAny>>,
        shared: Option<String>,
        state: Option<PathBuf>,
        allow_private: bool,
        allow_hosts: Vec<String>,
    ) -> PyResult<PyLane> {
        let from = LaneArguments {
            profile,
            profiles,
            policy,
            key,
            headers,
            user_agent,
            patience,
            shared,
            state,
            allow_private,
            allow_hosts,
        };
        let settings = Arc::new(LaneSettings::of_service(py, url, from)?);
        let lane = PyLane { settings, slot: LiveSlot::new() };
        lane.live(py)?;
        Ok(lane)
    }

    /// The lane of a function, which has no host.
    #[staticmethod]
    #[pyo3(signature = (name, policy=None, patience=None))]
    fn _of_function(
        py: Python<'_>,
        name: &str,
        policy: Option<&Bound<'_, PyAny>>,
        patience: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyLane> {
        let key = LaneKey::of_prefix("function", name);
        let from = LaneArguments {
            profile: None,
            profiles: None,
            policy,
            key: None,
            headers: None,
            user_agent: None,
            patience,
            shared: None,
            state: None,
            allow_private: false,
            allow_hosts: Vec::new(),
        };
        let settings = Arc::new(LaneSettings::of_key(py, key, None, &from)?);
        Ok(PyLane { settings, slot: LiveSlot::new() })
    }

    /// The host, and the name of the credential.
    #[getter]
    fn name(&self) -> String {
        self.settings.key.to_string()
    }

    /// The base of relative URLs.
    #[getter]
    fn url(&self) -> Option<&str> {
        self.settings.url.as_ref().map(url::Url::as_str)
    }

    /// Sends a GET and returns the response; raises CallError unless it was accepted.
    #[pyo3(signature = (url="", *, params=None, headers=None))]
    fn get(
        &self,
        py: Python<'_>,
        url: &str,
        params: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyResponse>> {
        self.send(py, Method::GET, &RequestArguments { url, params, headers, data: None, json: None })
    }

    /// The same as get, to be awaited.
    #[pyo3(signature = (url="", *, params=None, headers=None))]
    fn get_async<'py>(
        &self,
        py: Python<'py>,
        url: &str,
        params: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.send_async(py, Method::GET, &RequestArguments { url, params, headers, data: None, json: None })
    }

    /// Sends a POST. It is repeated only if that is safe: with an Idempotency-Key, or if it was not executed.
    #[pyo3(signature = (url="", *, params=None, headers=None, data=None, json=None))]
    fn post(
        &self,
        py: Python<'_>,
        url: &str,
        params: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        json: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyResponse>> {
        self.send(py, Method::POST, &RequestArguments { url, params, headers, data, json })
    }

    /// The same as post, to be awaited.
    #[pyo3(signature = (url="", *, params=None, headers=None, data=None, json=None))]
    fn post_async<'py>(
        &self,
        py: Python<'py>,
        url: &str,
        params: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        json: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.send_async(py, Method::POST, &RequestArguments { url, params, headers, data, json })
    }

    /// Sends many requests, at most `window` at once, and yields their responses.
    #[pyo3(signature = (requests, *, window=128, ordered=true))]
    fn map(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        window: usize,
        ordered: bool,
    ) -> PyResult<PyResponseIterator> {
        if window == 0 {
            return Err(errors::invalid(py, "window must be at least 1"));
        }
        PyResponseIterator::new(py, self.live(py)?, requests, window, ordered)
    }

    /// The same as map, for `async for`.
    #[pyo3(signature = (requests, *, window=128, ordered=true))]
    fn map_async(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        window: usize,
        ordered: bool,
    ) -> PyResult<PyAsyncResponseIterator> {
        self.map(py, requests, window, ordered).map(PyAsyncResponseIterator::new)
    }

    /// Waits for a permit for one call of a client of one's own.
    fn admit(&self, py: Python<'_>) -> PyResult<PyPermit> {
        let live = self.live(py)?;
        match runtime::wait_ready(py, live.runtime, acquire(&live))? {
            Ok(permit) => Ok(PyPermit::new(live, permit)),
            Err(later) => Err(CallEnd::later(&later, 0, 0.0).raised(py, None)),
        }
    }

    /// The same, to be awaited.
    fn _admit_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let live = self.live(py)?;
        match runtime::poll_once(live.runtime, acquire(&live)) {
            Some(Ok(permit)) => {
                let permit = Py::new(py, PyPermit::new(live, permit))?;
                Ok(Bound::new(py, ReadyValue::new(permit.into_any()))?.into_any())
            }
            Some(Err(later)) => Err(CallEnd::later(&later, 0, 0.0).raised(py, None)),
            None => {
                // A permit that nobody takes is given back in its runtime.
                let work = async move { acquire(&live).await.map(|permit| PyPermit::new(live, permit)) };
                bridge::spawn(py, work, |py, turn| match turn {
                    Ok(permit) => Ok(Py::new(py, permit)?.into_any()),
                    Err(later) => Err(CallEnd::later(&later, 0, 0.0).raised(py, None)),
                })
            }
        }
    }

    /// A call in steps, for decorators and adapters.
    #[pyo3(signature = (repeatable=true))]
    fn call(&self, py: Python<'_>, repeatable: bool) -> PyResult<PyCall> {
        Ok(PyCall::new(self.live(py)?, repeatable))
    }

    /// The same for a request of another client. `replayable` says whether its body can be sent again.
    fn call_for(
        &self,
        py: Python<'_>,
        method: &str,
        headers: &Bound<'_, PyAny>,
        replayable: bool,
    ) -> PyResult<PyCall> {
        let is_idempotent = method.parse::<Method>().is_ok_and(|method| method.is_idempotent());
        let is_safe = is_idempotent || headers.contains(intern!(py, "idempotency-key"))?;
        self.call(py, replayable && is_safe)
    }

    /// Whether bodies are looked at for errors, which a profile asks for.
    #[getter]
    fn reads_bodies(&self) -> bool {
        self.settings.profile.is_some()
    }

    /// The timeout of one attempt, in seconds.
    #[getter]
    fn timeout(&self) -> f64 {
        self.settings.policy.call.attempt_timeout.as_secs_f64()
    }

    /// The lane at this moment.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = self.live(py)?.handle.snapshot();
        let breaker = match now.breaker {
            BreakerState::Closed => "closed",
            BreakerState::Open(_) => "open",
            BreakerState::HalfOpen => "half_open",
        };
        let all = PyDict::new(py);
        all.set_item("key", now.key.to_string())?;
        all.set_item("rate", now.rate)?;
        all.set_item("in_flight", now.in_flight)?;
        all.set_item("cap", now.cap)?;
        all.set_item("waiting", now.waiting)?;
        all.set_item("breaker", breaker)?;
        all.set_item("role", now.role.as_str())?;
        all.set_item("sent", now.counts.sent)?;
        all.set_item("settled", now.counts.settled)?;
        all.set_item("released", now.counts.released)?;
        all.set_item("throttled", now.counts.throttled)?;
        let statuses = PyDict::new(py);
        for (status, count) in &now.counts.statuses {
            statuses.set_item(status, count)?;
        }
        all.set_item("statuses", statuses)?;
        Ok(all)
    }

    fn __repr__(&self) -> String {
        format!("<Lane {}>", self.settings.key)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLane>()?;
    module.add_class::<PyResponse>()?;
    module.add_class::<PyPermit>()?;
    module.add_class::<PyVerdict>()?;
    module.add_class::<PyResponseIterator>()?;
    module.add_class::<PyAsyncResponseIterator>()?;
    home::register(module)?;
    log::register(module)?;
    steps::register(module)
}
