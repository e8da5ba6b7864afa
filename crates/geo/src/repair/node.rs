//! Cutting segments where they meet, until they meet only at their ends.
//!
//! A crossing rarely falls on a coordinate that doubles can spell. The rounded place moves the cut
//! segments by a last bit, which may make them meet others. Mostly it does not: then all cuts are made
//! at once, and no coordinate has moved. Else places that lie within a trillionth of the largest
//! coordinate become one (`snap`), or within more, as GEOS does it, so that the same dust vanishes;
//! what still meets after that is cut again until nothing does. Rounds are bounded.

use super::snap;
use crate::validity::{Meeting, Point, crossing, meeting, pairs};

pub(super) type Segment = (Point, Point);

/// A piece, and the place of the segment that it is of.
pub(super) type Piece = (Segment, usize);

const ROUNDS_MAX: usize = 24;

/// The pieces of the segments, in the direction and order of each; they do not cross, and lie on each
/// other from end to end or not at all.
pub(super) fn node(segments: &[Segment]) -> Vec<Piece> {
    let whole: Vec<Piece> = segments.iter().copied().zip(0..).collect();
    let mut pieces = cut_all(&whole, meetings(&whole));
    if meetings(&pieces).is_empty() {
        return pieces;
    }
    for tolerance in snap::tolerances(segments) {
        pieces = snap::node(&whole, tolerance);
        if meetings(&pieces).is_empty() {
            return pieces;
        }
    }
    for _ in 0..ROUNDS_MAX {
        // What needs no new place comes first: else a doubled edge would be cut at two places that
        // differ in the last bit, and a sliver would lie between its halves.
        let mut cuts = touching(&pieces);
        if cuts.is_empty() {
            cuts = crossings(&pieces);
        }
        if cuts.is_empty() {
            break;
        }
        pieces = cut_all(&pieces, cuts);
    }
    pieces
}

/// The places at which pieces are to be cut, by the place of the piece.
pub(super) type Cuts = Vec<(usize, Point)>;

fn meetings(pieces: &[Piece]) -> Cuts {
    let mut cuts = touching(pieces);
    cuts.extend(crossings(pieces));
    cuts
}

fn ends(pieces: &[Piece]) -> Vec<Segment> {
    pieces.iter().map(|(ends, _)| *ends).collect()
}

fn touching(pieces: &[Piece]) -> Cuts {
    let mut cuts = Cuts::new();
    let segments = ends(pieces);
    pairs(&segments, |i, j| {
        let ((a, b), (c, d)) = (*segments.get(i)?, *segments.get(j)?);
        let node = match meeting(a, b, c, d) {
            Meeting::Vertex(p) => Some(p),
            Meeting::Overlap(_) => None,
            Meeting::Apart | Meeting::Cross => return None::<()>,
        };
        for (at, (from, to), ends) in [(i, (a, b), [c, d]), (j, (c, d), [a, b])] {
            for p in ends {
                let meets = node.map_or_else(|| is_between(p, from, to), |node| node == p);
                if meets && p != from && p != to {
                    cuts.push((at, p));
                }
            }
        }
        None
    });
    cuts
}

fn crossings(pieces: &[Piece]) -> Cuts {
    let mut cuts = Cuts::new();
    let segments = ends(pieces);
    pairs(&segments, |i, j| {
        let ((a, b), (c, d)) = (*segments.get(i)?, *segments.get(j)?);
        if meeting(a, b, c, d) == Meeting::Cross {
            let p = crossing(a, b, c, d);
            for (at, (from, to)) in [(i, (a, b)), (j, (c, d))] {
                if p != from && p != to {
                    cuts.push((at, p));
                }
            }
        }
        None::<()>
    });
    cuts
}

fn is_between(p: Point, a: Point, b: Point) -> bool {
    (0..2).all(|i| a[i].min(b[i]) <= p[i] && p[i] <= a[i].max(b[i]))
}

/// The pieces of pieces.
pub(super) fn cut_all(whole: &[Piece], mut cuts: Cuts) -> Vec<Piece> {
    let along = |at: usize, p: Point| {
        whole.get(at).map_or([0.0; 2], |((a, b), _)| {
            let axis = usize::from((b[0] - a[0]).abs() < (b[1] - a[1]).abs());
            [axis, 1 - axis].map(|axis| (p[axis] - a[axis]).abs())
        })
    };
    let order = |i: usize, p: Point, q: Point| {
        let (p, q) = (along(i, p), along(i, q));
        p[0].total_cmp(&q[0]).then(p[1].total_cmp(&q[1]))
    };
    cuts.sort_by(|(i, p), (j, q)| i.cmp(j).then_with(|| order(*i, *p, *q)));
    let mut cuts = cuts.into_iter().peekable();
    let mut pieces = Vec::with_capacity(whole.len() * 2);
    for (at, ((a, b), source)) in whole.iter().copied().enumerate() {
        let mut from = a;
        while let Some((_, p)) = cuts.next_if(|(piece, _)| *piece == at) {
            if p != from {
                pieces.push(((from, p), source));
                from = p;
            }
        }
        if from != b {
            pieces.push(((from, b), source));
        }
    }
    pieces
}
