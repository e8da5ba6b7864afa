//! Writing GML 3.2: a collection of simple features, as GDAL and WFS clients read it.
//!
//! Coordinates are in the axis order of the authority, because the system is named by its URN. There is no
//! schema: readers infer the types of fields. Characters that XML does not allow in names become `_`;
//! characters that XML does not allow at all are refused.

use std::io::Write as _;
use std::sync::Arc;

use tidegate_core::Code;

use super::super::{Options, Out, Written, json};
use crate::batch::Batch;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::number;
use crate::schema::{Schema, free_name};
use crate::wkb::{Cursor, Dim, Event, Run, Shape};

/// A collection being written.
pub struct GmlWriter {
    out: Out,
    /// The element of a feature, and those of its properties.
    name: String,
    fields: Vec<String>,
    geometry: String,
    /// The URN of the system.
    system: String,
    /// Whether y stands before x.
    turned: bool,
    buffer: Vec<u8>,
    written: Written,
}

fn refuse(message: impl Into<String>) -> Problem {
    Problem::new(Code::UNPROCESSABLE, message)
}

impl GmlWriter {
    pub(crate) fn new(
        out: Out,
        schema: &Arc<Schema>,
        crs: &Crs,
        options: &Options,
        stem: &str,
    ) -> Result<GmlWriter, Error> {
        let mut fields: Vec<String> = Vec::new();
        for field in schema.fields() {
            fields.push(free_name(&xml_name(&field.name), |name| fields.iter().any(|taken| taken == name)));
        }
        let geometry = free_name("geometry", |name| fields.iter().any(|taken| taken == name));
        let system = if *crs == Crs::wgs84() {
            "urn:ogc:def:crs:OGC:1.3:CRS84".to_owned()
        } else {
            format!("urn:ogc:def:crs:{}::{}", crs.authority, crs.code)
        };
        let buffer = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <app:FeatureCollection gml:id=\"features\" xmlns:app=\"urn:tidegate:features\" \
            xmlns:gml=\"http://www.opengis.net/gml/3.2\">\n"
            .to_vec();
        Ok(GmlWriter {
            out,
            name: xml_name(options.layer.as_deref().unwrap_or(stem)),
            fields,
            geometry,
            system,
            turned: crs.is_north_first(),
            buffer,
            written: Written::default(),
        })
    }

    fn feature(&mut self, batch: &Batch, row: usize) -> Result<(), Problem> {
        let (name, number) = (&self.name, self.written.features + 1);
        let id = format!("{name}.{number}");
        let out = &mut self.buffer;
        out.extend_from_slice(format!("<app:featureMember>\n<app:{name} gml:id=\"{id}\">\n").as_bytes());
        if let Some(wkb) = batch.geometry(row) {
            out.extend_from_slice(format!("<app:{}>", self.geometry).as_bytes());
            let mut shapes = Shapes { system: &self.system, turned: self.turned, id: &id, count: 0 };
            shapes.write(wkb, out)?;
            out.extend_from_slice(format!("</app:{}>\n", self.geometry).as_bytes());
        }
        for (field, column) in self.fields.iter().zip(batch.columns()) {
            let value = column.get(row);
            if value == Value::Null {
                continue;
            }
            out.extend_from_slice(format!("<app:{field}>").as_bytes());
            match value {
                Value::Text(text) | Value::Json(text) => {
                    write_text(text, out).map_err(|problem| problem.under(field))?;
                }
                Value::Bytes(bytes) => json::write_hex(out, bytes),
                Value::Real(x) => number::real(out, x),
                other => json::write_value::<Problem>(out, other)?,
            }
            out.extend_from_slice(format!("</app:{field}>\n").as_bytes());
        }
        out.extend_from_slice(format!("</app:{name}>\n</app:featureMember>\n").as_bytes());
        self.written.features += 1;
        Ok(())
    }
}

impl super::super::Writer for GmlWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for row in 0..batch.len() {
            self.feature(batch, row).map_err(|problem| problem.of_record(batch.record(row)))?;
            self.out.spill(&mut self.buffer)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        self.buffer.extend_from_slice(b"</app:FeatureCollection>\n");
        self.out.write_all(&self.buffer)?;
        self.out.finish()?;
        Ok(self.written)
    }
}

/// The geometry of one feature.
struct Shapes<'a> {
    system: &'a str,
    turned: bool,
    id: &'a str,
    /// How many geometries have an identifier so far.
    count: u32,
}

impl Shapes<'_> {
    fn write(&mut self, wkb: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
        let mut cursor = Cursor::default();
        let mut open: Vec<(Shape, bool)> = Vec::new();
        while let Some(event) = cursor.next(wkb)? {
            match event {
                Event::Begin { shape, dim, .. } => {
                    if dim.has_m() {
                        return Err(refuse("GML has no place for measures"));
                    }
                    if let Some((outer, _)) = open.last() {
                        out.extend_from_slice(format!("<gml:{}>", member(*outer)).as_bytes());
                    }
                    out.extend_from_slice(
                        format!("<gml:{} gml:id=\"{}.g{}\"", element(shape), self.id, self.count).as_bytes(),
                    );
                    self.count += 1;
                    if open.is_empty() {
                        out.extend_from_slice(format!(" srsName=\"{}\"", self.system).as_bytes());
                        if dim == Dim::Xyz {
                            out.extend_from_slice(b" srsDimension=\"3\"");
                        }
                    }
                    out.push(b'>');
                    open.push((shape, true));
                }
                Event::Coords(run) => {
                    let (shape, first) =
                        open.last_mut().map_or((Shape::LineString, true), |(s, f)| (*s, std::mem::take(f)));
                    match shape {
                        Shape::Point => {
                            let empty = run.xy(wkb).next().is_none_or(|(x, y)| x.is_nan() && y.is_nan());
                            if !empty {
                                self.positions(wkb, run, "pos", out)?;
                            }
                        }
                        Shape::Polygon => {
                            let side = if first { "exterior" } else { "interior" };
                            out.extend_from_slice(format!("<gml:{side}><gml:LinearRing>").as_bytes());
                            self.positions(wkb, run, "posList", out)?;
                            out.extend_from_slice(format!("</gml:LinearRing></gml:{side}>").as_bytes());
                        }
                        _ => self.positions(wkb, run, "posList", out)?,
                    }
                }
                Event::End(shape) => {
                    open.pop();
                    out.extend_from_slice(format!("</gml:{}>", element(shape)).as_bytes());
                    if let Some((outer, _)) = open.last() {
                        out.extend_from_slice(format!("</gml:{}>", member(*outer)).as_bytes());
                    }
                }
            }
        }
        Ok(())
    }

    fn positions(&self, wkb: &[u8], run: Run, name: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let _ = write!(out, "<gml:{name}>");
        for (at, [x, y, z, _]) in run.all(wkb).enumerate() {
            let (a, b) = if self.turned { (y, x) } else { (x, y) };
            for (part, number) in [a, b, z].into_iter().take(run.dim.size()).enumerate() {
                if !number.is_finite() {
                    return Err(Problem::new(Code::INVALID_GEOMETRY, "a coordinate is not a finite number"));
                }
                if at + part > 0 {
                    out.push(b' ');
                }
                number::real(out, number);
            }
        }
        let _ = write!(out, "</gml:{name}>");
        Ok(())
    }
}

fn element(shape: Shape) -> &'static str {
    match shape {
        Shape::Point => "Point",
        Shape::LineString => "LineString",
        Shape::Polygon => "Polygon",
        Shape::MultiPoint => "MultiPoint",
        Shape::MultiLineString => "MultiCurve",
        Shape::MultiPolygon => "MultiSurface",
        Shape::GeometryCollection => "MultiGeometry",
    }
}

fn member(outer: Shape) -> &'static str {
    match outer {
        Shape::MultiPoint => "pointMember",
        Shape::MultiLineString => "curveMember",
        Shape::MultiPolygon => "surfaceMember",
        _ => "geometryMember",
    }
}

/// A name that an element may have.
fn xml_name(name: &str) -> String {
    let fits = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let mut made: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let starts_well = made.starts_with(|c: char| c.is_alphabetic() || c == '_');
    // Names that begin so belong to XML itself.
    if !starts_well || made.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("xml")) {
        made.insert(0, '_');
    }
    made
}

fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
    for c in text.chars() {
        match c {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '\r' => out.extend_from_slice(b"&#13;"),
            '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => {
                let message = format!("XML cannot hold the character U+{:04X}", u32::from(other));
                return Err(Problem::new(Code::DATA_EXCEPTION, message));
            }
        }
    }
    Ok(())
}
