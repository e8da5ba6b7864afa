//! A COG that is written.
//!
//! Tiles are packed as they come and kept in a temporary file without a name. Each is reduced into
//! its quarter of a tile of the next overview, so that a level holds one unfinished tile when they
//! come in Z-order. At the end all sizes are known: the directories are written first, then the tiles
//! of the overviews from small to large, then those of the picture, row by row.

mod layout;
mod pending;
mod reduce;
mod spec;
mod spool;
mod tags;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::codec::BlockForm;
use crate::error::{RasterCause, RasterError};
use crate::head::{Compression, Predictor};
use crate::sample::Samples;
use pending::{PendingTiles, QuarterPlace};
use reduce::Reducer;
pub use spec::{CogOptions, CogSummary, OverviewMethod, RasterSpec};
use spool::{PackJob, TilePlace, TileSpool};

/// Tiles of more bytes than this are not kept to be used again.
const REPEATED_LEN_MAX: usize = 4 << 20;
/// Bytes of all tiles that are kept so.
const KEPT_LEN_MAX: usize = 32 << 20;

/// How many tiles of this length are kept. A picture of one block, its edges and its overviews need about 24.
fn tiles_max(tile_len: usize) -> usize {
    (KEPT_LEN_MAX / tile_len.max(1)).clamp(1, 32)
}

/// A resolution of the raster that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileLevel {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) across: u32,
    pub(crate) down: u32,
}

impl TileLevel {
    fn index(&self, column: u32, row: u32) -> usize {
        row as usize * self.across as usize + column as usize
    }
}

/// Values of a tile: pixels, and which of them are valid.
pub(crate) struct Tile {
    /// Nothing if all of it is nodata.
    pub(crate) samples: Option<Arc<Samples>>,
    pub(crate) mask: Option<Vec<u8>>,
    /// The bytes if it is packed already.
    pub(crate) packed: Option<Bytes>,
    /// Whether the same samples came before, at another place.
    pub(crate) is_repeated: bool,
}

/// Writes a COG. Tiles come in any order, from any thread, each once; [`CogWriter::tiles`] gives the
/// order that needs the least memory. The file appears under its name in [`CogWriter::finish`], whole
/// and synced; if that is not called, nothing is left.
pub struct CogWriter {
    path: PathBuf,
    spec: Arc<RasterSpec>,
    options: CogOptions,
    levels: Vec<TileLevel>,
    form: BlockForm,
    spool: TileSpool,
    pending: PendingTiles,
}

impl CogWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// If the options do not fit, or no file can be made beside `path`.
    pub fn create(path: &Path, spec: RasterSpec, options: &CogOptions) -> Result<CogWriter, RasterError> {
        let block = options.block;
        if !block.is_multiple_of(16) || !(16..=8192).contains(&block) {
            return Err(RasterError::invalid(format!(
                "a block of {block} is not a multiple of 16 from 16 to 8192"
            )));
        }
        let (width, height) = (spec.grid.width, spec.grid.height);
        if width == 0 || height == 0 || spec.bands == 0 || spec.bands > 4096 {
            return Err(RasterError::invalid(format!(
                "{width} x {height} pixels of {} bands cannot be written",
                spec.bands
            )));
        }
        let block_len =
            u64::from(block) * u64::from(block) * u64::from(spec.bands) * spec.sample.size() as u64;
        if block_len > 64 << 20 {
            return Err(RasterError::invalid(format!(
                "a tile of {block} x {block} pixels of {} x {} has {block_len} bytes; choose smaller blocks",
                spec.bands, spec.sample
            )));
        }
        let predictor = match (options.predictor, options.compression) {
            (_, Compression::None) => Predictor::None,
            (Some(Predictor::Float), _) if !spec.sample.is_float() => {
                return Err(RasterError::invalid(format!(
                    "predictor 3 is for floating-point numbers, not {}",
                    spec.sample
                )));
            }
            (Some(predictor), _) => predictor,
            (None, _) if spec.sample.is_float() => Predictor::Float,
            (None, _) if spec.palette.is_some() => Predictor::None,
            (None, _) => Predictor::Horizontal,
        };
        let form = BlockForm {
            compression: options.compression,
            predictor,
            sample: spec.sample,
            bits: spec.sample.size() as u16 * 8,
            width: block,
            together: spec.bands,
            big_endian: false,
            reversed: false,
            photometric: spec.photometric,
            jpeg_tables: None,
            lerc_in: 0,
        };
        let mut levels = Vec::new();
        let (mut w, mut h) = (width, height);
        loop {
            levels.push(TileLevel {
                width: w,
                height: h,
                across: w.div_ceil(block),
                down: h.div_ceil(block),
            });
            let more = match options.overviews {
                Some(count) => levels.len() <= count as usize && (w > 1 || h > 1),
                None => w > block || h > block,
            };
            if !more {
                break;
            }
            (w, h) = (w.div_ceil(2), h.div_ceil(2));
        }
        let method = options.overview_method.unwrap_or(if spec.palette.is_some() {
            OverviewMethod::Nearest
        } else {
            OverviewMethod::Average
        });
        let reducer = Reducer { method, nodata: spec.nodata, alpha: spec.alpha, block };
        let spec = Arc::new(spec);
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let spool = TileSpool::new(directory, &spec, options, &form, &levels)
            .map_err(|error| error.of(&path.display().to_string()))?;
        let pending = PendingTiles::new(reducer, spec.clone(), spool.tile_len());
        Ok(CogWriter { path: path.to_owned(), spec, options: options.clone(), levels, form, spool, pending })
    }

    /// Columns and rows of tiles.
    #[must_use]
    pub fn tiles_across_down(&self) -> (u32, u32) {
        self.levels.first().map_or((0, 0), |level| (level.across, level.down))
    }

    /// What is stored in place of values.
    #[must_use]
    pub fn predictor(&self) -> Predictor {
        self.form.predictor
    }

    /// All tiles, column and row, in Z-order.
    pub fn tiles(&self) -> impl Iterator<Item = (u32, u32)> + Send + use<> {
        let (across, down) = self.tiles_across_down();
        let mut stack = vec![(0u32, 0u32, u64::from(across.max(down)).next_power_of_two())];
        std::iter::from_fn(move || {
            while let Some((column, row, size)) = stack.pop() {
                if column >= across || row >= down {
                    continue;
                }
                if size == 1 {
                    return Some((column, row));
                }
                let half = size / 2;
                let step = half as u32;
                let (right, below) = (column.saturating_add(step), row.saturating_add(step));
                stack.extend([
                    (right, below, half),
                    (column, below, half),
                    (right, row, half),
                    (column, row, half),
                ]);
            }
            None
        })
    }

    /// Packs and stores a tile of all bands. At the right and lower edge it has either the full size
    /// or that of the pixels inside. Overviews follow by themselves.
    ///
    /// # Errors
    /// If it does not fit, was there before, or cannot be stored.
    pub fn write_tile(&self, column: u32, row: u32, tile: Samples) -> Result<(), RasterError> {
        self.share_tile(column, row, &Arc::new(tile), None, false)
    }

    /// The same with the mask of valid pixels (not 0), if [`RasterSpec::has_mask`].
    ///
    /// # Errors
    /// As [`CogWriter::write_tile`].
    pub fn write_masked_tile(
        &self,
        column: u32,
        row: u32,
        tile: Samples,
        mask: Vec<u8>,
    ) -> Result<(), RasterError> {
        let samples = Some(Arc::new(tile));
        self.add(0, column, row, Tile { samples, mask: Some(mask), packed: None, is_repeated: false })
    }

    /// A tile that is nothing but nodata (0 without nodata), masked if there is a mask.
    ///
    /// # Errors
    /// As [`CogWriter::write_tile`].
    pub fn skip_tile(&self, column: u32, row: u32) -> Result<(), RasterError> {
        self.add(0, column, row, Tile { samples: None, mask: None, packed: None, is_repeated: false })
    }

    /// Stores a tile that is packed already, by the same codec, predictor, block size and pixel
    /// order, little endian; its values serve for the overviews. Not for rasters with a mask.
    ///
    /// # Errors
    /// As [`CogWriter::write_tile`].
    pub fn copy_tile(&self, column: u32, row: u32, packed: Bytes, tile: Samples) -> Result<(), RasterError> {
        self.share_tile(column, row, &Arc::new(tile), Some(packed), false)
    }

    /// Stores a tile that is kept elsewhere too, packed already or not. If it is said to be repeated, these very
    /// samples should have come before: what was made of them is used again.
    ///
    /// # Errors
    /// As [`CogWriter::write_tile`].
    pub(crate) fn share_tile(
        &self,
        column: u32,
        row: u32,
        tile: &Arc<Samples>,
        packed: Option<Bytes>,
        is_repeated: bool,
    ) -> Result<(), RasterError> {
        let is_repeated = is_repeated && self.spool.tile_len() <= REPEATED_LEN_MAX;
        self.add(0, column, row, Tile { samples: Some(tile.clone()), mask: None, packed, is_repeated })
    }

    fn add(&self, level: usize, column: u32, row: u32, tile: Tile) -> Result<(), RasterError> {
        self.go_on()?;
        let of_file = |error: RasterError| error.of(&self.path.display().to_string());
        let place = self.levels.get(level).copied();
        let place = place.filter(|found| column < found.across && row < found.down);
        let place = place.ok_or_else(|| RasterError::invalid(format!("there is no tile {column} {row}")))?;
        self.check(&place, column, row, &tile)?;
        self.reduce(level, column, row, &tile)?;
        let job = PackJob { level, index: place.index(column, row), tile };
        self.spool.pack(job).map_err(of_file)
    }

    /// Whether nobody asked to stop.
    fn go_on(&self) -> Result<(), RasterError> {
        let stopped = self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
        if stopped { Err(RasterError::new(RasterCause::Stopped, "it was asked to stop")) } else { Ok(()) }
    }

    /// Columns and rows of a tile inside the picture.
    fn inside(&self, level: &TileLevel, column: u32, row: u32) -> (u32, u32) {
        let block = self.options.block;
        ((level.width - column * block).min(block), (level.height - row * block).min(block))
    }

    fn check(&self, level: &TileLevel, column: u32, row: u32, tile: &Tile) -> Result<(), RasterError> {
        let Some(samples) = &tile.samples else { return Ok(()) };
        let size = (samples.width, samples.height);
        let block = self.options.block;
        if size != (block, block) && size != self.inside(level, column, row) {
            return Err(RasterError::invalid(format!(
                "tile {column} {row} has {} x {} pixels",
                size.0, size.1
            )));
        }
        let len = samples.pixels() * samples.bands as usize;
        if (samples.bands, samples.sample()) != (self.spec.bands, self.spec.sample)
            || samples.data.len() != len
        {
            return Err(RasterError::invalid(format!(
                "tile {column} {row} is {} x {}, and the raster {} x {}",
                samples.bands,
                samples.sample(),
                self.spec.bands,
                self.spec.sample
            )));
        }
        match &tile.mask {
            Some(mask) if mask.len() != samples.pixels() || !self.spec.has_mask => {
                Err(RasterError::invalid("the mask of a tile does not fit it"))
            }
            None if self.spec.has_mask => {
                Err(RasterError::invalid("the raster has a mask, and a tile has none"))
            }
            _ => Ok(()),
        }
    }

    /// Puts a tile into its quarter of the one above it.
    fn reduce(&self, level: usize, column: u32, row: u32, tile: &Tile) -> Result<(), RasterError> {
        let (Some(own), Some(above)) = (self.levels.get(level), self.levels.get(level + 1)) else {
            return Ok(());
        };
        let (up_column, up_row) = (column / 2, row / 2);
        debug_assert!(up_column < above.across);
        let quarters = |count: u32, at: u32| (count - at * 2).min(2);
        let place = QuarterPlace {
            above: (level + 1, up_column, up_row),
            quarters: quarters(own.across, up_column) * quarters(own.down, up_row),
            quarter: (column % 2, row % 2),
            inside: self.inside(own, column, row),
        };
        match self.pending.add(&place, tile)? {
            Some(tile) => self.add(level + 1, up_column, up_row, tile),
            None => Ok(()),
        }
    }

    /// Ends the file: lays it out, syncs it and gives it its name.
    ///
    /// # Errors
    /// If tiles are missing, or it cannot be stored.
    pub fn finish(self) -> Result<CogSummary, RasterError> {
        self.go_on()?;
        let CogWriter { path, spec, options, levels, form, spool, .. } = self;
        let name = path.display().to_string();
        let stored = spool.finish().map_err(|error| error.of(&name))?;
        layout::assemble(&path, &spec, &options, &levels, &form, &stored).map_err(|error| error.of(&name))
    }
}

/// Whether a tile was stored.
fn is_stored(place: &TilePlace) -> bool {
    place.len > 0
}

#[cfg(test)]
mod tests;
