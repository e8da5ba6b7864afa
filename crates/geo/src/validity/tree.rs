//! Pairs of segments whose boxes meet. Each pair that is looked at, and each pair of nodes of the tree, is a
//! step of work.
//!
//! Segments that follow each other along a ring lie near each other in space, so a tree of boxes
//! needs no sorting: each eight neighbours get a box, each eight boxes get one, and so on. Few
//! segments are compared all with all.

use super::Point;
use super::boxes::{Box2, FAN, in_strips, levels};
use crate::limits::{WorkBound, WorkMeter};

/// Up to this many segments all pairs are compared.
const FEW: usize = 24;

/// Calls `visit` for each pair of segments whose boxes meet, the earlier one first, until it
/// returns something.
pub(crate) fn pairs<T>(
    segments: &[(Point, Point)],
    work: &mut WorkMeter,
    visit: impl FnMut(usize, usize, &mut WorkMeter) -> Result<Option<T>, WorkBound>,
) -> Result<Option<T>, WorkBound> {
    boxed_pairs(segments.iter().map(|(a, b)| Box2::of(*a, *b)).collect(), work, visit)
}

/// As [`pairs`], also for those whose boxes are no farther apart than this.
pub(crate) fn pairs_near<T>(
    segments: &[(Point, Point)],
    apart: f64,
    work: &mut WorkMeter,
    visit: impl FnMut(usize, usize, &mut WorkMeter) -> Result<Option<T>, WorkBound>,
) -> Result<Option<T>, WorkBound> {
    let wide = |(a, b): &(Point, Point)| {
        let Box2 { min, max } = Box2::of(*a, *b);
        Box2 { min: min.map(|x| x - apart / 2.0), max: max.map(|x| x + apart / 2.0) }
    };
    boxed_pairs(segments.iter().map(wide).collect(), work, visit)
}

/// As [`pairs_near`], for many segments that do not follow each other, and in no order.
pub(crate) fn pairs_scattered<T>(
    segments: &[(Point, Point)],
    apart: f64,
    work: &mut WorkMeter,
    mut visit: impl FnMut(usize, usize, &mut WorkMeter) -> Result<Option<T>, WorkBound>,
) -> Result<Option<T>, WorkBound> {
    let middle = |i: usize, axis: usize| segments.get(i).map_or(0.0, |(a, b)| a[axis] + b[axis]);
    let order = in_strips(segments.len(), middle);
    let sorted: Vec<(Point, Point)> = order.iter().filter_map(|i| segments.get(*i).copied()).collect();
    pairs_near(&sorted, apart, work, |i, j, work| match (order.get(i), order.get(j)) {
        (Some(i), Some(j)) => visit(*i.min(j), *i.max(j), work),
        _ => Ok(None),
    })
}

fn boxed_pairs<T>(
    boxes: Vec<Box2>,
    work: &mut WorkMeter,
    mut visit: impl FnMut(usize, usize, &mut WorkMeter) -> Result<Option<T>, WorkBound>,
) -> Result<Option<T>, WorkBound> {
    if boxes.len() <= FEW {
        for (i, first) in boxes.iter().enumerate() {
            for (j, second) in boxes.iter().enumerate().skip(i + 1) {
                if first.meets(second) {
                    work.take(1)?;
                    let found = visit(i, j, work)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
        }
        return Ok(None);
    }
    let levels = levels(boxes);
    let mut todo = vec![(levels.len() - 1, 0usize, 0usize)];
    while let Some((level, i, j)) = todo.pop() {
        let Some(below) = level.checked_sub(1) else {
            if i != j {
                work.take(1)?;
                let found = visit(i.min(j), i.max(j), work)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            continue;
        };
        // As much as a few comparisons of edges.
        work.take(FAN)?;
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
    Ok(None)
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
            let visit = |i, j, _: &mut WorkMeter| { found.push((i, j)); Ok(None::<()>) };
            pairs(&segments, &mut WorkMeter::default(), visit).unwrap();
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
