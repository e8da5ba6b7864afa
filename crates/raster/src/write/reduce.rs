//! Overviews: four pixels become one.

use super::{OverviewMethod, RasterSpec};
use crate::head::NoData;
use crate::sample::{Pixel, Samples};
use crate::with_pixel;

/// Makes the tiles of overviews.
pub(super) struct Reducer {
    pub(super) method: OverviewMethod,
    pub(super) nodata: Option<NoData>,
    pub(super) alpha: Option<u32>,
    pub(super) block: u32,
}

/// Sums of four values, and their mean.
trait Averaged: Pixel {
    /// The mean of so many values, rounded half up.
    fn mean(values: [Self; 4], count: u32) -> Self;
    /// The next larger value, or the next smaller of the largest: what a mean becomes that is nodata by chance.
    fn beside(self) -> Self;
}

macro_rules! averaged {
    ($($type:ty, $sum:ty;)*) => {
        $(#[allow(clippy::cast_lossless, clippy::useless_conversion, clippy::unnecessary_cast, reason = "one text for all types")]
        impl Averaged for $type {
            #[inline(always)]
            fn mean(values: [$type; 4], count: u32) -> $type {
                let [a, b, c, d] = values.map(|value| value as $sum);
                let sum = a + b + c + d;
                match count {
                    4 => ((sum + 2) >> 2) as $type,
                    3 => ((2 * sum + 3).div_euclid(6)) as $type,
                    2 => ((sum + 1) >> 1) as $type,
                    _ => sum as $type,
                }
            }
            fn beside(self) -> $type {
                self.checked_add(1).unwrap_or(self.wrapping_sub(1))
            }
        })*
    };
}

averaged! { u8, u32; i8, i32; u16, u32; i16, i32; u32, i64; i32, i64; u64, i128; i64, i128; }

macro_rules! averaged_floats {
    ($($type:ty)*) => {
        $(#[allow(clippy::cast_lossless, clippy::useless_conversion, clippy::unnecessary_cast, reason = "one text for all types")]
        impl Averaged for $type {
            #[inline(always)]
            fn mean(values: [$type; 4], count: u32) -> $type {
                let [a, b, c, d] = values.map(f64::from);
                ((a + b + c + d) / f64::from(count)) as $type
            }
            fn beside(self) -> $type {
                self.next_up()
            }
        })*
    };
}

averaged_floats! { f32 f64 }

/// Where a tile goes, and how much of it counts.
struct Quarter {
    /// Columns and rows of the tile that is reduced, of its memory and inside the picture.
    from_width: usize,
    inside: (usize, usize),
    to_width: usize,
    to: (usize, usize),
}

impl Reducer {
    /// A tile of nodata, all masked.
    pub(super) fn empty(&self, spec: &RasterSpec) -> (Samples, Option<Vec<u8>>) {
        let mut made = Samples::zeros(spec.sample, self.block, self.block, spec.bands);
        if let Some(nodata) = &self.nodata {
            made.data.fill(nodata);
        }
        let mask = spec.has_mask.then(|| vec![0; made.pixels()]);
        (made, mask)
    }

    /// Reduces a tile into a quarter of another.
    pub(super) fn reduce(
        &self,
        from: &Samples,
        mask: Option<&[u8]>,
        inside: (u32, u32),
        to: &mut Samples,
        to_mask: Option<&mut [u8]>,
        quarter: (u32, u32),
    ) {
        let half = (self.block / 2) as usize;
        let place = Quarter {
            from_width: from.width as usize,
            inside: (inside.0 as usize, inside.1 as usize),
            to_width: self.block as usize,
            to: (quarter.0 as usize * half, quarter.1 as usize * half),
        };
        with_pixel!(from.sample(), T => self.bands::<T>(from, mask, &place, to));
        if let (Some(mask), Some(to)) = (mask, to_mask) {
            place.each_row(|rows, to_at, len| {
                for (at, valid) in to[to_at..to_at + len].iter_mut().enumerate() {
                    let found = rows.four(mask, at).into_iter().any(|value| value != 0);
                    *valid = if found { 255 } else { 0 };
                }
            });
        }
    }

    fn bands<T: Averaged>(&self, from: &Samples, mask: Option<&[u8]>, place: &Quarter, to: &mut Samples) {
        let nodata: Option<T> = self.nodata.and_then(|nodata| nodata.of());
        let alpha = self.alpha.and_then(|band| from.band::<T>(band));
        for band in 0..from.bands {
            let (Some(source), Some(target)) = (from.band::<T>(band), to.band_mut::<T>(band)) else {
                continue;
            };
            let is_alpha = self.alpha == Some(band);
            let opacity = alpha.filter(|_| !is_alpha);
            place.each_row(|rows, to_at, len| {
                let target = &mut target[to_at..to_at + len];
                match self.method {
                    OverviewMethod::Nearest => {
                        for (at, value) in target.iter_mut().enumerate() {
                            *value = source[rows.first + 2 * at];
                        }
                    }
                    OverviewMethod::Average if nodata.is_none() && mask.is_none() && opacity.is_none() => {
                        rows.means(source, target);
                    }
                    OverviewMethod::Average if let (Some(nodata), None, None) = (nodata, mask, opacity) => {
                        rows.means_but(source, target, nodata);
                    }
                    method => {
                        for (at, value) in target.iter_mut().enumerate() {
                            let values = rows.four(source, at);
                            let mut valid =
                                nodata.map_or([true; 4], |nodata| values.map(|value| !value.same(nodata)));
                            for other in [
                                mask.map(|mask| rows.four(mask, at).map(|value| value != 0)),
                                opacity.map(|band| rows.four(band, at).map(|value| value != T::default())),
                            ]
                            .into_iter()
                            .flatten()
                            {
                                for (valid, other) in valid.iter_mut().zip(other) {
                                    *valid &= other;
                                }
                            }
                            *value = if method == OverviewMethod::Average {
                                average(values, valid, nodata)
                            } else {
                                most_frequent(values, valid)
                            };
                        }
                    }
                }
            });
        }
    }
}

#[inline(always)]
fn average<T: Averaged>(values: [T; 4], valid: [bool; 4], nodata: Option<T>) -> T {
    let count = valid.iter().map(|valid| u32::from(*valid)).sum();
    if count == 0 {
        // Nothing is valid: what is there stays, be it nodata or hidden by a mask.
        return values[0];
    }
    let mut taken = values;
    for (value, valid) in taken.iter_mut().zip(valid) {
        *value = if valid { *value } else { T::default() };
    }
    let mean = T::mean(taken, count);
    if nodata.is_some_and(|nodata| mean.same(nodata)) { mean.beside() } else { mean }
}

fn most_frequent<T: Pixel>(values: [T; 4], valid: [bool; 4]) -> T {
    let mut best = (0, values[0]);
    for (value, _) in values.iter().zip(valid).filter(|(_, valid)| *valid) {
        let count = values.iter().zip(valid).filter(|(other, valid)| *valid && value.same(**other)).count();
        if count > best.0 {
            best = (count, *value);
        }
    }
    best.1
}

/// Two rows that become one: where they begin, and how many pixels they have. The second is the first
/// again at an odd edge.
struct TwoRows {
    first: usize,
    second: usize,
    width: usize,
}

impl TwoRows {
    /// Four pixels; at an odd edge the last column counts twice.
    #[inline(always)]
    fn four<T: Copy>(&self, source: &[T], at: usize) -> [T; 4] {
        let (left, right) = (2 * at, (2 * at + 1).min(self.width - 1));
        [
            source[self.first + left],
            source[self.first + right],
            source[self.second + left],
            source[self.second + right],
        ]
    }

    /// The means of all, without any that do not count.
    fn means<T: Averaged>(&self, source: &[T], target: &mut [T]) {
        let whole = self.width / 2;
        let pairs = |from: usize| source[from..from + 2 * whole].as_chunks::<2>().0;
        let (upper, lower) = (pairs(self.first), pairs(self.second));
        for ((value, [a, b]), [c, d]) in target.iter_mut().zip(upper).zip(lower) {
            *value = T::mean([*a, *b, *c, *d], 4);
        }
        for (at, value) in target.iter_mut().enumerate().skip(whole) {
            *value = T::mean(self.four(source, at), 4);
        }
    }

    /// The means of those that are not nodata: first as if all counted, many at once, and then those again that
    /// are made of nodata or have become it.
    fn means_but<T: Averaged>(&self, source: &[T], target: &mut [T], nodata: T) {
        const RUN: usize = 8;
        self.means(source, target);
        // Without an early end, so that several values are compared at once.
        let has_nodata = |values: &[T]| values.iter().fold(false, |found, value| found | value.same(nodata));
        let is_nodata = |values: &[T]| values.iter().fold(true, |all, value| all & value.same(nodata));
        let mean = |values: [T; 4]| average(values, values.map(|value| !value.same(nodata)), Some(nodata));
        let whole = self.width / 2;
        let (pairs, edge) = target.split_at_mut(whole);
        let row = |from: usize| source[from..from + 2 * whole].chunks(2 * RUN);
        for ((values, first), second) in pairs.chunks_mut(RUN).zip(row(self.first)).zip(row(self.second)) {
            let (upper, lower) = (first.as_chunks::<2>().0, second.as_chunks::<2>().0);
            if is_nodata(first) & is_nodata(second) {
                values.iter_mut().zip(upper).for_each(|(value, [a, _])| *value = *a);
            } else if has_nodata(first) | has_nodata(second) | has_nodata(values) {
                for ((value, [a, b]), [c, d]) in values.iter_mut().zip(upper).zip(lower) {
                    *value = mean([*a, *b, *c, *d]);
                }
            }
        }
        for (at, value) in (whole..).zip(edge) {
            *value = mean(self.four(source, at));
        }
    }
}

impl Quarter {
    /// Calls with two rows of the tile, where the row of the other begins, and its length.
    fn each_row(&self, mut take: impl FnMut(&TwoRows, usize, usize)) {
        let (width, height) = self.inside;
        for row in 0..height.div_ceil(2) {
            let second = (2 * row + 1).min(height - 1);
            let rows = TwoRows { first: 2 * row * self.from_width, second: second * self.from_width, width };
            take(&rows, (self.to.1 + row) * self.to_width + self.to.0, width.div_ceil(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_leave_out_what_is_not_valid() {
        let all = [true; 4];
        assert_eq!(average([1u8, 2, 2, 1], all, None), 2, "half up");
        assert_eq!(average([-1i16, -2, -2, -1], all, None), -1, "half up");
        assert_eq!(average([255u8; 4], all, None), 255);
        assert_eq!(average([u64::MAX; 4], all, None), u64::MAX);
        assert_eq!(average([0u16, 10, 0, 20], [false, true, false, true], Some(0)), 15);
        assert_eq!(average([0u16, 10, 11, 11], [false, true, true, true], Some(0)), 11);
        assert_eq!(average([0u16; 4], [false; 4], Some(0)), 0);
        assert_eq!(average([-1i16, 1, -1, 1], all, Some(0)), 1, "a mean is not nodata");
        assert_eq!(average([1.0f32, 2.0, f32::NAN, 4.5], [true, true, false, true], Some(f32::NAN)), 2.5);
    }

    #[test]
    fn the_most_frequent_wins() {
        assert_eq!(most_frequent([3u8, 5, 5, 4], [true; 4]), 5);
        assert_eq!(most_frequent([3u8, 5, 4, 6], [true; 4]), 3);
        assert_eq!(most_frequent([0u8, 0, 0, 6], [false, false, false, true]), 6);
    }
}
