//! The pixels of a picture of floating-point numbers, as grids of datum shifts hold them.
//!
//! Strips and tiles, plain or deflated, with either predictor, bands side by side or one after the
//! other. What a file claims is bounded before it is believed: pixels, the size of a block, and the
//! bytes that are read and unpacked in all.

use std::io::{Read, Seek, SeekFrom};

use flate2::read::ZlibDecoder;
use tidegate_core::Code;

use super::tags::Tags;
use crate::error::{Error, Problem};

/// The largest block, unpacked.
const BLOCK_LEN_MAX: u64 = 32 << 20;

fn refused(message: impl Into<String>) -> Error {
    Problem::new(Code::CORRUPTED_HEADER, message).into()
}

/// How the pixels of a picture lie in its file.
pub(crate) struct Pixels<'a> {
    tags: &'a Tags,
    /// From west to east.
    pub(crate) width: usize,
    /// From north to south.
    pub(crate) height: usize,
    /// Values of a pixel.
    pub(crate) bands: usize,
    /// The size of a block in pixels.
    block: (usize, usize),
    /// Whether each band has blocks of its own.
    separate: bool,
    /// Bytes of a value.
    size: usize,
    predictor: u64,
    deflated: bool,
}

impl<'a> Pixels<'a> {
    /// How the pixels lie, if they are of a kind that is read.
    pub(crate) fn new(tags: &'a Tags, pixels_max: usize) -> Result<Pixels<'a>, Error> {
        let number = |tag: u16, or: u64| tags.number(tag).unwrap_or(or);
        let count = |tag: u16, or: u64| usize::try_from(number(tag, or)).unwrap_or(usize::MAX);
        let (width, height, bands) = (count(256, 0), count(257, 0), count(277, 1));
        if width.checked_mul(height).is_none_or(|pixels| pixels == 0 || pixels > pixels_max) {
            return Err(refused("the grid has no size, or is larger than any in use"));
        }
        let size = match (number(258, 1), number(339, 1)) {
            (32, 3) => 4,
            (64, 3) => 8,
            (bits, _) => {
                return Err(refused(format!(
                    "only grids of floating-point numbers are read, not of {bits} bits"
                )));
            }
        };
        let deflated = match number(259, 1) {
            1 => false,
            8 | 32946 => true,
            other => {
                let packed = super::compression(other);
                return Err(refused(format!("the grid is packed by {packed}; only deflate is read")));
            }
        };
        let predictor = number(317, 1);
        if !(1..=3).contains(&predictor) {
            return Err(refused(format!(
                "the grid has a predictor of number {predictor}, which is not read"
            )));
        }
        let block = match tags.number(322) {
            Some(_) => (count(322, 0), count(323, 0)),
            None => (width, count(278, u64::MAX).min(height)),
        };
        let separate = number(284, 1) == 2;
        let pixels = Pixels { tags, width, height, bands, block, separate, size, predictor, deflated };
        if !(1..=64).contains(&bands) || pixels.block_len().is_none_or(|len| len == 0 || len > BLOCK_LEN_MAX)
        {
            return Err(refused("the blocks of the grid are larger than any in use"));
        }
        Ok(pixels)
    }

    /// Values of a pixel in one block.
    fn together(&self) -> usize {
        if self.separate { 1 } else { self.bands }
    }

    /// The bytes of a block, unpacked.
    fn block_len(&self) -> Option<u64> {
        let values = self.block.0.checked_mul(self.block.1)?.checked_mul(self.together())?;
        u64::try_from(values.checked_mul(self.size)?).ok()
    }

    /// Hands the values of one band on, in single precision, with the number of the pixel: from the
    /// north-western corner east, then south. A block that is not there is left out. `budget` is what
    /// the file may still cost in bytes.
    pub(crate) fn band(
        &self,
        file: &mut (impl Read + Seek),
        band: usize,
        budget: &mut u64,
        mut take: impl FnMut(usize, f32),
    ) -> Result<(), Error> {
        let (places, lens) = match self.tags.number(322) {
            Some(_) => (self.tags.numbers(324), self.tags.numbers(325)),
            None => (self.tags.numbers(273), self.tags.numbers(279)),
        };
        let (across, down) = (self.width.div_ceil(self.block.0), self.height.div_ceil(self.block.1));
        let first = if self.separate { band * across * down } else { 0 };
        for at in 0..across * down {
            let (Some(place), Some(len)) = (places.get(first + at), lens.get(first + at)) else {
                return Err(refused("the grid lacks some of its blocks"));
            };
            if *len == 0 {
                continue;
            }
            let block = self.unpacked(file, *place, *len, budget)?;
            let (left, top) = (at % across * self.block.0, at / across * self.block.1);
            let row_len = self.block.0 * self.together() * self.size;
            for (row, bytes) in (top..self.height).zip(block.chunks_exact(row_len)) {
                let values = self.row(bytes);
                let of_band =
                    values.iter().skip(if self.separate { 0 } else { band }).step_by(self.together());
                (left..self.width)
                    .zip(of_band)
                    .for_each(|(column, value)| take(row * self.width + column, *value));
            }
        }
        Ok(())
    }

    fn unpacked(
        &self,
        file: &mut (impl Read + Seek),
        place: u64,
        len: u64,
        budget: &mut u64,
    ) -> Result<Vec<u8>, Error> {
        let wanted = self.block_len().unwrap_or(0);
        // What does not shrink grows by a few bytes at most.
        if len > wanted + wanted / 8 + 1024 {
            return Err(refused("a block of the grid is longer than its pixels"));
        }
        *budget = budget
            .checked_sub(wanted + len)
            .ok_or_else(|| refused("the grid unpacks to more than any in use"))?;
        file.seek(SeekFrom::Start(place))
            .map_err(|_| refused("a block of the grid lies outside the file"))?;
        let packed = file.take(len);
        let mut out = Vec::new();
        let read = if self.deflated {
            ZlibDecoder::new(packed).take(wanted).read_to_end(&mut out)
        } else {
            packed.take(wanted).read_to_end(&mut out)
        };
        read.map_err(|_| refused("a block of the grid cannot be unpacked"))?;
        // The last strip may be shorter.
        let least = if self.tags.number(322).is_some() { wanted } else { 1 };
        if (out.len() as u64) < least {
            return Err(refused("the file ends within its grid"));
        }
        Ok(out)
    }

    /// The values of a row of a block.
    fn row(&self, bytes: &[u8]) -> Vec<f32> {
        let (stride, size) = (self.together(), self.size);
        match self.predictor {
            3 => {
                // Sums of bytes; then all first bytes of the values, all second ones and so on.
                let mut bytes = bytes.to_vec();
                for at in stride..bytes.len() {
                    bytes[at] = bytes[at].wrapping_add(bytes[at - stride]);
                }
                let values = bytes.len() / size;
                let value = |at: usize| {
                    let bits =
                        (0..size).fold(0, |bits, byte| bits << 8 | u64::from(bytes[byte * values + at]));
                    real(bits, size)
                };
                (0..values).map(value).collect()
            }
            predictor => {
                let mut bits: Vec<u64> =
                    bytes.chunks_exact(size).map(|value| self.tags.word(value)).collect();
                if predictor == 2 {
                    for at in stride..bits.len() {
                        bits[at] = bits[at].wrapping_add(bits[at - stride]);
                    }
                }
                bits.into_iter().map(|bits| real(bits, size)).collect()
            }
        }
    }
}

/// A number by its bits, of which the upper half may be rubbish if there are only 32.
fn real(bits: u64, size: usize) -> f32 {
    if size == 8 { f64::from_bits(bits) as f32 } else { f32::from_bits(bits as u32) }
}
