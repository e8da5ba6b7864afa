//! From chosen faces to polygons that are valid.

use super::graph::Graph;
use crate::validity::{Point, is_counter_clockwise, is_nested};

/// A polygon: its shell and its holes, all closed.
pub(super) type Polygon = Vec<Vec<Point>>;

/// The polygons that cover the chosen faces.
///
/// The edges with a chosen face on the left only are walked, always taking the first such edge
/// clockwise: so the walk stays with one connected piece of the interior. Where a walk comes by a
/// node twice, the loop between is cut off as a ring of its own. Rings that run counter-clockwise
/// are shells, the others holes.
pub(super) fn polygons(graph: &Graph, is_chosen: impl Fn(usize) -> bool) -> Vec<Polygon> {
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
    nest(rings)
}

fn cut_loops(graph: &Graph, walk: &[usize], rings: &mut Vec<Vec<Point>>) {
    let mut path: Vec<usize> = Vec::new();
    let mut place_of: std::collections::HashMap<usize, usize> = std::collections::HashMap::new();
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
fn nest(rings: Vec<Vec<Point>>) -> Vec<Polygon> {
    let (mut shells, holes): (Vec<_>, Vec<_>) =
        rings.into_iter().partition(|ring| is_counter_clockwise(ring));
    shells.sort_by(|a, b| super::graph::double_area(a).total_cmp(&super::graph::double_area(b)));
    let mut polygons: Vec<(RingBox, Polygon)> =
        shells.into_iter().map(|shell| (RingBox::of(&shell), vec![shell])).collect();
    for hole in holes {
        let own = RingBox::of(&hole);
        let holder = polygons.iter_mut().find(|(room, polygon)| {
            room.covers(&own) && polygon.first().is_some_and(|shell| is_nested(&hole, shell))
        });
        if let Some((_, polygon)) = holder {
            polygon.push(hole);
        }
    }
    polygons.into_iter().map(|(_, polygon)| polygon).collect()
}

/// The smallest upright rectangle around a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingBox {
    low: Point,
    high: Point,
}

impl RingBox {
    pub(super) fn of(ring: &[Point]) -> RingBox {
        let start = RingBox { low: [f64::INFINITY; 2], high: [f64::NEG_INFINITY; 2] };
        ring.iter().fold(start, |RingBox { low, high }, [x, y]| RingBox {
            low: [low[0].min(*x), low[1].min(*y)],
            high: [high[0].max(*x), high[1].max(*y)],
        })
    }

    fn covers(&self, other: &RingBox) -> bool {
        self.holds(other.low) && self.holds(other.high)
    }

    pub(super) fn holds(&self, p: Point) -> bool {
        (0..2).all(|i| self.low[i] <= p[i] && p[i] <= self.high[i])
    }
}
