//! `store`: how to reach a bucket.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::SetupError;
use crate::secret::SecretRef;
use crate::store::{ObjectStoreClient, S3Settings, StoreSettings};
use crate::traffic::Traffic;

/// How to reach the bucket of an `s3://` address. Without keys requests are not signed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// The address of a service that speaks S3; AWS if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"https://minio.example")]
    pub endpoint: Option<String>,

    /// The region of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub region: Option<String>,

    /// Where the access key is: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub access_key: Option<String>,

    /// Where the secret key is: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub secret_key: Option<String>,

    /// Where a session token is: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub session_token: Option<String>,

    /// Whether the name of the endpoint may resolve to a private address.
    pub allow_private: bool,
}

impl Bucket {
    /// The store of an `s3://bucket/key` address in the traffic of a run, and the key in it. It may
    /// ask for so long a wait.
    ///
    /// # Errors
    /// Why it cannot be used, in a sentence.
    pub fn open(
        &self,
        address: &str,
        patience: Duration,
        traffic: &Traffic,
    ) -> Result<(ObjectStoreClient, String), SetupError> {
        let rest =
            address.strip_prefix("s3://").ok_or_else(|| format!("{address} is not an s3:// address"))?;
        let (bucket, key) = rest.split_once('/').filter(|(_, key)| !key.is_empty()).unwrap_or((rest, ""));
        if key.is_empty() {
            return Err(format!("{address} names no object; write s3://bucket/key").into());
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
        let settings = StoreSettings { s3, patience, ..StoreSettings::default() };
        let name = format!("s3://{bucket}");
        let store = ObjectStoreClient::open_for(&name, &settings, traffic.caller(&name))
            .map_err(|e| e.to_string())?;
        Ok((store, key.to_owned()))
    }
}
