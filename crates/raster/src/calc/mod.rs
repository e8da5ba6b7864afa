//! Band maths: a raster whose bands are expressions over the bands of others, in the language of `--where`
//! ([`tidegate_geo::filter`]).
//!
//! `(b8 - b4) / (b8 + b4)`
//!
//! Logic has three values, as in SQL. A band that is nodata, masked or NaN at a pixel is null there, and what
//! is computed with null is null, but for `coalesce`, `is null` and what `and` and `or` decide without it.
//! Division by 0 is null. Null becomes the nodata value of the result. True is 1 and false is 0. All sums are
//! of 64 bits. An expression is bound to its bands once and works on a whole row at a time.

mod eval;

use crate::error::RasterError;
use crate::geotiff::GeoTiff;
use crate::grid::{PixelWindow, RasterGrid};
use crate::head::{BandInfo, NoData};
use crate::paint::{Painted, Painter};
use crate::sample::{Pixel, SampleType, Samples};
use crate::warp::KernelNumber;
use crate::with_pixel;
use crate::write::RasterSpec;
use eval::Formula;

/// A band of a raster, by the name that expressions use.
pub struct CalcBand<'a> {
    /// The name, such as `b8`.
    pub name: String,
    /// The raster.
    pub raster: &'a GeoTiff,
    /// Its band, counted from 0.
    pub band: u32,
}

/// Band maths, ready to paint.
pub struct Calc<'a> {
    bands: Vec<CalcBand<'a>>,
    formulas: Vec<Formula>,
    spec: RasterSpec,
}

/// Whether two grids are the same, to a thousandth of a pixel.
fn agree(a: &RasterGrid, b: &RasterGrid) -> bool {
    let corner =
        |grid: &RasterGrid, column: u32, row: u32| grid.transform.apply(f64::from(column), f64::from(row));
    let (width, height) = a.pixel_size();
    let near = |column: u32, row: u32| {
        let ((x, y), (to_x, to_y)) = (corner(a, column, row), corner(b, column, row));
        (x - to_x).abs() <= width * 1e-3 && (y - to_y).abs() <= height * 1e-3
    };
    let systems = match (&a.crs, &b.crs) {
        (Some(a), Some(b)) => a == b || (a.is_wgs84() && b.is_wgs84()),
        _ => true,
    };
    (a.width, a.height) == (b.width, b.height) && near(0, 0) && near(a.width, a.height) && systems
}

impl<'a> Calc<'a> {
    /// Plans a result with one band per expression.
    ///
    /// # Errors
    /// If an expression cannot be read or names no band, the rasters lie on different grids, or the nodata
    /// value does not fit the type.
    pub fn new(
        bands: Vec<CalcBand<'a>>,
        expressions: &[String],
        sample: SampleType,
        nodata: Option<NoData>,
    ) -> Result<Calc<'a>, RasterError> {
        let first = bands.first().ok_or_else(|| RasterError::invalid("band maths needs a raster"))?;
        let head = first.raster.head();
        let (placed, size) = (head.grid().ok(), (head.width, head.height));
        for band in &bands {
            let other = band.raster.head();
            let same = match (&placed, other.grid().ok()) {
                (Some(a), Some(b)) => agree(a, &b),
                _ => size == (other.width, other.height),
            };
            if !same {
                return Err(RasterError::invalid(format!(
                    "{} does not lie on the grid of {}; warp it there first",
                    band.raster.source().name(),
                    first.raster.source().name()
                )));
            }
        }
        let names: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
        let formulas: Vec<Formula> =
            expressions.iter().map(|text| Formula::new(text, &names)).collect::<Result<_, _>>()?;
        if formulas.is_empty() {
            return Err(RasterError::invalid("band maths needs an expression"));
        }
        let nodata = nodata.unwrap_or_else(|| NoData::new(if sample.is_float() { f64::NAN } else { 0.0 }));
        let fits = with_pixel!(sample, T => nodata.of::<T>().is_some());
        if !fits {
            return Err(RasterError::invalid(format!("{nodata} is no value of {sample}")));
        }
        let grid = placed.clone().unwrap_or(RasterGrid {
            width: size.0,
            height: size.1,
            transform: crate::grid::Affine([0.0, 1.0, 0.0, 0.0, 0.0, 1.0]),
            crs: None,
        });
        let band_info = expressions
            .iter()
            .map(|text| BandInfo { name: Some(text.trim().to_owned()), ..BandInfo::default() })
            .collect();
        let spec = RasterSpec {
            grid,
            is_placed: placed.is_some(),
            bands: formulas.len() as u32,
            sample,
            nodata: Some(nodata),
            alpha: None,
            is_premultiplied: false,
            has_mask: false,
            band_info,
            metadata: Vec::new(),
            palette: None,
            is_point: head.is_point,
            photometric: 1,
        };
        Ok(Calc { bands, formulas, spec })
    }

    /// What the result is.
    #[must_use]
    pub fn spec(&self) -> &RasterSpec {
        &self.spec
    }

    /// The values of the bands that an expression uses; NaN is null.
    fn inputs(&self, window: PixelWindow) -> Result<Vec<Vec<f64>>, RasterError> {
        let used = |at: usize| self.formulas.iter().any(|formula| formula.uses(at));
        let mut all = Vec::with_capacity(self.bands.len());
        for (at, band) in self.bands.iter().enumerate() {
            if !used(at) {
                all.push(Vec::new());
                continue;
            }
            let head = band.raster.head();
            let read = band.raster.read_window(0, &[band.band], window)?;
            let mut values = with_pixel!(read.sample(), T => numbers::<T>(&read, head.nodata));
            let mut hide = |mask: &[u8]| {
                for (value, _) in values.iter_mut().zip(mask).filter(|(_, mask)| **mask == 0) {
                    *value = f64::NAN;
                }
            };
            if let Some(mask) = band.raster.read_mask(0, window)? {
                hide(&mask);
            }
            if let Some(alpha) = head.alpha.filter(|alpha| *alpha != band.band) {
                let alpha = band.raster.read_window(0, &[alpha], window)?;
                let mask: Vec<u8> = with_pixel!(alpha.sample(), T => {
                    let opaque = alpha.band::<T>(0).unwrap_or_default();
                    opaque.iter().map(|a| u8::from(a.to_f64() > 0.0)).collect()
                });
                hide(&mask);
            }
            all.push(values);
        }
        Ok(all)
    }

    fn paint_as<T: KernelNumber>(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        let inputs = self.inputs(window)?;
        let (width, pixels) = (window.width as usize, window.width as usize * window.height as usize);
        let nodata: T = self.spec.nodata.map_or(T::default(), |nodata| nodata.nearest());
        let mut values = vec![nodata; pixels * self.formulas.len()];
        let mut any = false;
        for (formula, out) in self.formulas.iter().zip(values.chunks_mut(pixels.max(1))) {
            for (row, out) in out.chunks_mut(width.max(1)).enumerate() {
                let line = |at: usize| {
                    inputs
                        .get(at)
                        .and_then(|band| band.get(row * width..(row + 1) * width))
                        .unwrap_or_default()
                };
                for (out, found) in out.iter_mut().zip(formula.row(&line, width)) {
                    if found.is_nan() {
                        continue;
                    }
                    let value = T::settle(found);
                    *out = if value.same(nodata) { value.beside() } else { value };
                    any = true;
                }
            }
        }
        if !any {
            return Ok(Painted::Empty);
        }
        let bands = self.formulas.len() as u32;
        Ok(Painted::Values(Samples {
            width: window.width,
            height: window.height,
            bands,
            data: T::wrap(values),
        }))
    }
}

/// Values in double precision; NaN for nodata.
fn numbers<T: KernelNumber>(read: &Samples, nodata: Option<NoData>) -> Vec<f64> {
    let values = read.band::<T>(0).unwrap_or_default();
    match nodata.and_then(|nodata| nodata.of::<T>()) {
        Some(nodata) => {
            values.iter().map(|value| if value.same(nodata) { f64::NAN } else { value.to_f64() }).collect()
        }
        None => values.iter().map(|value| value.to_f64()).collect(),
    }
}

impl Painter for Calc<'_> {
    fn paint(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        with_pixel!(self.spec.sample, T => self.paint_as::<T>(window))
    }
}
