//! Writing GeoJSON.
//!
//! The standard has one coordinate reference system, longitude and latitude on WGS 84; any other is refused.
//! Rings follow the right-hand rule (outer counter-clockwise, inner clockwise), because readers may rely on
//! it. Measures without heights are refused: they would be read as heights.

use std::sync::Arc;

use tidegate_core::Code;

use super::super::{Out, Written, json};
use crate::batch::Batch;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::number;
use crate::schema::Schema;
use crate::wkb::{Cursor, Dim, Event, Run, Shape};

/// The framing of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One `FeatureCollection`.
    Collection,
    /// One feature per line.
    Lines,
    /// One feature per record, each after an ASCII record separator (RFC 8142).
    Sequence,
}

/// A GeoJSON file being written.
pub struct GeoJsonWriter {
    out: Out,
    frame: Frame,
    /// `"name":` of every field, escaped once.
    keys: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    written: Written,
}

impl GeoJsonWriter {
    pub(crate) fn new(
        out: Out,
        frame: Frame,
        schema: &Arc<Schema>,
        crs: &Crs,
    ) -> Result<GeoJsonWriter, Error> {
        if !crs.is_wgs84() {
            let message = format!("GeoJSON holds only WGS 84 longitude and latitude, not {crs}");
            return Err(Problem::new(Code::UNPROCESSABLE, message).into());
        }
        let keys = schema.fields().iter().map(|field| {
            let mut key = Vec::new();
            json::write_text(&mut key, &field.name);
            key.push(b':');
            key
        });
        let buffer = match frame {
            Frame::Collection => b"{\"type\":\"FeatureCollection\",\"features\":[\n".to_vec(),
            Frame::Lines | Frame::Sequence => Vec::new(),
        };
        Ok(GeoJsonWriter { out, frame, keys: keys.collect(), buffer, written: Written::default() })
    }

    fn feature(&mut self, batch: &Batch, row: usize) -> Result<(), Problem> {
        let out = &mut self.buffer;
        match self.frame {
            Frame::Collection if self.written.features > 0 => out.extend_from_slice(b",\n"),
            Frame::Sequence => out.push(0x1e),
            _ => {}
        }
        out.extend_from_slice(b"{\"type\":\"Feature\",");
        if let Some(id) = batch.id(row) {
            out.extend_from_slice(b"\"id\":");
            out.extend_from_slice(id.as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(b"\"properties\":{");
        for (at, (key, column)) in self.keys.iter().zip(batch.columns()).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            json::write_value(out, column.get(row))?;
        }
        out.extend_from_slice(b"},\"geometry\":");
        match batch.geometry(row) {
            Some(wkb) => geometry(wkb, out)?,
            None => out.extend_from_slice(b"null"),
        }
        if !batch.foreign(row).is_empty() {
            out.push(b',');
            json::write_json(out, batch.foreign(row));
        }
        out.push(b'}');
        if self.frame != Frame::Collection {
            out.push(b'\n');
        }
        self.written.features += 1;
        Ok(())
    }
}

impl super::super::Writer for GeoJsonWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for row in 0..batch.len() {
            self.feature(batch, row).map_err(|problem| problem.of_record(batch.record(row)))?;
            self.out.spill(&mut self.buffer)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        if self.frame == Frame::Collection {
            self.buffer.extend_from_slice(b"\n]}\n");
        }
        self.out.write_all(&self.buffer)?;
        self.out.finish()?;
        Ok(self.written)
    }
}

/// Appends the GeoJSON of canonical well-known binary.
///
/// # Errors
/// For measures and for numbers that are not finite. What was appended until then stays.
pub fn geometry(wkb: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    let mut cursor = Cursor::default();
    let mut open: Vec<Shape> = Vec::new();
    let mut first = true;
    while let Some(event) = cursor.next(wkb)? {
        match event {
            Event::Begin { shape, dim, .. } => {
                if dim == Dim::Xym {
                    return Err(refuse(MEASURES));
                }
                if !first {
                    out.push(b',');
                }
                if open.last().is_none_or(|outer| *outer == Shape::GeometryCollection) {
                    out.extend_from_slice(b"{\"type\":\"");
                    out.extend_from_slice(shape.name().as_bytes());
                    out.extend_from_slice(match shape {
                        Shape::GeometryCollection => b"\",\"geometries\":",
                        _ => b"\",\"coordinates\":",
                    });
                }
                if !matches!(shape, Shape::Point | Shape::LineString) {
                    out.push(b'[');
                }
                first = true;
                open.push(shape);
            }
            Event::Coords(run) => {
                let shape = open.last().copied().unwrap_or(Shape::LineString);
                if !first {
                    out.push(b',');
                }
                let reversed = shape == Shape::Polygon && is_clockwise(wkb, run) == first;
                positions(wkb, run, shape, reversed, out)?;
                first = false;
            }
            Event::End(shape) => {
                open.pop();
                if !matches!(shape, Shape::Point | Shape::LineString) {
                    out.push(b']');
                }
                if open.last().is_none_or(|outer| *outer == Shape::GeometryCollection) {
                    out.push(b'}');
                }
                first = false;
            }
        }
    }
    Ok(())
}

/// Whether [`geometry`] can write canonical well-known binary, without writing it.
///
/// # Errors
/// As [`geometry`].
pub fn check_geometry(wkb: &[u8]) -> Result<(), Problem> {
    let mut cursor = Cursor::default();
    let mut is_point = false;
    while let Some(event) = cursor.next(wkb)? {
        match event {
            Event::Begin { dim: Dim::Xym, .. } => return Err(refuse(MEASURES)),
            Event::Begin { shape, .. } => is_point = shape == Shape::Point,
            Event::Coords(run) => {
                let is_empty = is_point && run.xy(wkb).all(|(x, y)| x.is_nan() && y.is_nan());
                let all = run.all(wkb).flat_map(|numbers| numbers.into_iter().take(run.dim.size()));
                if !is_empty && !all.into_iter().all(f64::is_finite) {
                    return Err(refuse(NOT_FINITE));
                }
            }
            Event::End(_) => {}
        }
    }
    Ok(())
}

const MEASURES: &str = "GeoJSON has no place for measures without heights";
const NOT_FINITE: &str = "a coordinate is not a finite number";

fn refuse(message: &str) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

/// By the sign of the area, measured from the first position to keep the digits.
pub(in crate::format) fn is_clockwise(wkb: &[u8], run: Run) -> bool {
    let mut positions = run.xy(wkb);
    let Some((x0, y0)) = positions.next() else { return false };
    let (mut before_x, mut before_y, mut twice_area) = (0.0, 0.0, 0.0);
    for (x, y) in positions {
        let (x, y) = (x - x0, y - y0);
        twice_area += before_x * y - x * before_y;
        (before_x, before_y) = (x, y);
    }
    twice_area < 0.0
}

fn positions(wkb: &[u8], run: Run, shape: Shape, reversed: bool, out: &mut Vec<u8>) -> Result<(), Problem> {
    if shape == Shape::Point {
        let Some(numbers) = run.all(wkb).next() else { return Ok(()) };
        if numbers.iter().take(2).all(|x| x.is_nan()) {
            out.extend_from_slice(b"[]");
            return Ok(());
        }
        return position(numbers, run, out);
    }
    out.push(b'[');
    let mut all = run.all(wkb);
    let mut comma = false;
    while let Some(numbers) = if reversed { all.next_back() } else { all.next() } {
        if comma {
            out.push(b',');
        }
        position(numbers, run, out)?;
        comma = true;
    }
    out.push(b']');
    Ok(())
}

fn position(numbers: [f64; 4], run: Run, out: &mut Vec<u8>) -> Result<(), Problem> {
    out.push(b'[');
    for (at, x) in numbers.into_iter().take(run.dim.size()).enumerate() {
        if !x.is_finite() {
            return Err(refuse(NOT_FINITE));
        }
        if at > 0 {
            out.push(b',');
        }
        number::real(out, x);
    }
    out.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(wkt: &str) -> Result<String, Problem> {
        let (mut wkb, mut out) = (Vec::new(), Vec::new());
        crate::wkt::read(wkt, &mut wkb)?;
        let written = geometry(&wkb, &mut out);
        assert_eq!(check_geometry(&wkb), written, "{wkt}");
        written.map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_shape_has_its_form() {
        for (wkt, json) in [
            ("POINT (1 2.5)", r#"{"type":"Point","coordinates":[1,2.5]}"#),
            ("POINT EMPTY", r#"{"type":"Point","coordinates":[]}"#),
            ("LINESTRING Z (1 2 3, 4 5 6)", r#"{"type":"LineString","coordinates":[[1,2,3],[4,5,6]]}"#),
            ("MULTIPOINT ((1 2), (3 4))", r#"{"type":"MultiPoint","coordinates":[[1,2],[3,4]]}"#),
            ("MULTILINESTRING ((0 0, 1 1))", r#"{"type":"MultiLineString","coordinates":[[[0,0],[1,1]]]}"#),
            (
                "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)))",
                r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]]]}"#,
            ),
            (
                "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
                r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},{"type":"LineString","coordinates":[[0,0],[1,1]]}]}"#,
            ),
            ("GEOMETRYCOLLECTION EMPTY", r#"{"type":"GeometryCollection","geometries":[]}"#),
        ] {
            assert_eq!(json_of(wkt).unwrap(), json);
        }
    }

    #[test]
    fn rings_turn_to_the_right_hand_rule() {
        assert_eq!(
            json_of("POLYGON ((0 0, 0 9, 9 9, 0 0), (1 2, 2 4, 1 3, 1 2))").unwrap(),
            r#"{"type":"Polygon","coordinates":[[[0,0],[9,9],[0,9],[0,0]],[[1,2],[1,3],[2,4],[1,2]]]}"#
        );
    }

    #[test]
    fn what_geojson_cannot_hold_is_refused() {
        assert!(json_of("POINT M (1 2 3)").unwrap_err().message.contains("measures"));
        assert!(json_of("LINESTRING (0 0, inf 1)").unwrap_err().message.contains("finite"));
    }
}
