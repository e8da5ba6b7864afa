//! `circuit_breaker`: when to stop calling a service that fails.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::YEAR;

/// When to stop calling a service that fails.
///
/// While the breaker is open, records wait; they do not spend attempts. Throttles (429) count
/// neither as success nor as failure: they show that the service works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CircuitBreaker {
    /// How far back calls are counted.
    ///
    /// Touch it when calls are so rare that a window rarely holds `minimum_calls`.
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub window_seconds: f64,

    /// The share of failed calls in the window at which the breaker opens.
    ///
    /// Touch it upwards for a service that always fails a little.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub failure_rate: f64,

    /// The minimum number of calls in the window for the shares to be evaluated, and the number of
    /// failures in a row that open the breaker by themselves, at least five.
    ///
    /// Touch it together with the window.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub minimum_calls: u32,

    /// How long the breaker stays open the first time.
    ///
    /// Touch it when the service is known to come back slower or faster.
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub cooldown_seconds: f64,

    /// The factor by which the cooldown grows each time the breaker opens again without having
    /// closed.
    ///
    /// Touch it rarely; 1 keeps the cooldown constant.
    #[schemars(range(min = 1, max = 100))]
    pub cooldown_factor: f64,

    /// The longest cooldown.
    ///
    /// Touch it when a run should notice the end of a long outage sooner.
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub cooldown_max_seconds: f64,

    /// The number of calls sent after the cooldown to test the service. All must succeed.
    ///
    /// Touch it upwards when one good answer proves little.
    #[schemars(range(min = 1, max = 1000))]
    pub probes: u32,

    /// The duration from which a call counts as slow. Without this key, slow calls are not
    /// considered.
    ///
    /// Touch it when the service slows down before it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub slow_call_seconds: Option<f64>,

    /// The share of slow calls in the window at which the breaker opens.
    ///
    /// Touch it only with `slow_call_seconds`.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub slow_call_rate: f64,
}

impl Default for CircuitBreaker {
    fn default() -> CircuitBreaker {
        CircuitBreaker {
            window_seconds: 60.0,
            failure_rate: 0.5,
            minimum_calls: 10,
            cooldown_seconds: 30.0,
            cooldown_factor: 2.0,
            cooldown_max_seconds: 600.0,
            probes: 3,
            slow_call_seconds: None,
            slow_call_rate: 0.8,
        }
    }
}
