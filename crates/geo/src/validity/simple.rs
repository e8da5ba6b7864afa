//! Whether a geometry is simple: it does not meet itself except at the ends of its lines.
//!
//! Ends count by the mod-2 rule, as in GEOS: the common end of a closed line is inside it, so
//! another line may not end there. Points are simple if they differ, surfaces if each ring is.

use super::pair::{Meeting, crossing, meeting};
use super::{Point, tree};
use crate::wkb::{Cursor, Event, Shape};

/// Where canonical well-known binary is not simple, or `Ok` if it is.
///
/// # Errors
/// A place where it meets itself.
pub fn is_simple(wkb: &[u8]) -> Result<(), (f64, f64)> {
    let mut cursor = Cursor::default();
    let mut open: Vec<Shape> = Vec::new();
    let mut lines: Vec<Vec<Point>> = Vec::new();
    let mut points: Vec<Point> = Vec::new();
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, .. } => open.push(shape),
            Event::Coords(run) => {
                let line: Vec<Point> = run.xy(wkb).map(|(x, y)| [x, y]).collect();
                if open.last() == Some(&Shape::Point) {
                    points.extend(line.first().filter(|p| !p[0].is_nan()));
                } else {
                    lines.push(line);
                    if open.last() == Some(&Shape::Polygon) {
                        check_lines(&mut lines)?;
                    }
                }
            }
            Event::End(_) => {
                open.pop();
                if open.last().is_none_or(|outer| *outer == Shape::GeometryCollection) {
                    check_lines(&mut lines)?;
                    check_points(&mut points)?;
                }
            }
        }
    }
    Ok(())
}

fn check_points(points: &mut Vec<Point>) -> Result<(), (f64, f64)> {
    points.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let twice =
        points.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()).copied();
    points.clear();
    twice.map_or(Ok(()), |p| Err((p[0], p[1])))
}

fn check_lines(lines: &mut Vec<Vec<Point>>) -> Result<(), (f64, f64)> {
    for line in lines.iter_mut() {
        line.dedup();
    }
    let mut edges: Vec<(usize, usize)> = Vec::new();
    let mut segments = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for (place, (a, b)) in line.iter().zip(line.iter().skip(1)).enumerate() {
            edges.push((at, place));
            segments.push((*a, *b));
        }
    }
    let met = tree::pairs(&segments, |i, j| {
        let ((a, b), (c, d)) = (*segments.get(i)?, *segments.get(j)?);
        let ((line, at), (other, other_at)) = (*edges.get(i)?, *edges.get(j)?);
        let node = match meeting(a, b, c, d) {
            Meeting::Apart => return None,
            Meeting::Cross => return Some(crossing(a, b, c, d)),
            Meeting::Overlap(node) => return Some(node),
            Meeting::Vertex(node) => node,
        };
        let inside = |a: Point, b: Point| node != a && node != b;
        if inside(a, b) || inside(c, d) {
            return Some(node);
        }
        if line == other && other_at - at <= 1 {
            return None;
        }
        let (line_points, other_points) = (lines.get(line)?, lines.get(other)?);
        let is_end = |points: &[Point]| points.first() == Some(&node) || points.last() == Some(&node);
        let at_end = |points: &[Point], place: usize, a: Point| {
            let place = if node == a { place } else { place + 1 };
            is_end(points) && (place == 0 || place + 1 == points.len())
        };
        if !(at_end(line_points, at, a) && at_end(other_points, other_at, c)) {
            return Some(node);
        }
        let closed = |points: &[Point]| points.first() == points.last();
        (line != other && (closed(line_points) || closed(other_points))).then_some(node)
    });
    lines.clear();
    met.map_or(Ok(()), |p| Err((p[0], p[1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_meet_themselves_only_at_their_ends() {
        for (text, simple) in [
            ("LINESTRING (0 0, 1 1, 1 0)", true),
            ("LINESTRING (0 0, 2 2, 2 0, 0 2)", false),
            ("LINESTRING (0 0, 1 0, 1 1, 0 0)", true),
            ("LINESTRING (0 0, 1 0, 1 1, 0 0, -1 -1)", false),
            ("MULTILINESTRING ((0 0, 1 1), (1 1, 2 0))", true),
            ("MULTILINESTRING ((0 0, 2 2), (1 1, 2 0))", false),
            ("MULTILINESTRING ((0 0, 1 0, 1 1, 0 0), (0 0, -1 -1))", false),
            ("MULTIPOINT (0 0, 1 1)", true),
            ("MULTIPOINT (0 0, 1 1, 0 0)", false),
            ("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", false),
            ("GEOMETRYCOLLECTION (LINESTRING (0 0, 1 1), LINESTRING (0 1, 1 0))", true),
        ] {
            let mut wkb = Vec::new();
            crate::wkt::read(text, &mut wkb).unwrap();
            assert_eq!(is_simple(&wkb).is_ok(), simple, "{text}");
        }
    }
}
