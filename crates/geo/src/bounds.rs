//! The smallest upright rectangle around a geometry.

use crate::wkb::{Cursor, Event, Run};

/// Smallest and largest coordinates; never holds a NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// West or left.
    pub min_x: f64,
    /// South or bottom.
    pub min_y: f64,
    /// East or right.
    pub max_x: f64,
    /// North or top.
    pub max_y: f64,
}

impl Bounds {
    const NONE: Bounds = Bounds {
        min_x: f64::INFINITY,
        min_y: f64::INFINITY,
        max_x: f64::NEG_INFINITY,
        max_y: f64::NEG_INFINITY,
    };

    /// The bounds of canonical well-known binary; `None` if it has no coordinates. NaN
    /// coordinates do not count.
    #[must_use]
    pub fn of_wkb(wkb: &[u8]) -> Option<Bounds> {
        let mut bounds = Bounds::NONE;
        if let Some(run) = Run::only(wkb) {
            run.xy(wkb).for_each(|(x, y)| bounds.extend(x, y));
            return bounds.some();
        }
        let mut cursor = Cursor::default();
        while let Ok(Some(event)) = cursor.next(wkb) {
            if let Event::Coords(run) = event {
                for (x, y) in run.xy(wkb) {
                    bounds.extend(x, y);
                }
            }
        }
        bounds.some()
    }

    /// Grows to hold a point.
    #[inline]
    pub fn extend(&mut self, x: f64, y: f64) {
        // A comparison with a NaN is false, so it does not count. `f64::min` takes care of a NaN on
        // either side, which is three times the work, and this is done for every position.
        self.min_x = if x < self.min_x { x } else { self.min_x };
        self.min_y = if y < self.min_y { y } else { self.min_y };
        self.max_x = if x > self.max_x { x } else { self.max_x };
        self.max_y = if y > self.max_y { y } else { self.max_y };
    }

    /// The bounds of both.
    #[must_use]
    pub fn union(mut self, other: Bounds) -> Bounds {
        self.extend(other.min_x, other.min_y);
        self.extend(other.max_x, other.max_y);
        self
    }

    /// Whether the two share a point.
    #[must_use]
    pub fn meets(self, other: Bounds) -> bool {
        self.min_x <= other.max_x
            && other.min_x <= self.max_x
            && self.min_y <= other.max_y
            && other.min_y <= self.max_y
    }

    fn some(self) -> Option<Bounds> {
        (self.min_x <= self.max_x && self.min_y <= self.max_y).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_every_position_and_no_nan() {
        for (text, bounds) in [
            ("POINT (1 2)", Some([1.0, 2.0, 1.0, 2.0])),
            ("POINT EMPTY", None),
            ("LINESTRING (3 -1, 1 2)", Some([1.0, -1.0, 3.0, 2.0])),
            ("LINESTRING EMPTY", None),
            ("LINESTRING Z (3 -1 9, 1 2 9)", Some([1.0, -1.0, 3.0, 2.0])),
            ("POLYGON ((0 0, 4 0, 4 3, 0 0))", Some([0.0, 0.0, 4.0, 3.0])),
            ("POLYGON ((0 0, 4 0, 4 3, 0 0), (1 1, 2 1, 2 2, 1 1))", Some([0.0, 0.0, 4.0, 3.0])),
            ("GEOMETRYCOLLECTION (POINT EMPTY, MULTIPOINT ((7 8), (-7 -8)))", Some([-7.0, -8.0, 7.0, 8.0])),
        ] {
            let mut wkb = Vec::new();
            crate::wkt::read(text, &mut wkb).unwrap();
            let found = Bounds::of_wkb(&wkb).map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]);
            assert_eq!(found, bounds, "{text}");
        }
        let mut wkb = Vec::new();
        crate::wkb::write::point(&mut wkb, &[f64::NAN, 1.0]);
        assert_eq!(Bounds::of_wkb(&wkb), None);
        assert_eq!(Bounds::of_wkb(&[1, 3, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]), None, "cut off");
    }
}
