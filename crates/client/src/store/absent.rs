//! Stands in for object stores in a build without them: opening a store fails with the reason.
//!
//! An [`ObjectStoreClient`] has no values here, so code that uses one still compiles and never runs.

use super::{CallContext, Confirmation, GetRange, Meta, OpenError, StoreError, StoreSettings};
use crate::lane::{Clock, Lanes};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use tidegate_core::part::{MissingPart, OptionalPart};

/// A client of one bucket or directory; it has no values.
#[derive(Clone, Debug)]
pub struct ObjectStoreClient(Infallible);

/// A reader of an object; it has no values.
#[derive(Debug)]
pub struct ObjectReader {
    /// The metadata; its size is that of the whole object.
    pub meta: Meta,
    /// The range of bytes that is read, as offsets in the whole object.
    pub range: Range<u64>,
    store: ObjectStoreClient,
}

/// What was put; it has no values.
#[derive(Debug)]
pub struct PutReceipt {
    /// The number of bytes.
    pub bytes: u64,
    _store: ObjectStoreClient,
}

impl ObjectStoreClient {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &str, _: &StoreSettings) -> Result<ObjectStoreClient, OpenError> {
        Err(OpenError::Missing(MissingPart(OptionalPart::ObjectStores)))
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn open_on(
        address: &str,
        settings: &StoreSettings,
        _: Clock,
    ) -> Result<ObjectStoreClient, OpenError> {
        ObjectStoreClient::open(address, settings)
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn open_for(
        address: &str,
        settings: &StoreSettings,
        _: impl CallContext + 'static,
    ) -> Result<ObjectStoreClient, OpenError> {
        ObjectStoreClient::open(address, settings)
    }

    /// Its lanes, one per prefix.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        match self.0 {}
    }

    /// Puts an object.
    ///
    /// # Errors
    /// Never.
    pub async fn put(&self, _: &str, _: Bytes) -> Result<(), StoreError> {
        match self.0 {}
    }

    /// Puts an object from a stream.
    ///
    /// # Errors
    /// Never.
    pub async fn put_stream<S>(&self, _: &str, _: Option<u64>, _: S) -> Result<PutReceipt, StoreError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send,
    {
        match self.0 {}
    }

    /// Compares an object with what was put.
    ///
    /// # Errors
    /// Never.
    pub async fn confirm(&self, _: &str, _: &PutReceipt, _: bool) -> Result<Confirmation, StoreError> {
        match self.0 {}
    }

    /// The metadata of an object.
    ///
    /// # Errors
    /// Never.
    pub async fn head(&self, _: &str) -> Result<Meta, StoreError> {
        match self.0 {}
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// Never.
    pub async fn get(&self, _: &str) -> Result<ObjectReader, StoreError> {
        match self.0 {}
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// Never.
    pub async fn get_range(&self, _: &str, _: Option<GetRange>) -> Result<ObjectReader, StoreError> {
        match self.0 {}
    }

    /// Reads a range of an object with this ETag.
    ///
    /// # Errors
    /// Never.
    pub async fn get_range_of(
        &self,
        _: &str,
        _: Option<GetRange>,
        _: Option<String>,
    ) -> Result<ObjectReader, StoreError> {
        match self.0 {}
    }

    /// All objects under a folder.
    pub fn list(&self, _: &str) -> BoxStream<'static, Result<Meta, StoreError>> {
        match self.0 {}
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// Never.
    pub async fn delete(&self, _: &str) -> Result<(), StoreError> {
        match self.0 {}
    }

    /// Copies an object.
    ///
    /// # Errors
    /// Never.
    pub async fn copy(&self, _: &str, _: &str) -> Result<(), StoreError> {
        match self.0 {}
    }

    /// Renames an object.
    ///
    /// # Errors
    /// Never.
    pub async fn rename(&self, _: &str, _: &str) -> Result<(), StoreError> {
        match self.0 {}
    }
}

impl ObjectReader {
    /// The next chunk; `None` at the end.
    ///
    /// # Errors
    /// Never.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.store.0 {}
    }

    /// The whole content.
    ///
    /// # Errors
    /// Never.
    pub async fn bytes(self, _: usize) -> Result<Bytes, StoreError> {
        match self.store.0 {}
    }
}
