//! Mosaic: many rasters on one grid. Each source is warped onto the grid of the result, which leaves the
//! pixels of a source that lies on it already as they are; where several have a value, the priority decides.
//!
//! The grid covers all sources, with the system and the pixel size of the first, or as it is given. All
//! sources must have the same number of bands and the same type of values.

use tidegate_geo::crs::Grids;

use crate::error::RasterError;
use crate::geotiff::GeoTiff;
use crate::grid::PixelWindow;
use crate::head::NoData;
use crate::paint::{Painted, Painter};
use crate::sample::{SampleType, Samples};
use crate::warp::{GridRequest, KernelNumber, Resampling, Warp, WarpOptions};
use crate::with_pixel;
use crate::write::RasterSpec;

/// Which value a pixel gets that several rasters have one for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// That of the first raster.
    #[default]
    First,
    /// That of the last raster.
    Last,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean.
    Mean,
}

impl std::str::FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Priority, String> {
        Ok(match text {
            "first" => Priority::First,
            "last" => Priority::Last,
            "min" => Priority::Min,
            "max" => Priority::Max,
            "mean" => Priority::Mean,
            _ => return Err(format!("unknown priority {text:?}; expected first, last, min, max or mean")),
        })
    }
}

/// What is asked of a mosaic.
#[derive(Clone, Debug, Default)]
pub struct MosaicOptions {
    /// The grid of the result.
    pub grid: GridRequest,
    /// Which value wins.
    pub priority: Priority,
    /// How sources that do not lie on the grid are resampled.
    pub resampling: Resampling,
    /// The nodata value of the result; that of the first source if not given.
    pub nodata: Option<NoData>,
    /// Where grids of datum shifts lie.
    pub grids: Grids,
}

/// Many rasters, ready to paint.
pub struct Mosaic<'a> {
    warps: Vec<Warp<'a>>,
    priority: Priority,
    spec: RasterSpec,
}

impl<'a> Mosaic<'a> {
    /// Plans a mosaic.
    ///
    /// # Errors
    /// If there is no source, one has no place or does not fit the others, or the grid makes no sense.
    pub fn new(sources: &'a [GeoTiff], options: &MosaicOptions) -> Result<Mosaic<'a>, RasterError> {
        let first = sources.first().ok_or_else(|| RasterError::invalid("a mosaic needs a raster"))?;
        let head = first.head();
        let to = head.crs.as_ref().and_then(|crs| crs.as_ref().ok()).cloned();
        for source in sources {
            let other = source.head();
            if (other.bands, other.sample, other.alpha) != (head.bands, head.sample, head.alpha) {
                return Err(RasterError::invalid(format!(
                    "it has {} bands of {}, the first raster has {} of {}",
                    other.bands, other.sample, head.bands, head.sample
                ))
                .of(source.source().name()));
            }
        }
        let mut asked = WarpOptions {
            to: to.clone(),
            resampling: options.resampling,
            nodata: options.nodata,
            grids: options.grids.clone(),
            tolerance: 0.0,
            ..WarpOptions::default()
        };
        let pixel =
            options.grid.resolution.unwrap_or_else(|| head.grid().map_or((1.0, 1.0), |g| g.pixel_size()));
        let mut grid = options.grid.clone();
        if grid.extent.is_none() {
            grid.extent = Some(covered(sources, &asked)?);
        }
        if grid.resolution.is_none() && grid.size.is_none() {
            grid.resolution = Some(pixel);
        }
        asked.grid = grid;
        let warps: Vec<Warp<'a>> = sources
            .iter()
            .map(|source| Warp::new(source, &asked).map_err(|error| error.of(source.source().name())))
            .collect::<Result<_, _>>()?;
        let mut spec = warps
            .first()
            .map(|warp| warp.spec().clone())
            .ok_or_else(|| RasterError::invalid("a mosaic needs a raster"))?;
        // Sources may leave gaps, and one may have a mask that the first has not.
        let masked = warps.iter().any(|warp| warp.spec().has_mask);
        spec.has_mask = spec.alpha.is_none() && (masked || spec.nodata.is_none());
        Ok(Mosaic { warps, priority: options.priority, spec })
    }

    /// What the result is.
    #[must_use]
    pub fn spec(&self) -> &RasterSpec {
        &self.spec
    }

    fn paint_as<T: KernelNumber>(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        let pixels = window.width as usize * window.height as usize;
        let bands = self.spec.bands as usize;
        let fill: T = self.spec.nodata.map_or(T::default(), |nodata| nodata.nearest());
        let mut sum = MosaicLayers {
            values: vec![fill; pixels * bands],
            means: if self.priority == Priority::Mean { vec![(0.0, 0); pixels * bands] } else { Vec::new() },
            covered: vec![0u8; pixels],
            has_value: vec![false; pixels * bands],
        };
        if let Some(alpha) = self.spec.alpha.map(|alpha| alpha as usize)
            && let Some(plane) = sum.values.get_mut(alpha * pixels..(alpha + 1) * pixels)
        {
            plane.fill(T::default());
        }
        let nodata = self.spec.nodata.and_then(|nodata| nodata.of::<T>());
        for warp in &self.warps {
            let Some((values, covered)) = warp.paint_covered::<T>(window)? else { continue };
            sum.add(&values, &covered, nodata, self.priority, self.spec.alpha);
        }
        if sum.covered.iter().all(|covered| *covered == 0) {
            return Ok(Painted::Empty);
        }
        for ((value, (mean, count)), _) in
            sum.values.iter_mut().zip(&sum.means).zip(&sum.has_value).filter(|(_, has)| **has)
        {
            if *count > 1 {
                *value = T::settle(*mean);
            }
        }
        let (width, height) = (window.width, window.height);
        let samples = Samples { width, height, bands: self.spec.bands, data: T::wrap(sum.values) };
        Ok(if self.spec.has_mask { Painted::Masked(samples, sum.covered) } else { Painted::Values(samples) })
    }
}

/// What the rasters so far come to.
struct MosaicLayers<T> {
    values: Vec<T>,
    means: Vec<(f64, u32)>,
    covered: Vec<u8>,
    has_value: Vec<bool>,
}

impl<T: KernelNumber> MosaicLayers<T> {
    fn add(
        &mut self,
        values: &[T],
        covered: &[u8],
        nodata: Option<T>,
        priority: Priority,
        alpha: Option<u32>,
    ) {
        let pixels = covered.len();
        let before = self.covered.clone();
        for (i, value) in values.iter().enumerate() {
            let pixel = i % pixels.max(1);
            let is_there = covered.get(pixel).is_some_and(|covered| *covered != 0);
            let is_alpha = alpha == Some((i / pixels.max(1)) as u32);
            if !is_there || (!is_alpha && nodata.is_some_and(|nodata| value.same(nodata))) {
                continue;
            }
            let (Some(slot), Some(has)) = (self.values.get_mut(i), self.has_value.get_mut(i)) else {
                continue;
            };
            // The opacity goes with the pixel that it belongs to.
            let taken = is_alpha && before.get(pixel).is_some_and(|before| *before != 0);
            let wins = match priority {
                _ if !*has => true,
                Priority::First => false,
                Priority::Last => true,
                _ if taken => value.to_f64() > slot.to_f64(),
                Priority::Min => value.to_f64() < slot.to_f64(),
                Priority::Max => value.to_f64() > slot.to_f64(),
                Priority::Mean => false,
            };
            if wins {
                *slot = *value;
            }
            *has = true;
            if let Some((mean, count)) = self.means.get_mut(i).filter(|_| !is_alpha) {
                *count += 1;
                *mean += (value.to_f64() - *mean) / f64::from(*count);
            }
            if let Some(covered) = self.covered.get_mut(pixel) {
                *covered = 255;
            }
        }
    }
}

/// The box around all sources, in the system of the result.
fn covered(sources: &[GeoTiff], options: &WarpOptions) -> Result<[f64; 4], RasterError> {
    let mut found: Option<[f64; 4]> = None;
    for source in sources {
        let warp = Warp::new(source, options).map_err(|error| error.of(source.source().name()))?;
        let bounds = warp.spec().grid.bounds();
        let b = bounds
            .ok_or_else(|| RasterError::header("its place is not finite").of(source.source().name()))?;
        let all = found.get_or_insert([b.min_x, b.min_y, b.max_x, b.max_y]);
        *all = [all[0].min(b.min_x), all[1].min(b.min_y), all[2].max(b.max_x), all[3].max(b.max_y)];
    }
    found.ok_or_else(|| RasterError::invalid("a mosaic needs a raster"))
}

impl Painter for Mosaic<'_> {
    fn paint(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        let sample: SampleType = self.spec.sample;
        with_pixel!(sample, T => self.paint_as::<T>(window))
    }
}
