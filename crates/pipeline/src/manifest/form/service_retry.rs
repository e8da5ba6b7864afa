//! `services.<name>.retry_policy`: what differs from the pipeline's for one service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JitterSetting, OnLongWait, RetryPolicy, YEAR};

/// What differs from `pipeline.retry_policy` for one service. Keys that are left out are those of
/// the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceRetry {
    /// The maximum number of attempts for one record, including the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = u32::MAX))]
    pub max_attempts: Option<u32>,

    /// The wait before the first retry, before jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub base_delay_seconds: Option<f64>,

    /// The factor by which each wait is longer than the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1, max = 100))]
    pub factor: Option<f64>,

    /// The longest wait between two attempts, jitter included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub max_delay_seconds: Option<f64>,

    /// How waits are randomized.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JitterSetting")]
    pub jitter: Option<JitterSetting>,

    /// The deadline of one record: all attempts and waits together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub deadline_seconds: Option<f64>,

    /// The timeout of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub attempt_timeout_seconds: Option<f64>,

    /// What happens to a record whose server asks for a longer wait than the deadline or
    /// `max_delay_seconds` allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnLongWait")]
    pub on_long_wait: Option<OnLongWait>,

    /// How many throttled responses (429) of one record do not count as attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = u32::MAX))]
    pub throttles_free: Option<u32>,

    /// How many failures of one record while the breaker opens or probes do not count as attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = u32::MAX))]
    pub outages_free: Option<u32>,

    /// How long a record is parked when the quota is exhausted and the server gave no reset time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub quota_wait_seconds: Option<f64>,

    /// The longest wait that the server is obeyed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub wait_max_seconds: Option<f64>,

    /// The HTTP status codes that are retried. With this list or the next, neither list of the
    /// pipeline applies to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u16>", inner(range(min = 100, max = 599)), extend("uniqueItems" = true))]
    pub retryable_status_codes: Option<Vec<u16>>,

    /// The HTTP status codes that reject a record at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u16>", inner(range(min = 100, max = 599)), extend("uniqueItems" = true))]
    pub terminal_status_codes: Option<Vec<u16>>,
}

impl ServiceRetry {
    /// The policy of the service: its own keys, and those of the pipeline for the rest.
    #[must_use]
    pub fn over(&self, base: &RetryPolicy) -> RetryPolicy {
        let lists = self.retryable_status_codes.is_some() || self.terminal_status_codes.is_some();
        let codes =
            |own: &Option<Vec<u16>>, base: &Option<Vec<u16>>| if lists { own.clone() } else { base.clone() };
        RetryPolicy {
            max_attempts: self.max_attempts.unwrap_or(base.max_attempts),
            base_delay_seconds: self.base_delay_seconds.unwrap_or(base.base_delay_seconds),
            factor: self.factor.unwrap_or(base.factor),
            max_delay_seconds: self.max_delay_seconds.unwrap_or(base.max_delay_seconds),
            jitter: self.jitter.unwrap_or(base.jitter),
            jitter_min_seconds: base.jitter_min_seconds,
            jitter_max_seconds: base.jitter_max_seconds,
            deadline_seconds: self.deadline_seconds.unwrap_or(base.deadline_seconds),
            attempt_timeout_seconds: self.attempt_timeout_seconds.unwrap_or(base.attempt_timeout_seconds),
            on_long_wait: self.on_long_wait.unwrap_or(base.on_long_wait),
            throttles_free: self.throttles_free.unwrap_or(base.throttles_free),
            outages_free: self.outages_free.unwrap_or(base.outages_free),
            quota_wait_seconds: self.quota_wait_seconds.unwrap_or(base.quota_wait_seconds),
            wait_max_seconds: self.wait_max_seconds.unwrap_or(base.wait_max_seconds),
            retryable_status_codes: codes(&self.retryable_status_codes, &base.retryable_status_codes),
            terminal_status_codes: codes(&self.terminal_status_codes, &base.terminal_status_codes),
        }
    }
}
