//! Ranges of an object in a store.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::Code;
use tidegate_core::call::Next;
use tidegate_raster::{RasterCause, RasterError, SidecarName};

use super::calls::{RasterCalls, RasterTrouble};
use super::remote::{ObjectVersion, RangeReader};
use crate::call::Later;
use crate::step::FailedCall;
use crate::store::{GetRange, ObjectStoreClient, StoreError};

/// A way to one object of a store.
pub(super) struct BucketRanges {
    pub(super) store: ObjectStoreClient,
    pub(super) address: String,
    pub(super) key: String,
    pub(super) calls: Arc<RasterCalls>,
}

impl BucketRanges {
    fn failed(&self, error: &StoreError) -> RasterError {
        let code = error.verdict.code;
        self.calls.note(match error.next {
            Next::Park(until, _) => {
                let until = self.store.lanes().clock().wall_of(until);
                RasterTrouble::Later(Later { code, until, said: error.to_string() })
            }
            _ => RasterTrouble::Failed(code, self.failed_call()),
        });
        let cause = match code {
            Code::CONFLICT => RasterCause::Changed,
            _ if error.is_later() => RasterCause::Transient(code),
            _ => RasterCause::Refused(code),
        };
        RasterError::new(cause, error.to_string())
    }

    /// The call as a dead letter names it. A store keeps no list of its attempts.
    fn failed_call(&self) -> FailedCall {
        FailedCall {
            service: self.address.clone(),
            name: self.address.clone(),
            driver: self.address.split(':').next().unwrap_or_default().to_owned(),
            url: format!("{}/{}", self.address, self.key),
            ..FailedCall::default()
        }
    }

    async fn ask(
        &self,
        range: Range<u64>,
        etag: Option<String>,
    ) -> Result<(Bytes, ObjectVersion), RasterError> {
        let wanted = Some(GetRange::Bounded(range.clone()));
        let reader = self.store.get_range_of(&self.key, wanted, etag).await.map_err(|e| self.failed(&e))?;
        let version = ObjectVersion { size: reader.meta.size, etag: reader.meta.etag.clone() };
        let expected = range.start..range.end.min(version.size);
        if reader.range != expected {
            let message = format!("asked for bytes {range:?} and got {:?}", reader.range);
            return Err(RasterError::new(RasterCause::Transient(Code::UNEXPECTED_BODY), message));
        }
        let len_max = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let bytes = reader.bytes(len_max).await.map_err(|e| self.failed(&e))?;
        if bytes.len() as u64 != expected.end - expected.start {
            return Err(RasterError::new(RasterCause::Transient(Code::TRUNCATED_BODY), "too few bytes"));
        }
        Ok((bytes, version))
    }
}

#[async_trait]
impl RangeReader for BucketRanges {
    async fn first(&self, len: u64) -> Result<(Bytes, ObjectVersion), RasterError> {
        self.ask(0..len, None).await
    }

    async fn range(&self, range: Range<u64>, of: &ObjectVersion) -> Result<Bytes, RasterError> {
        let (bytes, version) = self.ask(range, of.etag.clone()).await?;
        if version == *of {
            return Ok(bytes);
        }
        Err(RasterError::new(RasterCause::Changed, "the object was replaced while it was read"))
    }

    fn beside(&self, suffix: SidecarName<'_>) -> Option<(String, Arc<dyn RangeReader>)> {
        let key = super::beside(&self.key, suffix);
        let reader = BucketRanges {
            store: self.store.clone(),
            address: self.address.clone(),
            key,
            calls: self.calls.clone(),
        };
        Some((format!("{}/{}", reader.address, reader.key), Arc::new(reader)))
    }
}
