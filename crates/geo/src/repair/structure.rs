//! Choosing faces by what the rings say they are.
//!
//! A ring covers what it winds around, however often and in whichever direction. Of each polygon the
//! shell's cover counts, less the cover of its holes; a hole that does not meet its shell at all is
//! taken for a shell. What any polygon covers is chosen, so that overlapping ones are joined.
//!
//! Whether a ring covers a face is asked at one place well within the face: amid the widest gap
//! between its edges, half way up the widest gap between its corners. There the last bits by which
//! noding moved an edge do not matter.

use super::graph::{Graph, OUTSIDE};
use crate::validity::{Location, Point, locate};

/// Which faces to keep.
pub(super) fn chosen(graph: &Graph, polygons: &[Vec<Vec<Point>>]) -> Vec<bool> {
    let places = places(graph);
    let mut chosen = vec![false; graph.faces()];
    for rings in polygons {
        let covers: Vec<Vec<bool>> = rings.iter().map(|ring| covered(ring, &places)).collect();
        let Some((shell, holes)) = rings.split_first().zip(covers.split_first()).map(
            |((shell_ring, hole_rings), (shell, holes))| {
                let cuts: Vec<(&Vec<bool>, bool)> = hole_rings
                    .iter()
                    .zip(holes)
                    .map(|(ring, hole)| (hole, meets(shell, hole) || touches(shell_ring, ring)))
                    .collect();
                (shell, cuts)
            },
        ) else {
            continue;
        };
        for (face, keep) in chosen.iter_mut().enumerate() {
            let at = |cover: &[bool]| cover.get(face).copied().unwrap_or(false);
            let cut = holes.iter().any(|(hole, cuts)| *cuts && at(hole));
            let apart = holes.iter().any(|(hole, cuts)| !*cuts && at(hole));
            *keep |= at(shell) && !cut || apart;
        }
    }
    chosen
}

fn meets(shell: &[bool], hole: &[bool]) -> bool {
    shell.iter().zip(hole).any(|(a, b)| *a && *b)
}

/// Whether a corner of one lies on the other.
fn touches(a: &[Point], b: &[Point]) -> bool {
    a.iter().any(|p| locate(*p, b) == Location::OnEdge) || b.iter().any(|p| locate(*p, a) == Location::OnEdge)
}

/// A place within each face; none for the outside.
fn places(graph: &Graph) -> Vec<Option<Point>> {
    let mut edges: Vec<Vec<(Point, Point)>> = vec![Vec::new(); graph.faces()];
    for half in 0..graph.halves() {
        if let Some(list) = graph.face(half).and_then(|face| edges.get_mut(face)) {
            list.push((graph.point(half), graph.point(half ^ 1)));
        }
    }
    edges.iter().enumerate().map(|(face, edges)| if face == OUTSIDE { None } else { place(edges) }).collect()
}

fn place(edges: &[(Point, Point)]) -> Option<Point> {
    let mut heights: Vec<f64> = edges.iter().map(|(a, _)| a[1]).collect();
    heights.sort_by(f64::total_cmp);
    let (low, high) = widest(heights.iter().copied().zip(heights.iter().copied().skip(1)))?;
    let y = low + (high - low) / 2.0;
    let mut crossings: Vec<f64> = edges
        .iter()
        .filter(|(a, b)| (a[1] > y) != (b[1] > y))
        .map(|(a, b)| a[0] + (b[0] - a[0]) * ((y - a[1]) / (b[1] - a[1])))
        .collect();
    crossings.sort_by(f64::total_cmp);
    // In at the first, out at the second, and so on.
    let (left, right) =
        widest(crossings.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?))))?;
    Some([left + (right - left) / 2.0, y])
}

fn widest(gaps: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    gaps.max_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)))
}

/// For each place, whether the ring winds around it.
fn covered(ring: &[Point], places: &[Option<Point>]) -> Vec<bool> {
    let fold = |i: usize| {
        ring.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p[i]), high.max(p[i])))
    };
    let (xs, ys) = (fold(0), fold(1));
    let within = |p: &Point| xs.0 <= p[0] && p[0] <= xs.1 && ys.0 <= p[1] && p[1] <= ys.1;
    places.iter().map(|place| place.is_some_and(|p| within(&p) && winding(p, ring) != 0)).collect()
}

/// How often a closed ring winds around a place, counter-clockwise counting up.
fn winding(p: Point, ring: &[Point]) -> i64 {
    let mut turns = 0;
    for (a, b) in ring.iter().zip(ring.iter().skip(1)) {
        let up = a[1] <= p[1] && b[1] > p[1];
        let down = a[1] > p[1] && b[1] <= p[1];
        let side = (b[0] - a[0]) * (p[1] - a[1]) - (p[0] - a[0]) * (b[1] - a[1]);
        turns += i64::from(up && side > 0.0) - i64::from(down && side < 0.0);
    }
    turns
}

#[cfg(test)]
mod tests {
    use crate::repair::{Method, Outcome, make_valid_by};
    use crate::validity::Checker;

    fn repaired(text: &str) -> String {
        let (mut wkb, mut out) = (Vec::new(), Vec::new());
        crate::wkt::read(text, &mut wkb).unwrap();
        match make_valid_by(&wkb, Method::Structure, &mut Checker::default(), &mut out) {
            Outcome::Hopeless(flaw) => flaw.to_string(),
            _ => crate::wkt::to_string(&out),
        }
    }

    #[test]
    fn shells_cover_and_holes_take_away() {
        for (text, want) in [
            (
                "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))",
                "MULTIPOLYGON (((0 2, 0 0, 1 1, 0 2)), ((1 1, 2 0, 2 2, 1 1)))",
            ),
            // A hole beyond the shell takes away only what both share.
            (
                "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (2 1, 6 1, 6 3, 2 3, 2 1))",
                "POLYGON ((0 4, 0 0, 4 0, 4 1, 2 1, 2 3, 4 3, 4 4, 0 4))",
            ),
            // A hole apart is a shell.
            (
                "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (5 5, 6 5, 6 6, 5 6, 5 5))",
                "MULTIPOLYGON (((5 6, 5 5, 6 5, 6 6, 5 6)), ((0 4, 0 0, 4 0, 4 4, 0 4)))",
            ),
            // A loop that runs around twice covers once.
            (
                "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0, 3 3, 6 3, 6 6, 3 6, 3 3, 0 0))",
                "POLYGON ((0 9, 0 0, 9 0, 9 9, 0 9))",
            ),
            // Surfaces that overlap are one.
            (
                "MULTIPOLYGON (((0 0, 4 0, 4 4, 0 4, 0 0)), ((2 0, 6 0, 6 4, 2 4, 2 0)))",
                "MULTIPOLYGON (((0 4, 0 0, 2 0, 4 0, 6 0, 6 4, 4 4, 2 4, 0 4)))",
            ),
        ] {
            assert_eq!(repaired(text), want, "{text}");
        }
    }
}
