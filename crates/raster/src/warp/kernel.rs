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
//! the position. Bilinear values of 8 and 16 bits are the exception ([`super::narrow`]). Alpha is that of the
//! nearest pixel.

use super::cubic::{CubicWeights, cubic};
use super::linear::{LinearWeights, bilinear};
use super::narrow::bilinear_row;
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
            _ => {
                let weights = |at, x, y| {
                    let tap = Tap::new(around, radius, at, x, y);
                    (tap, LinearWeights::of(&tap))
                };
                let value = |(tap, weights): &(Tap, LinearWeights), plane: &[T]| {
                    bilinear(around, plane, tap, weights, valid).map(T::settle)
                };
                if T::IS_NARROW {
                    bilinear_row(around, setting.fill, positions, out, covered, |i, out, covered| {
                        row.one(i, out, covered, weights, value);
                    });
                } else {
                    row.each(out, covered, weights, value);
                }
            }
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
        for (i, covered) in covered.iter_mut().enumerate() {
            self.one(i, out, covered, &common, &value);
        }
    }

    #[inline(always)]
    fn one<S>(
        &self,
        i: usize,
        out: &mut [&mut [T]],
        covered: &mut u8,
        common: impl Fn(usize, f64, f64) -> S,
        value: impl Fn(&S, &[T]) -> Option<T>,
    ) {
        let (Some(x), Some(y)) = (self.positions.0.get(i), self.positions.1.get(i)) else { return };
        let Some(at) = self.around.place(self.valid, *x, *y) else {
            *covered = 0;
            return;
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
