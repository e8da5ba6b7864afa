//! The metrics of one service: the counters of its calls and the state of its lanes, by host.

use super::calls::Calls;
use super::metric as m;
use super::sample::Sample;
use crate::lane::{LaneKey, LaneRole, Lanes, Snapshot};
use std::sync::Arc;
use tidegate_core::breaker::BreakerState;
use tidegate_core::call::CallPolicy;
use tidegate_core::limit::{BelievedKind, LimitBelief};

/// The metrics of one service: the counters of its calls, and its lanes.
#[derive(Clone)]
pub struct ServiceMetrics {
    /// The host, the value of the label `host`.
    pub host: String,
    /// The counters of its calls.
    pub calls: Arc<Calls>,
    /// Its lanes.
    pub lanes: Lanes,
    /// The most attempts of one call, including those that the policy does not count. Refusals that a limit
    /// explains come on top: an alert on retries is about failures.
    pub attempts_max: u32,
}

impl ServiceMetrics {
    /// The metrics of a service, all zero.
    #[must_use]
    pub fn new(key: &LaneKey, lanes: &Lanes, policy: &CallPolicy) -> ServiceMetrics {
        let free = policy.throttles_free.saturating_add(policy.outages_free);
        let attempts_max = policy.attempts_max.saturating_add(free);
        ServiceMetrics { host: key.host(), calls: Arc::default(), lanes: lanes.clone(), attempts_max }
    }
}

/// The combined state of all lanes to one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostState {
    /// Calls sent.
    pub sent: u64,
    /// Throttled answers.
    pub throttled: u64,
    /// Answers with a rate-limit header.
    pub hinted: u64,
    /// Answers with an HTTP status.
    pub responses: u64,
    /// Failed calls: a status of 500 or more, or none.
    pub failed: u64,
    /// Rate-limit headers that are malformed.
    pub malformed: u64,
    /// The rate in calls per second; `None` while no lane knows one.
    pub rate: Option<f64>,
    /// Calls in flight.
    pub in_flight: u32,
    /// The most calls in flight.
    pub cap: u32,
    /// Calls that wait for a permit.
    pub waiting: usize,
    /// The time until the earliest call that the server allows, in seconds.
    pub wait: f64,
    /// The worst state of its breakers: 0 closed, 1 half open, 2 open.
    pub breaker: u8,
    /// The number of state changes of its breakers.
    pub breaker_changes: u32,
    /// What its lanes believe of the limit, each once.
    pub beliefs: Vec<LimitBelief>,
    /// How often its lanes changed their mind about the kind of limit.
    pub belief_changes: u64,
    /// The names of what this process is to its lanes, each once.
    pub roles: Vec<&'static str>,
    /// How often the owner of one of its lanes was replaced.
    pub owner_changes: u64,
    /// Lanes whose server of the fleet cannot be reached.
    pub unreachable: u64,
}

/// The label values of the breaker states.
const BREAKER: [&str; 3] = ["closed", "half_open", "open"];

impl HostState {
    /// Adds the state of a lane.
    fn add(&mut self, lane: &Snapshot) {
        self.sent += lane.counts.sent;
        self.throttled += lane.counts.throttled;
        self.hinted += lane.counts.hinted;
        self.responses += lane.counts.responses();
        let bad = |status: u16| status == 0 || status >= 500;
        self.failed += lane.counts.statuses.iter().filter(|(s, _)| bad(*s)).map(|(_, n)| n).sum::<u64>();
        self.malformed += lane.counts.malformed;
        self.rate = match (self.rate, lane.rate) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.in_flight += lane.in_flight;
        self.cap = self.cap.saturating_add(lane.cap);
        self.waiting += lane.waiting;
        self.wait = self.wait.max(lane.gate.since(lane.now).as_secs_f64());
        let state = match lane.breaker {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open(_) => 2,
        };
        self.breaker = self.breaker.max(state);
        self.breaker_changes += lane.breaker_changes;
        self.beliefs.push(lane.belief);
        self.belief_changes += lane.counts.belief_changes;
        self.roles.push(lane.role.as_str());
        self.owner_changes += lane.counts.owner_changes;
        self.unreachable += u64::from(lane.unreachable);
    }
}

/// A snapshot of every lane once, even if several services share it.
fn snapshots(services: &[ServiceMetrics]) -> impl Iterator<Item = Snapshot> + '_ {
    let first = |at: usize, lanes: &Lanes| !services.iter().take(at).any(|service| service.lanes.are(lanes));
    let own = services.iter().enumerate().filter(move |(at, service)| first(*at, &service.lanes));
    own.flat_map(|(_, service)| service.lanes.snapshots())
}

/// What one lane has learned of the limit of its server.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedLimit {
    /// The host of the lane.
    pub host: String,
    /// What the lane believes.
    pub belief: LimitBelief,
    /// How often it changed its mind about the kind.
    pub changes: u64,
}

/// What the lanes of these services have learned, the most used first; lanes that met no limit are
/// left out.
#[must_use]
pub fn learned(services: &[ServiceMetrics]) -> Vec<LearnedLimit> {
    let mut lanes: Vec<Snapshot> =
        snapshots(services).filter(|lane| lane.belief.kind != BelievedKind::None).collect();
    lanes.sort_by(|a, b| b.counts.sent.cmp(&a.counts.sent).then_with(|| a.key.host().cmp(&b.key.host())));
    lanes
        .into_iter()
        .map(|lane| LearnedLimit {
            host: lane.key.host(),
            belief: lane.belief,
            changes: lane.counts.belief_changes,
        })
        .collect()
}

/// The combined state of all lanes of these services.
#[must_use]
pub fn together(services: &[ServiceMetrics]) -> HostState {
    let mut all = HostState::default();
    snapshots(services).for_each(|lane| all.add(&lane));
    all
}

/// Appends the samples of all services.
pub fn samples(services: &[ServiceMetrics], out: &mut Vec<Sample>) {
    let mut hosts: Vec<(String, HostState)> = Vec::new();
    for lane in snapshots(services) {
        let host = lane.key.host();
        match hosts.iter_mut().find(|(name, _)| *name == host) {
            Some((_, state)) => state.add(&lane),
            None => {
                let mut state = HostState::default();
                state.add(&lane);
                hosts.push((host, state));
            }
        }
    }
    for service in services {
        calls(service, out);
    }
    for (host, state) in &hosts {
        let mut say = |metric, value: f64| out.push(Sample::of(metric, &[host], value));
        say(&m::HEADER_PRESENT, share(state.hinted, state.responses));
        say(&m::MALFORMED, state.malformed as f64);
        say(&m::LANE_RATE, state.rate.unwrap_or(0.0));
        say(&m::LANE_IN_FLIGHT, f64::from(state.in_flight));
        say(&m::LANE_CAP, f64::from(state.cap));
        let most = |of: fn(&LimitBelief) -> f64| state.beliefs.iter().map(of).fold(0.0, f64::max);
        say(&m::LANE_BURST, most(|belief| belief.burst.unwrap_or(0.0)));
        say(&m::LANE_WINDOW, most(|belief| belief.window.map_or(0.0, |window| window.as_secs_f64())));
        say(&m::LANE_LIMIT_CHANGES, state.belief_changes as f64);
        say(&m::LANE_OWNER_CHANGES, state.owner_changes as f64);
        say(&m::LANE_UNREACHABLE, state.unreachable as f64);
        say(&m::LANE_WAITING, state.waiting as f64);
        say(&m::LANE_WAIT, state.wait);
        say(&m::BREAKER_CHANGES, f64::from(state.breaker_changes));
        for kind in BelievedKind::ALL {
            let lanes = state.beliefs.iter().filter(|belief| belief.kind == kind).count();
            out.push(Sample::of(&m::LANE_LIMIT, &[host, kind.as_str()], lanes as f64));
        }
        for role in LaneRole::NAMES {
            let lanes = state.roles.iter().filter(|own| **own == role).count();
            out.push(Sample::of(&m::LANE_ROLE, &[host, role], lanes as f64));
        }
        for (at, word) in BREAKER.iter().enumerate() {
            let on = f64::from(u8::from(at == usize::from(state.breaker)));
            out.push(Sample::of(&m::BREAKER, &[host, word], on));
        }
    }
}

fn calls(service: &ServiceMetrics, out: &mut Vec<Sample>) {
    let host = service.host.as_str();
    let calls = &service.calls;
    let histogram =
        |metric, h: &super::Histogram| Sample { metric, labels: vec![host.to_owned()], value: h.value() };
    out.push(Sample::of(&m::RETRIES, &[host], calls.retries() as f64));
    out.push(histogram(&m::BACKOFF_DELAY, &calls.backoff_seconds));
    out.push(histogram(&m::RETRIES_PER_CALL, &calls.retries_per_call));
    out.push(Sample::of(&m::RETRIES_BOUND, &[host], f64::from(service.attempts_max.saturating_sub(1))));
    out.push(Sample::of(&m::CALL_SECONDS, &[host], calls.in_calls().as_secs_f64()));
    out.push(Sample::of(&m::BACKOFF_SECONDS, &[host], calls.in_backoff()));
    let (cached, shared) = calls.reused();
    out.push(Sample::of(&m::REUSED, &[host, "cache"], cached as f64));
    out.push(Sample::of(&m::REUSED, &[host, "equal_record"], shared as f64));
    for (number, sent, answered) in calls.by_attempt() {
        let number = number.to_string();
        out.push(Sample::of(&m::ATTEMPTS, &[host, &number], sent as f64));
        out.push(Sample::of(&m::ATTEMPTS_SUCCEEDED, &[host, &number], answered as f64));
    }
    for (status, n) in calls.statuses() {
        let status = if status == 0 { "none".to_owned() } else { status.to_string() };
        out.push(Sample::of(&m::RESPONSES, &[host, &status], n as f64));
    }
}

/// A part as a fraction of the whole; 0 if the whole is 0.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
