//! Converts the manifest to the configuration of the core.
//!
//! This is the only place that does. What the manifest cannot express keeps the default of the
//! core, so that there is only one default.

use tidegate_core::breaker::BreakerConfig;
use tidegate_core::call::{self, CallPolicy};
use tidegate_core::classify::{Classifier, StatusSet};
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_core::retry::backoff::{self, Backoff};
use tidegate_core::retry::budget::{self, BudgetConfig};
use tidegate_core::time::seconds;

use super::form::{
    CircuitBreaker, EmptyBudget, JitterSetting, Manifest, OnLongWait, RateLimit, RetryBudget, RetryPolicy,
    ServiceSpec,
};

/// The configuration of the core for the calls of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The classifier of responses.
    pub classifier: Classifier,
    /// Whether the manifest lists statuses, so that its classifier applies and not that of a
    /// profile.
    pub lists_statuses: bool,
    /// The policy of one call.
    pub call: CallPolicy,
    /// The configuration of the lanes.
    pub lane: LaneConfig,
}

impl From<&Manifest> for Policy {
    fn from(manifest: &Manifest) -> Policy {
        Policy::with(manifest, &manifest.pipeline.retry_policy)
    }
}

impl Policy {
    /// The policy for calls to a service: what it says itself comes before the pipeline's.
    #[must_use]
    pub fn of_service(manifest: &Manifest, service: &ServiceSpec) -> Policy {
        let base = &manifest.pipeline.retry_policy;
        match &service.retry_policy {
            Some(own) => Policy::with(manifest, &own.over(base)),
            None => Policy::with(manifest, base),
        }
    }

    fn with(manifest: &Manifest, retry: &RetryPolicy) -> Policy {
        let pipeline = &manifest.pipeline;
        let lane = LaneConfig {
            limit: limit(&pipeline.rate_limit),
            breaker: breaker(&pipeline.circuit_breaker),
            budget: budget(&pipeline.retry_budget),
            quota_wait: seconds(retry.quota_wait_seconds),
            wait_max: seconds(retry.wait_max_seconds),
        };
        Policy {
            classifier: classifier(retry).for_lane(&lane),
            lists_statuses: retry.lists_statuses(),
            call: call(retry, &pipeline.rate_limit),
            lane,
        }
    }
}

/// The lists of the manifest are authoritative: they define the meaning of the statuses that they
/// contain.
fn classifier(retry: &RetryPolicy) -> Classifier {
    let retryable = StatusSet::of(&retry.retryable());
    let default = Classifier::default();
    let quota = default.quota.less(&retryable).less(&StatusSet::of(&retry.terminal()));
    Classifier { retryable, quota, ..default }
}

fn call(retry: &RetryPolicy, limit: &RateLimit) -> CallPolicy {
    let jitter = match retry.jitter {
        JitterSetting::None => backoff::Jitter::None,
        JitterSetting::Full => backoff::Jitter::Full,
        JitterSetting::Equal => backoff::Jitter::Equal,
        JitterSetting::Decorrelated => backoff::Jitter::Decorrelated,
        JitterSetting::Additive => backoff::Jitter::Additive {
            min: seconds(retry.jitter_min_seconds),
            max: seconds(retry.jitter_max_seconds),
        },
        JitterSetting::Proportional(share) => backoff::Jitter::Proportional { share },
    };
    CallPolicy {
        attempts_max: retry.max_attempts,
        throttles_free: retry.throttles_free,
        outages_free: retry.outages_free,
        deadline: seconds(retry.deadline_seconds),
        attempt_timeout: seconds(retry.attempt_timeout_seconds),
        backoff: Backoff::new(
            seconds(retry.base_delay_seconds),
            retry.factor,
            seconds(retry.max_delay_seconds),
            jitter,
        ),
        throttle_wait: if limit.learn { call::ThrottleWait::Lane } else { call::ThrottleWait::Backoff },
        quota_wait: seconds(retry.quota_wait_seconds),
        long_wait: match retry.on_long_wait {
            OnLongWait::Park => call::LongWait::Park,
            OnLongWait::GiveUp => call::LongWait::GiveUp,
        },
        ..CallPolicy::default()
    }
}

fn breaker(breaker: &CircuitBreaker) -> BreakerConfig {
    BreakerConfig {
        window: seconds(breaker.window_seconds),
        failure_rate: breaker.failure_rate,
        calls_min: breaker.minimum_calls,
        cooldown: seconds(breaker.cooldown_seconds),
        cooldown_factor: breaker.cooldown_factor,
        cooldown_max: seconds(breaker.cooldown_max_seconds),
        probes: breaker.probes,
        slow_after: breaker.slow_call_seconds.map(seconds),
        slow_rate: breaker.slow_call_rate,
    }
}

fn budget(budget: &RetryBudget) -> BudgetConfig {
    BudgetConfig {
        ratio: budget.ratio,
        floor_per_second: budget.floor_per_second,
        size: budget.size,
        on_empty: match budget.on_empty {
            EmptyBudget::Wait => budget::OnEmpty::Wait,
            EmptyBudget::GiveUp => budget::OnEmpty::GiveUp,
        },
    }
}

fn limit(limit: &RateLimit) -> LimitConfig {
    LimitConfig {
        rate_max: limit.requests_per_second,
        burst: limit.requests_per_second.map(|_| f64::from(limit.burst)),
        in_flight_max: limit.max_in_flight,
        learn: limit.learn,
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_bytes;
    use super::*;
    use core::time::Duration;

    const CORE_DEFAULTS: &str = "
pipeline:
  id: x
  retry_policy: { max_attempts: 5, base_delay: 1s, retryable_status_codes: [408, 425, 429, 500, 502, 503, 504] }
  tolerance: { max_null_rate: 0, halt_on_geometry_invalid: true }
";

    fn policy(text: &str) -> Policy {
        match from_bytes("test", text.as_bytes()) {
            Ok(manifest) => Policy::from(&manifest),
            Err(rejection) => panic!("{}", rejection.render(false)),
        }
    }

    #[test]
    fn the_defaults_of_the_manifest_are_those_of_the_core() {
        let policy = policy(CORE_DEFAULTS);
        assert_eq!(policy.classifier, Classifier::default().for_lane(&LaneConfig::default()));
        let throttle_wait = call::ThrottleWait::Lane;
        assert_eq!(policy.call, CallPolicy { throttle_wait, ..CallPolicy::default() });
        assert_eq!(policy.lane, LaneConfig::default());
    }

    #[test]
    fn the_lists_are_authoritative() {
        let quota = |lists: &str| {
            let text = CORE_DEFAULTS.replace("[408, 425, 429, 500, 502, 503, 504]", lists);
            policy(&text).classifier.quota
        };
        assert_eq!(quota("[429]"), StatusSet::of(&[402]));
        assert_eq!(quota("[402]"), StatusSet::of(&[]));
        assert_eq!(quota("[429], terminal_status_codes: [402]"), StatusSet::of(&[]));
    }

    #[test]
    fn jitter_in_proportion_to_the_wait() {
        let text = CORE_DEFAULTS.replace("base_delay: 1s", "base_delay: 1s, jitter: { proportional: 0.25 }");
        assert_eq!(policy(&text).call.backoff.jitter(), backoff::Jitter::Proportional { share: 0.25 });
        for (share, flaw) in
            [("2", "`proportional` cannot be 2"), ("0", "cannot be 0"), ("x", "must be a number")]
        {
            let text = text.replace("0.25", share);
            let rejection = from_bytes("test", text.as_bytes()).unwrap_err().render(false);
            assert!(rejection.contains(flaw), "{rejection}");
        }
        let text = text.replace("proportional", "proportion");
        let rejection = from_bytes("test", text.as_bytes()).unwrap_err().render(false);
        assert!(rejection.contains("did you mean `proportional`?"), "{rejection}");
    }

    #[test]
    fn every_setting_arrives() {
        let policy = policy(
            "
pipeline:
  id: x
  retry_policy:
    max_attempts: 7
    base_delay: 250ms
    factor: 3
    max_delay: 10m
    jitter: additive
    jitter_min: 100ms
    jitter_max: 300ms
    deadline: 1h
    attempt_timeout: 5s
    on_long_wait: give_up
    throttles_free: 4
    outages_free: 2
    quota_wait: 1d
    wait_max: 30d
    retryable_status_codes: [429]
  tolerance: { max_null_rate: 0, halt_on_geometry_invalid: true }
  circuit_breaker:
    window: 2m
    failure_rate: 0.25
    minimum_calls: 20
    cooldown: 10s
    cooldown_factor: 3
    cooldown_max: 1m
    probes: 1
    slow_call: 4s
    slow_call_rate: 0.9
  retry_budget: { ratio: 0.1, floor_per_second: 1, size: 5, on_empty: give_up }
  rate_limit: { requests_per_second: 12.5, burst: 3, max_in_flight: 8, learn: false }
",
        );
        let ms = Duration::from_millis;
        let jitter = backoff::Jitter::Additive { min: ms(100), max: ms(300) };
        assert_eq!(
            policy.call,
            CallPolicy {
                attempts_max: 7,
                throttles_free: 4,
                outages_free: 2,
                deadline: ms(3_600_000),
                attempt_timeout: ms(5_000),
                backoff: Backoff::new(ms(250), 3.0, ms(600_000), jitter),
                throttle_wait: call::ThrottleWait::Backoff,
                quota_wait: ms(86_400_000),
                long_wait: call::LongWait::GiveUp,
                while_open: call::WhileOpen::Wait,
                history: true,
            }
        );
        assert_eq!(
            policy.lane,
            LaneConfig {
                limit: LimitConfig { rate_max: Some(12.5), burst: Some(3.0), in_flight_max: 8, learn: false },
                breaker: BreakerConfig {
                    window: ms(120_000),
                    failure_rate: 0.25,
                    calls_min: 20,
                    cooldown: ms(10_000),
                    cooldown_factor: 3.0,
                    cooldown_max: ms(60_000),
                    probes: 1,
                    slow_after: Some(ms(4_000)),
                    slow_rate: 0.9,
                },
                budget: BudgetConfig {
                    ratio: 0.1,
                    floor_per_second: 1.0,
                    size: 5.0,
                    on_empty: budget::OnEmpty::GiveUp,
                },
                quota_wait: ms(86_400_000),
                wait_max: ms(30 * 86_400_000),
            }
        );
        assert_eq!(policy.classifier.wait_max, ms(30 * 86_400_000));
        assert_eq!(policy.classifier.retryable, StatusSet::of(&[429]));
    }
}
