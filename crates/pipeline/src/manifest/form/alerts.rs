//! `alerts`: thresholds and actions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_core::alert::{Alert, AlertLimits};

use super::YEAR;

/// Alert thresholds and actions. Every alert is logged; without this section the default thresholds
/// apply and nothing else happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlertsSpec {
    /// How far back calls are counted.
    ///
    /// Touch it when calls are so rare that a window rarely holds `minimum_calls`.
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub window_seconds: f64,

    /// The minimum number of calls in the window for shares to be evaluated.
    ///
    /// Touch it together with the window.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub minimum_calls: u32,

    /// How long a condition about calls must hold before its alert fires.
    ///
    /// Touch it when runs are shorter than a minute and their alerts matter: `0s` fires at once.
    #[schemars(range(min = 0, max = YEAR))]
    pub minimum_time_seconds: f64,

    /// The share of the calls that may be retries.
    #[schemars(range(min = 0, max = 1))]
    pub retry_ratio: f64,

    /// The share of the calls that must succeed at the first attempt.
    #[schemars(range(min = 0, max = 1))]
    pub first_attempt_success: f64,

    /// The share of the time that may be spent in backoff.
    #[schemars(range(min = 0, max = 1))]
    pub backoff_share: f64,

    /// The share of the capacity of the dead letter store that may be used.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub letters_full: f64,

    /// How old the oldest open dead letter may be.
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub letter_age_seconds: f64,

    /// How close the share of nulls may come to the limit of its gate: 0.8 is 80 % of it.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub null_rate: f64,

    /// The share of the responses that may be 503, if there are three times as many as 504.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub spike_503: f64,

    /// Alerts to disable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("uniqueItems" = true))]
    pub off: Vec<AlertName>,

    /// Actions when an alert starts and when it ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

impl Default for AlertsSpec {
    fn default() -> AlertsSpec {
        let limits = AlertLimits::default();
        AlertsSpec {
            window_seconds: limits.window.as_secs_f64(),
            minimum_calls: limits.calls_min as u32,
            minimum_time_seconds: limits.time_min.as_secs_f64(),
            retry_ratio: limits.retry_ratio,
            first_attempt_success: limits.first_attempt_success,
            backoff_share: limits.backoff_share,
            letters_full: limits.letters_full,
            letter_age_seconds: limits.letter_age.as_secs_f64(),
            null_rate: limits.null_rate,
            spike_503: limits.spike_503,
            off: Vec::new(),
            actions: Vec::new(),
        }
    }
}

/// Actions when an alert starts and when it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Action {
    /// The alerts that trigger the action. By default all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("uniqueItems" = true))]
    pub on: Vec<AlertName>,

    /// Whether a run that would end with 0 ends with 5 if the alert fired.
    pub exit_code: bool,

    /// A URL to which the alert is posted as JSON, or `env:NAME` or `file:PATH` that contains it: the address of
    /// a chat is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub webhook: Option<String>,

    /// A reference to the key of the webhook, sent as a bearer token: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub key: Option<String>,

    /// A program and its arguments. It is run without a shell and gets the alert as JSON on its
    /// standard input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 4096)))]
    pub command: Vec<String>,

    /// The environment variables that `command` gets besides `PATH`, `HOME` and the like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 255)), extend("uniqueItems" = true))]
    pub env: Vec<String>,
}

/// The name of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertName {
    /// Too many calls are retries.
    RetryRatio,
    /// Too few calls succeed at the first attempt.
    FirstAttemptSuccess,
    /// One call in a hundred uses up its retries.
    RetriesAtBound,
    /// Too much time is spent waiting between attempts.
    BackoffShare,
    /// The dead letter store is filling up.
    LettersFull,
    /// A dead letter is too old.
    LetterAge,
    /// A breaker is open.
    BreakerOpen,
    /// The share of nulls approaches its limit.
    NullRate,
    /// Many responses are 503, and few are 504.
    #[serde(rename = "spike_503")]
    Spike503,
}

impl AlertName {
    /// The name of this alert.
    #[must_use]
    pub const fn of(alert: Alert) -> AlertName {
        match alert {
            Alert::RetryRatio => AlertName::RetryRatio,
            Alert::FirstAttemptSuccess => AlertName::FirstAttemptSuccess,
            Alert::RetriesAtBound => AlertName::RetriesAtBound,
            Alert::BackoffShare => AlertName::BackoffShare,
            Alert::LettersFull => AlertName::LettersFull,
            Alert::LetterAge => AlertName::LetterAge,
            Alert::BreakerOpen => AlertName::BreakerOpen,
            Alert::NullRate => AlertName::NullRate,
            Alert::Spike503 => AlertName::Spike503,
        }
    }

    /// The alert of this name.
    #[must_use]
    pub const fn alert(self) -> Alert {
        match self {
            AlertName::RetryRatio => Alert::RetryRatio,
            AlertName::FirstAttemptSuccess => Alert::FirstAttemptSuccess,
            AlertName::RetriesAtBound => Alert::RetriesAtBound,
            AlertName::BackoffShare => Alert::BackoffShare,
            AlertName::LettersFull => Alert::LettersFull,
            AlertName::LetterAge => Alert::LetterAge,
            AlertName::BreakerOpen => Alert::BreakerOpen,
            AlertName::NullRate => Alert::NullRate,
            AlertName::Spike503 => Alert::Spike503,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_manifest_is_the_name_of_its_alert() {
        for alert in Alert::ALL {
            let name = AlertName::of(alert);
            assert_eq!(name.alert(), alert);
            assert_eq!(serde_json::to_value(name).unwrap(), alert.name());
        }
    }
}
