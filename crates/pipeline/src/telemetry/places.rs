//! The coordinates of records, for a map: all up to a bound, then an ever smaller sample.

use crate::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_geo::Bounds;

/// The most coordinates kept of each kind.
const PLACES_MAX: usize = 20_000;

/// The outcome of a record on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// A record that was committed.
    Committed,
    /// A record without a match.
    NoMatch,
    /// A record that was rejected.
    Dead,
}

/// The coordinates of a run, in degrees. Nothing is kept unless a map is wanted.
#[derive(Debug, Default)]
pub struct Places {
    wanted: AtomicBool,
    extent_wanted: AtomicBool,
    /// The bounds of the committed records, in the coordinate reference system of the sink.
    extent: Mutex<Option<Bounds>>,
    kinds: [Mutex<Thin>; 3],
}

#[derive(Debug, Default)]
struct Thin {
    /// The number of coordinates offered.
    seen: u64,
    /// Every 2^n-th coordinate is kept; n.
    every: u32,
    places: Vec<(f64, f64)>,
}

impl Places {
    /// Starts to keep coordinates, because a map will be drawn.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether coordinates are kept.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Starts to keep the extent, because a result will state it.
    pub fn want_extent(&self) {
        self.extent_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether the extent is kept.
    #[must_use]
    pub fn extent_wanted(&self) -> bool {
        self.extent_wanted.load(Ordering::Relaxed)
    }

    /// Adds the bounds of committed records to the extent.
    pub fn extend(&self, bounds: Bounds) {
        let mut extent = lock(&self.extent);
        *extent = Some(extent.map_or(bounds, |known| known.union(bounds)));
    }

    /// The bounds of the records that were committed since the extent was wanted, in the coordinate
    /// reference system of the sink.
    #[must_use]
    pub fn extent(&self) -> Option<Bounds> {
        *lock(&self.extent)
    }

    /// Adds the coordinates of a record.
    pub fn add(&self, mark: PlaceKind, (lon, lat): (f64, f64)) {
        let on_the_globe = lon.abs() <= 180.0 && lat.abs() <= 90.0;
        if !self.wanted() || !on_the_globe {
            return;
        }
        let mut thin = lock(&self.kinds[mark as usize]);
        thin.seen += 1;
        if !thin.seen.is_multiple_of(1 << thin.every) {
            return;
        }
        if thin.places.len() >= PLACES_MAX {
            let mut keep = false;
            thin.places.retain(|_| {
                keep = !keep;
                keep
            });
            thin.every += 1;
        }
        thin.places.push((lon, lat));
    }

    /// The coordinates of this kind, and the number of records.
    #[must_use]
    pub fn of(&self, mark: PlaceKind) -> (Vec<(f64, f64)>, u64) {
        let thin = lock(&self.kinds[mark as usize]);
        (thin.places.clone(), thin.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_places_take_the_room_of_few() {
        let places = Places::default();
        places.add(PlaceKind::Dead, (1.0, 2.0));
        assert_eq!(places.of(PlaceKind::Dead), (vec![], 0), "nobody wants a map");
        places.want();
        places.add(PlaceKind::Dead, (1.0, 2.0));
        places.add(PlaceKind::Dead, (f64::NAN, 2.0));
        places.add(PlaceKind::Dead, (181.0, 2.0));
        assert_eq!(places.of(PlaceKind::Dead), (vec![(1.0, 2.0)], 1));
        for i in 0..1_000_000 {
            places.add(PlaceKind::Committed, (f64::from(i % 360) - 180.0, 0.0));
        }
        let (kept, seen) = places.of(PlaceKind::Committed);
        assert!((PLACES_MAX / 2..=PLACES_MAX).contains(&kept.len()), "{}", kept.len());
        assert_eq!(seen, 1_000_000);
    }
}
