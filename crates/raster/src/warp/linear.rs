//! Bilinear: the four pixels around a position. The weights are computed once for all bands.

use super::kernel::{Neighbourhood, Tap, Validity, chunk};
use super::number::KernelNumber;

/// The shares of the two columns and rows around a position.
#[derive(Clone, Copy)]
pub(super) struct LinearWeights {
    x: f64,
    y: f64,
    /// Of the four pixels, and their sum, which is 1 but for rounding.
    each: [f64; 4],
    sum: f64,
}

impl LinearWeights {
    #[inline(always)]
    pub(super) fn of(tap: &Tap) -> LinearWeights {
        let (x, y) = (1.5 - (tap.x - tap.column), 1.5 - (tap.y - tap.row));
        let each = [x * y, (1.0 - x) * y, x * (1.0 - y), (1.0 - x) * (1.0 - y)];
        LinearWeights { x, y, each, sum: each[0] + each[1] + each[2] + each[3] }
    }
}

#[inline(always)]
pub(super) fn bilinear<T: KernelNumber, V: Validity<T>>(
    around: &Neighbourhood<'_, T>,
    plane: &[T],
    tap: &Tap,
    weights: &LinearWeights,
    valid: V,
) -> Option<f64> {
    if !tap.inner {
        return bilinear_at_edge(around, plane, tap, valid);
    }
    let (at, stride) = (tap.at, around.extent.0);
    let ([a, b], [c, d]) = (chunk::<T, 2>(plane, at)?, chunk::<T, 2>(plane, at + stride)?);
    let (rx, ry) = (weights.x, weights.y);
    if V::ALL {
        let upper = a.to_f64() * rx + b.to_f64() * (1.0 - rx);
        let lower = c.to_f64() * rx + d.to_f64() * (1.0 - rx);
        return Some(upper * ry + lower * (1.0 - ry));
    }
    let there =
        [valid.is(at, a), valid.is(at + 1, b), valid.is(at + stride, c), valid.is(at + stride + 1, d)];
    let values = [a, b, c, d].map(T::to_f64);
    let [w, x, y, z] = weights.each;
    if there[0] & there[1] & there[2] & there[3] {
        // Mostly. What is divided by 1 stays as it is.
        let sum = 0.0 + values[0] * w + values[1] * x + values[2] * y + values[3] * z;
        return Some(sum / weights.sum);
    }
    weighed([
        (there[0], values[0], w),
        (there[1], values[1], x),
        (there[2], values[2], y),
        (there[3], values[3], z),
    ])
}

/// The weighted mean of the values that are valid.
#[inline]
fn weighed(all: [(bool, f64, f64); 4]) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (valid, value, weight) in all {
        if valid {
            weights += weight;
            sum += value * weight;
        }
    }
    if weights == 1.0 {
        Some(sum)
    } else if weights < 0.00001 {
        None
    } else {
        Some(sum / weights)
    }
}

#[cold]
pub(super) fn bilinear_at_edge<T: KernelNumber, V: Validity<T>>(
    around: &Neighbourhood<'_, T>,
    plane: &[T],
    tap: &Tap,
    valid: V,
) -> Option<f64> {
    let (mut column, mut row) = (tap.column as i64, tap.row as i64);
    let (mut rx, mut ry) = (1.5 - (tap.x - column as f64), 1.5 - (tap.y - row as f64));
    if column == -1 {
        (column, rx) = (0, 1.0);
    }
    if row == -1 {
        (row, ry) = (0, 1.0);
    }
    let value = |column: i64, row: i64, weight: f64| {
        let inside =
            column >= 0 && row >= 0 && column < i64::from(around.size.0) && row < i64::from(around.size.1);
        let at = around.index(column, row);
        match plane.get(at).filter(|_| inside) {
            Some(value) => (valid.is(at, *value), value.to_f64(), weight),
            None => (false, 0.0, 0.0),
        }
    };
    weighed([
        value(column, row, rx * ry),
        value(column + 1, row, (1.0 - rx) * ry),
        value(column, row + 1, rx * (1.0 - ry)),
        value(column + 1, row + 1, (1.0 - rx) * (1.0 - ry)),
    ])
}
