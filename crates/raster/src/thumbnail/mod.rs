//! A small picture of a raster, for people who look at a page.
//!
//! It is read from an overview, pixel by pixel without averages, and only if few bytes must be
//! unpacked for it: a page with pictures of a hundred rasters must not cost a hundred rasters. Values
//! that are not colours are stretched between their second and ninety-eighth percentile. What is
//! nodata, masked or transparent is transparent.

mod png;

use crate::error::RasterError;
use crate::geotiff::GeoTiff;
use crate::grid::PixelWindow;
use crate::head::{RasterHead, RasterLevel};
use crate::sample::{Pixel, SampleType, Samples};
use crate::with_pixel;
use tidegate_geo::Crs;
use tidegate_geo::crs::Transform;

/// Bytes of blocks that are unpacked for one picture.
const UNPACKED_LEN_MAX: u64 = 32 << 20;
/// Points along an edge of an outline.
const EDGE_POINTS: u32 = 8;

/// A small picture of a raster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thumbnail {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// A PNG file.
    pub png: Vec<u8>,
}

/// Makes a picture with at most so many columns and rows.
///
/// # Errors
/// If a block cannot be read, or too many bytes would have to be unpacked because there are no
/// overviews.
pub fn thumbnail(raster: &GeoTiff, side_max: u32) -> Result<Thumbnail, RasterError> {
    made(raster, side_max.clamp(1, 1024)).map_err(|error| error.of(raster.source().name()))
}

fn made(raster: &GeoTiff, side_max: u32) -> Result<Thumbnail, RasterError> {
    let head = raster.head();
    let (at, level) = level_for(head, side_max)?;
    let longest = level.width.max(level.height);
    let scaled = |size: u32| {
        let size = u64::from(size) * u64::from(side_max.min(longest));
        (size.div_ceil(longest.into()) as u32).max(1)
    };
    let (width, height) = (scaled(level.width), scaled(level.height));
    let columns = taken(level.width, width, level.layout.width);
    let rows = taken(level.height, height, level.layout.height);
    let shown = ShownBands::of(head, level);
    hold(head, level, &shown, columns.len(), rows.len())?;
    let mut picture = ThumbnailValues::new(width as usize * height as usize, shown.all.len());
    for row in &rows {
        for column in &columns {
            let Some(window) = level.block_window(column.block, row.block) else { continue };
            // Only the rows and columns between the first and the last that are shown.
            let window = window.intersection(&within(column, row)).unwrap_or(window);
            let samples = raster.read_window(at, &shown.all, window)?;
            let mask = raster.read_mask(at, window)?;
            let pixels = row.pixels.iter().flat_map(|y| column.pixels.iter().map(move |x| (x, y)));
            for ((to_x, x), (to_y, y)) in pixels {
                let to = *to_y as usize * width as usize + *to_x as usize;
                picture.set(to, &samples, mask.as_deref(), window, *x, *y);
            }
        }
    }
    let colours = shown.colours(head, level, &picture);
    Ok(Thumbnail { width, height, png: png::encode(width, height, &colours) })
}

/// The smallest resolution that is not smaller than the picture.
fn level_for(head: &RasterHead, side_max: u32) -> Result<(usize, &RasterLevel), RasterError> {
    let is_enough = |level: &RasterLevel| level.width.max(level.height) >= side_max;
    let levels = || head.levels.iter().enumerate();
    let found =
        levels().filter(|(_, level)| is_enough(level)).min_by_key(|(_, level)| level.width.max(level.height));
    found.or_else(|| levels().next()).ok_or_else(|| RasterError::header("it has no picture"))
}

/// The pixels of a picture along one side that lie in one block: of the picture and of the resolution.
struct TakenPixels {
    block: u32,
    pixels: Vec<(u32, u32)>,
}

/// The pixels along one side, by block.
fn taken(from: u32, to: u32, block: u32) -> Vec<TakenPixels> {
    let mut all: Vec<TakenPixels> = Vec::new();
    for i in 0..to {
        let place = (u64::from(i) * 2 + 1) * u64::from(from) / (u64::from(to) * 2);
        let place = (place as u32).min(from - 1);
        match all.last_mut().filter(|last| last.block == place / block) {
            Some(last) => last.pixels.push((i, place)),
            None => all.push(TakenPixels { block: place / block, pixels: vec![(i, place)] }),
        }
    }
    all
}

/// The window from the first to the last pixel that is taken.
fn within(column: &TakenPixels, row: &TakenPixels) -> PixelWindow {
    let ends = |taken: &TakenPixels| match (taken.pixels.first(), taken.pixels.last()) {
        (Some((_, first)), Some((_, last))) => (*first, last - first + 1),
        _ => (0, 0),
    };
    let ((x, width), (y, height)) = (ends(column), ends(row));
    PixelWindow::new(x, y, width, height)
}

/// Refuses what would cost too much.
fn hold(
    head: &RasterHead,
    level: &RasterLevel,
    shown: &ShownBands,
    across: usize,
    down: usize,
) -> Result<(), RasterError> {
    let layout = &level.layout;
    let values = if layout.separate { shown.all.len() as u64 } else { u64::from(head.bands) };
    let block = u64::from(layout.width) * u64::from(layout.height) * values * head.sample.size() as u64;
    let len = block.saturating_mul(across as u64).saturating_mul(down as u64);
    if len <= UNPACKED_LEN_MAX {
        return Ok(());
    }
    Err(RasterError::too_large(format!(
        "no overview is small enough: {} MiB would have to be unpacked for a thumbnail; the limit is {}",
        len >> 20,
        UNPACKED_LEN_MAX >> 20
    )))
}

/// The bands that are read, and what they mean.
struct ShownBands {
    /// Colours first, then opacity.
    all: Vec<u32>,
    /// How many are colours: 1 or 3.
    colours: usize,
}

impl ShownBands {
    fn of(head: &RasterHead, level: &RasterLevel) -> ShownBands {
        let others: Vec<u32> = (0..head.bands).filter(|band| head.alpha != Some(*band)).collect();
        let is_colour = head.palette.is_none() && others.len() >= 3 && level.photometric != 3;
        let colours = if is_colour { 3 } else { 1 };
        let mut all: Vec<u32> = others.into_iter().take(colours).collect();
        let colours = all.len();
        all.extend(head.alpha);
        ShownBands { all, colours }
    }

    /// Red, green, blue and opacity of each pixel.
    fn colours(&self, head: &RasterHead, level: &RasterLevel, picture: &ThumbnailValues) -> Vec<[u8; 4]> {
        let nodata =
            head.nodata.and_then(|nodata| with_pixel!(head.sample, T => nodata.of::<T>().map(Pixel::to_f64)));
        let is_none = |value: f64| value.is_nan() || nodata == Some(value);
        let opaque = with_pixel!(head.sample, T => largest::<T>());
        let alpha = |at: usize| match picture.bands.get(self.colours) {
            Some(band) => band.get(at).map_or(0.0, |value| (value / opaque * 255.0).clamp(0.0, 255.0)),
            None => 255.0,
        };
        let colours = picture.bands.get(..self.colours).unwrap_or_default();
        let alphas: Vec<u8> = (0..picture.valid.len())
            .map(|at| {
                let is_shown = colours.iter().any(|band| band.get(at).is_some_and(|value| !is_none(*value)));
                let is_valid = picture.valid.get(at).is_some_and(|valid| *valid);
                if is_shown && is_valid { alpha(at) as u8 } else { 0 }
            })
            .collect();
        let as_they_are = head.sample == SampleType::U8 && (self.colours == 3 || head.palette.is_some());
        let ranges: Vec<(f64, f64)> = colours
            .iter()
            .map(|band| {
                let shown =
                    band.iter().zip(&alphas).filter(|(value, alpha)| **alpha > 0 && !is_none(**value));
                if as_they_are { (0.0, 255.0) } else { range(shown.map(|(value, _)| *value).collect()) }
            })
            .collect();
        let grey = |band: usize, at: usize| {
            let (low, high) = ranges.get(band).copied().unwrap_or((0.0, 0.0));
            let value = colours.get(band).and_then(|band| band.get(at)).copied().unwrap_or(f64::NAN);
            if is_none(value) {
                return 0;
            }
            let share = if high > low { (value - low) / (high - low) } else { 0.5 };
            let share = if level.photometric == 0 { 1.0 - share } else { share };
            (share * 255.0).round().clamp(0.0, 255.0) as u8
        };
        let of_palette = |at: usize| {
            let value = colours.first()?.get(at)?;
            let colour = head.palette.as_ref()?.get(*value as usize)?;
            Some(colour.map(|part| (part >> 8) as u8))
        };
        alphas
            .iter()
            .enumerate()
            .map(|(at, alpha)| {
                if *alpha == 0 {
                    return [0; 4];
                }
                let [r, g, b] = match self.colours {
                    3 => [grey(0, at), grey(1, at), grey(2, at)],
                    _ => of_palette(at).unwrap_or([grey(0, at); 3]),
                };
                [r, g, b, *alpha]
            })
            .collect()
    }
}

/// The value of full opacity.
fn largest<T: Pixel>() -> f64 {
    if T::TYPE.is_float() { 1.0 } else { T::from_f64(f64::INFINITY).to_f64() }
}

/// The second and the ninety-eighth percentile; of a few values that are nearly all the same, the
/// smallest and the largest.
fn range(mut values: Vec<f64>) -> (f64, f64) {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    let at =
        |share: usize| values.get((values.len().saturating_sub(1)) * share / 100).copied().unwrap_or(0.0);
    let (low, high) = (at(2), at(98));
    if high > low { (low, high) } else { (at(0), at(100)) }
}

/// The values of the picture, before they are colours.
struct ThumbnailValues {
    bands: Vec<Vec<f64>>,
    valid: Vec<bool>,
}

impl ThumbnailValues {
    fn new(pixels: usize, bands: usize) -> ThumbnailValues {
        ThumbnailValues { bands: vec![vec![f64::NAN; pixels]; bands], valid: vec![false; pixels] }
    }

    fn set(
        &mut self,
        to: usize,
        samples: &Samples,
        mask: Option<&[u8]>,
        window: PixelWindow,
        x: u32,
        y: u32,
    ) {
        let (x, y) = (x - window.x, y - window.y);
        for (at, band) in (0u32..).zip(&mut self.bands) {
            if let (Some(target), Some(value)) = (band.get_mut(to), samples.get(at, x, y)) {
                *target = value;
            }
        }
        let at = y as usize * window.width as usize + x as usize;
        if let Some(valid) = self.valid.get_mut(to) {
            *valid = mask.is_none_or(|mask| mask.get(at).is_some_and(|value| *value != 0));
        }
    }
}

/// The outline of a raster in degrees, as a closed ring; nothing if the head does not say where it
/// lies, or a part of it has no place on earth.
#[must_use]
pub fn outline(head: &RasterHead) -> Option<Vec<(f64, f64)>> {
    let crs = head.crs.as_ref()?.as_ref().ok()?;
    let (affine, way) = (head.transform?, Transform::new(crs, &Crs::wgs84()).ok()?);
    let (w, h) = (f64::from(head.width), f64::from(head.height));
    let corners = [(0.0, 0.0), (0.0, h), (w, h), (w, 0.0), (0.0, 0.0)];
    let mut ring = Vec::new();
    for edge in corners.windows(2) {
        let [from, to] = edge else { continue };
        for i in 0..EDGE_POINTS {
            let share = f64::from(i) / f64::from(EDGE_POINTS);
            let (x, y) = affine.apply(from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            let (x, y, _) = way.position(x, y, 0.0).ok()?;
            if !(x.is_finite() && y.is_finite()) {
                return None;
            }
            ring.push((x, y));
        }
    }
    ring.extend(ring.first().copied());
    Some(ring)
}
