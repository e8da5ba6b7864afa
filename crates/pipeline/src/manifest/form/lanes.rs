//! `lanes`: the server at which machines share the rates of the services they call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where machines share the rates of the services they call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "LanesKey")]
#[schemars(with = "LanesKey")]
pub struct LanesSpec {
    /// The server.
    pub url: String,
    /// What to do while it cannot be reached.
    pub when_unreachable: FleetFallback,
}

/// The server, alone or with settings.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum LanesKey {
    Url(#[schemars(length(min = 1, max = 4096))] String),
    Settings(LanesSettings),
}

/// A server at which machines share rates.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LanesSettings {
    /// The server: `env:NAME` or `file:PATH` that contains its URL, or a URL without a password. The URL begins
    /// with `redis://`, `rediss://` (TLS), `postgres://`, `nats://` or `tls://` (NATS with TLS).
    #[schemars(length(min = 1, max = 4096), example = &"redis://cache.example")]
    url: String,

    /// What to do while the server cannot be reached.
    ///
    /// Touch it when a run must go on without the server, at its share of the last known rate.
    #[serde(default)]
    when_unreachable: FleetFallback,
}

/// What a process does while it cannot reach the server of its fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetFallback {
    /// Call nothing. Records wait; beyond the patience of the run, it ends with exit code 75.
    #[default]
    Stop,
    /// Go on at this process's share of the last known rate. A process that knows none waits.
    Share,
}

impl From<LanesKey> for LanesSpec {
    fn from(key: LanesKey) -> LanesSpec {
        match key {
            LanesKey::Url(url) => LanesSpec { url, when_unreachable: FleetFallback::default() },
            LanesKey::Settings(LanesSettings { url, when_unreachable }) => {
                LanesSpec { url, when_unreachable }
            }
        }
    }
}
