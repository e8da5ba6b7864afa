//! Copying a geometry while changing the positions of its parts.
//!
//! What adds or removes positions (densifying, dropping repeated ones, closing and turning rings)
//! is the same walk with another function in the middle.

use super::{Cursor, Dim, Event, Shape, write};

/// What a run of positions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The position of a point.
    Point,
    /// A line.
    Line,
    /// The outer ring of a polygon.
    Shell,
    /// An inner ring of a polygon.
    Hole,
}

impl Part {
    /// Whether this is a ring.
    #[must_use]
    pub fn is_ring(self) -> bool {
        matches!(self, Part::Shell | Part::Hole)
    }
}

/// Appends a copy of canonical well-known binary to `out`; the function sees the positions of each
/// part, unused numbers being NaN, and may change, add and remove some. Of a point only changes
/// count.
///
/// # Errors
/// The first error of the function; `out` is then as before.
pub fn edit<E>(
    wkb: &[u8],
    out: &mut Vec<u8>,
    mut change: impl FnMut(Part, Dim, &mut Vec<[f64; 4]>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    let mut cursor = Cursor::default();
    let mut open: Vec<(Shape, usize)> = Vec::new();
    let mut positions: Vec<[f64; 4]> = Vec::new();
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, dim, count } => {
                write::begin(out, shape, dim);
                if !matches!(shape, Shape::Point | Shape::LineString) {
                    write::count(out, count);
                }
                open.push((shape, 0));
            }
            Event::Coords(run) => {
                positions.clear();
                positions.extend(run.all(wkb));
                let Some((shape, runs)) = open.last_mut() else { continue };
                let part = match shape {
                    Shape::Point => Part::Point,
                    Shape::Polygon if *runs == 0 => Part::Shell,
                    Shape::Polygon => Part::Hole,
                    _ => Part::Line,
                };
                *runs += 1;
                if let Err(e) = change(part, run.dim, &mut positions) {
                    out.truncate(start);
                    return Err(e);
                }
                if part != Part::Point {
                    write::count(out, positions.len());
                }
                for position in &positions {
                    write::position(out, position.get(..run.dim.size()).unwrap_or_default());
                }
            }
            Event::End(_) => {
                open.pop();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_without_change_is_the_same_and_parts_are_told_apart() {
        let text = "GEOMETRYCOLLECTION Z (POINT Z (1 2 3), LINESTRING Z EMPTY, POLYGON Z ((0 0 1, 9 0 1, 9 9 1, 0 0 1), (2 1 1, 3 2 1, 3 1 1, 2 1 1)))";
        let (mut wkb, mut out, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        crate::wkt::read(text, &mut wkb).unwrap();
        edit(&wkb, &mut out, |part, _, positions| {
            parts.push((part, positions.len()));
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(out, wkb);
        assert_eq!(parts, [(Part::Point, 1), (Part::Line, 0), (Part::Shell, 4), (Part::Hole, 4)]);
        assert_eq!(edit(&wkb, &mut out, |_, _, _| Err(5)), Err(5));
        assert_eq!(out, wkb);
    }
}
