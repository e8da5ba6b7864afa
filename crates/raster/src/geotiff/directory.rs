//! The directories of a TIFF file: lists of tags.
//!
//! Classic and big files of either byte order. Values are read when they are asked for, so that the
//! places of a million blocks cost nothing to one who wants the head. The head is read in pages,
//! because its tags lie close together and a remote source is asked by the request.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidegate_core::content::{self, ContentKind};
use tidegate_core::{Code, quote};

use crate::error::{RasterCause, RasterError};
use crate::limits::RasterLimits;
use crate::source::ByteSource;

/// What is read of the head at once.
const PAGE_LEN: u64 = 16 << 10;
const PAGES_MAX: usize = 128;
/// More tags than any picture has.
const TAGS_MAX: u64 = 4096;

/// A source whose head is read in pages.
pub(crate) struct HeadBytes {
    pub(crate) source: Arc<dyn ByteSource>,
    size: u64,
    pages: Mutex<Vec<(u64, Bytes)>>,
}

impl HeadBytes {
    pub(crate) fn new(source: Arc<dyn ByteSource>) -> Result<HeadBytes, RasterError> {
        Ok(HeadBytes { size: source.size()?, source, pages: Mutex::default() })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// So many bytes from a place.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Result<Bytes, RasterError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size);
        let (Some(end), Ok(count)) = (end, usize::try_from(len)) else {
            let message =
                format!("the header points behind the end of the file, which has {} bytes", self.size);
            return Err(RasterError::new(RasterCause::Short, message).at(offset).of(self.source.name()));
        };
        if count == 0 {
            return Ok(Bytes::new());
        }
        let page = offset / PAGE_LEN;
        if len > PAGE_LEN || (end - 1) / PAGE_LEN > page + 1 {
            return self.source.read_at(offset, count);
        }
        let first = self.page(page)?;
        let from = (offset - page * PAGE_LEN) as usize;
        if let Some(part) = first.get(from..from + count) {
            return Ok(first.slice_ref(part));
        }
        let second = self.page(page + 1)?;
        let mut out = first.get(from..).unwrap_or_default().to_vec();
        out.extend_from_slice(second.get(..count - out.len()).unwrap_or_default());
        Ok(out.into())
    }

    fn page(&self, number: u64) -> Result<Bytes, RasterError> {
        let mut pages = self.pages.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, page)) = pages.iter().find(|(at, _)| *at == number) {
            return Ok(page.clone());
        }
        let start = number * PAGE_LEN;
        let page = self.source.read_at(start, PAGE_LEN.min(self.size - start) as usize)?;
        if pages.len() == PAGES_MAX {
            pages.remove(0);
        }
        pages.push((number, page.clone()));
        Ok(page)
    }
}

/// A tag as the directory lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagEntry {
    pub(crate) number: u16,
    pub(crate) kind: u16,
    count: u64,
    /// Where its values are.
    offset: u64,
}

/// The numbers of a tag, kept as they are in the file: half the memory, and nothing to do for one
/// who wants a few of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TagNumbers {
    bytes: Bytes,
    size: usize,
    big_endian: bool,
}

impl TagNumbers {
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len().checked_div(self.size).unwrap_or(0) as u64
    }

    pub(crate) fn get(&self, at: u64) -> Option<u64> {
        if at >= self.len() {
            return None;
        }
        let from = usize::try_from(at).ok()?.checked_mul(self.size)?;
        Some(number(self.bytes.get(from..from + self.size)?, self.big_endian))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

/// A whole number of up to eight bytes.
pub(crate) fn number(bytes: &[u8], big_endian: bool) -> u64 {
    let add = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
    if big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
}

/// Bytes of a value of a type; nothing if there is no such type.
pub(crate) fn size_of_kind(kind: u16) -> Option<u64> {
    Some(match kind {
        1 | 2 | 6 | 7 => 1,
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 | 17 | 18 => 8,
        _ => return None,
    })
}

/// How the file counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileForm {
    pub(crate) big_endian: bool,
    pub(crate) big: bool,
}

/// A directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) offset: u64,
    pub(crate) form: FileForm,
    pub(crate) entries: Vec<TagEntry>,
}

/// What the chain of directories holds.
pub(crate) struct DirectoryChain {
    pub(crate) form: FileForm,
    pub(crate) all: Vec<Directory>,
    /// What is strange about it.
    pub(crate) warnings: Vec<String>,
}

/// All directories of a file.
pub(crate) fn chain(head: &HeadBytes, limits: &RasterLimits) -> Result<DirectoryChain, RasterError> {
    let first = head.read(0, head.size().min(16))?;
    let (form, mut next) = form(&first).map_err(|error| not_tiff(head, error))?;
    let (mut all, mut seen, mut warnings) = (Vec::new(), HashSet::new(), Vec::new());
    while next != 0 {
        if !seen.insert(next) {
            warnings.push(format!("the chain of directories loops to byte {next}; it ends there"));
            break;
        }
        if all.len() == limits.directories_max {
            let message = format!("there are more than {} directories", limits.directories_max);
            return Err(RasterError::too_large(message).at(next));
        }
        match directory(head, form, next) {
            Ok((directory, after)) => {
                all.push(directory);
                next = after;
            }
            // The picture itself can be read; its overviews are another thing.
            Err(error) if !all.is_empty() && !error.is_transient() && error.cause != RasterCause::Io => {
                warnings.push(format!("the chain of directories breaks off: {error}"));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() {
        return Err(RasterError::header("the file names no directory").at(4));
    }
    Ok(DirectoryChain { form, all, warnings })
}

/// What is there in place of a TIFF file. An exception of a service is told as what it is: its label said
/// `image/tiff`, and no repair makes a picture of it.
fn not_tiff(head: &HeadBytes, error: RasterError) -> RasterError {
    if error.cause != RasterCause::NotTiff {
        return error;
    }
    let start = head.read(0, head.size().min(PAGE_LEN)).unwrap_or_default();
    if let Some(report) = content::exception(&start).filter(|report| !report.text.is_empty()) {
        let message =
            format!("this is no raster but the exception of a service: {}", quote::said(&report.text));
        return RasterError::new(RasterCause::Refused(Code::SERVICE_EXCEPTION), message);
    }
    match ContentKind::of(&start) {
        ContentKind::Empty | ContentKind::Other => error,
        kind => RasterError { message: format!("{}, which is {}", error.message, kind.name()), ..error },
    }
}

/// Byte order and size of numbers, and where the first directory is.
fn form(first: &[u8]) -> Result<(FileForm, u64), RasterError> {
    let big_endian = first.starts_with(b"MM");
    let field = |at: usize, len: usize| first.get(at..at + len).map(|bytes| number(bytes, big_endian));
    let big = match (first.get(..2), field(2, 2)) {
        (Some(b"II" | b"MM"), Some(42)) => false,
        (Some(b"II" | b"MM"), Some(43)) => true,
        _ => {
            // Its bytes are not quoted: they may be those of any file, and messages go into letters.
            let message = match ContentKind::of(first) {
                ContentKind::Empty => "the file is empty".to_owned(),
                ContentKind::Other | ContentKind::Tiff => "not a TIFF file".to_owned(),
                kind => format!("not a TIFF file: it begins as {} does", kind.name()),
            };
            return Err(RasterError::new(RasterCause::NotTiff, message).at(0));
        }
    };
    let place = if big { field(8, 8) } else { field(4, 4) };
    if big && (field(4, 2), field(6, 2)) != (Some(8), Some(0)) {
        return Err(RasterError::header("the BigTIFF header is not one of offsets of 8 bytes").at(4));
    }
    let place =
        place.ok_or_else(|| RasterError::new(RasterCause::Short, "the file ends within its header").at(4))?;
    Ok((FileForm { big_endian, big }, place))
}

fn directory(head: &HeadBytes, form: FileForm, offset: u64) -> Result<(Directory, u64), RasterError> {
    let FileForm { big_endian, big } = form;
    let (count_len, entry_len, place_len) = if big { (8, 20, 8usize) } else { (2, 12, 4) };
    let count = number(&head.read(offset, count_len)?, big_endian);
    if count == 0 || count > TAGS_MAX {
        let message =
            format!("a directory claims {count} tags; more than {TAGS_MAX} or none are not believed");
        return Err(RasterError::header(message).at(offset));
    }
    let entries_at = offset + count_len;
    let bytes = head.read(entries_at, count * entry_len)?;
    let mut entries: Vec<TagEntry> = Vec::with_capacity(count as usize);
    for (at, entry) in bytes.chunks_exact(entry_len as usize).enumerate() {
        let field = |from: usize, len: usize| {
            entry.get(from..from + len).map_or(0, |bytes| number(bytes, big_endian))
        };
        let (tag, kind, count) = (field(0, 2) as u16, field(2, 2) as u16, field(4, place_len));
        let inline_at = entries_at + at as u64 * entry_len + 4 + place_len as u64;
        let len = size_of_kind(kind).map_or(0, |size| size.saturating_mul(count));
        let offset = if len <= place_len as u64 { inline_at } else { field(4 + place_len, place_len) };
        if entries.iter().all(|known| known.number != tag) {
            entries.push(TagEntry { number: tag, kind, count, offset });
        }
    }
    let after = head.read(entries_at + count * entry_len, place_len as u64);
    // A file may end with its last directory.
    let next = match after {
        Ok(bytes) => number(&bytes, big_endian),
        Err(error) if error.cause == RasterCause::Short => 0,
        Err(error) => return Err(error),
    };
    Ok((Directory { offset, form, entries }, next))
}

impl Directory {
    pub(crate) fn entry(&self, number: u16) -> Option<&TagEntry> {
        self.entries.iter().find(|entry| entry.number == number)
    }

    /// The bytes of a tag's values; nothing if there is no such tag.
    pub(crate) fn bytes(
        &self,
        head: &HeadBytes,
        limits: &RasterLimits,
        number: u16,
    ) -> Result<Option<(u16, Bytes)>, RasterError> {
        let Some(entry) = self.entry(number) else { return Ok(None) };
        let Some(size) = size_of_kind(entry.kind) else {
            let message = format!("tag {number} is of type {}, which there is not", entry.kind);
            return Err(RasterError::header(message).at(self.offset));
        };
        let len = size.saturating_mul(entry.count);
        if len > limits.tag_len_max {
            let message = format!("tag {number} claims {len} bytes; the limit is {}", limits.tag_len_max);
            return Err(RasterError::too_large(message).at(self.offset));
        }
        let bytes = head.read(entry.offset, len).map_err(|error| error.under(format!("tag {number}")))?;
        Ok(Some((entry.kind, bytes)))
    }

    /// The whole numbers of a tag; none if there is no such tag.
    pub(crate) fn numbers(
        &self,
        head: &HeadBytes,
        limits: &RasterLimits,
        number: u16,
    ) -> Result<TagNumbers, RasterError> {
        let Some((kind, bytes)) = self.bytes(head, limits, number)? else { return Ok(TagNumbers::default()) };
        if !matches!(kind, 1 | 3 | 4 | 7 | 13 | 16 | 18) {
            let message = format!("tag {number} is of type {kind}, not of whole numbers");
            return Err(RasterError::header(message).at(self.offset));
        }
        let size = size_of_kind(kind).unwrap_or(1) as usize;
        Ok(TagNumbers { bytes, size, big_endian: self.form.big_endian })
    }
}
