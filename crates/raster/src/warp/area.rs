//! Average and mode: one value out of all pixels that lie in the area of a pixel of the result.
//!
//! The area is the box between the upper left and the lower right corner of the pixel, both brought to the
//! source. A source pixel counts by the share of it that lies in the box; one that is not valid does not
//! count. Of values that are equally common, the mode is the one that was ahead first, row by row.

use std::collections::HashMap;

use super::kernel::{Neighbourhood, Setting, Validity, settled, with_validity};
use super::number::KernelNumber;
use super::resampling::Resampling;

/// The pixels of a box, with the share of the first and last column and row.
struct AreaBox {
    left: i64,
    right: i64,
    top: i64,
    bottom: i64,
    x: (f64, f64),
    y: (f64, f64),
}

/// The range of pixels from `low` to `high`, of `len`; nothing if they share none.
fn range(low: f64, high: f64, len: u32) -> Option<(i64, i64)> {
    const SLACK: f64 = 1e-10;
    let most = f64::from(len);
    if !(high > -SLACK && low < most + SLACK) {
        return None;
    }
    let first = (low + SLACK).floor().max(0.0) as i64;
    let mut last = (high - SLACK).ceil().min(most) as i64;
    if first == last && last < i64::from(len) {
        last += 1;
    }
    (first < last).then_some((first, last))
}

impl AreaBox {
    fn new(a: (f64, f64), b: (f64, f64), size: (u32, u32), margin: (f64, f64)) -> Option<AreaBox> {
        let near = |p: (f64, f64)| {
            // False for NaN.
            p.0 >= -margin.0
                && p.1 >= -margin.1
                && p.0 <= f64::from(size.0) + margin.0
                && p.1 <= f64::from(size.1) + margin.1
        };
        if !near(a) || !near(b) {
            return None;
        }
        let (x, y) = ((a.0.min(b.0), a.0.max(b.0)), (a.1.min(b.1), a.1.max(b.1)));
        let ((left, right), (top, bottom)) = (range(x.0, x.1, size.0)?, range(y.0, y.1, size.1)?);
        Some(AreaBox { left, right, top, bottom, x, y })
    }

    /// The share of a column or row.
    #[inline]
    fn share(at: i64, (first, last): (i64, i64), (low, high): (f64, f64)) -> f64 {
        if at == first {
            if first + 1 == last { 1.0 } else { 1.0 - (low - first as f64) }
        } else if at + 1 == last {
            1.0 - (last as f64 - high)
        } else {
            1.0
        }
    }

    /// Calls a function with each valid value and its share.
    #[inline(always)]
    fn each<T: KernelNumber, V: Validity<T>>(
        &self,
        around: &Neighbourhood<'_, T>,
        plane: &[T],
        valid: V,
        mut see: impl FnMut(T, f64),
    ) {
        for row in self.top..self.bottom {
            let down = AreaBox::share(row, (self.top, self.bottom), self.y);
            let at = around.index(self.left, row);
            let Some(values) = plane.get(at..at + (self.right - self.left) as usize) else { continue };
            for (i, value) in values.iter().enumerate() {
                let share = down * AreaBox::share(self.left + i as i64, (self.left, self.right), self.x);
                if valid.is(at + i, *value) && share > 0.0 {
                    see(*value, share);
                }
            }
        }
    }
}

/// How common each value is.
struct Tally<T> {
    values: Vec<(T, f32)>,
    places: HashMap<u64, usize>,
    ahead: usize,
}

impl<T: KernelNumber> Tally<T> {
    /// So few values are found faster one by one.
    const FEW: usize = 16;

    fn key(value: T) -> u64 {
        let mut bytes = [0; 8];
        for (slot, byte) in bytes.iter_mut().zip(bytemuck::bytes_of(&value)) {
            *slot = *byte;
        }
        u64::from_le_bytes(bytes)
    }

    fn clear(&mut self) {
        self.values.clear();
        self.places.clear();
        self.ahead = 0;
    }

    fn place(&self, value: T) -> Option<usize> {
        if self.values.len() <= Tally::<T>::FEW {
            return self.values.iter().position(|(known, _)| known.same(value));
        }
        self.places.get(&Tally::key(value)).copied()
    }

    fn add(&mut self, value: T, share: f64) {
        let at = self.place(value).unwrap_or_else(|| {
            let at = self.values.len();
            self.values.push((value, 0.0));
            if at == Tally::<T>::FEW {
                for (i, (known, _)) in self.values.iter().enumerate() {
                    self.places.insert(Tally::key(*known), i);
                }
            } else if at > Tally::<T>::FEW {
                self.places.insert(Tally::key(value), at);
            }
            at
        });
        let best = self.values.get(self.ahead).map_or(0.0, |(_, count)| *count);
        if let Some((_, count)) = self.values.get_mut(at) {
            *count += share as f32;
            if *count > best {
                self.ahead = at;
            }
        }
    }

    fn commonest(&self) -> Option<T> {
        self.values.get(self.ahead).map(|(value, _)| *value)
    }
}

/// Resamples a row. The corners are those of the row and of the one below, one more than there are pixels.
pub(super) fn area_row<T: KernelNumber>(
    around: &Neighbourhood<'_, T>,
    setting: &Setting<T>,
    upper: (&[f64], &[f64]),
    lower: (&[f64], &[f64]),
    out: &mut [&mut [T]],
    covered: &mut [u8],
) {
    let margin = |scale: f64| 2.0 * (1.0 / scale).ceil().max(1.0);
    let margin = (margin(setting.scale.x), margin(setting.scale.y));
    covered.fill(0);
    let mut tally = Tally { values: Vec::new(), places: HashMap::new(), ahead: 0 };
    let corners = upper.0.iter().zip(upper.1).zip(lower.0.iter().zip(lower.1).skip(1));
    for (i, ((x, y), (to_x, to_y))) in corners.enumerate() {
        let Some(area) = AreaBox::new((*x, *y), (*to_x, *to_y), around.size, margin) else { continue };
        for (plane, out) in around.planes.iter().zip(out.iter_mut()) {
            let found = with_validity!(around, valid => if setting.method == Resampling::Average {
                let (mut mean, mut total) = (0.0, 0.0);
                area.each(around, plane, valid, |value, share| {
                    total += share;
                    mean += (share / total) * (value.to_f64() - mean);
                });
                (total > 0.0).then(|| T::settle(mean))
            } else {
                tally.clear();
                area.each(around, plane, valid, |value, share| tally.add(value, share));
                tally.commonest()
            });
            if let (Some(found), Some(out), Some(covered)) = (found, out.get_mut(i), covered.get_mut(i)) {
                *out = settled(found, setting.fill);
                *covered = 255;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scale::KernelScale;
    use super::*;

    fn run(method: Resampling, nodata: Option<u8>, corners: [(f64, f64); 2]) -> Option<u8> {
        let plane = [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 2, 0u8];
        let around = Neighbourhood {
            start: (0, 0),
            extent: (4, 3),
            size: (4, 3),
            planes: vec![&plane[..]],
            nodata,
            mask: None,
        };
        let setting = Setting { method, scale: KernelScale { x: 0.25, y: 0.25 }, fill: nodata };
        let [(x, y), (to_x, to_y)] = corners;
        let (mut out, mut covered) = ([100u8], [9u8]);
        area_row(
            &around,
            &setting,
            (&[x, 0.0], &[y, 0.0]),
            (&[0.0, to_x], &[0.0, to_y]),
            &mut [&mut out],
            &mut covered,
        );
        (covered == [255]).then_some(out[0])
    }

    #[test]
    fn means_and_modes_are_of_the_area() {
        // 1 2 3 4 / 5 6 7 8 / 9 2 2 0
        assert_eq!(run(Resampling::Average, None, [(0.0, 0.0), (2.0, 2.0)]), Some(4)); // 14 / 4
        assert_eq!(run(Resampling::Average, None, [(0.5, 0.0), (2.0, 1.0)]), Some(2)); // (0.5 + 2) / 1.5
        assert_eq!(run(Resampling::Average, Some(0), [(2.0, 2.0), (4.0, 3.0)]), Some(2));
        assert_eq!(run(Resampling::Average, Some(0), [(3.0, 2.0), (4.0, 3.0)]), None);
        assert_eq!(run(Resampling::Average, None, [(9.0, 9.0), (10.0, 10.0)]), None);
        assert_eq!(run(Resampling::Average, None, [(f64::NAN, 0.0), (1.0, 1.0)]), None);
        assert_eq!(run(Resampling::Mode, None, [(0.0, 0.0), (4.0, 3.0)]), Some(2));
        // Equally common: the first.
        assert_eq!(run(Resampling::Mode, None, [(0.0, 0.0), (2.0, 2.0)]), Some(1));
        // A computed value is never nodata.
        assert_eq!(run(Resampling::Average, Some(3), [(1.0, 0.0), (4.0, 1.0)]), Some(2)); // of 2 and 4
    }

    #[test]
    fn many_values_are_counted_like_few() {
        let mut tally = Tally { values: Vec::new(), places: HashMap::new(), ahead: 0 };
        for i in 0..1000u32 {
            tally.add(i % 100, 1.0);
        }
        tally.add(77, 0.5);
        assert_eq!(tally.commonest(), Some(77));
        assert_eq!(tally.values.len(), 100);
    }
}
