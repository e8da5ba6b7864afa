//! Boxes that are searched by where they lie.
//!
//! Each eight boxes get a box around them, each eight of those get one, and so on ([`FAN`]). Edges of a ring
//! follow each other in space and need no order; other boxes are sorted into strips first. Each box that is
//! looked at is a step of work.

use super::Point;
use crate::limits::{WorkBound, WorkMeter};

/// Boxes under one box.
pub(crate) const FAN: usize = 8;

/// An upright rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Box2 {
    pub(crate) min: Point,
    pub(crate) max: Point,
}

impl Box2 {
    pub(crate) fn of(a: Point, b: Point) -> Box2 {
        Box2 { min: [a[0].min(b[0]), a[1].min(b[1])], max: [a[0].max(b[0]), a[1].max(b[1])] }
    }

    /// The smallest one around points; nothing is in it if there are none.
    pub(crate) fn around(points: &[Point]) -> Box2 {
        let start = Box2 { min: [f64::INFINITY; 2], max: [f64::NEG_INFINITY; 2] };
        points.iter().fold(start, |all, p| all.join(Box2 { min: *p, max: *p }))
    }

    pub(crate) fn join(self, other: Box2) -> Box2 {
        let Box2 { min, max } = self;
        Box2 {
            min: [min[0].min(other.min[0]), min[1].min(other.min[1])],
            max: [max[0].max(other.max[0]), max[1].max(other.max[1])],
        }
    }

    pub(crate) fn meets(&self, other: &Box2) -> bool {
        self.min[0] <= other.max[0]
            && other.min[0] <= self.max[0]
            && self.min[1] <= other.max[1]
            && other.min[1] <= self.max[1]
    }

    pub(crate) fn holds(&self, p: Point) -> bool {
        (0..2).all(|i| self.min[i] <= p[i] && p[i] <= self.max[i])
    }

    pub(crate) fn covers(&self, other: &Box2) -> bool {
        self.holds(other.min) && self.holds(other.max)
    }
}

/// The boxes around boxes, level by level; the last level is one box.
pub(super) fn levels(boxes: Vec<Box2>) -> Vec<Vec<Box2>> {
    let mut levels = vec![boxes];
    while let Some(last) = levels.last()
        && last.len() > 1
    {
        let up = last.chunks(FAN).filter_map(|some| some.iter().copied().reduce(Box2::join)).collect();
        levels.push(up);
    }
    levels
}

/// The order of boxes in strips: of those that follow each other, many lie near each other.
pub(super) fn in_strips(count: usize, middle: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by(|i, j| middle(*i, 0).total_cmp(&middle(*j, 0)));
    // Strips of as many boxes as there are strips.
    let strip = ((count as f64 * FAN as f64).sqrt() as usize).max(FAN);
    for some in order.chunks_mut(strip) {
        some.sort_unstable_by(|i, j| middle(*i, 1).total_cmp(&middle(*j, 1)));
    }
    order
}

/// Boxes with an order in which they are searched.
#[derive(Debug)]
pub(crate) struct BoxTree {
    levels: Vec<Vec<Box2>>,
    /// The place of each among the given ones; `None` if it is the same.
    order: Option<Vec<usize>>,
}

impl BoxTree {
    /// Boxes that follow each other in space, such as the edges of a ring.
    pub(crate) fn of_path(boxes: Vec<Box2>) -> BoxTree {
        BoxTree { levels: levels(boxes), order: None }
    }

    /// Boxes in any order.
    pub(crate) fn of_scattered(boxes: &[Box2]) -> BoxTree {
        let middle = |i: usize, axis: usize| boxes.get(i).map_or(0.0, |b| b.min[axis] + b.max[axis]);
        let order = in_strips(boxes.len(), middle);
        let sorted = order.iter().filter_map(|i| boxes.get(*i).copied()).collect();
        BoxTree { levels: levels(sorted), order: Some(order) }
    }

    /// The places of the boxes that pass a test, which every box around one that passes must pass too.
    pub(crate) fn find(
        &self,
        work: &mut WorkMeter,
        is_in: impl Fn(&Box2) -> bool,
        found: &mut Vec<usize>,
    ) -> Result<(), WorkBound> {
        found.clear();
        let top = self.levels.len().saturating_sub(1);
        let all = self.levels.get(top).map_or(0, Vec::len);
        let mut todo: Vec<(usize, usize, usize)> = vec![(top, 0, all)];
        while let Some((level, from, to)) = todo.pop() {
            let Some(boxes) = self.levels.get(level) else { continue };
            work.take(to.saturating_sub(from).div_ceil(2))?;
            for at in from..to.min(boxes.len()) {
                if !boxes.get(at).is_some_and(&is_in) {
                    continue;
                }
                match level.checked_sub(1) {
                    Some(below) => todo.push((below, at * FAN, (at + 1) * FAN)),
                    None => found.push(
                        self.order.as_ref().map_or(Some(at), |order| order.get(at).copied()).unwrap_or(at),
                    ),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_search_finds_what_all_boxes_tell(
            corners in prop::collection::vec((0i32..40, 0i32..40, 0i32..9, 0i32..9), 0..200),
            at in (0i32..40, 0i32..40),
        ) {
            let number = |n: i32| f64::from(n);
            let boxes: Vec<Box2> = corners
                .iter()
                .map(|(x, y, w, h)| Box2::of([number(*x), number(*y)], [number(x + w), number(y + h)]))
                .collect();
            let p = [number(at.0), number(at.1)];
            let want: Vec<usize> = (0..boxes.len()).filter(|i| boxes[*i].holds(p)).collect();
            for tree in [BoxTree::of_scattered(&boxes), BoxTree::of_path(boxes.clone())] {
                let mut found = Vec::new();
                tree.find(&mut WorkMeter::default(), |b| b.holds(p), &mut found).unwrap();
                found.sort_unstable();
                prop_assert_eq!(&found, &want);
            }
        }
    }
}
