//! Warp: a raster in another coordinate reference system or on another grid, pixel by pixel as `gdalwarp`.
//!
//! What is where:
//!
//! - [`suggest`](self::suggest): the grid of the result, as `gdalwarp` chooses it or as it is given
//! - [`mapping`](self::mapping): where the pixels of the result lie in the source, exactly or by control points
//! - [`scale`](self::scale): how wide kernels are
//! - [`kernel`](self::kernel): a row of pixels by nearest, [`linear`](self::linear), [`cubic`](self::cubic) or
//!   [`wide`](self::wide) kernels; [`narrow`](self::narrow): bilinear for small numbers, many at once
//! - [`area`](self::area): average and mode
//!
//! A window of the result is painted by computing the positions of all its pixels first. The box around
//! them, with room for the kernel, is what is read of the source. If that is more than [`BOX_LEN_MAX`], the
//! window is halved, so that memory does not depend on how much coarser the result is.
//!
//! Overviews of the source are not used: values come from the full picture.

mod area;
mod cubic;
mod kernel;
mod linear;
mod mapping;
mod narrow;
mod number;
mod options;
mod resampling;
mod scale;
mod suggest;
#[cfg(test)]
mod tests;
mod wide;

use std::cell::RefCell;

use tidegate_geo::Crs;
use tidegate_geo::crs::Operation;

pub(crate) use mapping::apply;
pub(crate) use number::KernelNumber;
pub use options::{TOLERANCE, WarpOptions, system_of};
pub use resampling::Resampling;
pub use scale::KernelScale;
pub use suggest::GridRequest;

use crate::error::RasterError;
use crate::geotiff::GeoTiff;
use crate::grid::PixelWindow;
use crate::head::NoData;
use crate::paint::{Painted, Painter};
use crate::sample::{SampleData, Samples};
use crate::with_pixel;
use crate::write::RasterSpec;
use kernel::{Neighbourhood, Setting, resample_row};
use mapping::{PartPlace, PixelArea, PixelMapping, box_around, halves};
use options::{between, spec_of};
use suggest::{SourceOutline, Suggestion, suggest};

/// Bytes of the source that one thread reads at once.
const BOX_LEN_MAX: u64 = 32 << 20;

thread_local! {
    /// Positions of the last part, whose memory the next one uses.
    static POSITIONS: RefCell<(Vec<f64>, Vec<f64>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Values band by band, and which pixels have one.
pub(crate) type CoveredValues<T> = (Vec<T>, Vec<u8>);

/// A warp of one raster, ready to paint.
pub struct Warp<'a> {
    source: &'a GeoTiff,
    mapping: PixelMapping,
    scale: KernelScale,
    resampling: Resampling,
    /// The nodata value of the source.
    nodata: Option<NoData>,
    /// Bands of the source that are resampled, without that of opacity.
    bands: Vec<u32>,
    /// The band of opacity of the source.
    alpha: Option<u32>,
    spec: RasterSpec,
    operation: Option<Operation>,
}

fn is_geographic(crs: &Crs) -> bool {
    crs.entry().is_some_and(|entry| entry.geographic)
}

impl<'a> Warp<'a> {
    /// Plans a warp: grid, positions, kernel.
    ///
    /// # Errors
    /// If the source has no place, a system is unknown, or the grid that is asked for makes no sense.
    pub fn new(source: &'a GeoTiff, options: &WarpOptions) -> Result<Warp<'a>, RasterError> {
        let head = source.head();
        let grid = head.grid()?;
        let inverse = grid
            .transform
            .inverse()
            .ok_or_else(|| RasterError::header("the pixels of the raster have no area on the ground"))?;
        // A source without a system can still be brought to another grid.
        let from = match &options.to {
            Some(_) => Some(system_of(head, options.from.as_ref())?),
            None => system_of(head, options.from.as_ref()).ok(),
        };
        let to = options.to.clone().or_else(|| from.clone());
        let (there, home) = match (&from, &to) {
            (Some(from), Some(to)) => {
                (between(from, to, &options.grids)?, between(to, from, &options.grids)?)
            }
            _ => (None, None),
        };
        let size = (grid.width, grid.height);
        let suggested = if !options.grid.needs_suggestion() {
            None
        } else if there.is_none() && grid.transform.is_upright() {
            let bounds = grid.bounds();
            bounds.map(|b| Suggestion::of_grid((b.min_x, b.min_y), (b.max_x, b.max_y), grid.pixel_size()))
        } else {
            let outline = SourceOutline {
                transform: grid.transform,
                inverse,
                there: there.as_ref(),
                home: home.as_ref(),
            };
            let degrees = to.as_ref().is_some_and(is_geographic) && !from.as_ref().is_some_and(is_geographic);
            suggest(&outline, size, degrees)
        };
        let result = options.grid.grid(suggested, to)?;
        let operation = there.as_ref().map(|there| there.operation().clone());
        if !(options.tolerance >= 0.0 && options.tolerance.is_finite()) {
            return Err(RasterError::invalid("the tolerance must be 0 or more"));
        }
        let mapping = PixelMapping {
            result: result.transform,
            source: inverse,
            systems: home,
            size,
            tolerance: options.tolerance,
        };
        let scale = match options.kernel_scale {
            Some(scale) if !(scale.x > 0.0 && scale.y > 0.0) => {
                return Err(RasterError::invalid("the kernel scale must be greater than 0"));
            }
            Some(scale) => scale,
            None => KernelScale::of(&mapping, (result.width, result.height), options.resampling),
        };
        let nodata = options.source_nodata.or(head.nodata);
        let spec = spec_of(head, result, options, nodata)?;
        let bands = (0..head.bands).filter(|band| Some(*band) != head.alpha).collect();
        Ok(Warp {
            source,
            mapping,
            scale,
            resampling: options.resampling,
            nodata,
            bands,
            alpha: head.alpha,
            spec,
            operation,
        })
    }

    /// What the result is.
    #[must_use]
    pub fn spec(&self) -> &RasterSpec {
        &self.spec
    }

    /// How coordinates are brought from the source to the result, if their systems differ.
    #[must_use]
    pub fn operation(&self) -> Option<&Operation> {
        self.operation.as_ref()
    }

    /// The width of kernels.
    #[must_use]
    pub fn kernel_scale(&self) -> KernelScale {
        self.scale
    }

    /// Whether pixels of the result that have no value can be told from those of value 0.
    #[must_use]
    pub fn shows_holes(&self) -> bool {
        self.spec.nodata.is_some() || self.spec.alpha.is_some() || self.spec.has_mask
    }

    fn paint_as<T: KernelNumber>(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        let Some((values, covered)) = self.paint_covered::<T>(window)? else { return Ok(Painted::Empty) };
        let (width, height) = (window.width, window.height);
        let samples = Samples { width, height, bands: self.spec.bands, data: T::wrap(values) };
        Ok(if self.spec.has_mask { Painted::Masked(samples, covered) } else { Painted::Values(samples) })
    }

    /// The values of a window, band by band, and which pixels have one (not 0); nothing if none has.
    pub(crate) fn paint_covered<T: KernelNumber>(
        &self,
        window: PixelWindow,
    ) -> Result<Option<CoveredValues<T>>, RasterError> {
        let pixels = window.width as usize * window.height as usize;
        let fill = self.spec.nodata.and_then(|nodata| nodata.of::<T>());
        let mut values = vec![fill.unwrap_or_default(); pixels * self.spec.bands as usize];
        let mut covered = vec![0u8; pixels];
        let alpha = self.spec.alpha.map(|alpha| alpha as usize);
        if let Some(plane) = alpha.and_then(|at| values.get_mut(at * pixels..(at + 1) * pixels)) {
            plane.fill(T::default());
        }
        self.paint_part::<T>(window, window, &mut values, &mut covered)?;
        let any = covered.iter().any(|covered| *covered != 0);
        Ok(any.then_some((values, covered)))
    }

    /// Paints a part of a window, or its halves if it needs too much of the source.
    fn paint_part<T: KernelNumber>(
        &self,
        part: PixelWindow,
        window: PixelWindow,
        values: &mut [T],
        covered: &mut [u8],
    ) -> Result<(), RasterError> {
        let areal = self.resampling.is_areal();
        let (mut x, mut y) = POSITIONS.take();
        let positions = PixelArea::of(part, usize::from(areal));
        self.mapping.fill(positions, if areal { 0.0 } else { 0.5 }, &mut x, &mut y);
        let Some(needed) = self.needed(&x, &y) else {
            POSITIONS.set((x, y));
            return Ok(());
        };
        let len = needed.pixels() * (self.bands.len() as u64 + 1) * T::TYPE.size() as u64;
        if len > BOX_LEN_MAX && part.pixels() > 1 {
            POSITIONS.set((x, y));
            for half in halves(part) {
                self.paint_part(half, window, values, covered)?;
            }
            return Ok(());
        }
        if self.skips_absent::<T>() && self.source.is_absent(&self.bands, needed)? {
            POSITIONS.set((x, y));
            return Ok(());
        }
        let read = self.source.read_window(0, &self.bands, needed)?;
        let alpha = match self.alpha {
            Some(alpha) => Some(self.source.read_window(0, &[alpha], needed)?),
            None => None,
        };
        let mask = match &alpha {
            Some(alpha) => Some(opaque::<T>(alpha)),
            None => self.source.read_mask(0, needed)?,
        };
        let around = Neighbourhood {
            start: (i64::from(needed.x), i64::from(needed.y)),
            extent: (needed.width as usize, needed.height as usize),
            size: self.mapping.size,
            planes: (0..self.bands.len() as u32).filter_map(|band| read.band::<T>(band)).collect(),
            nodata: self.nodata.and_then(|nodata| nodata.of::<T>()),
            mask: mask.as_deref(),
        };
        let fill = self.spec.nodata.and_then(|nodata| nodata.of::<T>());
        let setting = Setting { method: self.resampling, scale: self.scale, fill };
        let place = PartPlace { window, part, stride: positions.width };
        self.rows(&around, &setting, place, (&x, &y), values, covered);
        if let Some(at) = self.spec.alpha {
            self.opacity(&around, alpha.as_ref(), place, (&x, &y), (values, covered), at);
        }
        POSITIONS.set((x, y));
        Ok(())
    }

    /// Whether blocks that are not in the source have no value, so that they need not be painted.
    fn skips_absent<T: KernelNumber>(&self) -> bool {
        let head = self.source.head();
        let nodata = self.nodata.filter(|nodata| head.nodata == Some(*nodata));
        nodata.is_some_and(|nodata| nodata.of::<T>().is_some()) && self.alpha.is_none() && head.mask.is_none()
    }

    fn rows<T: KernelNumber>(
        &self,
        around: &Neighbourhood<'_, T>,
        setting: &Setting<T>,
        place: PartPlace,
        (x, y): (&[f64], &[f64]),
        values: &mut [T],
        covered: &mut [u8],
    ) {
        let width = place.part.width as usize;
        let pixels = place.window.width as usize * place.window.height as usize;
        for row in 0..place.part.height as usize {
            let start = place.start(row);
            let mut out: Vec<&mut [T]> = values
                .chunks_mut(pixels.max(1))
                .enumerate()
                .filter(|(band, _)| self.spec.alpha != Some(*band as u32))
                .filter_map(|(_, plane)| plane.get_mut(start..start + width))
                .collect();
            let Some(covered) = covered.get_mut(start..start + width) else { continue };
            let line = |all: &'_ [f64], row: usize| {
                let from = row * place.stride;
                from..(from + place.stride).min(all.len())
            };
            let upper = (&x[line(x, row)], &y[line(y, row)]);
            if self.resampling.is_areal() {
                let lower = (&x[line(x, row + 1)], &y[line(y, row + 1)]);
                area::area_row(around, setting, upper, lower, &mut out, covered);
            } else {
                resample_row(around, setting, upper, &mut out, covered);
            }
        }
    }

    /// The band of opacity: that of the nearest pixel where the source has one, else full where there is a value.
    fn opacity<T: KernelNumber>(
        &self,
        around: &Neighbourhood<'_, T>,
        alpha: Option<&Samples>,
        place: PartPlace,
        (x, y): (&[f64], &[f64]),
        (values, covered): (&mut [T], &[u8]),
        at: u32,
    ) {
        let pixels = place.window.width as usize * place.window.height as usize;
        let Some(out) = values.get_mut(at as usize * pixels..(at as usize + 1) * pixels) else { return };
        let plane = alpha.filter(|_| !self.resampling.is_areal()).and_then(|alpha| alpha.band::<T>(0));
        for row in 0..place.part.height as usize {
            let start = place.start(row);
            for column in 0..place.part.width as usize {
                if covered.get(start + column).is_none_or(|covered| *covered == 0) {
                    continue;
                }
                let from = row * place.stride + column;
                let found = match (plane, x.get(from), y.get(from)) {
                    (Some(plane), Some(x), Some(y)) => {
                        around.nearest(*x, *y).and_then(|i| plane.get(i)).copied()
                    }
                    _ => None,
                };
                if let Some(out) = out.get_mut(start + column) {
                    *out = found.unwrap_or_else(T::opaque);
                }
            }
        }
    }

    /// The part of the source that these positions need, with room for the kernel.
    fn needed(&self, x: &[f64], y: &[f64]) -> Option<PixelWindow> {
        let (width, height) = self.mapping.size;
        // A pixel with an area may begin outside.
        let room_of = |scale: f64| {
            if self.resampling.is_areal() { 2.0 * (1.0 / scale).max(1.0) + 1.0 } else { 0.0 }
        };
        let room = (room_of(self.scale.x), room_of(self.scale.y));
        let size = (f64::from(width), f64::from(height));
        let [left, top, right, bottom] = box_around(x, y, size, room);
        let (reach_x, reach_y) = self.scale.reach(self.resampling);
        let range = |low: f64, high: f64, reach: i64, len: u32| {
            // If no pixel is inside, first is after last.
            let reach = reach as f64 + 1.0;
            let first = (low.floor() - reach).clamp(0.0, f64::from(len)) as u32;
            let last = (high.ceil() + reach).clamp(0.0, f64::from(len)) as u32;
            (first < last).then_some((first, last - first))
        };
        let (x, width) = range(left, right, reach_x, width)?;
        let (y, height) = range(top, bottom, reach_y, height)?;
        Some(PixelWindow { x, y, width, height })
    }
}

impl Painter for Warp<'_> {
    fn paint(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        with_pixel!(self.spec.sample, T => self.paint_as::<T>(window))
    }
}

/// Opacity as a mask: not 0 where there is any.
fn opaque<T: KernelNumber>(alpha: &Samples) -> Vec<u8> {
    let SampleData::U8(bytes) = &alpha.data else {
        let plane = alpha.band::<T>(0).unwrap_or_default();
        return plane.iter().map(|value| if value.to_f64() > 0.0 { 255 } else { 0 }).collect();
    };
    bytes.clone()
}
