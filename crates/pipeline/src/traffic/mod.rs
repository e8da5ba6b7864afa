//! The traffic of a run: all that source, steps and sink send, on one runtime and through one set
//! of lanes.
//!
//! A lane is what calls share that can overload one thing: a host as one user of it, or a prefix of
//! a bucket. So it must not matter who sends. A source that is told to wait holds back the steps
//! that ask the same service, and the limit of a service holds for both together. Lanes have timers,
//! which live on the runtime that first needed them; with one runtime none of them stops early.
//!
//! | file | holds |
//! |---|---|
//! | `held` | what each lane of a manifest is held to |

mod held;

pub(crate) use held::{of_source, of_step, uses};

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tokio::runtime::{Builder, Runtime};

use crate::audit::{self, AuditEvent};
use crate::call::{CallOutcome, SettingsOf};
use crate::error::SetupError;
use crate::lane::{Clock, LaneKey, LaneStates, Lanes};
use crate::letter::now_ms;
use crate::lock::lock;
use crate::manifest::{Manifest, Policy};
use crate::run::source::Told;
use crate::telemetry::{ServiceMetrics, Telemetry};

/// The traffic of a run. Clones share it.
#[derive(Clone)]
pub struct Traffic {
    shared: Arc<TrafficState>,
    /// Not among what callers share: their calls run on it, and must not be the last to hold it.
    runtime: Arc<Mutex<Option<Arc<Runtime>>>>,
}

struct TrafficState {
    lanes: Lanes,
    lines: Mutex<Vec<ServiceMetrics>>,
    telemetry: Option<Arc<Telemetry>>,
    /// Every call is entered in the audit, and not only those that failed in the end.
    all: bool,
    noted: Mutex<Vec<AuditEvent>>,
    /// Every record is asked for, however many are refused.
    keep_going: bool,
    /// The manifest was made of the options of a command: those are what an error names.
    from_options: bool,
    /// Who wants more time than there is, in a sentence.
    later: Mutex<Option<String>>,
    /// What the source has counted so far.
    told: Arc<Mutex<Option<Told>>>,
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traffic")
    }
}

impl Traffic {
    /// No traffic yet. Who asks whom is known by the manifest, so each lane gets what it is held
    /// to before the first call. `rate_max` bounds every lane of a service besides.
    #[must_use]
    pub fn new(manifest: &Manifest, rate_max: Option<f64>, telemetry: Option<Arc<Telemetry>>) -> Traffic {
        let mut policy = Policy::from(manifest);
        let held = uses(manifest, &policy);
        let bound = LimitConfig { rate_max, burst: None, in_flight_max: u32::MAX, learn: false };
        policy.lane.limit = policy.lane.limit.and(bound);
        let lanes = Lanes::new(&policy.lane, Clock::system());
        for mut one in held {
            one.lane.limit = one.lane.limit.and(bound);
            lanes.fix(one.key, &one.lane);
        }
        let shared = TrafficState {
            lanes,
            lines: Mutex::default(),
            telemetry,
            all: manifest.pipeline.audit.attempts,
            noted: Mutex::default(),
            keep_going: false,
            from_options: false,
            later: Mutex::default(),
            told: Arc::default(),
        };
        Traffic { shared: Arc::new(shared), runtime: Arc::default() }
    }

    /// This traffic, with lanes that begin with what their servers asked for before, as kept in a
    /// state directory. To be said before anything is sent.
    #[must_use]
    pub fn keeping(mut self, state: &Path) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            let states = LaneStates::open(state, shared.lanes.clock());
            shared.lanes = shared.lanes.clone().keeping(states);
        }
        self
    }

    /// This traffic, which asks for every record however many are refused.
    #[must_use]
    pub fn going_on(mut self, keep_going: bool) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.keep_going = keep_going;
        }
        self
    }

    /// This traffic, whose errors name the options of a command and not the keys of a manifest.
    #[must_use]
    pub fn from_options(mut self, from_options: bool) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.from_options = from_options;
        }
        self
    }

    /// Whether errors name the options of a command.
    #[must_use]
    pub fn is_from_options(&self) -> bool {
        self.shared.from_options
    }

    /// Whether every record is asked for, however many are refused.
    #[must_use]
    pub fn keeps_going(&self) -> bool {
        self.shared.keep_going
    }

    /// Who wanted more time than there was, in a sentence, if somebody did.
    #[must_use]
    pub fn later(&self) -> Option<String> {
        lock(&self.shared.later).clone()
    }

    /// This traffic, whose source tells what it has counted so far in a place for all to see.
    #[must_use]
    pub fn telling(mut self, place: &Arc<Mutex<Option<Told>>>) -> Traffic {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.told = Arc::clone(place);
        }
        self
    }

    /// The source has counted so much.
    pub(crate) fn report_progress(&self, told: Told) {
        *lock(&self.shared.told) = Some(told);
    }

    /// What all calls run on. It is made when the first one needs it; its threads go on with what is
    /// under way while a batch is being written, and one is left for timers and connections while
    /// the other reads a large page.
    ///
    /// # Errors
    /// When the system gives no thread.
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

    /// The lanes; those that nobody has fixed get `config`.
    #[must_use]
    pub fn lanes(&self, config: &LaneConfig) -> Lanes {
        self.shared.lanes.with(config)
    }

    /// Counts calls to one service, from now on and for all to see.
    #[must_use]
    pub fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        self.shared.line(key, policy)
    }

    /// Attempts sent so far, by whomever.
    #[must_use]
    pub fn calls(&self) -> u64 {
        lock(&self.shared.lines).iter().map(|line| line.calls.attempts()).sum()
    }

    /// Calls so far, each counted once however often it was tried.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let first = |line: &ServiceMetrics| line.calls.by_attempt().next().map_or(0, |(_, sent, _)| sent);
        lock(&self.shared.lines).iter().map(first).sum()
    }

    /// A source, a step or a sink as one who sends, to what has this name.
    #[must_use]
    pub fn caller(&self, to: &str) -> Caller {
        Caller { shared: self.shared.clone(), to: to.to_owned() }
    }

    /// Takes what callers left for the audit.
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
    fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        let line = ServiceMetrics::new(key, &self.lanes, policy);
        lock(&self.lines).push(line.clone());
        if let Some(telemetry) = &self.telemetry {
            telemetry.adopt(line.clone());
        }
        line
    }
}

/// A source, a step or a sink that sends calls.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<TrafficState>,
    to: String,
}

impl Caller {
    /// The lanes of the traffic; those that nobody has fixed get `config`.
    pub(crate) fn lanes(&self, config: &LaneConfig) -> Lanes {
        self.shared.lanes.with(config)
    }

    /// Where the settings are that an error of its calls is about.
    pub(crate) fn settings(&self) -> SettingsOf<'_> {
        if self.shared.from_options { SettingsOf::Options } else { SettingsOf::Service(&self.to) }
    }

    /// The other side wants more time than there is.
    pub(crate) fn later(&self, said: &str) {
        lock(&self.shared.later).get_or_insert_with(|| said.to_owned());
    }

    /// Counts its calls, for all to see.
    pub(crate) fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        self.shared.line(key, policy)
    }

    /// A call has ended; `what` it was about, without secrets.
    pub(crate) fn ended<T>(&self, line: &ServiceMetrics, what: &str, outcome: &CallOutcome<T>) {
        line.calls.call(outcome.history());
        self.leave(self.act(outcome).map(|act| act.key(what)));
    }

    /// What the audit says of a call that has ended, if anything.
    pub(crate) fn act<T>(&self, outcome: &CallOutcome<T>) -> Option<AuditEvent> {
        let is_entered = self.shared.all || !outcome.is_accepted();
        is_entered.then(|| audit::attempt(&self.to, outcome, now_ms()))
    }

    /// Leaves calls for the audit that are part of no batch.
    pub(crate) fn leave(&self, acts: impl IntoIterator<Item = AuditEvent>) {
        lock(&self.shared.noted).extend(acts);
    }
}

#[cfg(feature = "object-store")]
impl crate::store::CallContext for Caller {
    fn lanes(&self, config: &LaneConfig) -> Lanes {
        self.lanes(config)
    }

    fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics {
        self.line(key, policy)
    }

    fn ended(&self, line: &ServiceMetrics, what: &str, outcome: &CallOutcome<()>) {
        self.ended(line, what, outcome);
    }
}
