//! Uploads of objects too large for one request.
//!
//! A multipart upload appears as a whole or not at all. Each part is a call of its own in the lane,
//! so throttling repeats only that part. Several parts are in flight at once, which bounds memory.
//! A failed or dropped upload is aborted, because stores charge for the parts of unfinished
//! uploads.
//!
//! Completing is the only request that is not idempotent: if its response is lost, a retry reports
//! that there is no such upload. So the SHA-256 of the content is computed while sending, and in
//! that case the object is read back and compared. If it is equal, the upload succeeded; otherwise
//! the error stands.

use super::judge::StoreFault;
use super::{ObjectStoreClient, path};
use crate::store::{Confirmation, StoreError};
use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt, TryStreamExt};
use md5::Md5;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use sha2::{Digest, Sha256};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tidegate_core::Code;
use tidegate_core::hex::hex;

/// The most parts that S3 allows for one object.
const PARTS_MAX: u64 = 10_000;

/// What was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutReceipt {
    /// The number of bytes.
    pub bytes: u64,
    /// The ETag that a store gives this content if its ETags are MD5 sums.
    etag: String,
    sha256: [u8; 32],
}

/// Computes the sums of what is put.
#[derive(Default)]
struct PutSums {
    bytes: u64,
    parts: u32,
    /// The MD5 sums of the parts.
    md5: Vec<u8>,
    sha256: Sha256,
}

impl PutSums {
    fn part(&mut self, content: &[u8]) {
        self.bytes = self.bytes.saturating_add(content.len() as u64);
        self.parts = self.parts.saturating_add(1);
        self.md5.extend_from_slice(&<Md5 as md5::Digest>::digest(content));
        self.sha256.update(content);
    }

    fn receipt(self, parts: bool) -> PutReceipt {
        let etag = match parts {
            true => format!("{}-{}", hex(&<Md5 as md5::Digest>::digest(&self.md5)), self.parts),
            false => hex(&self.md5),
        };
        PutReceipt { bytes: self.bytes, etag, sha256: self.sha256.finalize().into() }
    }
}

/// Whether an ETag is an MD5 sum, or one of MD5 sums.
fn is_md5(etag: &str) -> bool {
    let (sum, parts) = etag.split_once('-').unwrap_or((etag, "1"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    sum.len() == 32 && sum.bytes().all(|b| b.is_ascii_hexdigit()) && digits(parts)
}

impl ObjectStoreClient {
    /// Puts an object of any size from a stream, replacing an existing one. `length` is its size,
    /// if known: the parts are then made large enough, and a source with another number of bytes is
    /// refused.
    ///
    /// # Errors
    /// When the key is invalid, the source failed, or the store did not accept the object.
    pub async fn put_stream<S>(
        &self,
        key: &str,
        length: Option<u64>,
        source: S,
    ) -> Result<PutReceipt, StoreError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send,
    {
        let physical_key = self.physical_key(key)?;
        let path = path(key, &physical_key)?;
        let needed = length.unwrap_or(0).div_ceil(PARTS_MAX).next_multiple_of(1 << 20);
        let part_bytes = usize::try_from(needed).unwrap_or(usize::MAX).max(self.0.part_bytes);
        let mut source = PartSplitter { key, source: pin!(source), part_bytes, left: None, total: 0, length };
        let first = source.part().await?.unwrap_or_default();
        let Some(second) = source.part().await? else {
            let mut sums = PutSums::default();
            sums.part(&first);
            self.put(key, first).await?;
            return Ok(sums.receipt(false));
        };
        source.left = Some(second);
        match &self.0.backend.parts {
            Some(parts) => {
                let at = UploadTarget { store: self, key, physical_key: &physical_key, path: &path, parts };
                at.upload(first, source).await
            }
            None => self.stage(key, &path, first, source).await,
        }
    }

    /// Asks the store whether it holds what was put: its size, and its MD5 sum if it gives one. With
    /// `read` the object is read and compared byte by byte, by its SHA-256.
    ///
    /// # Errors
    /// When the object is missing or differs, or the request failed.
    pub async fn confirm(&self, key: &str, put: &PutReceipt, read: bool) -> Result<Confirmation, StoreError> {
        let differs = |what: String| {
            let why =
                format!("the store holds another object: {what}; it was overwritten, or damaged on its way");
            StoreError::local(key, Code::CONFLICT, why)
        };
        let found = self.head(key).await?;
        if found.size != put.bytes {
            return Err(differs(format!("{} bytes, not {}", found.size, put.bytes)));
        }
        if read {
            return match self.holds(key, put.bytes, &put.sha256).await? {
                true => Ok(Confirmation::Checksum),
                false => Err(differs("its SHA-256 differs".to_owned())),
            };
        }
        match found.etag.as_deref().map(|etag| etag.trim_matches('"')).filter(|etag| is_md5(etag)) {
            Some(etag) if etag.eq_ignore_ascii_case(&put.etag) => Ok(Confirmation::Checksum),
            // Of an encrypted object, the ETag is not a sum of its content.
            _ => Ok(Confirmation::Size),
        }
    }

    /// Whether the store holds exactly this content.
    async fn holds(&self, key: &str, length: u64, hash: &[u8]) -> Result<bool, StoreError> {
        let mut object = self.get(key).await?;
        if object.meta.size != length {
            return Ok(false);
        }
        let mut held = Sha256::new();
        while let Some(piece) = object.next().await? {
            held.update(&piece);
        }
        Ok(held.finalize()[..] == *hash)
    }

    /// For directories: writes the parts to one staged file.
    async fn stage<S>(
        &self,
        key: &str,
        path: &Path,
        first: Bytes,
        mut source: PartSplitter<'_, S>,
    ) -> Result<PutReceipt, StoreError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + Unpin,
    {
        let mut sums = PutSums::default();
        let objects = &self.0.backend.objects;
        let physical_key = path.as_ref();
        // A staged file takes its parts once and in order, so the whole upload is one call.
        let mut upload: Box<dyn MultipartUpload> =
            self.call(key, physical_key, || async { Ok(objects.put_multipart(path).await?) }).await?;
        let fail = |error| {
            let (verdict, _, words) = super::judge(
                &self.0.classifier,
                Some(&StoreFault::Store(error)),
                None,
                self.0.lanes.clock().mono(),
            );
            StoreError { verdict, ..StoreError::local(key, Code::UNKNOWN, words) }
        };
        let done = async {
            let mut part = Some(first);
            while let Some(content) = part {
                sums.part(&content);
                upload.put_part(PutPayload::from_bytes(content)).await.map_err(fail)?;
                part = source.part().await?;
            }
            upload.complete().await.map_err(fail)
        }
        .await;
        match done {
            Ok(_) => Ok(sums.receipt(true)),
            Err(error) => {
                // The first error is the one to report.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }
}

/// The target of one multipart upload.
struct UploadTarget<'a> {
    store: &'a ObjectStoreClient,
    key: &'a str,
    physical_key: &'a str,
    path: &'a Path,
    parts: &'a Arc<dyn MultipartStore>,
}

impl UploadTarget<'_> {
    async fn upload<S>(&self, first: Bytes, source: PartSplitter<'_, S>) -> Result<PutReceipt, StoreError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + Unpin,
    {
        let create = || async { Ok(self.parts.create_multipart(self.path).await?) };
        let id = self.store.call(self.key, self.physical_key, create).await?;
        let mut unfinished = AbortGuard {
            store: self.store.clone(),
            key: self.key.to_owned(),
            physical_key: self.physical_key.to_owned(),
            id: Some(id.clone()),
        };
        let done = self.send(&id, first, source).await;
        if done.is_ok() {
            unfinished.id = None;
        } else {
            unfinished.abort().await;
        }
        done
    }

    async fn send<S>(
        &self,
        id: &String,
        first: Bytes,
        mut source: PartSplitter<'_, S>,
    ) -> Result<PutReceipt, StoreError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + Unpin,
    {
        let mut sums = PutSums::default();
        let mut under_way = FuturesUnordered::new();
        let mut done: Vec<(usize, PartId)> = Vec::new();
        let (mut next, mut number) = (Some(first), 0);
        while let Some(content) = next.take() {
            sums.part(&content);
            under_way.push(self.part(id, number, content));
            number += 1;
            if number as u64 > PARTS_MAX {
                let why = "more than 10,000 parts; use larger parts";
                return Err(StoreError::local(self.key, Code::PAYLOAD_TOO_LARGE, why));
            }
            if under_way.len() >= self.store.0.parts_at_once
                && let Some(part) = under_way.try_next().await?
            {
                done.push(part);
            }
            next = source.part().await?;
        }
        while let Some(part) = under_way.try_next().await? {
            done.push(part);
        }
        done.sort_unstable_by_key(|(number, _)| *number);
        let parts: Vec<PartId> = done.into_iter().map(|(_, part)| part).collect();
        let complete = || {
            let parts = parts.clone();
            async { Ok(self.parts.complete_multipart(self.path, id, parts).await?) }
        };
        match self.store.call(self.key, self.physical_key, complete).await {
            Ok(_) => Ok(sums.receipt(true)),
            Err(lost) if lost.is_not_found() && lost.attempts > 1 => {
                let put = sums.receipt(true);
                match self.store.holds(self.key, put.bytes, &put.sha256).await {
                    Ok(true) => Ok(put),
                    _ => Err(lost),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn part(&self, id: &String, number: usize, content: Bytes) -> Result<(usize, PartId), StoreError> {
        let put = || {
            let payload = PutPayload::from_bytes(content.clone());
            async { Ok(self.parts.put_part(self.path, id, number, payload).await?) }
        };
        Ok((number, self.store.call(self.key, self.physical_key, put).await?))
    }
}

/// Aborts an unfinished multipart upload, also when its future was dropped.
struct AbortGuard {
    store: ObjectStoreClient,
    key: String,
    physical_key: String,
    id: Option<String>,
}

impl AbortGuard {
    /// Errors are ignored: the error that caused the abort is reported.
    async fn abort(&mut self) {
        let (Some(id), Some(parts)) = (self.id.take(), self.store.0.backend.parts.clone()) else { return };
        let Ok(path) = path(&self.key, &self.physical_key) else { return };
        let abort = || async { Ok(parts.abort_multipart(&path, &id).await?) };
        let _ = self.store.call(&self.key, &self.physical_key, abort).await;
    }
}

impl Drop for AbortGuard {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, key, physical_key) = (self.store.clone(), self.key.clone(), self.physical_key.clone());
        runtime.spawn(async move { AbortGuard { store, key, physical_key, id: Some(id) }.abort().await });
    }
}

/// Splits a source into parts of equal size, as some stores require.
struct PartSplitter<'a, S> {
    key: &'a str,
    source: S,
    /// The size of a part, in bytes.
    part_bytes: usize,
    /// Bytes that were read but not returned.
    left: Option<Bytes>,
    /// The number of bytes returned and read ahead.
    total: u64,
    /// The declared size of the source, in bytes.
    length: Option<u64>,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> PartSplitter<'_, S> {
    /// The next part; `None` at the end. An empty source has no parts.
    async fn part(&mut self) -> Result<Option<Bytes>, StoreError> {
        let mut part = BytesMut::new();
        if let Some(mut left) = self.left.take() {
            if left.len() >= self.part_bytes {
                let whole = left.split_to(self.part_bytes);
                self.left = (!left.is_empty()).then_some(left);
                return Ok(Some(whole));
            }
            part.extend_from_slice(&left);
        }
        while part.len() < self.part_bytes {
            let Some(piece) = self.source.next().await else {
                return match self.length {
                    Some(length) if length != self.total => Err(self.odd(length)),
                    _ if part.is_empty() => Ok(None),
                    _ => Ok(Some(part.freeze())),
                };
            };
            let mut piece = piece.map_err(|e| {
                StoreError::local(self.key, Code::UNPROCESSABLE, format!("cannot read the source: {e}"))
            })?;
            self.total = self.total.saturating_add(piece.len() as u64);
            if let Some(length) = self.length.filter(|length| self.total > *length) {
                return Err(self.odd(length));
            }
            let room = self.part_bytes - part.len();
            if piece.len() > room {
                part.extend_from_slice(&piece.split_to(room));
                self.left = Some(piece);
            } else {
                part.extend_from_slice(&piece);
            }
        }
        Ok(Some(part.freeze()))
    }

    fn odd(&self, length: u64) -> StoreError {
        let why = format!("the source has at least {} bytes, expected {length}", self.total);
        StoreError::local(self.key, Code::TRUNCATED_BODY, why)
    }
}
