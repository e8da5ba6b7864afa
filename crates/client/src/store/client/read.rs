//! Reads objects as a stream that resumes after an error.
//!
//! The first mebibyte of an object is read as part of the call. Most objects end there, so a
//! truncated body is a failed attempt like any other, and the lane learns of it. Longer objects
//! continue as a stream. If it breaks or stalls, a new call through the lane requests the rest, but
//! only of the same content: if the object was overwritten in the meantime, reading fails rather
//! than mixing both.

use super::judge::StoreFault;
use super::{ObjectStoreClient, meta, path};
use crate::store::{GetRange, Meta, StoreError};
use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use object_store::{GetOptions, ObjectMeta};
use std::collections::VecDeque;
use std::ops::Range;
use tidegate_core::Code;

/// The number of bytes read as part of the call.
const AHEAD_BYTES: usize = 1 << 20;

/// A streaming reader of an object, or of a range of one.
pub struct ObjectReader {
    /// The metadata; its size is that of the whole object.
    pub meta: Meta,
    /// The range of bytes that is read, as offsets in the whole object.
    pub range: Range<u64>,
    store: ObjectStoreClient,
    physical_key: String,
    found: ObjectMeta,
    /// The offset of the next byte in the whole object.
    at: u64,
    stalls: u32,
    ahead: VecDeque<Bytes>,
    rest: BoxStream<'static, object_store::Result<Bytes>>,
}

impl std::fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectReader")
            .field("meta", &self.meta)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// A range in the words of the library.
fn of_library(range: GetRange) -> object_store::GetRange {
    match range {
        GetRange::Bounded(range) => object_store::GetRange::Bounded(range),
        GetRange::Offset(from) => object_store::GetRange::Offset(from),
        GetRange::Suffix(last) => object_store::GetRange::Suffix(last),
    }
}

/// A response head and the first part of the body.
struct Opened {
    found: ObjectMeta,
    range: Range<u64>,
    ahead: VecDeque<Bytes>,
    rest: BoxStream<'static, object_store::Result<Bytes>>,
}

impl ObjectStoreClient {
    /// Reads a whole object.
    ///
    /// # Errors
    /// When it does not exist, or the request failed.
    pub async fn get(&self, key: &str) -> Result<ObjectReader, StoreError> {
        self.get_range(key, None).await
    }

    /// Reads a range of an object, or all of it.
    ///
    /// # Errors
    /// When the object or the range does not exist, or the request failed.
    pub async fn get_range(&self, key: &str, range: Option<GetRange>) -> Result<ObjectReader, StoreError> {
        self.get_range_of(key, range, None).await
    }

    /// The same, if the object still has this ETag.
    ///
    /// # Errors
    /// As [`ObjectStoreClient::get_range`], or with `CONFLICT` when the object was replaced.
    pub async fn get_range_of(
        &self,
        key: &str,
        range: Option<GetRange>,
        etag: Option<String>,
    ) -> Result<ObjectReader, StoreError> {
        let physical_key = self.physical_key(key)?;
        let (mut range, mut if_match) = (range, etag);
        if let (Some(GetRange::Suffix(last)), false) = (&range, self.0.backend.suffixes) {
            let found = self.head(key).await?;
            range = Some(GetRange::Offset(found.size.saturating_sub(*last)));
            if_match = found.etag;
        }
        let wanted = GetOptions { range: range.map(of_library), if_match, ..GetOptions::default() };
        let Opened { found, range, ahead, rest } = self.begin(key, &physical_key, &wanted).await?;
        Ok(ObjectReader {
            meta: meta(key, &found),
            at: range.start,
            range,
            store: self.clone(),
            physical_key,
            found,
            stalls: 0,
            ahead,
            rest,
        })
    }

    async fn begin(&self, key: &str, physical_key: &str, wanted: &GetOptions) -> Result<Opened, StoreError> {
        let path = path(key, physical_key)?;
        let objects = &self.0.backend.objects;
        let open = || async {
            let got = objects.get_opts(&path, wanted.clone()).await?;
            let (found, range) = (got.meta.clone(), got.range.clone());
            let mut rest = got.into_stream();
            let (mut ahead, mut bytes) = (VecDeque::new(), 0);
            while bytes < AHEAD_BYTES {
                match rest.next().await {
                    Some(Ok(piece)) => {
                        bytes += piece.len();
                        ahead.push_back(piece);
                    }
                    Some(Err(_)) => return Err(StoreFault::Cut),
                    None if bytes as u64 != range.end.saturating_sub(range.start) => {
                        return Err(StoreFault::Cut);
                    }
                    None => break,
                }
            }
            Ok(Opened { found, range, ahead, rest })
        };
        self.call(key, physical_key, open).await
    }
}

impl ObjectReader {
    /// The next chunk; `None` at the end.
    ///
    /// # Errors
    /// When the rest could not be read, or the object has changed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            let piece = match self.ahead.pop_front() {
                Some(piece) => Some(piece),
                None if self.at >= self.range.end => return Ok(None),
                None => {
                    let patience = self.store.0.policy.attempt_timeout;
                    let next = tokio::time::timeout(patience, self.rest.next()).await;
                    next.ok().flatten().and_then(Result::ok)
                }
            };
            if let Some(piece) = piece {
                let left = self.range.end.saturating_sub(self.at);
                if piece.len() as u64 > left {
                    let why = "more bytes received than declared";
                    return Err(StoreError::local(&self.meta.key, Code::UNEXPECTED_BODY, why));
                }
                self.at += piece.len() as u64;
                self.stalls = 0;
                return Ok(Some(piece));
            }
            self.resume().await?;
        }
    }

    /// Requests the remaining bytes.
    async fn resume(&mut self) -> Result<(), StoreError> {
        self.stalls += 1;
        if self.stalls > self.store.0.policy.attempts_max {
            let why = "the download is interrupted repeatedly";
            return Err(StoreError::local(&self.meta.key, Code::TRUNCATED_BODY, why));
        }
        let mut wanted = GetOptions {
            range: Some(of_library(GetRange::Bounded(self.at..self.range.end))),
            if_match: self.found.e_tag.clone(),
            ..GetOptions::default()
        };
        if wanted.if_match.is_none() {
            wanted.if_unmodified_since = Some(self.found.last_modified);
        }
        let opened = self.store.begin(&self.meta.key, &self.physical_key, &wanted).await?;
        if opened.found.e_tag != self.found.e_tag || opened.range != (self.at..self.range.end) {
            let why = "the object changed while it was read";
            return Err(StoreError::local(&self.meta.key, Code::CONFLICT, why));
        }
        (self.ahead, self.rest) = (opened.ahead, opened.rest);
        Ok(())
    }

    /// The whole content, if it has at most `bytes_max` bytes.
    ///
    /// # Errors
    /// As [`ObjectReader::next`], or when there are more bytes.
    pub async fn bytes(mut self, bytes_max: usize) -> Result<Bytes, StoreError> {
        let length = self.range.end.saturating_sub(self.range.start);
        if length > bytes_max as u64 {
            let why = format!("{length} bytes, more than the limit of {bytes_max}");
            return Err(StoreError::local(&self.meta.key, Code::PAYLOAD_TOO_LARGE, why));
        }
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        if first.len() as u64 == length {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity(usize::try_from(length).unwrap_or_default());
        whole.extend_from_slice(&first);
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// The chunks as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, StoreError>> + Send {
        stream::try_unfold(
            self,
            |mut object| async move { Ok(object.next().await?.map(|piece| (piece, object))) },
        )
    }
}
