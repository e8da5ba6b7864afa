//! From well-known binary to the geometry table of FlatGeobuf.
//!
//! A simple geometry is a vector of positions and, if it has several lines or rings, the vector of their
//! ends. A multipolygon or collection is a vector of parts.

use super::flat::{Flat, TableField};
use crate::error::Problem;
use crate::wkb::{Cursor, Dim, Event, Run, Shape};

/// A geometry as runs of positions, or as parts.
#[derive(Debug)]
struct GeometryParts {
    shape: Shape,
    dim: Dim,
    runs: Vec<Run>,
    parts: Vec<GeometryParts>,
}

/// Writes a geometry that the offset at `from` refers to.
pub(super) fn write(flat: &mut Flat, from: usize, wkb: &[u8]) -> Result<(), Problem> {
    let mut cursor = Cursor::default();
    let mut open: Vec<GeometryParts> = Vec::new();
    while let Some(event) = cursor.next(wkb)? {
        match event {
            Event::Begin { shape, dim, .. } => {
                open.push(GeometryParts { shape, dim, runs: Vec::new(), parts: Vec::new() });
            }
            Event::Coords(run) => {
                if let Some(part) = open.last_mut() {
                    part.runs.push(run);
                }
            }
            Event::End(_) => {
                let Some(part) = open.pop() else { break };
                match open.last_mut() {
                    None => {
                        write_part(flat, from, wkb, &part);
                        break;
                    }
                    // Their members are runs of positions.
                    Some(outer) if matches!(outer.shape, Shape::MultiPoint | Shape::MultiLineString) => {
                        outer.runs.extend(part.runs);
                    }
                    Some(outer) => outer.parts.push(part),
                }
            }
        }
    }
    Ok(())
}

fn write_part(flat: &mut Flat, from: usize, wkb: &[u8], part: &GeometryParts) {
    let kind = (6, TableField::U8(part.shape as u8));
    if matches!(part.shape, Shape::MultiPolygon | Shape::GeometryCollection) {
        let places = flat.table(from, &[(7, TableField::To), kind]);
        let first = flat.objects(places[0], part.parts.len());
        for (at, inner) in part.parts.iter().enumerate() {
            write_part(flat, first + at * 4, wkb, inner);
        }
        return;
    }
    let is_point = matches!(part.shape, Shape::Point | Shape::MultiPoint);
    let has_ends = part.runs.len() > 1 && !is_point;
    // An empty point has no positions, rather than one of NaN.
    let runs: Vec<Run> = part
        .runs
        .iter()
        .copied()
        .filter(|run| !(is_point && run.xy(wkb).all(|(x, y)| x.is_nan() && y.is_nan())))
        .collect();
    let mut fields = vec![(1, TableField::To), kind];
    let (z, m) = (part.dim.has_z(), part.dim.has_m());
    for (slot, there) in [(2, z), (3, m), (0, has_ends)] {
        if there {
            fields.push((slot, TableField::To));
        }
    }
    let places = flat.table(from, &fields);
    let count: usize = runs.iter().map(|run| run.count).sum();
    if part.dim == Dim::Xy {
        // As they lie: both formats store x and y of a position side by side, in the same order of bytes.
        let bytes = runs.iter().map(|run| wkb.get(run.range()).unwrap_or_default());
        flat.f64_bytes(places[0], count * 2, bytes);
    } else {
        flat.f64s(places[0], count * 2, runs.iter().flat_map(|run| run.xy(wkb)).flat_map(|(x, y)| [x, y]));
    }
    let mut next = 2;
    for (there, at) in [(z, 2), (m, 2 + usize::from(z))] {
        if there {
            let place = places.get(next).copied().unwrap_or(0);
            let numbers = runs.iter().flat_map(|run| run.all(wkb));
            flat.f64s(place, count, numbers.map(|position| position.get(at).copied().unwrap_or(f64::NAN)));
            next += 1;
        }
    }
    if has_ends {
        let mut end = 0u32;
        let ends: Vec<u32> = runs
            .iter()
            .map(|run| {
                end = end.saturating_add(u32::try_from(run.count).unwrap_or(u32::MAX));
                end
            })
            .collect();
        flat.u32s(places.get(next).copied().unwrap_or(0), &ends);
    }
}
