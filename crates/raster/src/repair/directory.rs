//! A directory of tags, read with as little trust as possible.
//!
//! The reader of sound files refuses what is not as the standard says. Here a directory with a wrong
//! count of entries, entries out of order or values outside of the file is still a directory, and
//! what was wrong with it is remembered.

use std::io;

use super::input::RepairInput;

/// More tags than any picture has.
pub(super) const TAGS_MAX: u64 = 4096;
/// What all values of a directory may take.
pub(super) const VALUES_LEN_MAX: u64 = 64 << 20;

/// The tags that pictures have: TIFF, its supplements, GeoTIFF and GDAL.
const KNOWN: [u16; 58] = [
    254, 255, 256, 257, 258, 259, 262, 263, 266, 269, 270, 271, 272, 273, 274, 277, 278, 279, 280, 281, 282,
    283, 284, 285, 296, 297, 305, 306, 315, 316, 317, 318, 319, 320, 322, 323, 324, 325, 330, 338, 339, 340,
    341, 347, 529, 530, 531, 532, 700, 33432, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113,
];

/// The byte order and the width of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TiffForm {
    pub(super) big_endian: bool,
    /// BigTIFF: places of eight bytes.
    pub(super) big: bool,
}

impl TiffForm {
    pub(super) const ALL: [TiffForm; 4] = [
        TiffForm { big_endian: false, big: false },
        TiffForm { big_endian: true, big: false },
        TiffForm { big_endian: false, big: true },
        TiffForm { big_endian: true, big: true },
    ];

    /// A whole number of up to eight bytes.
    pub(super) fn number(self, bytes: &[u8]) -> u64 {
        let add = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }

    /// The lowest bytes of a number, in this order.
    pub(super) fn bytes(self, number: u64, len: usize) -> Vec<u8> {
        let little = number.to_le_bytes();
        let mut bytes: Vec<u8> = little.iter().take(len).copied().collect();
        if self.big_endian {
            bytes.reverse();
        }
        bytes
    }

    /// The length of a place in the file.
    pub(super) fn place_len(self) -> usize {
        if self.big { 8 } else { 4 }
    }

    pub(super) fn entry_len(self) -> usize {
        if self.big { 20 } else { 12 }
    }

    pub(super) fn count_len(self) -> usize {
        if self.big { 8 } else { 2 }
    }

    /// The first bytes of a file of this form.
    pub(super) fn mark(self) -> [u8; 4] {
        match (self.big_endian, self.big) {
            (false, false) => *b"II\x2a\0",
            (true, false) => *b"MM\0\x2a",
            (false, true) => *b"II\x2b\0",
            (true, true) => *b"MM\0\x2b",
        }
    }
}

/// The bytes of one value of a type; nothing for a type that there is not.
pub(super) fn kind_len(kind: u16) -> Option<u64> {
    Some(match kind {
        1 | 2 | 6 | 7 => 1,
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 | 17 | 18 => 8,
        _ => return None,
    })
}

/// One tag with the bytes of its values, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawTag {
    pub(super) tag: u16,
    pub(super) kind: u16,
    pub(super) count: u64,
    pub(super) bytes: Vec<u8>,
}

/// The tags of one picture.
#[derive(Clone, Debug)]
pub(super) struct RawDirectory {
    pub(super) form: TiffForm,
    pub(super) at: u64,
    pub(super) tags: Vec<RawTag>,
    pub(super) next: u64,
    /// The first byte after everything that belongs to it.
    pub(super) end: u64,
    /// Its tags were in ascending order.
    pub(super) sorted: bool,
    /// The count of entries that the file gives, where it is wrong.
    pub(super) false_count: Option<u64>,
    /// Tags whose values lie outside of the file.
    pub(super) lost: Vec<u16>,
}

impl RawDirectory {
    /// Reads the directory at a place; nothing if there is none.
    pub(super) fn read(input: &RepairInput, form: TiffForm, at: u64) -> io::Result<Option<RawDirectory>> {
        let Some(head) = input.exact(at, form.count_len() as u64)? else { return Ok(None) };
        let told = form.number(&head);
        let entries_at = at + form.count_len() as u64;
        let room = input.len().saturating_sub(entries_at) / form.entry_len() as u64;
        let false_count = (told == 0 || told > TAGS_MAX || told > room).then_some(told);
        let wanted = false_count.map_or(told, |_| TAGS_MAX.min(room));
        let len = wanted * form.entry_len() as u64 + form.place_len() as u64;
        let bytes = input.up_to(entries_at, len)?;
        let mut found = RawDirectory {
            form,
            at,
            tags: Vec::new(),
            next: 0,
            end: entries_at,
            sorted: true,
            false_count,
            lost: Vec::new(),
        };
        let mut read = 0;
        let mut last = 0;
        for entry in bytes.chunks_exact(form.entry_len()).take(wanted as usize) {
            let tag = form.number(entry.get(..2).unwrap_or_default()) as u16;
            if false_count.is_some() && (tag <= last || !KNOWN.contains(&tag)) {
                break;
            }
            found.sorted &= tag > last || read == 0;
            last = tag;
            match found.entry(input, tag, entry)? {
                Some(raw) => {
                    if found.tag(tag).is_none() {
                        found.tags.push(raw);
                    }
                }
                None if false_count.is_some() => break,
                // A type that there is not: readers pass over it.
                None if kind_len(form.number(entry.get(2..4).unwrap_or_default()) as u16).is_none() => {}
                None => found.lost.push(tag),
            }
            read += 1;
        }
        let after = read as usize * form.entry_len();
        let place = bytes.get(after..after + form.place_len());
        found.next = place.map_or(0, |bytes| form.number(bytes));
        found.end = found.end.max(entries_at + (after + form.place_len()) as u64);
        Ok((found.is_plausible() && found.lost.len() * 2 <= found.tags.len()).then_some(found))
    }

    /// One entry with its values.
    fn entry(&mut self, input: &RepairInput, tag: u16, entry: &[u8]) -> io::Result<Option<RawTag>> {
        let form = self.form;
        let kind = form.number(entry.get(2..4).unwrap_or_default()) as u16;
        let count = form.number(entry.get(4..4 + form.place_len()).unwrap_or_default());
        let inline = entry.get(4 + form.place_len()..).unwrap_or_default();
        let Some(len) = kind_len(kind).and_then(|one| one.checked_mul(count)) else { return Ok(None) };
        if len.saturating_add(self.weight()) > VALUES_LEN_MAX {
            return Ok(None);
        }
        let bytes = match inline.get(..usize::try_from(len).unwrap_or(usize::MAX)) {
            Some(bytes) => bytes.to_vec(),
            None => {
                let at = form.number(inline);
                let Some(bytes) = input.exact(at, len)? else { return Ok(None) };
                self.end = self.end.max(at + len);
                bytes
            }
        };
        Ok(Some(RawTag { tag, kind, count, bytes }))
    }

    /// The bytes of all its values.
    pub(super) fn weight(&self) -> u64 {
        self.tags.iter().map(|raw| raw.bytes.len() as u64).sum()
    }

    /// It has what every picture has.
    fn is_plausible(&self) -> bool {
        let has = |tag| self.tag(tag).is_some();
        has(256) && has(257) && (has(273) || has(324) || self.lost.iter().any(|tag| matches!(tag, 273 | 324)))
    }

    pub(super) fn tag(&self, tag: u16) -> Option<&RawTag> {
        self.tags.iter().find(|raw| raw.tag == tag)
    }

    /// All whole numbers of a tag; nothing if it is not there, or not of whole numbers.
    pub(super) fn numbers(&self, tag: u16) -> Option<Vec<u64>> {
        let raw = self.tag(tag)?;
        let len = match raw.kind {
            1 => 1,
            3 => 2,
            4 | 13 => 4,
            16 | 18 => 8,
            _ => return None,
        };
        Some(raw.bytes.chunks_exact(len).map(|bytes| self.form.number(bytes)).collect())
    }

    /// The first whole number of a tag.
    pub(super) fn number(&self, tag: u16) -> Option<u64> {
        self.numbers(tag)?.first().copied()
    }

    /// All floating-point numbers of a tag.
    pub(super) fn doubles(&self, tag: u16) -> Vec<f64> {
        let Some(raw) = self.tag(tag).filter(|raw| raw.kind == 12) else { return Vec::new() };
        raw.bytes.chunks_exact(8).map(|bytes| f64::from_bits(self.form.number(bytes))).collect()
    }

    /// The text of a tag, up to its first zero byte.
    pub(super) fn text(&self, tag: u16) -> Option<String> {
        let raw = self.tag(tag).filter(|raw| raw.kind == 2)?;
        let text = raw.bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Replaces a tag, or adds it.
    pub(super) fn set(&mut self, raw: RawTag) {
        self.unset(raw.tag);
        self.tags.push(raw);
    }

    /// Replaces a tag by whole numbers of a type.
    pub(super) fn set_numbers(&mut self, tag: u16, kind: u16, numbers: &[u64]) {
        let len = kind_len(kind).unwrap_or(8) as usize;
        let bytes = numbers.iter().flat_map(|number| self.form.bytes(*number, len)).collect();
        self.set(RawTag { tag, kind, count: numbers.len() as u64, bytes });
    }

    /// Replaces a tag by floating-point numbers.
    pub(super) fn set_doubles(&mut self, tag: u16, numbers: &[f64]) {
        let bytes = numbers.iter().flat_map(|number| self.form.bytes(number.to_bits(), 8)).collect();
        self.set(RawTag { tag, kind: 12, count: numbers.len() as u64, bytes });
    }

    /// Replaces a tag by text.
    pub(super) fn set_text(&mut self, tag: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.set(RawTag { tag, kind: 2, count: bytes.len() as u64, bytes });
    }

    pub(super) fn unset(&mut self, tag: u16) {
        self.tags.retain(|raw| raw.tag != tag);
    }

    /// A smaller version of another picture.
    pub(super) fn is_reduced(&self) -> bool {
        self.number(254).unwrap_or(0) & 1 != 0
    }

    /// A mask of another picture.
    pub(super) fn is_mask(&self) -> bool {
        self.number(254).unwrap_or(0) & 4 != 0
    }
}
