//! Whether a geometry is valid, by the rules of the OGC and as GEOS decides them.
//!
//! A gate that disagrees with the database behind it is worse than none, so the measure is GEOS:
//! the same verdict on every case of the corpus in `oracle/`. Why our own and not the `geo` crate:
//! it calls polygons valid whose interior falls apart (48 cases of our corpus) and empty parts
//! invalid, and it has no test for simplicity.
//!
//! A polygon is valid if its rings are closed, have at least three distinct corners, and meet
//! themselves and each other in single points without crossing; if holes lie in the shell and
//! not in each other; if shells do not lie in each other; and if the interior is connected. The
//! tests run in this order, because each relies on the ones before: with no crossing, a ring lies
//! in another if one of its points does, and the interior is connected if the rings, joined where
//! they touch, form no cycle.
//!
//! Every decision rests on one predicate, the side of a point from a line (`side`), and on
//! comparing coordinates; no coordinate is ever computed, except to tell where two edges cross.

mod boxes;
mod double;
mod locate;
mod pair;
mod polygon;
mod rings;
mod side;
mod simple;
mod touch;
mod tree;
mod warn;

pub use simple::{NotSimple, is_simple};
pub use warn::{Concern, Limits, Warning, warnings};

pub(crate) use boxes::{Box2, BoxTree};
pub(crate) use locate::{IndexedRing, Location, compare_angle, is_counter_clockwise, is_nested};
pub(crate) use pair::{Meeting, crossing, distance, meeting};
pub(crate) use tree::{pairs, pairs_near, pairs_scattered};

use std::fmt;

use tidegate_core::Code;

use crate::limits::{RecordLimits, WorkBound, WorkMeter};
use crate::wkb::{Cursor, Event, Shape};
use rings::Rings;

/// A rule that a geometry breaks, in the words of GEOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A coordinate is not a finite number.
    InvalidCoordinate,
    /// A line has fewer than two distinct positions, a ring fewer than three.
    TooFewPoints,
    /// The last position of a ring is not its first.
    RingNotClosed,
    /// Edges cross or overlap.
    SelfIntersection,
    /// A ring touches itself.
    RingSelfIntersection,
    /// A hole is not in its shell.
    HoleOutsideShell,
    /// A hole is in another.
    NestedHoles,
    /// A shell is in another.
    NestedShells,
    /// The holes cut the interior into pieces.
    DisconnectedInterior,
    /// The bytes are not well-known binary.
    NotWkb,
    /// To check or to repair it would take more work than it may.
    TooCostly(WorkBound),
}

impl Reason {
    /// The code of the taxonomy.
    #[must_use]
    pub fn code(self) -> Code {
        if matches!(self, Reason::TooCostly(_)) { Code::REPAIR_TOO_COSTLY } else { Code::INVALID_GEOMETRY }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reason::InvalidCoordinate => "Invalid Coordinate",
            Reason::TooFewPoints => "Too few points in geometry component",
            Reason::RingNotClosed => "Ring is not closed",
            Reason::SelfIntersection => "Self-intersection",
            Reason::RingSelfIntersection => "Ring Self-intersection",
            Reason::HoleOutsideShell => "Hole lies outside shell",
            Reason::NestedHoles => "Holes are nested",
            Reason::NestedShells => "Nested shells",
            Reason::DisconnectedInterior => "Interior is disconnected",
            Reason::NotWkb => "Not well-known binary",
            Reason::TooCostly(bound) => return bound.fmt(f),
        })
    }
}

/// What is wrong with a geometry, and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flaw {
    /// The broken rule.
    pub reason: Reason,
    /// Where it shows.
    pub x: f64,
    /// Where it shows.
    pub y: f64,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            // It is about all of the geometry.
            Reason::TooCostly(bound) => bound.fmt(f),
            reason => write!(f, "{reason}[{} {}]", self.x, self.y),
        }
    }
}

/// A position.
pub(crate) type Point = [f64; 2];

fn flaw(reason: Reason, at: Point) -> Flaw {
    Flaw { reason, x: at[0], y: at[1] }
}

/// The edges of canonical well-known binary, at most: each position takes 16 bytes or more.
pub(crate) fn edges_at_most(wkb: &[u8]) -> usize {
    wkb.len() / 16
}

/// The first flaw of canonical well-known binary, or `None` if it is valid.
///
/// To check many geometries use one [`Checker`], which keeps its room.
#[must_use]
pub fn first_flaw(wkb: &[u8]) -> Option<Flaw> {
    Checker::default().first_flaw(wkb)
}

/// Checks geometries one after another.
#[derive(Debug, Default)]
pub struct Checker {
    rings: Rings,
    /// The work on the geometry that is being checked or repaired.
    pub(crate) work: WorkMeter,
}

impl Checker {
    /// A checker that does no more work on one geometry than this.
    #[must_use]
    pub fn within(limits: &RecordLimits) -> Checker {
        Checker { work: WorkMeter::within(limits), ..Checker::default() }
    }

    /// The first flaw of canonical well-known binary, or `None` if it is valid. A geometry that takes too much
    /// work has the flaw [`Reason::TooCostly`].
    #[must_use]
    pub fn first_flaw(&mut self, wkb: &[u8]) -> Option<Flaw> {
        self.work.begin(edges_at_most(wkb));
        self.flaw_of(wkb)
    }

    /// The same as a part of other work on the same geometry.
    pub(crate) fn flaw_of(&mut self, wkb: &[u8]) -> Option<Flaw> {
        let mut cursor = Cursor::default();
        let mut surfaces_from: Option<usize> = None;
        let mut open: Vec<Shape> = Vec::new();
        loop {
            match cursor.next(wkb) {
                Err(_) => return Some(flaw(Reason::NotWkb, [f64::NAN; 2])),
                Ok(None) => return None,
                Ok(Some(Event::Begin { shape, .. })) => {
                    if matches!(shape, Shape::Polygon | Shape::MultiPolygon) && surfaces_from.is_none() {
                        self.rings.clear();
                        surfaces_from = Some(open.len());
                    }
                    if shape == Shape::Polygon {
                        self.rings.begin_polygon();
                    }
                    open.push(shape);
                }
                Ok(Some(Event::Coords(run))) => {
                    let found = match open.last() {
                        Some(Shape::Polygon) => self.rings.add_ring(run.xy(wkb)),
                        Some(Shape::Point) => point(run.xy(wkb)),
                        _ => line(run.xy(wkb)),
                    };
                    if found.is_some() {
                        return found;
                    }
                }
                Ok(Some(Event::End(_))) => {
                    open.pop();
                    if surfaces_from == Some(open.len()) {
                        surfaces_from = None;
                        match polygon::first_flaw(&mut self.rings, &mut self.work) {
                            Ok(None) => {}
                            Ok(found) => return found,
                            Err(bound) => return Some(flaw(Reason::TooCostly(bound), [f64::NAN; 2])),
                        }
                    }
                }
            }
        }
    }
}

fn point(mut positions: impl Iterator<Item = (f64, f64)>) -> Option<Flaw> {
    let (x, y) = positions.next()?;
    let empty = x.is_nan() && y.is_nan();
    (!(empty || x.is_finite() && y.is_finite())).then(|| flaw(Reason::InvalidCoordinate, [x, y]))
}

fn line(positions: impl Iterator<Item = (f64, f64)>) -> Option<Flaw> {
    let mut first = None;
    let mut distinct = false;
    for (x, y) in positions {
        if !(x.is_finite() && y.is_finite()) {
            return Some(flaw(Reason::InvalidCoordinate, [x, y]));
        }
        distinct |= *first.get_or_insert([x, y]) != [x, y];
    }
    first.filter(|_| !distinct).map(|at| flaw(Reason::TooFewPoints, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let mut wkb = Vec::new();
        crate::wkt::read(text, &mut wkb).unwrap();
        first_flaw(&wkb).map_or("Valid Geometry".into(), |flaw| flaw.to_string())
    }

    #[test]
    fn every_reason_is_told_with_its_place() {
        for (text, want) in [
            ("POINT EMPTY", "Valid Geometry"),
            ("POINT (inf 1)", "Invalid Coordinate[inf 1]"),
            ("LINESTRING (1 1, 1 1)", "Too few points in geometry component[1 1]"),
            ("LINESTRING (0 0, 1 1, 0 1, 1 0)", "Valid Geometry"),
            ("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", "Self-intersection[1 1]"),
            ("POLYGON ((0 0, 4 0, 4 4, 2 0, 0 4, 0 0))", "Ring Self-intersection[2 0]"),
            ("POLYGON ((0 0, 4 0, 4 4, 0 4))", "Ring is not closed[0 0]"),
            ("POLYGON ((0 0, 4 0, 4 0, 0 0))", "Too few points in geometry component[0 0]"),
            ("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (5 5, 6 5, 6 6, 5 5))", "Hole lies outside shell[5 5]"),
            (
                "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 8 1, 8 8, 1 8, 1 1), (2 2, 3 2, 3 3, 2 2))",
                "Holes are nested[2 2]",
            ),
            ("MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0)), ((1 1, 2 1, 2 2, 1 1)))", "Nested shells[1 1]"),
            (
                "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 8 1, 8 8, 1 8, 1 1)), ((2 2, 3 2, 3 3, 2 2)))",
                "Valid Geometry",
            ),
            (
                "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (0 2, 2 1, 4 2, 2 3, 0 2))",
                "Interior is disconnected[0 2]",
            ),
            (
                "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (0 4, 4 3, 4 5, 0 4), (4 3, 9 4, 5 5, 4 3))",
                "Interior is disconnected[4 3]",
            ),
            ("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (0 2, 2 1, 2 3, 0 2))", "Valid Geometry"),
            ("POLYGON (EMPTY, (0 0, 1 0, 1 1, 0 0))", "Hole lies outside shell[0 0]"),
            ("MULTIPOLYGON (EMPTY, ((0 0, 4 0, 4 4, 0 0)))", "Valid Geometry"),
            (
                "GEOMETRYCOLLECTION (POLYGON ((0 0, 4 0, 4 4, 0 0)), POLYGON ((0 0, 4 0, 4 4, 0 0)))",
                "Valid Geometry",
            ),
            ("MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ((0 0, 4 0, 4 4, 0 0)))", "Self-intersection[0 0]"),
        ] {
            assert_eq!(told(text), want, "{text}");
        }
    }
}
