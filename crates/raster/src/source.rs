//! Where the bytes of a raster come from.
//!
//! A source hands out exactly the bytes asked for, or an error that says why not. Fewer bytes are
//! never an answer. A remote source implements the same trait elsewhere, with lanes and retries.

use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{RasterCause, RasterError};

/// Ranges that lie closer to each other than this are read as one.
const GAP_MAX: u64 = 16 << 10;
/// A range that was put together is not longer than this.
const MERGED_LEN_MAX: u64 = 32 << 20;

/// Bytes that can be read from anywhere.
pub trait ByteSource: Send + Sync {
    /// What to call it in messages: a path or an address without secrets.
    fn name(&self) -> &str;

    /// How many bytes it has.
    ///
    /// # Errors
    /// If it cannot be asked.
    fn size(&self) -> Result<u64, RasterError>;

    /// Exactly `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`RasterCause::Short`] if it ends before; others if it cannot be read.
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, RasterError>;

    /// All these ranges, in their order. Neighbours are read together.
    ///
    /// # Errors
    /// If one of them cannot be read completely.
    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, RasterError> {
        let mut out = vec![Bytes::new(); ranges.len()];
        for (merged, members) in merge(ranges, GAP_MAX, MERGED_LEN_MAX) {
            let len = usize::try_from(merged.end - merged.start)
                .map_err(|_| RasterError::too_large("a range is longer than the memory"))?;
            let bytes = self.read_at(merged.start, len)?;
            for at in members {
                let (Some(range), Some(slot)) = (ranges.get(at), out.get_mut(at)) else { continue };
                let (from, to) = (range.start - merged.start, range.end - merged.start);
                *slot = bytes.slice(from as usize..to as usize);
            }
        }
        Ok(out)
    }

    /// Checks that it is still what was opened (size, time, ETag). Called after the last read.
    ///
    /// # Errors
    /// [`RasterCause::Changed`] if it is another; others if it cannot be asked.
    fn unchanged(&self) -> Result<(), RasterError>;

    /// Whether files are looked for beside a COG that says itself where it lies. A look-up costs a remote
    /// source a request, and such a COG has its mask and its metadata inside.
    fn looks_beside_cogs(&self) -> bool {
        true
    }

    /// The file beside it whose name ends with `suffix` in place of its own extension (`.tfw`) or
    /// behind it (`.tif.aux.xml`, `.tif.msk`); nothing if there is none for certain.
    ///
    /// # Errors
    /// If it cannot be known whether there is one, or it cannot be opened.
    fn beside(&self, suffix: SidecarName<'_>) -> Result<Option<Arc<dyn ByteSource>>, RasterError>;
}

/// How the name of a file beside a raster is made from the raster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarName<'a> {
    /// The extension is replaced, such as `tfw`.
    Instead(&'a str),
    /// The extension is added, such as `aux.xml` or `msk`.
    Added(&'a str),
}

/// Puts ranges together: each one with the places of its members.
#[must_use]
pub fn merge(ranges: &[Range<u64>], gap_max: u64, len_max: u64) -> Vec<(Range<u64>, Vec<usize>)> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|at| ranges[*at].start < ranges[*at].end).collect();
    order.sort_by_key(|at| ranges[*at].start);
    let mut out: Vec<(Range<u64>, Vec<usize>)> = Vec::new();
    for at in order {
        let range = &ranges[at];
        match out.last_mut() {
            Some((merged, members))
                if range.start <= merged.end.saturating_add(gap_max)
                    && range.end.max(merged.end) - merged.start <= len_max =>
            {
                merged.end = merged.end.max(range.end);
                members.push(at);
            }
            _ => out.push((range.clone(), vec![at])),
        }
    }
    out
}

fn short(name: &str, offset: u64, len: usize, size: u64) -> RasterError {
    let message =
        format!("the file has {size} bytes, and {len} from byte {offset} on are needed: it is cut off");
    RasterError::new(RasterCause::Short, message).of(name)
}

/// What tells one state of a file from the next.
fn stamp(meta: &Metadata) -> (u64, u64, u64, i64, i64) {
    (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec())
}

/// A local file.
#[derive(Debug)]
pub struct FileBytes {
    file: File,
    path: PathBuf,
    name: String,
    stamp: (u64, u64, u64, i64, i64),
}

impl FileBytes {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<FileBytes, RasterError> {
        let name = path.display().to_string();
        let io = |error: std::io::Error| RasterError::from(error).of(&name);
        let file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if meta.is_dir() {
            return Err(RasterError::invalid("it is a directory").of(&name));
        }
        Ok(FileBytes { stamp: stamp(&meta), file, path: path.to_owned(), name })
    }
}

impl ByteSource for FileBytes {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, RasterError> {
        Ok(self.stamp.2)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, RasterError> {
        let size = self.stamp.2;
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(short(&self.name, offset, len, size));
        }
        let mut out = vec![0; len];
        self.file.read_exact_at(&mut out, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.changed(),
            _ => RasterError::from(error).at(offset).of(&self.name),
        })?;
        Ok(out.into())
    }

    fn unchanged(&self) -> Result<(), RasterError> {
        let meta = self.file.metadata().map_err(|error| RasterError::from(error).of(&self.name))?;
        if stamp(&meta) == self.stamp { Ok(()) } else { Err(self.changed()) }
    }

    fn beside(&self, suffix: SidecarName<'_>) -> Result<Option<Arc<dyn ByteSource>>, RasterError> {
        let path = match suffix {
            SidecarName::Instead(extension) => self.path.with_extension(extension),
            SidecarName::Added(extension) => {
                let mut name = self.path.clone().into_os_string();
                name.push(".");
                name.push(extension);
                PathBuf::from(name)
            }
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RasterError::from(error).of(&path.display().to_string())),
            Ok(_) => Ok(Some(Arc::new(FileBytes::open(&path)?))),
        }
    }
}

impl FileBytes {
    fn changed(&self) -> RasterError {
        RasterError::new(RasterCause::Changed, "the file changed while it was read").of(&self.name)
    }
}

/// Bytes in memory, with the files beside them.
#[derive(Clone, Debug, Default)]
pub struct MemoryBytes {
    name: String,
    bytes: Bytes,
    /// By extension, such as `tfw` or `aux.xml`.
    beside: Vec<(String, Bytes)>,
}

impl MemoryBytes {
    /// Bytes under a name.
    #[must_use]
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> MemoryBytes {
        MemoryBytes { name: name.into(), bytes: bytes.into(), beside: Vec::new() }
    }

    /// The same, with a file beside it.
    #[must_use]
    pub fn with_beside(mut self, extension: &str, bytes: impl Into<Bytes>) -> MemoryBytes {
        self.beside.push((extension.to_owned(), bytes.into()));
        self
    }
}

impl ByteSource for MemoryBytes {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, RasterError> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, RasterError> {
        let range = usize::try_from(offset).ok().and_then(|from| Some(from..from.checked_add(len)?));
        match range.filter(|range| range.end <= self.bytes.len()) {
            Some(range) => Ok(self.bytes.slice(range)),
            None => Err(short(&self.name, offset, len, self.bytes.len() as u64)),
        }
    }

    fn unchanged(&self) -> Result<(), RasterError> {
        Ok(())
    }

    fn beside(&self, suffix: SidecarName<'_>) -> Result<Option<Arc<dyn ByteSource>>, RasterError> {
        let (SidecarName::Instead(wanted) | SidecarName::Added(wanted)) = suffix;
        let found = self.beside.iter().find(|(extension, _)| extension == wanted);
        Ok(found.map(|(extension, bytes)| {
            let source = MemoryBytes::new(format!("{}.{extension}", self.name), bytes.clone());
            Arc::new(source) as Arc<dyn ByteSource>
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_together() {
        let ranges = [100..200, 0..50, 60..100, 5000..5010, 7..7];
        assert_eq!(merge(&ranges, 20, 1 << 20), [(0..200, vec![1, 2, 0]), (5000..5010, vec![3])]);
        assert_eq!(merge(&ranges, 20, 100).len(), 3);
        let source = MemoryBytes::new("m", (0..=255u8).cycle().take(6000).collect::<Vec<u8>>());
        let read = source.read_ranges(&ranges).unwrap();
        for (range, bytes) in ranges.iter().zip(read) {
            assert_eq!(bytes, source.read_at(range.start, (range.end - range.start) as usize).unwrap());
        }
    }

    #[test]
    fn fewer_bytes_are_never_an_answer() {
        let source = MemoryBytes::new("m", vec![0; 10]);
        assert_eq!(source.read_at(5, 6).unwrap_err().cause, RasterCause::Short);
        assert_eq!(source.read_at(u64::MAX, 2).unwrap_err().cause, RasterCause::Short);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tif");
        std::fs::write(&path, [0; 10]).unwrap();
        let source = FileBytes::open(&path).unwrap();
        assert_eq!(source.read_at(5, 6).unwrap_err().cause, RasterCause::Short);
        assert!(source.beside(SidecarName::Instead("tfw")).unwrap().is_none());
        assert!(source.unchanged().is_ok());
        std::fs::write(&path, [0; 5]).unwrap();
        assert_eq!(source.read_at(0, 8).unwrap_err().cause, RasterCause::Changed);
        assert_eq!(source.unchanged().unwrap_err().cause, RasterCause::Changed);
    }
}
