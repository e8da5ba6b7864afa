//! The rules of surfaces.

use std::collections::HashMap;

use super::boxes::{Box2, BoxTree};
use super::locate::{IndexedRing, Location, crosses};
use super::pair::{Meeting, crossing, meeting};
use super::rings::{Ring, Rings};
use super::touch::Touches;
use super::{Flaw, Point, Reason, flaw, tree};
use crate::bounds::Bounds;
use crate::limits::{WorkBound, WorkMeter};

/// What a rule finds, if the work was not too much.
type FlawResult = Result<Option<Flaw>, WorkBound>;

/// So many rings are worth sorting by where they lie.
const RINGS_MANY: usize = 256;

/// One edge: its ring, and its place in it.
#[derive(Clone, Copy, Debug)]
struct Edge {
    ring: usize,
    at: usize,
}

/// The first flaw of the surface, once each ring is sound alone.
pub(super) fn first_flaw(rings: &mut Rings, work: &mut WorkMeter) -> FlawResult {
    let (rings, mut touches) = (&*rings, Touches::new(rings.all().len()));
    if let Some(found) = intersections(rings, &mut touches, work)? {
        return Ok(Some(found));
    }
    let mut finder = RingFinder::new(rings);
    if let Some(found) = each_polygon(&mut finder, work, hole_outside)? {
        return Ok(Some(found));
    }
    if let Some(found) = each_polygon(&mut finder, work, nested_hole)? {
        return Ok(Some(found));
    }
    if let Some(found) = nested_shell(&mut finder, work)? {
        return Ok(Some(found));
    }
    Ok(touches.double.or_else(|| touches.cycle()).map(|at| flaw(Reason::DisconnectedInterior, at)))
}

fn each_polygon(
    finder: &mut RingFinder<'_>,
    work: &mut WorkMeter,
    rule: impl Fn(&mut RingFinder<'_>, &[Ring], &mut WorkMeter) -> FlawResult,
) -> FlawResult {
    let rings = finder.rings;
    for polygon in rings.by_polygon() {
        let found = rule(finder, polygon, work)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn intersections(rings: &Rings, touches: &mut Touches, work: &mut WorkMeter) -> FlawResult {
    let mut edges = Vec::new();
    let mut segments = Vec::new();
    for (ring, place) in rings.all().iter().enumerate() {
        let points = rings.points(place);
        for (at, (a, b)) in points.iter().zip(points.iter().skip(1)).enumerate() {
            edges.push(Edge { ring, at });
            segments.push((*a, *b));
        }
    }
    let visit = |i: usize, j: usize, work: &mut WorkMeter| {
        let (Some(((a, b), (c, d))), Some((first, second))) = (
            segments.get(i).copied().zip(segments.get(j).copied()),
            edges.get(i).copied().zip(edges.get(j).copied()),
        ) else {
            return Ok(None);
        };
        let node = match meeting(a, b, c, d) {
            Meeting::Apart => return Ok(None),
            Meeting::Cross => return Ok(Some(flaw(Reason::SelfIntersection, crossing(a, b, c, d)))),
            Meeting::Overlap(at) => return Ok(Some(flaw(Reason::SelfIntersection, at))),
            Meeting::Vertex(at) => at,
        };
        if first.ring == second.ring {
            let count = rings.all().get(first.ring).map_or(0, |ring| ring.end - ring.start - 1);
            let gap = second.at - first.at;
            let adjacent = gap <= 1 || gap + 1 >= count;
            return Ok((!adjacent).then(|| flaw(Reason::RingSelfIntersection, node)));
        }
        // An end of one edge is the start of the next: each touch is looked at once.
        if node == b || node == d {
            return Ok(None);
        }
        let chain = |edge: Edge, a: Point, b: Point| -> Option<(Point, Point)> {
            Some((if node == a { before(rings, rings.all().get(edge.ring)?, edge.at) } else { a }, b))
        };
        let (Some(one), Some(other)) = (chain(first, a, b), chain(second, c, d)) else { return Ok(None) };
        if crosses(node, one, other) {
            return Ok(Some(flaw(Reason::SelfIntersection, node)));
        }
        let polygon = |edge: Edge| rings.all().get(edge.ring).map(|ring| ring.polygon);
        if polygon(first) == polygon(second) {
            work.take(touches.add(first.ring, second.ring, node))?;
        }
        Ok(None)
    };
    // Rings follow each other in any order; if there are many, one is seldom near the next.
    if rings.all().len() > RINGS_MANY {
        tree::pairs_scattered(&segments, 0.0, work, visit)
    } else {
        tree::pairs(&segments, work, visit)
    }
}

fn before(rings: &Rings, ring: &Ring, at: usize) -> Point {
    rings.point(if at == 0 { ring.end - 2 } else { ring.start + at - 1 })
}

fn start(rings: &Rings, ring: &Ring) -> Point {
    rings.point(ring.start)
}

/// The rings of a surface, each with an index once something is located in it.
struct RingFinder<'a> {
    rings: &'a Rings,
    indexed: HashMap<usize, IndexedRing<'a>>,
}

impl<'a> RingFinder<'a> {
    fn new(rings: &'a Rings) -> RingFinder<'a> {
        RingFinder { rings, indexed: HashMap::new() }
    }

    fn indexed(&mut self, ring: &Ring) -> &mut IndexedRing<'a> {
        let rings = self.rings;
        self.indexed.entry(ring.start).or_insert_with(|| IndexedRing::new(rings.points(ring)))
    }

    /// Whether a ring lies in another, given that they do not cross.
    fn nested(&mut self, inner: &Ring, outer: &Ring, work: &mut WorkMeter) -> Result<bool, WorkBound> {
        let points = self.rings.points(inner);
        self.indexed(outer).holds(points, work)
    }

    fn locate_in_polygon(
        &mut self,
        p: Point,
        shell: &Ring,
        holes: &[Ring],
        work: &mut WorkMeter,
    ) -> Result<Location, WorkBound> {
        let in_shell = self.indexed(shell).locate(p, work)?;
        if in_shell != Location::Inside {
            return Ok(in_shell);
        }
        for hole in holes {
            work.take(1)?;
            if !box_of(hole).holds(p) {
                continue;
            }
            match self.indexed(hole).locate(p, work)? {
                Location::Inside => return Ok(Location::Outside),
                Location::OnEdge => return Ok(Location::OnEdge),
                Location::Outside => {}
            }
        }
        Ok(Location::Inside)
    }
}

fn box_of(ring: &Ring) -> Box2 {
    let Bounds { min_x, min_y, max_x, max_y } = ring.bounds;
    Box2 { min: [min_x, min_y], max: [max_x, max_y] }
}

fn hole_outside(finder: &mut RingFinder<'_>, polygon: &[Ring], work: &mut WorkMeter) -> FlawResult {
    let Some((shell, holes)) = polygon.split_first() else { return Ok(None) };
    for hole in holes {
        work.take(1)?;
        if !box_of(shell).covers(&box_of(hole)) || !finder.nested(hole, shell, work)? {
            return Ok(Some(flaw(Reason::HoleOutsideShell, start(finder.rings, hole))));
        }
    }
    Ok(None)
}

/// Pairs of boxes where the second covers the first, along x.
fn covered_pairs<'a>(
    rings: impl Iterator<Item = &'a Ring>,
    work: &mut WorkMeter,
    mut visit: impl FnMut(&'a Ring, &'a Ring, &mut WorkMeter) -> FlawResult,
) -> FlawResult {
    let mut sorted: Vec<&Ring> = rings.collect();
    if sorted.len() < 2 {
        return Ok(None);
    }
    sorted.sort_by(|a, b| {
        a.bounds.min_x.total_cmp(&b.bounds.min_x).then(b.bounds.max_x.total_cmp(&a.bounds.max_x))
    });
    let boxes: Vec<Box2> = sorted.iter().map(|ring| box_of(ring)).collect();
    let (tree, mut covering) = (BoxTree::of_scattered(&boxes), Vec::new());
    for (at, inner) in sorted.iter().enumerate() {
        let Some(own) = boxes.get(at) else { continue };
        tree.find(work, |b| b.covers(own), &mut covering)?;
        covering.sort_unstable();
        for outer in covering.iter().filter(|other| **other != at).filter_map(|other| sorted.get(*other)) {
            work.take(1)?;
            let found = visit(inner, outer, work)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

fn nested_hole(finder: &mut RingFinder<'_>, polygon: &[Ring], work: &mut WorkMeter) -> FlawResult {
    covered_pairs(polygon.iter().skip(1), work, |hole, outer, work| {
        let is_nested = finder.nested(hole, outer, work)?;
        Ok(is_nested.then(|| flaw(Reason::NestedHoles, start(finder.rings, hole))))
    })
}

fn nested_shell(finder: &mut RingFinder<'_>, work: &mut WorkMeter) -> FlawResult {
    let rings = finder.rings;
    let holes_of = |polygon: usize| {
        let from = rings.all().partition_point(|ring| ring.polygon < polygon);
        let to = rings.all().partition_point(|ring| ring.polygon <= polygon);
        rings.all().get(from + 1..to).unwrap_or_default()
    };
    let shells = rings.by_polygon().filter_map(<[Ring]>::first);
    covered_pairs(shells, work, |shell, outer, work| {
        let holes = holes_of(outer.polygon);
        for p in rings.points(shell).iter().take(2) {
            match finder.locate_in_polygon(*p, outer, holes, work)? {
                Location::Inside => return Ok(Some(flaw(Reason::NestedShells, *p))),
                Location::Outside => return Ok(None),
                Location::OnEdge => {}
            }
        }
        let in_shell = finder.nested(shell, outer, work)?;
        let mut in_hole = false;
        for hole in holes {
            work.take(1)?;
            in_hole |= box_of(hole).covers(&box_of(shell)) && finder.nested(shell, hole, work)?;
        }
        Ok((in_shell && !in_hole).then(|| flaw(Reason::NestedShells, start(rings, shell))))
    })
}
