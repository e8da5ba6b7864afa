//! The calls for all rasters of a run, or of a command.
//!
//! They share one set of lanes, so that what a server asked for while one raster was read holds for the
//! next one, and in a run for everything else that calls the server.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use tidegate_core::Code;
use tidegate_core::call::CallPolicy;
use tidegate_raster::RasterError;
use tokio::runtime::Runtime;

use crate::call::{CallOutcome, Later};
use crate::lane::{Clock, LaneHandle, LaneKey, Lanes};
use crate::lock::lock;
use crate::preset;
use crate::step::{FailedCall, call_history};
use crate::store::{ObjectStoreClient, OpenError, StoreSettings};
use crate::telemetry::ServiceMetrics;
use crate::traffic::Traffic;

/// The lanes and counters of remote reads. The default is that of a process without a run.
#[derive(Default)]
pub struct RasterCalls {
    traffic: Option<Traffic>,
    /// The lanes of a process without a run.
    own: OnceLock<Lanes>,
    /// The counters of each server.
    lines: Mutex<HashMap<LaneKey, ServiceMetrics>>,
    /// The stores that are open, by their bucket.
    stores: Mutex<HashMap<String, ObjectStoreClient>>,
    trouble: Mutex<Option<RasterTrouble>>,
}

/// The last call that failed.
#[derive(Clone, Debug)]
pub(crate) enum RasterTrouble {
    /// The server wants no calls for longer than there is patience.
    Later(Later),
    /// The server was asked and did not give what was asked for.
    Failed(Code, FailedCall),
}

impl fmt::Debug for RasterCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RasterCalls")
    }
}

impl RasterCalls {
    /// Those of a run.
    #[must_use]
    pub fn of_run(traffic: &Traffic) -> RasterCalls {
        RasterCalls { traffic: Some(traffic.clone()), ..RasterCalls::default() }
    }

    pub(super) fn lanes(&self) -> Lanes {
        match &self.traffic {
            Some(traffic) => traffic.lanes(&preset::lane()),
            None => self.own.get_or_init(|| Lanes::new(&preset::lane(), Clock::system())).clone(),
        }
    }

    /// The runtime of the calls. Lanes have timers on it, so a run has one.
    pub(super) fn runtime(&self) -> Result<Arc<Runtime>, RasterError> {
        static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();
        if let Some(traffic) = &self.traffic {
            return traffic.runtime().map_err(|error| RasterError::invalid(String::from(error)));
        }
        if let Some(runtime) = RUNTIME.get() {
            return Ok(runtime.clone());
        }
        // They wait, so two threads are enough.
        let made = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(RUNTIME.get_or_init(|| Arc::new(made)).clone())
    }

    /// The store of a bucket.
    pub(super) fn store(&self, home: &str, settings: &StoreSettings) -> Result<ObjectStoreClient, OpenError> {
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(home) {
            return Ok(store.clone());
        }
        let store = match &self.traffic {
            Some(traffic) => ObjectStoreClient::open_for(home, settings, traffic.caller(home))?,
            None => ObjectStoreClient::open(home, settings)?,
        };
        stores.insert(home.to_owned(), store.clone());
        Ok(store)
    }

    /// A call has ended: it is counted, and entered in the audit of the run.
    pub(super) fn ended<T>(
        &self,
        lane: &LaneHandle,
        policy: &CallPolicy,
        what: &str,
        outcome: &CallOutcome<T>,
    ) {
        let Some(traffic) = &self.traffic else { return };
        let caller = traffic.caller(&lane.key().host());
        let line = lock(&self.lines)
            .entry(lane.key().clone())
            .or_insert_with(|| caller.line(lane.key(), policy))
            .clone();
        caller.ended(&line, what, outcome);
    }

    /// A call failed.
    pub(super) fn note(&self, trouble: RasterTrouble) {
        *lock(&self.trouble) = Some(trouble);
    }

    /// A call over HTTP was given up.
    pub(super) fn note_failed<T>(&self, lane: &LaneHandle, url: &str, outcome: &CallOutcome<T>) {
        let (attempts, not_before_ms) = call_history(outcome, lane.clock());
        let host = lane.key().host();
        let call = FailedCall {
            service: host.clone(),
            name: host,
            driver: "http".into(),
            url: url.to_owned(),
            attempts,
            not_before_ms,
        };
        self.note(RasterTrouble::Failed(outcome.verdict.code, call));
    }

    /// Takes the last call that failed, if it failed with this code.
    pub(crate) fn take_trouble(&self, of: Code) -> Option<RasterTrouble> {
        lock(&self.trouble).take().filter(|trouble| match trouble {
            RasterTrouble::Later(later) => later.code == of,
            RasterTrouble::Failed(code, _) => *code == of,
        })
    }

    /// Forgets the calls that failed so far, before another raster.
    pub(crate) fn forget_trouble(&self) {
        lock(&self.trouble).take();
    }

    /// Tells the run why it ends.
    pub(crate) fn defer_report(&self, later: &Later) {
        if let Some(traffic) = &self.traffic {
            traffic.caller("").later(&later.said);
        }
    }
}
