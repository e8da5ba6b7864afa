//! `services`: the remote services that the source and the steps call, by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tidegate_core::fallback::FallbackOn;

use super::{ServiceRetry, YEAR};

/// The default maximum age of a cached response: 30 days, in seconds.
const CACHE_MAX_AGE_SECONDS: f64 = 30.0 * 86_400.0;

/// A remote service that the source or steps call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSpec {
    /// The provider profile, which describes its protocol; `tidegate profiles ls` lists them. Without
    /// one, a step `http` tells failures by the HTTP status alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub profile: Option<String>,

    /// A file or a directory with additional profiles, in which `profile` is looked up first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub profiles: Option<String>,

    /// The URL of the service, if it is not that of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub url: Option<String>,

    /// A reference to its API key: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub key: Option<String>,

    /// The User-Agent header, for services that require one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub user_agent: Option<String>,

    /// The language of the results, such as `de`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 35))]
    pub language: Option<String>,

    /// The country of the addresses to geocode, such as `at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 35))]
    pub country: Option<String>,

    /// Whether its responses to steps are stored in the response cache. Without it, an interrupted
    /// run repeats its calls.
    #[serde(skip_serializing_if = "std::clone::Clone::clone")]
    pub cache: bool,

    /// The maximum age of a cached response. Older ones are requested again, except those of the
    /// resumed run.
    ///
    /// Touch it downwards when answers change.
    #[schemars(range(min = 0.0, max = YEAR))]
    pub cache_max_age_seconds: f64,

    /// The maximum calls per second, if it is not that of `rate_limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = 1_000_000.0), extend("exclusiveMinimum" = 0))]
    pub requests_per_second: Option<f64>,

    /// The maximum number of records in a step that calls the service: records that were read and
    /// not yet passed on, because they or an earlier record wait for a response. By default 16384,
    /// or four batches of the source if that is more. A batch that is larger is processed alone.
    ///
    /// Touch it upwards when single records wait long while the service is fast, downwards when
    /// memory is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1_000_000))]
    pub window: Option<u32>,

    /// What differs from `pipeline.retry_policy` for this service.
    ///
    /// Touch it when one service needs more patience, or less, than the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ServiceRetry")]
    pub retry_policy: Option<ServiceRetry>,

    /// The share of the records read that may fail at the steps that call this service: 0.01 is one
    /// in a hundred. Above it the run halts with exit code 3. Without it all may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    pub max_reject_rate: Option<f64>,

    /// The services that a step asks instead, by their names, in this order. Their own `fallback` does
    /// not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 64)), extend("uniqueItems" = true))]
    pub fallback: Vec<String>,

    /// When the next service is asked: its quota is spent, its breaker is open, or it has nothing for
    /// the record.
    ///
    /// Touch it to ask the next service about records without a match too.
    #[schemars(extend("uniqueItems" = true))]
    pub fallback_on: Vec<FallbackCase>,

    /// The price of 1,000 calls, in any currency, for the estimate of `tidegate plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 1_000_000_000.0))]
    pub price_per_thousand: Option<f64>,

    /// Whether its host name may resolve to a private address.
    pub allow_private: bool,

    /// Additional hosts that links and redirects may lead to: `HOST`, or `HOST:PORT` for one port.
    /// Its own host is allowed at its own port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 253)), extend("uniqueItems" = true))]
    pub allow_hosts: Vec<String>,
}

/// When the next service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FallbackCase {
    /// The quota of the service is spent.
    QuotaSpent,
    /// The breaker of the service is open.
    CircuitOpen,
    /// The service has nothing for the record.
    NoMatch,
}

impl ServiceSpec {
    /// When its fallback is asked.
    #[must_use]
    pub fn falls(&self) -> FallbackOn {
        let on = |case| self.fallback_on.contains(&case);
        FallbackOn {
            quota_spent: on(FallbackCase::QuotaSpent),
            circuit_open: on(FallbackCase::CircuitOpen),
            no_match: on(FallbackCase::NoMatch),
        }
    }
}

impl Default for ServiceSpec {
    fn default() -> ServiceSpec {
        ServiceSpec {
            profile: None,
            profiles: None,
            url: None,
            key: None,
            user_agent: None,
            language: None,
            country: None,
            cache: true,
            cache_max_age_seconds: CACHE_MAX_AGE_SECONDS,
            requests_per_second: None,
            window: None,
            retry_policy: None,
            max_reject_rate: None,
            fallback: Vec::new(),
            fallback_on: vec![FallbackCase::QuotaSpent, FallbackCase::CircuitOpen],
            price_per_thousand: None,
            allow_private: false,
            allow_hosts: Vec::new(),
        }
    }
}
