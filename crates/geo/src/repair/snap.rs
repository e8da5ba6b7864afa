//! Noding for drawings whose rounded crossings meet again: places close to each other become one.
//!
//! Corners and crossings within the tolerance of one that came before are moved there, and a corner
//! that lies that close to a segment cuts it. The tolerance is a trillionth of the largest
//! coordinate: some hundred times what doubles can tell apart there. It is the one that GEOS takes
//! when its noding fails, so that the same dust vanishes.

use std::collections::HashMap;

use super::node::{Cuts, MANY, Piece, Segment, cut_all};
use crate::limits::{WorkBound, WorkMeter};
use crate::validity::{Meeting, Point, crossing, distance, meeting, pairs_near, pairs_scattered};

const SHARE: f64 = 1e-12;

/// How often more is tried, ten times as much each time.
const TRIES: i32 = 5;

/// The tolerances to try, one after the other.
pub(super) fn tolerances(segments: &[Segment]) -> impl Iterator<Item = f64> + use<> {
    let numbers = segments.iter().flat_map(|(a, b)| [a[0], a[1], b[0], b[1]]);
    let largest = numbers.fold(0.0f64, |largest, number| largest.max(number.abs()));
    (0..TRIES).map(move |power| largest * SHARE * 10f64.powi(power))
}

/// The pieces of segments, which may still meet in rare cases.
pub(super) fn node(whole: &[Piece], tolerance: f64, work: &mut WorkMeter) -> Result<Vec<Piece>, WorkBound> {
    let mut places = SnapIndex { tolerance, cells: HashMap::new() };
    let moved = whole.iter().map(|((a, b), source)| ((places.at(*a), places.at(*b)), *source));
    let whole: Vec<Piece> = moved.filter(|((a, b), _)| a != b).collect();
    let segments: Vec<Segment> = whole.iter().map(|(ends, _)| *ends).collect();
    let mut cuts = Cuts::new();
    let visit = |i: usize, j: usize, work: &mut WorkMeter| {
        let Some((first, second)) = segments.get(i).copied().zip(segments.get(j).copied()) else {
            return Ok(None);
        };
        let before = cuts.len();
        // Where they run along each other, their corners do.
        let met = match meeting(first.0, first.1, second.0, second.1) {
            Meeting::Vertex(p) => Some(p),
            Meeting::Cross => Some(crossing(first.0, first.1, second.0, second.1)),
            Meeting::Apart | Meeting::Overlap(_) => None,
        };
        if let Some(p) = met.map(|p| places.at(p)) {
            cuts.extend([(i, p), (j, p)]);
        }
        for (at, (from, to), corners) in [(i, first, [second.0, second.1]), (j, second, [first.0, first.1])] {
            cuts.extend(corners.into_iter().filter(|p| lies_by(*p, from, to, tolerance)).map(|p| (at, p)));
        }
        work.made(cuts.len() - before)?;
        Ok(None::<()>)
    };
    if segments.len() > MANY {
        pairs_scattered(&segments, 2.0 * tolerance, work, visit)?;
    } else {
        pairs_near(&segments, 2.0 * tolerance, work, visit)?;
    }
    cuts.retain(|(i, p)| segments.get(*i).is_some_and(|(a, b)| p != a && p != b));
    Ok(cut_all(&whole, cuts))
}

/// Whether a place lies close to a segment, and not close to its ends.
fn lies_by(p: Point, a: Point, b: Point, tolerance: f64) -> bool {
    let apart = |q: Point| f64::hypot(p[0] - q[0], p[1] - q[1]) >= tolerance;
    apart(a) && apart(b) && distance(p, a, b) < tolerance
}

/// The places that are taken, by squares of the tolerance.
struct SnapIndex {
    tolerance: f64,
    cells: HashMap<[i64; 2], Vec<Point>>,
}

impl SnapIndex {
    /// The nearest place within the tolerance, else the given one, which is then taken too.
    fn at(&mut self, p: Point) -> Point {
        // A cast of what is too large for it ends at the largest.
        let cell = p.map(|x| (x / self.tolerance).floor() as i64);
        let around = (-1..=1).flat_map(|i| (-1..=1).map(move |j| [i, j]));
        let near = around.filter_map(|by: [i64; 2]| {
            self.cells.get(&[cell[0].saturating_add(by[0]), cell[1].saturating_add(by[1])])
        });
        let apart = |q: &Point| f64::hypot(p[0] - q[0], p[1] - q[1]);
        let nearest = near.flatten().copied().min_by(|q, r| apart(q).total_cmp(&apart(r)));
        match nearest.filter(|q| apart(q) <= self.tolerance) {
            Some(q) => q,
            None => {
                self.cells.entry(cell).or_default().push(p);
                p
            }
        }
    }
}
