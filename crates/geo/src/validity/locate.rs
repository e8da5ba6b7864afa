//! Where a point lies from a ring, and where a segment goes from a corner.

use super::Point;
use super::boxes::{Box2, BoxTree};
use super::side::side;
use crate::limits::{WorkBound, WorkMeter};

/// Where a point lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Inside,
    OnEdge,
    Outside,
}

/// What an edge says of a point: that it lies on the edge (`None`), or whether the edge counts.
fn passes(p: Point, a: Point, b: Point) -> Option<bool> {
    if a[0] < p[0] && b[0] < p[0] {
        return Some(false);
    }
    if p == b {
        return None;
    }
    if a[1] == p[1] && b[1] == p[1] {
        let is_on = a[0].min(b[0]) <= p[0] && p[0] <= a[0].max(b[0]);
        return (!is_on).then_some(false);
    }
    if (a[1] > p[1]) == (b[1] > p[1]) {
        return Some(false);
    }
    let turn = side(a, b, p);
    (turn != 0.0).then_some((turn > 0.0) == (b[1] > a[1]))
}

fn location(p: Point, edges: impl Iterator<Item = (Point, Point)>) -> Location {
    let mut inside = false;
    for (a, b) in edges {
        match passes(p, a, b) {
            None => return Location::OnEdge,
            Some(counts) => inside ^= counts,
        }
    }
    if inside { Location::Inside } else { Location::Outside }
}

/// Where a point lies from a closed ring, by counting the edges to its right.
pub(crate) fn locate(p: Point, ring: &[Point]) -> Location {
    location(p, ring.iter().copied().zip(ring.iter().copied().skip(1)))
}

/// So many edges of a ring are worth an index.
const EDGES_MANY: usize = 64;

/// A ring in which many points are located: only edges are looked at that may count.
#[derive(Debug)]
pub(crate) struct IndexedRing<'a> {
    ring: &'a [Point],
    /// Whether it runs counter-clockwise, once that was asked for.
    turn: Option<bool>,
    tree: Option<BoxTree>,
    found: Vec<usize>,
}

impl<'a> IndexedRing<'a> {
    pub(crate) fn new(ring: &'a [Point]) -> IndexedRing<'a> {
        let edges = || ring.iter().zip(ring.iter().skip(1)).map(|(a, b)| Box2::of(*a, *b));
        let tree = (ring.len() > EDGES_MANY).then(|| BoxTree::of_path(edges().collect()));
        IndexedRing { ring, turn: None, tree, found: Vec::new() }
    }

    /// As [`locate`].
    pub(crate) fn locate(&mut self, p: Point, work: &mut WorkMeter) -> Result<Location, WorkBound> {
        let Some(tree) = &self.tree else {
            work.take(self.ring.len())?;
            return Ok(locate(p, self.ring));
        };
        let may_count = |b: &Box2| b.min[1] <= p[1] && p[1] <= b.max[1] && p[0] <= b.max[0];
        tree.find(work, may_count, &mut self.found)?;
        work.take(self.found.len())?;
        let edges = self.found.iter().filter_map(|at| Some((*self.ring.get(*at)?, *self.ring.get(at + 1)?)));
        Ok(location(p, edges))
    }

    /// As [`is_nested`].
    pub(crate) fn holds(&mut self, ring: &[Point], work: &mut WorkMeter) -> Result<bool, WorkBound> {
        let Some(first) = ring.first().copied() else { return Ok(false) };
        match self.locate(first, work)? {
            Location::Inside => Ok(true),
            Location::Outside => Ok(false),
            Location::OnEdge => {
                work.take(self.ring.len())?;
                let turn = *self.turn.get_or_insert_with(|| is_counter_clockwise(self.ring));
                Ok(leads_inside(ring, self.ring, turn))
            }
        }
    }
}

/// Whether `ring` lies in `outer`, given that the two do not cross. Decided by its first position,
/// or, if that lies on the edge, by where the ring goes from there.
pub(crate) fn is_nested(ring: &[Point], outer: &[Point]) -> bool {
    let Some(first) = ring.first().copied() else { return false };
    match locate(first, outer) {
        Location::Inside => return true,
        Location::Outside => return false,
        Location::OnEdge => {}
    }
    leads_inside(ring, outer, is_counter_clockwise(outer))
}

/// Whether a ring that starts on the edge of another goes inside of it.
fn leads_inside(ring: &[Point], outer: &[Point], is_counter_clockwise: bool) -> bool {
    let Some(first) = ring.first().copied() else { return false };
    let Some(next) = ring.iter().copied().find(|p| *p != first) else { return false };
    let Some((before, after)) = corner(first, outer) else { return false };
    let (before, after) = if is_counter_clockwise { (after, before) } else { (before, after) };
    goes_inside(first, before, after, next)
}

/// The positions before and after a point on a ring's edge.
fn corner(p: Point, ring: &[Point]) -> Option<(Point, Point)> {
    let open = ring.get(..ring.len().saturating_sub(1))?;
    if let Some(at) = open.iter().position(|q| *q == p) {
        let before = open.get((at + open.len() - 1) % open.len())?;
        return Some((*before, *ring.get(at + 1)?));
    }
    let mut edges = ring.iter().copied().zip(ring.iter().copied().skip(1));
    edges.find(|(a, b)| {
        (0..2).all(|i| a[i].min(b[i]) <= p[i] && p[i] <= a[i].max(b[i])) && side(*a, *b, p) == 0.0
    })
}

/// By the turn at the lowest of the leftmost corners, which is convex.
pub(crate) fn is_counter_clockwise(ring: &[Point]) -> bool {
    let Some(open) = ring.get(..ring.len().saturating_sub(1)) else { return false };
    let least =
        open.iter().enumerate().min_by(|(_, a), (_, b)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let Some((at, least)) = least else { return false };
    let before = open.get((at + open.len() - 1) % open.len()).copied().unwrap_or_default();
    let after = open.get((at + 1) % open.len()).copied().unwrap_or_default();
    side(before, *least, after) > 0.0
}

/// Whether the segment from `node` to `p` goes to the right of the corner `before`, `node`,
/// `after`.
fn goes_inside(node: Point, before: Point, after: Point, p: Point) -> bool {
    let swapped = is_angle_greater(node, before, after);
    let (low, high) = if swapped { (after, before) } else { (before, after) };
    let between = is_angle_greater(node, p, low) && !is_angle_greater(node, p, high);
    between != swapped
}

/// Whether two chains through one node cross there: the ends of one lie on different sides of the
/// other. Ends that run along the other do not cross.
pub(super) fn crosses(node: Point, a: (Point, Point), b: (Point, Point)) -> bool {
    let (low, high) = if is_angle_greater(node, a.0, a.1) { (a.1, a.0) } else { a };
    let between = |p: Point| {
        let (from_low, from_high) = (compare_angle(node, p, low), compare_angle(node, p, high));
        use std::cmp::Ordering::{Equal, Greater, Less};
        match (from_low, from_high) {
            (Equal, _) | (_, Equal) => None,
            (Greater, Less) => Some(true),
            _ => Some(false),
        }
    };
    matches!((between(b.0), between(b.1)), (Some(first), Some(second)) if first != second)
}

fn is_angle_greater(node: Point, p: Point, q: Point) -> bool {
    compare_angle(node, p, q).is_gt()
}

/// Compares the angles of two directions from a node, counter-clockwise from the east: first by
/// quadrant, then exactly by side.
pub(crate) fn compare_angle(node: Point, p: Point, q: Point) -> std::cmp::Ordering {
    let quadrant = |p: Point| match (p[0] >= node[0], p[1] >= node[1]) {
        (true, true) => 0,
        (false, true) => 1,
        (false, false) => 2,
        (true, false) => 3,
    };
    quadrant(p)
        .cmp(&quadrant(q))
        .then_with(|| side(node, q, p).partial_cmp(&0.0).unwrap_or(std::cmp::Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARE: [Point; 5] = [[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0], [0.0, 0.0]];

    #[test]
    fn points_are_inside_on_the_edge_or_outside() {
        for (p, want) in [
            ([1.0, 1.0], Location::Inside),
            ([4.0, 1.0], Location::OnEdge),
            ([0.0, 0.0], Location::OnEdge),
            ([2.0, 4.0], Location::OnEdge),
            ([5.0, 4.0], Location::Outside),
            ([-1.0, 0.0], Location::Outside),
            ([2.0, 5.0], Location::Outside),
        ] {
            assert_eq!(locate(p, &SQUARE), want, "{p:?}");
        }
    }

    #[test]
    fn a_ring_that_starts_on_the_edge_is_judged_by_where_it_goes() {
        let inward = [[4.0, 2.0], [2.0, 1.0], [2.0, 3.0], [4.0, 2.0]];
        let outward = [[4.0, 2.0], [6.0, 1.0], [6.0, 3.0], [4.0, 2.0]];
        let mut clockwise = SQUARE;
        clockwise.reverse();
        for outer in [SQUARE, clockwise] {
            assert!(is_nested(&inward, &outer));
            assert!(!is_nested(&outward, &outer));
        }
        let at_corner = [[0.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 0.0]];
        let away = [[0.0, 0.0], [-2.0, 1.0], [-1.0, 2.0], [0.0, 0.0]];
        assert!(is_nested(&at_corner, &SQUARE) && !is_nested(&away, &SQUARE));
    }

    #[test]
    fn chains_that_touch_do_not_cross() {
        let o = [0.0, 0.0];
        let a = ([-1.0, 0.0], [1.0, 0.0]);
        assert!(crosses(o, a, ([0.0, -1.0], [0.0, 1.0])));
        assert!(!crosses(o, a, ([-1.0, 1.0], [1.0, 1.0])));
        assert!(!crosses(o, a, ([1.0, 0.0], [0.0, -1.0])));
    }
}
