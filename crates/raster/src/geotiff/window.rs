//! The values of a window, from the blocks that it touches.
//!
//! Every block is unpacked completely, known to be absent, or the whole window fails.

use std::sync::{Arc, PoisonError};

use super::GeoTiff;
use super::cache::BlockKey;
use super::picture::Picture;
use crate::error::RasterError;
use crate::grid::PixelWindow;
use crate::head::{MaskKind, NoData};
use crate::sample::{Pixel, SampleData, Samples};
use crate::with_pixel;

/// Packed bytes that are read before they are unpacked.
const BATCH_LEN_MAX: u64 = 16 << 20;

/// A block that a window touches.
struct Touched {
    index: u64,
    /// The band that it holds, if each has blocks of its own.
    band: Option<usize>,
    /// Its pixels.
    pixels: PixelWindow,
}

/// What a window is made of.
#[derive(PartialEq)]
pub(crate) struct WindowBlocks {
    size: (u32, u32),
    blocks: Vec<BlockInWindow>,
}

/// A block of a window, or the hole in its place.
#[derive(PartialEq)]
struct BlockInWindow {
    key: Option<BlockKey>,
    /// The band that it holds, if each has blocks of its own.
    band: Option<usize>,
    /// Where it begins in the window.
    offset: (i64, i64),
}

impl GeoTiff {
    /// The values of some bands, counted from 0, in a window of a resolution. Blocks that are not in
    /// the file are nodata, or 0 if there is no such value.
    ///
    /// # Errors
    /// If the window is not inside, or a block cannot be read and unpacked completely.
    pub fn read_window(
        &self,
        level: usize,
        bands: &[u32],
        window: PixelWindow,
    ) -> Result<Samples, RasterError> {
        self.level(level)?;
        let fill = self.head.nodata;
        self.window_of(level, bands, window, fill.as_ref()).map_err(|error| error.of(self.source().name()))
    }

    /// The mask of valid pixels (255) in a window of a resolution; nothing if there is no mask.
    /// Nodata and alpha do not count here.
    ///
    /// # Errors
    /// As [`GeoTiff::read_window`].
    pub fn read_mask(&self, level: usize, window: PixelWindow) -> Result<Option<Vec<u8>>, RasterError> {
        let made = match self.head.mask {
            None => return Ok(None),
            Some(MaskKind::Inside) => {
                self.level(level)?;
                let at = self.pictures.levels + level;
                self.window_of(at, &[0], window, None).map_err(|error| error.of(self.source().name()))?
            }
            Some(MaskKind::Beside) => {
                let Some(file) = &self.beside else { return Ok(None) };
                let size = self.level(level)?.level.window();
                let same = file.head.levels.iter().position(|found| found.window() == size);
                let at = same.ok_or_else(|| {
                    RasterError::unsupported("the mask beside it has no picture for this overview")
                        .of(file.source().name())
                })?;
                file.window_of(at, &[0], window, None).map_err(|error| error.of(file.source().name()))?
            }
        };
        let SampleData::U8(mut mask) = made.data else {
            return Err(
                RasterError::unsupported("a mask of more than 8 bits is not read").of(self.source().name())
            );
        };
        mask.iter_mut().for_each(|value| *value = if *value == 0 { 0 } else { 255 });
        Ok(Some(mask))
    }

    /// Reads the blocks of a window of the picture into the cache, neighbours together, if all of them fit
    /// there. The tiles of a small result then need no requests of their own. Packed bytes are kept of those
    /// blocks that will be copied.
    pub(crate) fn preload(
        &self,
        bands: &[u32],
        window: PixelWindow,
        is_copied: &dyn Fn(PixelWindow) -> bool,
    ) -> Result<(), RasterError> {
        let picture = self.level(0)?;
        let layout = picture.level.layout;
        let span = |first: u32, end: u32, block: u32| u64::from(end.div_ceil(block) - first / block);
        let planes = if layout.separate { bands.len() as u64 } else { 1 };
        let blocks = span(window.x, window.right(), layout.width)
            .saturating_mul(span(window.y, window.bottom(), layout.height))
            .saturating_mul(planes);
        let values = u64::from(layout.width) * u64::from(layout.height) * u64::from(picture.form.together);
        let len = blocks.saturating_mul(values).saturating_mul(picture.sample.size() as u64);
        if len > self.limits.cache_len_max as u64 {
            return Ok(());
        }
        let of_file = |error: RasterError| error.of(self.source().name());
        let (mut wanted, mut ranges) = (Vec::new(), Vec::new());
        for block in touched(picture, bands, window) {
            let place = picture.place(&self.bytes, &self.limits, block.index).map_err(of_file)?;
            if let Some(place) = place
                && self.cache.get(&self.key(0, block.index, &place)?).is_none()
            {
                wanted.push(block);
                ranges.push(place);
            }
        }
        let packed = self.source().read_ranges(&ranges).map_err(of_file)?;
        for ((block, packed), range) in wanted.into_iter().zip(packed).zip(ranges) {
            let key = self.key(0, block.index, &range)?;
            if self.cache.get(&key).is_none() {
                let data = picture.unpack(block.index, &packed, range.start).map_err(of_file)?;
                self.cache.put(key, &Arc::new(data));
            }
            if is_copied(block.pixels) {
                let mut ahead = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
                ahead.insert(range.start, packed);
            }
        }
        Ok(())
    }

    /// Whether none of the blocks of a window of the picture is in the file.
    pub(crate) fn is_absent(&self, bands: &[u32], window: PixelWindow) -> Result<bool, RasterError> {
        let picture = self.level(0)?;
        for block in touched(picture, bands, window) {
            let place = picture.place(&self.bytes, &self.limits, block.index);
            if place.map_err(|error| error.of(self.source().name()))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The blocks of the picture that make a window: two windows of the same have the same values.
    pub(crate) fn blocks_under(
        &self,
        bands: &[u32],
        window: PixelWindow,
    ) -> Result<WindowBlocks, RasterError> {
        let picture = self.level(0)?;
        let mut blocks = Vec::new();
        for block in touched(picture, bands, window) {
            let place = picture.place(&self.bytes, &self.limits, block.index);
            let key = match place.map_err(|error| error.of(self.source().name()))? {
                Some(place) => Some(self.key(0, block.index, &place)?),
                None => None,
            };
            let apart = |block: u32, window: u32| i64::from(block) - i64::from(window);
            let offset = (apart(block.pixels.x, window.x), apart(block.pixels.y, window.y));
            blocks.push(BlockInWindow { key, band: block.band, offset });
        }
        Ok(WindowBlocks { size: (window.width, window.height), blocks })
    }

    fn window_of(
        &self,
        at: usize,
        bands: &[u32],
        window: PixelWindow,
        fill: Option<&NoData>,
    ) -> Result<Samples, RasterError> {
        let picture = self.picture(at)?;
        let level = &picture.level;
        if window.is_empty() || !level.window().contains(&window) {
            return Err(RasterError::invalid(format!(
                "the window of {} x {} pixels at {} {} is not inside the {} x {} of the picture",
                window.width, window.height, window.x, window.y, level.width, level.height
            )));
        }
        if let Some(band) = bands.iter().find(|band| **band >= picture.bands) {
            return Err(RasterError::invalid(format!(
                "there is no band {}; it has {}",
                band + 1,
                picture.bands
            )));
        }
        let len =
            window.pixels().saturating_mul(bands.len() as u64).saturating_mul(picture.sample.size() as u64);
        if len > self.limits.window_len_max {
            let most = self.limits.window_len_max;
            return Err(RasterError::too_large(format!("the window has {len} bytes; the limit is {most}")));
        }
        let mut out = Samples::zeros(picture.sample, window.width, window.height, bands.len() as u32);
        let mut wanted = Vec::new();
        let (mut ranges, mut batch_len) = (Vec::new(), 0);
        for block in touched(picture, bands, window) {
            let Some(place) = picture.place(&self.bytes, &self.limits, block.index)? else {
                deposit(picture, &block, None, fill, bands, window, &mut out);
                continue;
            };
            if let Some(data) = self.cache.get(&self.key(at, block.index, &place)?) {
                deposit(picture, &block, Some(&data), fill, bands, window, &mut out);
                continue;
            }
            batch_len += place.end - place.start;
            ranges.push(place);
            wanted.push(block);
            if batch_len >= BATCH_LEN_MAX {
                self.batch(at, picture, &mut wanted, &mut ranges, fill, bands, window, &mut out)?;
                batch_len = 0;
            }
        }
        self.batch(at, picture, &mut wanted, &mut ranges, fill, bands, window, &mut out)?;
        Ok(out)
    }

    /// Reads and unpacks blocks, and puts their values where they belong.
    #[allow(clippy::too_many_arguments, reason = "the state of one loop")]
    fn batch(
        &self,
        at: usize,
        picture: &Picture,
        wanted: &mut Vec<Touched>,
        ranges: &mut Vec<std::ops::Range<u64>>,
        fill: Option<&NoData>,
        bands: &[u32],
        window: PixelWindow,
        out: &mut Samples,
    ) -> Result<(), RasterError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let packed = self.source().read_ranges(ranges)?;
        for ((block, packed), range) in wanted.drain(..).zip(packed).zip(ranges.iter()) {
            let key = self.key(at, block.index, range)?;
            let data = match self.cache.get(&key) {
                Some(data) => data,
                None => {
                    let data = Arc::new(picture.unpack(block.index, &packed, range.start)?);
                    self.cache.put(key, &data);
                    data
                }
            };
            deposit(picture, &block, Some(&data), fill, bands, window, out);
        }
        ranges.clear();
        Ok(())
    }
}

fn touched(picture: &Picture, bands: &[u32], window: PixelWindow) -> Vec<Touched> {
    let layout = picture.level.layout;
    let columns = window.x / layout.width..=(window.right() - 1) / layout.width;
    let rows = window.y / layout.height..=(window.bottom() - 1) / layout.height;
    let planes: Vec<(u32, Option<usize>)> = if layout.separate {
        bands.iter().enumerate().map(|(at, band)| (*band, Some(at))).collect()
    } else {
        vec![(0, None)]
    };
    let mut found = Vec::new();
    for (plane, band) in planes {
        for row in rows.clone() {
            for column in columns.clone() {
                if let Some(pixels) = picture.level.block_window(column, row) {
                    found.push(Touched { index: layout.index(plane, column, row), band, pixels });
                }
            }
        }
    }
    found
}

/// Puts the values of a block where they belong; nodata for one that is not there.
fn deposit(
    picture: &Picture,
    block: &Touched,
    data: Option<&SampleData>,
    fill: Option<&NoData>,
    bands: &[u32],
    window: PixelWindow,
    out: &mut Samples,
) {
    with_pixel!(picture.sample, T => copy::<T>(picture, block, data.and_then(T::of), fill, bands, window, out));
}

fn copy<T: Pixel>(
    picture: &Picture,
    block: &Touched,
    data: Option<&[T]>,
    fill: Option<&NoData>,
    bands: &[u32],
    window: PixelWindow,
    out: &mut Samples,
) {
    let Some(part) = block.pixels.intersection(&window) else { return };
    let together = picture.form.together as usize;
    let row_len = picture.level.layout.width as usize * together;
    let empty = fill.map_or_else(T::default, NoData::nearest);
    let width = part.width as usize;
    let (out_width, pixels) = (out.width as usize, out.pixels());
    let Some(all) = T::of_mut(&mut out.data) else { return };
    let targets: Vec<(usize, usize)> = match block.band {
        Some(at) => vec![(at, 0)],
        None => bands.iter().enumerate().map(|(at, band)| (at, *band as usize)).collect(),
    };
    for row in part.y..part.bottom() {
        let to = (row - window.y) as usize * out_width + (part.x - window.x) as usize;
        let from = (row - block.pixels.y) as usize * row_len + (part.x - block.pixels.x) as usize * together;
        let source = data.map(|data| &data[from..from + width * together]);
        for (at, band) in &targets {
            let target = &mut all[at * pixels + to..at * pixels + to + width];
            match source {
                None => target.fill(empty),
                Some(source) if together == 1 => target.copy_from_slice(source),
                Some(source) => gather(target, source, *band, together),
            }
        }
    }
}

/// One value of each pixel.
fn gather<T: Pixel>(target: &mut [T], source: &[T], band: usize, together: usize) {
    fn fixed<T: Pixel, const N: usize>(target: &mut [T], source: &[T], band: usize) {
        for (to, pixel) in target.iter_mut().zip(source.as_chunks::<N>().0) {
            *to = pixel[band];
        }
    }
    match together {
        2 => fixed::<T, 2>(target, source, band),
        3 => fixed::<T, 3>(target, source, band),
        4 => fixed::<T, 4>(target, source, band),
        _ => {
            for (to, pixel) in target.iter_mut().zip(source.chunks_exact(together)) {
                *to = pixel[band];
            }
        }
    }
}
