//! Kernels that are as wide as the pixels of a coarser result.

use super::kernel::{Neighbourhood, Setting, Tap, Validity};
use super::number::KernelNumber;
use super::resampling::Resampling;

/// The weight of a pixel at this distance, in pixels of the result.
#[inline]
fn weight(method: Resampling, distance: f64) -> f64 {
    let x = distance.abs();
    if method == Resampling::Bilinear {
        return if x <= 1.0 { 1.0 - x } else { 0.0 };
    }
    if x <= 1.0 {
        x * x * (1.5 * x - 2.5) + 1.0
    } else if x <= 2.0 {
        x * (x * (-0.5 * x + 2.5) - 4.0) + 2.0
    } else {
        0.0
    }
}

/// A kernel that is as wide as the pixels of the result.
pub(super) fn wide_kernel<T: KernelNumber, V: Validity<T>>(
    around: &Neighbourhood<'_, T>,
    plane: &[T],
    setting: &Setting<T>,
    tap: &Tap,
    valid: V,
) -> Option<f64> {
    const KEPT: usize = 64;
    let method = setting.method;
    let (column, row) = (tap.column, tap.row);
    let (dx, dy) = (tap.x - 0.5 - column, tap.y - 0.5 - row);
    let (reach_x, reach_y) = setting.scale.reach(method);
    let (scale_x, scale_y) = (setting.scale.x.min(1.0), setting.scale.y.min(1.0));
    let range = |at: f64, reach: i64, len: u32| {
        let at = at as i64;
        ((1 - reach).max(-at), reach.min(i64::from(len) - 1 - at))
    };
    let (left, right) = range(column, reach_x, around.size.0);
    let (top, bottom) = range(row, reach_y, around.size.1);
    let mut room = [0.0; KEPT];
    let count = usize::try_from(right - left + 1).unwrap_or(0);
    let mut many = Vec::new();
    let weights: &mut [f64] = if count <= KEPT {
        room.get_mut(..count)?
    } else {
        many.resize(count, 0.0);
        &mut many
    };
    for (i, w) in (left..=right).zip(weights.iter_mut()) {
        *w = weight(method, (i as f64 - dx) * scale_x);
    }
    let weights = &*weights;
    let (mut sum, mut total) = (0.0, 0.0);
    for j in top..=bottom {
        let down = weight(method, (j as f64 - dy) * scale_y);
        let at = around.index(column as i64 + left, row as i64 + j);
        let values = plane.get(at..at + count)?;
        let (mut line, mut line_total) = (0.0, 0.0);
        for (i, (value, across)) in values.iter().zip(weights).enumerate() {
            if V::ALL || valid.is(at + i, *value) {
                line += value.to_f64() * across;
                line_total += across;
            }
        }
        sum += line * down;
        total += line_total * down;
    }
    if total < 0.000001 {
        return None;
    }
    Some(if (0.99999..=1.00001).contains(&total) { sum } else { sum / total })
}
