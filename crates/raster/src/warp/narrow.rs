//! Bilinear for values of 8 and 16 bits: a run of pixels at once, with sums of 32 bits.
//!
//! Why 32 bits and not 64 in the order of GDAL, as for other types: such a value and its weight keep 24 bits,
//! so that a sum is wrong by less than a hundredth of a level. It is rounded otherwise only where it lies that
//! close to a half, and then by one level. Four sums fit into a register of plain x86-64 instead of two.
//!
//! Each step is a loop over arrays of fixed length without branches, which the compiler turns into vector
//! instructions: positions become places and weights, the four pixels around each are gathered band by band,
//! and their sums are rounded. A pixel of the result is left to the ordinary kernel if one of its four pixels
//! lies outside the source or does not count in some band. Which of the two computes it depends on its four
//! pixels alone, so that neither tiles nor threads change it. The steps are functions of their own (`inline(never)`):
//! among other code the compiler no longer sees that their arrays lie apart, and does one pixel at a time.

use super::kernel::{Neighbourhood, settled};
use super::number::KernelNumber;

/// Pixels of a run. Its arrays stay in the nearest cache.
const RUN: usize = 128;
/// Pixels that are asked at once whether all are whole.
const GROUP: usize = 8;
/// 2^52 and a half of it. Added to a whole number, it leaves that in the lowest bits; added to another one and
/// taken away again, it leaves the nearest whole number.
const WHOLE: f64 = 6_755_399_441_055_744.0;

/// The four pixels around each position: two of the upper row, two of the lower.
type Corners<T> = [[T; RUN]; 4];

/// What the bands of a run of pixels have in common.
struct LinearRun {
    /// Columns and rows of the box, and how far behind their centres the positions lie.
    columns: ([f64; RUN], [f32; RUN]),
    rows: ([f64; RUN], [f32; RUN]),
    /// The upper left pixel of the four; 0 if not all lie in the box.
    at: [u32; RUN],
    /// Whether all four are there and count in all bands: all bits, or none.
    whole: [u16; RUN],
}

/// Divides positions into whole pixels and the rest.
fn divide(positions: &[f64; RUN], start: i64, (whole, rest): &mut ([f64; RUN], [f32; RUN])) {
    let start = start as f64;
    for i in 0..RUN {
        let position = positions[i] - 0.5;
        let near = (position + WHOLE) - WHOLE;
        let below = near - if near > position { 1.0 } else { 0.0 };
        whole[i] = below - start;
        rest[i] = (position - below) as f32;
    }
}

impl LinearRun {
    fn new() -> LinearRun {
        let none = ([0.0; RUN], [0.0; RUN]);
        LinearRun { columns: none, rows: none, at: [0; RUN], whole: [0; RUN] }
    }

    /// Finds the pixels around these positions. NaN has none.
    #[inline(never)]
    fn locate<T>(&mut self, around: &Neighbourhood<'_, T>, x: &[f64; RUN], y: &[f64; RUN]) {
        divide(x, around.start.0, &mut self.columns);
        divide(y, around.start.1, &mut self.rows);
        let (stride, height) = (around.extent.0 as f64, around.extent.1 as f64);
        for i in 0..RUN {
            let (column, row) = (self.columns.0[i], self.rows.0[i]);
            let is_inner = (column >= 0.0) & (row >= 0.0) & (column <= stride - 2.0) & (row <= height - 2.0);
            let at = row * stride + column + WHOLE;
            self.at[i] = (if is_inner { at } else { WHOLE }).to_bits() as u32;
            self.whole[i] = if is_inner { u16::MAX } else { 0 };
        }
    }

    /// The four pixels around each position.
    #[inline(never)]
    fn gather<T: KernelNumber>(&self, plane: &[T], stride: usize, corners: &mut Corners<T>) {
        let [a, b, c, d] = corners;
        let lower = plane.get(stride..).unwrap_or_default();
        // All four have as many places, so that one comparison serves for them.
        let count = lower.len().saturating_sub(1);
        let (Some(upper), Some(upper_next)) = (plane.get(..count), plane.get(1..count + 1)) else { return };
        let (Some(lower), Some(lower_next)) = (lower.get(..count), lower.get(1..count + 1)) else { return };
        for i in 0..RUN {
            let at = self.at[i] as usize;
            if at < count {
                a[i] = upper[at];
                b[i] = upper_next[at];
                c[i] = lower[at];
                d[i] = lower_next[at];
            }
        }
    }

    /// Leaves out the pixels of which one of the four does not count.
    #[inline(never)]
    fn leave<T: KernelNumber>(&mut self, [a, b, c, d]: &Corners<T>, hole: T) {
        for i in 0..RUN {
            let counts = !a[i].same(hole) & !b[i].same(hole) & !c[i].same(hole) & !d[i].same(hole);
            self.whole[i] &= if counts { u16::MAX } else { 0 };
        }
    }

    /// The mean of each four, in proportion to their shares. What is not whole stays as it is in `out`.
    #[inline(never)]
    fn means<T: KernelNumber>(&self, [a, b, c, d]: &Corners<T>, fill: Option<T>, out: &mut [T; RUN]) {
        let between = |from: f32, to: f32, share: f32| from + (to - from) * share;
        for i in 0..RUN {
            let (right, low) = (self.columns.1[i], self.rows.1[i]);
            let upper = between(a[i].to_single(), b[i].to_single(), right);
            let lower = between(c[i].to_single(), d[i].to_single(), right);
            let value = settled(T::settle_single(between(upper, lower, low)), fill);
            out[i] = if self.whole[i] != 0 { value } else { out[i] };
        }
    }

    /// The alpha of the pixel that a position lies in.
    fn alpha(&self, mask: &[u8], stride: usize, i: usize) -> u8 {
        let (right, low) = (self.columns.1[i] >= 0.5, self.rows.1[i] >= 0.5);
        let at = self.at[i] as usize + usize::from(right) + stride * usize::from(low);
        mask.get(at).copied().unwrap_or(0)
    }
}

/// Resamples a row. What is not found keeps its value in `out`; `covered` is 0 there, else the alpha. `one`
/// computes a pixel by the ordinary kernel.
pub(super) fn bilinear_row<T: KernelNumber>(
    around: &Neighbourhood<'_, T>,
    fill: Option<T>,
    (x, y): (&[f64], &[f64]),
    out: &mut [&mut [T]],
    covered: &mut [u8],
    mut one: impl FnMut(usize, &mut [&mut [T]], &mut u8),
) {
    let stride = around.extent.0;
    let mut run = LinearRun::new();
    let mut corners = vec![[[T::default(); RUN]; 4]; around.planes.len()];
    let mut corners_of_mask = [[0; RUN]; 4];
    let runs = x.chunks(RUN).zip(y.chunks(RUN)).zip(covered.chunks_mut(RUN));
    for (start, ((x, y), covered)) in (0..).step_by(RUN).zip(runs) {
        let mut rest = ([f64::NAN; RUN], [f64::NAN; RUN]);
        run.locate(around, whole_run(x, &mut rest.0), whole_run(y, &mut rest.1));
        for (plane, corners) in around.planes.iter().zip(&mut corners) {
            run.gather(plane, stride, corners);
            if let Some(nodata) = around.nodata {
                run.leave(corners, nodata);
            }
        }
        if let Some(mask) = around.mask {
            run.gather(mask, stride, &mut corners_of_mask);
            run.leave(&corners_of_mask, 0);
        }
        for (corners, out) in corners.iter().zip(out.iter_mut()) {
            let Some(out) = out.get_mut(start..start + covered.len()) else { continue };
            if let Some(out) = out.first_chunk_mut::<RUN>() {
                run.means(corners, fill, out);
            } else {
                let mut made = [T::default(); RUN];
                made[..out.len()].copy_from_slice(out);
                run.means(corners, fill, &mut made);
                out.copy_from_slice(&made[..out.len()]);
            }
        }
        match around.mask {
            Some(mask) => {
                let alphas = (0..RUN).map(|i| run.alpha(mask, stride, i));
                covered.iter_mut().zip(alphas).for_each(|(covered, alpha)| *covered = alpha);
            }
            None => covered.fill(255),
        }
        let groups = covered.chunks_mut(GROUP).zip(run.whole.as_chunks::<GROUP>().0);
        for (first, (covered, whole)) in (start..).step_by(GROUP).zip(groups) {
            if whole.iter().fold(u16::MAX, |all, whole| all & whole) == u16::MAX {
                continue;
            }
            for (i, (covered, _)) in covered.iter_mut().zip(whole).enumerate().filter(|(_, (_, w))| **w == 0)
            {
                one(first + i, out, covered);
            }
        }
    }
}

/// These positions, or a copy of them that is filled up if they are fewer.
fn whole_run<'a>(positions: &'a [f64], rest: &'a mut [f64; RUN]) -> &'a [f64; RUN] {
    if let Some(whole) = positions.first_chunk() {
        return whole;
    }
    rest[..positions.len()].copy_from_slice(positions);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warp::kernel::{Setting, resample_row};
    use crate::warp::{KernelScale, Resampling};

    const SIZE: (usize, usize) = (67, 41);

    /// Numbers that look like chance.
    fn noise(seed: u64, count: usize) -> impl Iterator<Item = u64> {
        (1..=count as u64)
            .map(move |n| (n + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) >> 20)
    }

    /// Rows at a slant, which leave the picture on all sides.
    fn rows() -> Vec<(Vec<f64>, Vec<f64>)> {
        let row = |y: f64| {
            let x = (0..3 * RUN / 2).map(|n| n as f64 * 0.41 - 3.7).chain([f64::NAN, 1e300, -1e300]);
            let x: Vec<f64> = x.collect();
            let y = x.iter().map(|x| y + x * 0.11).collect();
            (x, y)
        };
        (0..60).map(|n| row(f64::from(n) * 0.77 - 4.0)).collect()
    }

    /// The values of all rows, band after band, and what is covered.
    fn resampled<T: KernelNumber>(
        planes: &[Vec<T>],
        nodata: Option<T>,
        mask: Option<&[u8]>,
    ) -> (Vec<T>, Vec<u8>) {
        let planes = planes.iter().map(Vec::as_slice).collect();
        let size = (SIZE.0 as u32, SIZE.1 as u32);
        let around = Neighbourhood { start: (0, 0), extent: SIZE, size, planes, nodata, mask };
        let fill = nodata.or(Some(T::from_f64(5.0)));
        let setting = Setting { method: Resampling::Bilinear, scale: KernelScale::default(), fill };
        let (mut values, mut coverage) = (Vec::new(), Vec::new());
        for (x, y) in rows() {
            let mut covered = vec![9; x.len()];
            let mut bands = vec![vec![T::from_f64(99.0); x.len()]; around.planes.len()];
            let mut out: Vec<&mut [T]> = bands.iter_mut().map(Vec::as_mut_slice).collect();
            resample_row(&around, &setting, (&x, &y), &mut out, &mut covered);
            values.extend(bands.concat());
            coverage.extend(covered);
        }
        (values, coverage)
    }

    fn check<T: KernelNumber>() {
        let all = i64::from(u16::MAX >> (16 - 8 * size_of::<T>()));
        let low = if T::TYPE.is_signed() { -all / 2 - 1 } else { 0 };
        let number = |n: u64| low + (n % (all as u64 + 1)) as i64;
        let hole = number(77);
        let mask: Vec<u8> =
            noise(9, SIZE.0 * SIZE.1).map(|n| if n % 31 == 0 { 0 } else { n as u8 | 1 }).collect();
        for (nodata, mask) in
            [(None, None), (Some(hole), None), (None, Some(&mask[..])), (Some(hole), Some(&mask[..]))]
        {
            let planes: Vec<Vec<i64>> = (0..3)
                .map(|band| {
                    let values = noise(band, SIZE.0 * SIZE.1);
                    values.map(|n| if n % 37 == 0 { hole } else { number(n / 64) }).collect()
                })
                .collect();
            let as_narrow = |plane: &Vec<i64>| plane.iter().map(|n| T::from_f64(*n as f64)).collect();
            let as_wide = |plane: &Vec<i64>| plane.iter().map(|n| *n as i32).collect();
            let narrow: Vec<Vec<T>> = planes.iter().map(as_narrow).collect();
            let wide: Vec<Vec<i32>> = planes.iter().map(as_wide).collect();
            let (found, covered) = resampled(&narrow, nodata.map(|n| T::from_f64(n as f64)), mask);
            let (wanted, covered_wanted) = resampled(&wide, nodata.map(|n| n as i32), mask);
            assert_eq!(covered, covered_wanted);
            let mut equal = 0;
            for (found, wanted) in found.iter().zip(&wanted) {
                let apart = (found.to_f64() - f64::from(*wanted)).abs();
                assert!(apart <= 1.0, "{} {wanted} {}", found.to_f64(), T::TYPE);
                equal += usize::from(apart == 0.0);
            }
            assert!(equal * 1000 >= wanted.len() * 998, "{equal} of {} {}", wanted.len(), T::TYPE);
        }
    }

    #[test]
    fn values_are_those_of_the_ordinary_kernel_within_one() {
        check::<u8>();
        check::<i8>();
        check::<u16>();
        check::<i16>();
    }
}
