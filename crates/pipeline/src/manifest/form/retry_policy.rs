//! `retry_policy`: what is retried, how often and after what wait.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_core::classify::{Classifier, StatusSet, TERMINAL};

use super::YEAR;

/// What is retried, how often and after what wait.
///
/// The server's word comes first: a `Retry-After` is always obeyed, and no key turns that off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of attempts for one record, including the first. 1 means no retry.
    ///
    /// Touch it to give up sooner, or to outlast longer trouble.
    #[schemars(range(min = 1, max = u32::MAX), example = 5)]
    pub max_attempts: u32,

    /// The wait before the first retry, before jitter.
    ///
    /// Touch it when the service needs longer to recover than the first retry leaves it.
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0), example = 1.0)]
    pub base_delay_seconds: f64,

    /// The factor by which each wait is longer than the previous one. 1 keeps the wait constant.
    ///
    /// Touch it rarely; below 2 many clients crowd a service that recovers slowly.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 100))]
    pub factor: f64,

    /// The longest wait between two attempts, jitter included. If a server asks for more, it is
    /// obeyed, and the record is parked.
    ///
    /// Touch it when outages last minutes and the deadline allows for them.
    #[serde(default = "sixty")]
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub max_delay_seconds: f64,

    /// How waits are randomized, so that clients that failed together do not retry together. `true`
    /// means `full`, `false` means `none`, `{ proportional: 0.25 }` a quarter of the wait more or
    /// less.
    ///
    /// Touch it only for a test that must see exact waits, or when a wait must not be short.
    #[serde(default)]
    pub jitter: JitterSetting,

    /// The minimum that `additive` jitter adds. Other kinds do not use it.
    ///
    /// Touch it with `jitter: additive` only.
    #[serde(default)]
    #[schemars(range(min = 0, max = YEAR))]
    pub jitter_min_seconds: f64,

    /// The maximum that `additive` jitter adds. Other kinds do not use it.
    ///
    /// Touch it with `jitter: additive` only; it must be about as long as the base delay to help.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0, max = YEAR))]
    pub jitter_max_seconds: f64,

    /// The deadline of one record: all attempts and waits together.
    ///
    /// Touch it for slow services, or when a batch may wait longer for a complete result.
    #[serde(default = "thirty")]
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub deadline_seconds: f64,

    /// The timeout of one attempt. Never longer than the rest of the deadline.
    ///
    /// Touch it when good answers take longer than this.
    #[serde(default = "ten")]
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub attempt_timeout_seconds: f64,

    /// What happens to a record whose server asks for a longer wait than the deadline or
    /// `max_delay_seconds` allows. It is never retried early.
    ///
    /// `park` waits for it within the patience of the run; `give_up` makes the record a dead letter
    /// that is not replayed before that time.
    ///
    /// Touch it when the other records should not wait for a slow service.
    #[serde(default)]
    pub on_long_wait: OnLongWait,

    /// How many throttled responses (429) of one record do not count as attempts, because the
    /// server did no work for them. In a lane that learns, the first 20 that a limit explains never
    /// count.
    ///
    /// Touch it when records are rejected only because the service was busy with others.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    pub throttles_free: u32,

    /// How many failures of one record while the breaker opens or probes do not count as attempts,
    /// because they are caused by the service and not by the record.
    ///
    /// Touch it when records are rejected only because of an outage.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    pub outages_free: u32,

    /// How long a record is parked when the quota is exhausted and the server gave no reset time.
    ///
    /// Touch it when the provider's quota is known to return at another interval.
    #[serde(default = "hour")]
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub quota_wait_seconds: f64,

    /// The longest wait that a server is obeyed for. A longer one, of `Retry-After` or of a reset, is cut to
    /// it: one header must not shut a host for years. After that time one call asks again. It also bounds
    /// what is remembered from run to run, and what other machines are told.
    ///
    /// Touch it upwards when a provider's quota returns after days.
    #[serde(default = "day")]
    #[schemars(range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub wait_max_seconds: f64,

    /// The HTTP status codes that are retried. This list is authoritative: a status that is in
    /// neither list is not retried. Without it the profile of the service decides, which by default
    /// retries 408, 425, 429, 500, 502, 503 and 504.
    ///
    /// Touch it when the provider documents another status as temporary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u16>", inner(range(min = 100, max = 599)), extend("uniqueItems" = true), example = RETRYABLE)]
    pub retryable_status_codes: Option<Vec<u16>>,

    /// The HTTP status codes that reject a record at once. Without this key they are 400, 401, 403,
    /// 404 and 500, less those listed as retryable.
    ///
    /// Touch it to make the default explicit in the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u16>", inner(range(min = 100, max = 599)), extend("uniqueItems" = true))]
    pub terminal_status_codes: Option<Vec<u16>>,
}

impl RetryPolicy {
    /// The statuses that are not retried: those listed, or the default without the retryable ones.
    #[must_use]
    pub fn terminal(&self) -> Vec<u16> {
        match &self.terminal_status_codes {
            Some(codes) => codes.clone(),
            None => TERMINAL.less(&StatusSet::of(&self.retryable())).iter().collect(),
        }
    }

    /// The statuses that are retried: those listed, or the default without the terminal ones.
    #[must_use]
    pub fn retryable(&self) -> Vec<u16> {
        match (&self.retryable_status_codes, &self.terminal_status_codes) {
            (Some(codes), _) => codes.clone(),
            (None, Some(terminal)) => {
                Classifier::default().retryable.less(&StatusSet::of(terminal)).iter().collect()
            }
            (None, None) => Classifier::default().retryable.iter().collect(),
        }
    }

    /// Whether the manifest, not the profile of a service, defines the meaning of statuses.
    #[must_use]
    pub fn lists_statuses(&self) -> bool {
        self.retryable_status_codes.is_some() || self.terminal_status_codes.is_some()
    }
}

/// The retryable statuses of an example.
const RETRYABLE: [u16; 3] = [429, 502, 503];

/// How waits are randomized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", from = "JitterKey")]
#[schemars(with = "JitterKey")]
pub enum JitterSetting {
    /// No randomness: every wait is exact.
    None,
    /// Random between zero and the whole wait.
    #[default]
    Full,
    /// Random between half of the wait and the whole wait.
    Equal,
    /// Random between the base delay and three times the previous wait.
    Decorrelated,
    /// The whole wait plus `jitter_min_seconds` to `jitter_max_seconds`.
    Additive,
    /// The whole wait, this share of it more or less.
    Proportional(f64),
}

/// A jitter in the manifest: a boolean, a kind or a share.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum JitterKey {
    Switch(bool),
    Kind(JitterKind),
    Share(ProportionalJitter),
}

/// A jitter in proportion to the wait.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProportionalJitter {
    /// The share of the wait that it may be longer or shorter.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0), example = 0.25)]
    proportional: f64,
}

/// The kinds of jitter by name.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum JitterKind {
    None,
    Full,
    Equal,
    Decorrelated,
    Additive,
}

impl From<JitterKey> for JitterSetting {
    fn from(key: JitterKey) -> JitterSetting {
        match key {
            JitterKey::Switch(false) | JitterKey::Kind(JitterKind::None) => JitterSetting::None,
            JitterKey::Switch(true) | JitterKey::Kind(JitterKind::Full) => JitterSetting::Full,
            JitterKey::Kind(JitterKind::Equal) => JitterSetting::Equal,
            JitterKey::Kind(JitterKind::Decorrelated) => JitterSetting::Decorrelated,
            JitterKey::Kind(JitterKind::Additive) => JitterSetting::Additive,
            JitterKey::Share(ProportionalJitter { proportional }) => {
                JitterSetting::Proportional(proportional)
            }
        }
    }
}

/// What happens to a record that would have to wait too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLongWait {
    /// Wait until the time that the server named, while others go on; beyond the patience of the
    /// run, end it with exit code 75.
    #[default]
    Park,
    /// Make it a dead letter at once, with that time as the earliest time of a replay.
    GiveUp,
}

// serde takes a default by the name of a function.
fn one_second() -> f64 {
    1.0
}
fn two() -> f64 {
    2.0
}
fn ten() -> f64 {
    10.0
}
fn thirty() -> f64 {
    30.0
}
fn sixty() -> f64 {
    60.0
}
fn hour() -> f64 {
    3600.0
}
fn day() -> f64 {
    86_400.0
}
