//! Writing feature sets.
//!
//! A feature set holds one geometry family (points, multipoints, lines or polygons) and no collections.
//! Dates are milliseconds since 1970, so a datetime needs its UTC offset and nothing finer. Booleans become
//! 1 and 0. Outer rings are clockwise.

use std::sync::Arc;

use tidegate_core::Code;

use super::super::geojson::is_clockwise;
use super::super::{Out, Written, json, time};
use crate::batch::Batch;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::number;
use crate::schema::{Kind, Schema};
use crate::wkb::{self, Cursor, Dim, Event, Run, Shape};

/// A feature set being written.
pub struct EsriJsonWriter {
    out: Out,
    /// `"name":` and kind of every field.
    keys: Vec<(Vec<u8>, Kind)>,
    /// The word of the family, once there is one; whether the head says it.
    family: Option<&'static str>,
    said: bool,
    dim: Dim,
    buffer: Vec<u8>,
    written: Written,
}

fn refuse(message: impl Into<String>) -> Problem {
    Problem::new(Code::UNPROCESSABLE, message)
}

impl EsriJsonWriter {
    pub(crate) fn new(out: Out, schema: &Arc<Schema>, crs: &Crs) -> Result<EsriJsonWriter, Error> {
        let Some(number) = crs.number() else {
            return Err(refuse(format!("{crs} has no number to stand in ESRI JSON")).into());
        };
        // The number that ArcGIS itself writes for Web Mercator.
        let wkid = if number == 3857 { 102_100 } else { number };
        let mut buffer =
            format!("{{\"spatialReference\":{{\"wkid\":{wkid},\"latestWkid\":{number}}}").into_bytes();
        let family = schema.shape.map(family).transpose()?;
        if let Some(family) = family {
            buffer.extend_from_slice(format!(",\"geometryType\":\"{family}\"").as_bytes());
        }
        buffer.extend_from_slice(b",\"fields\":[");
        let mut keys = Vec::new();
        for field in schema.fields() {
            if !keys.is_empty() {
                buffer.push(b',');
            }
            let mut name = Vec::new();
            json::write_text(&mut name, &field.name);
            buffer.extend_from_slice(b"{\"name\":");
            buffer.extend_from_slice(&name);
            buffer.extend_from_slice(format!(",\"type\":\"{}\"}}", type_of(field.kind)).as_bytes());
            name.push(b':');
            keys.push((name, field.kind));
        }
        buffer.extend_from_slice(b"],\"features\":[\n");
        let said = family.is_some();
        Ok(EsriJsonWriter { out, keys, family, said, dim: Dim::Xy, buffer, written: Written::default() })
    }

    fn feature(&mut self, batch: &Batch, row: usize) -> Result<(), Problem> {
        if let Some((shape, dim)) = batch.geometry(row).and_then(wkb::head) {
            let found = family(shape)?;
            if self.family.is_some_and(|family| family != found) {
                let message = format!(
                    "ESRI JSON holds one family of shapes; this is {}; keep one of them ($shape = 'Point') or write GeoJSON",
                    shape.name()
                );
                return Err(refuse(message));
            }
            self.family = Some(found);
            self.dim = self.dim.union(dim);
        }
        let out = &mut self.buffer;
        if self.written.features > 0 {
            out.extend_from_slice(b",\n");
        }
        out.extend_from_slice(b"{\"attributes\":{");
        for (at, ((key, kind), column)) in self.keys.iter().zip(batch.columns()).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            value(column.get(row), *kind, out)?;
        }
        out.push(b'}');
        if let Some(wkb) = batch.geometry(row) {
            out.extend_from_slice(b",\"geometry\":");
            geometry(wkb, out)?;
        }
        out.push(b'}');
        self.written.features += 1;
        Ok(())
    }
}

impl super::super::Writer for EsriJsonWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for row in 0..batch.len() {
            self.feature(batch, row).map_err(|problem| problem.of_record(batch.record(row)))?;
            self.out.spill(&mut self.buffer)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        self.buffer.extend_from_slice(b"\n]");
        if let Some(family) = self.family.filter(|_| !self.said) {
            self.buffer.extend_from_slice(format!(",\"geometryType\":\"{family}\"").as_bytes());
        }
        let (z, m) = (self.dim.has_z(), self.dim.has_m());
        self.buffer.extend_from_slice(format!(",\"hasZ\":{z},\"hasM\":{m}}}\n").as_bytes());
        self.out.write_all(&self.buffer)?;
        self.out.finish()?;
        Ok(self.written)
    }
}

fn family(shape: Shape) -> Result<&'static str, Problem> {
    Ok(match shape {
        Shape::Point => "esriGeometryPoint",
        Shape::MultiPoint => "esriGeometryMultipoint",
        Shape::LineString | Shape::MultiLineString => "esriGeometryPolyline",
        Shape::Polygon | Shape::MultiPolygon => "esriGeometryPolygon",
        Shape::GeometryCollection => return Err(refuse("ESRI JSON holds no collections of shapes")),
    })
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "esriFieldTypeSmallInteger",
        Kind::Int => "esriFieldTypeBigInteger",
        Kind::Real => "esriFieldTypeDouble",
        Kind::Date => "esriFieldTypeDateOnly",
        Kind::DateTime => "esriFieldTypeDate",
        Kind::Text | Kind::Json | Kind::Bytes => "esriFieldTypeString",
    }
}

fn value(value: Value<'_>, kind: Kind, out: &mut Vec<u8>) -> Result<(), Problem> {
    match (value, kind) {
        (Value::Bool(b), _) => out.push(if b { b'1' } else { b'0' }),
        (Value::Text(text), Kind::DateTime) => match time::moment_of(text) {
            Some((micros, true)) if micros % 1000 == 0 => number::int(out, micros / 1000),
            Some((_, true)) => return Err(refuse(format!("{text:?} is finer than a millisecond"))),
            _ => return Err(refuse(format!("{text:?} does not tell its offset from UTC"))),
        },
        (Value::Json(text), _) => json::write_text(out, text),
        (other, _) => json::write_value::<Problem>(out, other)?,
    }
    Ok(())
}

/// Appends the geometry of canonical well-known binary.
fn geometry(wkb: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    let mut cursor = Cursor::default();
    let Some(Event::Begin { shape, dim, .. }) = cursor.next(wkb)? else { return Ok(()) };
    if shape == Shape::Point {
        return match cursor.next(wkb)? {
            Some(Event::Coords(run)) => point(wkb, run, out),
            _ => Ok(()),
        };
    }
    out.push(b'{');
    for (has, name) in [(dim.has_z(), "hasZ"), (dim.has_m(), "hasM")] {
        if has {
            out.extend_from_slice(format!("\"{name}\":true,").as_bytes());
        }
    }
    out.extend_from_slice(match shape {
        Shape::MultiPoint => b"\"points\":[",
        Shape::LineString | Shape::MultiLineString => b"\"paths\":[",
        _ => b"\"rings\":[",
    });
    let (mut first, mut outer, mut now) = (true, true, shape);
    while let Some(event) = cursor.next(wkb)? {
        match event {
            Event::Begin { shape, .. } => (now, outer) = (shape, true),
            Event::End(_) => {}
            Event::Coords(run) => {
                if !first {
                    out.push(b',');
                }
                first = false;
                if now == Shape::Point {
                    run.all(wkb).next().map_or(Ok(()), |numbers| position(numbers, run, out))?;
                    continue;
                }
                // Outer rings clockwise, inner ones not.
                let turned = now == Shape::Polygon && is_clockwise(wkb, run) != outer;
                outer = false;
                out.push(b'[');
                let mut all = run.all(wkb);
                let mut comma = false;
                while let Some(numbers) = if turned { all.next_back() } else { all.next() } {
                    if comma {
                        out.push(b',');
                    }
                    position(numbers, run, out)?;
                    comma = true;
                }
                out.push(b']');
            }
        }
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

fn point(wkb: &[u8], run: Run, out: &mut Vec<u8>) -> Result<(), Problem> {
    let Some(numbers) = run.all(wkb).next() else { return Ok(()) };
    if numbers.iter().take(2).all(|x| x.is_nan()) {
        out.extend_from_slice(b"{\"x\":\"NaN\",\"y\":\"NaN\"}");
        return Ok(());
    }
    let third = if run.dim == Dim::Xym { "m" } else { "z" };
    for (at, (name, x)) in ["x", "y", third, "m"].into_iter().zip(numbers).take(run.dim.size()).enumerate() {
        out.extend_from_slice(if at == 0 { b"{\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        coordinate(x, at, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn position(numbers: [f64; 4], run: Run, out: &mut Vec<u8>) -> Result<(), Problem> {
    for (at, x) in numbers.into_iter().take(run.dim.size()).enumerate() {
        out.push(if at == 0 { b'[' } else { b',' });
        coordinate(x, at, out)?;
    }
    out.push(b']');
    Ok(())
}

/// A height or measure may be missing, a place may not.
fn coordinate(x: f64, at: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
    if x.is_finite() {
        number::real(out, x);
    } else if at >= 2 && x.is_nan() {
        out.extend_from_slice(b"null");
    } else {
        return Err(Problem::new(Code::INVALID_GEOMETRY, "a coordinate is not a finite number"));
    }
    Ok(())
}
