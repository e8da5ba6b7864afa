//! The clients of a world: the shipped policy, with the key names of the manifest.
//!
//! A missing section is off, so that a scenario can test one mechanism alone; an empty section
//! (`circuit_breaker: {}`) has the shipped defaults. Only `retry_policy` is always on.

use core::time::Duration;

use serde::Deserialize;
use tidegate_core::breaker::BreakerConfig;
use tidegate_core::call::{CallPolicy, ThrottleWait};
use tidegate_core::classify::Classifier;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_core::retry::{self, Backoff, BudgetConfig, OnEmpty};
use tidegate_core::time::seconds;

/// The policy of a client, as configurations of the core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientPolicy {
    /// The classifier of signals.
    pub classifier: Classifier,
    /// The policy of calls.
    pub call: CallPolicy,
    /// The configuration of lanes.
    pub lane: LaneConfig,
    /// The failure rate above which nothing is retried; see [`RetryGate`].
    pub retry_gate: Option<RetryGate>,
}

/// How clients share lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneSharing {
    /// All clients share one lane.
    #[default]
    Shared,
    /// Each client has its own lane.
    Each,
    /// There are no lanes.
    None,
}

/// The client section of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct PolicySpec {
    /// The sharing of lanes among clients.
    pub lanes: LaneSharing,
    /// Attempts and delays.
    pub retry_policy: RetrySpec,
    /// The circuit breaker; none by default.
    pub circuit_breaker: Option<BreakerSpec>,
    /// The retry budget of a lane; none by default.
    pub retry_budget: Option<BudgetSpec>,
    /// The rate limit and the calls in flight of a lane; none by default.
    pub rate_limit: Option<RateLimitSpec>,
    /// The failure rate above which nothing is retried; none by default.
    pub retry_gate: Option<RetryGate>,
}

/// The kind of jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JitterSpec {
    /// None: the whole backoff window.
    None,
    /// Uniform over the whole window.
    #[default]
    Full,
    /// Between half of the window and all of it.
    Equal,
    /// Up to three times the previous delay.
    Decorrelated,
    /// The whole window plus a small random amount.
    Additive,
    /// The whole window, this share of it more or less.
    Proportional(f64),
}

/// Attempts and delays.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct RetrySpec {
    /// Attempts, the first included.
    pub max_attempts: u32,
    /// Backoff window before the first retry, in seconds.
    pub base_delay_seconds: f64,
    /// Growth of the backoff window per retry.
    pub factor: f64,
    /// Longest delay, in seconds.
    pub max_delay_seconds: f64,
    /// The kind of jitter.
    pub jitter: JitterSpec,
    /// The minimum that additive jitter adds, in seconds.
    pub jitter_min_seconds: f64,
    /// The maximum that additive jitter adds, in seconds.
    pub jitter_max_seconds: f64,
    /// The longest time from the first attempt to the end of the last, in seconds.
    pub deadline_seconds: f64,
    /// Timeout of one attempt, in seconds.
    pub attempt_timeout_seconds: f64,
    /// Throttles that do not count as attempts.
    pub throttles_free: u32,
    /// What a throttled record waits for.
    pub throttle_wait: ThrottleWaitSpec,
}

/// What a throttled request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleWaitSpec {
    /// Its own backoff.
    #[default]
    Backoff,
    /// Its lane.
    Lane,
}

impl Default for RetrySpec {
    fn default() -> RetrySpec {
        let (call, backoff) = (CallPolicy::default(), Backoff::default());
        RetrySpec {
            max_attempts: call.attempts_max,
            base_delay_seconds: backoff.base().as_secs_f64(),
            factor: 2.0,
            max_delay_seconds: backoff.cap().as_secs_f64(),
            jitter: JitterSpec::Full,
            jitter_min_seconds: 0.0,
            jitter_max_seconds: 1.0,
            deadline_seconds: call.deadline.as_secs_f64(),
            attempt_timeout_seconds: call.attempt_timeout.as_secs_f64(),
            throttles_free: call.throttles_free,
            throttle_wait: ThrottleWaitSpec::Backoff,
        }
    }
}

/// The circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct BreakerSpec {
    /// Length of the sliding window, in seconds.
    pub window_seconds: f64,
    /// The share (0 to 1) of failures at which it opens.
    pub failure_rate: f64,
    /// The minimum number of calls in the window before the breaker can open.
    pub minimum_calls: u32,
    /// Cooldown after the first opening, in seconds.
    pub cooldown_seconds: f64,
    /// The number of calls allowed while half-open.
    pub probes: u32,
}

impl Default for BreakerSpec {
    fn default() -> BreakerSpec {
        let d = BreakerConfig::default();
        BreakerSpec {
            window_seconds: d.window.as_secs_f64(),
            failure_rate: d.failure_rate,
            minimum_calls: d.calls_min,
            cooldown_seconds: d.cooldown.as_secs_f64(),
            probes: d.probes,
        }
    }
}

/// The retry budget of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct BudgetSpec {
    /// The number of tokens added per call; a retry costs one.
    pub ratio: f64,
    /// The number of tokens added per second.
    pub floor_per_second: f64,
    /// Size of the budget, in tokens.
    pub size: f64,
    /// Whether a retry waits or is refused when the budget is empty.
    pub on_empty: OnEmptySpec,
}

/// What happens to a retry when the budget is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnEmptySpec {
    /// The retry waits.
    #[default]
    Wait,
    /// The request is given up.
    GiveUp,
}

impl Default for BudgetSpec {
    fn default() -> BudgetSpec {
        let d = BudgetConfig::default();
        BudgetSpec {
            ratio: d.ratio,
            floor_per_second: d.floor_per_second,
            size: d.size,
            on_empty: OnEmptySpec::Wait,
        }
    }
}

/// Rate limit and calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct RateLimitSpec {
    /// The highest rate, in calls per second.
    pub requests_per_second: Option<f64>,
    /// Burst under `requests_per_second`, in calls.
    pub burst: Option<f64>,
    /// Most calls in flight.
    pub max_in_flight: u32,
    /// Whether to learn the limit from refusals and headers.
    pub learn: bool,
}

impl Default for RateLimitSpec {
    fn default() -> RateLimitSpec {
        let d = LimitConfig::default();
        RateLimitSpec {
            requests_per_second: d.rate_max,
            burst: d.burst,
            max_in_flight: d.in_flight_max,
            learn: d.learn,
        }
    }
}

/// A breaker for retries only: first attempts are always sent, retries only while the share of
/// failures in the window is not above the threshold. Not shipped; for comparison with the
/// literature.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RetryGate {
    /// No retry above this share (0 to 1) of failures.
    pub failure_rate: f64,
    /// Length of the sliding window, in seconds.
    pub window_seconds: f64,
}

impl PolicySpec {
    /// The configurations of the core.
    #[must_use]
    pub fn policy(&self) -> ClientPolicy {
        let r = &self.retry_policy;
        let jitter = match r.jitter {
            JitterSpec::None => retry::Jitter::None,
            JitterSpec::Full => retry::Jitter::Full,
            JitterSpec::Equal => retry::Jitter::Equal,
            JitterSpec::Decorrelated => retry::Jitter::Decorrelated,
            JitterSpec::Additive => retry::Jitter::Additive {
                min: seconds(r.jitter_min_seconds),
                max: seconds(r.jitter_max_seconds),
            },
            JitterSpec::Proportional(share) => retry::Jitter::Proportional { share },
        };
        let backoff =
            Backoff::new(seconds(r.base_delay_seconds), r.factor, seconds(r.max_delay_seconds), jitter);
        let call = CallPolicy {
            attempts_max: r.max_attempts,
            throttles_free: r.throttles_free,
            deadline: seconds(r.deadline_seconds),
            attempt_timeout: seconds(r.attempt_timeout_seconds),
            backoff,
            throttle_wait: match r.throttle_wait {
                ThrottleWaitSpec::Backoff => ThrottleWait::Backoff,
                ThrottleWaitSpec::Lane => ThrottleWait::Lane,
            },
            history: false,
            ..CallPolicy::default()
        };
        let lane = LaneConfig {
            limit: self.limit(),
            breaker: self.breaker(),
            budget: self.budget(),
            ..LaneConfig::default()
        };
        let classifier = Classifier::default().for_lane(&lane);
        ClientPolicy { classifier, call, lane, retry_gate: self.retry_gate }
    }

    fn limit(&self) -> LimitConfig {
        match self.rate_limit {
            None => LimitConfig { in_flight_max: u32::MAX, learn: false, ..LimitConfig::default() },
            Some(l) => LimitConfig {
                rate_max: l.requests_per_second,
                burst: l.burst,
                in_flight_max: l.max_in_flight,
                learn: l.learn,
            },
        }
    }

    fn breaker(&self) -> BreakerConfig {
        let Some(b) = &self.circuit_breaker else {
            return BreakerConfig { calls_min: u32::MAX, ..BreakerConfig::default() };
        };
        BreakerConfig {
            window: seconds(b.window_seconds),
            failure_rate: b.failure_rate,
            calls_min: b.minimum_calls,
            cooldown: seconds(b.cooldown_seconds),
            probes: b.probes,
            ..BreakerConfig::default()
        }
    }

    fn budget(&self) -> BudgetConfig {
        match &self.retry_budget {
            None => BudgetConfig { size: f64::INFINITY, ..BudgetConfig::default() },
            Some(b) => BudgetConfig {
                ratio: b.ratio,
                floor_per_second: b.floor_per_second,
                size: b.size,
                on_empty: match b.on_empty {
                    OnEmptySpec::Wait => OnEmpty::Wait,
                    OnEmptySpec::GiveUp => OnEmpty::GiveUp,
                },
            },
        }
    }
}

/// The running state of a [`RetryGate`]: failures and calls in ten slots of the window.
#[derive(Clone, Debug)]
pub struct RetryGateState {
    /// The share (0 to 1) of failures above which nothing is retried.
    threshold: f64,
    /// Length of a slot, in nanoseconds.
    slot_nanos: u64,
    /// Number of the current slot.
    tick: u64,
    /// Failures and calls per slot, as a ring.
    slots: [(u32, u32); 10],
}

impl RetryGateState {
    /// Creates a gate without history.
    #[must_use]
    pub fn new(gate: &RetryGate) -> RetryGateState {
        let slot_nanos = (gate.window_seconds * 1e8).max(1.0) as u64;
        RetryGateState { threshold: gate.failure_rate, slot_nanos, tick: 0, slots: [(0, 0); 10] }
    }

    fn pass(&mut self, now: u64) {
        let tick = now / self.slot_nanos;
        for old in (self.tick + 1..=tick).take(10) {
            self.slots[(old % 10) as usize] = (0, 0);
        }
        if tick > self.tick + 10 {
            self.slots = [(0, 0); 10];
        }
        self.tick = tick;
    }

    /// Records the result of a call.
    pub fn note(&mut self, failed: bool, now: u64) {
        self.pass(now);
        let slot = &mut self.slots[(self.tick % 10) as usize];
        slot.0 += u32::from(failed);
        slot.1 += 1;
    }

    /// Whether a retry may be sent.
    pub fn open(&mut self, now: u64) -> bool {
        self.pass(now);
        let (failed, calls) = self.slots.iter().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
        f64::from(failed) <= self.threshold * f64::from(calls)
    }
}

/// The maximum wait in a world: a century, which cannot overflow when it is added to a time.
pub(crate) const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_out_is_off_and_empty_is_shipped() {
        let off: PolicySpec = serde_saphyr::from_str("lanes: each").unwrap();
        let off = off.policy();
        assert_eq!(off.lane.breaker.calls_min, u32::MAX);
        assert_eq!(off.lane.budget.size, f64::INFINITY);
        let on: PolicySpec =
            serde_saphyr::from_str("{circuit_breaker: {}, retry_budget: {}, rate_limit: {}}").unwrap();
        let on = on.policy();
        assert_eq!(on.lane, LaneConfig::default());
        assert_eq!(on.call, CallPolicy { history: false, ..CallPolicy::default() });
        assert!(serde_saphyr::from_str::<PolicySpec>("{retry_policy: {max_atempts: 1}}").is_err());
    }

    #[test]
    fn the_gate_forgets_after_its_window() {
        let mut gate = RetryGateState::new(&RetryGate { failure_rate: 0.1, window_seconds: 10.0 });
        assert!(gate.open(0));
        gate.note(true, 0);
        assert!(!gate.open(1));
        for _ in 0..9 {
            gate.note(false, 1_000_000_000);
        }
        assert!(gate.open(1_000_000_000), "one in ten is not above 10 %");
        gate.note(true, 2_000_000_000);
        assert!(!gate.open(2_000_000_000));
        assert!(gate.open(12_500_000_000));
        assert!(gate.open(900_000_000_000));
    }
}
