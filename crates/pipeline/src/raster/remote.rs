//! The bytes of a raster behind HTTP or in an object store, read by ranges through lanes.
//!
//! A range is right or it is an error; it never becomes nodata. Status, `Content-Range`, length and ETag
//! are checked with every answer, which is part of the call, so that a wrong one is a failed attempt.
//! What headers do not show (bytes of another range, zeros) is found in two ways: a COG repeats the size
//! and the end of each packed block around it, and these are read along and compared; everything else
//! is read twice and must be the same both times. A server that sends the same wrong bytes each time is
//! found by the checksum of the codec, or not at all; docs/raster.md says which.
//!
//! The head of such a COG is read once: it names the place and the size of each block, and a block that is
//! found there as it says is the proof. A head that no block has proven at the end is read again then.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidegate_core::Code;
use tidegate_raster::{
    ByteSource, Compression, GeoTiff, RasterCause, RasterError, RasterHead, RasterLimits, SidecarName, merge,
};
use tokio::runtime::Runtime;

/// The bytes from the start that are read at once and kept: the head of most files.
const HEAD_LEN: u64 = 16 << 10;
/// Zeros of a head that are in doubt.
const HOLE_LEN: usize = 512;
const GAP_MAX: u64 = 16 << 10;
const MERGED_LEN_MAX: u64 = 8 << 20;
/// Ranges of one request for blocks that are under way at the same time.
const AT_ONCE: usize = 6;

/// What identifies the version of an object that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectVersion {
    pub(super) size: u64,
    pub(super) etag: Option<String>,
}

/// A way to read ranges of one object.
#[async_trait]
pub(super) trait RangeReader: Send + Sync {
    /// The first bytes, at most so many, and which version of the object they are of.
    async fn first(&self, len: u64) -> Result<(Bytes, ObjectVersion), RasterError>;

    /// Exactly these bytes of this version.
    async fn range(&self, range: Range<u64>, of: &ObjectVersion) -> Result<Bytes, RasterError>;

    /// A reader of the object beside it; nothing if there can be none.
    fn beside(&self, suffix: SidecarName<'_>) -> Option<(String, Arc<dyn RangeReader>)>;
}

/// A remote raster.
pub struct RemoteBytes {
    name: String,
    reader: Arc<dyn RangeReader>,
    runtime: Arc<Runtime>,
    version: ObjectVersion,
    head: Bytes,
    /// How often a range whose bytes are in doubt is read anew.
    doubts_max: u32,
    /// Blocks have leaders that tell whether the right bytes came.
    has_leaders: AtomicBool,
    /// The head is right: a second answer is the same, or a block lies where it says.
    is_proven: AtomicBool,
    /// Whether files are looked for beside a COG.
    looks_beside_cogs: bool,
}

impl RemoteBytes {
    /// Reads the head, once. [`RemoteBytes::proven`] or a block proves it.
    pub(super) fn open(
        name: &str,
        reader: Arc<dyn RangeReader>,
        runtime: Arc<Runtime>,
        doubts_max: u32,
        looks_beside_cogs: bool,
    ) -> Result<RemoteBytes, RasterError> {
        let (head, version) = runtime.block_on(reader.first(HEAD_LEN)).map_err(|error| error.of(name))?;
        Ok(RemoteBytes {
            name: name.to_owned(),
            reader,
            runtime,
            version,
            head,
            doubts_max,
            has_leaders: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            looks_beside_cogs,
        })
    }

    /// Reads the head again; nothing if it is the same, or else what two answers agree on.
    pub(super) fn proven(&self) -> Result<Option<RemoteBytes>, RasterError> {
        if self.is_proven.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let agreed = self.runtime.block_on(async {
            let mut last = None;
            for _ in 0..self.doubts_max.max(1) {
                let next = self.reader.first(HEAD_LEN).await?;
                if (&next.0, &next.1) == (&self.head, &self.version) {
                    return Ok(None);
                }
                if last.as_ref() == Some(&next) {
                    return Ok(last);
                }
                last = Some(next);
            }
            Err(doubtful(0..HEAD_LEN))
        });
        let Some((head, version)) = agreed.map_err(|error: RasterError| error.of(&self.name))? else {
            self.is_proven.store(true, Ordering::Relaxed);
            return Ok(None);
        };
        Ok(Some(RemoteBytes {
            name: self.name.clone(),
            reader: self.reader.clone(),
            runtime: self.runtime.clone(),
            version,
            head,
            doubts_max: self.doubts_max,
            has_leaders: AtomicBool::new(false),
            is_proven: AtomicBool::new(true),
            looks_beside_cogs: self.looks_beside_cogs,
        }))
    }

    /// Opens the raster. What nothing else can prove is read again: the head of a file whose blocks do not
    /// tell, and one that is not that of a raster.
    pub(super) fn raster(self, limits: &RasterLimits) -> Result<GeoTiff, RasterError> {
        let bytes = Arc::new(self);
        let first = GeoTiff::open(bytes.clone(), limits);
        match &first {
            Ok(raster) if bytes.learn(raster.head()) => return first,
            Err(error) if error.is_transient() => return first,
            _ => {}
        }
        let Some(bytes) = bytes.proven()?.map(Arc::new) else { return first };
        let raster = GeoTiff::open(bytes.clone(), limits)?;
        bytes.learn(raster.head());
        Ok(raster)
    }

    /// Learns from the head of the raster how its blocks can be checked; whether they can prove the head.
    /// Plain blocks have all the same size, so leaders do not tell one from another.
    fn learn(&self, head: &RasterHead) -> bool {
        let says = |text: &str| head.ghost.as_ref().is_some_and(|ghost| ghost.contains(text));
        let is_packed = head.levels.iter().all(|level| level.compression != Compression::None);
        let has = is_packed
            && says("BLOCK_LEADER=SIZE_AS_UINT4")
            && says("BLOCK_TRAILER=LAST_4_BYTES_REPEATED")
            && says("KNOWN_INCOMPATIBLE_EDITION=NO")
            && !says("MASK_INTERLEAVED_WITH_IMAGERY=YES");
        self.has_leaders.store(has, Ordering::Relaxed);
        has && !self.has_hole()
    }

    /// Whether a part of the head is nothing but zeros, as a broken cache sends them.
    fn has_hole(&self) -> bool {
        self.head.chunks(HOLE_LEN).any(|part| part.iter().all(|byte| *byte == 0))
    }

    /// Bytes that were read with the head; nothing if they reach beyond it.
    fn held(&self, range: &Range<u64>) -> Option<Bytes> {
        let (from, to) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        (to <= self.head.len()).then(|| self.head.slice(from..to))
    }

    fn check_inside(&self, range: &Range<u64>) -> Result<(), RasterError> {
        if range.end <= self.version.size && range.start <= range.end {
            return Ok(());
        }
        let message = format!(
            "the object has {} bytes, and bytes {} to {} are needed: it is cut off",
            self.version.size, range.start, range.end
        );
        Err(RasterError::new(RasterCause::Short, message).of(&self.name))
    }

    /// The bytes of a range that two answers agree on. Zeros need three: an answer of zeros is what a
    /// broken cache sends, again and again.
    async fn agreed(&self, range: Range<u64>) -> Result<Bytes, RasterError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let mut last = self.reader.range(range.clone(), &self.version).await?;
        let mut agreed = 1;
        for _ in 0..self.doubts_max.max(2) * 2 {
            let next = self.reader.range(range.clone(), &self.version).await?;
            agreed = if next == last { agreed + 1 } else { 1 };
            last = next;
            let needed = if last.iter().all(|byte| *byte == 0) { 3 } else { 2 };
            if agreed >= needed {
                return Ok(last);
            }
        }
        Err(doubtful(range))
    }

    /// Blocks that lie in one range, with their leaders.
    async fn led(&self, merged: Range<u64>, blocks: &[Range<u64>]) -> Result<Vec<Bytes>, RasterError> {
        let wanted = merged.start.saturating_sub(4)..merged.end.saturating_add(4);
        self.check_inside(&wanted)?;
        for _ in 0..self.doubts_max.max(1) {
            let bytes = self.reader.range(wanted.clone(), &self.version).await?;
            let cut = |block: &Range<u64>| {
                let from = usize::try_from(block.start - wanted.start).ok()?;
                let to = usize::try_from(block.end - wanted.start).ok()?;
                let leader: [u8; 4] = bytes.get(from - 4..from)?.try_into().ok()?;
                let is_led = u64::from(u32::from_le_bytes(leader)) == block.end - block.start;
                let is_trailed = to >= 4 && bytes.get(to - 4..to)? == bytes.get(to..to + 4)?;
                (is_led && is_trailed).then(|| bytes.slice(from..to))
            };
            if let Some(all) = blocks.iter().map(cut).collect::<Option<Vec<Bytes>>>() {
                self.is_proven.store(true, Ordering::Relaxed);
                return Ok(all);
            }
        }
        Err(doubtful(merged))
    }

    /// All ranges, in their order.
    async fn ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, RasterError> {
        let mut out = vec![Bytes::new(); ranges.len()];
        let mut left = Vec::new();
        for (i, range) in ranges.iter().enumerate() {
            self.check_inside(range)?;
            match self.held(range) {
                Some(bytes) => out[i] = bytes,
                None => left.push(i),
            }
        }
        let wanted: Vec<Range<u64>> = left.iter().filter_map(|i| ranges.get(*i).cloned()).collect();
        let has_leaders = self.has_leaders.load(Ordering::Relaxed);
        let parts = stream::iter(merge(&wanted, GAP_MAX, MERGED_LEN_MAX)).map(|(merged, members)| {
            let blocks: Vec<Range<u64>> = members.iter().filter_map(|at| wanted.get(*at).cloned()).collect();
            async move {
                let read = if has_leaders {
                    self.led(merged, &blocks).await?
                } else {
                    let bytes = self.agreed(merged.clone()).await?;
                    let cut = |block: &Range<u64>| {
                        let from = (block.start - merged.start) as usize;
                        bytes.slice(from..from + (block.end - block.start) as usize)
                    };
                    blocks.iter().map(cut).collect()
                };
                Ok::<_, RasterError>((members, read))
            }
        });
        let mut parts = std::pin::pin!(parts.buffer_unordered(AT_ONCE));
        while let Some((members, read)) = parts.try_next().await? {
            for (at, bytes) in members.into_iter().zip(read) {
                if let Some(slot) = left.get(at).and_then(|i| out.get_mut(*i)) {
                    *slot = bytes;
                }
            }
        }
        Ok(out)
    }
}

/// Answers that contradict each other or the file.
fn doubtful(range: Range<u64>) -> RasterError {
    RasterError::new(
        RasterCause::Transient(Code::UNEXPECTED_BODY),
        format!(
            "the answers for bytes {} to {} contradict each other: the server sends wrong bytes",
            range.start, range.end
        ),
    )
}

impl ByteSource for RemoteBytes {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, RasterError> {
        Ok(self.version.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, RasterError> {
        let range = offset..offset.saturating_add(len as u64);
        self.check_inside(&range)?;
        if let Some(bytes) = self.held(&range) {
            return Ok(bytes);
        }
        self.runtime.block_on(self.agreed(range)).map_err(|error| error.of(&self.name))
    }

    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, RasterError> {
        self.runtime.block_on(self.ranges(ranges)).map_err(|error| {
            // A head that nothing has proven may be to blame.
            let doubt = if error.is_transient() { None } else { self.unchanged().err() };
            doubt.unwrap_or(error).of(&self.name)
        })
    }

    /// All answers were of the same ETag. Without one, the head is compared.
    fn unchanged(&self) -> Result<(), RasterError> {
        if self.version.etag.is_none() {
            self.is_proven.store(false, Ordering::Relaxed);
        }
        match self.proven()? {
            None => Ok(()),
            Some(_) => Err(RasterError::new(
                RasterCause::Changed,
                "its head was another when it was read again: the object was replaced, or the server sends wrong bytes",
            )
            .of(&self.name)),
        }
    }

    fn looks_beside_cogs(&self) -> bool {
        self.looks_beside_cogs
    }

    fn beside(&self, suffix: SidecarName<'_>) -> Result<Option<Arc<dyn ByteSource>>, RasterError> {
        let Some((name, reader)) = self.reader.beside(suffix) else { return Ok(None) };
        let (runtime, doubts_max) = (self.runtime.clone(), self.doubts_max);
        match RemoteBytes::open(&name, reader, runtime, doubts_max, self.looks_beside_cogs) {
            Ok(bytes) => Ok(Some(Arc::new(bytes.proven()?.unwrap_or(bytes)))),
            Err(error) if error.cause == RasterCause::Refused(Code::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
