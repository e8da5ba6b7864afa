//! The tags of the first picture in a TIFF file.

use std::io::{Read, Seek, SeekFrom};

use tidegate_core::Code;

use crate::error::{Error, Problem};

/// More tags than any picture has.
const TAGS_MAX: u64 = 4096;
/// The largest value that is looked at. A larger one, such as the places of all tiles, is left alone.
const VALUE_LEN_MAX: u64 = 1 << 20;
/// The tags that are of use here.
const WANTED: [u16; 15] =
    [256, 257, 258, 259, 277, 322, 339, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113];

struct Tag {
    number: u16,
    kind: u16,
    bytes: Vec<u8>,
}

/// The tags of a picture.
pub(super) struct Tags {
    all: Vec<Tag>,
    big_endian: bool,
}

fn broken() -> Error {
    Problem::new(Code::CORRUPTED_HEADER, "the file is not TIFF, or its head is cut off").into()
}

impl Tags {
    pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Tags, Error> {
        let head = take(file, 0, 16)?;
        let big_endian = head.starts_with(b"MM");
        let order = Order(big_endian);
        let big = match (head.get(..2), order.number(&head, 2, 2)) {
            (Some(b"II" | b"MM"), Some(42)) => false,
            (Some(b"II" | b"MM"), Some(43)) => true,
            _ => return Err(broken()),
        };
        // Where the list begins; the lengths of its count, of an entry, of a place.
        let (list, count_len, entry_len, place_len) =
            if big { (order.number(&head, 8, 8), 8, 20, 8) } else { (order.number(&head, 4, 4), 2, 12, 4) };
        let list = list.ok_or_else(broken)?;
        let count = order.number(&take(file, list, count_len)?, 0, count_len as usize).ok_or_else(broken)?;
        if count > TAGS_MAX {
            return Err(broken());
        }
        let entries = take(file, list.saturating_add(count_len), count * entry_len)?;
        let mut all = Vec::new();
        for entry in entries.chunks_exact(entry_len as usize) {
            let word =
                |at: usize| order.number(entry, at, 2).and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
            let (number, kind) = (word(0), word(2));
            let values = order.number(entry, 4, place_len).unwrap_or(0);
            let len = values.saturating_mul(size_of_kind(kind));
            if !WANTED.contains(&number) || len > VALUE_LEN_MAX {
                continue;
            }
            let inline = entry.get(4 + place_len..).unwrap_or_default();
            let bytes = match inline.get(..usize::try_from(len).unwrap_or(usize::MAX)) {
                Some(bytes) => bytes.to_vec(),
                None => take(file, order.number(inline, 0, place_len).unwrap_or(u64::MAX), len)?,
            };
            all.push(Tag { number, kind, bytes });
        }
        Ok(Tags { all, big_endian })
    }

    fn tag(&self, number: u16) -> Option<&Tag> {
        self.all.iter().find(|tag| tag.number == number)
    }

    /// All whole numbers of a tag.
    pub(super) fn numbers(&self, number: u16) -> Vec<u64> {
        let Some(tag) = self.tag(number) else { return Vec::new() };
        let size = usize::try_from(size_of_kind(tag.kind)).unwrap_or(1);
        tag.bytes
            .chunks_exact(size)
            .filter_map(|value| Order(self.big_endian).number(value, 0, size))
            .collect()
    }

    /// The first whole number of a tag.
    pub(super) fn number(&self, number: u16) -> Option<u64> {
        self.numbers(number).first().copied()
    }

    /// All numbers of double precision of a tag.
    pub(super) fn doubles(&self, number: u16) -> Vec<f64> {
        let Some(tag) = self.tag(number).filter(|tag| tag.kind == 12) else { return Vec::new() };
        tag.bytes
            .chunks_exact(8)
            .filter_map(|value| Order(self.big_endian).number(value, 0, 8).map(f64::from_bits))
            .collect()
    }

    /// The text of a tag, up to its final zero.
    pub(super) fn text(&self, number: u16) -> Option<String> {
        let tag = self.tag(number).filter(|tag| tag.kind == 2)?;
        Some(String::from_utf8_lossy(&tag.bytes).trim_end_matches('\0').to_owned())
    }
}

struct Order(bool);

impl Order {
    /// A whole number of so many bytes.
    fn number(&self, bytes: &[u8], at: usize, len: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(len)?)?;
        let add = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        Some(if self.0 { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    }
}

fn size_of_kind(kind: u16) -> u64 {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 | 17 | 18 => 8,
        _ => 1,
    }
}

/// So many bytes from a place; fewer only in the first sixteen, which a small file may lack.
fn take(file: &mut (impl Read + Seek), at: u64, len: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at)).map_err(|_| broken())?;
    file.take(len).read_to_end(&mut bytes)?;
    if at > 0 && (bytes.len() as u64) < len {
        return Err(broken());
    }
    Ok(bytes)
}
