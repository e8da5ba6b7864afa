//! The calls of a run: those of source, steps and sink share one runtime and one set of lanes.
//!
//! A lane is shared by all calls to one host and credential, or to one prefix of a bucket, so it
//! must not matter who sends. A source that is told to wait also delays steps that call the same
//! service, and the limit of a service applies to both together. Lanes have timers on the runtime
//! that created them; with one runtime none of them stops early.
//!
//! | file | holds |
//! |---|---|
//! | `fleet` | lanes that machines share |
//! | `held` | the limits of each lane of a manifest |

mod fleet;
mod held;

pub(crate) use held::{of_source, of_step, uses};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_core::patience;
use tidegate_core::time::seconds;
use tokio::runtime::{Builder, Runtime};

use crate::audit::{self, AuditEvent};
use crate::call::{CallOutcome, SettingsOf};
use crate::error::SetupError;
use crate::lane::{Clock, LaneKey, LaneScope, LaneStates, Lanes};
use crate::letter::now_ms;
use crate::lock::lock;
use crate::manifest::{Manifest, Policy, RateScope};
use crate::run::source::Told;
use crate::telemetry::{ServiceMetrics, Telemetry};

/// The calls of a run to one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServiceCalls {
    /// The name of the service.
    pub service: String,
    /// The number of calls, retries included.
    pub calls: u64,
    /// How many of them were answered.
    pub answered: u64,
    /// How many of them may have been executed twice, at most, if the service bills each: no answer
    /// came, and the call was repeated without an idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maybe_twice: Option<u64>,
    /// What they cost, if the manifest has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// The prices of 1,000 calls, by service.
fn prices(manifest: &Manifest) -> BTreeMap<String, f64> {
    let services = manifest.pipeline.services.iter();
    services.filter_map(|(name, form)| Some((name.clone(), form.price_per_thousand?))).collect()
}

/// The traffic of a run. Clones share it.
#[derive(Clone)]
pub struct Traffic {
    shared: Arc<TrafficState>,
    /// Not in the state that callers share: their calls run on it, and must not be the last to drop
    /// it.
    runtime: Arc<Mutex<Option<Arc<Runtime>>>>,
}

struct TrafficState {
    lanes: Lanes,
    /// The services that are called, with their names.
    services: Mutex<Vec<(String, ServiceMetrics)>>,
    /// The prices of 1,000 calls, by service.
    prices: BTreeMap<String, f64>,
    /// The services that bill each call.
    billed: BTreeSet<String>,
    telemetry: Option<Arc<Telemetry>>,
    /// Whether every call is recorded in the audit, not only failed ones.
    all: bool,
    noted: Mutex<Vec<AuditEvent>>,
    /// Whether to keep calling a service that refuses every record.
    keep_going: bool,
    /// Whether the manifest was built from command-line options, which errors then refer to.
    from_options: bool,
    /// The longest wait that a service may ask for.
    patience: Duration,
    /// The message of the first service that asked for a longer wait than allowed.
    later: Mutex<Option<String>>,
    /// The counts of the source so far.
    told: Arc<Mutex<Option<Told>>>,
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traffic")
    }
}

impl Traffic {
    /// The traffic of a manifest. The manifest says who calls whom, so each lane gets its limits
    /// before the first call. `rate_max` is a further limit for every lane, in calls per second.
    #[must_use]
    pub fn new(manifest: &Manifest, rate_max: Option<f64>, telemetry: Option<Arc<Telemetry>>) -> Traffic {
        let mut policy = Policy::from(manifest);
        let held = uses(manifest);
        let bound = LimitConfig { rate_max, burst: None, in_flight_max: u32::MAX, learn: false };
        policy.lane.limit = policy.lane.limit.and(bound);
        let scope = match manifest.pipeline.rate_limit.scope {
            RateScope::Machine => LaneScope::Machine(None),
            RateScope::Process => LaneScope::Process,
        };
        let lanes = Lanes::new(&policy.lane, Clock::system()).sharing(scope);
        for mut one in held {
            one.lane.limit = one.lane.limit.and(bound);
            lanes.fix(one.key, &one.lane);
        }
        let shared = TrafficState {
            lanes,
            services: Mutex::default(),
            prices: prices(manifest),
            billed: held::billed(manifest),
            telemetry,
            all: manifest.pipeline.audit.attempts,
            noted: Mutex::default(),
            keep_going: false,
            from_options: false,
            patience: manifest
                .pipeline
                .source
                .as_ref()
                .map_or(patience::DEFAULT, |source| seconds(source.patience_seconds)),
            later: Mutex::default(),
            told: Arc::default(),
        };
        Traffic { shared: Arc::new(shared), runtime: Arc::default() }
    }

    /// Lanes start with their saved state from a state directory. Call it before anything is sent.
    #[must_use]
    pub fn keeping(mut self, state: &Path) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            let (clock, wait_max) = (shared.lanes.clock(), shared.lanes.wait_max());
            let states = LaneStates::open_within(state, clock, wait_max);
            shared.lanes = shared.lanes.clone().keeping(states);
        }
        self
    }

    /// Sets whether to keep calling a service that refuses every record.
    #[must_use]
    pub fn going_on(mut self, keep_going: bool) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.keep_going = keep_going;
        }
        self
    }

    /// Sets whether errors refer to command-line options instead of manifest keys.
    #[must_use]
    pub fn from_options(mut self, from_options: bool) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.from_options = from_options;
        }
        self
    }

    /// Whether errors refer to command-line options.
    #[must_use]
    pub fn is_from_options(&self) -> bool {
        self.shared.from_options
    }

    /// Whether to keep calling a service that refuses every record.
    #[must_use]
    pub fn keeps_going(&self) -> bool {
        self.shared.keep_going
    }

    /// The longest wait that a service or a store may ask for, whether by the source, a step or the
    /// sink.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.shared.patience
    }

    /// The message of a service that asked for a longer wait than allowed, if any.
    #[must_use]
    pub fn later(&self) -> Option<String> {
        lock(&self.shared.later).clone()
    }

    /// Sets where the source publishes its counts.
    #[must_use]
    pub fn telling(mut self, place: &Arc<Mutex<Option<Told>>>) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.told = Arc::clone(place);
        }
        self
    }

    /// Publishes the counts of the source.
    pub(crate) fn report_progress(&self, told: Told) {
        *lock(&self.shared.told) = Some(told);
    }

    /// The runtime of all calls, created on first use. Its threads continue with calls while a
    /// batch is written, and one is left for timers and connections while the other parses a large
    /// page.
    ///
    /// # Errors
    /// When the operating system provides no thread.
    pub fn runtime(&self) -> Result<Arc<Runtime>, SetupError> {
        let mut made = lock(&self.runtime);
        if let Some(runtime) = &*made {
            return Ok(runtime.clone());
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("calls")
            .enable_all()
            .build()
            .map(Arc::new)
            .map_err(|e| e.to_string())?;
        Ok(made.insert(runtime).clone())
    }

    /// The lanes; those without a configuration of their own get `config`.
    #[must_use]
    pub fn lanes(&self, config: &LaneConfig) -> Lanes {
        self.shared.lanes.with(config)
    }

    /// The counters of calls to the service of this name.
    #[must_use]
    pub fn line(&self, name: &str, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        self.shared.line(name, key, policy)
    }

    /// The calls to each service so far, by name.
    #[must_use]
    pub fn by_service(&self) -> Vec<ServiceCalls> {
        let mut all: Vec<ServiceCalls> = Vec::new();
        for (name, metrics) in &*lock(&self.shared.services) {
            let at = all.iter().position(|one| one.service == *name).unwrap_or_else(|| {
                all.push(ServiceCalls { service: name.clone(), ..ServiceCalls::default() });
                all.len() - 1
            });
            if let Some(one) = all.get_mut(at) {
                one.calls += metrics.calls.attempts();
                if self.shared.billed.contains(name) {
                    *one.maybe_twice.get_or_insert(0) += metrics.calls.executed_twice_at_most();
                }
                one.answered += metrics.calls.by_attempt().map(|(_, _, answered)| answered).sum::<u64>();
            }
        }
        all.sort_by(|a, b| a.service.cmp(&b.service));
        for one in &mut all {
            one.cost = self.shared.prices.get(&one.service).map(|price| one.calls as f64 * price / 1000.0);
        }
        all
    }

    /// The number of attempts sent so far, by all callers.
    #[must_use]
    pub fn calls(&self) -> u64 {
        lock(&self.shared.services).iter().map(|(_, service)| service.calls.attempts()).sum()
    }

    /// The number of calls so far, each counted once whatever its attempts.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let first =
            |service: &ServiceMetrics| service.calls.by_attempt().next().map_or(0, |(_, sent, _)| sent);
        lock(&self.shared.services).iter().map(|(_, service)| first(service)).sum()
    }

    /// The caller for a source, a step or a sink that calls the service of this name.
    #[must_use]
    pub fn caller(&self, to: &str) -> Caller {
        Caller { shared: self.shared.clone(), to: to.to_owned() }
    }

    /// Takes the audit events that callers have left.
    #[must_use]
    pub fn noted(&self) -> Vec<AuditEvent> {
        std::mem::take(&mut *lock(&self.shared.noted))
    }
}

impl Drop for TrafficState {
    fn drop(&mut self) {
        self.lanes.flush();
    }
}

impl TrafficState {
    fn line(&self, name: &str, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        let service = ServiceMetrics::new(key, &self.lanes, policy);
        lock(&self.services).push((name.to_owned(), service.clone()));
        if let Some(telemetry) = &self.telemetry {
            telemetry.adopt(service.clone());
        }
        service
    }
}

/// A source, a step or a sink that sends calls.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<TrafficState>,
    to: String,
}

impl Caller {
    /// The lanes; those without a configuration of their own get `config`.
    pub(crate) fn lanes(&self, config: &LaneConfig) -> Lanes {
        self.shared.lanes.with(config)
    }

    /// Where the settings for its calls are, for errors.
    pub(crate) fn settings(&self) -> SettingsOf<'_> {
        if self.shared.from_options { SettingsOf::Options } else { SettingsOf::Service(&self.to) }
    }

    /// Records that a service asked for a longer wait than allowed.
    pub(crate) fn later(&self, said: &str) {
        lock(&self.shared.later).get_or_insert_with(|| said.to_owned());
    }

    /// The counters of its calls to one service.
    pub(crate) fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        self.shared.line(&self.to, key, policy)
    }

    /// Records that a call has ended; `what` describes it without secrets.
    pub(crate) fn ended<T>(&self, service: &ServiceMetrics, what: &str, outcome: &CallOutcome<T>) {
        service.calls.call(outcome.history());
        self.leave(self.act(outcome).map(|act| act.key(what)));
    }

    /// The audit event of a finished call, if it is recorded.
    pub(crate) fn act<T>(&self, outcome: &CallOutcome<T>) -> Option<AuditEvent> {
        let is_entered = self.shared.all || !outcome.is_accepted();
        is_entered.then(|| audit::attempt(&self.to, outcome, now_ms()))
    }

    /// Leaves audit events of calls that belong to no batch.
    pub(crate) fn leave(&self, acts: impl IntoIterator<Item = AuditEvent>) {
        lock(&self.shared.noted).extend(acts);
    }
}

impl crate::store::CallContext for Caller {
    fn lanes(&self, config: &LaneConfig) -> Lanes {
        self.lanes(config)
    }

    fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        self.line(key, policy)
    }

    fn ended(&self, service: &ServiceMetrics, what: &str, outcome: &CallOutcome<()>) {
        self.ended(service, what, outcome);
    }
}
