//! How wide the kernel is: the ratio of the resolutions, one number per axis for the whole result.
//!
//! GDAL 3.6 to 3.12 divides the width of the destination by that of its box in the source, and so the
//! height; a ratio whose reciprocal is within 0.05 of a whole number becomes that; below 0.95 on one axis
//! the kernel is widened on both axes that are below 1. GDAL does this for each chunk that fits into its
//! memory (64 MB), so that its result depends on `-wm`: a low, wide chunk of a turned picture has a much
//! larger box than its pixels cover, and is blurred more. Here the chunk is always the whole result, so that
//! neither tiles, threads nor memory change a pixel; it is what `gdalwarp` gives if one chunk holds all.
//! GDAL 3.13 samples the ratio on a lattice and widens only below 0.5; `--kernel-scale` sets the ratio by
//! hand, for either.

use super::mapping::PixelMapping;
use super::resampling::Resampling;

/// Pixels of the result per pixel of the source, along each axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelScale {
    /// Along columns of the source.
    pub x: f64,
    /// Along rows of the source.
    pub y: f64,
}

impl Default for KernelScale {
    fn default() -> KernelScale {
        KernelScale { x: 1.0, y: 1.0 }
    }
}

/// Below this the kernel is widened.
const WIDE: f64 = 0.95;
/// Points along each edge of the result.
const STEPS: usize = 21;

impl KernelScale {
    /// Whether the kernel is wider than usual.
    #[must_use]
    pub fn is_wide(self) -> bool {
        self.x < WIDE || self.y < WIDE
    }

    /// How many pixels of the source the kernel reaches along each axis.
    #[must_use]
    pub fn reach(self, method: Resampling) -> (i64, i64) {
        let reach = |scale: f64| {
            let radius = f64::from(method.radius());
            (if self.is_wide() && scale < 1.0 { (radius / scale).ceil() } else { radius }) as i64
        };
        (reach(self.x), reach(self.y))
    }

    /// The scale of a whole result of this size.
    #[must_use]
    pub fn of(mapping: &PixelMapping, size: (u32, u32), method: Resampling) -> KernelScale {
        let (width, height) = (f64::from(size.0), f64::from(size.1));
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for step in 0..STEPS {
            let ratio = step as f64 / (STEPS - 1) as f64;
            x.extend([ratio * width, ratio * width, 0.0, width]);
            y.extend([0.0, height, ratio * height, ratio * height]);
        }
        mapping.exact(&mut x, &mut y);
        if !x.iter().chain(&y).all(|n| n.is_finite()) {
            // The inside tells what the edge cannot.
            (x, y) = (Vec::new(), Vec::new());
            for row in 0..STEPS {
                for column in 0..STEPS {
                    x.push(column as f64 / (STEPS - 1) as f64 * width);
                    y.push(row as f64 / (STEPS - 1) as f64 * height);
                }
            }
            mapping.exact(&mut x, &mut y);
        }
        let axis = |all: &[f64], result: f64, source: u32| {
            let found = all.iter().filter(|n| n.is_finite());
            let (low, high) =
                found.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), n| (low.min(*n), high.max(*n)));
            axis_scale(rounded(low), rounded(high), result, source, method)
        };
        KernelScale { x: axis(&x, width, mapping.size.0), y: axis(&y, height, mapping.size.1) }
    }
}

/// A number that is all but whole.
fn rounded(number: f64) -> f64 {
    let whole = number.round();
    if (whole - number).abs() < 1e-6 { whole } else { number }
}

/// The scale along one axis, whose pixels come from `low` to `high` of the source.
fn axis_scale(low: f64, high: f64, result: f64, source: u32, method: Resampling) -> f64 {
    let len = f64::from(source);
    if !(low <= len && high >= 0.0 && high > low) {
        return 1.0;
    }
    let rough = (result / (high - low)).max(1e-3);
    let radius = f64::from(method.radius());
    let reach = if rough < WIDE { (radius / rough).ceil() } else { radius };
    let (first, last) = (low.max(0.0).floor(), high.ceil().min(len));
    let raw = (len - first).min(high - low).max(0.0);
    let window = if last - first > 0.9 * len {
        len
    } else {
        let start = (first - reach).clamp(0.0, len);
        (last - start + reach).min(len - start).max(0.0)
    };
    if raw <= 0.0 {
        return 1.0;
    }
    let mut scale = result / raw;
    if window >= result && window <= result + (window - raw) {
        scale = 1.0;
    }
    if scale < 1.0 {
        let times = (1.0 / scale + 0.5).floor();
        if (1.0 / scale - times).abs() < 0.05 {
            scale = 1.0 / times;
        }
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_follow_the_rules_of_gdal() {
        let cubic = Resampling::Cubic;
        // As many pixels as the source.
        assert_eq!(axis_scale(0.0, 100.0, 100.0, 100, cubic), 1.0);
        // Half, and nearly half.
        assert_eq!(axis_scale(0.0, 100.0, 50.0, 100, cubic), 0.5);
        assert_eq!(axis_scale(0.0, 100.0, 49.5, 100, cubic), 0.5);
        assert_eq!(axis_scale(0.0, 100.0, 80.0, 100, cubic), 0.8);
        // Finer.
        assert_eq!(axis_scale(0.0, 100.0, 200.0, 100, cubic), 2.0);
        // Beyond the source.
        assert_eq!(axis_scale(200.0, 300.0, 200.0, 100, cubic), 1.0);
        let wide = KernelScale { x: 1.2, y: 0.4 };
        assert!(wide.is_wide());
        assert_eq!(wide.reach(cubic), (2, 5));
        assert_eq!(KernelScale { x: 0.96, y: 1.0 }.reach(cubic), (2, 2));
    }
}
