//! The plane cut by segments that meet only at their ends: nodes, edges and faces.
//!
//! Every edge is two half-edges, each with a face on its left. Half-edge `2n` and `2n + 1` are
//! twins. Walking each time to the next edge clockwise goes around a face. A part of the drawing
//! that lies loose within a face goes around it from inside with its outer walk, which is found at
//! the part's leftmost node, and belongs to the face that holds it.

use std::collections::HashMap;

use super::node::Segment;
use crate::limits::{WorkBound, WorkMeter};
use crate::validity::{Box2, BoxTree, IndexedRing, Location, Point, compare_angle};

/// The face outside everything.
pub(super) const OUTSIDE: usize = 0;

/// A drawing of the plane.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Point>,
    /// The node where each half-edge starts.
    from: Vec<usize>,
    /// The half-edges that leave each node, counter-clockwise from the east.
    leaving: Vec<Vec<usize>>,
    /// The place of each half-edge in that list.
    place: Vec<usize>,
    /// The face on the left of each half-edge.
    face: Vec<usize>,
    faces: usize,
    /// For each edge, how often each ring runs along its first half, less how often against it.
    turns: Vec<Vec<(usize, i64)>>,
}

impl Graph {
    /// The drawing of these segments, each of a ring; those that lie on each other are one edge. Edges
    /// are in the order of their places, so that it does not matter where rings begin.
    pub(super) fn new(
        segments: impl Iterator<Item = (Segment, usize)>,
        work: &mut WorkMeter,
    ) -> Result<Graph, WorkBound> {
        let order = |p: &Point, q: &Point| p[0].total_cmp(&q[0]).then(p[1].total_cmp(&q[1]));
        // 0 and -0 are one place.
        let plain = |p: Point| p.map(|x| x + 0.0);
        let mut edges: Vec<(Segment, usize, i64)> = segments
            .map(|((a, b), ring)| ((plain(a), plain(b)), ring))
            .filter(|((a, b), _)| a != b)
            .map(|((a, b), ring)| if order(&a, &b).is_lt() { ((a, b), ring, 1) } else { ((b, a), ring, -1) })
            .collect();
        edges.sort_by(|((a, b), ..), ((c, d), ..)| order(a, c).then_with(|| order(b, d)));
        let mut graph = Graph::default();
        let mut numbers: HashMap<[u64; 2], usize> = HashMap::new();
        let mut last: Option<Segment> = None;
        for (ends, ring, turn) in edges {
            if last != Some(ends) {
                last = Some(ends);
                let numbered = [ends.0, ends.1].map(|p| {
                    *numbers.entry(p.map(f64::to_bits)).or_insert_with(|| {
                        graph.nodes.push(p);
                        graph.nodes.len() - 1
                    })
                });
                graph.from.extend(numbered);
                graph.turns.push(Vec::new());
            }
            if let Some(turns) = graph.turns.last_mut() {
                // Segments come in the order of their rings, and sorting keeps that of equal ones.
                match turns.last_mut().filter(|(known, _)| *known == ring) {
                    Some((_, count)) => *count += turn,
                    None => turns.push((ring, turn)),
                }
            }
        }
        graph.sort_leaving();
        graph.find_faces(work)?;
        Ok(graph)
    }

    pub(super) fn point(&self, half: usize) -> Point {
        self.from.get(half).and_then(|node| self.nodes.get(*node)).copied().unwrap_or([f64::NAN; 2])
    }

    pub(super) fn node(&self, half: usize) -> usize {
        self.from.get(half).copied().unwrap_or(0)
    }

    pub(super) fn halves(&self) -> usize {
        self.from.len()
    }

    fn sort_leaving(&mut self) {
        let mut leaving = vec![Vec::new(); self.nodes.len()];
        for half in 0..self.from.len() {
            if let Some(list) = leaving.get_mut(self.node(half)) {
                list.push(half);
            }
        }
        self.place = vec![0; self.from.len()];
        for (node, list) in leaving.iter_mut().enumerate() {
            let at = self.nodes.get(node).copied().unwrap_or_default();
            list.sort_by(|h, k| compare_angle(at, self.point(h ^ 1), self.point(k ^ 1)));
            for (place, half) in list.iter().enumerate() {
                if let Some(slot) = self.place.get_mut(*half) {
                    *slot = place;
                }
            }
        }
        self.leaving = leaving;
    }

    /// From the end of a half-edge, the leaving half-edges clockwise, beginning right of where it
    /// came from and ending with its twin.
    pub(super) fn clockwise_after(&self, half: usize) -> impl Iterator<Item = usize> + '_ {
        let twin = half ^ 1;
        let list = self.leaving.get(self.node(twin)).map_or(&[][..], Vec::as_slice);
        let place = self.place.get(twin).copied().unwrap_or(0);
        (1..=list.len()).filter_map(move |step| list.get((place + list.len() - step) % list.len()).copied())
    }

    fn find_faces(&mut self, work: &mut WorkMeter) -> Result<(), WorkBound> {
        let mut walk_of = vec![usize::MAX; self.from.len()];
        let mut walks: Vec<Vec<usize>> = Vec::new();
        for start in 0..self.from.len() {
            if walk_of.get(start) != Some(&usize::MAX) {
                continue;
            }
            let mut walk = Vec::new();
            let mut half = start;
            loop {
                if let Some(slot) = walk_of.get_mut(half) {
                    *slot = walks.len();
                }
                walk.push(half);
                match self.clockwise_after(half).next() {
                    Some(next) if next != start => half = next,
                    _ => break,
                }
            }
            walks.push(walk);
        }
        let outer = self.outer_walks(&walk_of);
        let part_of_walk = self.parts(&walks);
        let rooms = if outer.len() > 1 { self.rooms(&walks, &outer) } else { Vec::new() };
        let boxes: Vec<Box2> = rooms.iter().map(|room| room.around).collect();
        let mut finder =
            RoomFinder { rooms: &rooms, tree: BoxTree::of_scattered(&boxes), indexed: HashMap::new() };
        let mut face_of_walk: Vec<usize> = vec![OUTSIDE; walks.len()];
        let mut faces = 1;
        for (walk, face) in face_of_walk.iter_mut().enumerate() {
            if !outer.contains_key(&walk) {
                *face = faces;
                faces += 1;
            }
        }
        for (walk, leftmost) in &outer {
            let holder = finder.holder(*leftmost, *walk, &part_of_walk, work)?;
            let face = holder.and_then(|holder| face_of_walk.get(holder)).copied().unwrap_or(OUTSIDE);
            if let Some(slot) = face_of_walk.get_mut(*walk) {
                *slot = face;
            }
        }
        self.face = walk_of.iter().map(|walk| face_of_walk.get(*walk).copied().unwrap_or(OUTSIDE)).collect();
        self.faces = faces;
        Ok(())
    }

    /// Which connected part of the drawing each node belongs to; the smallest node stands for it.
    fn node_parts(&self) -> Vec<usize> {
        let mut part = vec![usize::MAX; self.nodes.len()];
        for root in 0..self.nodes.len() {
            if part.get(root) != Some(&usize::MAX) {
                continue;
            }
            let mut todo = vec![root];
            while let Some(node) = todo.pop() {
                match part.get_mut(node) {
                    Some(slot) if *slot == usize::MAX => *slot = root,
                    _ => continue,
                }
                todo.extend(self.leaving.get(node).into_iter().flatten().map(|half| self.node(half ^ 1)));
            }
        }
        part
    }

    fn parts(&self, walks: &[Vec<usize>]) -> Vec<usize> {
        let parts = self.node_parts();
        let part = |walk: &Vec<usize>| walk.first().and_then(|half| parts.get(self.node(*half))).copied();
        walks.iter().map(|walk| part(walk).unwrap_or(0)).collect()
    }

    /// The outer walk of each part, with the part's leftmost node. There, all edges go east, and
    /// the walk around the outside leaves by the northernmost.
    fn outer_walks(&self, walk_of: &[usize]) -> HashMap<usize, Point> {
        let mut leftmost: HashMap<usize, usize> = HashMap::new();
        for (node, part) in self.node_parts().into_iter().enumerate() {
            let best = leftmost.entry(part).or_insert(node);
            let (p, q) = (self.nodes.get(node), self.nodes.get(*best));
            if p.zip(q).is_some_and(|(p, q)| p[0] < q[0] || (p[0] == q[0] && p[1] < q[1])) {
                *best = node;
            }
        }
        let mut outer = HashMap::new();
        for node in leftmost.into_values() {
            let Some(at) = self.nodes.get(node).copied() else { continue };
            let list = self.leaving.get(node).map_or(&[][..], Vec::as_slice);
            let north = list.iter().rev().find(|half| self.point(**half ^ 1)[1] >= at[1]);
            if let Some(walk) = north.or(list.last()).and_then(|half| walk_of.get(*half)) {
                outer.insert(*walk, at);
            }
        }
        outer
    }

    /// The walks around faces from inside, closed.
    fn rooms(&self, walks: &[Vec<usize>], outer: &HashMap<usize, Point>) -> Vec<Room> {
        let inner = walks.iter().enumerate().filter(|(walk, _)| !outer.contains_key(walk));
        inner
            .map(|(walk, halves)| {
                let mut ring: Vec<Point> = halves.iter().map(|half| self.point(*half)).collect();
                ring.extend(ring.first().copied());
                Room { walk, area: double_area(&ring).abs(), around: Box2::around(&ring), ring }
            })
            .collect()
    }

    /// How many edges must be crossed to come from the outside to each face.
    pub(super) fn depths(&self) -> Vec<usize> {
        let mut halves_of: Vec<Vec<usize>> = vec![Vec::new(); self.faces.max(1)];
        for (half, face) in self.face.iter().enumerate() {
            if let Some(list) = halves_of.get_mut(*face) {
                list.push(half);
            }
        }
        let mut depth = vec![usize::MAX; self.faces.max(1)];
        let mut ring = vec![OUTSIDE];
        let mut level = 0;
        while !ring.is_empty() {
            let mut next = Vec::new();
            for face in ring {
                match depth.get_mut(face) {
                    Some(slot) if *slot == usize::MAX => *slot = level,
                    _ => continue,
                }
                for half in halves_of.get(face).into_iter().flatten() {
                    next.extend(self.face(*half ^ 1));
                }
            }
            ring = next;
            level += 1;
        }
        depth
    }

    /// How to come from the outside to every face: half-edges in an order in which the face on the
    /// right of each is known before that on its left.
    fn ways_in(&self) -> Vec<usize> {
        let mut halves_of: Vec<Vec<usize>> = vec![Vec::new(); self.faces.max(1)];
        for half in 0..self.from.len() {
            if let Some(list) = self.face(half ^ 1).and_then(|face| halves_of.get_mut(face)) {
                list.push(half);
            }
        }
        let mut known = vec![false; self.faces.max(1)];
        let mut todo = vec![OUTSIDE];
        let mut ways = Vec::new();
        if let Some(outside) = known.first_mut() {
            *outside = true;
        }
        while let Some(face) = todo.pop() {
            for half in halves_of.get(face).into_iter().flatten() {
                let Some((next, slot)) = self.face(*half).and_then(|next| Some((next, known.get_mut(next)?)))
                else {
                    continue;
                };
                if !std::mem::replace(slot, true) {
                    ways.push(*half);
                    todo.push(next);
                }
            }
        }
        ways
    }

    /// The rings that wind around each face, and how often, counter-clockwise counting up. Only the drawing is
    /// asked: no place has to be found within a face that may be thinner than doubles can tell.
    pub(super) fn windings(&self, work: &mut WorkMeter) -> Result<Vec<Vec<(usize, i64)>>, WorkBound> {
        let mut windings: Vec<Vec<(usize, i64)>> = vec![Vec::new(); self.faces.max(1)];
        for half in self.ways_in() {
            let (Some(left), Some(right)) = (self.face(half), self.face(half ^ 1)) else { continue };
            let turns = self.turns.get(half / 2).map_or(&[][..], Vec::as_slice);
            let known = windings.get(right).map_or(&[][..], Vec::as_slice);
            work.take(known.len() + turns.len())?;
            // Both are in the order of the rings.
            let mut around = Vec::with_capacity(known.len() + turns.len());
            let mut rest = known.iter().copied().peekable();
            for (ring, turn) in turns {
                let turn = if half % 2 == 0 { *turn } else { -turn };
                while let Some(before) = rest.next_if(|(other, _)| other < ring) {
                    around.push(before);
                }
                let count = rest.next_if(|(other, _)| other == ring).map_or(0, |(_, count)| count) + turn;
                if count != 0 {
                    around.push((*ring, count));
                }
            }
            around.extend(rest);
            if let Some(slot) = windings.get_mut(left) {
                *slot = around;
            }
        }
        Ok(windings)
    }

    /// How many faces there are, the outside included.
    pub(super) fn faces(&self) -> usize {
        self.faces.max(1)
    }

    /// The face on the left of a half-edge.
    pub(super) fn face(&self, half: usize) -> Option<usize> {
        self.face.get(half).copied()
    }
}

/// A face, by the walk around it.
struct Room {
    walk: usize,
    area: f64,
    around: Box2,
    ring: Vec<Point>,
}

/// The faces, found by a point in them.
struct RoomFinder<'a> {
    rooms: &'a [Room],
    tree: BoxTree,
    indexed: HashMap<usize, IndexedRing<'a>>,
}

impl RoomFinder<'_> {
    /// The walk around the smallest face that holds a point of another part.
    fn holder(
        &mut self,
        p: Point,
        own: usize,
        parts: &[usize],
        work: &mut WorkMeter,
    ) -> Result<Option<usize>, WorkBound> {
        let mut near = Vec::new();
        self.tree.find(work, |around| around.holds(p), &mut near)?;
        let area = |at: &usize| self.rooms.get(*at).map_or(f64::INFINITY, |room| room.area);
        // The first of the smallest, as they are given.
        near.sort_by(|a, b| area(a).total_cmp(&area(b)).then(a.cmp(b)));
        for at in near {
            let Some(room) = self.rooms.get(at) else { continue };
            if parts.get(room.walk) == parts.get(own) {
                continue;
            }
            let ring = self.indexed.entry(at).or_insert_with(|| IndexedRing::new(&room.ring));
            if ring.locate(p, work)? == Location::Inside {
                return Ok(Some(room.walk));
            }
        }
        Ok(None)
    }
}

/// Twice the area of a closed ring, positive if counter-clockwise.
pub(super) fn double_area(ring: &[Point]) -> f64 {
    let Some(o) = ring.first().copied() else { return 0.0 };
    let edges = ring.iter().zip(ring.iter().skip(1));
    edges.map(|(a, b)| (a[0] - o[0]) * (b[1] - o[1]) - (b[0] - o[0]) * (a[1] - o[1])).sum()
}
