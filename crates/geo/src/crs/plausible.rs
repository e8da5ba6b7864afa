//! Whether coordinates can be in the system that they are declared to be in.
//!
//! One position rarely shows a wrong declaration, but the bounding box of many does. The box is
//! transformed to WGS 84 and compared with:
//!
//! - **the globe**: latitudes beyond 91° and longitudes beyond 540.5° (data may count from 0° to 360° and
//!   continue over the antimeridian) are not degrees; projected coordinates are at most 400 million metres
//!   or feet from the origin;
//! - **the area of use** of a projected system: a box is a mismatch if its distance from the area is more
//!   than half the size of the area and more than 10°, or if it lies outside but would lie inside as
//!   degrees. A geographic system is defined everywhere, so its area counts only if the box lies inside
//!   with x and y swapped, and outside as it is;
//! - **the extent that the source declares**: it may be old or rough, so a box is a mismatch only if its
//!   distance is more than half the size of the extent and more than 1°, or if it lies inside with x and
//!   y swapped.
//!
//! Everything else passes: data may reach beyond an area of use, and a false alarm costs trust. One box is
//! checked per batch, and only if it extends what has passed, so single positions are not transformed.

use tidegate_core::Code;

use super::{Crs, Transform};
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::error::Problem;

/// Largest latitude, in degrees.
const LATITUDE_MAX: f64 = 91.0;
/// Largest longitude, in degrees.
const LONGITUDE_MAX: f64 = 540.5;
/// Largest projected coordinate: ten times the circumference of the earth in metres, because eastings may
/// have the number of a zone before them, and feet are shorter than metres.
const LENGTH_MAX: f64 = 4e8;
/// Smallest distance from the area of use that is a mismatch, in degrees.
const AREA_MARGIN: f64 = 10.0;
/// Smallest distance from the declared extent that is a mismatch, in degrees.
const EXTENT_MARGIN: f64 = 1.0;
/// Margin around an extent that decides between two readings of coordinates, in degrees and as a share of
/// its size: extents are rounded, or outdated.
const READING_MARGIN: f64 = 0.1;
/// Intervals along each side of a box, at whose ends positions are transformed to WGS 84.
const SAMPLES: u32 = 4;

/// Checks the bounding boxes of batches against the declared system. One for each layer or source.
pub struct Plausibility {
    crs: Crs,
    to_wgs84: Option<Transform>,
    geographic: bool,
    /// Area of use, in degrees.
    area: Option<Bounds>,
    /// Extent that the source declares, in degrees on WGS 84.
    declared: Option<Bounds>,
    /// Bounding box of all that has passed, in the system.
    seen: Option<Bounds>,
    /// How to accept the coordinates all the same, for the message.
    accept: &'static str,
}

impl Plausibility {
    /// For coordinates that are declared to be in this system. If it cannot be transformed, only the globe
    /// is checked.
    #[must_use]
    pub fn new(crs: &Crs) -> Plausibility {
        let entry = crs.entry();
        let plain = entry.as_ref().is_some_and(|entry| !entry.geocentric);
        Plausibility {
            to_wgs84: Transform::new(crs, &Crs::wgs84()).ok().filter(|_| plain),
            geographic: entry.as_ref().is_some_and(|entry| entry.geographic),
            area: entry.filter(|entry| !entry.geocentric).map(|entry| entry.area),
            crs: crs.clone(),
            declared: None,
            seen: None,
            accept: "--trust-crs accepts them",
        }
    }

    /// Also checks the extent that the source declares, in WGS 84 or in the system itself.
    #[must_use]
    pub fn with_extent(mut self, extent: Bounds, in_wgs84: bool) -> Plausibility {
        self.declared = if in_wgs84 { Some(extent) } else { self.placed(extent) };
        self
    }

    /// As [`Plausibility::with_extent`], for an extent in WGS 84 that becomes known later.
    pub fn expect(&mut self, extent: Bounds) {
        self.declared = Some(extent);
    }

    /// With another hint on how to accept the coordinates.
    #[must_use]
    pub fn accepted_by(mut self, words: &'static str) -> Plausibility {
        self.accept = words;
        self
    }

    /// The bounding box of all that has passed, in the system.
    #[must_use]
    pub fn seen(&self) -> Option<Bounds> {
        self.seen
    }

    /// Checks the bounding box of a batch.
    ///
    /// # Errors
    /// As [`Plausibility::see`].
    pub fn see_batch(&mut self, batch: &Batch) -> Result<(), Problem> {
        let all = (0..batch.len()).filter_map(|row| batch.bounds(row));
        all.reduce(Bounds::union).map_or(Ok(()), |found| self.see(found))
    }

    /// Checks a bounding box in the system.
    ///
    /// # Errors
    /// `CRS_MISMATCH` with the box and what was expected.
    pub fn see(&mut self, found: Bounds) -> Result<(), Problem> {
        let all = self.seen.map_or(found, |seen| seen.union(found));
        if self.seen != Some(all) {
            self.globe(found)?;
            if let Some(placed) = self.placed(found) {
                self.area(found, placed)?;
                self.extent(found, placed)?;
            }
        }
        self.seen = Some(all);
        Ok(())
    }

    /// Whether a box can lie in an extent in WGS 84, and all of it: of two readings of the same numbers, only one does.
    /// Closer than [`Plausibility::see`], which only looks for contradictions.
    #[must_use]
    pub fn is_in(&self, found: Bounds, extent: Bounds) -> bool {
        let room = |low: f64, high: f64| READING_MARGIN + READING_MARGIN * (high - low);
        let (by_x, by_y) = (room(extent.min_x, extent.max_x), room(extent.min_y, extent.max_y));
        self.places(found).all(|place| {
            place.is_some_and(|(lon, lat)| {
                (extent.min_x - by_x..=extent.max_x + by_x).contains(&lon)
                    && (extent.min_y - by_y..=extent.max_y + by_y).contains(&lat)
            })
        })
    }

    fn globe(&self, found: Bounds) -> Result<(), Problem> {
        let beyond = |low: f64, high: f64, most: f64| low < -most || high > most;
        if self.geographic {
            let is = beyond(found.min_x, found.max_x, LONGITUDE_MAX)
                || beyond(found.min_y, found.max_y, LATITUDE_MAX);
            return if is { Err(self.mismatch(found, "which are not degrees")) } else { Ok(()) };
        }
        let is = beyond(found.min_x, found.max_x, LENGTH_MAX) || beyond(found.min_y, found.max_y, LENGTH_MAX);
        if is { Err(self.mismatch(found, "which is larger than the earth")) } else { Ok(()) }
    }

    fn area(&self, found: Bounds, placed: Bounds) -> Result<(), Problem> {
        let Some(area) = self.area else { return Ok(()) };
        if meets(placed, area, 0.0) {
            return Ok(());
        }
        let expected = format!("its area of use is {}", words(area));
        if self.geographic {
            let is = lies_in(swapped(found), area);
            let why = format!("{expected}; latitude and longitude seem to be swapped");
            return if is { Err(self.mismatch(found, &why)) } else { Ok(()) };
        }
        let nowhere = found == Bounds { min_x: 0.0, min_y: 0.0, max_x: 0.0, max_y: 0.0 };
        if !nowhere && lies_in(found, area) {
            return Err(self.mismatch(found, &format!("{expected}; the numbers seem to be degrees")));
        }
        if meets(placed, area, AREA_MARGIN) {
            return Ok(());
        }
        let there = format!("which is {} in WGS 84, and {expected}", words(placed));
        let turned = self.placed(swapped(found)).is_some_and(|turned| meets(turned, area, 0.0));
        let hint = if turned { "; x and y seem to be swapped" } else { "" };
        Err(self.mismatch(found, &format!("{there}{hint}")))
    }

    fn extent(&self, found: Bounds, placed: Bounds) -> Result<(), Problem> {
        let Some(declared) = self.declared.filter(|declared| !meets(placed, *declared, 0.0)) else {
            return Ok(());
        };
        let turned = self.placed(swapped(found)).is_some_and(|turned| lies_in(turned, declared));
        if !turned && meets(placed, declared, EXTENT_MARGIN) {
            return Ok(());
        }
        let hint = if turned { "; x and y seem to be swapped" } else { "" };
        let why = format!(
            "which is {} in WGS 84, and the source declares {}{hint}",
            words(placed),
            words(declared)
        );
        Err(self.mismatch(found, &why))
    }

    /// The box in WGS 84, from a grid of positions in it; `None` if none of them can be transformed.
    #[must_use]
    pub fn placed(&self, found: Bounds) -> Option<Bounds> {
        let mut all: Option<Bounds> = None;
        for (lon, lat) in self.places(found).flatten() {
            all.get_or_insert(Bounds { min_x: lon, min_y: lat, max_x: lon, max_y: lat }).extend(lon, lat);
        }
        all
    }

    /// Places along the sides of a box and in it, in WGS 84.
    fn places(&self, found: Bounds) -> impl Iterator<Item = Option<(f64, f64)>> {
        let at = |low: f64, high: f64, step: u32| low + (high - low) * f64::from(step) / f64::from(SAMPLES);
        let steps = (0..=SAMPLES).flat_map(|i| (0..=SAMPLES).map(move |j| (i, j)));
        steps.map(move |(i, j)| {
            let (x, y) = (at(found.min_x, found.max_x, i), at(found.min_y, found.max_y, j));
            let (lon, lat, _) = self.to_wgs84.as_ref()?.position(x, y, 0.0).ok()?;
            Some((lon, lat))
        })
    }

    fn mismatch(&self, found: Bounds, why: &str) -> Problem {
        let message = format!(
            "the coordinates cannot be in {}: they lie between {}, {why}; {}",
            self.crs,
            words(found),
            self.accept
        );
        Problem::new(Code::CRS_MISMATCH, message)
    }
}

/// A box with x and y swapped.
fn swapped(b: Bounds) -> Bounds {
    Bounds { min_x: b.min_y, min_y: b.min_x, max_x: b.max_y, max_y: b.max_x }
}

/// West and east of a box; east is beyond 180° if the box crosses the antimeridian.
fn eastward(b: Bounds) -> (f64, f64) {
    (b.min_x, if b.min_x > b.max_x { b.max_x + 360.0 } else { b.max_x })
}

/// Whether a box intersects another, which is extended by half its size and at least by the margin, if
/// that is not 0. Longitudes are compared modulo 360°.
fn meets(found: Bounds, other: Bounds, margin: f64) -> bool {
    let ((west, east), (other_west, other_east)) = (eastward(found), eastward(other));
    let wide = |low: f64, high: f64| if margin > 0.0 { margin.max((high - low) / 2.0) } else { 0.0 };
    let (by_x, by_y) = (wide(other_west, other_east), wide(other.min_y, other.max_y));
    let across = [-720.0, -360.0, 0.0, 360.0, 720.0]
        .iter()
        .any(|turn| west + turn <= other_east + by_x && other_west - by_x <= east + turn);
    across && found.min_y <= other.max_y + by_y && other.min_y - by_y <= found.max_y
}

/// Whether a box of degrees lies inside another.
fn lies_in(found: Bounds, other: Bounds) -> bool {
    let ((west, east), (other_west, other_east)) = (eastward(found), eastward(other));
    let across =
        [-360.0, 0.0, 360.0].iter().any(|turn| other_west <= west + turn && east + turn <= other_east);
    across && other.min_y <= found.min_y && found.max_y <= other.max_y
}

fn words(b: Bounds) -> String {
    let short = |x: f64| (x * 1e4).round() / 1e4;
    format!("{} {} and {} {}", short(b.min_x), short(b.min_y), short(b.max_x), short(b.max_y))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds([min_x, min_y, max_x, max_y]: [f64; 4]) -> Bounds {
        Bounds { min_x, min_y, max_x, max_y }
    }

    fn told(code: u32, found: [f64; 4], declared: Option<[f64; 4]>) -> Option<String> {
        let mut plausibility = Plausibility::new(&Crs::epsg(code));
        if let Some(declared) = declared {
            plausibility = plausibility.with_extent(bounds(declared), true);
        }
        let problem = plausibility.see(bounds(found)).err()?;
        assert_eq!(problem.code, Code::CRS_MISMATCH);
        assert!(problem.message.contains("--trust-crs"));
        Some(problem.message)
    }

    #[test]
    fn a_wrong_label_is_found() {
        for (code, found, declared, word) in [
            (4326, [12_745_374.0, 0.0, 12_745_375.0, 10.0], None, "not degrees"),
            (4326, [5.0, 40.0, 15.0, 5_500_000.0], None, "not degrees"),
            // Degrees in a map's system, and the other way round.
            (32632, [8.9, 47.9, 9.1, 48.1], None, "seem to be degrees"),
            (25832, [9.0, 50.0, 9.0, 50.0], None, "seem to be degrees"),
            // The British grid called the Swiss one.
            (2056, [400_000.0, 100_000.0, 600_000.0, 300_000.0], None, "area of use"),
            (27700, [2_600_000.0, 1_200_000.0, 2_700_000.0, 1_250_000.0], None, "area of use"),
            // Latitude first.
            (4258, [48.0, 8.0, 49.0, 9.0], Some([8.0, 48.0, 9.0, 49.0]), "swapped"),
            (4674, [-10.0, -60.0, -5.0, -50.0], None, "swapped"),
            (4326, [8.0, 48.0, 9.0, 49.0], Some([-75.0, 40.0, -70.0, 45.0]), "declares"),
            (3857, [8.0, 48.0, 9.0, 49.0], Some([8.0, 48.0, 9.0, 49.0]), "area of use"),
        ] {
            let said = told(code, found, declared);
            if code == 3857 {
                // Some metres beside the origin are a place in Web Mercator, which only the declared extent denies.
                assert!(said.is_some_and(|said| said.contains("declares")));
                continue;
            }
            assert!(said.as_ref().is_some_and(|said| said.contains(word)), "{code} {found:?}: {said:?}");
        }
    }

    #[test]
    fn what_may_be_right_passes() {
        for (code, found, declared) in [
            (4326, [-180.0, -90.0, 180.0, 90.0], None),
            (4326, [0.0, -90.25, 360.0, 90.25], None),
            (4326, [175.0, -20.0, 185.0, -10.0], Some([175.0, -20.0, -175.0, -10.0])),
            (4326, [-185.0, -20.0, -175.0, -10.0], Some([175.0, -20.0, -175.0, -10.0])),
            // Overseas, with the label of the continent.
            (4258, [-61.8, 15.8, -61.0, 16.5], None),
            // The neighbouring zone, and the other side of the equator.
            (25832, [900_000.0, 5_300_000.0, 1_200_000.0, 6_000_000.0], None),
            (32633, [300_000.0, -2_000_000.0, 500_000.0, -1_000_000.0], None),
            (27700, [0.0, 0.0, 700_000.0, 1_300_000.0], None),
            (32631, [0.0, 0.0, 0.0, 0.0], None),
            (3857, [-20_037_508.0, -20_048_966.0, 20_037_508.0, 20_048_966.0], None),
            // An extent that is a little old.
            (4326, [9.2, 48.2, 9.4, 48.4], Some([8.0, 47.0, 9.0, 48.0])),
            (4978, [4_223_142.0, 668_880.0, 4_223_143.0, 668_881.0], None),
            (2253, [13_000_000.0, 200_000.0, 13_300_000.0, 500_000.0], None),
        ] {
            assert_eq!(told(code, found, declared), None, "{code} {found:?}");
        }
    }

    #[test]
    fn boxes_are_seen_one_after_the_other() {
        let mut plausibility = Plausibility::new(&Crs::wgs84());
        for x in 0..10 {
            plausibility.see(bounds([f64::from(x), 0.0, f64::from(x) + 1.0, 1.0])).unwrap();
        }
        assert_eq!(plausibility.seen(), Some(bounds([0.0, 0.0, 10.0, 1.0])));
        assert!(plausibility.see(bounds([700.0, 0.0, 701.0, 1.0])).is_err());
        assert_eq!(
            plausibility.seen(),
            Some(bounds([0.0, 0.0, 10.0, 1.0])),
            "what did not pass was not seen"
        );
    }

    /// The area of every system is plausible in it.
    #[test]
    fn no_system_contradicts_its_own_area() {
        for code in super::super::table::codes().into_iter().step_by(7) {
            let crs = super::super::parse::numbered(code);
            let Some(entry) = crs.entry().filter(|entry| entry.verified && !entry.geocentric) else {
                continue;
            };
            let Ok(there) = Transform::new(&Crs::wgs84(), &crs) else { continue };
            let (west, east) = eastward(entry.area);
            let mut found: Option<Bounds> = None;
            for (i, j) in
                (1..10).flat_map(|i| (1..10).map(move |j| (f64::from(i) / 10.0, f64::from(j) / 10.0)))
            {
                let lon = west + (east - west) * i;
                let lon = if lon > 180.0 { lon - 360.0 } else { lon };
                let lat = entry.area.min_y + (entry.area.max_y - entry.area.min_y) * j;
                if let Ok((x, y, _)) = there.position(lon, lat, 0.0) {
                    found.get_or_insert(bounds([x, y, x, y])).extend(x, y);
                }
            }
            let Some(found) = found else { continue };
            assert!(Plausibility::new(&crs).see(found).is_ok(), "{crs} {found:?}");
        }
    }
}
