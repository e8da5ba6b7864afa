//! Pairs of segments whose boxes meet.
//!
//! Segments that follow each other along a ring lie near each other in space, so a tree of boxes
//! needs no sorting: each eight neighbours get a box, each eight boxes get one, and so on. Few
//! segments are compared all with all.

use super::Point;

const FAN: usize = 8;
/// Up to this many segments all pairs are compared.
const FEW: usize = 24;

#[derive(Clone, Copy, Debug)]
struct Box2 {
    min: Point,
    max: Point,
}

impl Box2 {
    fn of(a: Point, b: Point) -> Box2 {
        Box2 { min: [a[0].min(b[0]), a[1].min(b[1])], max: [a[0].max(b[0]), a[1].max(b[1])] }
    }

    fn join(self, other: Box2) -> Box2 {
        Box2 { min: Box2::of(self.min, other.min).min, max: Box2::of(self.max, other.max).max }
    }

    fn meets(&self, other: &Box2) -> bool {
        self.min[0] <= other.max[0]
            && other.min[0] <= self.max[0]
            && self.min[1] <= other.max[1]
            && other.min[1] <= self.max[1]
    }
}

/// Calls `visit` for each pair of segments whose boxes meet, the earlier one first, until it
/// returns something.
pub(crate) fn pairs<T>(
    segments: &[(Point, Point)],
    visit: impl FnMut(usize, usize) -> Option<T>,
) -> Option<T> {
    boxed_pairs(segments.iter().map(|(a, b)| Box2::of(*a, *b)).collect(), visit)
}

/// As [`pairs`], also for those whose boxes are no farther apart than this.
pub(crate) fn pairs_near<T>(
    segments: &[(Point, Point)],
    apart: f64,
    visit: impl FnMut(usize, usize) -> Option<T>,
) -> Option<T> {
    let wide = |(a, b): &(Point, Point)| {
        let Box2 { min, max } = Box2::of(*a, *b);
        Box2 { min: min.map(|x| x - apart / 2.0), max: max.map(|x| x + apart / 2.0) }
    };
    boxed_pairs(segments.iter().map(wide).collect(), visit)
}

/// As [`pairs_near`], for many segments that do not follow each other, and in no order.
pub(crate) fn pairs_scattered<T>(
    segments: &[(Point, Point)],
    apart: f64,
    mut visit: impl FnMut(usize, usize) -> Option<T>,
) -> Option<T> {
    let middle = |i: usize, axis: usize| segments.get(i).map_or(0.0, |(a, b)| a[axis] + b[axis]);
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_unstable_by(|i, j| middle(*i, 0).total_cmp(&middle(*j, 0)));
    // Strips of as many boxes as there are strips.
    let strip = ((segments.len() as f64 * FAN as f64).sqrt() as usize).max(FAN);
    for some in order.chunks_mut(strip) {
        some.sort_unstable_by(|i, j| middle(*i, 1).total_cmp(&middle(*j, 1)));
    }
    let sorted: Vec<(Point, Point)> = order.iter().filter_map(|i| segments.get(*i).copied()).collect();
    pairs_near(&sorted, apart, |i, j| {
        let (i, j) = (*order.get(i)?, *order.get(j)?);
        visit(i.min(j), i.max(j))
    })
}

fn boxed_pairs<T>(boxes: Vec<Box2>, mut visit: impl FnMut(usize, usize) -> Option<T>) -> Option<T> {
    if boxes.len() <= FEW {
        for (i, first) in boxes.iter().enumerate() {
            for (j, second) in boxes.iter().enumerate().skip(i + 1) {
                if first.meets(second)
                    && let Some(found) = visit(i, j)
                {
                    return Some(found);
                }
            }
        }
        return None;
    }
    let mut levels = vec![boxes];
    while let Some(last) = levels.last()
        && last.len() > 1
    {
        let up = last.chunks(FAN).filter_map(|some| some.iter().copied().reduce(Box2::join)).collect();
        levels.push(up);
    }
    let mut todo = vec![(levels.len() - 1, 0usize, 0usize)];
    while let Some((level, i, j)) = todo.pop() {
        let Some(below) = level.checked_sub(1) else {
            if i != j
                && let Some(found) = visit(i.min(j), i.max(j))
            {
                return Some(found);
            }
            continue;
        };
        let Some(boxes) = levels.get(below) else { continue };
        let children = |node: usize| (node * FAN..(node * FAN + FAN).min(boxes.len())).rev();
        for a in children(i) {
            for b in children(j) {
                if (i == j && b < a) || !boxes.get(a).zip(boxes.get(b)).is_some_and(|(a, b)| a.meets(b)) {
                    continue;
                }
                todo.push((below, a, b));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_tree_finds_what_all_pairs_find(points in prop::collection::vec((0i32..40, 0i32..40), 2..90)) {
            let points: Vec<Point> = points.iter().map(|(x, y)| [f64::from(*x), f64::from(*y)]).collect();
            let segments: Vec<_> = points.windows(2).map(|w| (w[0], w[1])).collect();
            let mut found = Vec::new();
            pairs(&segments, |i, j| { found.push((i, j)); None::<()> });
            found.sort_unstable();
            let mut want = Vec::new();
            for i in 0..segments.len() {
                for j in i + 1..segments.len() {
                    if Box2::of(segments[i].0, segments[i].1).meets(&Box2::of(segments[j].0, segments[j].1)) {
                        want.push((i, j));
                    }
                }
            }
            prop_assert_eq!(found, want);
        }
    }
}
