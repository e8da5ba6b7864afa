//! The tags of the pictures in a TIFF file.
//!
//! Why not the `tiff` crate (0.11): it understands the whole picture when a file is opened and refuses one
//! that it could not decode (an unknown photometric interpretation is enough), where coordinates and size
//! are wanted of any file; and it would not shorten what is asked of the tags, 200 lines with their limits.

use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom};

use tidegate_core::Code;

use crate::error::{Error, Problem};

/// More tags than any picture has.
const TAGS_MAX: u64 = 4096;
/// The largest value that is looked at. A larger one, such as the places of all tiles, is left alone.
const VALUE_LEN_MAX: u64 = 1 << 20;
/// What all values together may take.
const VALUES_LEN_MAX: u64 = 16 << 20;
const PICTURES_MAX: usize = 10_000;
/// The tags that are of use here.
const WANTED: [u16; 15] =
    [256, 257, 258, 259, 277, 322, 339, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113];
/// The tags that are of use where pixels are read.
const WANTED_FOR_PIXELS: [u16; 9] = [254, 273, 278, 279, 284, 317, 323, 324, 325];

struct Tag {
    number: u16,
    kind: u16,
    bytes: Vec<u8>,
}

/// The tags of a picture.
pub struct Tags {
    all: Vec<Tag>,
    big_endian: bool,
}

fn broken() -> Error {
    Problem::new(Code::CORRUPTED_HEADER, "not a TIFF file, or its header is truncated").into()
}

impl Tags {
    /// Tags that were read elsewhere: number, type and bytes of each.
    #[must_use]
    pub fn new(all: Vec<(u16, u16, Vec<u8>)>, big_endian: bool) -> Tags {
        let all = all.into_iter().map(|(number, kind, bytes)| Tag { number, kind, bytes }).collect();
        Tags { all, big_endian }
    }

    /// The tags of the first picture that its head needs.
    pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Tags, Error> {
        let (form, list) = TiffLayout::read(file)?;
        Ok(form.tags(file, list, &WANTED, &mut VALUES_LEN_MAX.clone())?.0)
    }

    /// The tags of all pictures that their pixels need.
    pub(crate) fn all(file: &mut (impl Read + Seek)) -> Result<Vec<Tags>, Error> {
        let wanted = [&WANTED[..], &WANTED_FOR_PIXELS].concat();
        let (form, mut next) = TiffLayout::read(file)?;
        let (mut all, mut seen, mut budget) = (Vec::new(), HashSet::new(), VALUES_LEN_MAX);
        while next != 0 {
            if !seen.insert(next) || all.len() == PICTURES_MAX {
                return Err(broken());
            }
            let (tags, after) = form.tags(file, next, &wanted, &mut budget)?;
            all.push(tags);
            next = after;
        }
        Ok(all)
    }

    /// A whole number in the byte order of the file.
    pub(super) fn word(&self, bytes: &[u8]) -> u64 {
        Order(self.big_endian).number(bytes, 0, bytes.len()).unwrap_or(0)
    }

    fn tag(&self, number: u16) -> Option<&Tag> {
        self.all.iter().find(|tag| tag.number == number)
    }

    /// All whole numbers of a tag.
    #[must_use]
    pub fn numbers(&self, number: u16) -> Vec<u64> {
        let Some(tag) = self.tag(number) else { return Vec::new() };
        let size = usize::try_from(size_of_kind(tag.kind)).unwrap_or(1);
        tag.bytes
            .chunks_exact(size)
            .filter_map(|value| Order(self.big_endian).number(value, 0, size))
            .collect()
    }

    /// The first whole number of a tag.
    #[must_use]
    pub fn number(&self, number: u16) -> Option<u64> {
        self.numbers(number).first().copied()
    }

    /// All numbers of double precision of a tag.
    #[must_use]
    pub fn doubles(&self, number: u16) -> Vec<f64> {
        let Some(tag) = self.tag(number).filter(|tag| tag.kind == 12) else { return Vec::new() };
        tag.bytes
            .chunks_exact(8)
            .filter_map(|value| Order(self.big_endian).number(value, 0, 8).map(f64::from_bits))
            .collect()
    }

    /// The text of a tag, up to its final zero.
    #[must_use]
    pub fn text(&self, number: u16) -> Option<String> {
        let tag = self.tag(number).filter(|tag| tag.kind == 2)?;
        Some(String::from_utf8_lossy(&tag.bytes).trim_end_matches('\0').to_owned())
    }
}

/// How a file is laid out: its byte order; the lengths of a list's count, of an entry, of a place.
struct TiffLayout {
    big_endian: bool,
    count_len: u64,
    entry_len: u64,
    place_len: usize,
}

impl TiffLayout {
    /// The form of a file, and where its first list begins.
    fn read(file: &mut (impl Read + Seek)) -> Result<(TiffLayout, u64), Error> {
        let head = take(file, 0, 16)?;
        let big_endian = head.starts_with(b"MM");
        let order = Order(big_endian);
        let big = match (head.get(..2), order.number(&head, 2, 2)) {
            (Some(b"II" | b"MM"), Some(42)) => false,
            (Some(b"II" | b"MM"), Some(43)) => true,
            _ => return Err(broken()),
        };
        let list = if big { order.number(&head, 8, 8) } else { order.number(&head, 4, 4) };
        let (count_len, entry_len, place_len) = if big { (8, 20, 8) } else { (2, 12, 4) };
        Ok((TiffLayout { big_endian, count_len, entry_len, place_len }, list.ok_or_else(broken)?))
    }

    /// The tags of a list, and where the next one begins; 0 if there is none.
    fn tags(
        &self,
        file: &mut (impl Read + Seek),
        list: u64,
        wanted: &[u16],
        budget: &mut u64,
    ) -> Result<(Tags, u64), Error> {
        let TiffLayout { big_endian, count_len, entry_len, place_len } = *self;
        let order = Order(big_endian);
        let count = order.number(&take(file, list, count_len)?, 0, count_len as usize).ok_or_else(broken)?;
        if count > TAGS_MAX {
            return Err(broken());
        }
        spend(budget, count * entry_len)?;
        let entries_at = list.saturating_add(count_len);
        let entries = take(file, entries_at, count * entry_len)?;
        let mut all = Vec::new();
        for entry in entries.chunks_exact(entry_len as usize) {
            let word =
                |at: usize| order.number(entry, at, 2).and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
            let (number, kind) = (word(0), word(2));
            let values = order.number(entry, 4, place_len).unwrap_or(0);
            let len = values.saturating_mul(size_of_kind(kind));
            if !wanted.contains(&number) || len > VALUE_LEN_MAX {
                continue;
            }
            spend(budget, len)?;
            let inline = entry.get(4 + place_len..).unwrap_or_default();
            let bytes = match inline.get(..usize::try_from(len).unwrap_or(usize::MAX)) {
                Some(bytes) => bytes.to_vec(),
                None => take(file, order.number(inline, 0, place_len).unwrap_or(u64::MAX), len)?,
            };
            all.push(Tag { number, kind, bytes });
        }
        // Who wants one picture need not have a place for the next.
        let after = take(file, entries_at.saturating_add(count * entry_len), place_len as u64);
        let next = after.ok().and_then(|bytes| order.number(&bytes, 0, place_len)).unwrap_or(0);
        Ok((Tags { all, big_endian }, next))
    }
}

fn spend(budget: &mut u64, len: u64) -> Result<(), Error> {
    *budget = budget.checked_sub(len).ok_or_else(broken)?;
    Ok(())
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
