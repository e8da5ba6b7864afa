//! Values of other widths than bytes have: 1 to 7 bits, 9 to 15, 17 to 31, and short floating-point numbers.

use super::BlockForm;
use crate::sample::SampleData;

/// Widens rows of packed values.
pub(super) fn widen(bytes: &[u8], form: &BlockForm, data: &mut SampleData) {
    let values_of_row = form.width as usize * form.together as usize;
    let row_len = usize::try_from(form.row_len()).unwrap_or(usize::MAX);
    let bits = u32::from(form.bits);
    match data {
        SampleData::U8(out) => rows(bytes, out, row_len, values_of_row, bits, |n| n as u8),
        SampleData::U16(out) => rows(bytes, out, row_len, values_of_row, bits, |n| n as u16),
        // Packed as other widths are, but libtiff swaps the three bytes of a value in big-endian files.
        SampleData::U32(out) if bits == 24 => {
            for (value, three) in out.iter_mut().zip(bytes.chunks_exact(3)) {
                let [a, b, c] = [three[0], three[1], three[2]].map(u32::from);
                *value = if form.big_endian { c << 16 | b << 8 | a } else { a << 16 | b << 8 | c };
            }
        }
        SampleData::U32(out) => rows(bytes, out, row_len, values_of_row, bits, |n| n),
        SampleData::F32(out) => {
            let size = usize::from(form.bits / 8).max(1);
            for (value, part) in out.iter_mut().zip(bytes.chunks_exact(size)) {
                let add = |sum: u32, byte: &u8| (sum << 8) | u32::from(*byte);
                let found =
                    if form.big_endian { part.iter().fold(0, add) } else { part.iter().rev().fold(0, add) };
                *value = if size == 2 { widened(found, 5, 10) } else { widened(found, 7, 16) };
            }
        }
        _ => {}
    }
}

fn rows<T>(bytes: &[u8], out: &mut [T], row_len: usize, values: usize, bits: u32, make: impl Fn(u32) -> T) {
    for (row, out) in bytes.chunks(row_len.max(1)).zip(out.chunks_mut(values.max(1))) {
        let (mut held, mut count, mut next) = (0u64, 0u32, row.iter());
        for value in out {
            while count < bits {
                held = (held << 8) | u64::from(next.next().copied().unwrap_or(0));
                count += 8;
            }
            count -= bits;
            *value = make((held >> count) as u32 & (u32::MAX >> (32 - bits)));
        }
    }
}

/// A floating-point number of a sign, `exponent` bits and `fraction` bits.
fn widened(bits: u32, exponent: u32, fraction: u32) -> f32 {
    let sign = if bits >> (exponent + fraction) & 1 == 1 { -1.0f64 } else { 1.0 };
    let (low, top) = (bits & ((1 << fraction) - 1), (bits >> fraction) & ((1 << exponent) - 1));
    let bias = (1i32 << (exponent - 1)) - 1;
    let part = f64::from(low) / f64::from(1u32 << fraction);
    let value = match top {
        0 => part * 2f64.powi(1 - bias),
        _ if top == (1 << exponent) - 1 => {
            return if low == 0 { (sign * f64::INFINITY) as f32 } else { f32::NAN };
        }
        _ => (1.0 + part) * 2f64.powi(top as i32 - bias),
    };
    (sign * value) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_widths() {
        let mut out = [0u16; 3];
        rows(&[0x12, 0x34, 0x56, 0x78, 0x90], &mut out, 5, 3, 12, |n| n as u16);
        assert_eq!(out, [0x123, 0x456, 0x789]);
        let mut out = [0u8; 5];
        rows(&[0b1011_0000], &mut out, 1, 5, 1, |n| n as u8);
        assert_eq!(out, [1, 0, 1, 1, 0]);
    }

    #[test]
    fn short_floats() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 5.960_464_5e-8), (0x7c00, f32::INFINITY)]
        {
            assert_eq!(widened(bits, 5, 10), value);
        }
        assert!(widened(0x7e00, 5, 10).is_nan());
        assert_eq!(widened(0x3f_0000, 7, 16), 1.0);
    }
}
