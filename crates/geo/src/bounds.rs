//! The smallest upright rectangle around a geometry.

use crate::wkb::{Cursor, Event};

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
        self.min_x = self.min_x.min(x);
        self.min_y = self.min_y.min(y);
        self.max_x = self.max_x.max(x);
        self.max_y = self.max_y.max(y);
    }

    /// The bounds of both.
    #[must_use]
    pub fn union(self, other: Bounds) -> Bounds {
        Bounds {
            min_x: self.min_x.min(other.min_x),
            min_y: self.min_y.min(other.min_y),
            max_x: self.max_x.max(other.max_x),
            max_y: self.max_y.max(other.max_y),
        }
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
