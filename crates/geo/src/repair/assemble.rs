//! From chosen faces to polygons that are valid.

use std::collections::HashMap;

use super::graph::{Graph, double_area};
use crate::limits::{WorkBound, WorkMeter};
use crate::validity::{Box2, BoxTree, IndexedRing, Point, is_counter_clockwise};

/// A polygon: its shell and its holes, all closed.
pub(super) type Polygon = Vec<Vec<Point>>;

/// The polygons that cover the chosen faces.
///
/// The edges with a chosen face on the left only are walked, always taking the first such edge
/// clockwise: so the walk stays with one connected piece of the interior. Where a walk comes by a
/// node twice, the loop between is cut off as a ring of its own. Rings that run counter-clockwise
/// are shells, the others holes.
pub(super) fn polygons(
    graph: &Graph,
    is_chosen: impl Fn(usize) -> bool,
    work: &mut WorkMeter,
) -> Result<Vec<Polygon>, WorkBound> {
    let chosen = |half: usize| graph.face(half).is_some_and(&is_chosen);
    let mut todo: Vec<bool> = (0..graph.halves()).map(|half| chosen(half) && !chosen(half ^ 1)).collect();
    let mut rings: Vec<Vec<Point>> = Vec::new();
    for start in 0..graph.halves() {
        if todo.get(start) != Some(&true) {
            continue;
        }
        let mut walk: Vec<usize> = Vec::new();
        let mut half = start;
        loop {
            if let Some(slot) = todo.get_mut(half) {
                *slot = false;
            }
            walk.push(half);
            let next = graph.clockwise_after(half).find(|next| chosen(*next) && !chosen(next ^ 1));
            match next {
                Some(next) if next != start && todo.get(next) == Some(&true) => half = next,
                _ => break,
            }
        }
        cut_loops(graph, &walk, &mut rings);
    }
    nest(rings, work)
}

fn cut_loops(graph: &Graph, walk: &[usize], rings: &mut Vec<Vec<Point>>) {
    let mut path: Vec<usize> = Vec::new();
    let mut place_of: HashMap<usize, usize> = HashMap::new();
    let mut close = |path: &mut Vec<usize>, from: usize| {
        let mut ring: Vec<Point> = path.drain(from..).map(|half| graph.point(half)).collect();
        ring.extend(ring.first().copied());
        if ring.len() >= 4 {
            rings.push(ring);
        }
    };
    for half in walk {
        let node = graph.node(*half);
        if let Some(from) = place_of.get(&node).copied() {
            for inner in path.get(from + 1..).unwrap_or_default() {
                place_of.remove(&graph.node(*inner));
            }
            close(&mut path, from);
        }
        place_of.insert(node, path.len());
        path.push(*half);
    }
    close(&mut path, 0);
}

/// Gives every hole to the smallest shell that holds it.
fn nest(rings: Vec<Vec<Point>>, work: &mut WorkMeter) -> Result<Vec<Polygon>, WorkBound> {
    let (mut shells, holes): (Vec<_>, Vec<_>) =
        rings.into_iter().partition(|ring| is_counter_clockwise(ring));
    shells.sort_by(|a, b| double_area(a).total_cmp(&double_area(b)));
    let boxes: Vec<Box2> = shells.iter().map(|shell| Box2::around(shell)).collect();
    let (tree, mut near) = (BoxTree::of_scattered(&boxes), Vec::new());
    let mut indexed: HashMap<usize, IndexedRing<'_>> = HashMap::new();
    let mut holders: Vec<Option<usize>> = Vec::with_capacity(holes.len());
    for hole in &holes {
        let own = Box2::around(hole);
        tree.find(work, |around| around.covers(&own), &mut near)?;
        // They are in the order of their areas.
        near.sort_unstable();
        let mut holder = None;
        for at in &near {
            let Some(shell) = shells.get(*at) else { continue };
            if indexed.entry(*at).or_insert_with(|| IndexedRing::new(shell)).holds(hole, work)? {
                holder = Some(*at);
                break;
            }
        }
        holders.push(holder);
    }
    drop(indexed);
    let mut polygons: Vec<Polygon> = shells.into_iter().map(|shell| vec![shell]).collect();
    for (hole, holder) in holes.into_iter().zip(holders) {
        if let Some(polygon) = holder.and_then(|at| polygons.get_mut(at)) {
            polygon.push(hole);
        }
    }
    Ok(polygons)
}
