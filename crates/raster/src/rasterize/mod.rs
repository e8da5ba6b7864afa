//! Rasterize: features burnt into the pixels of a grid, by the rules of `gdal_rasterize`
//! ([`fill`](self::fill)).
//!
//! All geometries are brought to pixels once and listed by the rows that they touch; a window is then filled
//! from the list of its rows. Of features that cover the same pixel the last one wins. Counting counts a
//! feature once per pixel, whatever its parts.

mod fill;
mod shapes;

use tidegate_geo::crs::Transform;

use crate::error::RasterError;
use crate::grid::{PixelWindow, RasterGrid};
use crate::head::NoData;
use crate::paint::{Painted, Painter};
use crate::sample::{Pixel, SampleType, Samples};
use crate::warp::KernelNumber;
use crate::with_pixel;
use crate::write::RasterSpec;
pub(crate) use shapes::PixelShapes;

/// What is asked of a rasterization.
#[derive(Clone, Debug)]
pub struct RasterizeOptions {
    /// The grid of the result.
    pub grid: RasterGrid,
    /// The type of its values.
    pub sample: SampleType,
    /// The value of pixels that no feature covers.
    pub init: f64,
    /// The nodata value of the result.
    pub nodata: Option<NoData>,
    /// Cover every pixel that is touched, not only those whose centre is covered.
    pub all_touched: bool,
    /// Count the features in place of their values.
    pub count: bool,
}

/// Features on their way into pixels.
pub struct Rasterize {
    shapes: PixelShapes,
    values: Vec<f64>,
    options: RasterizeOptions,
}

impl Rasterize {
    /// No features yet.
    ///
    /// # Errors
    /// If the grid has no area, or a value does not fit the type.
    pub fn new(options: RasterizeOptions) -> Result<Rasterize, RasterError> {
        let inverse = options.grid.transform.inverse();
        let inverse = inverse.ok_or_else(|| RasterError::invalid("the pixels of the grid have no area"))?;
        fits(options.sample, options.init)?;
        if let Some(nodata) = options.nodata {
            fits(options.sample, nodata.value)?;
        }
        let shapes = PixelShapes::new(inverse, options.grid.height);
        Ok(Rasterize { shapes, values: Vec::new(), options })
    }

    /// Adds a feature with its value; `systems` leads to the system of the grid. Whether it was added: one
    /// with a position that has no place there is not.
    ///
    /// # Errors
    /// If the value does not fit the type, or there are too many positions.
    pub fn add(&mut self, wkb: &[u8], value: f64, systems: Option<&Transform>) -> Result<bool, RasterError> {
        if !self.options.count {
            fits(self.options.sample, value)?;
        }
        let added = self.shapes.add(wkb, systems)?;
        if added {
            self.values.push(value);
        }
        Ok(added)
    }

    /// Whether a feature lies on the grid.
    #[must_use]
    pub fn touches_grid(&self) -> bool {
        self.shapes.touched(self.options.grid.width).is_some()
    }

    /// What the result is.
    #[must_use]
    pub fn spec(&self) -> RasterSpec {
        let options = &self.options;
        RasterSpec {
            grid: options.grid.clone(),
            is_placed: true,
            bands: 1,
            sample: options.sample,
            nodata: options.nodata,
            alpha: None,
            is_premultiplied: false,
            has_mask: false,
            band_info: Vec::new(),
            metadata: Vec::new(),
            palette: None,
            is_point: false,
            photometric: 1,
        }
    }

    fn paint_as<T: KernelNumber>(&self, window: PixelWindow) -> Painted {
        let width = window.width as usize;
        let init = T::from_f64(self.options.init);
        let mut values = vec![init; width * window.height as usize];
        let mut burnt = false;
        if self.options.count {
            let mut counts = vec![0u32; values.len()];
            let mut last = vec![u32::MAX; values.len()];
            self.shapes.fill(window, self.options.all_touched, |feature, row, columns| {
                burnt = true;
                let range = row * width + columns.start..row * width + columns.end;
                let (Some(counts), Some(last)) = (counts.get_mut(range.clone()), last.get_mut(range)) else {
                    return;
                };
                for (count, last) in counts.iter_mut().zip(last) {
                    if *last != feature {
                        (*last, *count) = (feature, *count + 1);
                    }
                }
            });
            for (value, count) in values.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
                *value = T::from_f64(f64::from(count));
            }
        } else {
            self.shapes.fill(window, self.options.all_touched, |feature, row, columns| {
                burnt = true;
                let value = self.values.get(feature as usize).copied().unwrap_or_default();
                let range = row * width + columns.start..row * width + columns.end;
                if let Some(run) = values.get_mut(range) {
                    run.fill(T::from_f64(value));
                }
            });
        }
        let empty = self.options.nodata.map_or(T::default(), |nodata| nodata.nearest());
        if !burnt && init.same(empty) {
            return Painted::Empty;
        }
        Painted::Values(Samples {
            width: window.width,
            height: window.height,
            bands: 1,
            data: T::wrap(values),
        })
    }
}

/// Refuses a value that a type would change.
fn fits(sample: SampleType, value: f64) -> Result<(), RasterError> {
    let kept = with_pixel!(sample, T => T::from_f64(value).to_f64());
    // A number of single precision is near enough.
    let near =
        kept == value || value.is_nan() && kept.is_nan() || sample == SampleType::F32 && kept.is_finite();
    if near {
        Ok(())
    } else {
        Err(RasterError::invalid(format!("{value} is no value of {sample}; choose another --type")))
    }
}

impl Painter for Rasterize {
    fn paint(&self, window: PixelWindow) -> Result<Painted, RasterError> {
        Ok(with_pixel!(self.options.sample, T => self.paint_as::<T>(window)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Affine;

    fn options(count: bool) -> RasterizeOptions {
        let transform = Affine([0.0, 1.0, 0.0, 4.0, 0.0, -1.0]);
        RasterizeOptions {
            grid: RasterGrid { width: 6, height: 4, transform, crs: None },
            sample: SampleType::U8,
            init: 0.0,
            nodata: None,
            all_touched: false,
            count,
        }
    }

    fn add(to: &mut Rasterize, text: &str, value: f64) {
        let mut wkb = Vec::new();
        tidegate_geo::wkt::read(text, &mut wkb).unwrap();
        assert!(to.add(&wkb, value, None).unwrap());
    }

    fn rows(of: &Rasterize, window: PixelWindow) -> Vec<Vec<u8>> {
        match of.paint(window).unwrap() {
            Painted::Values(samples) => {
                samples.band::<u8>(0).unwrap().chunks(window.width as usize).map(<[u8]>::to_vec).collect()
            }
            _ => vec![vec![0; window.width as usize]; window.height as usize],
        }
    }

    fn some(count: bool) -> Rasterize {
        let mut made = Rasterize::new(options(count)).unwrap();
        add(&mut made, "POLYGON ((0 0, 3 0, 3 4, 0 4, 0 0), (1 1, 2 1, 2 3, 1 3, 1 1))", 1.0);
        add(&mut made, "MULTIPOLYGON (((2 2, 6 2, 6 4, 2 4, 2 2)), ((5 0, 6 0, 6 1, 5 1, 5 0)))", 2.0);
        add(&mut made, "GEOMETRYCOLLECTION (POINT (5.5 0.5), LINESTRING (0.5 0.5, 5.5 0.5))", 7.0);
        add(&mut made, "POINT EMPTY", 9.0);
        made
    }

    #[test]
    fn the_last_feature_wins() {
        let made = some(false);
        let whole = PixelWindow::whole(6, 4);
        let wanted = [[1, 1, 2, 2, 2, 2], [1, 0, 2, 2, 2, 2], [1, 0, 1, 0, 0, 0], [7, 7, 7, 7, 7, 7]];
        assert_eq!(rows(&made, whole), wanted);
        // Windows of any size give the same pixels.
        for y in 0..4 {
            for x in 0..6 {
                assert_eq!(rows(&made, PixelWindow::new(x, y, 1, 1)), [[wanted[y as usize][x as usize]]]);
            }
        }
    }

    #[test]
    fn a_feature_counts_once_per_pixel() {
        let counted = rows(&some(true), PixelWindow::whole(6, 4));
        assert_eq!(counted, [[1, 1, 2, 1, 1, 1], [1, 0, 2, 1, 1, 1], [1, 0, 1, 0, 0, 0], [2, 2, 2, 1, 1, 2]]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut made = Rasterize::new(options(false)).unwrap();
        let mut wkb = Vec::new();
        tidegate_geo::wkt::read("POINT (1 1)", &mut wkb).unwrap();
        assert!(made.add(&wkb, 256.0, None).is_err());
        assert!(made.add(&wkb, 1.5, None).is_err());
        assert!(Rasterize::new(RasterizeOptions { init: -1.0, ..options(false) }).is_err());
        assert!(matches!(made.paint(PixelWindow::whole(6, 4)).unwrap(), Painted::Empty));
    }
}
