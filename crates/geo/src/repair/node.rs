//! Cutting segments where they meet, until they meet only at their ends.
//!
//! A crossing rarely falls on a coordinate that doubles can spell. The rounded place moves the cut
//! segments by a last bit, which may make them meet others. Mostly it does not: then all cuts are made
//! at once, and no coordinate has moved. Else places that lie within a trillionth of the largest
//! coordinate become one (`snap`), or within more, as GEOS does it, so that the same dust vanishes;
//! what still meets after that is cut again until nothing does. Rounds are bounded.

use super::effort::{Effort, TooCostly};
use super::snap;
use crate::validity::{Meeting, Point, crossing, meeting, pairs, pairs_scattered};

pub(super) type Segment = (Point, Point);

/// A piece, and the place of the segment that it is of.
pub(super) type Piece = (Segment, usize);

const ROUNDS_MAX: usize = 24;

/// So many pieces are worth sorting by where they lie: those of a segment that is cut often follow each other far
/// across the drawing.
pub(super) const MANY: usize = 4096;

/// The pieces of the segments, in the direction and order of each; they do not cross, and lie on each
/// other from end to end or not at all.
pub(super) fn node(segments: &[Segment], effort: &mut Effort) -> Result<Vec<Piece>, TooCostly> {
    let whole: Vec<Piece> = segments.iter().copied().zip(0..).collect();
    let mut pieces = cut_all(&whole, meetings(&whole, effort)?.all());
    if meetings(&pieces, effort)?.is_none() {
        return Ok(pieces);
    }
    for tolerance in snap::tolerances(segments) {
        pieces = snap::node(&whole, tolerance, effort)?;
        if meetings(&pieces, effort)?.is_none() {
            return Ok(pieces);
        }
    }
    for _ in 0..ROUNDS_MAX {
        // What needs no new place comes first: else a doubled edge would be cut at two places that
        // differ in the last bit, and a sliver would lie between its halves.
        let found = meetings(&pieces, effort)?;
        let cuts = if found.touching.is_empty() { found.crossing } else { found.touching };
        if cuts.is_empty() {
            break;
        }
        pieces = cut_all(&pieces, cuts);
    }
    Ok(pieces)
}

/// The places at which pieces are to be cut, by the place of the piece.
pub(super) type Cuts = Vec<(usize, Point)>;

/// Where pieces meet other than at their ends.
#[derive(Debug, Default)]
struct Meetings {
    /// At a corner of one of them.
    touching: Cuts,
    /// Where neither has a corner.
    crossing: Cuts,
}

impl Meetings {
    fn is_none(&self) -> bool {
        self.touching.is_empty() && self.crossing.is_empty()
    }

    fn all(mut self) -> Cuts {
        self.touching.append(&mut self.crossing);
        self.touching
    }
}

fn meetings(pieces: &[Piece], effort: &mut Effort) -> Result<Meetings, TooCostly> {
    let mut found = Meetings::default();
    let segments: Vec<Segment> = pieces.iter().map(|(ends, _)| *ends).collect();
    let visit = |i: usize, j: usize| {
        let ((a, b), (c, d)) = (*segments.get(i)?, *segments.get(j)?);
        let node = match meeting(a, b, c, d) {
            Meeting::Apart => return effort.saw_pair(0).err(),
            Meeting::Cross => {
                let p = crossing(a, b, c, d);
                for (at, (from, to)) in [(i, (a, b)), (j, (c, d))] {
                    if p != from && p != to {
                        found.crossing.push((at, p));
                    }
                }
                return effort.saw_pair(pieces.len() + found.crossing.len()).err();
            }
            Meeting::Vertex(p) => Some(p),
            Meeting::Overlap(_) => None,
        };
        for (at, (from, to), ends) in [(i, (a, b), [c, d]), (j, (c, d), [a, b])] {
            for p in ends {
                let meets = node.map_or_else(|| is_between(p, from, to), |node| node == p);
                if meets && p != from && p != to {
                    found.touching.push((at, p));
                }
            }
        }
        effort.saw_pair(pieces.len() + found.touching.len()).err()
    };
    let stopped =
        if segments.len() > MANY { pairs_scattered(&segments, 0.0, visit) } else { pairs(&segments, visit) };
    stopped.map_or(Ok(found), Err)
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
