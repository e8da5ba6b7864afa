//! Whether the interior of a polygon with holes is in one piece.
//!
//! Rings that may only touch cut the interior in two exactly if, joined where they touch, they
//! close a cycle: two rings that touch twice, or several that touch in a round. Rings that all
//! meet in the same point do not make a cycle by that alone.

use super::Point;

/// The rings that one ring touches, and where.
#[derive(Debug, Default)]
pub(super) struct Touches {
    of: Vec<Vec<(usize, Point)>>,
    pub(super) double: Option<Point>,
}

impl Touches {
    pub(super) fn new(rings: usize) -> Touches {
        Touches { of: vec![Vec::new(); rings], double: None }
    }

    /// Two rings of one polygon touch here. Returns how many touches were looked at.
    pub(super) fn add(&mut self, a: usize, b: usize, at: Point) -> usize {
        let looked = self.of.get(a).map_or(0, Vec::len);
        let known = |touches: &[(usize, Point)], other: usize| {
            touches.iter().find(|(ring, _)| *ring == other).map(|(_, place)| *place)
        };
        match self.of.get(a).and_then(|touches| known(touches, b)) {
            Some(place) if place == at => {}
            Some(_) => self.double = self.double.or(Some(at)),
            None => {
                for (ring, other) in [(a, b), (b, a)] {
                    if let Some(touches) = self.of.get_mut(ring) {
                        touches.push((other, at));
                    }
                }
            }
        }
        looked
    }

    /// A touch that closes a cycle.
    pub(super) fn cycle(&self) -> Option<Point> {
        let mut seen = vec![false; self.of.len()];
        for root in 0..self.of.len() {
            if seen.get(root).copied().unwrap_or(true) || self.of.get(root).is_none_or(Vec::is_empty) {
                continue;
            }
            let mut reached = vec![root];
            if let Some(flag) = seen.get_mut(root) {
                *flag = true;
            }
            // Every ring of this tree is entered at one point. Touches at that point lead to rings
            // that were entered from the ring before.
            let mut todo: Vec<(usize, Option<Point>)> = vec![(root, None)];
            while let Some((ring, entered)) = todo.pop() {
                for (other, at) in self.of.get(ring).into_iter().flatten() {
                    if entered == Some(*at) {
                        continue;
                    }
                    match seen.get_mut(*other) {
                        Some(flag) if !*flag => {
                            *flag = true;
                            reached.push(*other);
                            todo.push((*other, Some(*at)));
                        }
                        _ => return Some(*at),
                    }
                }
            }
        }
        None
    }
}
