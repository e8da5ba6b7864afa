//! Schema inference: one pass over a GeoJSON source that looks at names and types only.
//!
//! Why a whole pass and not the first thousand features: a writer creates its table once, and a field that
//! first appears in the last feature needs a column. Without building geometries, the pass costs a fraction
//! of reading.

use std::io::Read;
use std::sync::Arc;

use memchr::memmem;

use super::geometry::raw;
use super::scan::{Scan, Stop, unescape};
use super::stream::{Found, Stream};
use crate::error::Error;
use crate::schema::{FIELDS_MAX, Kind, Schema, is_date, is_date_time, too_many_fields};
use crate::wkb::{Dim, Shape};

/// The result of a pass over a source.
#[derive(Clone, Debug, Default)]
pub struct Inferred {
    /// Fields in the order of their first appearance, and the shape if there is only one.
    pub schema: Arc<Schema>,
    /// Number of records, with those that cannot be parsed.
    pub records: u64,
    /// Whether the source is empty, without even an empty collection.
    pub blank: bool,
    /// The text of the legacy `crs` members, which agree.
    pub legacy_crs: Option<String>,
}

/// Reads a source to its end and infers its schema. A record that cannot be parsed is skipped; the reader
/// reports it later.
///
/// # Errors
/// If reading fails, the text of a collection is not JSON or says that it is something else, a record is too large, or
/// the records are in several systems.
pub fn infer(input: impl Read, record_len_max: usize) -> Result<Inferred, Error> {
    let mut stream = Stream::new(input, record_len_max);
    let mut fields = Fields::default();
    loop {
        let step = stream.step(|scan, _| {
            // A record that crosses the window is seen twice, which changes nothing.
            fields.record(scan)
        });
        if fields.schema.fields().len() > FIELDS_MAX {
            return Err(too_many_fields().of_record(stream.records()).into());
        }
        match step? {
            Found::End => break,
            Found::Record(span) if fields.placed => stream.saw_crs(fields.crs, span.offset)?,
            Found::Record(_) | Found::Broken(_) => {}
        }
    }
    let mut schema = Schema::default();
    for field in fields.schema.fields() {
        let known = fields.known.get(schema.fields().len()).copied().unwrap_or(false);
        schema.add(field.name.clone(), if known { field.kind } else { Kind::Text });
    }
    schema.shape = fields.shape.filter(|_| !fields.mixed);
    schema.dim = fields.dim;
    Ok(Inferred {
        schema: Arc::new(schema),
        records: stream.records(),
        blank: !stream.seen && stream.records() == 0,
        legacy_crs: stream.named.text().map(str::to_owned),
    })
}

#[derive(Default)]
struct Fields {
    schema: Schema,
    /// Whether any value of the field was not null.
    known: Vec<bool>,
    shape: Option<Shape>,
    mixed: bool,
    dim: Dim,
    /// Whether the record seen last has coordinates, and its own `crs` member.
    placed: bool,
    crs: Option<(usize, usize)>,
    ends: Ends,
}

/// Finds the ends of arrays: two, three or four brackets.
struct Ends([memmem::Finder<'static>; 3]);

impl Default for Ends {
    fn default() -> Ends {
        Ends([b"]]".as_slice(), b"]]]", b"]]]]"].map(memmem::Finder::new))
    }
}

impl Ends {
    /// The length of the array of coordinates at the start of a text, if it ends with as many
    /// brackets as it begins with: faster than a look at every bracket. An array that is broken, or
    /// has spaces between brackets, is left to that.
    fn array(&self, text: &[u8]) -> Option<usize> {
        let deep = text.iter().take_while(|b| **b == b'[').count();
        let end = self.0.get(deep.checked_sub(2)?)?.find(text)? + deep;
        let within = text.get(..end)?;
        // What follows an array has quotes or braces before it has brackets.
        let is_one = memchr::memchr3(b'"', b'{', b'}', within).is_none() && is_balanced(within);
        is_one.then_some(end)
    }
}

/// Whether as many brackets open as close. In parts so small that a byte counts them, which the
/// compiler then does for many at once.
fn is_balanced(text: &[u8]) -> bool {
    let depth =
        |part: &[u8]| part.iter().fold(0i8, |depth, b| depth + i8::from(*b == b'[') - i8::from(*b == b']'));
    text.chunks(i8::MAX as usize).map(|part| i64::from(depth(part))).sum::<i64>() == 0
}

impl Fields {
    fn record(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        (self.placed, self.crs) = (false, None);
        let mut own = None;
        if scan.peek()? != b'{' {
            return scan.skip();
        }
        scan.at += 1;
        let mut more = !scan.eat(b'}')?;
        while more {
            let key = scan.key()?;
            let value = scan.peek()?;
            match raw(scan, key) {
                b"properties" if value == b'{' => self.properties(scan)?,
                b"geometry" if value == b'{' => self.geometry(scan)?,
                b"type" if value == b'"' => {
                    let text = scan.text()?;
                    self.saw_shape(raw(scan, text));
                }
                b"coordinates" => self.coordinates(scan)?,
                b"crs" => own = Some(member(scan)?),
                _ => scan.skip()?,
            }
            more = scan.comma_or(b'}')?;
        }
        // The member of the geometry takes precedence.
        self.crs = self.crs.or(own);
        Ok(())
    }

    fn saw_shape(&mut self, name: &[u8]) {
        if let Some(shape) = Shape::ALL.into_iter().find(|shape| shape.name().as_bytes() == name) {
            self.placed = true;
            self.mixed |= self.shape.is_some_and(|other| other != shape);
            self.shape = Some(shape);
        }
    }

    fn geometry(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        scan.at += 1;
        let mut more = !scan.eat(b'}')?;
        while more {
            let key = scan.key()?;
            let value = scan.peek()?;
            match raw(scan, key) {
                b"type" if value == b'"' => {
                    let text = scan.text()?;
                    self.saw_shape(raw(scan, text));
                }
                b"coordinates" => self.coordinates(scan)?,
                b"crs" => self.crs = Some(member(scan)?),
                _ => scan.skip()?,
            }
            more = scan.comma_or(b'}')?;
        }
        Ok(())
    }

    /// Arrays of numbers only, so that brackets alone tell where they end. The text is checked
    /// when it is read.
    fn coordinates(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        if scan.peek()? != b'[' {
            return scan.skip();
        }
        let mut ahead = *scan;
        while ahead.peek()? == b'[' {
            ahead.at += 1;
        }
        let first = ahead.bytes.get(ahead.at..).unwrap_or_default();
        let end = memchr::memchr(b']', first).ok_or(Stop::More)?;
        let commas = first.get(..end).unwrap_or_default().iter().filter(|b| **b == b',').count();
        self.dim = self.dim.union(Dim::new(commas > 1, commas > 2));
        let rest = scan.bytes.get(scan.at..).unwrap_or_default();
        if let Some(len) = self.ends.array(rest) {
            scan.at += len;
            return Ok(());
        }
        let mut depth = 0usize;
        for at in memchr::memchr3_iter(b'[', b']', b'"', rest) {
            match rest.get(at) {
                Some(b'[') => depth += 1,
                Some(b']') => depth = depth.saturating_sub(1),
                _ => return scan.skip(),
            }
            if depth == 0 {
                scan.at += at + 1;
                return Ok(());
            }
        }
        Err(Stop::More)
    }

    fn properties(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        scan.at += 1;
        let mut next = 0;
        let mut more = !scan.eat(b'}')?;
        while more {
            let key = scan.key()?;
            let name = raw(scan, key);
            let kind = kind_of(scan)?;
            let expected = self.schema.fields().get(next);
            let same = !key.escaped && expected.is_some_and(|field| field.name.as_bytes() == name);
            let settled = same
                && self.known.get(next).copied().unwrap_or(false)
                && expected.is_some_and(|field| kind.is_none_or(|kind| kind == field.kind));
            if settled {
                next += 1;
            } else {
                next = self.saw_field(name, key.escaped, kind) + 1;
                if self.schema.fields().len() > FIELDS_MAX {
                    return Err(Stop::Bad(scan.at, "too many fields"));
                }
            }
            more = scan.comma_or(b'}')?;
        }
        Ok(())
    }

    fn saw_field(&mut self, name: &[u8], escaped: bool, kind: Option<Kind>) -> usize {
        let mut plain = Vec::new();
        let name = if escaped && unescape(name, &mut plain).is_ok() { plain.as_slice() } else { name };
        let name = String::from_utf8_lossy(name);
        let at = match self.schema.position(&name) {
            Some(at) if self.known.get(at).copied().unwrap_or(false) || kind.is_none() => {
                kind.map_or(at, |kind| self.schema.add(name, kind))
            }
            Some(at) => {
                self.schema.set_kind(at, kind.unwrap_or(Kind::Text));
                at
            }
            None => self.schema.add(name, kind.unwrap_or(Kind::Text)),
        };
        self.known.resize(self.schema.fields().len(), false);
        if let Some(known) = self.known.get_mut(at) {
            *known |= kind.is_some();
        }
        at
    }
}

/// Where the next value stands, which is skipped.
fn member(scan: &mut Scan<'_>) -> Result<(usize, usize), Stop> {
    let start = scan.at;
    scan.skip()?;
    Ok((start, scan.at))
}

/// The kind of the next value, which is skipped; `None` for null.
fn kind_of(scan: &mut Scan<'_>) -> Result<Option<Kind>, Stop> {
    Ok(Some(match scan.peek()? {
        b'"' => {
            let text = scan.text()?;
            let text = raw(scan, text);
            let dated = text.len() >= 10 && text.first().is_some_and(u8::is_ascii_digit);
            match dated.then(|| std::str::from_utf8(text)) {
                Some(Ok(text)) if is_date(text) => Kind::Date,
                Some(Ok(text)) if is_date_time(text) => Kind::DateTime,
                _ => Kind::Text,
            }
        }
        b't' | b'f' => {
            scan.skip()?;
            Kind::Bool
        }
        b'n' => {
            scan.skip()?;
            return Ok(None);
        }
        b'-' | b'0'..=b'9' => {
            if scan.int()?.is_some() {
                Kind::Int
            } else {
                scan.number()?;
                Kind::Real
            }
        }
        _ => {
            scan.skip()?;
            Kind::Json
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_ends_where_its_brackets_do() {
        let ends = Ends::default();
        for array in
            ["[[1,2],[3,4]]", "[[[1,2],[3,4]],[[5,6]]]", "[[[[1,2]],[[3,4]]],[[[5,6]]]]", "[[1,2],[[3,4],5]]"]
        {
            let text = format!("{array}}},\"properties\":{{\"a\":[[[[1]]]]}}}}");
            assert_eq!(ends.array(text.as_bytes()), Some(array.len()), "{text}");
        }
        // These are left to the look at every bracket.
        for text in [
            "[1,2]",
            "[[1,2],[3,4] ]",
            "[ [1,2]]",
            "[[1,2],[[3,4]],5]",
            "[[[1,2]],5],\"a\":[[[1]]]",
            "[[[1,2]],5]}}{[[[1]]]",
            "[[[[[1]]]]]",
            "[[1,2],[3",
            "",
        ] {
            assert_eq!(ends.array(text.as_bytes()), None, "{text}");
        }
    }
}
