//! From well-known binary to the records of a `.shp` file.

use tidegate_core::Code;

use crate::bounds::Bounds;
use crate::error::Problem;
use crate::repair;
use crate::wkb::{self, Cursor, Event, Shape};

/// The geometry type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Points,
    MultiPoints,
    Lines,
    Surfaces,
}

impl Family {
    pub(super) fn of(shape: Shape) -> Result<Family, Problem> {
        Ok(match shape {
            Shape::Point => Family::Points,
            Shape::MultiPoint => Family::MultiPoints,
            Shape::LineString | Shape::MultiLineString => Family::Lines,
            Shape::Polygon | Shape::MultiPolygon => Family::Surfaces,
            Shape::GeometryCollection => {
                let message = "a Shapefile cannot hold a GeometryCollection";
                return Err(Problem::new(Code::SCHEMA_MISMATCH, message));
            }
        })
    }

    /// The number of the type.
    pub(super) fn number(self, z: bool) -> i32 {
        let plain = match self {
            Family::Points => 1,
            Family::Lines => 3,
            Family::Surfaces => 5,
            Family::MultiPoints => 8,
        };
        if z { plain + 10 } else { plain }
    }
}

/// Appends the content of a record. An empty geometry becomes a null shape. Shells are clockwise.
pub(super) fn write(wkb: &[u8], family: Family, z: bool, out: &mut Vec<u8>) {
    let Some(bounds) = Bounds::of_wkb(wkb).filter(|_| !wkb::is_empty(wkb)) else {
        out.extend_from_slice(&0i32.to_le_bytes());
        return;
    };
    let turned = if family == Family::Surfaces { repair::wind(wkb, false).0 } else { Vec::new() };
    let wkb = if family == Family::Surfaces { turned.as_slice() } else { wkb };
    let mut parts: Vec<Vec<[f64; 4]>> = Vec::new();
    let mut has_z = false;
    let mut cursor = Cursor::default();
    while let Ok(Some(event)) = cursor.next(wkb) {
        if let Event::Coords(run) = event
            && run.count > 0
        {
            has_z |= run.dim.has_z();
            parts.push(run.all(wkb).collect());
        }
    }
    out.extend_from_slice(&family.number(z).to_le_bytes());
    let numbers =
        |out: &mut Vec<u8>, list: &[f64]| list.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
    let height = |p: &[f64; 4]| if has_z { p[2] } else { 0.0 };
    if family == Family::Points {
        if let Some(p) = parts.first().and_then(|part| part.first()) {
            numbers(out, &[p[0], p[1]]);
            if z {
                // A mandatory measure with the value for "no data".
                numbers(out, &[height(p), NO_MEASURE]);
            }
        }
        return;
    }
    numbers(out, &[bounds.min_x, bounds.min_y, bounds.max_x, bounds.max_y]);
    let all: Vec<[f64; 4]> = parts.iter().flatten().copied().collect();
    if family != Family::MultiPoints {
        out.extend_from_slice(&(parts.len() as u32).to_le_bytes());
    }
    out.extend_from_slice(&(all.len() as u32).to_le_bytes());
    if family != Family::MultiPoints {
        let mut start = 0u32;
        for part in &parts {
            out.extend_from_slice(&start.to_le_bytes());
            start += part.len() as u32;
        }
    }
    for p in &all {
        numbers(out, &[p[0], p[1]]);
    }
    if z {
        let heights: Vec<f64> = all.iter().map(height).collect();
        let low = heights.iter().copied().fold(f64::INFINITY, f64::min);
        let high = heights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        numbers(out, &[low, high]);
        numbers(out, &heights);
    }
}

const NO_MEASURE: f64 = -1e39;
