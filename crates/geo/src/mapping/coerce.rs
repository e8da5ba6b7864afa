//! Changing the kind of a value without losing any of it.

use tidegate_core::Code;

use crate::column::Value;
use crate::error::Problem;
use crate::format::geojson::scan::unescape;
use crate::number;
use crate::schema::{Kind, is_date, is_date_time};

/// A value of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Owned {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Real(f64),
    /// Text, a date or a moment.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The text of a JSON value.
    Json(String),
}

impl Owned {
    /// The value, borrowed.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        match self {
            Owned::Null => Value::Null,
            Owned::Bool(b) => Value::Bool(*b),
            Owned::Int(i) => Value::Int(*i),
            Owned::Real(x) => Value::Real(*x),
            Owned::Text(text) => Value::Text(text),
            Owned::Bytes(bytes) => Value::Bytes(bytes),
            Owned::Json(json) => Value::Json(json),
        }
    }

    /// The kind that holds it; null counts as text.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Owned::Bool(_) => Kind::Bool,
            Owned::Int(_) => Kind::Int,
            Owned::Real(_) => Kind::Real,
            Owned::Null | Owned::Text(_) => Kind::Text,
            Owned::Bytes(_) => Kind::Bytes,
            Owned::Json(_) => Kind::Json,
        }
    }
}

impl From<Value<'_>> for Owned {
    fn from(value: Value<'_>) -> Owned {
        match value {
            Value::Null => Owned::Null,
            Value::Bool(b) => Owned::Bool(b),
            Value::Int(i) => Owned::Int(i),
            Value::Real(x) => Owned::Real(x),
            Value::Text(text) => Owned::Text(text.to_owned()),
            Value::Bytes(bytes) => Owned::Bytes(bytes.to_vec()),
            Value::Json(text) => Owned::Json(text.to_owned()),
        }
    }
}

/// The value in another kind, without loss.
///
/// # Errors
/// `SCHEMA_MISMATCH` if something of it would be lost.
pub fn coerce(value: Value<'_>, kind: Kind, null: &[String], format: Option<&str>) -> Result<Owned, Problem> {
    let spelt = as_text(value);
    if spelt.as_ref().is_some_and(|text| null.iter().any(|token| token == text.trim())) {
        return Ok(Owned::Null);
    }
    let made = match (kind, value) {
        (_, Value::Null) => Some(Owned::Null),
        (Kind::Json, value) => {
            let mut out = Vec::new();
            crate::format::json::write_value::<Problem>(&mut out, value)?;
            String::from_utf8(out).ok().map(Owned::Json)
        }
        (Kind::Bytes, Value::Bytes(bytes)) => Some(Owned::Bytes(bytes.to_vec())),
        (Kind::Bool, Value::Bool(b)) => Some(Owned::Bool(b)),
        (Kind::Bool, Value::Int(i @ (0 | 1))) => Some(Owned::Bool(i == 1)),
        (Kind::Int, Value::Int(i)) => Some(Owned::Int(i)),
        (Kind::Int, Value::Bool(b)) => Some(Owned::Int(i64::from(b))),
        (Kind::Int, Value::Real(x)) => whole(x).map(Owned::Int),
        (Kind::Real, Value::Real(x)) => Some(Owned::Real(x)),
        (Kind::Real, Value::Int(i)) => (i.unsigned_abs() <= 1 << 53).then_some(Owned::Real(i as f64)),
        (Kind::Text, _) => spelt.clone().map(Owned::Text),
        (_, Value::Text(_) | Value::Json(_)) => {
            spelt.as_deref().and_then(|text| from_text(text.trim(), kind, format))
        }
        _ => None,
    };
    made.ok_or_else(|| {
        let shown: String = spelt.unwrap_or_else(|| format!("{value:?}")).chars().take(60).collect();
        Problem::new(Code::SCHEMA_MISMATCH, format!("{shown:?} cannot be converted to {kind} without loss"))
    })
}

/// How a value is spelt, text without its quotes; bytes are not spelt.
fn as_text(value: Value<'_>) -> Option<String> {
    let mut out = Vec::new();
    match value {
        Value::Null | Value::Bytes(_) => return None,
        Value::Bool(b) => return Some(b.to_string()),
        Value::Int(i) => number::int(&mut out, i),
        Value::Real(x) => number::real(&mut out, x),
        Value::Text(text) => return Some(text.to_owned()),
        Value::Json(json) => match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => unescape(inner.as_bytes(), &mut out).ok()?,
            None => return Some(json.to_owned()),
        },
    }
    String::from_utf8(out).ok()
}

fn whole(x: f64) -> Option<i64> {
    (x == x.trunc() && x.abs() <= (1u64 << 53) as f64).then_some(x as i64)
}

fn from_text(text: &str, kind: Kind, format: Option<&str>) -> Option<Owned> {
    match kind {
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "1" => Some(Owned::Bool(true)),
            "false" | "f" | "no" | "n" | "0" => Some(Owned::Bool(false)),
            _ => None,
        },
        Kind::Int => text.parse().ok().or_else(|| text.parse().ok().and_then(whole)).map(Owned::Int),
        Kind::Real => fast_float2::parse::<f64, _>(text).ok().filter(|x| x.is_finite()).map(Owned::Real),
        Kind::Date => match format {
            Some(format) => read_date(text, format).map(|parts| parts.date()),
            None if is_date(text) => Some(text.to_owned()),
            None => text
                .split_once(['T', ' '])
                .filter(|(_, clock)| is_midnight(clock))
                .map(|(day, _)| day.to_owned()),
        }
        .filter(|day| is_date(day))
        .map(Owned::Text),
        Kind::DateTime => match format {
            Some(format) => read_date(text, format).map(|parts| parts.moment()),
            None if is_date(text) => Some(format!("{text}T00:00:00")),
            None => Some(text.to_owned()),
        }
        .filter(|moment| is_date_time(moment))
        .map(Owned::Text),
        Kind::Text | Kind::Bytes | Kind::Json => None,
    }
}

fn is_midnight(clock: &str) -> bool {
    let digits = clock.trim_end_matches(['Z', 'z']);
    !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0' | b':' | b'.'))
}

#[derive(Default)]
struct DateParts {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl DateParts {
    fn date(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    fn moment(&self) -> String {
        format!("{}T{:02}:{:02}:{:02}", self.date(), self.hour, self.minute, self.second)
    }
}

/// Reads a date by a pattern of `%Y %m %d %H %M %S` and letters that stand for themselves.
fn read_date(text: &str, format: &str) -> Option<DateParts> {
    let mut parts = DateParts::default();
    let mut rest = text;
    let mut pattern = format.chars();
    while let Some(c) = pattern.next() {
        if c != '%' {
            rest = rest.strip_prefix(c)?;
            continue;
        }
        let (slot, digits_max) = match pattern.next()? {
            'Y' => (&mut parts.year, 4),
            'm' => (&mut parts.month, 2),
            'd' => (&mut parts.day, 2),
            'H' => (&mut parts.hour, 2),
            'M' => (&mut parts.minute, 2),
            'S' => (&mut parts.second, 2),
            _ => return None,
        };
        let len = rest.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
        *slot = rest.get(..len)?.parse().ok()?;
        rest = rest.get(len..)?;
    }
    rest.is_empty().then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let made = |value: Value<'_>, kind: Kind| coerce(value, kind, &[], None).ok();
        assert_eq!(made(Value::Text(" 12 "), Kind::Int), Some(Owned::Int(12)));
        assert_eq!(made(Value::Text("12.0"), Kind::Int), Some(Owned::Int(12)));
        assert_eq!(made(Value::Real(12.0), Kind::Int), Some(Owned::Int(12)));
        assert_eq!(made(Value::Json("\"7\""), Kind::Int), Some(Owned::Int(7)));
        assert_eq!(made(Value::Json("7.5"), Kind::Real), Some(Owned::Real(7.5)));
        assert_eq!(made(Value::Text("yes"), Kind::Bool), Some(Owned::Bool(true)));
        assert_eq!(made(Value::Real(0.1), Kind::Text), Some(Owned::Text("0.1".into())));
        assert_eq!(made(Value::Text("a"), Kind::Json), Some(Owned::Json("\"a\"".into())));
        assert_eq!(
            made(Value::Text("2026-11-15T00:00:00Z"), Kind::Date),
            Some(Owned::Text("2026-11-15".into()))
        );
        for (value, kind) in [
            (Value::Text("12.5"), Kind::Int),
            (Value::Text("12 m"), Kind::Real),
            (Value::Text("inf"), Kind::Real),
            (Value::Int(2), Kind::Bool),
            (Value::Int((1 << 53) + 1), Kind::Real),
            (Value::Text("2026-11-15T04:00:00Z"), Kind::Date),
            (Value::Text("2026-02-30"), Kind::Date),
            (Value::Bytes(&[1]), Kind::Text),
        ] {
            assert_eq!(made(value, kind), None, "{value:?} {kind}");
        }
    }
}
