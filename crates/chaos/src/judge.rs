//! Decides whether a request is admitted: is the server up, and does the throttle accept it?
//!
//! Everything happens under one lock that also covers reading the clock, so that time never goes
//! backwards for a throttle. It also remembers how long each lane and each request was told to
//! wait, and counts those that come earlier.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tidegate_core::time::nanos;
use tidegate_sim::server::{ServerLimit, Throttle, ThrottleAnswer};

use super::clock::ChaosClock;
use super::config::{Config, Outage};
use super::lock::lock;
use super::outage::{Down, Outages};

/// The most lanes; further ones share by hash, so that invented API keys cannot exhaust the memory.
const LANES: u64 = 65_536;

/// The most refused requests that are remembered.
const TOLD: usize = 1_000_000;

/// The number of calls beyond which the bound is extrapolated from the last tenth.
const BOUND_CALLS: u64 = 5_000_000;

/// The throttle of one scope, and the last hint that its clients were sent. Times are in nanoseconds
/// since the start.
struct ScopeThrottle {
    throttle: Throttle,
    /// The time of the last hint.
    told_at: u64,
    /// The end of the wait that it asked for.
    told_until: u64,
    /// The number of calls accepted.
    taken: u64,
    /// The sum of their service times, in nanoseconds.
    service: u64,
}

/// What the mutex of the judge guards.
struct JudgeInner {
    lanes: HashMap<u64, ScopeThrottle>,
    /// The time at which each refused request may be repeated, in nanoseconds since the start.
    told: HashMap<u64, u64>,
    outages: Outages,
    /// The time of the first request, in nanoseconds since the start.
    first: Option<u64>,
}

impl JudgeInner {
    fn new(config: &Config) -> JudgeInner {
        let outages = Outages::new(&config.outages);
        JudgeInner { lanes: HashMap::new(), told: HashMap::new(), outages, first: None }
    }
}

/// Admits or refuses requests.
pub(crate) struct Judge {
    config: Arc<Config>,
    clock: ChaosClock,
    inner: Mutex<JudgeInner>,
}

/// The decision on one request.
pub(crate) struct Ruling {
    /// The time of the decision, in nanoseconds since the start.
    pub(crate) now: u64,
    /// The decision.
    pub(crate) verdict: AdmissionDecision,
    /// Whether the lane was told to wait longer, and the client must have known.
    pub(crate) early: bool,
    /// Whether this very request was told to wait longer.
    pub(crate) early_same: bool,
}

/// Whether a request is admitted.
pub(crate) enum AdmissionDecision {
    /// Refused: the server is down.
    Down(Down),
    /// The answer of the throttle.
    Throttle(ThrottleAnswer),
}

impl Judge {
    /// A judge without history.
    pub(crate) fn new(config: Arc<Config>, clock: ChaosClock) -> Judge {
        let inner = Mutex::new(JudgeInner::new(&config));
        Judge { config, clock, inner }
    }

    /// Resets all state.
    pub(crate) fn clear(&self) {
        *lock(&self.inner) = JudgeInner::new(&self.config);
    }

    /// Decides on a request of `lane` with a service time of `service` nanoseconds.
    pub(crate) fn arrive(&self, lane: u64, identity: u64, service: u64, in_flight: u64) -> Ruling {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let now = self.clock.nanos();
        let first = *inner.first.get_or_insert(now);
        let config = &self.config;
        let lane = inner.lanes.entry(lane % LANES).or_insert_with(|| ScopeThrottle {
            throttle: Throttle::new(&config.limit),
            told_at: 0,
            told_until: 0,
            taken: 0,
            service: 0,
        });
        let early_same = inner.told.remove(&identity).is_some_and(|until| now < until);
        let knew = lane.told_at.saturating_add(nanos(config.grace));
        let early = early_same || (now < lane.told_until && now >= knew);
        let verdict = match inner.outages.arrive(now, first, in_flight) {
            Some(down) => AdmissionDecision::Down(down),
            None => {
                let answer = lane.throttle.offer(now, service);
                if answer.accepted {
                    lane.taken += 1;
                    lane.service = lane.service.saturating_add(service);
                }
                AdmissionDecision::Throttle(answer)
            }
        };
        Ruling { now, verdict, early, early_same }
    }

    /// Records that at `now` the client was told to wait until `until`.
    pub(crate) fn told(&self, lane: u64, identity: u64, now: u64, until: u64) {
        let mut inner = lock(&self.inner);
        if let Some(lane) = inner.lanes.get_mut(&(lane % LANES)) {
            if now >= lane.told_until {
                lane.told_at = now;
            }
            lane.told_until = lane.told_until.max(until);
        }
        if inner.told.len() >= TOLD {
            inner.told.clear();
        }
        inner.told.insert(identity, until);
    }

    /// The number of collapses after outages.
    pub(crate) fn collapses(&self) -> u64 {
        lock(&self.inner).outages.collapses
    }

    /// The time from the first request to the earliest possible completion of the accepted calls,
    /// in nanoseconds.
    pub(crate) fn earliest(&self) -> u64 {
        let inner = lock(&self.inner);
        let Some(first) = inner.first else { return 0 };
        let lanes: Vec<(u64, u64)> = inner.lanes.values().map(|l| (l.taken, l.service)).collect();
        drop(inner);
        let spans = lanes.iter().filter(|(taken, _)| *taken > 0).map(|&(taken, service)| {
            earliest(&self.config.limit, &self.config.outages, first, taken, service / taken)
        });
        spans.max().unwrap_or(0)
    }
}

/// The earliest possible completion of `calls` calls of `service` nanoseconds each, by a client
/// that knows the limit and the outages and is subject to the same throttle.
fn earliest(limit: &ServerLimit, plan: &[Outage], first: u64, calls: u64, service: u64) -> u64 {
    if *limit == ServerLimit::Open && plan.is_empty() {
        return service;
    }
    let keep = plan.iter().filter_map(|o| o.collapse).max().unwrap_or(0);
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let mut throttle = Throttle::new(limit);
    let mut sent: VecDeque<u64> = VecDeque::new();
    let counted = calls.min(BOUND_CALLS);
    let (mut at, mut near) = (first, first);
    for call in 0..counted {
        loop {
            at = Outages::open_from(plan, first, at, &sent);
            match throttle.wait(at) {
                0 => break,
                wait => at = at.saturating_add(wait),
            }
        }
        throttle.offer(at, service);
        if call == counted - counted / 10 {
            near = at;
        }
        if keep > 0 {
            if sent.len() >= keep {
                sent.pop_front();
            }
            sent.push_back(at);
        }
    }
    let rest = (calls - counted) as f64 * (at - near) as f64 / (counted / 10).max(1) as f64;
    at.saturating_add(rest as u64).saturating_add(service).saturating_sub(first)
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_bound_counts_the_burst() {
        let limit = spec::throttle("bucket:500/s,burst=50").unwrap();
        assert_eq!(earliest(&limit, &[], 0, 5_000, 0).div_ceil(MS), 9_900);
        let limit = spec::throttle("fixed:5/100ms").unwrap();
        assert_eq!(earliest(&limit, &[], 0, 1_000, 0), 19_900 * MS);
        let limit = spec::throttle("concurrency:8").unwrap();
        assert_eq!(earliest(&limit, &[], 7, 2_000, 4 * MS), 1_000 * MS);
        assert_eq!(earliest(&ServerLimit::Open, &[], 7, 2_000, 4 * MS), 4 * MS);
    }

    #[test]
    fn the_bound_goes_round_an_outage() {
        let plan = [spec::outage("0s..5s,collapse=20,within=100ms,fragile=10s").unwrap()];
        assert_eq!(earliest(&ServerLimit::Open, &plan, 0, 400, 3 * MS), (5_000 + 19 * 100 + 3) * MS);
    }

    #[test]
    fn a_huge_run_is_extrapolated() {
        let limit = spec::throttle("bucket:1000000/s,burst=1").unwrap();
        let bound = earliest(&limit, &[], 0, 10 * BOUND_CALLS, 0) as f64 / 1e9;
        assert!((bound / 50.0 - 1.0).abs() < 0.001, "{bound}");
    }
}
