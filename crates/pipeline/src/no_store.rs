//! Replaces object stores in a build without them: opening a store fails with the reason.
//!
//! An [`ObjectStoreClient`] has no values here, so code that uses one still compiles and never
//! runs.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Verdict;
use tidegate_core::bucket::CredentialSource;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use url::Url;

use crate::error::SetupError;
use crate::lane::Lanes;
use crate::secret::SecretRef;
use crate::traffic::Caller;

/// An object store; it has no values.
#[derive(Clone, Debug)]
pub enum ObjectStoreClient {}

/// An object; it has no values.
#[derive(Debug)]
pub struct ObjectReader {
    /// The metadata.
    pub meta: Meta,
    store: ObjectStoreClient,
}

/// The metadata of an object.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Its size in bytes.
    pub size: u64,
    /// Its ETag, which identifies the content.
    pub etag: Option<String>,
}

/// Why a store operation failed.
#[derive(Clone, Debug)]
pub struct StoreError {
    /// The last verdict.
    pub verdict: Verdict,
    store: ObjectStoreClient,
}

impl StoreError {
    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self.store {}
    }

    /// Whether the cause is remote and may pass with time.
    #[must_use]
    pub fn is_later(&self) -> bool {
        match self.store {}
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store {}
    }
}

/// The settings of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreSettings {
    /// The configuration of the lanes.
    pub lane: LaneConfig,
    /// The settings for buckets.
    pub cloud: CloudSettings,
    /// The longest wait that a store may ask for.
    pub patience: Duration,
    /// The policy of calls.
    pub policy: CallPolicy,
}

/// Settings for stores on the network.
#[derive(Clone, Debug, Default)]
pub struct CloudSettings {
    /// The URL of the service.
    pub endpoint: Option<Url>,
    /// The region.
    pub region: Option<String>,
    /// The storage account.
    pub account: Option<String>,
    /// The reference to the access key.
    pub access_key: Option<SecretRef>,
    /// The reference to the secret key.
    pub secret_key: Option<SecretRef>,
    /// The reference to a session token.
    pub session_token: Option<SecretRef>,
    /// The reference to a shared access signature.
    pub sas_token: Option<SecretRef>,
    /// The reference to the JSON of a service account.
    pub service_account: Option<SecretRef>,
    /// Where credentials come from if none is given.
    pub credentials: CredentialSource,
    /// Whether the name of the endpoint may resolve to private addresses.
    pub private: bool,
}

impl ObjectStoreClient {
    /// Always fails.
    ///
    /// # Errors
    /// Always.
    pub fn open_for(address: &str, _: &StoreSettings, _: Caller) -> Result<ObjectStoreClient, SetupError> {
        Err(format!(
            "{address}: this build does not support object stores; build with the feature `object-store`"
        )
        .into())
    }

    /// Its lanes.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        match *self {}
    }

    /// Gets an object.
    ///
    /// # Errors
    /// Never.
    pub async fn get(&self, _: &str) -> Result<ObjectReader, StoreError> {
        match *self {}
    }

    /// The metadata of an object.
    ///
    /// # Errors
    /// Never.
    pub async fn head(&self, _: &str) -> Result<Meta, StoreError> {
        match *self {}
    }

    /// Puts an object.
    ///
    /// # Errors
    /// Never.
    pub async fn put_stream<S>(&self, _: &str, _: Option<u64>, _: S) -> Result<(), StoreError>
    where
        S: futures_util::Stream<Item = io::Result<Bytes>>,
    {
        match *self {}
    }
}

impl ObjectReader {
    /// The next chunk.
    ///
    /// # Errors
    /// Never.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.store {}
    }
}
