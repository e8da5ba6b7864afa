//! Parsing one feature into one row of a batch.

use std::sync::Arc;

use tidegate_core::Code;

use super::geometry::{Geometries, Rules, raw};
use super::issues::{Issues, PathStep};
use super::scan::{Scan, Stop, Text, unescape};
use crate::batch::{Batch, Span};
use crate::column::Value;
use crate::error::Problem;
use crate::schema::{Kind, Schema};
use crate::wkb::Shape;

/// A property, as a range of the text or of the buffer with resolved escapes.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(usize, usize),
    Unescaped(usize, usize),
    Json(usize, usize),
}

/// Parses records. Reused from record to record.
#[derive(Debug)]
pub(super) struct Features {
    schema: Arc<Schema>,
    pub(super) geometries: Geometries,
    pub(super) issues: Issues,
    pub(super) drop_unknown: bool,
    slots: Vec<Slot>,
    scratch: Vec<u8>,
    wkb: Vec<u8>,
    id: Option<(usize, usize)>,
    /// Whether foreign members are kept, and those of the record.
    pub(super) keep_foreign: bool,
    foreign: Vec<u8>,
    /// The `crs` member of a feature.
    crs: Option<(usize, usize)>,
}

impl Features {
    pub(super) fn new(schema: Arc<Schema>, rules: Rules, drop_unknown: bool) -> Features {
        let slots = vec![Slot::Null; schema.fields().len()];
        Features {
            schema,
            geometries: Geometries::new(rules),
            issues: Issues::default(),
            drop_unknown,
            slots,
            scratch: Vec::new(),
            wkb: Vec::new(),
            id: None,
            keep_foreign: false,
            foreign: Vec::new(),
            crs: None,
        }
    }

    /// Parses a feature or a bare geometry. Problems go to `issues`.
    pub(super) fn record(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        self.slots.fill(Slot::Null);
        self.scratch.clear();
        self.wkb.clear();
        self.foreign.clear();
        (self.id, self.crs, self.geometries.crs) = (None, None, None);
        let from = scan.at;
        if !scan.eat(b'{')? {
            self.issues.add(Code::SCHEMA_MISMATCH, scan.at, "a feature must be an object");
            return scan.skip();
        }
        let (mut typed, mut has_geometry, mut has_properties) = (false, false, false);
        let mut more = !scan.eat(b'}')?;
        while more {
            let key = scan.key()?;
            scan.peek()?;
            match raw(scan, key) {
                b"type" if !typed => match self.type_of(scan)? {
                    Type::Feature => typed = true,
                    Type::Geometry => return self.bare(from, scan),
                    Type::Other => typed = true,
                },
                b"coordinates" | b"geometries" if !typed => return self.bare(from, scan),
                b"geometry" if !has_geometry => {
                    has_geometry = true;
                    self.geometry(scan)?;
                }
                b"properties" if !has_properties => {
                    has_properties = true;
                    self.issues.push(PathStep::Name("properties"));
                    self.properties(scan)?;
                    self.issues.pop();
                }
                b"type" | b"geometry" | b"properties" => self.repeated_member(scan, key)?,
                b"id" => self.id(scan)?,
                b"bbox" => self.bbox(scan)?,
                b"crs" => {
                    let start = scan.at;
                    scan.skip()?;
                    self.crs = Some((start, scan.at));
                }
                _ if self.keep_foreign => self.foreign(scan, key)?,
                _ => scan.skip()?,
            }
            more = scan.comma_or(b'}')?;
        }
        if self.geometries.rules == Rules::Refuse {
            for (there, name) in [(typed, "type"), (has_geometry, "geometry"), (has_properties, "properties")]
            {
                if !there {
                    self.issues.add(
                        Code::SCHEMA_MISMATCH,
                        from,
                        format!("a feature needs a member {name:?}"),
                    );
                }
            }
        }
        Ok(())
    }

    /// Whether the record has coordinates.
    pub(super) fn has_place(&self) -> bool {
        !self.wkb.is_empty()
    }

    /// The `crs` member of the record, that of its geometry before that of the feature.
    pub(super) fn own_crs(&self) -> Option<(usize, usize)> {
        self.geometries.crs.or(self.crs)
    }

    /// A member that the feature has already.
    #[cold]
    fn repeated_member(&mut self, scan: &mut Scan<'_>, key: Text) -> Result<(), Stop> {
        let name = String::from_utf8_lossy(raw(scan, key)).into_owned();
        let message = format!("the feature has the member {name:?} twice");
        self.issues.add_under(Code::SCHEMA_MISMATCH, scan.at, message, &name);
        scan.skip()
    }

    /// Keeps a foreign member verbatim, unless it could be taken for one of the standard.
    fn foreign(&mut self, scan: &mut Scan<'_>, key: Text) -> Result<(), Stop> {
        const NAMED: [&[u8]; 9] = [
            b"type",
            b"geometry",
            b"properties",
            b"id",
            b"bbox",
            b"crs",
            b"coordinates",
            b"geometries",
            b"features",
        ];
        let at = scan.at;
        scan.skip()?;
        let mut name = Vec::new();
        if key.escaped && unescape(raw(scan, key), &mut name).is_err() {
            return Ok(());
        }
        let spelt = raw(scan, key);
        if NAMED.contains(&if key.escaped { name.as_slice() } else { spelt }) {
            return Ok(());
        }
        if !self.foreign.is_empty() {
            self.foreign.push(b',');
        }
        self.foreign.push(b'"');
        self.foreign.extend_from_slice(spelt);
        self.foreign.extend_from_slice(b"\":");
        self.foreign.extend_from_slice(scan.bytes.get(at..scan.at).unwrap_or_default());
        Ok(())
    }

    fn bare(&mut self, from: usize, scan: &mut Scan<'_>) -> Result<(), Stop> {
        scan.at = from;
        self.geometries.object(scan, &mut self.wkb, &mut self.issues)
    }

    fn type_of(&mut self, scan: &mut Scan<'_>) -> Result<Type, Stop> {
        let at = scan.at;
        let text = match scan.peek()? {
            b'"' => scan.text()?,
            _ => {
                scan.skip()?;
                Text { start: 0, end: 0, escaped: false }
            }
        };
        let name = raw(scan, text);
        if name == b"Feature" {
            return Ok(Type::Feature);
        }
        if Shape::ALL.iter().any(|shape| shape.name().as_bytes() == name) {
            return Ok(Type::Geometry);
        }
        let name = String::from_utf8_lossy(name.get(..40).unwrap_or(name)).into_owned();
        self.issues.add_under(
            Code::SCHEMA_MISMATCH,
            at,
            format!("{name:?} is not a GeoJSON type of record"),
            "type",
        );
        Ok(Type::Other)
    }

    fn geometry(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        self.wkb.clear();
        if scan.peek()? == b'n' {
            return scan.word(b"null");
        }
        self.issues.push(PathStep::Name("geometry"));
        self.geometries.object(scan, &mut self.wkb, &mut self.issues)?;
        self.issues.pop();
        Ok(())
    }

    fn id(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        let (at, first) = (scan.at, scan.peek()?);
        scan.skip()?;
        match first {
            b'"' | b'-' | b'0'..=b'9' => self.id = Some((at, scan.at)),
            b'n' => {}
            _ => self.issues.add_under(Code::SCHEMA_MISMATCH, at, "an id is text or a number", "id"),
        }
        Ok(())
    }

    /// Numbers, two per dimension, south before north. West may be greater than east: such a box
    /// crosses the antimeridian.
    fn bbox(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        let at = scan.at;
        let mut ahead = *scan;
        scan.skip()?;
        let mut numbers = Vec::new();
        let mut good = ahead.eat(b'[')?;
        while good && numbers.len() < 9 {
            match ahead.number() {
                Ok(number) => numbers.push(number),
                Err(_) => good = false,
            }
            if good && !ahead.comma_or(b']')? {
                break;
            }
        }
        let half = numbers.len() / 2;
        let south_north = numbers.get(1).zip(numbers.get(half + 1));
        let ordered = south_north.is_some_and(|(south, north)| south <= north);
        if self.geometries.rules == Rules::Refuse && !(good && matches!(numbers.len(), 4 | 6 | 8) && ordered)
        {
            let message = "a bbox is an array of 4 or 6 numbers, the southern edge before the northern";
            self.issues.add_under(Code::INVALID_GEOMETRY, at, message, "bbox");
        }
        Ok(())
    }

    fn properties(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        match scan.peek()? {
            b'n' => return scan.word(b"null"),
            b'{' => scan.at += 1,
            _ => {
                self.issues.add(Code::SCHEMA_MISMATCH, scan.at, "properties must be an object or null");
                return scan.skip();
            }
        }
        let schema = self.schema.clone();
        let mut next = 0;
        let mut more = !scan.eat(b'}')?;
        while more {
            let key = scan.key()?;
            let found = match schema.fields().get(next) {
                Some(field) if !key.escaped && field.name.as_bytes() == raw(scan, key) => Some(next),
                _ => self.find(&schema, raw(scan, key), key.escaped),
            };
            let at = scan.at;
            match found.and_then(|at| Some((at, schema.fields().get(at)?))) {
                Some((field_at, field)) => {
                    next = field_at + 1;
                    let slot = self.value(scan, field.kind, &field.name)?;
                    if let Some(place) = self.slots.get_mut(field_at) {
                        *place = slot;
                    }
                }
                None => {
                    scan.skip()?;
                    if !self.drop_unknown {
                        let name = String::from_utf8_lossy(raw(scan, key)).into_owned();
                        self.issues.add_under(
                            Code::SCHEMA_MISMATCH,
                            at,
                            "the schema has no such field",
                            &name,
                        );
                    }
                }
            }
            more = scan.comma_or(b'}')?;
        }
        Ok(())
    }

    fn find(&mut self, schema: &Schema, name: &[u8], escaped: bool) -> Option<usize> {
        if !escaped {
            return schema.position(std::str::from_utf8(name).ok()?);
        }
        let mut plain = Vec::new();
        unescape(name, &mut plain).ok()?;
        schema.position(std::str::from_utf8(&plain).ok()?)
    }

    fn value(&mut self, scan: &mut Scan<'_>, kind: Kind, name: &str) -> Result<Slot, Stop> {
        let first = scan.peek()?;
        let at = scan.at;
        if first == b'n' {
            scan.word(b"null")?;
            return Ok(Slot::Null);
        }
        let slot = match (kind, first) {
            (Kind::Json, _) => {
                scan.skip()?;
                Some(Slot::Json(at, scan.at))
            }
            (Kind::Bool, b't') => {
                scan.word(b"true")?;
                Some(Slot::Bool(true))
            }
            (Kind::Bool, b'f') => {
                scan.word(b"false")?;
                Some(Slot::Bool(false))
            }
            (Kind::Int, b'-' | b'0'..=b'9') => scan.int()?.map(Slot::Int),
            (Kind::Real, b'-' | b'0'..=b'9') => Some(Slot::Real(scan.number()?)),
            (Kind::Text | Kind::Date | Kind::DateTime, b'"') => {
                let text = scan.text()?;
                if text.escaped {
                    let start = self.scratch.len();
                    if let Err(message) = unescape(raw(scan, text), &mut self.scratch) {
                        return Err(Stop::Bad(at, message));
                    }
                    Some(Slot::Unescaped(start, self.scratch.len()))
                } else {
                    Some(Slot::Text(text.start, text.end))
                }
            }
            _ => None,
        };
        if slot.is_none() {
            scan.skip()?;
            let message = format!("the schema has a field of kind {kind} here");
            self.issues.add_under(Code::SCHEMA_MISMATCH, at, message, name);
        }
        Ok(slot.unwrap_or(Slot::Null))
    }

    /// JSON is UTF-8 by definition; other text must not pass as empty.
    fn check_utf8(&self, text: &[u8]) -> Result<(), Problem> {
        let places = self.slots.iter().zip(self.schema.fields()).filter_map(|(slot, field)| match *slot {
            Slot::Text(start, end) | Slot::Json(start, end) => Some((text.get(start..end), field)),
            Slot::Unescaped(start, end) => Some((self.scratch.get(start..end), field)),
            _ => None,
        });
        for (part, field) in places {
            if part.is_none_or(|part| std::str::from_utf8(part).is_err()) {
                return Err(Problem::new(Code::DATA_EXCEPTION, "the text is not UTF-8").under(&field.name));
            }
        }
        Ok(())
    }

    /// Adds the last record to the batch.
    pub(super) fn push(
        &self,
        text: &[u8],
        span: Span,
        keep: &[u8],
        batch: &mut Batch,
    ) -> Result<(), Problem> {
        self.check_utf8(text)?;
        let Ok(foreign) = std::str::from_utf8(&self.foreign) else {
            return Err(Problem::new(Code::DATA_EXCEPTION, "the text of a foreign member is not UTF-8"));
        };
        let values = self.slots.iter().map(|slot| match *slot {
            Slot::Null => Value::Null,
            Slot::Bool(b) => Value::Bool(b),
            Slot::Int(i) => Value::Int(i),
            Slot::Real(x) => Value::Real(x),
            Slot::Text(start, end) => Value::Text(utf8(text, start, end)),
            Slot::Unescaped(start, end) => Value::Text(utf8(&self.scratch, start, end)),
            Slot::Json(start, end) => Value::Json(utf8(text, start, end)),
        });
        batch.push_with(
            |out| {
                out.extend_from_slice(&self.wkb);
                Ok(())
            },
            values,
        )?;
        if let Some((start, end)) = self.id {
            batch.set_id(utf8(text, start, end));
        }
        if !foreign.is_empty() {
            batch.set_foreign(foreign);
        }
        batch.set_origin(span, keep);
        Ok(())
    }
}

fn utf8(bytes: &[u8], start: usize, end: usize) -> &str {
    bytes.get(start..end).and_then(|part| std::str::from_utf8(part).ok()).unwrap_or_default()
}

enum Type {
    Feature,
    Geometry,
    Other,
}
