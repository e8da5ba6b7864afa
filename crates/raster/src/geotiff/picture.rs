//! One picture of a TIFF file: how its blocks lie, and where they are.
//!
//! All that a directory claims is held against the limits here, before anything is allocated.

use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;

use super::directory::{Directory, HeadBytes, TagNumbers};
use crate::codec::{self, BlockForm};
use crate::error::RasterError;
use crate::grid::PixelWindow;
use crate::head::{BlockLayout, Compression, Predictor, RasterLevel};
use crate::limits::RasterLimits;
use crate::sample::{SampleData, SampleType};

/// A strip that holds the whole picture is read in parts of about this size, if it is not packed.
const PART_LEN: u64 = 1 << 20;
const STRIP_LEN_MAX: u64 = 8 << 20;

/// A picture.
pub(crate) struct Picture {
    pub(crate) level: RasterLevel,
    pub(crate) bands: u32,
    pub(crate) sample: SampleType,
    pub(crate) form: BlockForm,
    directory: Directory,
    /// Rows of a part, if the only strip is read in parts.
    is_in_parts: bool,
    /// Values whose colours are kept at a lower resolution lie otherwise.
    is_subsampled: bool,
    table: Mutex<Option<BlockTable>>,
}

/// Where the blocks are.
#[derive(Clone)]
struct BlockTable {
    offsets: TagNumbers,
    /// Nothing if the file does not say: the blocks are not packed.
    lens: Option<TagNumbers>,
}

/// The type that values are read as.
pub(crate) fn sample_of(format: u64, bits: u64) -> Result<SampleType, RasterError> {
    Ok(match (format, bits) {
        (1 | 4, 1..=8) => SampleType::U8,
        (1 | 4, 9..=16) => SampleType::U16,
        (1 | 4, 17..=32) => SampleType::U32,
        (1 | 4, 64) => SampleType::U64,
        (2, 8) => SampleType::I8,
        (2, 16) => SampleType::I16,
        (2, 32) => SampleType::I32,
        (2, 64) => SampleType::I64,
        (3, 16 | 24 | 32) => SampleType::F32,
        (3, 64) => SampleType::F64,
        (5 | 6, _) => {
            let message =
                format!("its values are complex numbers of {bits} bits; complex rasters are not read");
            return Err(RasterError::unsupported(message));
        }
        (1..=4, _) => return Err(RasterError::unsupported(format!("values of {bits} bits are not read"))),
        _ => return Err(RasterError::header(format!("there is no sample format {format}"))),
    })
}

impl Picture {
    pub(crate) fn read(
        head: &HeadBytes,
        directory: &Directory,
        limits: &RasterLimits,
    ) -> Result<Picture, RasterError> {
        Picture::claimed(head, directory, limits).map_err(|error| error.at(directory.offset))
    }

    fn claimed(
        head: &HeadBytes,
        directory: &Directory,
        limits: &RasterLimits,
    ) -> Result<Picture, RasterError> {
        let numbers = |tag: u16| directory.numbers(head, limits, tag);
        let first = |tag: u16| Ok::<_, RasterError>(numbers(tag)?.get(0));
        let size = |tag: u16, what: &str| match first(tag)? {
            Some(n @ 1..=0x7fff_ffff) => Ok(n as u32),
            Some(0) | None => Err(RasterError::header(format!("the picture has no {what}"))),
            Some(n) => Err(RasterError::too_large(format!("its {what} is {n}; the limit is 2147483647"))),
        };
        let (width, height) = (size(256, "width")?, size(257, "height")?);
        let pixels = u64::from(width) * u64::from(height);
        if pixels > limits.pixels_max {
            let message =
                format!("{width} x {height} are {pixels} pixels; the limit is {}", limits.pixels_max);
            return Err(RasterError::too_large(message));
        }
        let bands = first(277)?.unwrap_or(1);
        if bands == 0 || bands > u64::from(limits.bands_max) {
            let message = format!("it claims {bands} bands; the limit is {}", limits.bands_max);
            return Err(if bands == 0 {
                RasterError::header(message)
            } else {
                RasterError::too_large(message)
            });
        }
        let bands = bands as u32;
        let all_bits = numbers(258)?;
        let bits = all_bits.get(0).unwrap_or(1);
        if all_bits.iter().take(bands as usize).any(|other| other != bits) {
            return Err(RasterError::unsupported(
                "its bands have values of different widths, which is not read",
            ));
        }
        let formats = numbers(339)?;
        let format = formats.get(0).unwrap_or(1);
        if formats.iter().take(bands as usize).any(|other| other != format) {
            return Err(RasterError::unsupported(
                "its bands have values of different types, which is not read",
            ));
        }
        let sample = sample_of(format, bits)?;
        let compression = Compression::of_tag(first(259)?.unwrap_or(1));
        let predictor = match first(317)?.unwrap_or(1) {
            // The tag has a meaning for these only.
            _ if !matches!(compression, Compression::Deflate | Compression::Lzw | Compression::Zstd) => {
                Predictor::None
            }
            1 => Predictor::None,
            2 => Predictor::Horizontal,
            3 if sample.is_float() => Predictor::Float,
            3 => return Err(RasterError::header("a predictor of floating-point numbers over whole numbers")),
            other => return Err(RasterError::unsupported(format!("predictor {other} is not read"))),
        };
        let separate = bands > 1
            && match first(284)?.unwrap_or(1) {
                1 => false,
                2 => true,
                other => {
                    return Err(RasterError::header(format!("there is no planar configuration {other}")));
                }
            };
        let tiled = directory.entry(322).is_some() || directory.entry(323).is_some();
        let (block_width, mut block_height) = if tiled {
            (size(322, "width of tiles")?, size(323, "height of tiles")?)
        } else {
            let rows = first(278)?.unwrap_or(u64::from(u32::MAX));
            if rows == 0 {
                return Err(RasterError::header("its strips have no rows"));
            }
            (width, rows.min(u64::from(height)) as u32)
        };
        let photometric = first(262)?.unwrap_or(1) as u16;
        let form = BlockForm {
            compression,
            predictor,
            sample,
            bits: bits as u16,
            width: block_width,
            together: if separate { 1 } else { bands },
            big_endian: directory.form.big_endian,
            reversed: first(266)? == Some(2),
            photometric,
            jpeg_tables: match compression {
                Compression::Jpeg => directory.bytes(head, limits, 347)?.map(|(_, bytes)| bytes),
                _ => None,
            },
            lerc_in: numbers(50674)?.get(1).unwrap_or(0),
        };
        let strip_len = form.row_len().saturating_mul(block_height.into());
        let is_in_parts =
            !tiled && block_height == height && compression == Compression::None && strip_len > STRIP_LEN_MAX;
        if is_in_parts {
            block_height = (PART_LEN / form.row_len()).clamp(1, u64::from(height)) as u32;
        }
        let values = u64::from(block_width)
            .checked_mul(block_height.into())
            .and_then(|pixels| pixels.checked_mul(form.together.into()));
        let len = values.and_then(|values| values.checked_mul(sample.size() as u64)).unwrap_or(u64::MAX);
        if len > limits.block_len_max {
            let message = format!(
                "its blocks of {block_width} x {block_height} pixels have {len} bytes each; the limit is {}",
                limits.block_len_max
            );
            return Err(RasterError::too_large(message));
        }
        let (across, down) = (width.div_ceil(block_width), height.div_ceil(block_height));
        let layout = BlockLayout { width: block_width, height: block_height, tiled, separate, across, down };
        let level = RasterLevel {
            width,
            height,
            layout,
            compression,
            predictor,
            bits: bits as u16,
            photometric,
            offset: directory.offset,
        };
        let subsampling = numbers(530)?;
        let is_subsampled = photometric == 6
            && compression != Compression::Jpeg
            && (subsampling.get(0), subsampling.get(1)) != (Some(1), Some(1));
        Ok(Picture {
            level,
            bands,
            sample,
            form,
            directory: directory.clone(),
            is_in_parts,
            is_subsampled,
            table: Mutex::new(None),
        })
    }

    /// How many blocks it has.
    pub(crate) fn blocks(&self) -> u64 {
        let layout = self.level.layout;
        layout.per_plane() * if layout.separate { u64::from(self.bands) } else { 1 }
    }

    fn table(&self, head: &HeadBytes, limits: &RasterLimits) -> Result<BlockTable, RasterError> {
        let mut slot = self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(table) = &*slot {
            return Ok(table.clone());
        }
        let (offset_tag, len_tag) = if self.level.layout.tiled { (324, 325) } else { (273, 279) };
        let read = |tags: [u16; 2]| {
            let tag = tags.into_iter().find(|tag| self.directory.entry(*tag).is_some()).unwrap_or(tags[0]);
            self.directory.numbers(head, limits, tag)
        };
        // Some writers use the tags of strips for tiles.
        let (offsets, lens) = (read([offset_tag, 273])?, read([len_tag, 279])?);
        let stored =
            if self.is_in_parts { self.blocks() / u64::from(self.level.layout.down) } else { self.blocks() };
        let lens = match lens.len() {
            0 if self.level.compression == Compression::None => None,
            _ => Some(lens),
        };
        for (what, count) in
            [("places", offsets.len()), ("lengths", lens.as_ref().map_or(stored, TagNumbers::len))]
        {
            if count < stored {
                let message =
                    format!("the picture has {stored} blocks, and the file names {what} of {count}");
                return Err(RasterError::header(message).at(self.directory.offset));
            }
        }
        let table = BlockTable { offsets, lens };
        *slot = Some(table.clone());
        Ok(table)
    }

    /// The pixels of a block, and its rows as they are stored.
    pub(crate) fn block_rows(&self, index: u64) -> Option<(PixelWindow, u32)> {
        let layout = self.level.layout;
        let at = index % layout.per_plane();
        let window = self
            .level
            .block_window((at % u64::from(layout.across)) as u32, (at / u64::from(layout.across)) as u32)?;
        Some((window, if layout.tiled { layout.height } else { window.height }))
    }

    /// Where a block is; nothing if it is not in the file.
    pub(crate) fn place(
        &self,
        head: &HeadBytes,
        limits: &RasterLimits,
        index: u64,
    ) -> Result<Option<Range<u64>>, RasterError> {
        if index >= self.blocks() {
            return Err(RasterError::invalid(format!("there is no block {index}")));
        }
        let table = self.table(head, limits)?;
        let (_, rows) = self.block_rows(index).ok_or_else(|| RasterError::invalid("no such block"))?;
        let unpacked = self.form.row_len() * u64::from(rows);
        if self.is_in_parts {
            let layout = self.level.layout;
            let (plane, row) = (index / layout.per_plane(), index % layout.per_plane());
            let Some(start) = table.offsets.get(plane).filter(|start| *start != 0) else { return Ok(None) };
            let whole = self.form.row_len() * u64::from(self.level.height);
            if let Some(len) = table.lens.as_ref().and_then(|lens| lens.get(plane)).filter(|len| *len < whole)
            {
                let message = format!("the strip has {whole} bytes, and the file claims {len}");
                return Err(RasterError::header(message).at(self.directory.offset));
            }
            let from = start.saturating_add(row * self.form.row_len() * u64::from(layout.height));
            return Ok(Some(from..from.saturating_add(unpacked)));
        }
        let start = table.offsets.get(index).unwrap_or(0);
        let len = table.lens.as_ref().map_or(Some(unpacked), |lens| lens.get(index)).unwrap_or(0);
        match (start, len) {
            (0, 0) => return Ok(None),
            (_, 0) | (0, _) => {
                let message = format!("block {index} is said to be {len} bytes at byte {start}");
                return Err(RasterError::header(message).at(self.directory.offset));
            }
            _ => {}
        }
        let most = RasterLimits::packed_len_max(
            self.level.compression,
            self.form.row_len() * u64::from(self.level.layout.height),
        );
        if len > most {
            let message = format!(
                "block {index} is said to be {len} bytes, and has {unpacked} unpacked; the limit is {most}"
            );
            return Err(RasterError::too_large(message).at(start));
        }
        Ok(Some(start..start.saturating_add(len)))
    }

    /// The values of a block.
    pub(crate) fn unpack(&self, index: u64, packed: &Bytes, offset: u64) -> Result<SampleData, RasterError> {
        if self.is_subsampled {
            return Err(RasterError::unsupported(
                "colours that are kept at a lower resolution are read in JPEG only",
            ));
        }
        let (_, rows) = self.block_rows(index).ok_or_else(|| RasterError::invalid("no such block"))?;
        codec::unpack(packed, &self.form, rows, self.level.layout.height)
            .map_err(|error| error.under(format!("block {index}")).at(offset))
    }
}
