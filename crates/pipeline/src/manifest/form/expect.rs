//! `expect`: what `tidegate simulate` must find, so that a policy is kept under test.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::YamlScalar;

/// What `tidegate simulate` must find. A number must be found exactly; `"<= 5"` and `">= 5"` are
/// bounds. Only `simulate` reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectSpec {
    /// The number of records that are simulated. By default 2,000.
    ///
    /// Touch it when `time` or `calls` are to be those of your own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000))]
    pub records: Option<u64>,

    /// The share of records that are answered, such as `">= 99%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub success: Option<YamlScalar>,

    /// The number of records that are answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub done: Option<YamlScalar>,

    /// The number of records that are given up, such as `0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub dead: Option<YamlScalar>,

    /// The number of records that are parked until later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub parked: Option<YamlScalar>,

    /// The number of calls, retries included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub calls: Option<YamlScalar>,

    /// The number of calls per record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub load: Option<YamlScalar>,

    /// The share of calls that are refused as too many, such as `"<= 2%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub throttled_share: Option<YamlScalar>,

    /// The number of calls that are sent earlier than the server asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub early: Option<YamlScalar>,

    /// The number of calls that time out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub timeouts: Option<YamlScalar>,

    /// The most calls at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub in_flight_max: Option<YamlScalar>,

    /// The time until the last record is done, such as `"<= 20m"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub time: Option<YamlScalar>,

    /// The longest time that one record takes, such as `"<= 30s"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar")]
    pub wait_max: Option<YamlScalar>,

    /// Expectations for one server, by its name, instead of those for all: `steady`, `throttled`,
    /// `throttled, tells`, `down for a minute`, `flaky`. `null` takes one away.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, BTreeMap<String, YamlScalar>>,
}

impl ExpectSpec {
    /// The expectations for every server, by the name of the metric.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, &YamlScalar)> {
        [
            ("success", &self.success),
            ("done", &self.done),
            ("dead", &self.dead),
            ("parked", &self.parked),
            ("calls", &self.calls),
            ("load", &self.load),
            ("throttled_share", &self.throttled_share),
            ("early", &self.early),
            ("timeouts", &self.timeouts),
            ("in_flight_max", &self.in_flight_max),
            ("time", &self.time),
            ("wait_max", &self.wait_max),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }
}
