//! Choosing faces by what the rings say they are.
//!
//! A ring covers what it winds around, however often and in whichever direction. Of each polygon the
//! shell's cover counts, less the cover of its holes; a hole that does not meet its shell at all is
//! taken for a shell. What any polygon covers is chosen, so that overlapping ones are joined.

use super::graph::Graph;
use crate::validity::{Location, Point, locate};

/// Which faces to keep. The rings of the drawing are numbered through all polygons.
pub(super) fn chosen(graph: &Graph, polygons: &[Vec<Vec<Point>>]) -> Vec<bool> {
    let ways_in = graph.ways_in();
    let mut numbers = 0..;
    let mut chosen = vec![false; graph.faces()];
    for rings in polygons {
        let covers: Vec<Vec<bool>> = rings
            .iter()
            .zip(&mut numbers)
            .map(|(_, ring)| graph.windings(ring, &ways_in).into_iter().map(|winding| winding != 0).collect())
            .collect();
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
