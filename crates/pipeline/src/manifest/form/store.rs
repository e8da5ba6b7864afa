//! `store`: how to reach a bucket.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tidegate_core::bucket::{BucketAddress, CredentialSource};
use tidegate_core::call::CallPolicy;
use tidegate_core::time::seconds;

use super::YEAR;
use crate::error::SetupError;
use crate::secret::SecretRef;
use crate::store::{CloudSettings, ObjectStoreClient, StoreSettings};
use crate::traffic::Traffic;

/// Where the credentials of a bucket come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BucketCredentials {
    /// The usual variables of the cloud, such as AWS_ACCESS_KEY_ID, AZURE_STORAGE_KEY or
    /// GOOGLE_APPLICATION_CREDENTIALS.
    Environment,
    /// A token file that is exchanged for the credentials of a role.
    WebIdentity,
    /// The credential service of the container.
    Container,
    /// The metadata service of the instance.
    Instance,
}

/// How to reach the bucket of an `s3://`, `az://` or `gs://` address. Without keys and
/// `credentials` requests are not signed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// The URL of the service, such as one that speaks S3. By default that of the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"https://minio.example")]
    pub endpoint: Option<String>,

    /// The region of an S3 bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub region: Option<String>,

    /// The storage account of an Azure container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub account: Option<String>,

    /// Where credentials come from if no key is given. The services of containers and instances are
    /// queried only if they are named here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BucketCredentials")]
    pub credentials: Option<BucketCredentials>,

    /// A reference to the access key of S3 or the account key of Azure: `env:NAME` or `file:PATH`.
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

    /// A reference to a shared access signature of Azure: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub sas_token: Option<String>,

    /// A reference to the JSON of a Google service account: `file:PATH` or `env:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub service_account: Option<String>,

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

    /// How its cloud is reached.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn cloud(&self) -> Result<CloudSettings, String> {
        let endpoint = self.endpoint.as_deref().map(url::Url::parse).transpose();
        let secret = |name: &Option<String>| name.as_deref().map(str::parse::<SecretRef>).transpose();
        let say = |e: crate::secret::SecretError| format!("store: {e}");
        Ok(CloudSettings {
            endpoint: endpoint.map_err(|e| format!("store.endpoint: {e}"))?,
            region: self.region.clone(),
            account: self.account.clone(),
            access_key: secret(&self.access_key).map_err(say)?,
            secret_key: secret(&self.secret_key).map_err(say)?,
            session_token: secret(&self.session_token).map_err(say)?,
            sas_token: secret(&self.sas_token).map_err(say)?,
            service_account: secret(&self.service_account).map_err(say)?,
            credentials: match self.credentials {
                None => CredentialSource::Given,
                Some(BucketCredentials::Environment) => CredentialSource::Environment,
                Some(BucketCredentials::WebIdentity) => CredentialSource::WebIdentity,
                Some(BucketCredentials::Container) => CredentialSource::Container,
                Some(BucketCredentials::Instance) => CredentialSource::Instance,
            },
            private: self.allow_private,
        })
    }

    /// Opens the store of an address such as `s3://bucket/key` within a run; returns it with the
    /// key. `patience` is the longest wait that it may ask for.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn open(
        &self,
        address: &str,
        patience: Duration,
        traffic: &Traffic,
    ) -> Result<(ObjectStoreClient, String), SetupError> {
        let at =
            BucketAddress::parse(address).ok_or_else(|| format!("{address} is not the URL of a bucket"))?;
        if at.key.is_empty() {
            return Err(format!("{address} has no object key; expected {at}/key").into());
        }
        Ok((self.open_bucket(&at.to_string(), patience, traffic)?, at.key.to_owned()))
    }

    /// Opens the store of an address such as `s3://bucket/base` within a run.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn open_bucket(
        &self,
        name: &str,
        patience: Duration,
        traffic: &Traffic,
    ) -> Result<ObjectStoreClient, SetupError> {
        let cloud = self.cloud()?;
        let default = StoreSettings::default();
        let policy = self.policy(default.policy);
        let settings = StoreSettings { cloud, patience, policy, ..default };
        let store =
            ObjectStoreClient::open_for(name, &settings, traffic.caller(name)).map_err(|e| e.to_string())?;
        Ok(store)
    }
}
