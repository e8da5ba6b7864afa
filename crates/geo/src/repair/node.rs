//! Cutting segments where they meet, until they meet only at their ends.
//!
//! First all cuts that need no new place: where an end touches, and along overlaps, after which
//! pieces that lie on each other are one. Only then crossings, whose place must be computed. In
//! the other order a doubled edge would be cut at two places that differ in the last bit, and a
//! sliver would lie between its halves.
//!
//! A crossing rarely falls on a coordinate that doubles can spell. The rounded place moves the cut
//! segments by a last bit, which may make them meet others; so it is done again until nothing new
//! meets. Rounds are few in practice and bounded.

use crate::validity::{Meeting, Point, crossing, meeting, pairs};

const ROUNDS_MAX: usize = 24;

/// The pieces of the segments; no two cross, overlap or are the same.
pub(super) fn node(mut segments: Vec<(Point, Point)>) -> Vec<(Point, Point)> {
    for _ in 0..ROUNDS_MAX {
        unite(&mut segments);
        let mut cuts = touching(&segments);
        if cuts.is_empty() {
            cuts = crossings(&segments);
        }
        if cuts.is_empty() {
            break;
        }
        segments = cut_all(&segments, cuts);
    }
    unite(&mut segments);
    segments
}

/// Each segment from its lesser end, once, in an order that keeps neighbours near.
fn unite(segments: &mut Vec<(Point, Point)>) {
    let order = |p: &Point, q: &Point| p[0].total_cmp(&q[0]).then(p[1].total_cmp(&q[1]));
    for (a, b) in segments.iter_mut() {
        *a = a.map(|x| x + 0.0);
        *b = b.map(|x| x + 0.0);
        if order(a, b).is_gt() {
            std::mem::swap(a, b);
        }
    }
    segments.retain(|(a, b)| a != b);
    segments.sort_by(|(a, b), (c, d)| order(a, c).then_with(|| order(b, d)));
    segments.dedup();
}

type Cuts = Vec<(usize, Point)>;

fn touching(segments: &[(Point, Point)]) -> Cuts {
    let mut cuts = Cuts::new();
    pairs(segments, |i, j| {
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

fn crossings(segments: &[(Point, Point)]) -> Cuts {
    let mut cuts = Cuts::new();
    pairs(segments, |i, j| {
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

fn cut_all(segments: &[(Point, Point)], mut cuts: Vec<(usize, Point)>) -> Vec<(Point, Point)> {
    let along = |at: usize, p: Point| {
        segments.get(at).map_or(0.0, |(a, b)| {
            let axis = usize::from((b[0] - a[0]).abs() < (b[1] - a[1]).abs());
            (p[axis] - a[axis]).abs()
        })
    };
    cuts.sort_by(|(i, p), (j, q)| i.cmp(j).then(along(*i, *p).total_cmp(&along(*j, *q))));
    let mut cuts = cuts.into_iter().peekable();
    let mut pieces = Vec::with_capacity(segments.len() * 2);
    for (at, (a, b)) in segments.iter().copied().enumerate() {
        let mut from = a;
        while let Some((_, p)) = cuts.next_if(|(segment, _)| *segment == at) {
            if p != from {
                pieces.push((from, p));
                from = p;
            }
        }
        pieces.push((from, b));
    }
    pieces
}
