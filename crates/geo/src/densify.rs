//! More positions along long edges, so that a straight edge bends with the map it is brought to.

use tidegate_core::Code;

use crate::error::Problem;
use crate::wkb::{self, Part};

/// How many positions one geometry may gain.
const ADDED_MAX: usize = 1_000_000;

/// Appends a copy in which no edge is longer than `longest`, in the unit of the coordinates. The
/// new positions divide an edge evenly; heights and measures go along.
///
/// # Errors
/// `INVALID_GEOMETRY` if that would add more than a million positions, or `longest` is not a
/// positive number.
pub fn densify(wkb: &[u8], longest: f64, out: &mut Vec<u8>) -> Result<(), Problem> {
    let refuse = |message: String| Err(Problem::new(Code::INVALID_GEOMETRY, message));
    if !(longest.is_finite() && longest > 0.0) {
        return refuse(format!("{longest} is not a length to densify by"));
    }
    let mut added = 0usize;
    let mut made: Vec<[f64; 4]> = Vec::new();
    wkb::edit(wkb, out, |part, _, positions| {
        if part == Part::Point {
            return Ok(());
        }
        made.clear();
        for (at, b) in positions.iter().enumerate() {
            if let Some(a) = at.checked_sub(1).and_then(|before| positions.get(before)) {
                let pieces = (f64::hypot(b[0] - a[0], b[1] - a[1]) / longest).ceil();
                // NaN and infinity stay as they are; validity tells of them.
                let pieces = if pieces.is_finite() { pieces } else { 1.0 };
                if pieces - 1.0 > (ADDED_MAX - added) as f64 {
                    return refuse(format!(
                        "edges of at most {longest} would need more than {ADDED_MAX} positions"
                    ));
                }
                let pieces = (pieces as usize).max(1);
                added += pieces - 1;
                for step in 1..pieces {
                    let share = step as f64 / pieces as f64;
                    let mut between = [f64::NAN; 4];
                    for ((slot, from), to) in between.iter_mut().zip(a).zip(b) {
                        *slot = from + (to - from) * share;
                    }
                    made.push(between);
                }
            }
            made.push(*b);
        }
        std::mem::swap(positions, &mut made);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn densified(text: &str, longest: f64) -> Result<String, Problem> {
        let (mut wkb, mut out) = (Vec::new(), Vec::new());
        crate::wkt::read(text, &mut wkb).unwrap();
        densify(&wkb, longest, &mut out).map(|()| crate::wkt::to_string(&out))
    }

    #[test]
    fn edges_are_divided_evenly_and_ends_stay() {
        assert_eq!(
            densified("LINESTRING Z (0 0 0, 4 0 8)", 1.5).unwrap(),
            "LINESTRING Z (0 0 0, 1.3333333333333333 0 2.6666666666666665, 2.6666666666666665 0 5.333333333333333, 4 0 8)"
        );
        assert_eq!(
            densified("POLYGON ((0 0, 2 0, 2 1, 0 0))", 1.0).unwrap(),
            "POLYGON ((0 0, 1 0, 2 0, 2 1, 1.3333333333333335 0.6666666666666667, 0.6666666666666667 0.33333333333333337, 0 0))"
        );
        assert_eq!(densified("POINT (1 2)", 0.1).unwrap(), "POINT (1 2)");
        assert_eq!(densified("LINESTRING EMPTY", 0.1).unwrap(), "LINESTRING EMPTY");
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(densified("LINESTRING (0 0, 4 0)", 1e-9).is_err());
        assert!(densified("LINESTRING (0 0, 1e300 0)", 1.0).is_err());
        for length in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(densified("LINESTRING (0 0, 4 0)", length).is_err());
        }
    }
}
