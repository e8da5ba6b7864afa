//! The rings of one surface, side by side.

use super::{Flaw, Point, Reason, flaw};
use crate::bounds::Bounds;

/// One ring, by its place among the points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Which polygon it belongs to.
    pub(super) polygon: usize,
    pub(super) bounds: Bounds,
}

/// The rings of a polygon or multipolygon, repeated positions removed. The first ring of each
/// polygon is its shell. Empty rings are left out.
#[derive(Debug, Default)]
pub(super) struct Rings {
    points: Vec<Point>,
    all: Vec<Ring>,
    /// How many polygons have begun.
    polygons: usize,
    /// Whether the polygon begun last has an empty shell.
    shell_is_empty: bool,
    /// How many rings of it have been seen.
    seen: usize,
}

impl Rings {
    pub(super) fn clear(&mut self) {
        self.points.clear();
        self.all.clear();
        self.polygons = 0;
    }

    pub(super) fn begin_polygon(&mut self) {
        self.polygons += 1;
        (self.shell_is_empty, self.seen) = (false, 0);
    }

    /// Adds a ring, and tells what is wrong with it alone.
    pub(super) fn add_ring(&mut self, positions: impl Iterator<Item = (f64, f64)>) -> Option<Flaw> {
        let start = self.points.len();
        let mut last: Option<Point> = None;
        let mut bounds: Option<Bounds> = None;
        for (x, y) in positions {
            if !(x.is_finite() && y.is_finite()) {
                return Some(flaw(Reason::InvalidCoordinate, [x, y]));
            }
            if last == Some([x, y]) {
                continue;
            }
            last = Some([x, y]);
            self.points.push([x, y]);
            bounds.get_or_insert(Bounds { min_x: x, min_y: y, max_x: x, max_y: y }).extend(x, y);
        }
        self.seen += 1;
        let (Some(bounds), Some(first)) = (bounds, self.points.get(start).copied()) else {
            self.shell_is_empty |= self.seen == 1;
            return None;
        };
        if last != Some(first) {
            return Some(flaw(Reason::RingNotClosed, first));
        }
        if self.points.len() - start < 4 {
            return Some(flaw(Reason::TooFewPoints, first));
        }
        if self.shell_is_empty {
            return Some(flaw(Reason::HoleOutsideShell, first));
        }
        let polygon = self.polygons;
        self.all.push(Ring { start, end: self.points.len(), polygon, bounds });
        None
    }

    pub(super) fn all(&self) -> &[Ring] {
        &self.all
    }

    /// The rings of each polygon that has any, the shell first.
    pub(super) fn by_polygon(&self) -> impl Iterator<Item = &[Ring]> {
        self.all.chunk_by(|a, b| a.polygon == b.polygon)
    }

    /// The positions of a ring; the last is the first again.
    pub(super) fn points(&self, ring: &Ring) -> &[Point] {
        self.points.get(ring.start..ring.end).unwrap_or_default()
    }

    /// A position by its place among all.
    pub(super) fn point(&self, at: usize) -> Point {
        self.points.get(at).copied().unwrap_or([f64::NAN; 2])
    }
}
