//! A column: the values of one field, side by side.
//!
//! Values of fixed width lie in a plain vector, text and bytes in an [`Arena`]: one allocation
//! for the whole column instead of one per value. Which rows are present is a separate vector of
//! flags, so that an absent number needs no sentinel.

use tidegate_core::Code;

use crate::error::Problem;
use crate::schema::Kind;

/// One property, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing: JSON `null`, SQL `NULL`, or a missing member.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Real(f64),
    /// Text, a date or a moment.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// The text of a JSON value.
    Json(&'a str),
}

/// Many byte strings in one allocation.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    /// Adds one string.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    /// Adds one string, written by a function that appends to the arena. What a failing function
    /// wrote is taken back.
    ///
    /// # Errors
    /// What the function returns.
    pub fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.bytes.len();
        match write(&mut self.bytes) {
            Ok(()) => {
                self.ends.push(self.bytes.len());
                Ok(())
            }
            Err(e) => {
                self.bytes.truncate(start);
                Err(e)
            }
        }
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// The string at this place; empty beyond the end.
    #[must_use]
    pub fn get(&self, at: usize) -> &[u8] {
        self.ends.get(at).and_then(|&end| self.bytes.get(self.start(at)..end)).unwrap_or_default()
    }

    /// The string at this place, to change in place.
    #[must_use]
    pub fn get_mut(&mut self, at: usize) -> &mut [u8] {
        let start = self.start(at);
        self.ends.get(at).and_then(|&end| self.bytes.get_mut(start..end)).unwrap_or_default()
    }

    /// How many strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes all strings take.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all but the first `len` strings.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Removes all strings and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[derive(Clone, Debug)]
enum Values {
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Real(Vec<f64>),
    Arena(Arena),
}

/// The values of one field.
#[derive(Clone, Debug)]
pub struct Column {
    kind: Kind,
    values: Values,
    present: Vec<bool>,
}

impl Column {
    /// An empty column of this kind.
    #[must_use]
    pub fn new(kind: Kind) -> Column {
        let values = match kind {
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::Int => Values::Int(Vec::new()),
            Kind::Real => Values::Real(Vec::new()),
            Kind::Text | Kind::Date | Kind::DateTime | Kind::Bytes | Kind::Json => {
                Values::Arena(Arena::default())
            }
        };
        Column { kind, values, present: Vec::new() }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many values, absent ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// How many values are absent.
    #[must_use]
    pub fn nulls(&self) -> usize {
        self.present.iter().filter(|present| !**present).count()
    }

    /// The value of this row; absent beyond the end.
    #[must_use]
    pub fn get(&self, row: usize) -> Value<'_> {
        if !self.present.get(row).copied().unwrap_or(false) {
            return Value::Null;
        }
        match &self.values {
            Values::Bool(v) => v.get(row).map_or(Value::Null, |&v| Value::Bool(v)),
            Values::Int(v) => v.get(row).map_or(Value::Null, |&v| Value::Int(v)),
            Values::Real(v) => v.get(row).map_or(Value::Null, |&v| Value::Real(v)),
            Values::Arena(v) if self.kind == Kind::Bytes => Value::Bytes(v.get(row)),
            Values::Arena(v) => {
                let text = std::str::from_utf8(v.get(row)).unwrap_or_default();
                if self.kind == Kind::Json { Value::Json(text) } else { Value::Text(text) }
            }
        }
    }

    /// Adds a value of the column's kind. A whole number may enter a column of reals if it loses
    /// nothing, and any scalar a column of JSON, as its JSON text.
    ///
    /// # Errors
    /// `SCHEMA_MISMATCH` for a value of another kind; nothing is added then.
    pub fn push(&mut self, value: Value<'_>) -> Result<(), Problem> {
        let mut present = true;
        match (&mut self.values, value) {
            (Values::Bool(v), Value::Bool(b)) => v.push(b),
            (Values::Int(v), Value::Int(i)) => v.push(i),
            (Values::Real(v), Value::Real(x)) => v.push(x),
            (Values::Real(v), Value::Int(i)) if i.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => {
                v.push(i as f64);
            }
            (values, Value::Null) => {
                present = false;
                match values {
                    Values::Bool(v) => v.push(false),
                    Values::Int(v) => v.push(0),
                    Values::Real(v) => v.push(0.0),
                    Values::Arena(v) => v.push(&[]),
                }
            }
            (Values::Arena(v), Value::Bytes(b)) if self.kind == Kind::Bytes => v.push(b),
            (Values::Arena(v), value) if self.kind == Kind::Json => {
                v.push_with(|out| crate::format::json::write_value(out, value))?;
            }
            (Values::Arena(v), Value::Text(t)) if self.kind != Kind::Bytes => {
                check_date(self.kind, t)?;
                v.push(t.as_bytes());
            }
            (_, value) => {
                return Err(Problem::new(
                    Code::SCHEMA_MISMATCH,
                    format!("a field of kind {} cannot hold {value:?}", self.kind),
                ));
            }
        }
        self.present.push(present);
        Ok(())
    }

    /// Removes all but the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.present.truncate(len);
        match &mut self.values {
            Values::Bool(v) => v.truncate(len),
            Values::Int(v) => v.truncate(len),
            Values::Real(v) => v.truncate(len),
            Values::Arena(v) => v.truncate(len),
        }
    }
}

fn check_date(kind: Kind, text: &str) -> Result<(), Problem> {
    let good = match kind {
        Kind::Date => crate::schema::is_date(text),
        Kind::DateTime => crate::schema::is_date_time(text),
        _ => true,
    };
    if good {
        return Ok(());
    }
    Err(Problem::new(Code::SCHEMA_MISMATCH, format!("{text:?} is not an ISO 8601 {kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_back_and_what_does_not_fit_is_refused() {
        let mut ints = Column::new(Kind::Int);
        ints.push(Value::Int(i64::MIN)).unwrap();
        ints.push(Value::Null).unwrap();
        assert_eq!(ints.push(Value::Real(0.5)).unwrap_err().code, Code::SCHEMA_MISMATCH);
        assert_eq!((ints.get(0), ints.get(1), ints.get(2)), (Value::Int(i64::MIN), Value::Null, Value::Null));
        assert_eq!((ints.nulls(), ints.len()), (1, 2));

        let mut reals = Column::new(Kind::Real);
        reals.push(Value::Int(3)).unwrap();
        assert_eq!(reals.get(0), Value::Real(3.0));
        assert!(reals.push(Value::Int((1 << 53) + 1)).is_err(), "would lose the last digit");

        let mut json = Column::new(Kind::Json);
        json.push(Value::Text("a\"b")).unwrap();
        json.push(Value::Json("{\"x\":1}")).unwrap();
        assert_eq!((json.get(0), json.get(1)), (Value::Json("\"a\\\"b\""), Value::Json("{\"x\":1}")));

        let mut dates = Column::new(Kind::Date);
        dates.push(Value::Text("2026-11-15")).unwrap();
        assert!(dates.push(Value::Text("15.11.2026")).is_err());
        assert_eq!(dates.len(), 1);
    }

    #[test]
    fn an_arena_takes_back_what_failed() {
        let mut arena = Arena::default();
        arena.push(b"one");
        let failed: Result<(), ()> = arena.push_with(|out| {
            out.extend_from_slice(b"half");
            Err(())
        });
        assert!(failed.is_err());
        arena.push(b"two");
        assert_eq!((arena.get(0), arena.get(1), arena.len()), (&b"one"[..], &b"two"[..], 2));
    }
}
