//! A lane in this process: its handle and, once something is sent, its HTTP client.

use std::sync::{Arc, Mutex, OnceLock};

use pyo3::prelude::*;
use tidegate_client::http::{Client, Exchange, ServiceDialect, Trace};
use tidegate_client::lane::{LaneHandle, Lanes};
use tidegate_client::lock::lock;
use tidegate_client::profile::Profile;
use tidegate_client::secret::Redactor;
use tidegate_core::Rng;
use tidegate_core::call::CallPolicy;
use tokio::runtime::Runtime;

use super::home::ProcessLanes;
use super::settings::LaneSettings;
use crate::{errors, runtime};

/// A lane in this process.
pub(crate) struct LiveLane {
    pub(crate) pid: u32,
    pub(crate) settings: Arc<LaneSettings>,
    pub(crate) runtime: &'static Runtime,
    pub(crate) handle: LaneHandle,
    process: &'static ProcessLanes,
    lanes: Lanes,
    exchange: OnceLock<Exchange>,
}

impl LiveLane {
    fn new(py: Python<'_>, settings: &Arc<LaneSettings>) -> PyResult<LiveLane> {
        let (runtime, process) = (runtime::runtime(py)?, ProcessLanes::get(py)?);
        let lanes = py
            .detach(|| process.lanes(&settings.sharing, &settings.lane))
            .map_err(|why| errors::invalid(py, why))?;
        if let Some(secret) = &settings.secret {
            lanes.identify(&secret.name, &secret.secret);
        }
        lanes.fix(settings.key.clone(), &settings.lane);
        let handle = lanes.get(&settings.key);
        let (pid, settings, exchange) = (runtime::pid(), settings.clone(), OnceLock::new());
        Ok(LiveLane { pid, settings, runtime, handle, process, lanes, exchange })
    }

    /// Whether it belongs to this process, and not to the one that forked it.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == runtime::pid()
    }

    /// The policy of its calls.
    pub(crate) fn policy(&self) -> CallPolicy {
        self.settings.policy.call
    }

    /// The chance of the next call.
    pub(crate) fn chance(&self) -> Rng {
        self.process.chance()
    }

    /// What sends requests; made for the first.
    pub(crate) fn exchange(&self, py: Python<'_>) -> PyResult<&Exchange> {
        if let Some(exchange) = self.exchange.get() {
            return Ok(exchange);
        }
        let settings = &self.settings;
        // Loads certificates, which takes a while.
        let client = py
            .detach(|| Client::new(settings.client.clone(), settings.url.as_ref()))
            .map_err(|why| errors::failure(py, why.to_string()))?;
        let mut dialect =
            settings.profile.as_ref().map_or_else(ServiceDialect::default, Profile::plain_dialect);
        dialect.classifier = settings.classifier;
        let mut redactor = Redactor::new();
        if let Some(secret) = &settings.secret {
            redactor.add(&secret.secret);
        }
        let trace = Trace::of(settings.profile.as_ref().is_some_and(Profile::trace_context));
        let (lanes, policy) = (self.lanes.clone(), settings.policy.call);
        let made = Exchange { client, lanes, dialect, policy, redactor: Arc::new(redactor), trace };
        Ok(self.exchange.get_or_init(|| made))
    }
}

/// The lane of a `Lane` object, made in each process that uses it.
pub(crate) struct LiveSlot(Mutex<Option<Arc<LiveLane>>>);

impl LiveSlot {
    pub(crate) fn new() -> LiveSlot {
        LiveSlot(Mutex::new(None))
    }

    /// The lane in this process.
    pub(crate) fn get(&self, py: Python<'_>, settings: &Arc<LaneSettings>) -> PyResult<Arc<LiveLane>> {
        // Locked only with the interpreter's lock, and never across Python code.
        if let Some(live) = lock(&self.0).as_ref().filter(|live| live.is_ours()) {
            return Ok(live.clone());
        }
        let made = Arc::new(LiveLane::new(py, settings)?);
        let mut slot = lock(&self.0);
        if let Some(live) = slot.as_ref().filter(|live| live.is_ours()) {
            return Ok(live.clone());
        }
        // Nothing of the parent is dropped in a child: its connections belong to threads that are not there.
        std::mem::forget(slot.replace(made.clone()));
        Ok(made)
    }
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        if let Some(live) = lock(&self.0).take() {
            if live.is_ours() {
                // Connections and timers are given up in their runtime.
                let _inside = live.runtime.enter();
                drop(live);
            } else {
                std::mem::forget(live);
            }
        }
    }
}
