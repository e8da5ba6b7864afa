//! A raster as a COG, pixel by pixel the same.
//!
//! Tiles are taken in Z-order by several threads, each of which reads, packs and stores. A file of
//! strips is read in rows of several tiles, because a strip reaches over the whole width and would
//! be unpacked for each of them. Blocks that are packed as asked for already are copied. Tiles that are made of the
//! same blocks as the ones before are not read again: a file of 50 kB can name one block six thousand times.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::error::RasterError;
use crate::geotiff::{GeoTiff, WindowBlocks};
use crate::grid::PixelWindow;
use crate::head::{Compression, RasterLevel};
use crate::sample::{Pixel, Samples};
use crate::with_pixel;
use crate::write::{CogOptions, CogSummary, CogWriter, RasterSpec};

/// What a row of tiles may take in memory.
const ROW_LEN_MAX: u64 = 48 << 20;
/// Bytes of tiles that are kept, in case that one of the next is the same.
const KEPT_LEN_MAX: u64 = 16 << 20;
/// How many are kept: one inside a picture, and those of its right edge, its lower edge and its corner.
const KEPT_MAX: usize = 4;

/// Converts a raster. The source is asked at the end whether it is still what was opened.
///
/// # Errors
/// If a block cannot be read, or the file cannot be written; then nothing is left of it.
pub fn to_cog(from: &GeoTiff, path: &Path, options: &CogOptions) -> Result<CogSummary, RasterError> {
    let spec = RasterSpec::same_as(from.head());
    let threads = options.threads.clamp(1, 64);
    let writer = CogWriter::create(path, spec, &CogOptions { threads: 1, ..options.clone() })?;
    let is_copied = can_copy(from, &writer, options);
    let conversion =
        Conversion { from, writer: &writer, block: options.block, is_copied, kept: Mutex::default() };
    let work = Mutex::new(parts(from, &writer, options, threads));
    let failed: Mutex<Option<RasterError>> = Mutex::new(None);
    let run = || {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(part) = next else { return };
            if let Err(error) = conversion.part(&part) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
            if failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    from.source().unchanged()?;
    writer.finish()
}

/// Tiles that are read at once: the first column, the row, and how many.
#[derive(Clone, Copy, Debug)]
struct TileRun {
    column: u32,
    row: u32,
    count: u32,
}

/// The order in which tiles are read.
fn parts(
    from: &GeoTiff,
    writer: &CogWriter,
    options: &CogOptions,
    threads: usize,
) -> Box<dyn Iterator<Item = TileRun> + Send> {
    let head = from.head();
    let (across, down) = writer.tiles_across_down();
    let layout = head.levels.first().map(|level| level.layout);
    if layout.is_some_and(|layout| layout.tiled && layout.width <= 4 * options.block) {
        return Box::new(writer.tiles().map(|(column, row)| TileRun { column, row, count: 1 }));
    }
    let tile_len = u64::from(options.block).pow(2) * u64::from(head.bands) * head.sample.size() as u64;
    let most = (ROW_LEN_MAX / tile_len.max(1) / threads as u64).clamp(1, u64::from(across));
    // Unfinished overviews are fewest where runs begin at multiples of a power of two.
    let count = if most >= u64::from(across) { across } else { 1 << most.ilog2() };
    let columns = (0..across).step_by(count as usize);
    Box::new(columns.flat_map(move |column| {
        (0..down).map(move |row| TileRun { column, row, count: count.min(across - column) })
    }))
}

/// Whether packed blocks of the source are those that would be written.
fn can_copy(from: &GeoTiff, writer: &CogWriter, options: &CogOptions) -> bool {
    let head = from.head();
    let Some(RasterLevel { layout, compression, predictor, bits, photometric, .. }) = head.levels.first()
    else {
        return false;
    };
    layout.tiled
        && (layout.width, layout.height) == (options.block, options.block)
        && (!layout.separate || head.bands == 1)
        && *compression == options.compression
        && matches!(compression, Compression::Deflate | Compression::Zstd | Compression::Lzw)
        && *predictor == writer.predictor()
        && options.effort.is_none()
        && usize::from(*bits) == head.sample.size() * 8
        && *photometric != 6
        && (!head.is_big_endian || head.sample.size() == 1)
        && !from.has_reversed_bits()
        && head.mask.is_none()
}

/// Tiles that were read together.
struct ReadTiles {
    blocks: WindowBlocks,
    tiles: Vec<Arc<Samples>>,
    /// The bytes of a single one that is copied.
    packed: Option<Bytes>,
}

struct Conversion<'a> {
    from: &'a GeoTiff,
    writer: &'a CogWriter,
    block: u32,
    is_copied: bool,
    /// What was read, the last used last.
    kept: Mutex<VecDeque<Arc<ReadTiles>>>,
}

impl Conversion<'_> {
    fn part(&self, part: &TileRun) -> Result<(), RasterError> {
        let (from, writer, block) = (self.from, self.writer, self.block);
        let head = from.head();
        let bands: Vec<u32> = (0..head.bands).collect();
        let whole = PixelWindow::new(part.column * block, part.row * block, part.count * block, block);
        let Some(window) = whole.intersection(&head.window()) else { return Ok(()) };
        if head.mask.is_some() {
            return self.masked_part(part, &bands, window);
        }
        // A sparse file of a few bytes can claim gigabytes of nodata.
        if from.is_absent(&bands, window)? {
            return (0..part.count).try_for_each(|at| writer.skip_tile(part.column + at, part.row));
        }
        let write = |read: &ReadTiles, is_repeated: bool| {
            (part.column..).zip(&read.tiles).try_for_each(|(column, tile)| {
                writer.share_tile(column, part.row, tile, read.packed.clone(), is_repeated)
            })
        };
        let blocks = from.blocks_under(&bands, window)?;
        if let Some(same) = self.same_tiles(&blocks) {
            return write(&same, true);
        }
        let (tiles, packed) = match self.copied(part)? {
            Some((tile, packed)) => (vec![Arc::new(tile)], Some(packed)),
            None => (self.tiles(from.read_window(0, &bands, window)?, part), None),
        };
        let read = Arc::new(ReadTiles { blocks, tiles, packed });
        self.keep(&read);
        write(&read, false)
    }

    /// Tiles made of the same blocks, if they are kept.
    fn same_tiles(&self, blocks: &WindowBlocks) -> Option<Arc<ReadTiles>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|read| read.blocks == *blocks)?;
        let same = kept.remove(at)?;
        kept.push_back(same.clone());
        Some(same)
    }

    fn keep(&self, read: &Arc<ReadTiles>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(read.clone());
        let len =
            |read: &Arc<ReadTiles>| read.tiles.iter().map(|tile| tile.data.bytes().len() as u64).sum::<u64>();
        while kept.len() > KEPT_MAX || kept.iter().map(len).sum::<u64>() > KEPT_LEN_MAX {
            kept.pop_front();
        }
    }

    /// A tile that is packed as asked for already, and its bytes.
    fn copied(&self, part: &TileRun) -> Result<Option<(Samples, Bytes)>, RasterError> {
        let head = self.from.head();
        let Some(level) = head.levels.first().filter(|_| self.is_copied) else { return Ok(None) };
        let index = level.layout.index(0, part.column, part.row);
        let Some(packed) = self.from.packed_block(0, index)? else { return Ok(None) };
        let data = self.from.unpack_block(0, index, &packed)?;
        let samples = with_pixel!(head.sample, T => planar::<T>(&data, self.block, head.bands))?;
        Ok(Some((samples, packed)))
    }

    /// The tiles of a window.
    fn tiles(&self, samples: Samples, part: &TileRun) -> Vec<Arc<Samples>> {
        if part.count == 1 {
            return vec![Arc::new(samples)];
        }
        let columns = (0..part.count).map(|at| at * self.block);
        let width = |x: u32| self.block.min(samples.width.saturating_sub(x));
        columns.map(|x| Arc::new(cut(&samples, x, width(x)))).collect()
    }

    fn masked_part(&self, part: &TileRun, bands: &[u32], window: PixelWindow) -> Result<(), RasterError> {
        let samples = self.from.read_window(0, bands, window)?;
        let mask = self.from.read_mask(0, window)?.unwrap_or_default();
        if part.count == 1 {
            return self.writer.write_masked_tile(part.column, part.row, samples, mask);
        }
        for at in 0..part.count {
            let x = at * self.block;
            let width = self.block.min(window.width.saturating_sub(x));
            let rows = mask.chunks_exact(window.width as usize);
            let mask = rows.flat_map(|row| &row[x as usize..(x + width) as usize]).copied().collect();
            self.writer.write_masked_tile(part.column + at, part.row, cut(&samples, x, width), mask)?;
        }
        Ok(())
    }
}

/// Some columns of a window.
fn cut(samples: &Samples, x: u32, width: u32) -> Samples {
    let mut out = Samples::zeros(samples.sample(), width, samples.height, samples.bands);
    let size = samples.sample().size();
    let (from_len, to_len) = (samples.width as usize * size, width as usize * size);
    let from = x as usize * size;
    let rows = samples.data.bytes().chunks_exact(from_len);
    for (to, row) in out.data.bytes_mut().chunks_exact_mut(to_len).zip(rows) {
        to.copy_from_slice(&row[from..from + to_len]);
    }
    out
}

/// From pixel after pixel to band after band.
fn planar<T: Pixel>(data: &crate::SampleData, block: u32, bands: u32) -> Result<Samples, RasterError> {
    let all = T::of(data).ok_or_else(|| RasterError::block("its values are of another type"))?;
    let (pixels, together) = (block as usize * block as usize, bands as usize);
    let mut out = vec![T::default(); pixels * together];
    for (band, target) in out.chunks_exact_mut(pixels).enumerate() {
        for (value, pixel) in target.iter_mut().zip(all.chunks_exact(together)) {
            *value = pixel[band];
        }
    }
    Ok(Samples { width: block, height: block, bands, data: T::wrap(out) })
}
