//! `retry_budget`: the limit on retries for all calls together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limit on retries for all calls together.
///
/// The budget keeps retries from multiplying the load on a service in trouble.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryBudget {
    /// Retries per call, on average: 0.2 allows one retry for five calls.
    ///
    /// Touch it downwards when the service is shared and fragile.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub ratio: f64,

    /// Retries per second that are allowed whatever the number of calls, so that a small run can
    /// retry at all.
    ///
    /// Touch it downwards for services that allow only a few calls per second.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub floor_per_second: f64,

    /// The maximum number of unused retries that are saved; the budget starts full.
    ///
    /// Touch it downwards to forbid a burst of retries after a quiet time.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub size: f64,

    /// What happens to a retry when the budget is empty.
    ///
    /// Touch it when a late result is worth less than a quick end.
    pub on_empty: EmptyBudget,
}

impl Default for RetryBudget {
    fn default() -> RetryBudget {
        RetryBudget { ratio: 0.2, floor_per_second: 10.0, size: 100.0, on_empty: EmptyBudget::Wait }
    }
}

/// What happens to a retry when the budget is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptyBudget {
    /// It waits until the budget allows it, within the record's deadline.
    #[default]
    Wait,
    /// The record is rejected at once.
    GiveUp,
}
