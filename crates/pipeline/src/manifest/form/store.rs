//! `store`: how to reach a bucket.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tidegate_core::call::CallPolicy;
use tidegate_core::time::seconds;

use super::YEAR;
use crate::error::SetupError;
use crate::secret::SecretRef;
use crate::store::{ObjectStoreClient, S3Settings, StoreSettings};
use crate::traffic::Traffic;

/// How to reach the bucket of an `s3://` address. Without keys requests are not signed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// The URL of an S3-compatible service. By default AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"https://minio.example")]
    pub endpoint: Option<String>,

    /// The region of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub region: Option<String>,

    /// A reference to the access key: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub access_key: Option<String>,

    /// A reference to the secret key: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub secret_key: Option<String>,

    /// A reference to a session token: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub session_token: Option<String>,

    /// Whether the name of the endpoint may resolve to a private address.
    pub allow_private: bool,

    /// The maximum number of attempts for one request, including the first. Throttled requests and
    /// outages do not count. By default 5.
    ///
    /// Touch it to give up sooner, or to outlast longer trouble.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = u32::MAX))]
    pub max_attempts: Option<u32>,

    /// The wait before the first retry, before jitter. By default 0.2 s.
    ///
    /// Touch it when the store needs longer to recover than the first retry leaves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub base_delay_seconds: Option<f64>,

    /// The longest wait between two attempts. By default 20 s.
    ///
    /// Touch it when outages last minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(max = YEAR), extend("exclusiveMinimum" = 0))]
    pub max_delay_seconds: Option<f64>,
}

impl Bucket {
    /// The policy of its calls, where it is not that of every store.
    fn policy(&self, default: CallPolicy) -> CallPolicy {
        let (base, cap) = (self.base_delay_seconds.map(seconds), self.max_delay_seconds.map(seconds));
        CallPolicy {
            attempts_max: self.max_attempts.unwrap_or(default.attempts_max),
            backoff: default.backoff.bounded(base, cap),
            ..default
        }
    }

    /// Opens the store of an `s3://bucket/key` address within a run; returns it with the key.
    /// `patience` is the longest wait that it may ask for.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn open(
        &self,
        address: &str,
        patience: Duration,
        traffic: &Traffic,
    ) -> Result<(ObjectStoreClient, String), SetupError> {
        let rest = address.strip_prefix("s3://").ok_or_else(|| format!("{address} is not an s3:// URL"))?;
        let (bucket, key) = rest.split_once('/').filter(|(_, key)| !key.is_empty()).unwrap_or((rest, ""));
        if key.is_empty() {
            return Err(format!("{address} has no object key; expected s3://bucket/key").into());
        }
        let endpoint = self.endpoint.as_deref().map(url::Url::parse).transpose();
        let secret = |name: &Option<String>| name.as_deref().map(str::parse::<SecretRef>).transpose();
        let say = |e: crate::secret::SecretError| format!("store: {e}");
        let s3 = S3Settings {
            endpoint: endpoint.map_err(|e| format!("store.endpoint: {e}"))?,
            region: self.region.clone(),
            access_key: secret(&self.access_key).map_err(say)?,
            secret_key: secret(&self.secret_key).map_err(say)?,
            session_token: secret(&self.session_token).map_err(say)?,
            private: self.allow_private,
        };
        let default = StoreSettings::default();
        let policy = self.policy(default.policy);
        let settings = StoreSettings { s3, patience, policy, ..default };
        let name = format!("s3://{bucket}");
        let store = ObjectStoreClient::open_for(&name, &settings, traffic.caller(&name))
            .map_err(|e| e.to_string())?;
        Ok((store, key.to_owned()))
    }
}
