//! The way to one service, as metrics see it: its calls and its lanes, by host.

use super::calls::Calls;
use super::metric as m;
use super::sample::Sample;
use crate::lane::{LaneKey, Lanes, Snapshot};
use std::sync::Arc;
use tidegate_core::breaker::BreakerState;
use tidegate_core::call::CallPolicy;

/// The metrics of one service: the counters of its calls, and its lanes.
#[derive(Clone)]
pub struct ServiceMetrics {
    /// The host, the value of the label `host`.
    pub host: String,
    /// The counters of its calls.
    pub calls: Arc<Calls>,
    /// Its lanes.
    pub lanes: Lanes,
    /// The most attempts of one call, those that the policy does not count included.
    pub attempts_max: u32,
}

impl ServiceMetrics {
    /// The metrics of a service before its first call.
    #[must_use]
    pub fn new(key: &LaneKey, lanes: &Lanes, policy: &CallPolicy) -> ServiceMetrics {
        let free = policy.throttles_free.saturating_add(policy.outages_free);
        let attempts_max = policy.attempts_max.saturating_add(free);
        ServiceMetrics { host: key.host(), calls: Arc::default(), lanes: lanes.clone(), attempts_max }
    }
}

/// All lanes to one host as one.
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
    /// The time until the next call that the server asked for, in seconds.
    pub wait: f64,
    /// The worst state of its breakers: 0 closed, 1 half open, 2 open.
    pub breaker: u8,
    /// The number of state changes of its breakers.
    pub breaker_changes: u32,
}

/// The words for the states of a breaker.
const BREAKER: [&str; 3] = ["closed", "half_open", "open"];

impl HostState {
    /// Adds a lane, or another host.
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
    }
}

/// Every lane once, also where several services share them.
fn snapshots(lines: &[ServiceMetrics]) -> impl Iterator<Item = Snapshot> + '_ {
    let first = |at: usize, lanes: &Lanes| !lines.iter().take(at).any(|line| line.lanes.are(lanes));
    let own = lines.iter().enumerate().filter(move |(at, line)| first(*at, &line.lanes));
    own.flat_map(|(_, line)| line.lanes.snapshots())
}

/// All lanes of these services, as one.
#[must_use]
pub fn together(lines: &[ServiceMetrics]) -> HostState {
    let mut all = HostState::default();
    snapshots(lines).for_each(|lane| all.add(&lane));
    all
}

/// What all services read.
pub fn samples(lines: &[ServiceMetrics], out: &mut Vec<Sample>) {
    let mut hosts: Vec<(String, HostState)> = Vec::new();
    for lane in snapshots(lines) {
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
    for line in lines {
        calls(line, out);
    }
    for (host, state) in &hosts {
        let mut say = |metric, value: f64| out.push(Sample::of(metric, &[host], value));
        say(&m::HEADER_PRESENT, share(state.hinted, state.responses));
        say(&m::MALFORMED, state.malformed as f64);
        say(&m::LANE_RATE, state.rate.unwrap_or(0.0));
        say(&m::LANE_IN_FLIGHT, f64::from(state.in_flight));
        say(&m::LANE_CAP, f64::from(state.cap));
        say(&m::LANE_WAITING, state.waiting as f64);
        say(&m::LANE_WAIT, state.wait);
        say(&m::BREAKER_CHANGES, f64::from(state.breaker_changes));
        for (at, word) in BREAKER.iter().enumerate() {
            let on = f64::from(u8::from(at == usize::from(state.breaker)));
            out.push(Sample::of(&m::BREAKER, &[host, word], on));
        }
    }
}

fn calls(line: &ServiceMetrics, out: &mut Vec<Sample>) {
    let host = line.host.as_str();
    let calls = &line.calls;
    let histogram =
        |metric, h: &super::Histogram| Sample { metric, labels: vec![host.to_owned()], value: h.value() };
    out.push(Sample::of(&m::RETRIES, &[host], calls.retries() as f64));
    out.push(histogram(&m::BACKOFF_DELAY, &calls.backoff_seconds));
    out.push(histogram(&m::RETRIES_PER_CALL, &calls.retries_per_call));
    out.push(Sample::of(&m::RETRIES_BOUND, &[host], f64::from(line.attempts_max.saturating_sub(1))));
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

/// A part as a share of the whole; 0 of nothing.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
