//! A raster as a COG, pixel by pixel the same.
//!
//! Tiles are taken in Z-order by several threads, each of which reads, packs and stores. A file of
//! strips is read in rows of several tiles, because a strip reaches over the whole width and would
//! be unpacked for each of them. Blocks that are packed as asked for already are copied.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::RasterError;
use crate::geotiff::GeoTiff;
use crate::grid::PixelWindow;
use crate::head::{Compression, RasterLevel};
use crate::sample::{Pixel, Samples};
use crate::with_pixel;
use crate::write::{CogOptions, CogSummary, CogWriter, RasterSpec};

/// What a row of tiles may take in memory.
const ROW_LEN_MAX: u64 = 48 << 20;

/// Converts a raster. The source is asked at the end whether it is still what was opened.
///
/// # Errors
/// If a block cannot be read, or the file cannot be written; then nothing is left of it.
pub fn to_cog(from: &GeoTiff, path: &Path, options: &CogOptions) -> Result<CogSummary, RasterError> {
    let spec = RasterSpec::same_as(from.head());
    let threads = options.threads.clamp(1, 64);
    let writer = CogWriter::create(path, spec, &CogOptions { threads: 1, ..options.clone() })?;
    let copies = can_copy(from, &writer, options);
    let work = Mutex::new(parts(from, &writer, options, threads));
    let failed: Mutex<Option<RasterError>> = Mutex::new(None);
    let run = || {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(part) = next else { return };
            if let Err(error) = convert_part(from, &writer, options.block, copies, &part) {
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

fn convert_part(
    from: &GeoTiff,
    writer: &CogWriter,
    block: u32,
    copies: bool,
    part: &TileRun,
) -> Result<(), RasterError> {
    let head = from.head();
    let bands: Vec<u32> = (0..head.bands).collect();
    let whole = PixelWindow::new(part.column * block, part.row * block, part.count * block, block);
    let Some(window) = whole.intersection(&head.window()) else { return Ok(()) };
    let level = head.levels.first().map(|level| level.layout);
    if copies && let Some(layout) = level {
        let index = layout.index(0, part.column, part.row);
        let Some(packed) = from.packed_block(0, index)? else {
            return writer.skip_tile(part.column, part.row);
        };
        let data = from.unpack_block(0, index, &packed)?;
        let samples = with_pixel!(head.sample, T => planar::<T>(&data, block, head.bands))?;
        return writer.copy_tile(part.column, part.row, &packed, samples);
    }
    // A sparse file of a few bytes can claim gigabytes of nodata.
    if head.mask.is_none() && from.is_absent(&bands, window)? {
        return (0..part.count).try_for_each(|at| writer.skip_tile(part.column + at, part.row));
    }
    let samples = from.read_window(0, &bands, window)?;
    let mask = from.read_mask(0, window)?;
    if part.count == 1 {
        return match mask {
            Some(mask) => writer.write_masked_tile(part.column, part.row, samples, mask),
            None => writer.write_tile(part.column, part.row, samples),
        };
    }
    for at in 0..part.count {
        let x = at * block;
        let width = block.min(window.width.saturating_sub(x));
        let tile = cut(&samples, x, width);
        let mask = mask.as_ref().map(|mask| {
            let rows = mask.chunks_exact(window.width as usize);
            rows.flat_map(|row| &row[x as usize..(x + width) as usize]).copied().collect::<Vec<u8>>()
        });
        match mask {
            Some(mask) => writer.write_masked_tile(part.column + at, part.row, tile, mask)?,
            None => writer.write_tile(part.column + at, part.row, tile)?,
        }
    }
    Ok(())
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
