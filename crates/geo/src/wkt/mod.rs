//! Well-known text, the form for people: CSV columns, logs, tests.
//!
//! Writing follows ISO and shapely (`POINT Z (1 2 3)`, `MULTIPOINT ((1 2), (3 4))`). Reading takes
//! what PostGIS, GEOS and GDAL write, in any case: tags joined or apart (`POINTZ`, `POINT Z`) or
//! left out, `MULTIPOINT (1 2, 3 4)`, and a leading `SRID=4326;`.

mod read;

pub use read::read;

use crate::number;
use crate::wkb::{Cursor, Dim, Event, Run, Shape};

/// The text of canonical well-known binary.
#[must_use]
pub fn to_string(wkb: &[u8]) -> String {
    let mut out = Vec::new();
    write(wkb, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends the text of canonical well-known binary.
pub fn write(wkb: &[u8], out: &mut Vec<u8>) {
    let mut cursor = Cursor::default();
    let mut open: Vec<Shape> = Vec::new();
    let mut first = true;
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, dim, count } => {
                if !first {
                    out.extend_from_slice(b", ");
                }
                if open.last().is_none_or(|outer| *outer == Shape::GeometryCollection) {
                    name(shape, dim, out);
                }
                first = true;
                open.push(shape);
                match shape {
                    Shape::Point | Shape::LineString => {}
                    _ if count == 0 => out.extend_from_slice(b"EMPTY"),
                    _ => out.push(b'('),
                }
            }
            Event::Coords(run) => {
                if !first {
                    out.extend_from_slice(b", ");
                }
                positions(wkb, run, open.last() == Some(&Shape::Point), out);
                first = false;
            }
            Event::End(shape) => {
                open.pop();
                if !matches!(shape, Shape::Point | Shape::LineString) && !first {
                    out.push(b')');
                }
                first = false;
            }
        }
    }
}

fn name(shape: Shape, dim: Dim, out: &mut Vec<u8>) {
    out.extend_from_slice(shape.upper_name().as_bytes());
    out.extend_from_slice(match dim {
        Dim::Xy => b" ",
        Dim::Xyz => b" Z ",
        Dim::Xym => b" M ",
        Dim::Xyzm => b" ZM ",
    });
}

fn positions(wkb: &[u8], run: Run, is_point: bool, out: &mut Vec<u8>) {
    if run.count == 0 || (is_point && run.xy(wkb).all(|(x, y)| x.is_nan() && y.is_nan())) {
        out.extend_from_slice(b"EMPTY");
        return;
    }
    out.push(b'(');
    for (at, position) in run.all(wkb).enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        for (n, x) in position.iter().take(run.dim.size()).enumerate() {
            if n > 0 {
                out.push(b' ');
            }
            number::real(out, *x);
        }
    }
    out.push(b')');
}
