//! The rules of surfaces.

use super::locate::{Location, crosses, is_nested, locate};
use super::pair::{Meeting, crossing, meeting};
use super::rings::{Ring, Rings};
use super::touch::Touches;
use super::{Flaw, Point, Reason, flaw, tree};
use crate::bounds::Bounds;

/// So many rings are worth sorting by where they lie.
const RINGS_MANY: usize = 256;

/// One edge: its ring, and its place in it.
#[derive(Clone, Copy, Debug)]
struct Edge {
    ring: usize,
    at: usize,
}

/// The first flaw of the surface, once each ring is sound alone.
pub(super) fn first_flaw(rings: &mut Rings) -> Option<Flaw> {
    let mut touches = Touches::new(rings.all().len());
    intersections(rings, &mut touches)
        .or_else(|| rings.by_polygon().find_map(|polygon| hole_outside(rings, polygon)))
        .or_else(|| rings.by_polygon().find_map(|polygon| nested_hole(rings, polygon)))
        .or_else(|| nested_shell(rings))
        .or_else(|| {
            touches.double.or_else(|| touches.cycle()).map(|at| flaw(Reason::DisconnectedInterior, at))
        })
}

fn intersections(rings: &Rings, touches: &mut Touches) -> Option<Flaw> {
    let mut edges = Vec::new();
    let mut segments = Vec::new();
    for (ring, place) in rings.all().iter().enumerate() {
        let points = rings.points(place);
        for (at, (a, b)) in points.iter().zip(points.iter().skip(1)).enumerate() {
            edges.push(Edge { ring, at });
            segments.push((*a, *b));
        }
    }
    let visit = |i: usize, j: usize| {
        let ((a, b), (c, d)) = (*segments.get(i)?, *segments.get(j)?);
        let (first, second) = (*edges.get(i)?, *edges.get(j)?);
        let node = match meeting(a, b, c, d) {
            Meeting::Apart => return None,
            Meeting::Cross => return Some(flaw(Reason::SelfIntersection, crossing(a, b, c, d))),
            Meeting::Overlap(at) => return Some(flaw(Reason::SelfIntersection, at)),
            Meeting::Vertex(at) => at,
        };
        if first.ring == second.ring {
            let count = rings.all().get(first.ring).map_or(0, |ring| ring.end - ring.start - 1);
            let gap = second.at - first.at;
            let adjacent = gap <= 1 || gap + 1 >= count;
            return (!adjacent).then(|| flaw(Reason::RingSelfIntersection, node));
        }
        // An end of one edge is the start of the next: each touch is looked at once.
        if node == b || node == d {
            return None;
        }
        let chain = |edge: Edge, a: Point, b: Point| -> Option<(Point, Point)> {
            Some((if node == a { before(rings, rings.all().get(edge.ring)?, edge.at) } else { a }, b))
        };
        if crosses(node, chain(first, a, b)?, chain(second, c, d)?) {
            return Some(flaw(Reason::SelfIntersection, node));
        }
        let polygon = |edge: Edge| rings.all().get(edge.ring).map(|ring| ring.polygon);
        if polygon(first) == polygon(second) {
            touches.add(first.ring, second.ring, node);
        }
        None
    };
    // Rings follow each other in any order; if there are many, one is seldom near the next.
    if rings.all().len() > RINGS_MANY {
        tree::pairs_scattered(&segments, 0.0, visit)
    } else {
        tree::pairs(&segments, visit)
    }
}

fn before(rings: &Rings, ring: &Ring, at: usize) -> Point {
    rings.point(if at == 0 { ring.end - 2 } else { ring.start + at - 1 })
}

fn covers(outer: Bounds, inner: Bounds) -> bool {
    outer.min_x <= inner.min_x
        && inner.max_x <= outer.max_x
        && outer.min_y <= inner.min_y
        && inner.max_y <= outer.max_y
}

fn start(rings: &Rings, ring: &Ring) -> Point {
    rings.point(ring.start)
}

fn hole_outside(rings: &Rings, polygon: &[Ring]) -> Option<Flaw> {
    let (shell, holes) = polygon.split_first()?;
    let outside = |hole: &&Ring| {
        !covers(shell.bounds, hole.bounds) || !is_nested(rings.points(hole), rings.points(shell))
    };
    holes.iter().find(outside).map(|hole| flaw(Reason::HoleOutsideShell, start(rings, hole)))
}

/// Pairs of boxes where the second covers the first, found along x so that many small rings side
/// by side cost little.
fn covered_pairs<'a, T>(
    rings: impl Iterator<Item = &'a Ring>,
    mut visit: impl FnMut(&'a Ring, &'a Ring) -> Option<T>,
) -> Option<T> {
    let mut sorted: Vec<&Ring> = rings.collect();
    sorted.sort_by(|a, b| {
        a.bounds.min_x.total_cmp(&b.bounds.min_x).then(b.bounds.max_x.total_cmp(&a.bounds.max_x))
    });
    let mut open: Vec<&Ring> = Vec::new();
    for ring in sorted {
        open.retain(|other| other.bounds.max_x >= ring.bounds.min_x);
        for other in &open {
            for (inner, outer) in [(ring, *other), (*other, ring)] {
                if covers(outer.bounds, inner.bounds)
                    && let Some(found) = visit(inner, outer)
                {
                    return Some(found);
                }
            }
        }
        open.push(ring);
    }
    None
}

fn nested_hole(rings: &Rings, polygon: &[Ring]) -> Option<Flaw> {
    covered_pairs(polygon.iter().skip(1), |hole, outer| {
        is_nested(rings.points(hole), rings.points(outer))
            .then(|| flaw(Reason::NestedHoles, start(rings, hole)))
    })
}

fn nested_shell(rings: &Rings) -> Option<Flaw> {
    let holes_of = |polygon: usize| {
        let from = rings.all().partition_point(|ring| ring.polygon < polygon);
        let to = rings.all().partition_point(|ring| ring.polygon <= polygon);
        rings.all().get(from + 1..to).unwrap_or_default()
    };
    covered_pairs(rings.by_polygon().filter_map(<[Ring]>::first), |shell, outer| {
        let (inner_points, outer_points) = (rings.points(shell), rings.points(outer));
        let holes = holes_of(outer.polygon);
        for p in inner_points.iter().take(2) {
            match locate_in_polygon(rings, *p, outer_points, holes) {
                Location::Inside => return Some(flaw(Reason::NestedShells, *p)),
                Location::Outside => return None,
                Location::OnEdge => {}
            }
        }
        let in_shell = is_nested(inner_points, outer_points);
        let in_hole = holes
            .iter()
            .any(|hole| covers(hole.bounds, shell.bounds) && is_nested(inner_points, rings.points(hole)));
        (in_shell && !in_hole).then(|| flaw(Reason::NestedShells, start(rings, shell)))
    })
}

fn locate_in_polygon(rings: &Rings, p: Point, shell: &[Point], holes: &[Ring]) -> Location {
    let in_shell = locate(p, shell);
    if in_shell != Location::Inside {
        return in_shell;
    }
    for hole in holes {
        match locate(p, rings.points(hole)) {
            Location::Inside => return Location::Outside,
            Location::OnEdge => return Location::OnEdge,
            Location::Outside => {}
        }
    }
    Location::Inside
}
