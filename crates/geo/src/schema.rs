//! The shape of a batch: named, typed fields and one geometry.
//!
//! The kinds are the meeting of what the formats can hold without loss: JSON's scalars, SQL's
//! dates and blobs, and JSON itself for what nests, kept as text until a mapping flattens it.
//! Dates are kept as ISO 8601 text with the kind beside it: three of our four text formats write
//! them so, the offset of a time zone survives, and nothing is rounded.

use std::collections::HashMap;
use std::fmt;

use tidegate_core::Code;
use tidegate_core::time::calendar::days_in_month;

use crate::error::Problem;
use crate::wkb::{Dim, Shape};

/// The type of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A whole number of 64 bits.
    Int,
    /// A number of double precision.
    Real,
    /// Text.
    Text,
    /// A day, `2026-11-15`.
    Date,
    /// A moment, ISO 8601 with an optional offset.
    DateTime,
    /// Bytes.
    Bytes,
    /// Any JSON value, as its text.
    Json,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Real => "real",
            Kind::Text => "text",
            Kind::Date => "date",
            Kind::DateTime => "datetime",
            Kind::Bytes => "bytes",
            Kind::Json => "json",
        })
    }
}

impl std::str::FromStr for Kind {
    type Err = String;
    fn from_str(name: &str) -> Result<Kind, String> {
        let all = [
            Kind::Bool,
            Kind::Int,
            Kind::Real,
            Kind::Text,
            Kind::Date,
            Kind::DateTime,
            Kind::Bytes,
            Kind::Json,
        ];
        all.into_iter().find(|kind| kind.to_string() == name).ok_or_else(|| {
            format!(
                "unknown type {name:?}; expected one of bool, int, real, text, date, datetime, bytes, json"
            )
        })
    }
}

impl Kind {
    /// The narrowest kind that holds the values of both without loss of meaning.
    #[must_use]
    pub fn widen(self, other: Kind) -> Kind {
        match (self, other) {
            (a, b) if a == b => a,
            (Kind::Int, Kind::Real) | (Kind::Real, Kind::Int) => Kind::Real,
            (Kind::Date | Kind::DateTime, Kind::Text | Kind::Date | Kind::DateTime)
            | (Kind::Text, Kind::Date | Kind::DateTime) => Kind::Text,
            _ => Kind::Json,
        }
    }
}

/// One named property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, as the source spells it.
    pub name: String,
    /// The type.
    pub kind: Kind,
}

/// How many fields a file may have. Every record has a place for each of them, so that a small file
/// of records that share none would otherwise need the square of its size.
pub(crate) const FIELDS_MAX: usize = 10_000;

/// What is said of a file with more fields.
pub(crate) fn too_many_fields() -> Problem {
    Problem::new(Code::PAYLOAD_TOO_LARGE, format!("there are more than {FIELDS_MAX} fields"))
}

/// The fields of a batch, and what is known about its geometry before the first one is seen.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    fields: Vec<Field>,
    by_name: HashMap<String, usize>,
    /// The one shape of all geometries, if it is known to be one.
    pub shape: Option<Shape>,
    /// The dimensions of the geometries; a file that mixes them says the largest.
    pub dim: Dim,
}

impl Schema {
    /// A schema of these fields. A repeated name keeps its first place.
    #[must_use]
    pub fn new(fields: impl IntoIterator<Item = (impl Into<String>, Kind)>) -> Schema {
        let mut schema = Schema::default();
        for (name, kind) in fields {
            schema.add(name, kind);
        }
        schema
    }

    /// The same schema, of geometries of this shape.
    #[must_use]
    pub fn of_shape(mut self, shape: Shape) -> Schema {
        self.shape = Some(shape);
        self
    }

    /// The same schema, of geometries of these dimensions.
    #[must_use]
    pub fn of_dim(mut self, dim: Dim) -> Schema {
        self.dim = dim;
        self
    }

    /// Adds a field, or widens the one of that name; its place either way.
    pub fn add(&mut self, name: impl Into<String>, kind: Kind) -> usize {
        let name = name.into();
        if let Some(&at) = self.by_name.get(&name) {
            if let Some(field) = self.fields.get_mut(at) {
                field.kind = field.kind.widen(kind);
            }
            return at;
        }
        let at = self.fields.len();
        self.by_name.insert(name.clone(), at);
        self.fields.push(Field { name, kind });
        at
    }

    /// Replaces the kind of a field.
    pub fn set_kind(&mut self, at: usize, kind: Kind) {
        if let Some(field) = self.fields.get_mut(at) {
            field.kind = kind;
        }
    }

    /// The fields in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The place of the field of this name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.fields == other.fields && self.shape == other.shape && self.dim == other.dim
    }
}

/// The name, or the name with a number, that is not taken.
pub(crate) fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.into();
    }
    (1u64..).map(|n| format!("{name}_{n}")).find(|name| !taken(name)).unwrap_or_default()
}

/// Free names for many fields: who asks ten thousand times for the same does not wait for the square.
#[derive(Default)]
pub(crate) struct FreeNames {
    /// The number to begin with.
    next: HashMap<String, u64>,
}

impl FreeNames {
    /// As [`free_name`].
    pub(crate) fn of(&mut self, name: &str, taken: impl Fn(&str) -> bool) -> String {
        if !taken(name) {
            return name.into();
        }
        let next = self.next.entry(name.to_owned()).or_insert(1);
        loop {
            let free = format!("{name}_{next}");
            *next += 1;
            if !taken(&free) {
                return free;
            }
        }
    }
}

/// Whether this is a day that exists, `YYYY-MM-DD`.
#[must_use]
pub fn is_date(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() == 10
        && b[4] == b'-'
        && b[7] == b'-'
        && match (digits(b, 0, 4), digits(b, 5, 2), digits(b, 8, 2)) {
            (Some(year), Some(month), Some(day)) => {
                (1..=days_in_month(year.into(), month.into())).contains(&day.into())
            }
            _ => false,
        }
}

/// Whether this is a moment, `YYYY-MM-DDThh:mm[:ss[.fraction]]` and an optional offset; a space
/// may stand for the `T`.
#[must_use]
pub fn is_date_time(text: &str) -> bool {
    let b = text.as_bytes();
    if b.len() < 16
        || !text.is_char_boundary(10)
        || !is_date(&text[..10])
        || !matches!(b[10], b'T' | b't' | b' ')
    {
        return false;
    }
    let clock = matches!((digits(b, 11, 2), digits(b, 14, 2)), (Some(h), Some(m)) if h < 24 && m < 60);
    if !clock || b[13] != b':' {
        return false;
    }
    let mut at = 16;
    if b.get(at) == Some(&b':') {
        if digits(b, at + 1, 2).is_none_or(|s| s > 60) {
            return false;
        }
        at += 3;
        if matches!(b.get(at), Some(b'.' | b',')) {
            let fraction = b[at + 1..].iter().take_while(|d| d.is_ascii_digit()).count();
            if fraction == 0 {
                return false;
            }
            at += 1 + fraction;
        }
    }
    match &b[at..] {
        [] | [b'Z' | b'z'] => true,
        [b'+' | b'-', rest @ ..] => match rest.len() {
            2 => digits(rest, 0, 2).is_some(),
            4 => digits(rest, 0, 4).is_some(),
            5 => rest[2] == b':' && digits(rest, 0, 2).is_some() && digits(rest, 3, 2).is_some(),
            _ => false,
        },
        _ => false,
    }
}

fn digits(b: &[u8], at: usize, count: usize) -> Option<u32> {
    let part = b.get(at..at + count)?;
    part.iter().try_fold(0, |sum, d| d.is_ascii_digit().then(|| sum * 10 + u32::from(d - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_place_and_its_kind_widens() {
        let mut schema = Schema::new([("a", Kind::Int), ("b", Kind::Text), ("a", Kind::Real)]);
        assert_eq!(schema.fields().len(), 2);
        assert_eq!(schema.fields()[0].kind, Kind::Real);
        assert_eq!(schema.position("b"), Some(1));
        schema.add("b", Kind::Bool);
        assert_eq!(schema.fields()[1].kind, Kind::Json);
    }

    #[test]
    fn dates_are_iso_8601_and_exist() {
        for good in ["2026-11-15", "2024-02-29", "0001-01-01"] {
            assert!(is_date(good), "{good}");
        }
        for bad in ["2026-11-31", "2023-02-29", "2026-13-01", "2026-1-1", "20261115", "", "2026-11-1é"] {
            assert!(!is_date(bad), "{bad}");
        }
        for good in ["2026-11-15T04:30", "2026-11-15 04:30:59.123Z", "2026-11-15T04:30:00+05:30"] {
            assert!(is_date_time(good), "{good}");
        }
        for bad in [
            "2026-11-15",
            "2026-11-15T25:00",
            "2026-11-15T04:30:00+5",
            "2026-11-15T04:30:00.",
            "é026-11-15T04:30",
        ] {
            assert!(!is_date_time(bad), "{bad}");
        }
    }
}
