//! Parsing a GeoJSON geometry into well-known binary.
//!
//! The header of well-known binary declares the dimensions; GeoJSON shows them only in its positions. So
//! they are guessed from the first position before the header is written. If the guess is wrong, the
//! coordinates are parsed again with the largest dimension, and shorter positions get height 0, as in GDAL.

use tidegate_core::Code;

use super::issues::{Issues, PathStep};
use super::scan::{Scan, Stop, Text};
use crate::wkb::{DEPTH_MAX, Dim, Shape, write};

/// What to do with a geometry that RFC 7946 forbids: a line of one position, a ring that is too short or
/// not closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Refuse the record.
    #[default]
    Refuse,
    /// Let it pass, for a later repair.
    Pass,
}

/// Parses geometries. Reused from record to record.
#[derive(Debug, Default)]
pub(super) struct Geometries {
    pub(super) rules: Rules,
    dim: Dim,
    widest: usize,
    /// The coordinates of a legacy `crs` member seen in a geometry.
    pub(super) crs: Option<(usize, usize)>,
}

impl Geometries {
    pub(super) fn new(rules: Rules) -> Geometries {
        Geometries { rules, ..Geometries::default() }
    }

    /// Parses a geometry object and appends it. Problems go to `issues`; the appended bytes are then
    /// meaningless.
    pub(super) fn object(
        &mut self,
        scan: &mut Scan<'_>,
        out: &mut Vec<u8>,
        issues: &mut Issues,
    ) -> Result<(), Stop> {
        self.dim = first_dim(scan);
        let (from, start, found) = (*scan, out.len(), issues.found.len());
        self.widest = 2;
        self.nested(scan, out, issues, 0)?;
        if self.widest != self.dim.size() {
            self.dim = Dim::new(self.widest > 2, self.widest > 3);
            *scan = from;
            out.truncate(start);
            issues.found.truncate(found);
            self.nested(scan, out, issues, 0)?;
        }
        Ok(())
    }

    fn nested(
        &mut self,
        scan: &mut Scan<'_>,
        out: &mut Vec<u8>,
        issues: &mut Issues,
        depth: usize,
    ) -> Result<(), Stop> {
        let start = scan.at;
        if !scan.eat(b'{')? {
            issues.add(Code::INVALID_GEOMETRY, scan.at, "a geometry must be an object");
            return scan.skip();
        }
        if depth > DEPTH_MAX {
            return Err(Stop::Bad(start, "collections nest too deep"));
        }
        let mut shape = None;
        let mut body: Option<(Scan<'_>, bool)> = None;
        let mut done = false;
        let mut more = !scan.eat(b'}')?;
        while more {
            let key = scan.key()?;
            scan.peek()?;
            match raw(scan, key) {
                b"type" => shape = self.shape(scan, issues)?,
                name @ (b"coordinates" | b"geometries") => {
                    let is_list = name == b"geometries";
                    match shape {
                        Some(shape) if is_list == (shape == Shape::GeometryCollection) && !done => {
                            self.body(scan, shape, out, issues, depth)?;
                            done = true;
                        }
                        _ => {
                            body = Some((*scan, is_list));
                            scan.skip()?;
                        }
                    }
                }
                b"crs" => {
                    let from = scan.at;
                    scan.skip()?;
                    self.crs = Some((from, scan.at));
                }
                _ => scan.skip()?,
            }
            more = scan.comma_or(b'}')?;
        }
        let Some(shape) = shape else {
            if issues.found.is_empty() {
                issues.add(Code::INVALID_GEOMETRY, start, "a geometry needs a type");
            }
            return Ok(());
        };
        let wants_list = shape == Shape::GeometryCollection;
        match body {
            _ if done => Ok(()),
            Some((mut later, is_list)) if is_list == wants_list => {
                self.body(&mut later, shape, out, issues, depth)
            }
            _ => {
                let member = if wants_list { "geometries" } else { "coordinates" };
                issues.add(Code::INVALID_GEOMETRY, start, format!("a {} needs {member}", shape.name()));
                Ok(())
            }
        }
    }

    fn shape(&mut self, scan: &mut Scan<'_>, issues: &mut Issues) -> Result<Option<Shape>, Stop> {
        let at = scan.at;
        if scan.peek()? != b'"' {
            issues.add(Code::INVALID_GEOMETRY, at, "the type must be text");
            scan.skip()?;
            return Ok(None);
        }
        let text = scan.text()?;
        let name = raw(scan, text);
        let shape = Shape::ALL.into_iter().find(|shape| shape.name().as_bytes() == name);
        if shape.is_none() {
            let name = String::from_utf8_lossy(name.get(..40).unwrap_or(name)).into_owned();
            issues.add(Code::INVALID_GEOMETRY, at, format!("{name:?} is not a type of geometry"));
        }
        Ok(shape)
    }

    fn body(
        &mut self,
        scan: &mut Scan<'_>,
        shape: Shape,
        out: &mut Vec<u8>,
        issues: &mut Issues,
        depth: usize,
    ) -> Result<(), Stop> {
        if shape == Shape::GeometryCollection {
            issues.push(PathStep::Name("geometries"));
            write::begin(out, shape, self.dim);
            self.list(scan, out, issues, |this, scan, out, issues| {
                this.nested(scan, out, issues, depth + 1)
            })?;
        } else {
            issues.push(PathStep::Name("coordinates"));
            self.coordinates(scan, shape, out, issues)?;
        }
        issues.pop();
        Ok(())
    }

    fn coordinates(
        &mut self,
        scan: &mut Scan<'_>,
        shape: Shape,
        out: &mut Vec<u8>,
        issues: &mut Issues,
    ) -> Result<(), Stop> {
        write::begin(out, shape, self.dim);
        match shape {
            Shape::Point => {
                let mut ahead = *scan;
                if ahead.eat(b'[')? && ahead.eat(b']')? {
                    *scan = ahead;
                    for _ in 0..self.dim.size() {
                        write::position(out, &[f64::NAN]);
                    }
                    return Ok(());
                }
                self.position(scan, out, issues)
            }
            Shape::LineString => self.line(scan, out, issues),
            Shape::Polygon => self.list(scan, out, issues, Self::ring),
            Shape::MultiPoint => self.list(scan, out, issues, |this, scan, out, issues| {
                write::begin(out, Shape::Point, this.dim);
                this.position(scan, out, issues)
            }),
            Shape::MultiLineString | Shape::MultiPolygon | Shape::GeometryCollection => {
                let member = shape.member().unwrap_or(Shape::LineString);
                self.list(scan, out, issues, |this, scan, out, issues| {
                    this.coordinates(scan, member, out, issues)
                })
            }
        }
    }

    fn list(
        &mut self,
        scan: &mut Scan<'_>,
        out: &mut Vec<u8>,
        issues: &mut Issues,
        item: impl Fn(&mut Self, &mut Scan<'_>, &mut Vec<u8>, &mut Issues) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let hole = write::hole(out);
        if !scan.eat(b'[')? {
            issues.add(Code::INVALID_GEOMETRY, scan.at, "expected an array");
            return scan.skip();
        }
        if scan.eat(b']')? {
            return Ok(());
        }
        issues.push(PathStep::Index(0));
        let mut count = 0;
        loop {
            issues.set_index(count);
            item(self, scan, out, issues)?;
            count += 1;
            if !scan.comma_or(b']')? {
                break;
            }
        }
        issues.pop();
        write::fill(out, hole, count);
        Ok(())
    }

    fn line(&mut self, scan: &mut Scan<'_>, out: &mut Vec<u8>, issues: &mut Issues) -> Result<(), Stop> {
        let (at, start) = (scan.at, out.len());
        self.list(scan, out, issues, Self::position)?;
        let positions = (out.len() - start).saturating_sub(4) / (self.dim.size() * 8);
        if positions == 1 && self.rules == Rules::Refuse {
            issues.add(Code::INVALID_GEOMETRY, at, "a line needs at least 2 positions");
        }
        Ok(())
    }

    fn ring(&mut self, scan: &mut Scan<'_>, out: &mut Vec<u8>, issues: &mut Issues) -> Result<(), Stop> {
        let (at, start) = (scan.at, out.len() + 4);
        self.list(scan, out, issues, Self::position)?;
        if self.rules == Rules::Pass {
            return Ok(());
        }
        let size = self.dim.size() * 8;
        let positions = out.get(start..).unwrap_or_default();
        let count = positions.len() / size;
        if count < 4 {
            issues.add(Code::INVALID_GEOMETRY, at, format!("a ring needs at least 4 positions, not {count}"));
        } else if positions.get(..size) != positions.get(positions.len() - size..) {
            issues.add(
                Code::INVALID_GEOMETRY,
                at,
                "the ring is not closed: its first and last positions differ",
            );
        }
        Ok(())
    }

    #[inline]
    fn position(&mut self, scan: &mut Scan<'_>, out: &mut Vec<u8>, issues: &mut Issues) -> Result<(), Stop> {
        let at = scan.at;
        if !scan.eat(b'[')? {
            issues.add(Code::INVALID_GEOMETRY, scan.at, "a position must be an array of numbers");
            return scan.skip();
        }
        let mut numbers = [0.0; 4];
        let mut count = 0;
        let mut more = !scan.eat(b']')?;
        while more {
            if !matches!(scan.peek()?, b'-' | b'0'..=b'9') {
                issues.add(Code::INVALID_GEOMETRY, scan.at, "a coordinate must be a number");
                scan.skip()?;
            } else {
                let number = scan.number()?;
                if let Some(slot) = numbers.get_mut(count) {
                    *slot = number;
                }
            }
            count += 1;
            more = scan.comma_or(b']')?;
        }
        if !(2..=4).contains(&count) {
            issues.add(Code::INVALID_GEOMETRY, at, format!("a position has 2 to 4 numbers, not {count}"));
        }
        self.widest = self.widest.max(count.min(4));
        write::position(out, numbers.get(..self.dim.size()).unwrap_or_default());
        Ok(())
    }
}

pub(super) fn raw<'a>(scan: &Scan<'a>, text: Text) -> &'a [u8] {
    scan.bytes.get(text.start..text.end).unwrap_or_default()
}

/// Bytes to search for the first position. A wrong guess only costs a second pass.
const LOOK_AHEAD: usize = 256;

/// The size of the first position, guessed by looking for the first array of numbers after a
/// `coordinates` member.
fn first_dim(scan: &Scan<'_>) -> Dim {
    const NAME: &[u8] = b"\"coordinates\"";
    let near = scan.bytes.get(..scan.bytes.len().min(scan.at + LOOK_AHEAD)).unwrap_or_default();
    let Some(found) = near.get(scan.at..).and_then(|rest| rest.windows(NAME.len()).position(|w| w == NAME))
    else {
        return Dim::Xy;
    };
    let mut ahead = Scan::new(near, scan.at + found + NAME.len());
    if ahead.eat(b':') != Ok(true) {
        return Dim::Xy;
    }
    while ahead.eat(b'[') == Ok(true) {}
    let rest = ahead.bytes.get(ahead.at..).unwrap_or_default();
    let Some(end) = memchr::memchr(b']', rest) else { return Dim::Xy };
    let commas = rest.get(..end).unwrap_or_default().iter().filter(|b| **b == b',').count();
    Dim::new(commas > 1, commas > 2)
}
