//! Cutting segments where they meet, until they meet only at their ends.
//!
//! A crossing rarely falls on a coordinate that doubles can spell. The rounded place moves the cut
//! segments by a last bit, which may make them meet others. Mostly it does not: then all cuts are made
//! at once, and no coordinate has moved. Else places that lie within a trillionth of the largest
//! coordinate become one (`snap`), or within more, as GEOS does it, so that the same dust vanishes;
//! what still meets after that is cut again until nothing does. Rounds are bounded.

use std::collections::HashMap;

use super::snap;
use crate::limits::{WorkBound, WorkMeter};
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
pub(super) fn node(segments: &[Segment], work: &mut WorkMeter) -> Result<Vec<Piece>, WorkBound> {
    work.made(segments.len())?;
    let alike = Alike::of(segments);
    let pieces = node_each(&alike.each, work)?;
    // What was cut has been counted once for those that are alike.
    work.made(pieces.iter().map(|(_, source)| alike.count(*source).saturating_sub(1)).sum())?;
    Ok(alike.all(&pieces))
}

/// Segments that lie on each other from end to end, taken once: ten thousand rings that are one would meet each
/// other a hundred million times.
struct Alike {
    /// One of each.
    each: Vec<Segment>,
    /// The segments that it stands for, and whether they run against it.
    members: Vec<Vec<(usize, bool)>>,
}

impl Alike {
    fn of(segments: &[Segment]) -> Alike {
        let bits = |p: Point| p.map(|x| (x + 0.0).to_bits());
        let mut known: HashMap<[[u64; 2]; 2], usize> = HashMap::with_capacity(segments.len());
        let mut alike = Alike { each: Vec::new(), members: Vec::new() };
        for (at, (a, b)) in segments.iter().copied().enumerate() {
            let (from, to) = (bits(a), bits(b));
            let is_turned = from > to;
            let ends = if is_turned { [to, from] } else { [from, to] };
            let number = *known.entry(ends).or_insert_with(|| {
                alike.each.push((a, b));
                alike.members.push(Vec::new());
                alike.each.len() - 1
            });
            let against = alike.each.get(number).is_some_and(|(first, _)| bits(*first) != from);
            if let Some(members) = alike.members.get_mut(number) {
                members.push((at, against));
            }
        }
        alike
    }

    fn count(&self, source: usize) -> usize {
        self.members.get(source).map_or(0, Vec::len)
    }

    /// The pieces of all segments, in the order and the direction of each.
    fn all(&self, pieces: &[Piece]) -> Vec<Piece> {
        let mut all = Vec::with_capacity(pieces.len());
        for some in pieces.chunk_by(|(_, a), (_, b)| a == b) {
            let source = some.first().map_or(0, |(_, source)| *source);
            for (member, against) in self.members.get(source).into_iter().flatten() {
                if *against {
                    all.extend(some.iter().rev().map(|((a, b), _)| ((*b, *a), *member)));
                } else {
                    all.extend(some.iter().map(|(ends, _)| (*ends, *member)));
                }
            }
        }
        // As if each had been cut for itself.
        all.sort_by_key(|(_, source)| *source);
        all
    }
}

fn node_each(segments: &[Segment], work: &mut WorkMeter) -> Result<Vec<Piece>, WorkBound> {
    let whole: Vec<Piece> = segments.iter().copied().zip(0..).collect();
    let mut pieces = cut_all(&whole, meetings(&whole, work)?.all());
    if meetings(&pieces, work)?.is_none() {
        return Ok(pieces);
    }
    for tolerance in snap::tolerances(segments) {
        pieces = snap::node(&whole, tolerance, work)?;
        if meetings(&pieces, work)?.is_none() {
            return Ok(pieces);
        }
    }
    for _ in 0..ROUNDS_MAX {
        // What needs no new place comes first: else a doubled edge would be cut at two places that
        // differ in the last bit, and a sliver would lie between its halves.
        let found = meetings(&pieces, work)?;
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

fn meetings(pieces: &[Piece], work: &mut WorkMeter) -> Result<Meetings, WorkBound> {
    let mut found = Meetings::default();
    let segments: Vec<Segment> = pieces.iter().map(|(ends, _)| *ends).collect();
    let visit = |i: usize, j: usize, work: &mut WorkMeter| {
        let Some(((a, b), (c, d))) = segments.get(i).copied().zip(segments.get(j).copied()) else {
            return Ok(None);
        };
        let node = match meeting(a, b, c, d) {
            Meeting::Apart => return Ok(None),
            Meeting::Cross => {
                let p = crossing(a, b, c, d);
                for (at, (from, to)) in [(i, (a, b)), (j, (c, d))] {
                    if p != from && p != to {
                        found.crossing.push((at, p));
                    }
                }
                work.crossed()?;
                return Ok(None);
            }
            Meeting::Vertex(p) => Some(p),
            Meeting::Overlap(_) => None,
        };
        for (at, (from, to), ends) in [(i, (a, b), [c, d]), (j, (c, d), [a, b])] {
            for p in ends {
                let meets = node.map_or_else(|| is_between(p, from, to), |node| node == p);
                if meets && p != from && p != to {
                    found.touching.push((at, p));
                    work.made(1)?;
                }
            }
        }
        Ok(None::<()>)
    };
    if segments.len() > MANY {
        pairs_scattered(&segments, 0.0, work, visit)?;
    } else {
        pairs(&segments, work, visit)?;
    }
    Ok(found)
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
