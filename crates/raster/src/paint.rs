//! From something that can compute any window of a raster to a file: the tiles of the result are painted
//! by a few threads, in the order in which the writer needs the least memory.
//!
//! A transformation says what the pixels of a window are and nothing else. It does not know tiles or
//! threads, so that neither can change its result.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use crate::error::RasterError;
use crate::grid::PixelWindow;
use crate::sample::Samples;
use crate::write::{CogOptions, CogSummary, CogWriter, RasterSpec};

/// The pixels of a window.
#[derive(Clone, Debug)]
pub enum Painted {
    /// None of them has a value.
    Empty,
    /// Values of all bands.
    Values(Samples),
    /// Values of all bands, and the mask of valid pixels (not 0).
    Masked(Samples, Vec<u8>),
    /// Values of all bands that a tile of the source holds packed in the form in which it is written.
    Packed(Bytes, Samples),
}

/// Something that knows the pixels of any window of a raster.
pub trait Painter: Sync {
    /// The pixels of a window.
    ///
    /// # Errors
    /// If the source cannot be read completely.
    fn paint(&self, window: PixelWindow) -> Result<Painted, RasterError>;
}

/// Paints all tiles of a raster of this size and writes them. `seen` is told how many tiles are done, of how
/// many. Returns the number of tiles with values.
///
/// # Errors
/// The first of any tile; the others are then given up.
pub fn paint_tiles(
    painter: &dyn Painter,
    writer: &CogWriter,
    (width, height, block): (u32, u32, u32),
    threads: usize,
    seen: &(dyn Fn(u64, u64) + Sync),
) -> Result<u64, RasterError> {
    let (across, down) = writer.tiles_across_down();
    let all = u64::from(across) * u64::from(down);
    let whole = PixelWindow::whole(width, height);
    let tiles = Mutex::new(writer.tiles());
    let (stop, done, filled) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Option<RasterError>> = Mutex::new(None);
    let one = |column: u32, row: u32| -> Result<(), RasterError> {
        let tile = PixelWindow::new(column.saturating_mul(block), row.saturating_mul(block), block, block);
        let Some(window) = whole.intersection(&tile) else { return writer.skip_tile(column, row) };
        match painter.paint(window)? {
            Painted::Empty => return writer.skip_tile(column, row),
            Painted::Values(samples) => writer.write_tile(column, row, samples)?,
            Painted::Masked(samples, mask) => writer.write_masked_tile(column, row, samples, mask)?,
            Painted::Packed(packed, samples) => writer.copy_tile(column, row, packed, samples)?,
        }
        filled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let next = tiles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
            let Some((column, row)) = next else { return };
            if let Err(error) = one(column, row) {
                stop.store(true, Ordering::Relaxed);
                failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
                return;
            }
            seen(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(filled.into_inner()),
    }
}

/// Paints a whole raster into a file. `check` is asked before the file gets its name: if a source changed
/// while it was read, nothing is left.
///
/// # Errors
/// The first of any tile, of `check` and of the file.
pub fn paint_file(
    painter: &dyn Painter,
    spec: &RasterSpec,
    path: &Path,
    options: &CogOptions,
    check: &dyn Fn() -> Result<(), RasterError>,
) -> Result<CogSummary, RasterError> {
    let writer = CogWriter::create(path, spec.clone(), options)?;
    let size = (spec.grid.width, spec.grid.height, options.block);
    paint_tiles(painter, &writer, size, options.threads, &|_, _| {})?;
    check()?;
    writer.finish()
}
