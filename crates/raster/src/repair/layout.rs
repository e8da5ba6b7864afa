//! How a directory says that its pixels lie, with the limits that hold before anything is allocated.

use super::directory::RawDirectory;
use super::report::{FieldChange, RepairError, broken, too_large};

const SAMPLES_MAX: u64 = 4096;
pub(super) const BLOCK_LEN_MAX: u64 = 64 << 20;
const BLOCKS_MAX: u64 = 1 << 23;

/// The layout of one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepairLayout {
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) samples: u64,
    pub(super) bits: u64,
    pub(super) compression: u64,
    pub(super) predictor: u64,
    /// Each band for itself.
    pub(super) separate: bool,
    pub(super) tiled: bool,
    pub(super) block_width: u64,
    /// The rows of a tile or a strip.
    pub(super) block_height: u64,
}

impl RepairLayout {
    /// The layout that a directory declares. A count of samples that the bits contradict is corrected.
    pub(super) fn read(
        directory: &RawDirectory,
        pixels_max: u64,
        changes: &mut Vec<FieldChange>,
    ) -> Result<RepairLayout, RepairError> {
        let number = |tag, default| directory.number(tag).unwrap_or(default);
        let (width, height) = (number(256, 0), number(257, 0));
        let pixels = width.saturating_mul(height);
        if pixels == 0 {
            return Err(broken(format!("the size of the picture is {width} x {height}")));
        }
        if pixels > pixels_max || width > 1 << 31 || height > 1 << 31 {
            return Err(too_large(format!(
                "the header says {width} x {height} pixels, more than the limit of {pixels_max}; --max-pixels allows more"
            )));
        }
        let bits = directory.numbers(258).unwrap_or_else(|| vec![1]);
        let samples = samples(directory, &bits, changes)?;
        let first = bits.first().copied().unwrap_or(1);
        if bits.iter().any(|other| *other != first) || !matches!(first, 1..=64) {
            return Err(broken(format!("bands of different or impossible bits per sample ({bits:?})")));
        }
        if number(262, 1) == 6 && number(259, 1) != 7 {
            return Err(broken("YCbCr with subsampled colours is not supported by repair"));
        }
        let tiled = directory.tag(324).is_some() || directory.tag(322).is_some();
        let (block_width, block_height) =
            if tiled { (number(322, 0), number(323, 0)) } else { (width, number(278, u64::MAX).min(height)) };
        if block_width == 0 || block_height == 0 {
            return Err(broken(format!("blocks of {block_width} x {block_height} pixels")));
        }
        let layout = RepairLayout {
            width,
            height,
            samples,
            bits: first,
            compression: number(259, 1),
            predictor: number(317, 1),
            separate: number(284, 1) == 2,
            tiled,
            block_width,
            block_height,
        };
        layout.check()?;
        Ok(layout)
    }

    /// The limits of blocks.
    pub(super) fn check(&self) -> Result<(), RepairError> {
        if self.block_len_max() > BLOCK_LEN_MAX {
            return Err(too_large(format!(
                "a block of {} x {} pixels takes more than 64 MiB",
                self.block_width, self.block_height
            )));
        }
        if self.blocks() > BLOCKS_MAX {
            return Err(too_large(format!("the header says {} blocks", self.blocks())));
        }
        Ok(())
    }

    pub(super) fn across(&self) -> u64 {
        if self.tiled { self.width.div_ceil(self.block_width) } else { 1 }
    }

    pub(super) fn down(&self) -> u64 {
        self.height.div_ceil(self.block_height)
    }

    pub(super) fn planes(&self) -> u64 {
        if self.separate { self.samples } else { 1 }
    }

    /// How many blocks the picture has, in all planes.
    pub(super) fn blocks(&self) -> u64 {
        self.across().saturating_mul(self.down()).saturating_mul(self.planes())
    }

    /// The samples of a pixel in one block.
    pub(super) fn samples_in_block(&self) -> u64 {
        if self.separate { 1 } else { self.samples }
    }

    /// The bytes of a row of a block.
    pub(super) fn row_len(&self) -> u64 {
        let bits = self.block_width.saturating_mul(self.samples_in_block()).saturating_mul(self.bits);
        bits.div_ceil(8)
    }

    /// The rows that a block holds: the last strip may be shorter.
    pub(super) fn rows(&self, block: u64) -> u64 {
        if self.tiled {
            return self.block_height;
        }
        let first = (block % self.down()) * self.block_height;
        self.block_height.min(self.height - first)
    }

    /// The unpacked bytes of a block.
    pub(super) fn len(&self, block: u64) -> u64 {
        self.row_len().saturating_mul(self.rows(block))
    }

    fn block_len_max(&self) -> u64 {
        self.row_len().saturating_mul(self.block_height)
    }

    /// The unpacked bytes of all blocks.
    pub(super) fn len_all(&self) -> u64 {
        self.block_len_max().saturating_mul(self.blocks())
    }

    /// The pixels of the picture that a block of one plane covers.
    pub(super) fn pixels(&self, block: u64) -> u64 {
        let in_plane = block % (self.across() * self.down());
        let (column, row) = (in_plane % self.across(), in_plane / self.across());
        let wide = self.block_width.min(self.width - column * self.block_width);
        let high = self.block_height.min(self.height - row * self.block_height);
        wide * high
    }

    /// The tag of the places of blocks, and that of their lengths.
    pub(super) fn tags(&self) -> (u16, u16) {
        if self.tiled { (324, 325) } else { (273, 279) }
    }
}

/// How many samples a pixel has. The bits name each sample, so they count it too.
fn samples(
    directory: &RawDirectory,
    bits: &[u64],
    changes: &mut Vec<FieldChange>,
) -> Result<u64, RepairError> {
    let told = directory.number(277).unwrap_or(1);
    let counted = bits.len() as u64;
    if counted > 1 && told != counted {
        changes.push(FieldChange::new(
            "SamplesPerPixel",
            told,
            counted,
            "the count of BitsPerSample, and the size of every block",
        ));
        return Ok(counted);
    }
    if told == 0 || told > SAMPLES_MAX {
        return Err(too_large(format!("the header says {told} bands")));
    }
    Ok(told)
}
