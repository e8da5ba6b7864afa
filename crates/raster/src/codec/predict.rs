//! The predictors of TIFF, both ways.
//!
//! Sums along a row depend on each other, so they cannot be made side by side; but the bands of a
//! pixel can. The number of bands is therefore a constant of the loop where it is small.

use crate::sample::SampleData;

trait Wrapping: Copy + Default {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
}

macro_rules! wrapping {
    ($($type:ty)*) => {
        $(impl Wrapping for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
        })*
    };
}

wrapping! { u8 u16 u32 u64 }

fn sum_of<T: Wrapping, const N: usize>(row: &mut [T]) {
    let mut sum = [T::default(); N];
    for pixel in row.chunks_exact_mut(N) {
        for (value, sum) in pixel.iter_mut().zip(&mut sum) {
            *sum = sum.add(*value);
            *value = *sum;
        }
    }
}

fn sum_rows<T: Wrapping>(values: &mut [T], row_len: usize, together: usize) {
    for row in values.chunks_mut(row_len.max(1)) {
        match together {
            1 => sum_of::<T, 1>(row),
            2 => sum_of::<T, 2>(row),
            3 => sum_of::<T, 3>(row),
            4 => sum_of::<T, 4>(row),
            _ => {
                for at in together..row.len() {
                    row[at] = row[at].add(row[at - together]);
                }
            }
        }
    }
}

fn differ_rows<T: Wrapping>(values: &mut [T], row_len: usize, together: usize) {
    // From a copy of the row, so that the differences do not depend on each other.
    let mut before = vec![T::default(); row_len];
    for row in values.chunks_mut(row_len.max(1)) {
        let before = &mut before[..row.len()];
        before.copy_from_slice(row);
        for (value, left) in row.iter_mut().skip(together).zip(&*before) {
            *value = value.sub(*left);
        }
    }
}

/// Differences become values. The values of a row are `row_len`, those of a pixel `together`.
pub(super) fn undo_horizontal(data: &mut SampleData, row_len: usize, together: usize) {
    let size = data.sample().size();
    let bytes = data.bytes_mut();
    // The memory of a vector of values is aligned for them.
    match size {
        1 => sum_rows(bytes, row_len, together),
        2 => sum_rows::<u16>(bytemuck::cast_slice_mut(bytes), row_len, together),
        4 => sum_rows::<u32>(bytemuck::cast_slice_mut(bytes), row_len, together),
        _ => sum_rows::<u64>(bytemuck::cast_slice_mut(bytes), row_len, together),
    }
}

/// Values become differences.
pub(super) fn do_horizontal(data: &mut SampleData, row_len: usize, together: usize) {
    let size = data.sample().size();
    let bytes = data.bytes_mut();
    match size {
        1 => differ_rows(bytes, row_len, together),
        2 => differ_rows::<u16>(bytemuck::cast_slice_mut(bytes), row_len, together),
        4 => differ_rows::<u32>(bytemuck::cast_slice_mut(bytes), row_len, together),
        _ => differ_rows::<u64>(bytemuck::cast_slice_mut(bytes), row_len, together),
    }
}

/// Rows of differences of bytes, most significant bytes first, become numbers of `size` bytes in
/// little-endian order.
pub(super) fn undo_float(bytes: &mut [u8], row_len: usize, together: usize, size: usize) {
    let mut row_bytes = vec![0; row_len * size];
    for row in bytes.chunks_exact_mut(row_len * size) {
        sum_rows(row, row.len(), together);
        row_bytes.copy_from_slice(row);
        if size == 4 {
            let (b3, rest) = row_bytes.split_at(row_len);
            let (b2, rest) = rest.split_at(row_len);
            let (b1, b0) = rest.split_at(row_len);
            for ((((value, b0), b1), b2), b3) in
                row.as_chunks_mut::<4>().0.iter_mut().zip(b0).zip(b1).zip(b2).zip(b3)
            {
                *value = [*b0, *b1, *b2, *b3];
            }
            continue;
        }
        for (at, plane) in row_bytes.chunks_exact(row_len).enumerate() {
            let to = size - 1 - at;
            for (value, byte) in row.chunks_exact_mut(size).zip(plane) {
                value[to] = *byte;
            }
        }
    }
}

/// The way back of [`undo_float`].
pub(super) fn do_float(bytes: &mut [u8], row_len: usize, together: usize, size: usize) {
    let mut row_bytes = vec![0; row_len * size];
    for row in bytes.chunks_exact_mut(row_len * size) {
        for (at, plane) in row_bytes.chunks_exact_mut(row_len).enumerate() {
            let from = size - 1 - at;
            for (value, byte) in row.chunks_exact(size).zip(plane) {
                *byte = value[from];
            }
        }
        row.copy_from_slice(&row_bytes);
        differ_rows(row, row.len(), together);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SampleType;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_done_can_be_undone(
            bytes in prop::collection::vec(any::<u8>(), 16..600), together in 1usize..7, kind in 0usize..10,
        ) {
            let sample = SampleType::ALL[kind];
            let row_len = (bytes.len() / sample.size() / 2 / together).max(1) * together;
            let rows = bytes.len() / sample.size() / row_len;
            prop_assume!(rows > 0);
            let mut data = SampleData::zeros(sample, row_len * rows);
            data.bytes_mut().copy_from_slice(&bytes[..row_len * rows * sample.size()]);
            let before = data.bytes().to_vec();
            do_horizontal(&mut data, row_len, together);
            undo_horizontal(&mut data, row_len, together);
            prop_assert_eq!(data.bytes(), &before[..]);
            do_float(data.bytes_mut(), row_len, together, sample.size());
            undo_float(data.bytes_mut(), row_len, together, sample.size());
            prop_assert_eq!(data.bytes(), &before[..]);
        }
    }

    #[test]
    fn differences_are_those_of_tiff() {
        let mut data = SampleData::U16(vec![10, 100, 12, 90, 9, 95]);
        do_horizontal(&mut data, 6, 2);
        assert_eq!(data, SampleData::U16(vec![10, 100, 2, 65526, 65533, 5]));
        let mut row = [0x3f80_0000u32.to_le_bytes(), 0x4000_0000u32.to_le_bytes()].concat();
        do_float(&mut row, 2, 1, 4);
        assert_eq!(row, [0x3f, 0x01, 0x40, 0x80, 0, 0, 0, 0]);
    }
}
