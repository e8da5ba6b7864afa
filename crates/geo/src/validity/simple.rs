//! Whether a geometry is simple: it does not meet itself except at the ends of its lines.
//!
//! Ends count by the mod-2 rule, as in GEOS: the common end of a closed line is inside it, so
//! another line may not end there. Points are simple if they differ, surfaces if each ring is.

use std::fmt;

use super::pair::{Meeting, crossing, meeting};
use super::{Point, tree};
use crate::limits::{RecordLimits, WorkBound, WorkMeter};
use crate::wkb::{Cursor, Event, Shape};

/// Why a geometry does not pass as simple.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NotSimple {
    /// It meets itself here.
    At(f64, f64),
    /// To find out would be too much work.
    TooCostly(WorkBound),
}

impl fmt::Display for NotSimple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSimple::At(x, y) => write!(f, "Not simple[{x} {y}]"),
            NotSimple::TooCostly(bound) => bound.fmt(f),
        }
    }
}

impl From<WorkBound> for NotSimple {
    fn from(bound: WorkBound) -> NotSimple {
        NotSimple::TooCostly(bound)
    }
}

/// Whether canonical well-known binary is simple: `Ok` if it is.
///
/// # Errors
/// A place where it meets itself, or the bound of work.
pub fn is_simple(wkb: &[u8], limits: &RecordLimits) -> Result<(), NotSimple> {
    let mut work = WorkMeter::within(limits);
    work.begin(super::edges_at_most(wkb));
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
                        check_lines(&mut lines, &mut work)?;
                    }
                }
            }
            Event::End(_) => {
                open.pop();
                if open.last().is_none_or(|outer| *outer == Shape::GeometryCollection) {
                    check_lines(&mut lines, &mut work)?;
                    check_points(&mut points)?;
                }
            }
        }
    }
    Ok(())
}

fn check_points(points: &mut Vec<Point>) -> Result<(), NotSimple> {
    points.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let twice =
        points.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()).copied();
    points.clear();
    twice.map_or(Ok(()), |p| Err(NotSimple::At(p[0], p[1])))
}

fn check_lines(lines: &mut Vec<Vec<Point>>, work: &mut WorkMeter) -> Result<(), NotSimple> {
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
    let touch = |i: usize, j: usize| -> Option<Point> {
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
    };
    let met = tree::pairs(&segments, work, |i, j, _| Ok(touch(i, j)))?;
    lines.clear();
    met.map_or(Ok(()), |p| Err(NotSimple::At(p[0], p[1])))
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
            assert_eq!(is_simple(&wkb, &RecordLimits::default()).is_ok(), simple, "{text}");
        }
    }
}
