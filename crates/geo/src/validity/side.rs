//! On which side of a line a point lies.
//!
//! Plain arithmetic decides nearly always, and knows when it cannot. Then the products are formed
//! in double-double arithmetic, numbers of two doubles with about 106 bits. Why not exactly: GEOS
//! computes so, and where the true answer lies below the last of those bits it calls three points
//! collinear. A validator that is more exact than the database behind it would let pass what the
//! database refuses. (One case in 21,600 of our corpus showed it.)

use super::Point;
use super::double::Double;

/// Beyond this share of its terms the sign of a plain difference is certain.
const CERTAIN: f64 = 1e-15;

/// Positive if `c` lies left of the line from `a` to `b`, negative if right, 0 if on it.
#[inline]
pub(super) fn side(a: Point, b: Point, c: Point) -> f64 {
    let left = (a[0] - c[0]) * (b[1] - c[1]);
    let right = (a[1] - c[1]) * (b[0] - c[0]);
    let plain = left - right;
    if left == 0.0 || right == 0.0 || (left > 0.0) != (right > 0.0) {
        return plain;
    }
    if plain.abs() >= CERTAIN * (left + right).abs() {
        return plain;
    }
    side_in_double_double(a, b, c)
}

#[cold]
fn side_in_double_double(a: Point, b: Point, c: Point) -> f64 {
    let (x1, y1) = (Double::difference(b[0], a[0]), Double::difference(b[1], a[1]));
    let (x2, y2) = (Double::difference(c[0], b[0]), Double::difference(c[1], b[1]));
    let sum = x1.times(y2).minus(y1.times(x2));
    if sum.high == 0.0 { sum.low } else { sum.high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_to_the_last_bit_that_counts() {
        let (a, b) = ([0.0, 0.0], [3.0, 1.0]);
        assert!(side(a, b, [6.0, 2.0f64.next_up()]) > 0.0);
        assert!(side(a, b, [6.0, 2.0f64.next_down()]) < 0.0);
        assert_eq!(side(a, b, [6.0, 2.0]), 0.0);
    }

    #[test]
    fn what_geos_calls_collinear_is_collinear() {
        assert_eq!(side([1.1, 2.3], [2.1, 0.3], [0.1, 4.3]), 0.0, "the exact value is about 1.4e-32");
    }
}
