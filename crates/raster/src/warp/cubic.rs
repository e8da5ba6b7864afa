//! Cubic: sixteen pixels. The weights are computed once for all bands.

use super::kernel::{Neighbourhood, Tap, Validity, chunk};
use super::linear::{LinearWeights, bilinear, bilinear_at_edge};
use super::number::KernelNumber;

/// The weights of the four columns and rows around a position.
#[derive(Clone, Copy)]
pub(super) struct CubicWeights {
    across: [f64; 4],
    down: [f64; 4],
}

impl CubicWeights {
    #[inline(always)]
    pub(super) fn of(tap: &Tap) -> CubicWeights {
        let (dx, dy) = (tap.x - 0.5 - tap.column, tap.y - 0.5 - tap.row);
        CubicWeights { across: weights(dx), down: weights(dy) }
    }
}

/// The weights of four pixels in a row, at this distance from the second.
#[inline(always)]
fn weights(x: f64) -> [f64; 4] {
    let half = 0.5 * x;
    let three = 3.0 * x;
    let half_square = half * x;
    [
        half * (-1.0 + x * (2.0 - x)),
        1.0 + half_square * (-5.0 + three),
        half * (1.0 + x * (4.0 - three)),
        half_square * (-1.0 + x),
    ]
}

#[inline(always)]
fn dot(weights: [f64; 4], values: [f64; 4]) -> f64 {
    weights[0] * values[0] + weights[1] * values[1] + weights[2] * values[2] + weights[3] * values[3]
}

#[inline(always)]
pub(super) fn cubic<T: KernelNumber, V: Validity<T>>(
    around: &Neighbourhood<'_, T>,
    plane: &[T],
    tap: &Tap,
    weights: &CubicWeights,
    valid: V,
) -> Option<f64> {
    if !tap.inner {
        return bilinear_at_edge(around, plane, tap, valid);
    }
    let stride = around.extent.0;
    let first = tap.at - stride - 1;
    let mut rows = [[T::default(); 4]; 4];
    let mut all = true;
    for (j, row) in rows.iter_mut().enumerate() {
        let at = first + j * stride;
        *row = chunk::<T, 4>(plane, at)?;
        if !V::ALL {
            // Without branches: mostly all sixteen are valid.
            for (i, value) in row.iter().enumerate() {
                all &= valid.is(at + i, *value);
            }
        }
    }
    if !all {
        return bilinear(around, plane, tap, &LinearWeights::of(tap), valid);
    }
    Some(dot(weights.down, rows.map(|row| dot(weights.across, row.map(T::to_f64)))))
}
