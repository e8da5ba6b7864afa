//! The grid of the result, chosen as gdalwarp chooses it.
//!
//! The outline of the source is transformed at points along its edges (one per 50 pixels, from 20 to 100
//! per edge; a lattice over the whole source if one of them has no place or does not come home again). The box
//! around them is the extent. The diagonal of the result has as many pixels as that of the source, pixels
//! are square, and width and height are rounded to whole pixels from the upper left corner.

use tidegate_geo::Crs;
use tidegate_geo::crs::Transform;

use super::mapping::apply;
use crate::error::RasterError;
use crate::grid::{Affine, RasterGrid};

/// From pixels of the source to the system of the result, and home again. What has no place becomes NaN.
pub(crate) trait Outline {
    /// From pixels of the source to the system of the result.
    fn there(&self, x: &mut [f64], y: &mut [f64]);
    /// From the system of the result to pixels of the source.
    fn home(&self, x: &mut [f64], y: &mut [f64]);
}

/// The outline of a source with a place.
pub(super) struct SourceOutline<'a> {
    /// From its pixels to its system, and back.
    pub(super) transform: Affine,
    pub(super) inverse: Affine,
    /// From its system to that of the result, and back, if they differ.
    pub(super) there: Option<&'a Transform>,
    pub(super) home: Option<&'a Transform>,
}

impl Outline for SourceOutline<'_> {
    fn there(&self, x: &mut [f64], y: &mut [f64]) {
        apply(&self.transform, x, y);
        if let Some(there) = self.there {
            there.positions(x, y);
        }
    }

    fn home(&self, x: &mut [f64], y: &mut [f64]) {
        if let Some(home) = self.home {
            home.positions(x, y);
        }
        apply(&self.inverse, x, y);
    }
}

/// A box: smallest x and y, largest x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PlaneBox {
    pub(crate) min: (f64, f64),
    pub(crate) max: (f64, f64),
}

impl PlaneBox {
    fn add(this: &mut Option<PlaneBox>, x: f64, y: f64) {
        let e = this.get_or_insert(PlaneBox { min: (x, y), max: (x, y) });
        e.min = (e.min.0.min(x), e.min.1.min(y));
        e.max = (e.max.0.max(x), e.max.1.max(y));
    }
}

/// What the source suggests: extent and size of a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Suggestion {
    pub(crate) extent: PlaneBox,
    pub(crate) resolution: (f64, f64),
}

impl Suggestion {
    /// A grid that stays as it is.
    pub(crate) fn of_grid(min: (f64, f64), max: (f64, f64), resolution: (f64, f64)) -> Suggestion {
        Suggestion { extent: PlaneBox { min, max }, resolution }
    }
}

/// The suggestion for a source of this size; nothing if hardly any point of it has a place. `degrees` tells
/// that the result is in longitude and latitude and the source is not.
pub(crate) fn suggest(outline: &impl Outline, size: (u32, u32), degrees: bool) -> Option<Suggestion> {
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let steps = ((width.min(height) / 50.0 + 0.5) as usize).clamp(20, 100);
    let ratio = |step: usize| if step == steps { 1.0 } else { step as f64 * (1.0 / steps as f64) };
    // Top, bottom, left and right edge.
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for edge in 0..4 {
        for step in 0..=steps {
            let along = ratio(step);
            let (px, py) = match edge {
                0 => (along * width, 0.0),
                1 => (along * width, height),
                2 => (0.0, along * height),
                _ => (width, along * height),
            };
            x.push(px);
            y.push(py);
        }
    }
    let (mut to_x, mut to_y) = (x.clone(), y.clone());
    outline.there(&mut to_x, &mut to_y);
    let whole = |x: &[f64], y: &[f64]| x.iter().chain(y).all(|number| number.is_finite());
    let mut rows = vec![0.0, height];
    if !whole(&to_x, &to_y) || !comes_home(outline, (&x, &y), (&to_x, &to_y), size, steps) {
        (x, y) = (Vec::new(), Vec::new());
        rows = (0..=steps).map(|step| ratio(step) * height).collect();
        for row in &rows {
            x.extend((0..=steps).map(|step| ratio(step) * width));
            y.extend(std::iter::repeat_n(*row, steps + 1));
        }
        (to_x, to_y) = (x.clone(), y.clone());
        outline.there(&mut to_x, &mut to_y);
    }
    let mut found = None;
    let mut failed = 0;
    for (x, y) in to_x.iter().zip(&to_y) {
        if x.is_finite() && y.is_finite() {
            PlaneBox::add(&mut found, *x, *y);
        } else {
            failed += 1;
        }
    }
    if failed + 10 > to_x.len() {
        return None;
    }
    for (row, run) in rows.iter().zip(to_x.chunks(steps + 1)) {
        search_breaks(outline, *row, width, run, &mut found);
    }
    let extent = found?;
    let (first, last) = ((to_x.first()?, to_y.first()?), (to_x.last()?, to_y.last()?));
    let mut across = (last.0 - first.0, last.1 - first.1);
    if !(across.0.is_finite() && across.1.is_finite()) || across.0 == 0.0 || across.1 == 0.0 {
        across = (extent.max.0 - extent.min.0, extent.max.1 - extent.min.1);
    }
    let pixel = (across.0 * across.0 + across.1 * across.1).sqrt() / (width * width + height * height).sqrt();
    settle(extent, pixel, degrees)
}

/// Rounds the extent to whole pixels.
fn settle(mut extent: PlaneBox, pixel: f64, degrees: bool) -> Option<Suggestion> {
    let count = |length: f64| (length / pixel + 0.5).floor();
    let columns = count(extent.max.0 - extent.min.0);
    let rows = count(extent.max.1 - extent.min.1);
    if !(pixel > 0.0 && columns >= 1.0 && rows >= 1.0 && columns < 2e9 && rows < 2e9) {
        return None;
    }
    let mut resolution = (pixel, pixel);
    let east = extent.min.0 + columns * pixel;
    if degrees && ((extent.max.0 <= 180.0 && east > 180.0) || extent.max.0 == 180.0) {
        extent.max.0 = 180.0;
        resolution.0 = (extent.max.0 - extent.min.0) / columns;
    } else {
        extent.max.0 = east;
    }
    let south = extent.max.1 - rows * pixel;
    if degrees && extent.min.1 >= -90.0 && south < -90.0 {
        extent.min.1 = -90.0;
        resolution.1 = (extent.max.1 - extent.min.1) / rows;
    } else {
        extent.min.1 = south;
    }
    Some(Suggestion { extent, resolution })
}

/// Whether the points on the edges come home to within a step.
fn comes_home(
    outline: &impl Outline,
    (x, y): (&[f64], &[f64]),
    (to_x, to_y): (&[f64], &[f64]),
    size: (u32, u32),
    steps: usize,
) -> bool {
    let (mut home_x, mut home_y) = (to_x.to_vec(), to_y.to_vec());
    outline.home(&mut home_x, &mut home_y);
    let (step_x, step_y) = (f64::from(size.0) / steps as f64, f64::from(size.1) / steps as f64);
    let near = |a: &[f64], b: &[f64], step: f64| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= step);
    near(x, &home_x, step_x) && near(y, &home_y, step_y)
}

/// Where x changes its sign between two points of a row, or one of them has no place, the break is searched
/// by halving, and the points on the way count.
fn search_breaks(outline: &impl Outline, row: f64, width: f64, run: &[f64], found: &mut Option<PlaneBox>) {
    let steps = run.len().saturating_sub(1).max(1) as f64;
    for (i, pair) in run.windows(2).enumerate() {
        let [mut out_before, mut out_after] = *pair else { continue };
        let (mut before, mut after) = (i as f64 * width / steps, (i + 1) as f64 * width / steps);
        if !out_before.is_finite() && !out_after.is_finite() {
            continue;
        }
        for _ in 0..16 {
            let broken = !out_before.is_finite() || !out_after.is_finite();
            if !broken && out_before * out_after >= 0.0 {
                break;
            }
            let middle = (before + after) / 2.0;
            let (mut x, mut y) = ([middle], [row]);
            outline.there(&mut x, &mut y);
            let ([x], [y]) = (x, y);
            if x.is_finite() && y.is_finite() {
                PlaneBox::add(found, x, y);
                if !out_before.is_finite() || out_before * x < 0.0 {
                    (after, out_after) = (middle, x);
                } else {
                    (before, out_before) = (middle, x);
                }
            } else if !out_before.is_finite() {
                before = middle;
            } else if !out_after.is_finite() {
                after = middle;
            } else {
                break;
            }
        }
    }
}

/// What a person may ask of the grid of the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GridRequest {
    /// Width and height of a pixel, in the unit of the result.
    pub resolution: Option<(f64, f64)>,
    /// Smallest x, smallest y, largest x, largest y.
    pub extent: Option<[f64; 4]>,
    /// Columns and rows; one of them may be 0 and follows from the other.
    pub size: Option<(u32, u32)>,
    /// Put the edges on multiples of the resolution.
    pub aligned: bool,
}

impl GridRequest {
    /// Whether the source must be asked, because not everything is given.
    pub(crate) fn needs_suggestion(&self) -> bool {
        self.extent.is_none()
            || (self.resolution.is_none() && self.size.is_none_or(|(w, h)| w == 0 || h == 0))
    }

    /// Transform, width and height of the grid, by the rules of gdalwarp.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn grid(
        &self,
        suggested: Option<Suggestion>,
        crs: Option<Crs>,
    ) -> Result<RasterGrid, RasterError> {
        let invalid = |why: &str| Err(RasterError::invalid(why));
        let missing = || {
            RasterError::invalid("the source has no place in the coordinate reference system of the result")
        };
        let [mut min_x, mut min_y, mut max_x, mut max_y] = match self.extent {
            Some(extent) => extent,
            None => {
                let e = suggested.ok_or_else(missing)?.extent;
                [e.min.0, e.min.1, e.max.0, e.max.1]
            }
        };
        if !(min_x < max_x && min_y < max_y && [min_x, min_y, max_x, max_y].iter().all(|n| n.is_finite())) {
            return invalid(&format!("the extent {min_x} {min_y} {max_x} {max_y} is empty"));
        }
        let whole = |length: f64, pixel: f64| (length / pixel).round().max(1.0);
        let (columns, rows, resolution) = match (self.resolution, self.size) {
            (Some(_), Some(_)) => return invalid("give the resolution or the size, not both"),
            (Some((x, y)), None) => {
                if !(x > 0.0 && y > 0.0 && x.is_finite() && y.is_finite()) {
                    return invalid("the resolution must be greater than 0");
                }
                if self.aligned {
                    const SLACK: f64 = 1e-8;
                    min_x = (min_x / x + SLACK).floor() * x;
                    max_x = (max_x / x - SLACK).ceil() * x;
                    min_y = (min_y / y + SLACK).floor() * y;
                    max_y = (max_y / y - SLACK).ceil() * y;
                }
                (whole(max_x - min_x, x), whole(max_y - min_y, y), (x, y))
            }
            (None, Some((0, 0))) => return invalid("the size must not be 0 0"),
            (None, Some((width, height))) => {
                let (w, h) = (max_x - min_x, max_y - min_y);
                match (f64::from(width), f64::from(height)) {
                    (0.0, rows) => (whole(w, h / rows), rows, (h / rows, h / rows)),
                    (columns, 0.0) => (columns, whole(h, w / columns), (w / columns, w / columns)),
                    (columns, rows) => (columns, rows, (w / columns, h / rows)),
                }
            }
            (None, None) => {
                let (x, y) = suggested.ok_or_else(missing)?.resolution;
                let (columns, rows) = (whole(max_x - min_x, x), whole(max_y - min_y, y));
                if self.extent.is_some() {
                    (columns, rows, ((max_x - min_x) / columns, (max_y - min_y) / rows))
                } else {
                    (columns, rows, (x, y))
                }
            }
        };
        if self.aligned && self.resolution.is_none() {
            return invalid("aligned pixels need a resolution");
        }
        let most = f64::from(i32::MAX);
        if columns > most || rows > most || columns * rows > (1u64 << 36) as f64 {
            return Err(RasterError::too_large(format!(
                "the result would have {columns} x {rows} pixels, more than 2^36"
            )));
        }
        let transform = Affine([min_x, resolution.0, 0.0, max_y, 0.0, -resolution.1]);
        Ok(RasterGrid { width: columns as u32, height: rows as u32, transform, crs })
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::apply;
    use super::*;

    /// A source whose pixels are the units of the result, moved.
    struct Moved;

    impl Outline for Moved {
        fn there(&self, x: &mut [f64], y: &mut [f64]) {
            apply(&Affine([500.0, 10.0, 0.0, 900.0, 0.0, -10.0]), x, y);
        }
        fn home(&self, x: &mut [f64], y: &mut [f64]) {
            apply(&Affine([500.0, 10.0, 0.0, 900.0, 0.0, -10.0]).inverse().unwrap(), x, y);
        }
    }

    #[test]
    fn an_upright_source_keeps_its_grid() {
        let found = suggest(&Moved, (30, 20), false).unwrap();
        let RasterGrid { transform, width, height, .. } =
            GridRequest::default().grid(Some(found), None).unwrap();
        assert_eq!((width, height), (30, 20));
        let wanted = [500.0, 10.0, 0.0, 900.0, 0.0, -10.0];
        assert!(transform.0.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{transform:?}");
    }

    #[test]
    fn what_is_given_wins() {
        let found = suggest(&Moved, (30, 20), false);
        let asked = GridRequest { resolution: Some((7.0, 7.0)), aligned: true, ..GridRequest::default() };
        let RasterGrid { transform, width, height, .. } = asked.grid(found, None).unwrap();
        // From 497 to 805, and from 700 to 903.
        assert_eq!((transform.0[0], transform.0[3], width, height), (497.0, 903.0, 44, 29));
        let asked = GridRequest { size: Some((15, 0)), ..GridRequest::default() };
        let RasterGrid { transform, width, height, .. } = asked.grid(found, None).unwrap();
        assert_eq!((width, height), (15, 10));
        assert!((transform.0[1] - 20.0).abs() < 1e-9);
        let asked = GridRequest { extent: Some([500.0, 700.0, 605.0, 900.0]), ..GridRequest::default() };
        let RasterGrid { transform, width, height, .. } = asked.grid(found, None).unwrap();
        assert_eq!((width, height), (11, 20));
        assert!((transform.0[1] - 105.0 / 11.0).abs() < 1e-9);
        for asked in [
            GridRequest { resolution: Some((0.0, 1.0)), ..GridRequest::default() },
            GridRequest { extent: Some([5.0, 5.0, 5.0, 6.0]), ..GridRequest::default() },
            GridRequest { aligned: true, ..GridRequest::default() },
            GridRequest { resolution: Some((1e-4, 1e-4)), ..GridRequest::default() },
        ] {
            assert!(asked.grid(found, None).is_err(), "{asked:?}");
        }
    }
}
