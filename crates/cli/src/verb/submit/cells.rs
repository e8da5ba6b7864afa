//! The H3 cells of a box, as tasks.
//!
//! Cells are found from neighbour to neighbour, beginning in the box: those that touch it hang together. All
//! tests are in degrees, around the centre of the cell, so that the antimeridian is no edge. A cell that
//! contains a pole has a boundary that runs once around the world.

use std::collections::{HashSet, VecDeque};

use h3o::{CellIndex, LatLng, Resolution};
use serde_json::{Value, json};

use super::draft::TaskDraft;
use super::input::raw;

/// The most cells of one command: they are found in memory.
const CELLS_MAX: usize = 5_000_000;

/// The cells that touch a box.
#[derive(Clone, Debug)]
pub(super) struct CellCover {
    /// West, south, east, north in degrees; the east may be beyond 180.
    bbox: [f64; 4],
    resolution: Resolution,
}

impl CellCover {
    /// The cells of this box, of which the west may be east of the east: then it crosses the antimeridian.
    pub(super) fn new(bbox: [f64; 4], resolution: u8) -> Result<CellCover, String> {
        let [west, south, east, north] = bbox;
        let fits = |value: f64, most: f64| value.is_finite() && value.abs() <= most;
        if !(fits(west, 180.0) && fits(east, 180.0) && fits(south, 90.0) && fits(north, 90.0)) {
            return Err(format!("the box {bbox:?} is not west, south, east, north in degrees"));
        }
        if south >= north || west == east {
            return Err(format!("the box {bbox:?} is empty"));
        }
        let resolution =
            Resolution::try_from(resolution).map_err(|_| "H3 has the resolutions 0 to 15".to_owned())?;
        let east = if west > east { east + 360.0 } else { east };
        Ok(CellCover { bbox: [west, south, east, north], resolution })
    }

    /// The cells, in the order of their indexes.
    pub(super) fn cells(&self) -> Result<Vec<CellIndex>, String> {
        let [west, south, east, north] = self.bbox;
        let start = LatLng::new(f64::midpoint(south, north), f64::midpoint(west, east))
            .map_err(|e| e.to_string())?
            .to_cell(self.resolution);
        let mut seen = HashSet::from([start]);
        let (mut open, mut cells) = (VecDeque::from([start]), Vec::new());
        while let Some(cell) = open.pop_front() {
            if !self.touches(cell) {
                continue;
            }
            cells.push(cell);
            if cells.len() > CELLS_MAX {
                return Err(format!(
                    "the box has more than {CELLS_MAX} cells of resolution {}; use a lower resolution or smaller boxes",
                    self.resolution
                ));
            }
            for next in cell.grid_disk::<Vec<_>>(1) {
                if seen.insert(next) {
                    open.push_back(next);
                }
            }
        }
        cells.sort_unstable();
        Ok(cells)
    }

    /// Whether a cell and the box have a point in common.
    fn touches(&self, cell: CellIndex) -> bool {
        let [west, south, east, north] = self.bbox;
        // Edges are arcs of great circles. What a straight line in degrees is off counts for large cells.
        let outline = CellOutline::new(cell, if self.resolution < Resolution::Six { 16 } else { 1 });
        if let Some(pole) = outline.pole {
            // Every meridian meets it.
            let reach = outline.ring.iter().map(|(_, lat)| *lat);
            return match pole > 0.0 {
                true => north >= reach.fold(f64::INFINITY, f64::min),
                false => south <= reach.fold(f64::NEG_INFINITY, f64::max),
            };
        }
        [-360.0, 0.0, 360.0].iter().any(|turn| {
            let clip = |ring: Vec<(f64, f64)>, axis, at, keeps_less| half(&ring, axis, at, keeps_less);
            let ring: Vec<(f64, f64)> = outline.ring.iter().map(|(x, y)| (x + turn, *y)).collect();
            let ring = clip(clip(ring, 0, west, false), 0, east, true);
            !clip(clip(ring, 1, south, false), 1, north, true).is_empty()
        })
    }
}

/// The boundary of a cell in degrees, with longitudes that do not jump.
struct CellOutline {
    ring: Vec<(f64, f64)>,
    /// The latitude of the pole that it contains.
    pole: Option<f64>,
}

impl CellOutline {
    /// Each edge in so many pieces.
    fn new(cell: CellIndex, pieces: u32) -> CellOutline {
        let boundary = cell.boundary();
        let corners: Vec<[f64; 3]> = boundary.iter().map(|corner| on_sphere(*corner)).collect();
        let next = corners.iter().cycle().skip(1);
        let points = corners
            .iter()
            .zip(next)
            .flat_map(|(a, b)| (0..pieces).map(move |n| between(*a, *b, f64::from(n) / f64::from(pieces))));
        let mut ring: Vec<(f64, f64)> = Vec::new();
        for (mut x, y) in points {
            if let Some((before, _)) = ring.last() {
                x += ((before - x) / 360.0).round() * 360.0;
            }
            ring.push((x, y));
        }
        let turn = match (ring.first(), ring.last()) {
            (Some((first, _)), Some((last, _))) => ((last - first) / 360.0).round(),
            _ => 0.0,
        };
        let pole = (turn != 0.0).then(|| if LatLng::from(cell).lat() > 0.0 { 90.0 } else { -90.0 });
        CellOutline { ring, pole }
    }

    /// As GeoJSON: cut at the antimeridian, counterclockwise, in at most seven decimal places.
    fn geometry(&self) -> Value {
        let mut ring = self.ring.clone();
        if let Some(pole) = self.pole {
            // Once around the world along the boundary, and back along the pole.
            let way = match (ring.first(), ring.last()) {
                (Some((first, _)), Some((last, _))) if last < first => -360.0,
                _ => 360.0,
            };
            if let Some((x, y)) = ring.first().copied() {
                ring.extend([(x + way, y), (x + way, pole), (x, pole)]);
            }
        }
        let parts = [-360.0, 0.0, 360.0].iter().filter_map(|turn| {
            let moved: Vec<(f64, f64)> = ring.iter().map(|(x, y)| (x + turn, *y)).collect();
            let part = half(&half(&moved, 0, -180.0, false), 0, 180.0, true);
            (area(&part).abs() > 1e-12).then_some(part)
        });
        let rings: Vec<Value> = parts.map(|part| json!([closed(part)])).collect();
        match rings.as_slice() {
            [one] => json!({ "type": "Polygon", "coordinates": one }),
            _ => json!({ "type": "MultiPolygon", "coordinates": rings }),
        }
    }

    /// West, south, east, north; the west is east of the east if the antimeridian lies between.
    fn bbox(&self) -> [f64; 4] {
        let range = |all: &mut dyn Iterator<Item = f64>| {
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), n| (low.min(n), high.max(n)))
        };
        let (west, east) = range(&mut self.ring.iter().map(|(x, _)| *x));
        let (south, north) = range(&mut self.ring.iter().map(|(_, y)| *y));
        match self.pole {
            Some(pole) => [-180.0, south.min(pole), 180.0, north.max(pole)],
            None => [turned(west), south, turned(east), north],
        }
    }
}

fn on_sphere(place: LatLng) -> [f64; 3] {
    let (lat, lng) = (place.lat_radians(), place.lng_radians());
    [lat.cos() * lng.cos(), lat.cos() * lng.sin(), lat.sin()]
}

/// A point of the arc between two others, in degrees.
fn between(a: [f64; 3], b: [f64; 3], share: f64) -> (f64, f64) {
    let [x, y, z] = [0, 1, 2].map(|at: usize| {
        let of = |point: [f64; 3]| point.get(at).copied().unwrap_or_default();
        of(a) + share * (of(b) - of(a))
    });
    (y.atan2(x).to_degrees(), z.atan2(x.hypot(y)).to_degrees())
}

/// A longitude from -180 to 180.
fn turned(x: f64) -> f64 {
    match x {
        x if x > 180.0 => x - 360.0,
        x if x < -180.0 => x + 360.0,
        x => x,
    }
}

/// The part of a convex polygon at one side of a line: where the coordinate of this axis is at most `at`,
/// or at least.
fn half(ring: &[(f64, f64)], axis: usize, at: f64, keeps_less: bool) -> Vec<(f64, f64)> {
    let value = |(x, y): (f64, f64)| if axis == 0 { x } else { y };
    let inside = |point| if keeps_less { value(point) <= at } else { value(point) >= at };
    let mut kept = Vec::with_capacity(ring.len() + 1);
    for (n, point) in ring.iter().enumerate() {
        let before = ring.get((n + ring.len() - 1) % ring.len()).copied().unwrap_or(*point);
        if inside(*point) != inside(before) {
            let share = (at - value(before)) / (value(*point) - value(before));
            let between = |a: f64, b: f64| a + share * (b - a);
            let (x, y) = (between(before.0, point.0), between(before.1, point.1));
            kept.push(if axis == 0 { (at, y) } else { (x, at) });
        }
        if inside(*point) {
            kept.push(*point);
        }
    }
    kept
}

fn area(ring: &[(f64, f64)]) -> f64 {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(a, b)| a.0 * b.1 - b.0 * a.1).sum::<f64>() / 2.0
}

fn closed(mut ring: Vec<(f64, f64)>) -> Value {
    if area(&ring) < 0.0 {
        ring.reverse();
    }
    let rounded = |n: f64| (n * 1e7).round() / 1e7;
    let mut all: Vec<Value> = ring.iter().map(|(x, y)| json!([rounded(*x), rounded(*y)])).collect();
    all.extend(all.first().cloned());
    all.into()
}

/// The task of a cell.
pub(super) fn cell_draft(cell: CellIndex) -> Result<TaskDraft, String> {
    let outline = CellOutline::new(cell, 1);
    let feature = json!({
        "type": "Feature",
        "properties": { "h3": cell.to_string(), "resolution": u8::from(cell.resolution()) },
        "geometry": outline.geometry(),
    });
    Ok(TaskDraft {
        key: Some(cell.to_string()),
        payload: Some(raw(feature.to_string())?),
        bbox: Some(outline.bbox()),
        ..TaskDraft::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(bbox: [f64; 4], resolution: u8) -> Vec<CellIndex> {
        CellCover::new(bbox, resolution).unwrap().cells().unwrap()
    }

    /// Every point of the box is in a cell, and every cell touches the box.
    #[test]
    fn a_box_is_covered_and_nothing_else() {
        for (bbox, resolution) in [
            ([16.1, 48.1, 16.6, 48.4], 6),
            ([16.1, 48.1, 16.101, 48.101], 4),
            ([179.0, -17.0, -179.0, -16.0], 5),
            ([-180.0, 86.0, 180.0, 90.0], 2),
            ([10.0, -90.0, 40.0, -87.0], 3),
        ] {
            let found: HashSet<CellIndex> = cells(bbox, resolution).into_iter().collect();
            let cover = CellCover::new(bbox, resolution).unwrap();
            let [west, south, east, north] = cover.bbox;
            for n in 0..=60 {
                for m in 0..=60 {
                    let (x, y) = (
                        west + (east - west) * f64::from(n) / 60.0,
                        south + (north - south) * f64::from(m) / 60.0,
                    );
                    let cell = LatLng::new(y, x).unwrap().to_cell(cover.resolution);
                    assert!(found.contains(&cell), "{bbox:?}: {x} {y} is in {cell}");
                }
            }
            assert!(found.iter().all(|cell| cover.touches(*cell)));
        }
        assert_eq!(cells([-180.0, -90.0, 180.0, 90.0], 0).len(), 122, "all base cells");
        assert_eq!(cells([-180.0, -90.0, 180.0, 90.0], 1).len(), 842);
    }

    #[test]
    fn a_cell_at_the_antimeridian_is_cut() {
        let cell = LatLng::new(-16.5, 180.0).unwrap().to_cell(Resolution::Four);
        let outline = CellOutline::new(cell, 1);
        let geometry = outline.geometry();
        assert_eq!(geometry["type"], "MultiPolygon");
        assert_eq!(geometry["coordinates"].as_array().unwrap().len(), 2);
        let [west, _, east, _] = outline.bbox();
        assert!(west > 179.0 && east < -179.0, "{west} {east}");
        let pole = LatLng::new(90.0, 0.0).unwrap().to_cell(Resolution::Four);
        let outline = CellOutline::new(pole, 1);
        assert_eq!((outline.pole, outline.bbox()[0], outline.bbox()[3]), (Some(90.0), -180.0, 90.0));
    }

    #[test]
    fn what_is_no_box_is_refused() {
        for (bbox, resolution) in [
            ([1.0, 2.0, 1.0, 3.0], 3),
            ([0.0, 5.0, 1.0, 4.0], 3),
            ([0.0, 0.0, 190.0, 1.0], 3),
            ([0.0, 0.0, 1.0, 1.0], 16),
        ] {
            assert!(CellCover::new(bbox, resolution).is_err(), "{bbox:?} {resolution}");
        }
        let all = CellCover::new([-180.0, -90.0, 180.0, 90.0], 9).unwrap();
        assert!(all.touches(LatLng::new(0.0, 0.0).unwrap().to_cell(Resolution::Nine)));
    }
}
