//! Choosing faces by what the rings say they are.
//!
//! A ring covers what it winds around, however often and in whichever direction. Of each polygon the
//! shell's cover counts, less the cover of its holes; a hole that does not meet its shell at all is
//! taken for a shell. What any polygon covers is chosen, so that overlapping ones are joined.

use super::graph::Graph;
use crate::limits::{WorkBound, WorkMeter};
use crate::validity::{Box2, IndexedRing, Location, Point};

/// What a ring is to its polygon.
#[derive(Clone, Copy, Debug)]
struct RingRole {
    polygon: usize,
    /// Its place in the polygon; the shell is the first.
    place: usize,
    /// Whether it takes away from the shell; a hole that does not is a shell itself.
    cuts: bool,
}

/// Which faces to keep. The rings of the drawing are numbered through all polygons.
pub(super) fn chosen(
    graph: &Graph,
    polygons: &[Vec<Vec<Point>>],
    work: &mut WorkMeter,
) -> Result<Vec<bool>, WorkBound> {
    let covers = graph.windings(work)?;
    let roles = polygons.iter().enumerate().flat_map(|(polygon, rings)| {
        (0..rings.len()).map(move |place| RingRole { polygon, place, cuts: false })
    });
    let mut roles: Vec<RingRole> = roles.collect();
    // A hole that shares a face with its shell meets it.
    for rings in &covers {
        let shells: Vec<usize> = own_shells(rings, &roles).collect();
        for (ring, _) in rings {
            if let Some(role) = roles.get_mut(*ring) {
                role.cuts |= shells.binary_search(&role.polygon).is_ok();
            }
        }
    }
    for (number, rings) in polygons.iter().enumerate() {
        let Some((shell, holes)) = rings.split_first().filter(|(_, holes)| !holes.is_empty()) else {
            continue;
        };
        let first = roles.partition_point(|role| role.polygon < number);
        let mut indexed = IndexedRing::new(shell);
        for (hole, at) in holes.iter().zip(first + 1..) {
            let Some(role) = roles.get_mut(at).filter(|role| !role.cuts) else { continue };
            role.cuts = touches(shell, &mut indexed, hole, work)?;
        }
    }
    let mut chosen = vec![false; graph.faces()];
    for (rings, keep) in covers.iter().zip(&mut chosen) {
        work.take(rings.len())?;
        let of = |ring: &usize| roles.get(*ring).copied();
        let mut cut: Vec<usize> = Vec::new();
        for role in rings.iter().filter_map(|(ring, _)| of(ring)).filter(|role| role.place > 0) {
            if role.cuts {
                cut.push(role.polygon);
            } else {
                *keep = true;
            }
        }
        *keep |= own_shells(rings, &roles).any(|polygon| cut.binary_search(&polygon).is_err());
    }
    Ok(chosen)
}

/// The polygons whose shells wind around a face, in ascending order.
fn own_shells<'a>(rings: &'a [(usize, i64)], roles: &'a [RingRole]) -> impl Iterator<Item = usize> + 'a {
    let shells = rings.iter().filter_map(|(ring, _)| roles.get(*ring)).filter(|role| role.place == 0);
    shells.map(|role| role.polygon)
}

/// Whether a corner of one lies on the other.
fn touches(
    shell: &[Point],
    indexed: &mut IndexedRing<'_>,
    hole: &[Point],
    work: &mut WorkMeter,
) -> Result<bool, WorkBound> {
    for p in hole {
        if indexed.locate(*p, work)? == Location::OnEdge {
            return Ok(true);
        }
    }
    let around = Box2::around(hole);
    let mut hole = IndexedRing::new(hole);
    work.take(shell.len() / 8)?;
    for p in shell.iter().filter(|p| around.holds(**p)) {
        if hole.locate(*p, work)? == Location::OnEdge {
            return Ok(true);
        }
    }
    Ok(false)
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
