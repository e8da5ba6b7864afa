//! What a raster is and what its pixels are, for gates.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;
use tidegate_raster::{GeoTiff, PixelWindow, RasterError};

/// Pixels that are read at once.
const WINDOW_PIXELS: u64 = 1 << 22;

/// What a raster is, and what its pixels are if they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasterSurvey {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bands.
    pub bands: u32,
    /// The type of a value.
    pub sample: String,
    /// The system; nothing if none is known.
    pub crs: Option<String>,
    /// The size of a pixel, east and north.
    pub pixel: Option<(f64, f64)>,
    /// How far the corner is from a whole multiple of the pixel size, in pixels: 0 is aligned.
    pub grid_offset: Option<f64>,
    /// The share of values that stand for none, or are masked.
    pub nodata_share: Option<f64>,
    /// The smallest value that stands for one.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// The mean of the values.
    pub mean: Option<f64>,
    /// The same for each band.
    pub of_bands: BandSurvey,
}

/// What the pixels of each band are, as JSON lists; `null` for a band without values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandSurvey {
    /// The shares of values that stand for none.
    pub nodata_share: Option<String>,
    /// The smallest values.
    pub min: Option<String>,
    /// The largest values.
    pub max: Option<String>,
    /// The means.
    pub mean: Option<String>,
}

/// The numbers of one band.
#[derive(Clone, Copy, Default)]
struct BandNumbers {
    all: u64,
    none: u64,
    sum: f64,
    range: Option<(f64, f64)>,
}

impl BandNumbers {
    fn add(&mut self, value: f64, is_none: bool) {
        self.all += 1;
        if is_none {
            self.none += 1;
            return;
        }
        self.sum += value;
        let (min, max) = self.range.unwrap_or((value, value));
        self.range = Some((min.min(value), max.max(value)));
    }

    fn nodata_share(self) -> f64 {
        self.none as f64 / self.all.max(1) as f64
    }

    fn mean(self) -> Option<f64> {
        (self.all > self.none).then(|| self.sum / (self.all - self.none) as f64)
    }
}

/// Surveys a raster; the pixels only if asked.
///
/// # Errors
/// If it cannot be read whole.
pub fn survey(raster: &GeoTiff, pixels: bool) -> Result<RasterSurvey, RasterError> {
    let head = raster.head();
    let grid = head.grid().ok();
    let mut found = RasterSurvey {
        width: head.width,
        height: head.height,
        bands: head.bands,
        sample: head.sample.to_string(),
        crs: head.crs.as_ref().and_then(|crs| crs.as_ref().ok()).map(ToString::to_string),
        pixel: grid.as_ref().map(tidegate_raster::RasterGrid::pixel_size),
        ..RasterSurvey::default()
    };
    if let (Some(transform), Some((wide, high))) = (head.transform, found.pixel) {
        let [x, _, _, y, _, _] = transform.0;
        let off = |place: f64, size: f64| {
            let steps = place / size.abs();
            (steps - steps.round()).abs()
        };
        found.grid_offset = Some(off(x, wide).max(off(y, high)));
    }
    if pixels {
        read(raster, &mut found)?;
    }
    Ok(found)
}

fn read(raster: &GeoTiff, found: &mut RasterSurvey) -> Result<(), RasterError> {
    let head = raster.head();
    let bands: Vec<u32> = (0..head.bands).collect();
    let rows = (WINDOW_PIXELS / (u64::from(head.width) * u64::from(head.bands)).max(1)).clamp(1, 4096) as u32;
    let mut numbers = vec![BandNumbers::default(); bands.len()];
    let mut y = 0;
    while y < head.height {
        let window = PixelWindow::new(0, y, head.width, rows.min(head.height - y));
        let samples = raster.read_window(0, &bands, window)?;
        let mask = raster.read_mask(0, window)?;
        let pixels = samples.pixels().max(1);
        for at in 0..samples.data.len() {
            let value = samples.data.get(at).unwrap_or(f64::NAN);
            let is_masked = mask.as_ref().is_some_and(|mask| mask.get(at % pixels) == Some(&0));
            let is_nodata = head.nodata.is_some_and(|nodata| nodata.value == value);
            // The values of a band are together.
            if let Some(band) = numbers.get_mut(at / pixels) {
                band.add(value, is_masked || is_nodata || value.is_nan());
            }
        }
        y += window.height;
    }
    let mut whole = BandNumbers::default();
    for band in &numbers {
        whole.all += band.all;
        whole.none += band.none;
        whole.sum += band.sum;
        if let Some((min, max)) = band.range {
            let (low, high) = whole.range.unwrap_or((min, max));
            whole.range = Some((low.min(min), high.max(max)));
        }
    }
    found.nodata_share = Some(whole.nodata_share());
    (found.min, found.max) = (whole.range.map(|(min, _)| min), whole.range.map(|(_, max)| max));
    found.mean = whole.mean();
    let list = |of: &dyn Fn(BandNumbers) -> Option<f64>| {
        let all: Vec<Option<f64>> = numbers.iter().map(|band| of(*band)).collect();
        serde_json::to_string(&all).ok()
    };
    found.of_bands = BandSurvey {
        nodata_share: list(&|band| Some(band.nodata_share())),
        min: list(&|band| band.range.map(|(min, _)| min)),
        max: list(&|band| band.range.map(|(_, max)| max)),
        mean: list(&BandNumbers::mean),
    };
    Ok(())
}

/// The SHA-256 of a file.
///
/// # Errors
/// If it cannot be read.
pub fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}
