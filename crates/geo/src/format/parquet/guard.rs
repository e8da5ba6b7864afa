//! Checks before the crate parses a file.
//!
//! The crate trusts a footer: it builds the schema by recursion, allocates as many items as a list declares,
//! and decompresses a page to its declared size. So the footer and the page headers are walked first, in
//! Thrift's compact protocol, without building anything.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use tidegate_core::Code;

use super::{broken, problem};
use crate::error::{Error, Problem};
use crate::schema::{FIELDS_MAX, too_many_fields};

const FOOTER_LEN_MAX: u64 = 64 << 20;
/// Deepest nesting of structures in the footer, and of groups in the schema.
const DEPTH_MAX: usize = 32;
/// Largest page after decompression, and its largest compression ratio beyond `FREE`.
const PAGE_LEN_MAX: i64 = 128 << 20;
const RATIO_MAX: i64 = 100;
const FREE: i64 = 16 << 20;

const I32: u8 = 5;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Trouble at a byte.
fn at(offset: u64, message: impl std::fmt::Display) -> Error {
    problem(message).at(offset).into()
}

/// Walks the footer of a file.
pub(super) fn footer(file: &File) -> Result<(), Error> {
    let mut file = file;
    let len = file.metadata()?.len();
    let mut tail = [0; 8];
    if len < 12 {
        return Err(broken("it is too short"));
    }
    file.seek(SeekFrom::Start(len - 8))?;
    file.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    if &magic != b"PAR1" {
        return Err(at(len - 4, "it does not end as one"));
    }
    let footer_len = u64::from(u32::from_le_bytes([a, b, c, d]));
    if footer_len > FOOTER_LEN_MAX || footer_len + 12 > len {
        return Err(at(len - 8, format!("a footer of {footer_len} bytes")));
    }
    let start = len - 8 - footer_len;
    file.seek(SeekFrom::Start(start))?;
    let mut walk = Walk { input: BufReader::new(file.take(footer_len)), left: footer_len };
    let children = walk.schema();
    let children = children.ok_or_else(|| at(len - 8 - walk.left, "the footer is damaged"))?;
    schema(&children)
}

/// Whether groups nest too deep, by how many children each element has.
fn schema(children: &[i64]) -> Result<(), Error> {
    if children.len() > FIELDS_MAX {
        return Err(too_many_fields().into());
    }
    let mut open: Vec<i64> = Vec::new();
    for count in children {
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if *count > 0 {
            open.push(*count);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > DEPTH_MAX {
            return Err(broken("groups nest too deep"));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(broken("the schema has fewer elements than it says")) }
}

/// Walks the page headers of a column.
pub(super) fn pages(file: &File, start: u64, len: u64) -> Result<(), Error> {
    let mut input = BufReader::with_capacity(1 << 16, file);
    input.seek(SeekFrom::Start(start))?;
    let (mut from, end) = (start, start.saturating_add(len));
    while from < end {
        let mut walk = Walk { input: &mut input, left: end - from };
        let (size, packed) = walk.page().ok_or_else(|| at(from, "a page header is damaged"))?;
        if size > PAGE_LEN_MAX || (size > FREE && size / packed.max(1) > RATIO_MAX) {
            let message = format!("a page of {packed} bytes would unpack to {size}");
            return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(from).into());
        }
        let head = (end - from) - walk.left;
        let next = from.saturating_add(head).saturating_add(packed.unsigned_abs());
        if size < 0 || packed < 0 || next > end {
            return Err(at(from, "a page reaches beyond its column"));
        }
        input.seek_relative(packed)?;
        from = next;
    }
    Ok(())
}

/// A walk through Thrift's compact form; `None` wherever it is damaged.
struct Walk<R> {
    input: R,
    left: u64,
}

impl<R: Read> Walk<R> {
    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.left = self.left.checked_sub(1)?;
        self.input.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        self.left = self.left.checked_sub(count)?;
        let passed = std::io::copy(&mut self.input.by_ref().take(count), &mut std::io::sink()).ok()?;
        (passed == count).then_some(())
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    /// The next field of a structure, by its number and kind; `Some(None)` at the end.
    fn field(&mut self, last: &mut i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *last = match head >> 4 {
            0 => self.signed()?,
            after => last.checked_add(after.into())?,
        };
        Some(Some((*last, head & 15)))
    }

    /// How many items a list has, and their kind. Each takes a byte at least.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        (count <= self.left).then_some((count, head & 15))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            1 | 2 => Some(()),
            3 => self.bytes(1),
            4..=6 => self.number().map(|_| ()),
            7 => self.bytes(8),
            8 => {
                let len = self.number()?;
                self.bytes(len)
            }
            LIST | 10 => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.item(kind, depth + 1))
            }
            11 => {
                let count = self.number().filter(|count| *count <= self.left)?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.item(kinds >> 4, depth + 1)?;
                    self.item(kinds & 15, depth + 1)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            13 => self.bytes(16),
            _ => None,
        }
    }

    /// A flag in a list is a byte.
    fn item(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.bytes(1) } else { self.skip(kind, depth) }
    }

    /// How many children each element of the schema has.
    fn schema(&mut self) -> Option<Vec<i64>> {
        let (mut last, mut all) = (0, Vec::new());
        while let Some(field) = self.field(&mut last)? {
            if field != (2, LIST) {
                self.skip(field.1, 0)?;
                continue;
            }
            let (count, kind) = self.list()?;
            if kind != STRUCT {
                return None;
            }
            for _ in 0..count {
                let (mut last, mut children) = (0, 0);
                while let Some((number, kind)) = self.field(&mut last)? {
                    match (number, kind) {
                        (5, I32) => children = self.signed()?,
                        (_, kind) => self.skip(kind, 1)?,
                    }
                }
                all.push(children);
            }
        }
        Some(all)
    }

    /// What a page unpacks to, and its packed size.
    fn page(&mut self) -> Option<(i64, i64)> {
        let (mut last, mut size, mut packed) = (0, None, None);
        while let Some((number, kind)) = self.field(&mut last)? {
            match (number, kind) {
                (2, I32) => size = Some(self.signed()?),
                (3, I32) => packed = Some(self.signed()?),
                (_, kind) => self.skip(kind, 1)?,
            }
        }
        size.zip(packed)
    }
}
