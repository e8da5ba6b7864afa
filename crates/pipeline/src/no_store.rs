//! Stands in for object stores in a build without them: no store can be opened, and it says why.
//!
//! An [`ObjectStoreClient`] has no value here, so whatever is written for one still compiles and never runs.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Verdict;
use tidegate_core::lane::LaneConfig;
use url::Url;

use crate::error::SetupError;
use crate::lane::Lanes;
use crate::secret::SecretRef;
use crate::traffic::Caller;

/// An object store, of which there is none.
#[derive(Clone, Debug)]
pub enum ObjectStoreClient {}

/// An object, of which there is none.
#[derive(Debug)]
pub struct ObjectReader {
    /// What it is.
    pub meta: Meta,
    store: ObjectStoreClient,
}

/// An object, without its content.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Bytes.
    pub size: u64,
    /// The store's mark of this very content.
    pub etag: Option<String>,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug)]
pub struct StoreError {
    /// The last verdict.
    pub verdict: Verdict,
    store: ObjectStoreClient,
}

impl StoreError {
    /// The other side is the reason and time may heal it.
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
    /// The settings of the lanes.
    pub lane: LaneConfig,
    /// For buckets.
    pub s3: S3Settings,
    /// How long a store may ask us to wait.
    pub patience: Duration,
}

/// How to reach a bucket.
#[derive(Clone, Debug, Default)]
pub struct S3Settings {
    /// The address of the service.
    pub endpoint: Option<Url>,
    /// The region.
    pub region: Option<String>,
    /// Where the access key is found.
    pub access_key: Option<SecretRef>,
    /// Where the secret key is found.
    pub secret_key: Option<SecretRef>,
    /// Where a session token is found.
    pub session_token: Option<SecretRef>,
    /// The names of the endpoint may lead to private addresses.
    pub private: bool,
}

impl ObjectStoreClient {
    /// Opens nothing.
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

    /// Puts an object.
    ///
    /// # Errors
    /// Never.
    pub async fn put_stream<S>(&self, _: &str, _: Option<u64>, _: S) -> Result<u64, StoreError>
    where
        S: futures_util::Stream<Item = io::Result<Bytes>>,
    {
        match *self {}
    }
}

impl ObjectReader {
    /// The next piece.
    ///
    /// # Errors
    /// Never.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.store {}
    }
}
