//! What the pixels look like, where nothing can prove what they are.
//!
//! A lost predictor tag and swapped bytes leave blocks that pass every checksum and pixels that are
//! wrong. They cannot be proven, but they leave traces: differences are small except in the first
//! column of every block, and swapped bytes make neighbours differ wildly. A trace is told, never
//! acted on.

use super::directory::TiffForm;
use super::layout::RepairLayout;

/// How much larger the first column is where the rest are differences.
const FIRST_COLUMN_MIN: f64 = 8.0;
/// How much smoother swapped bytes must be.
const SWAPPED_MIN: f64 = 8.0;

/// Sums over the pixels of some blocks.
#[derive(Default)]
pub(super) struct PixelHints {
    first: (f64, u64),
    rest: (f64, u64),
    steps: (f64, u64),
    swapped_steps: (f64, u64),
}

fn mean((sum, count): (f64, u64)) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}

impl PixelHints {
    /// Adds an unpacked block of whole numbers of 8, 16 or 32 bits.
    pub(super) fn add(&mut self, layout: &RepairLayout, form: TiffForm, unpacked: &[u8]) {
        let Some(len) = matches!(layout.bits, 8 | 16 | 32).then_some(layout.bits as usize / 8) else {
            return;
        };
        let samples = layout.samples_in_block() as usize;
        let shift = 64 - layout.bits as u32;
        let signed = |bytes: &[u8], form: TiffForm| ((form.number(bytes) << shift) as i64 >> shift) as f64;
        let other = TiffForm { big_endian: !form.big_endian, ..form };
        for row in unpacked.chunks_exact(layout.row_len().max(1) as usize) {
            for (i, bytes) in row.chunks_exact(len).enumerate() {
                let value = signed(bytes, form);
                let Some(before) = i.checked_sub(samples) else {
                    self.first.0 += value.abs();
                    self.first.1 += 1;
                    continue;
                };
                self.rest.0 += value.abs();
                self.rest.1 += 1;
                if let Some(left) = row.get(before * len..before * len + len) {
                    self.steps.0 += (value - signed(left, form)).abs();
                    self.steps.1 += 1;
                    self.swapped_steps.0 += (signed(bytes, other) - signed(left, other)).abs();
                    self.swapped_steps.1 += 1;
                }
            }
        }
    }

    /// Whether the pixels look like differences of neighbours.
    pub(super) fn are_differences(&self) -> bool {
        let (first, rest, steps) = (mean(self.first), mean(self.rest), mean(self.steps));
        self.rest.1 > 256 && rest > 0.0 && first > rest * FIRST_COLUMN_MIN && steps > rest * 0.5
    }

    /// Whether the pixels would be much smoother in the other byte order.
    pub(super) fn are_swapped(&self) -> bool {
        let (steps, swapped) = (mean(self.steps), mean(self.swapped_steps));
        self.steps.1 > 256 && swapped > 0.0 && steps > swapped * SWAPPED_MIN
    }
}
