//! Nearest, bilinear and cubic: one value of the result out of a few pixels of the source, as GDAL does it.
//!
//! - A pixel of the result has a value if its centre lies in the source, and the source pixel there is
//!   valid in at least one band. Neighbours do not fill a hole, and do not make one.
//! - Bilinear weighs the two by two pixels around the position, cubic (Keys, a = -1/2) the four by four.
//!   Pixels that are not valid, or lie outside the source, lose their weight, and the others share it. If
//!   one of the sixteen of cubic has none, the value is the bilinear one.
//! - Where the result is coarser than the source by more than one part in twenty along one axis
//!   ([`super::scale`]), the kernel is as wide as the pixels of the result, along each axis on its own.
//! - A value that by chance is the nodata value is moved to the next one: it must not look like a hole.
//!
//! Sums are of 64 bits, in the order in which GDAL adds: the same value comes out, to the last bit but for
//! the position. Alpha is that of the nearest pixel.

use super::cubic::{CubicWeights, cubic};
use super::number::KernelNumber;
use super::resampling::Resampling;
use super::scale::KernelScale;
use super::wide::wide_kernel;

/// Some pixels of the source: a box of it, band by band.
pub(crate) struct Neighbourhood<'a, T> {
    /// Column and row of the first pixel.
    pub(crate) start: (i64, i64),
    /// Width and height of the box.
    pub(crate) extent: (usize, usize),
    /// Width and height of the whole source.
    pub(crate) size: (u32, u32),
    /// One plane per band.
    pub(crate) planes: Vec<&'a [T]>,
    /// The nodata value.
    pub(crate) nodata: Option<T>,
    /// Alpha or mask: 0 is not valid.
    pub(crate) mask: Option<&'a [u8]>,
}

/// Which pixels count.
pub(crate) trait Validity<T>: Copy {
    /// Whether all do, known before one is seen.
    const ALL: bool;
    /// Whether the pixel at this place, of this value, does.
    fn is(self, at: usize, value: T) -> bool;
}

#[derive(Clone, Copy)]
pub(super) struct EveryPixel;

impl<T> Validity<T> for EveryPixel {
    const ALL: bool = true;
    #[inline(always)]
    fn is(self, _: usize, _: T) -> bool {
        true
    }
}

#[derive(Clone, Copy)]
pub(super) struct OtherThan<T>(pub(super) T);

impl<T: KernelNumber> Validity<T> for OtherThan<T> {
    const ALL: bool = false;
    #[inline(always)]
    fn is(self, _: usize, value: T) -> bool {
        !value.same(self.0)
    }
}

#[derive(Clone, Copy)]
pub(super) struct UnderMask<'a, T> {
    pub(super) mask: &'a [u8],
    pub(super) nodata: Option<T>,
}

impl<T: KernelNumber> Validity<T> for UnderMask<'_, T> {
    const ALL: bool = false;
    #[inline(always)]
    fn is(self, at: usize, value: T) -> bool {
        self.mask.get(at).is_some_and(|m| *m != 0) && self.nodata.is_none_or(|nodata| !value.same(nodata))
    }
}

/// Calls a generic function with the validity of pixels.
macro_rules! with_validity {
    ($around:expr, $valid:ident => $body:expr) => {
        match ($around.mask, $around.nodata) {
            (Some(mask), nodata) => {
                let $valid = $crate::warp::kernel::UnderMask { mask, nodata };
                $body
            }
            (None, Some(nodata)) => {
                let $valid = $crate::warp::kernel::OtherThan(nodata);
                $body
            }
            (None, None) => {
                let $valid = $crate::warp::kernel::EveryPixel;
                $body
            }
        }
    };
}
pub(crate) use with_validity;

/// The place of a position in the source: the pixel that it lies in, by GDAL's tolerance.
#[inline]
fn cell_of(position: f64, len: u32) -> Option<i64> {
    const SLACK: f64 = 1e-10;
    // False for NaN.
    if !(position >= 0.0 && position + SLACK <= f64::from(len)) {
        return None;
    }
    Some(((position + SLACK) as i64).min(i64::from(len) - 1))
}

impl<T: KernelNumber> Neighbourhood<'_, T> {
    #[inline]
    pub(crate) fn index(&self, column: i64, row: i64) -> usize {
        ((row - self.start.1) as usize)
            .wrapping_mul(self.extent.0)
            .wrapping_add((column - self.start.0) as usize)
    }

    /// The pixel at a position, if it lies in the source and is valid in at least one band.
    #[inline(always)]
    fn place(&self, valid: impl Validity<T>, x: f64, y: f64) -> Option<usize> {
        let (column, row) = (cell_of(x, self.size.0)?, cell_of(y, self.size.1)?);
        let at = self.index(column, row);
        let any = self.planes.iter().any(|plane| plane.get(at).is_some_and(|value| valid.is(at, *value)));
        any.then_some(at)
    }

    /// The same for one position.
    pub(super) fn nearest(&self, x: f64, y: f64) -> Option<usize> {
        with_validity!(self, valid => self.place(valid, x, y))
    }
}

/// What a kernel needs besides the pixels.
pub(crate) struct Setting<T> {
    pub(crate) method: Resampling,
    pub(crate) scale: KernelScale,
    /// The value for what has none; a computed value never equals it.
    pub(crate) fill: Option<T>,
}

/// Resamples a row: positions in, values of each band and the alpha out. Values that are not found keep
/// what is in `out`; `covered` is 0 there, else the alpha.
pub(crate) fn resample_row<T: KernelNumber>(
    around: &Neighbourhood<'_, T>,
    setting: &Setting<T>,
    positions: (&[f64], &[f64]),
    out: &mut [&mut [T]],
    covered: &mut [u8],
) {
    let radius = setting.method.radius();
    with_validity!(around, valid => {
        let row = KernelRow { around, valid, fill: setting.fill, positions };
        match setting.method {
            Resampling::Nearest => row.each(out, covered, |at, _, _| at, |at, plane| {
                plane.get(*at).copied().filter(|value| valid.is(*at, *value))
            }),
            _ if setting.scale.is_wide() => row.each(
                out,
                covered,
                |at, x, y| Tap::new(around, u32::MAX, at, x, y),
                |tap, plane| wide_kernel(around, plane, setting, tap, valid).map(T::settle),
            ),
            Resampling::Cubic => row.each(
                out,
                covered,
                |at, x, y| {
                    let tap = Tap::new(around, radius, at, x, y);
                    (tap, CubicWeights::of(&tap))
                },
                |(tap, weights), plane| cubic(around, plane, tap, weights, valid).map(T::settle),
            ),
            _ => row.each(
                out,
                covered,
                |at, x, y| {
                    let tap = Tap::new(around, radius, at, x, y);
                    (tap, LinearWeights::of(&tap))
                },
                |(tap, weights), plane| bilinear(around, plane, tap, weights, valid).map(T::settle),
            ),
        }
    });
}

/// A row of the result, and what it is made of.
struct KernelRow<'a, T, V> {
    around: &'a Neighbourhood<'a, T>,
    valid: V,
    fill: Option<T>,
    positions: (&'a [f64], &'a [f64]),
}

impl<T: KernelNumber, V: Validity<T>> KernelRow<'_, T, V> {
    /// Pixel by pixel, so that what the bands of one have in common stays in registers.
    #[inline(always)]
    fn each<S>(
        &self,
        out: &mut [&mut [T]],
        covered: &mut [u8],
        common: impl Fn(usize, f64, f64) -> S,
        value: impl Fn(&S, &[T]) -> Option<T>,
    ) {
        let (x, y) = self.positions;
        for (i, ((x, y), covered)) in x.iter().zip(y).zip(covered.iter_mut()).enumerate() {
            let Some(at) = self.around.place(self.valid, *x, *y) else {
                *covered = 0;
                continue;
            };
            *covered = self.around.mask.and_then(|mask| mask.get(at)).copied().unwrap_or(255);
            let common = common(at, *x, *y);
            for (plane, out) in self.around.planes.iter().zip(out.iter_mut()) {
                if let (Some(value), Some(out)) = (value(&common, plane), out.get_mut(i)) {
                    *out = settled(value, self.fill);
                }
            }
        }
    }
}

#[inline]
pub(super) fn settled<T: KernelNumber>(value: T, fill: Option<T>) -> T {
    match fill {
        Some(fill) if value.same(fill) => value.beside(),
        _ => value,
    }
}

/// Where a position lies among the pixels.
#[derive(Clone, Copy)]
pub(crate) struct Tap {
    /// The pixel whose centre is up and left of the position.
    pub(super) at: usize,
    /// Whether the whole kernel lies in the source.
    pub(super) inner: bool,
    pub(super) x: f64,
    pub(super) y: f64,
    /// The column and row whose centres are left of and above the position.
    pub(super) column: f64,
    pub(super) row: f64,
}

/// The largest whole number up to this one. `f64::floor` is a call on plain x86-64.
#[inline(always)]
fn floor(x: f64) -> i64 {
    let cut = x as i64;
    cut - i64::from(x < cut as f64)
}

impl Tap {
    #[inline(always)]
    fn new<T: KernelNumber>(
        around: &Neighbourhood<'_, T>,
        reach: u32,
        nearest: usize,
        x: f64,
        y: f64,
    ) -> Tap {
        let (column, row) = (floor(x - 0.5), floor(y - 0.5));
        let reach = i64::from(reach);
        let inner = column + 1 >= reach
            && row + 1 >= reach
            && column + reach < i64::from(around.size.0)
            && row + reach < i64::from(around.size.1);
        let at = if inner { around.index(column, row) } else { nearest };
        Tap { at, inner, x, y, column: column as f64, row: row as f64 }
    }
}

#[inline]
pub(super) fn chunk<T: Copy, const N: usize>(plane: &[T], at: usize) -> Option<[T; N]> {
    plane.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied()
}

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
