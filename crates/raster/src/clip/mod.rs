//! Clip: a part of a raster, by a box or by the outlines of features. Nothing is resampled: the pixels of
//! the result are those of the source, bit by bit.
//!
//! A box is widened to whole pixels of the source. Outlines select pixels by the rules of
//! [`rasterize`](crate::rasterize): those whose centre lies within, or all that are touched; the others
//! become nodata, transparent or masked. A tile that lies wholly within, and is a tile of the source in
//! place, codec and form, is copied as it is packed, without packing it again.

use std::sync::OnceLock;

use tidegate_geo::Bounds;
use tidegate_geo::crs::Transform;

use crate::error::RasterError;
use crate::geotiff::GeoTiff;
use crate::grid::PixelWindow;
use crate::head::{Compression, NoData};
use crate::paint::{Painted, Painter};
use crate::rasterize::PixelShapes;
use crate::sample::{Pixel, Samples};
use crate::with_pixel;
use crate::write::{CogOptions, RasterSpec};

/// How far the result reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClipExtent {
    /// The pixels that the box or the outlines touch.
    #[default]
    Crop,
    /// These, widened to whole tiles of the source, so that tiles can be copied as they are packed.
    Tiles,
    /// The whole source.
    Keep,
}

impl std::str::FromStr for ClipExtent {
    type Err = String;

    fn from_str(text: &str) -> Result<ClipExtent, String> {
        match text {
            "crop" => Ok(ClipExtent::Crop),
            "tiles" => Ok(ClipExtent::Tiles),
            "keep" => Ok(ClipExtent::Keep),
            _ => Err(format!("unknown extent {text:?}; expected crop, tiles or keep")),
        }
    }
}

/// The outlines to clip by.
pub struct ClipShapes {
    shapes: PixelShapes,
    all_touched: bool,
}

impl ClipShapes {
    /// None yet, for a raster.
    ///
    /// # Errors
    /// If the raster has no place.
    pub fn new(source: &GeoTiff, all_touched: bool) -> Result<ClipShapes, RasterError> {
        let grid = source.head().grid()?;
        let inverse = grid.transform.inverse();
        let inverse = inverse
            .ok_or_else(|| RasterError::header("the pixels of the raster have no area on the ground"))?;
        Ok(ClipShapes { shapes: PixelShapes::new(inverse, grid.height), all_touched })
    }

    /// Adds the geometry of a feature; `systems` leads to the system of the raster. Whether it was added: one
    /// with a position that has no place there is not.
    ///
    /// # Errors
    /// If there are too many positions.
    pub fn add(&mut self, wkb: &[u8], systems: Option<&Transform>) -> Result<bool, RasterError> {
        self.shapes.add(wkb, systems)
    }
}

/// A clip of one raster, ready to paint.
pub struct RasterClip<'a> {
    source: &'a GeoTiff,
    shapes: Option<ClipShapes>,
    /// The part of the source that is the result.
    window: PixelWindow,
    bands: Vec<u32>,
    spec: RasterSpec,
    /// Whether tiles of the result are tiles of the source.
    copies: bool,
    /// Whether the blocks of a small box were read, and what went wrong.
    preloaded: OnceLock<Option<RasterError>>,
}

/// The pixels of a raster that a box touches; nothing if none.
fn pixels_of(source: &GeoTiff, bounds: Bounds) -> Result<Option<PixelWindow>, RasterError> {
    let grid = source.head().grid()?;
    let inverse = grid.transform.inverse();
    let inverse =
        inverse.ok_or_else(|| RasterError::header("the pixels of the raster have no area on the ground"))?;
    let Bounds { min_x, min_y, max_x, max_y } = bounds;
    let corners = [(min_x, min_y), (max_x, min_y), (min_x, max_y), (max_x, max_y)];
    let corners = corners.map(|(x, y)| inverse.apply(x, y));
    let range = |all: [f64; 4], len: u32| {
        const SLACK: f64 = 1e-6;
        let low = all.iter().fold(f64::INFINITY, |low, n| low.min(*n));
        let high = all.iter().fold(f64::NEG_INFINITY, |high, n| high.max(*n));
        let first = (low + SLACK).floor().clamp(0.0, f64::from(len)) as u32;
        let last = (high - SLACK).ceil().clamp(0.0, f64::from(len)) as u32;
        (first < last).then_some((first, last - first))
    };
    let columns = range(corners.map(|(x, _)| x), grid.width);
    let rows = range(corners.map(|(_, y)| y), grid.height);
    Ok(columns.zip(rows).map(|((x, width), (y, height))| PixelWindow { x, y, width, height }))
}

impl<'a> RasterClip<'a> {
    /// Plans a clip by a box, by outlines, or by both.
    ///
    /// # Errors
    /// If nothing of the source lies within, or the source has no way to tell what lies outside.
    pub fn new(
        source: &'a GeoTiff,
        bounds: Option<Bounds>,
        shapes: Option<ClipShapes>,
        extent: ClipExtent,
        nodata: Option<NoData>,
    ) -> Result<RasterClip<'a>, RasterError> {
        let head = source.head();
        let outside = || RasterError::invalid("nothing of the raster lies within what it is clipped by");
        let mut window = head.window();
        if extent == ClipExtent::Keep && bounds.is_some() {
            return Err(RasterError::invalid(
                "a box crops the raster; the extent can be kept only with outlines",
            ));
        }
        if let Some(bounds) = bounds {
            window = pixels_of(source, bounds)?.ok_or_else(outside)?;
        }
        if let Some(shapes) = &shapes {
            let touched = shapes.shapes.touched(head.width).ok_or_else(outside)?;
            window = window.intersection(&touched).ok_or_else(outside)?;
        }
        let level = head.levels.first().ok_or_else(|| RasterError::header("it has no picture"))?;
        let (block_x, block_y) = (level.layout.width.max(1), level.layout.height.max(1));
        window = match extent {
            ClipExtent::Crop => window,
            ClipExtent::Keep => head.window(),
            ClipExtent::Tiles => {
                let (x, y) = (window.x / block_x * block_x, window.y / block_y * block_y);
                let up = |end: u32, block: u32| u64::from(end).div_ceil(u64::from(block)) * u64::from(block);
                let right = up(window.right(), block_x).min(u64::from(head.width)) as u32;
                let bottom = up(window.bottom(), block_y).min(u64::from(head.height)) as u32;
                PixelWindow::new(x, y, right - x, bottom - y)
            }
        };
        let grid = head.grid()?.part(window);
        let mut spec = RasterSpec::like(head, grid);
        if let Some(nodata) = nodata {
            let fits = with_pixel!(spec.sample, T => nodata.of::<T>().is_some());
            if !fits {
                return Err(RasterError::invalid(format!("{nodata} is no value of {}", spec.sample)));
            }
            spec.nodata = Some(nodata);
        }
        if shapes.is_some() && spec.nodata.is_none() && spec.alpha.is_none() {
            // What lies outside must not look like a value.
            spec.has_mask = true;
        }
        let bands = (0..head.bands).collect();
        Ok(RasterClip { source, shapes, window, bands, spec, copies: true, preloaded: OnceLock::new() })
    }

    /// What the result is.
    #[must_use]
    pub fn spec(&self) -> &RasterSpec {
        &self.spec
    }

    /// The options of the source where the writer has them, so that packed tiles can be copied.
    #[must_use]
    pub fn options(&self, asked: &CogOptions) -> CogOptions {
        let mut options = asked.clone();
        let Some(level) = self.source.head().levels.first() else { return options };
        let writable = matches!(
            level.compression,
            Compression::None | Compression::Deflate | Compression::Zstd | Compression::Lzw
        );
        let square = level.layout.tiled
            && level.layout.width == level.layout.height
            && level.layout.width.is_multiple_of(16)
            && (64..=4096).contains(&level.layout.width);
        if writable && square {
            options.compression = level.compression;
            options.predictor = Some(level.predictor);
            options.block = level.layout.width;
        }
        options
    }

    /// Prepares for a file of these options: packed tiles are copied only if they are packed so.
    pub fn prepare(&mut self, options: &CogOptions) {
        let same = self.source.head().levels.first().is_some_and(|level| {
            level.compression == options.compression
                && options.predictor == Some(level.predictor)
                && options.block == level.layout.width
        });
        self.copies &= same;
    }

    /// Whether a block of the source becomes a tile of the result.
    fn is_copied(&self, block: PixelWindow) -> bool {
        let place = block.x.checked_sub(self.window.x).zip(block.y.checked_sub(self.window.y));
        place.is_some_and(|(x, y)| {
            self.window.contains(&block)
                && self.can_copy(PixelWindow::new(x, y, block.width, block.height)).is_some()
                && x.is_multiple_of(block.width)
                && y.is_multiple_of(block.height)
        })
    }

    /// The block of the source that a tile of the result is, if it can be copied as it is packed.
    fn can_copy(&self, window: PixelWindow) -> Option<u64> {
        let head = self.source.head();
        let level = head.levels.first()?;
        let layout = &level.layout;
        let alike = self.copies
            && layout.tiled
            && !layout.separate
            && layout.width == layout.height
            && !head.is_big_endian
            && u32::from(level.bits) == 8 * head.sample.size() as u32
            && self.spec.nodata == head.nodata
            && !self.spec.has_mask
            && matches!(
                level.compression,
                Compression::None | Compression::Deflate | Compression::Zstd | Compression::Lzw
            );
        let (x, y) = (self.window.x + window.x, self.window.y + window.y);
        let place = alike
            && window.width == layout.width
            && window.height == layout.height
            && x.is_multiple_of(layout.width)
            && y.is_multiple_of(layout.height);
        place.then(|| layout.index(0, x / layout.width, y / layout.height))
    }

    fn paint_as<T: Pixel>(&self, mut samples: Samples, inside: &[u8]) -> Samples {
        let fill: T = self.spec.nodata.map_or(T::default(), |nodata| nodata.nearest());
        for band in 0..samples.bands {
            let fill = if self.spec.alpha == Some(band) { T::default() } else { fill };
            let Some(values) = samples.band_mut::<T>(band) else { continue };
            for (value, _) in values.iter_mut().zip(inside).filter(|(_, inside)| **inside == 0) {
                *value = fill;
            }
        }
        samples
    }
}

impl Painter for RasterClip<'_> {
    fn paint(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        let there =
            PixelWindow::new(self.window.x + window.x, self.window.y + window.y, window.width, window.height);
        let inside = self.shapes.as_ref().map(|shapes| {
            let width = window.width as usize;
            let mut inside = vec![0u8; width * window.height as usize];
            shapes.shapes.fill(there, shapes.all_touched, |_, row, columns| {
                if let Some(run) = inside.get_mut(row * width + columns.start..row * width + columns.end) {
                    run.fill(255);
                }
            });
            inside
        });
        if inside.as_ref().is_some_and(|inside| inside.iter().all(|inside| *inside == 0)) {
            return Ok(Painted::Empty);
        }
        let whole = inside.as_ref().is_none_or(|inside| inside.iter().all(|inside| *inside != 0));
        if self.shapes.is_none() {
            // All of a box is needed. Of outlines, the tiles between them are not.
            let failed = self.preloaded.get_or_init(|| {
                let is_copied = |block: PixelWindow| self.is_copied(block);
                self.source.preload(&self.bands, self.window, &is_copied).err()
            });
            if let Some(error) = failed {
                return Err(error.clone());
            }
        }
        let packed = match self.can_copy(window).filter(|_| whole) {
            Some(index) => self.source.packed_block(0, index)?,
            None => None,
        };
        let mut samples = self.source.read_window(0, &self.bands, there)?;
        if let Some(packed) = packed {
            return Ok(Painted::Packed(packed, samples));
        }
        if let (Some(inside), false) = (&inside, whole) {
            samples = with_pixel!(self.spec.sample, T => self.paint_as::<T>(samples, inside));
        }
        if !self.spec.has_mask {
            return Ok(Painted::Values(samples));
        }
        let pixels = samples.pixels();
        let mut mask = self.source.read_mask(0, there)?.unwrap_or_else(|| vec![255; pixels]);
        if let Some(inside) = &inside {
            for (mask, _) in mask.iter_mut().zip(inside).filter(|(_, inside)| **inside == 0) {
                *mask = 0;
            }
        }
        Ok(Painted::Masked(samples, mask))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::limits::RasterLimits;
    use crate::paint::paint_file;
    use crate::source::{ByteSource, FileBytes, SidecarName};
    use crate::testing::TestRaster;

    /// Counts the reads of a file.
    struct CountedBytes(FileBytes, AtomicUsize);

    impl ByteSource for CountedBytes {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn size(&self) -> Result<u64, RasterError> {
            self.0.size()
        }
        fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, RasterError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(offset, len)
        }
        fn unchanged(&self) -> Result<(), RasterError> {
            self.0.unchanged()
        }
        fn beside(&self, suffix: SidecarName<'_>) -> Result<Option<Arc<dyn ByteSource>>, RasterError> {
            self.0.beside(suffix)
        }
    }

    #[test]
    fn the_blocks_of_a_small_box_are_read_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tiled.tif");
        let values: Vec<u16> = (0..128 * 128).collect();
        let plain = TestRaster::new(128, 128, values.clone()).open();
        let all = RasterClip::new(&plain, None, None, ClipExtent::Crop, None).unwrap();
        let options = CogOptions { block: 32, compression: Compression::None, ..CogOptions::default() };
        paint_file(&all, all.spec(), &path, &options, &|| Ok(())).unwrap();

        let counted = Arc::new(CountedBytes(FileBytes::open(&path).unwrap(), AtomicUsize::new(0)));
        let tiled = GeoTiff::open(counted.clone(), &RasterLimits::default()).unwrap();
        let bounds = Bounds {
            min_x: 500_000.0 + 200.0,
            max_x: 500_000.0 + 840.0,
            min_y: 5_300_000.0 - 840.0,
            max_y: 5_300_000.0 - 200.0,
        };
        let clip = RasterClip::new(&tiled, Some(bounds), None, ClipExtent::Crop, None).unwrap();
        assert_eq!((clip.window.x, clip.window.y, clip.window.width), (20, 20, 64));
        let mut reads = Vec::new();
        for (x, y) in [(0, 0), (32, 0), (0, 32), (32, 32)] {
            let Painted::Values(part) = clip.paint(PixelWindow::new(x, y, 32, 32)).unwrap() else { panic!() };
            assert_eq!(part.get(0, 31, 31), Some(f64::from((20 + y + 31) * 128 + 20 + x + 31)));
            reads.push(counted.1.load(Ordering::Relaxed));
        }
        assert!(reads.iter().all(|count| *count == reads[0]), "{reads:?}");
    }
}
