//! A sample of the geometries of a layer, to draw it.
//!
//! Every n-th geometry is kept. When there are too many, every second one is dropped and n doubles.
//! So the sample is spread over the whole file, bounded in size and deterministic.

use tidegate_geo::crs::Transform;
use tidegate_geo::wkb::{Cursor, Event, Shape};
use tidegate_geo::{Bounds, Crs};

const BYTES_MAX: usize = 4 << 20;
const COUNT_MAX: usize = 20_000;

/// A sample of geometries.
#[derive(Debug)]
pub(crate) struct LayerSample {
    kept: Vec<Vec<u8>>,
    /// The size of the kept geometries, in bytes.
    bytes: usize,
    /// Every n-th geometry is kept; n.
    every: u64,
    /// The number of geometries offered.
    seen: u64,
}

/// A sequence of positions to draw; a single position is a dot.
pub(crate) type Polyline = Vec<(f64, f64)>;

impl Default for LayerSample {
    fn default() -> LayerSample {
        LayerSample { kept: Vec::new(), bytes: 0, every: 1, seen: 0 }
    }
}

impl LayerSample {
    /// Offers the next geometry to the sample.
    pub(crate) fn add(&mut self, wkb: &[u8]) {
        if self.seen.is_multiple_of(self.every) && wkb.len() <= BYTES_MAX / 4 {
            self.bytes += wkb.len();
            self.kept.push(wkb.to_vec());
            while self.bytes > BYTES_MAX || self.kept.len() > COUNT_MAX {
                let mut keep = false;
                self.kept.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.bytes = self.kept.iter().map(Vec::len).sum();
                self.every *= 2;
            }
        }
        self.seen += 1;
    }

    /// Transforms the sample to longitude and latitude; false if that is impossible.
    pub(crate) fn bring_to_wgs84(&mut self, crs: Option<&Crs>) -> bool {
        let Some(crs) = crs else { return false };
        if crs.is_wgs84() {
            return true;
        }
        let Ok(transform) = Transform::new(crs, &Crs::wgs84()) else { return false };
        self.kept.retain_mut(|wkb| transform.geometry(wkb).is_ok());
        true
    }

    /// The lines and dots of the sample.
    pub(crate) fn lines(&self) -> Vec<Polyline> {
        let mut lines = Vec::new();
        for wkb in &self.kept {
            let mut cursor = Cursor::default();
            let mut is_point = false;
            while let Ok(Some(event)) = cursor.next(wkb) {
                match event {
                    Event::Begin { shape, .. } => is_point = shape == Shape::Point,
                    Event::Coords(run) => {
                        let line: Polyline =
                            run.xy(wkb).filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
                        if !line.is_empty() && (is_point || line.len() > 1) {
                            lines.push(line);
                        }
                    }
                    Event::End(_) => {}
                }
            }
        }
        lines
    }

    /// The bounding box of the sample.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.kept.iter().filter_map(|wkb| Bounds::of_wkb(wkb)).reduce(Bounds::union)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_bounded_and_spread() {
        let mut sample = LayerSample::default();
        for i in 0..100_000u32 {
            let mut wkb = Vec::new();
            tidegate_geo::wkb::write::point(&mut wkb, &[f64::from(i), 0.0]);
            sample.add(&wkb);
        }
        assert!(sample.kept.len() <= COUNT_MAX && sample.kept.len() > COUNT_MAX / 4, "{}", sample.kept.len());
        let last = sample.lines().last().unwrap()[0].0;
        assert!(last > 99_000.0, "{last}");
        assert_eq!(sample.lines()[0], [(0.0, 0.0)]);
    }
}
