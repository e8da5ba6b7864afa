//! Where pixels lie: a size, an affine transform and a coordinate system.

use tidegate_geo::{Bounds, Crs};

use crate::error::RasterError;

/// From column and row to x and y: origin x, x per column, x per row, origin y, y per column, y per
/// row. Columns and rows count corners of pixels; the middle of the first is 0.5, 0.5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine(pub [f64; 6]);

impl Affine {
    /// The place of a column and a row.
    #[must_use]
    #[inline]
    pub fn apply(&self, column: f64, row: f64) -> (f64, f64) {
        let [x0, xc, xr, y0, yc, yr] = self.0;
        (x0 + column * xc + row * xr, y0 + column * yc + row * yr)
    }

    /// From x and y to column and row; nothing if pixels have no area.
    #[must_use]
    pub fn inverse(&self) -> Option<Affine> {
        let [x0, xc, xr, y0, yc, yr] = self.0;
        if self.is_upright() {
            // With the roundings of GDAL, which decide what lies on a border.
            let found = [-x0 / xc, 1.0 / xc, 0.0, -y0 / yr, 0.0, 1.0 / yr];
            return found.iter().all(|n| n.is_finite()).then_some(Affine(found));
        }
        let det = xc * yr - xr * yc;
        let (a, b, d, e) = (yr / det, -xr / det, -yc / det, xc / det);
        let found = [-(a * x0 + b * y0), a, b, -(d * x0 + e * y0), d, e];
        (det != 0.0 && found.iter().all(|n| n.is_finite())).then_some(Affine(found))
    }

    /// Whether rows run along y and columns along x, without rotation.
    #[must_use]
    pub fn is_upright(&self) -> bool {
        self.0[2] == 0.0 && self.0[4] == 0.0
    }

    /// The same for a picture that begins at this column and row, with pixels this many times as large.
    #[must_use]
    pub fn shifted(&self, column: f64, row: f64, scale_x: f64, scale_y: f64) -> Affine {
        let (x, y) = self.apply(column, row);
        let [_, xc, xr, _, yc, yr] = self.0;
        Affine([x, xc * scale_x, xr * scale_y, y, yc * scale_x, yr * scale_y])
    }
}

/// A part of a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PixelWindow {
    /// The first column.
    pub x: u32,
    /// The first row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl PixelWindow {
    /// A window.
    #[must_use]
    pub fn new(x: u32, y: u32, width: u32, height: u32) -> PixelWindow {
        PixelWindow { x, y, width, height }
    }

    /// The whole of a picture.
    #[must_use]
    pub fn whole(width: u32, height: u32) -> PixelWindow {
        PixelWindow { x: 0, y: 0, width, height }
    }

    /// The column behind the last.
    #[must_use]
    pub fn right(&self) -> u32 {
        self.x.saturating_add(self.width)
    }

    /// The row behind the last.
    #[must_use]
    pub fn bottom(&self) -> u32 {
        self.y.saturating_add(self.height)
    }

    /// How many pixels it has.
    #[must_use]
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Whether it has no pixels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// What both hold; nothing if they share no pixel.
    #[must_use]
    pub fn intersection(&self, other: &PixelWindow) -> Option<PixelWindow> {
        let (x, y) = (self.x.max(other.x), self.y.max(other.y));
        let (right, bottom) = (self.right().min(other.right()), self.bottom().min(other.bottom()));
        (x < right && y < bottom).then(|| PixelWindow { x, y, width: right - x, height: bottom - y })
    }

    /// Whether all of `other` lies in it.
    #[must_use]
    pub fn contains(&self, other: &PixelWindow) -> bool {
        self.intersection(other) == Some(*other)
    }
}

/// The pixels of a raster on the ground.
#[derive(Clone, Debug, PartialEq)]
pub struct RasterGrid {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// From column and row to x and y.
    pub transform: Affine,
    /// The system of x and y.
    pub crs: Option<Crs>,
}

impl RasterGrid {
    /// A grid that covers a box with pixels of this size: as many as the box has, rounded, and at
    /// least one. The north-western corner stays where it is.
    ///
    /// # Errors
    /// If the box or the pixel has no size, or there are too many pixels.
    pub fn of_box(bounds: Bounds, pixel: (f64, f64), crs: Option<Crs>) -> Result<RasterGrid, RasterError> {
        let Bounds { min_x, min_y, max_x, max_y } = bounds;
        let count = |from: f64, to: f64, size: f64| {
            let count = ((to - from) / size + 0.5).floor().max(1.0);
            let good = size > 0.0 && to > from && count.is_finite() && count <= f64::from(i32::MAX);
            good.then_some(count as u32)
        };
        let (Some(width), Some(height)) = (count(min_x, max_x, pixel.0), count(min_y, max_y, pixel.1)) else {
            return Err(RasterError::invalid(format!(
                "a box from {min_x} {min_y} to {max_x} {max_y} cannot have pixels of {} by {}",
                pixel.0, pixel.1
            )));
        };
        let transform = Affine([min_x, pixel.0, 0.0, max_y, 0.0, -pixel.1]);
        Ok(RasterGrid { width, height, transform, crs })
    }

    /// The smallest grid around a box whose corners are whole multiples of the pixel size.
    ///
    /// # Errors
    /// As [`RasterGrid::of_box`].
    pub fn of_box_aligned(
        bounds: Bounds,
        pixel: (f64, f64),
        crs: Option<Crs>,
    ) -> Result<RasterGrid, RasterError> {
        let low = |x: f64, size: f64| (x / size + 1e-9).floor() * size;
        let high = |x: f64, size: f64| (x / size - 1e-9).ceil() * size;
        let aligned = Bounds {
            min_x: low(bounds.min_x, pixel.0),
            min_y: low(bounds.min_y, pixel.1),
            max_x: high(bounds.max_x, pixel.0),
            max_y: high(bounds.max_y, pixel.1),
        };
        RasterGrid::of_box(aligned, pixel, crs)
    }

    /// The box around its pixels.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        let (width, height) = (f64::from(self.width), f64::from(self.height));
        let mut found: Option<Bounds> = None;
        for (column, row) in [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height)] {
            let (x, y) = self.transform.apply(column, row);
            found.get_or_insert(Bounds { min_x: x, min_y: y, max_x: x, max_y: y }).extend(x, y);
        }
        found.filter(|b| [b.min_x, b.max_x, b.min_y, b.max_y].iter().all(|n| n.is_finite()))
    }

    /// The size of a pixel along its columns and its rows.
    #[must_use]
    pub fn pixel_size(&self) -> (f64, f64) {
        let [_, xc, xr, _, yc, yr] = self.transform.0;
        (xc.hypot(yc), xr.hypot(yr))
    }

    /// All of it.
    #[must_use]
    pub fn window(&self) -> PixelWindow {
        PixelWindow::whole(self.width, self.height)
    }

    /// The grid of a part of it.
    #[must_use]
    pub fn part(&self, window: PixelWindow) -> RasterGrid {
        let transform = self.transform.shifted(f64::from(window.x), f64::from(window.y), 1.0, 1.0);
        RasterGrid { width: window.width, height: window.height, transform, crs: self.crs.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_becomes_a_grid() {
        let bounds = Bounds { min_x: 3.0, min_y: 4.0, max_x: 103.0, max_y: 54.4 };
        let grid = RasterGrid::of_box(bounds, (10.0, 10.0), None).unwrap();
        assert_eq!((grid.width, grid.height), (10, 5));
        assert_eq!(grid.transform.0, [3.0, 10.0, 0.0, 54.4, 0.0, -10.0]);
        let grid = RasterGrid::of_box_aligned(bounds, (10.0, 10.0), None).unwrap();
        assert_eq!((grid.width, grid.height), (11, 6));
        assert_eq!(grid.bounds().unwrap(), Bounds { min_x: 0.0, min_y: 0.0, max_x: 110.0, max_y: 60.0 });
        for pixel in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1e-30, 1.0)] {
            assert!(RasterGrid::of_box(bounds, pixel, None).is_err());
        }
    }

    #[test]
    fn the_inverse_leads_to_where_it_began() {
        let affine = Affine([100.0, 2.0, 0.5, 200.0, -0.25, -3.0]);
        let inverse = affine.inverse().unwrap();
        let (x, y) = affine.apply(7.0, 9.0);
        let (column, row) = inverse.apply(x, y);
        assert!((column - 7.0).abs() < 1e-9 && (row - 9.0).abs() < 1e-9);
        assert_eq!(Affine([0.0; 6]).inverse(), None);
        assert_eq!(affine.shifted(7.0, 9.0, 1.0, 1.0).apply(0.0, 0.0), (x, y));
    }

    #[test]
    fn windows_intersect() {
        let all = PixelWindow::whole(10, 10);
        assert_eq!(all.intersection(&PixelWindow::new(8, 9, 10, 10)), Some(PixelWindow::new(8, 9, 2, 1)));
        assert_eq!(all.intersection(&PixelWindow::new(10, 0, 1, 1)), None);
        assert!(all.contains(&PixelWindow::new(9, 9, 1, 1)));
    }
}
