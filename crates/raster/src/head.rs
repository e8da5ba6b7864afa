//! What a raster says of itself.

use std::fmt;
use std::str::FromStr;

use tidegate_geo::{Crs, Problem};

use crate::error::RasterError;
use crate::grid::{Affine, PixelWindow, RasterGrid};
use crate::sample::{Pixel, SampleType};

/// How pixels are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// Lempel, Ziv and Welch.
    Lzw,
    /// JPEG.
    Jpeg,
    /// zlib.
    Deflate,
    /// Runs of bytes.
    PackBits,
    /// Limited error raster compression; the bytes of it may be packed in deflate or zstd.
    Lerc,
    /// Zstandard.
    Zstd,
    /// WebP.
    WebP,
    /// Another one, by the number of TIFF; it is not read.
    Other(u16),
}

impl Compression {
    /// By its number in TIFF.
    #[must_use]
    pub fn of_tag(number: u64) -> Compression {
        match number {
            1 => Compression::None,
            5 => Compression::Lzw,
            7 => Compression::Jpeg,
            8 | 32946 => Compression::Deflate,
            32773 => Compression::PackBits,
            34887 => Compression::Lerc,
            50000 => Compression::Zstd,
            50001 => Compression::WebP,
            other => Compression::Other(u16::try_from(other).unwrap_or(u16::MAX)),
        }
    }

    /// Its number in TIFF.
    #[must_use]
    pub fn tag(self) -> u16 {
        match self {
            Compression::None => 1,
            Compression::Lzw => 5,
            Compression::Jpeg => 7,
            Compression::Deflate => 8,
            Compression::PackBits => 32773,
            Compression::Lerc => 34887,
            Compression::Zstd => 50000,
            Compression::WebP => 50001,
            Compression::Other(number) => number,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Lzw => "lzw",
            Compression::Jpeg => "jpeg",
            Compression::Deflate => "deflate",
            Compression::PackBits => "packbits",
            Compression::Lerc => "lerc",
            Compression::Zstd => "zstd",
            Compression::WebP => "webp",
            Compression::Other(2..=4) => "ccitt fax",
            Compression::Other(6) => "old jpeg",
            Compression::Other(33003 | 33005 | 34712) => "jpeg 2000",
            Compression::Other(34925) => "lzma",
            Compression::Other(50002) => "jpeg xl",
            Compression::Other(number) => return write!(f, "number {number}"),
        })
    }
}

impl FromStr for Compression {
    type Err = RasterError;

    /// By name; only those that are written.
    fn from_str(name: &str) -> Result<Compression, RasterError> {
        match name.to_ascii_lowercase().as_str() {
            "none" => Ok(Compression::None),
            "lzw" => Ok(Compression::Lzw),
            "deflate" => Ok(Compression::Deflate),
            "zstd" => Ok(Compression::Zstd),
            _ => Err(RasterError::invalid(format!(
                "{name:?} is no compression that is written; known are deflate, zstd, lzw, none"
            ))),
        }
    }
}

/// What is stored in place of values, so that they pack better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Predictor {
    /// The values.
    None,
    /// The difference to the pixel before.
    Horizontal,
    /// The same of the bytes of floating-point numbers, the most significant ones first.
    Float,
}

impl Predictor {
    /// Its number in TIFF.
    #[must_use]
    pub fn tag(self) -> u16 {
        match self {
            Predictor::None => 1,
            Predictor::Horizontal => 2,
            Predictor::Float => 3,
        }
    }
}

/// The value that stands for none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoData {
    /// In double precision.
    pub value: f64,
    /// Exactly, if it is a whole number.
    pub exact: Option<i128>,
}

impl NoData {
    /// This number.
    #[must_use]
    pub fn new(value: f64) -> NoData {
        let exact = (value.fract() == 0.0 && value.abs() < 1e30).then_some(value as i128);
        NoData { value, exact }
    }

    /// As a value of this type; nothing if no value of the type can be it.
    #[must_use]
    pub fn of<T: Pixel>(&self) -> Option<T> {
        if T::TYPE.is_float() {
            let made = T::from_f64(self.value);
            // A number of double precision is given in decimals for one of single precision.
            return (made.to_f64().is_finite() || !self.value.is_finite()).then_some(made);
        }
        self.exact.and_then(T::from_exact)
    }

    /// The nearest value of this type.
    #[must_use]
    pub fn nearest<T: Pixel>(&self) -> T {
        self.of().unwrap_or_else(|| T::from_f64(self.value))
    }
}

impl FromStr for NoData {
    type Err = RasterError;

    fn from_str(text: &str) -> Result<NoData, RasterError> {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if let Ok(exact) = text.parse::<i128>() {
            return Ok(NoData { value: exact as f64, exact: Some(exact) });
        }
        let value = match text.to_ascii_lowercase().as_str() {
            "nan" | "-nan" | "+nan" | "nan(ind)" | "-nan(ind)" | "1.#qnan" => f64::NAN,
            lower => lower
                .parse()
                .map_err(|_| RasterError::header(format!("the nodata value {text:?} is no number")))?,
        };
        Ok(NoData::new(value))
    }
}

impl fmt::Display for NoData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exact {
            Some(exact) => write!(f, "{exact}"),
            None if self.value.is_nan() => f.write_str("nan"),
            None => write!(f, "{}", self.value),
        }
    }
}

/// Where it was told which pixels lie where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedBy {
    /// The tags of GeoTIFF.
    Tags,
    /// A world file beside it (`.tfw`).
    WorldFile,
    /// GDAL's file beside it (`.aux.xml`).
    AuxXml,
}

/// Where the mask of valid pixels is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    /// A picture in the same file.
    Inside,
    /// A file beside it (`.msk`).
    Beside,
}

/// What is said of a band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandInfo {
    /// Its name.
    pub name: Option<String>,
    /// What a value is multiplied by.
    pub scale: f64,
    /// What is added then.
    pub offset: f64,
    /// The unit of its values.
    pub unit: Option<String>,
    /// What else GDAL's metadata say.
    pub metadata: Vec<(String, String)>,
}

impl Default for BandInfo {
    fn default() -> BandInfo {
        BandInfo { name: None, scale: 1.0, offset: 0.0, unit: None, metadata: Vec::new() }
    }
}

/// How the blocks of a picture lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Columns of a block.
    pub width: u32,
    /// Rows of a block.
    pub height: u32,
    /// Tiles, not strips: blocks at the edges are as large as others.
    pub tiled: bool,
    /// Whether each band has blocks of its own; else values of a pixel lie side by side.
    pub separate: bool,
    /// Blocks from west to east.
    pub across: u32,
    /// Blocks from north to south.
    pub down: u32,
}

impl BlockLayout {
    /// Blocks of one plane.
    #[must_use]
    pub fn per_plane(&self) -> u64 {
        u64::from(self.across) * u64::from(self.down)
    }

    /// The number of a block: plane 0 unless bands are separate.
    #[must_use]
    pub fn index(&self, plane: u32, column: u32, row: u32) -> u64 {
        u64::from(plane) * self.per_plane() + u64::from(row) * u64::from(self.across) + u64::from(column)
    }
}

/// The picture in one resolution.
#[derive(Clone, Debug, PartialEq)]
pub struct RasterLevel {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// How its blocks lie.
    pub layout: BlockLayout,
    /// How its blocks are packed.
    pub compression: Compression,
    /// What is stored in place of values.
    pub predictor: Predictor,
    /// Bits of a value in the file.
    pub bits: u16,
    /// The colour model: the PhotometricInterpretation of TIFF.
    pub photometric: u16,
    /// Where its directory begins.
    pub offset: u64,
}

impl RasterLevel {
    /// All of it.
    #[must_use]
    pub fn window(&self) -> PixelWindow {
        PixelWindow::whole(self.width, self.height)
    }

    /// The pixels of a block.
    #[must_use]
    pub fn block_window(&self, column: u32, row: u32) -> Option<PixelWindow> {
        let BlockLayout { width, height, .. } = self.layout;
        let (x, y) = (column.checked_mul(width)?, row.checked_mul(height)?);
        PixelWindow { x, y, width, height }.intersection(&self.window())
    }
}

/// The head of a raster.
#[derive(Clone, Debug, PartialEq)]
pub struct RasterHead {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Values of a pixel.
    pub bands: u32,
    /// The type of a value when it is read; values of 1 to 7 bits are read as 8.
    pub sample: SampleType,
    /// From column and row to x and y, if anything says it.
    pub transform: Option<Affine>,
    /// What says it.
    pub placed_by: Option<PlacedBy>,
    /// Its system; the problem if it names none that is known, nothing if it names none.
    pub crs: Option<Result<Crs, Problem>>,
    /// Whether values belong to points, not to areas. The transform is that of corners in both cases.
    pub is_point: bool,
    /// The value that stands for none.
    pub nodata: Option<NoData>,
    /// Where the mask of valid pixels is.
    pub mask: Option<MaskKind>,
    /// The band of opacity, counted from 0.
    pub alpha: Option<u32>,
    /// Whether colours are multiplied by the opacity.
    pub is_premultiplied: bool,
    /// The colours of the values, red, green and blue.
    pub palette: Option<Vec<[u16; 3]>>,
    /// What is said of each band.
    pub band_info: Vec<BandInfo>,
    /// GDAL's metadata of the whole: domain, name, value.
    pub metadata: Vec<(String, String, String)>,
    /// The full picture, then its overviews, from large to small.
    pub levels: Vec<RasterLevel>,
    /// The mask in each resolution, if it is in the same file.
    pub mask_levels: Vec<RasterLevel>,
    /// A BigTIFF file.
    pub is_big: bool,
    /// The most significant byte comes first.
    pub is_big_endian: bool,
    /// GDAL's promise of how a COG is laid out, if the file begins with one.
    pub ghost: Option<String>,
    /// What was strange, but did not hinder reading.
    pub warnings: Vec<String>,
}

/// Whether GDAL's promise is that of a COG which nobody edited since.
pub(crate) fn promises_cog(ghost: Option<&str>) -> bool {
    let says = |words: &str| ghost.is_some_and(|ghost| ghost.contains(words));
    says("LAYOUT=IFDS_BEFORE_DATA") && says("KNOWN_INCOMPATIBLE_EDITION=NO")
}

impl RasterHead {
    /// Its grid.
    ///
    /// # Errors
    /// If nothing says where its pixels lie.
    pub fn grid(&self) -> Result<RasterGrid, RasterError> {
        let transform = self.transform.ok_or_else(|| {
            RasterError::header("nothing says where its pixels lie: no GeoTIFF tags, no .tfw, no .aux.xml")
        })?;
        let crs = self.crs.as_ref().and_then(|crs| crs.as_ref().ok()).cloned();
        Ok(RasterGrid { width: self.width, height: self.height, transform, crs })
    }

    /// Whether it is a COG, by its own word, that says itself where it lies.
    #[must_use]
    pub fn is_complete_cog(&self) -> bool {
        self.placed_by == Some(PlacedBy::Tags)
            && matches!(self.crs, Some(Ok(_)))
            && promises_cog(self.ghost.as_deref())
    }

    /// The grid of a resolution.
    ///
    /// # Errors
    /// As [`RasterHead::grid`], or if there is no such resolution.
    pub fn grid_of(&self, level: usize) -> Result<RasterGrid, RasterError> {
        let grid = self.grid()?;
        let found =
            self.levels.get(level).ok_or_else(|| RasterError::invalid(format!("no level {level}")))?;
        let scale_x = f64::from(self.width) / f64::from(found.width);
        let scale_y = f64::from(self.height) / f64::from(found.height);
        let transform = grid.transform.shifted(0.0, 0.0, scale_x, scale_y);
        Ok(RasterGrid { width: found.width, height: found.height, transform, crs: grid.crs })
    }

    /// All pixels in full resolution.
    #[must_use]
    pub fn window(&self) -> PixelWindow {
        PixelWindow::whole(self.width, self.height)
    }
}
