//! What is written, and how.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::grid::{Affine, RasterGrid};
use crate::head::{BandInfo, Compression, NoData, Predictor, RasterHead};
use crate::sample::SampleType;

/// How the values of an overview are made from four of the level before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverviewMethod {
    /// The first.
    Nearest,
    /// The mean of those that are not nodata.
    Average,
    /// The most frequent one; the first of equals.
    Mode,
}

/// What the raster to be written is.
#[derive(Clone, Debug, PartialEq)]
pub struct RasterSpec {
    /// Its pixels on the ground.
    pub grid: RasterGrid,
    /// Whether the grid is known; if not, none is written.
    pub is_placed: bool,
    /// Values of a pixel.
    pub bands: u32,
    /// The type of a value.
    pub sample: SampleType,
    /// The value that stands for none.
    pub nodata: Option<NoData>,
    /// The band of opacity, counted from 0.
    pub alpha: Option<u32>,
    /// Whether colours are multiplied by the opacity.
    pub is_premultiplied: bool,
    /// Whether a mask of valid pixels is written.
    pub has_mask: bool,
    /// What is said of each band; may be shorter.
    pub band_info: Vec<BandInfo>,
    /// GDAL's metadata: domain, name, value.
    pub metadata: Vec<(String, String, String)>,
    /// The colours of the values.
    pub palette: Option<Vec<[u16; 3]>>,
    /// Whether values belong to points.
    pub is_point: bool,
    /// The colour model of TIFF: 0 white is zero, 1 black is zero, 2 RGB, 3 palette.
    pub photometric: u16,
}

impl RasterSpec {
    /// The same as another raster, on this grid.
    #[must_use]
    pub fn like(head: &RasterHead, grid: RasterGrid) -> RasterSpec {
        let told = head.levels.first().map_or(1, |level| level.photometric);
        let is_plain =
            head.levels.first().is_some_and(|level| usize::from(level.bits) == head.sample.size() * 8);
        RasterSpec {
            grid,
            is_placed: true,
            bands: head.bands,
            sample: head.sample,
            nodata: head.nodata,
            alpha: head.alpha,
            is_premultiplied: head.is_premultiplied,
            has_mask: head.mask.is_some(),
            band_info: head.band_info.clone(),
            metadata: head.metadata.clone(),
            palette: head.palette.clone().filter(|_| head.bands == 1),
            is_point: head.is_point,
            photometric: match told {
                2 | 6 if head.bands >= 3 => 2,
                3 if head.palette.is_some() && head.bands == 1 => 3,
                0 if is_plain => 0,
                _ => 1,
            },
        }
    }

    /// The same as another raster, pixel by pixel; its place only if it has one.
    #[must_use]
    pub fn same_as(head: &RasterHead) -> RasterSpec {
        let unplaced = || RasterGrid {
            width: head.width,
            height: head.height,
            transform: Affine([0.0, 1.0, 0.0, 0.0, 0.0, 1.0]),
            crs: None,
        };
        let (grid, is_placed) = head.grid().map_or_else(|_| (unplaced(), false), |grid| (grid, true));
        RasterSpec { is_placed, ..RasterSpec::like(head, grid) }
    }
}

/// How it is written.
#[derive(Clone, Debug)]
pub struct CogOptions {
    /// Columns and rows of a tile, a multiple of 16.
    pub block: u32,
    /// How tiles are packed: deflate, zstd, lzw or none.
    pub compression: Compression,
    /// The effort of the codec; its default if not given.
    pub effort: Option<i32>,
    /// What is stored in place of values; chosen by the type if not given.
    pub predictor: Option<Predictor>,
    /// How many overviews; until the smallest fits one tile if not given.
    pub overviews: Option<u32>,
    /// How overviews are made; nearest for palettes, else average if not given.
    pub overview_method: Option<OverviewMethod>,
    /// Threads that pack.
    pub threads: usize,
    /// Cloud optimised: directories first, GDAL's promise and block leaders. Else plain tiled GeoTIFF.
    pub is_cog: bool,
    /// BigTIFF; if it is needed when not given.
    pub big: Option<bool>,
    /// Leave tiles out of the file that are nothing but nodata.
    pub is_sparse: bool,
    /// When it is set, the next tile ends the work, and nothing is left of the file.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for CogOptions {
    fn default() -> CogOptions {
        CogOptions {
            block: 512,
            compression: Compression::Deflate,
            effort: None,
            predictor: None,
            overviews: None,
            overview_method: None,
            threads: 1,
            is_cog: true,
            big: None,
            is_sparse: false,
            stop: None,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CogSummary {
    /// Bytes of the file.
    pub len: u64,
    /// Overviews.
    pub overviews: u32,
    /// Tiles in all resolutions.
    pub tiles: u64,
    /// Of these, tiles that are nothing but nodata and are left out.
    pub sparse: u64,
    /// A BigTIFF file.
    pub is_big: bool,
}
