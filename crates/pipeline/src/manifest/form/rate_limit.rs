//! `rate_limit`: how fast the service may be called.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How fast the service may be called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimit {
    /// The maximum calls per second. Without this key, only the responses of the server set the
    /// rate.
    ///
    /// Touch it when the provider's terms name a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = 1_000_000.0), extend("exclusiveMinimum" = 0))]
    pub requests_per_second: Option<f64>,

    /// The maximum burst of calls after a pause, with `requests_per_second`.
    ///
    /// Touch it when the provider's terms name a burst.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub burst: u32,

    /// The maximum number of calls in flight.
    ///
    /// Touch it when the provider limits connections, or when memory is short.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: u32,

    /// Whether the rate is learned from the server's headers and 429s. It never exceeds
    /// `requests_per_second`. A throttled record then waits for the learned rate; without learning
    /// it waits for a backoff like any other failure.
    ///
    /// Touch it when the rate is known exactly and must not move.
    pub learn: bool,

    /// Who shares the rate of a host and credential: all processes of this user on this machine, or
    /// each process for itself.
    ///
    /// Touch it when processes that call one host with one key must not wait for each other.
    pub scope: RateScope,
}

/// Who shares a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// All processes of one user on one machine.
    #[default]
    Machine,
    /// Each process for itself.
    Process,
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit {
            requests_per_second: None,
            burst: 1,
            max_in_flight: 64,
            learn: true,
            scope: RateScope::default(),
        }
    }
}
