//! The small repairs: each does one thing, says how often, and never touches what is right.

use crate::validity::is_counter_clockwise;
use crate::wkb::{self, Cursor, Event, Part, Shape, write};

fn edited(wkb: &[u8], mut change: impl FnMut(Part, &mut Vec<[f64; 4]>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(wkb.len() + 32);
    let Ok(()) = wkb::edit(wkb, &mut out, |part, _, positions| {
        change(part, positions);
        Ok::<(), std::convert::Infallible>(())
    });
    out
}

/// Closes rings that end elsewhere than they begin; how many.
#[must_use]
pub fn close_rings(wkb: &[u8]) -> (Vec<u8>, u64) {
    let mut closed = 0;
    let out = edited(wkb, |part, positions| {
        let ends = positions.first().copied().zip(positions.last().copied());
        if let Some((first, last)) = ends.filter(|_| part.is_ring())
            && (first[0], first[1]) != (last[0], last[1])
        {
            positions.push(first);
            closed += 1;
        }
    });
    (out, closed)
}

/// Drops positions that repeat the one before; how many. The first and the last stay, and a line
/// or ring that would become too short is left alone.
#[must_use]
pub fn drop_repeated(wkb: &[u8]) -> (Vec<u8>, u64) {
    let mut dropped = 0;
    let out = edited(wkb, |part, positions| {
        if part == Part::Point {
            return;
        }
        let mut short = positions.clone();
        short.dedup_by(|b, a| (a[0], a[1]) == (b[0], b[1]));
        let least = if part.is_ring() { 4 } else { 2 };
        if short.len() >= least && short.len() < positions.len() {
            dropped += (positions.len() - short.len()) as u64;
            *positions = short;
        }
    });
    (out, dropped)
}

/// Turns shells counter-clockwise and holes clockwise (the right-hand rule), or the other way; how
/// many rings were turned.
#[must_use]
pub fn wind(wkb: &[u8], shells_counter_clockwise: bool) -> (Vec<u8>, u64) {
    let mut turned = 0;
    let out = edited(wkb, |part, positions| {
        let flat: Vec<[f64; 2]> = positions.iter().map(|p| [p[0], p[1]]).collect();
        let wanted = (part == Part::Shell) == shells_counter_clockwise;
        if part.is_ring() && positions.len() >= 4 && is_counter_clockwise(&flat) != wanted {
            positions.reverse();
            turned += 1;
        }
    });
    (out, turned)
}

/// The shape of a geometry after a repair may be the multi of what it was; this makes every
/// surface and line of a layer a multi one, so that the layer stays uniform.
#[must_use]
pub fn promote(wkb: &[u8]) -> Vec<u8> {
    match wkb::head(wkb) {
        Some((shape, dim)) if shape.multi() != shape => {
            let mut out = Vec::with_capacity(wkb.len() + 9);
            write::begin(&mut out, shape.multi(), dim);
            write::count(&mut out, usize::from(!wkb::is_empty(wkb)));
            if !wkb::is_empty(wkb) {
                out.extend_from_slice(wkb);
            }
            out
        }
        _ => wkb.to_vec(),
    }
}

/// Of everything in a geometry, however it nests, the parts of one shape: points, lines or
/// polygons, as their multi.
#[must_use]
pub fn extract(wkb: &[u8], shape: Shape) -> Vec<u8> {
    let multi = shape.multi();
    let dim = wkb::head(wkb).map_or(wkb::Dim::Xy, |(_, dim)| dim);
    let mut out = Vec::with_capacity(wkb.len() + 9);
    write::begin(&mut out, multi, dim);
    let hole = write::hole(&mut out);
    let mut count = 0;
    let mut taken = false;
    let mut cursor = Cursor::default();
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, dim, count: rings } if Some(shape) == multi.member() => {
                taken = true;
                count += 1;
                write::begin(&mut out, shape, dim);
                if shape == Shape::Polygon {
                    write::count(&mut out, rings);
                }
            }
            Event::Coords(run) if taken => {
                if multi != Shape::MultiPoint {
                    write::count(&mut out, run.count);
                }
                out.extend_from_slice(wkb.get(run.range()).unwrap_or_default());
            }
            Event::End(_) => taken = false,
            _ => {}
        }
    }
    write::fill(&mut out, hole, count);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wkb(text: &str) -> Vec<u8> {
        let mut wkb = Vec::new();
        crate::wkt::read(text, &mut wkb).unwrap();
        wkb
    }

    fn text((wkb, count): (Vec<u8>, u64)) -> (String, u64) {
        (crate::wkt::to_string(&wkb), count)
    }

    #[test]
    fn a_layer_can_be_made_of_multi_shapes_only() {
        let promoted = promote(&wkb("POLYGON ((0 0, 4 0, 4 4, 0 0))"));
        assert_eq!(crate::wkt::to_string(&promoted), "MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)))");
    }

    #[test]
    fn rings_are_closed_and_turned() {
        let open = wkb("POLYGON Z ((0 0 1, 4 0 2, 4 4 3))");
        assert_eq!(text(close_rings(&open)), ("POLYGON Z ((0 0 1, 4 0 2, 4 4 3, 0 0 1))".into(), 1));
        let both = wkb("POLYGON ((0 0, 9 9, 9 0, 0 0), (3 1, 4 1, 4 2, 3 1))");
        let right = "POLYGON ((0 0, 9 0, 9 9, 0 0), (3 1, 4 2, 4 1, 3 1))";
        assert_eq!(text(wind(&both, true)), (right.into(), 2));
        assert_eq!(text(wind(&wkb(right), true)), (right.into(), 0));
        assert_eq!(text(wind(&wkb(right), false)).1, 2);
    }

    #[test]
    fn repeated_positions_go_unless_nothing_would_be_left() {
        let line = wkb("LINESTRING (0 0, 0 0, 1 1, 1 1, 1 1, 2 0)");
        assert_eq!(text(drop_repeated(&line)), ("LINESTRING (0 0, 1 1, 2 0)".into(), 3));
        let short = "LINESTRING (1 1, 1 1)";
        assert_eq!(text(drop_repeated(&wkb(short))), (short.into(), 0));
    }

    #[test]
    fn parts_of_one_shape_come_out_of_a_collection() {
        let all = wkb(
            "GEOMETRYCOLLECTION (POINT (1 1), GEOMETRYCOLLECTION (MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0))), LINESTRING (0 0, 1 1)), POLYGON ((5 0, 9 0, 9 4, 5 0)))",
        );
        let told = |shape| crate::wkt::to_string(&extract(&all, shape));
        assert_eq!(told(Shape::Polygon), "MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ((5 0, 9 0, 9 4, 5 0)))");
        assert_eq!(told(Shape::Point), "MULTIPOINT ((1 1))");
        assert_eq!(told(Shape::LineString), "MULTILINESTRING ((0 0, 1 1))");
        assert_eq!(
            crate::wkt::to_string(&extract(&wkb("POINT (1 1)"), Shape::Polygon)),
            "MULTIPOLYGON EMPTY"
        );
    }
}
