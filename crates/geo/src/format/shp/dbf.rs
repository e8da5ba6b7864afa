//! The attributes of a Shapefile: a table in dBase III (`.dbf`).

use std::borrow::Cow;
use std::io::Read;

use encoding_rs::{Encoding, WINDOWS_1252};
use tidegate_core::Code;

use crate::error::{Error, Problem};
use crate::mapping::Owned;
use crate::schema::{Kind, Schema, free_name, is_date};

struct DbfField {
    width: usize,
    kind: Kind,
    letter: u8,
}

/// A row of a table.
pub(super) enum DbfRow {
    /// Its values.
    Values(Vec<Owned>),
    /// A value does not match the type of its field.
    Broken(Problem),
    /// It is marked as deleted.
    Deleted,
}

/// A table being read.
pub(super) struct DbfTable<R> {
    input: R,
    fields: Vec<DbfField>,
    row: Vec<u8>,
    left: u32,
    encoding: Option<&'static Encoding>,
}

fn broken(message: &str) -> Error {
    Problem::new(Code::CORRUPTED_HEADER, format!("the table (.dbf): {message}")).into()
}

impl<R: Read> DbfTable<R> {
    /// Reads the header; the schema of the fields.
    pub(super) fn open(mut input: R, encoding: Option<&str>) -> Result<(DbfTable<R>, Schema), Error> {
        let mut head = [0; 32];
        input.read_exact(&mut head)?;
        let word = |at: usize| usize::from(head[at]) | usize::from(head[at + 1]) << 8;
        let left = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let (head_len, row_len) = (word(8), word(10));
        let mut rest = vec![0; head_len.checked_sub(32).ok_or_else(|| broken("its header is too short"))?];
        input.read_exact(&mut rest)?;
        let mut schema = Schema::default();
        let mut fields = Vec::new();
        for field in rest.chunks_exact(32) {
            let (Some(name), Some(letter), Some(width), Some(decimals)) =
                (field.get(..11), field.get(11), field.get(16), field.get(17))
            else {
                break;
            };
            if name.first() == Some(&b'\r') {
                break;
            }
            let name: Vec<u8> = name.iter().copied().take_while(|b| *b != 0).collect();
            let name = decode(&name, encoding.and_then(label)).trim().to_owned();
            let kind = match letter {
                b'N' | b'F' if *decimals == 0 && *width <= 18 && *letter == b'N' => Kind::Int,
                b'N' | b'F' => Kind::Real,
                b'L' => Kind::Bool,
                b'D' => Kind::Date,
                _ => Kind::Text,
            };
            schema.add(free_name(&name, |taken| schema.position(taken).is_some()), kind);
            fields.push(DbfField { width: usize::from(*width), kind, letter: *letter });
        }
        let width: usize = fields.iter().map(|field| field.width).sum();
        if width + 1 > row_len {
            return Err(broken("its fields are wider than its rows"));
        }
        Ok((
            DbfTable { input, fields, row: vec![0; row_len], left, encoding: encoding.and_then(label) },
            schema,
        ))
    }

    /// The next row; `None` after the end.
    pub(super) fn next(&mut self) -> Result<Option<DbfRow>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.input.read_exact(&mut self.row).map_err(|_| {
            Error::from(Problem::new(Code::TRUNCATED_BODY, "the table (.dbf) ends within its rows"))
        })?;
        if self.row.first() == Some(&b'*') {
            return Ok(Some(DbfRow::Deleted));
        }
        let mut at = 1;
        let values = self.fields.iter().map(|field| {
            let cell = self.row.get(at..at + field.width).unwrap_or_default();
            at += field.width;
            value(cell, field, self.encoding)
        });
        Ok(Some(values.collect::<Result<_, _>>().map_or_else(DbfRow::Broken, DbfRow::Values)))
    }
}

fn label(name: &str) -> Option<&'static Encoding> {
    let name = name.trim();
    Encoding::for_label(name.as_bytes()).or_else(|| match name {
        "88591" => Some(WINDOWS_1252),
        digits => Encoding::for_label(format!("windows-{digits}").as_bytes()),
    })
}

/// The encoding if none is declared: UTF-8 if the bytes are valid, else Windows-1252.
fn decode<'a>(bytes: &'a [u8], encoding: Option<&'static Encoding>) -> Cow<'a, str> {
    match (encoding, std::str::from_utf8(bytes)) {
        (None, Ok(text)) => Cow::Borrowed(text),
        (encoding, _) => encoding.unwrap_or(WINDOWS_1252).decode_without_bom_handling(bytes).0,
    }
}

fn value(cell: &[u8], field: &DbfField, encoding: Option<&'static Encoding>) -> Result<Owned, Problem> {
    let text = decode(cell, encoding);
    let text = text.trim_end_matches(['\0', ' ']);
    let plain = text.trim();
    if plain.is_empty() || (field.letter != b'C' && plain.starts_with('*')) {
        return Ok(Owned::Null);
    }
    let refuse = || Problem::new(Code::SCHEMA_MISMATCH, format!("{plain:?} is not of kind {}", field.kind));
    match field.kind {
        Kind::Int => plain.parse().map(Owned::Int).map_err(|_| refuse()),
        Kind::Real => {
            let number = fast_float2::parse::<f64, _>(plain).ok().filter(|x| x.is_finite());
            number.map(Owned::Real).ok_or_else(refuse)
        }
        Kind::Bool => match plain {
            "T" | "t" | "Y" | "y" | "1" => Ok(Owned::Bool(true)),
            "F" | "f" | "N" | "n" | "0" => Ok(Owned::Bool(false)),
            "?" => Ok(Owned::Null),
            _ => Err(refuse()),
        },
        Kind::Date if plain.bytes().all(|b| b == b'0') => Ok(Owned::Null),
        Kind::Date => {
            let parts = plain.get(..4).zip(plain.get(4..6)).zip(plain.get(6..));
            let date = parts.map(|((year, month), day)| format!("{year}-{month}-{day}"));
            date.filter(|date| is_date(date)).map(Owned::Text).ok_or_else(refuse)
        }
        _ => Ok(Owned::Text(text.to_owned())),
    }
}
