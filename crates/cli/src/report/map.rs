//! A map of points over an outline of the land.
//!
//! The outline is from Natural Earth (public domain), at a resolution of 0.1 degrees, as one SVG
//! path; the view is cropped to the points. Points on the same pixel are drawn once, so a page with
//! a million matches stays small.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::overlay;

/// The path data of the land, in tenths of a degree from 180° W, 90° N.
pub(crate) const LAND: &str = include_str!("land.path");
/// The number of grid cells across the view; points in the same cell are drawn once.
const GRID: f64 = 900.0;
pub(super) const WORLD: (f64, f64) = (3600.0, 1800.0);

/// The points of one kind: CSS class, label and positions.
pub(super) struct MarkerLayer<'a> {
    pub(super) mark: MarkerShape,
    pub(super) name: &'a str,
    pub(super) places: &'a [(f64, f64)],
    /// The number of records, of which the places may be a part.
    pub(super) records: u64,
}

/// Kinds differ in shape as well as in colour.
#[derive(Clone, Copy)]
pub(super) enum MarkerShape {
    Dot,
    Ring,
    Cross,
}

impl MarkerShape {
    pub(super) const fn class(self) -> &'static str {
        match self {
            MarkerShape::Dot => "dot",
            MarkerShape::Ring => "ring-at",
            MarkerShape::Cross => "cross",
        }
    }

    /// The path of a marker at a position; `r` is its half width.
    pub(super) fn path(self, x: f64, y: f64, r: f64) -> String {
        let d = 2.0 * r;
        // Enough for a small view, and no more digits than a large one needs.
        let n = if r < 0.1 { 4 } else { 2 };
        match self {
            MarkerShape::Dot => format!("M{x:.n$} {y:.n$}h0"),
            MarkerShape::Ring => {
                format!("M{:.n$} {y:.n$}a{r:.4} {r:.4} 0 1 0 {d:.4} 0a{r:.4} {r:.4} 0 1 0 -{d:.4} 0", x - r)
            }
            MarkerShape::Cross => {
                format!("M{:.n$} {:.n$}l{d:.4} {d:.4}m0 -{d:.4}l-{d:.4} {d:.4}", x - r, y - r)
            }
        }
    }
}

/// The outline of something that is larger than a point.
pub(super) struct MapArea {
    /// Whether it was rejected.
    pub(super) is_dead: bool,
    /// A closed ring in degrees; empty if it has no place.
    pub(super) ring: Vec<(f64, f64)>,
}

/// The outlines as paths, those of rejected records apart. What crosses the edge of the map is left out.
fn areas_path(areas: &[MapArea], is_dead: bool) -> String {
    let mut path = String::new();
    for area in areas.iter().filter(|area| area.is_dead == is_dead) {
        let crosses = area.ring.windows(2).any(|pair| (pair[0].0 - pair[1].0).abs() > 180.0);
        for (at, (lon, lat)) in area.ring.iter().enumerate().filter(|_| !crosses) {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.4} {:.4}", (lon + 180.0) * 10.0, (90.0 - lat) * 10.0);
        }
        if !crosses && !area.ring.is_empty() {
            path.push('z');
        }
    }
    path
}

/// The map: land, graticule, outlines, the points, their counts, and the world as an inset. The last
/// layer is on top.
pub(super) fn svg(layers: &[MarkerLayer<'_>], areas: &[MapArea]) -> String {
    let turn = |(lon, lat): &(f64, f64)| {
        (lon.abs() <= 180.0 && lat.abs() <= 90.0).then_some(((lon + 180.0) * 10.0, (90.0 - lat) * 10.0))
    };
    let places = layers.iter().flat_map(|layer| layer.places);
    let all: Vec<(f64, f64)> =
        places.chain(areas.iter().flat_map(|area| &area.ring)).filter_map(turn).collect();
    let view = MapView::around(&all);
    let cell = view.width / GRID;
    let mut drawn = String::new();
    for (class, path) in [("area", areas_path(areas, false)), ("area-dead", areas_path(areas, true))] {
        if !path.is_empty() {
            let _ = write!(drawn, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    let mut said = Vec::new();
    // The number of records in each cell, of all layers.
    let mut cells: BTreeMap<(i64, i64), f64> = BTreeMap::new();
    for layer in layers.iter().filter(|layer| !layer.places.is_empty()) {
        let mut seen = BTreeSet::new();
        let mut path = String::new();
        let each = layer.records as f64 / layer.places.len() as f64;
        for (x, y) in layer.places.iter().filter_map(turn) {
            let place = (((x - view.x) / cell) as i64, ((y - view.y) / cell) as i64);
            *cells.entry(place).or_default() += each;
            if seen.insert(place) {
                let at = |n: i64, from: f64| from + (n as f64 + 0.5) * cell;
                path.push_str(&layer.mark.path(at(place.0, view.x), at(place.1, view.y), 3.6 * cell));
            }
        }
        let _ = write!(drawn, "<path class=\"{}\" d=\"{path}\"/>", layer.mark.class());
        said.push(format!("{} {}", seen.len(), layer.name));
    }
    let about = layers.iter().any(|layer| layer.records > layer.places.len() as u64);
    drawn.push_str(&overlay::counts(&view, &cells, cell, about));
    drawn.push_str(&overlay::inset(&view, &all));
    let MapView { x, y, width, height } = view;
    format!(
        "<svg class=\"map\" viewBox=\"{x:.4} {y:.4} {width:.4} {height:.4}\" role=\"img\" aria-labelledby=\"map-t map-d\">\
         <title id=\"map-t\">Map of the records</title>\
         <desc id=\"map-d\">Points: {}; between longitude {:.2} and {:.2}, latitude {:.2} and {:.2}</desc>\
         <rect class=\"sea\" x=\"{x:.4}\" y=\"{y:.4}\" width=\"{width:.4}\" height=\"{height:.4}\"/>\
         <path id=\"land\" class=\"land\" d=\"{}\"/>{}{drawn}</svg>",
        said.join(", "),
        x / 10.0 - 180.0,
        (x + width) / 10.0 - 180.0,
        90.0 - (y + height) / 10.0,
        90.0 - y / 10.0,
        LAND.trim_end(),
        graticule(&view),
    )
}

/// Labelled lines at round degrees, about six across.
fn graticule(view: &MapView) -> String {
    let degrees = view.width / 10.0;
    let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0];
    let step = steps.into_iter().find(|step| degrees / step <= 7.0).unwrap_or(60.0);
    let decimals = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
    let size = view.width / 72.0;
    let (mut lines, mut names) = (String::new(), String::new());
    let (west, north) = (view.x / 10.0 - 180.0, 90.0 - view.y / 10.0);
    let south = north - view.height / 10.0;
    let each = |from: f64, to: f64| {
        let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
        (first..=last).map(move |i| i as f64 * step)
    };
    let name = |value: f64, plus: char, minus: char| {
        let side = if value > 0.0 { plus } else { minus };
        let side = if value == 0.0 { String::new() } else { format!(" {side}") };
        format!("{:.decimals$}°{side}", value.abs())
    };
    for lon in each(west, west + degrees) {
        let x = (lon + 180.0) * 10.0;
        let _ = write!(lines, "M{x:.3} {:.3}v{:.3}", view.y, view.height);
        if x > view.x + size * 4.0 && x < view.x + view.width - size * 4.0 {
            let y = view.y + view.height - size * 0.6;
            let _ = write!(
                names,
                "<text x=\"{:.3}\" y=\"{y:.3}\">{}</text>",
                x + size * 0.3,
                name(lon, 'E', 'W')
            );
        }
    }
    for lat in each(south, north) {
        let y = (90.0 - lat) * 10.0;
        let _ = write!(lines, "M{:.3} {y:.3}h{:.3}", view.x, view.width);
        if y > view.y + size * 2.0 && y < view.y + view.height - size * 3.0 {
            let x = view.x + size * 0.4;
            let _ = write!(
                names,
                "<text x=\"{x:.3}\" y=\"{:.3}\">{}</text>",
                y - size * 0.3,
                name(lat, 'N', 'S')
            );
        }
    }
    format!(
        "<path class=\"degrees\" d=\"{lines}\"/><g class=\"degree\" font-size=\"{size:.3}\" aria-hidden=\"true\">{names}</g>"
    )
}

/// Draws lines in degrees over the land, with defects on top.
pub(crate) fn on_land(lines: &[Vec<(f64, f64)>], defects: &[(f64, f64)]) -> String {
    let turn = |(lon, lat): (f64, f64)| {
        (lon.abs() <= 180.0 && lat.abs() <= 90.0).then_some(((lon + 180.0) * 10.0, (90.0 - lat) * 10.0))
    };
    let places: Vec<(f64, f64)> = lines.iter().flatten().copied().filter_map(turn).collect();
    let view = MapView::close(&places);
    let land = format!("<path class=\"land\" d=\"{}\"/>", LAND.trim_end());
    drawing(&view, &land, lines, defects, turn)
}

/// Draws lines in planar coordinates, with defects on top.
pub(crate) fn plain(lines: &[Vec<(f64, f64)>], defects: &[(f64, f64)]) -> String {
    let fold = |get: fn(&(f64, f64)) -> f64| {
        let all = lines.iter().flatten().map(get);
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    };
    let ((left, right), (low, high)) = (fold(|p| p.0), fold(|p| p.1));
    let size = (right - left).max((high - low) * 2.0);
    let unit = if size > 0.0 && size.is_finite() { 1000.0 / size } else { 1.0 };
    let turn = |(x, y): (f64, f64)| {
        (x.is_finite() && y.is_finite()).then_some(((x - left) * unit, (high - y) * unit))
    };
    let height = ((high - low) * unit).clamp(1.0, 500.0);
    let view = MapView { x: -20.0, y: -20.0, width: 1040.0, height: height + 40.0 };
    drawing(&view, "", lines, defects, turn)
}

fn drawing(
    view: &MapView,
    under: &str,
    lines: &[Vec<(f64, f64)>],
    defects: &[(f64, f64)],
    turn: impl Fn((f64, f64)) -> Option<(f64, f64)>,
) -> String {
    let cell = view.width / GRID;
    // Enough decimals for a tenth of a pixel.
    let decimals = (1.0 - cell.log10()).ceil().clamp(0.0, 12.0) as usize;
    let mut seen = BTreeSet::new();
    let (mut paths, mut dots, mut marks) = (String::new(), String::new(), String::new());
    // Positions on the same pixel are drawn once, so that the page stays small.
    let pixel = |(x, y): (f64, f64)| (((x - view.x) / cell) as i64, ((y - view.y) / cell) as i64);
    for line in lines {
        let mut last = None;
        let mut path = String::new();
        let mut count = 0;
        for (x, y) in line.iter().copied().filter_map(&turn) {
            let here = pixel((x, y));
            if last == Some(here) {
                continue;
            }
            let letter = if last.is_none() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x:.decimals$} {y:.decimals$}");
            last = Some(here);
            count += 1;
        }
        match last {
            Some(here) if count == 1 => {
                if seen.insert(here) {
                    let _ = write!(dots, "{path}h0");
                }
            }
            _ => paths.push_str(&path),
        }
    }
    for (x, y) in defects.iter().copied().filter_map(&turn).take(5000) {
        if seen.insert(pixel((x, y))) || defects.len() < 100 {
            let _ = write!(marks, "M{x:.decimals$} {y:.decimals$}h0");
        }
    }
    let MapView { x, y, width, height } = view;
    format!(
        "<svg viewBox=\"{x:.decimals$} {y:.decimals$} {width:.decimals$} {height:.decimals$}\" role=\"img\" aria-labelledby=\"map-t map-d\">\
         <title id=\"map-t\">Map of the layer</title>\
         <desc id=\"map-d\">{} lines and dots, {} defects</desc>{under}\
         <path d=\"{paths}\" fill=\"none\" stroke=\"#2864c8\" stroke-width=\"1.2\" vector-effect=\"non-scaling-stroke\" stroke-linejoin=\"round\"/>\
         <path class=\"dots\" d=\"{dots}\"/>\
         <path d=\"{marks}\" fill=\"none\" stroke=\"#d22828\" stroke-width=\"7\" vector-effect=\"non-scaling-stroke\" stroke-linecap=\"round\"/></svg>",
        lines.len(),
        defects.len(),
    )
}

pub(super) struct MapView {
    /// The left edge, in the units of the drawing.
    pub(super) x: f64,
    /// The upper edge, in the units of the drawing.
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl MapView {
    /// The view around points: twice as wide as high, with a margin, at least a twentieth of a degree
    /// wide, which is a few streets.
    fn around(places: &[(f64, f64)]) -> MapView {
        MapView::at_least(places, 0.5)
    }

    /// The same, but at least a hundredth of a degree wide.
    fn close(places: &[(f64, f64)]) -> MapView {
        MapView::at_least(places, 0.1)
    }

    fn at_least(places: &[(f64, f64)], least: f64) -> MapView {
        let fold = |get: fn(&(f64, f64)) -> f64| {
            places
                .iter()
                .map(get)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), x| (lo.min(x), hi.max(x)))
        };
        let ((left, right), (top, bottom)) = (fold(|p| p.0), fold(|p| p.1));
        if left > right {
            return MapView { x: 0.0, y: 0.0, width: WORLD.0, height: WORLD.1 };
        }
        let width = ((right - left) * 1.15).max((bottom - top) * 2.3).clamp(least, WORLD.0);
        let height = width / 2.0;
        let x = (f64::midpoint(left, right) - width / 2.0).clamp(0.0, WORLD.0 - width);
        let y = (f64::midpoint(top, bottom) - height / 2.0).clamp(0.0, WORLD.1 - height);
        MapView { x, y, width, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(places: &[(f64, f64)]) -> String {
        let layer =
            MarkerLayer { mark: MarkerShape::Dot, name: "written", places, records: places.len() as u64 };
        svg(&[layer], &[])
    }

    #[test]
    fn the_view_holds_the_points_and_equal_points_are_one() {
        let map = dots(&[(16.37, 48.21), (16.37, 48.21), (15.44, 47.07)]);
        assert_eq!(map.matches("h0").count(), 2);
        assert!(map.contains(">2</text>"), "two records lie on each other");
        assert!(map.contains("class=\"inset\"") && map.contains("href=\"#land\""));
        assert!(map.contains("viewBox=\"19"), "{}", &map[..80]);
        assert!(map.contains("2 written") && map.contains(">16.0° E<"));
        let world = dots(&[(-179.0, -80.0), (179.0, 80.0)]);
        assert!(world.contains("viewBox=\"0.0000 0.0000 3600.0000 1800.0000\""), "{}", &world[..80]);
        assert!(!world.contains("class=\"inset\""), "the world needs no inset");
        for odd in [vec![], vec![(f64::NAN, 1.0)], vec![(500.0, 0.0)], vec![(180.0, -90.0)]] {
            assert!(dots(&odd).contains("viewBox"));
        }
    }

    #[test]
    fn outlines_are_drawn_and_the_view_holds_them() {
        let ring = vec![(15.0, 48.0), (15.0, 47.0), (17.0, 47.0), (17.0, 48.0), (15.0, 48.0)];
        let across = vec![(179.0, 1.0), (179.0, 0.0), (-179.0, 0.0), (179.0, 1.0)];
        let areas = [
            MapArea { is_dead: false, ring },
            MapArea { is_dead: true, ring: across },
            MapArea { is_dead: true, ring: Vec::new() },
        ];
        let map = svg(&[], &areas[..1]);
        assert!(map.contains("class=\"area\" d=\"M1950.0000 420.0000L1950.0000 430.0000L1970.0000 430.0000"));
        assert!(map.contains("viewBox=\"1948.5000 419.2500 23.0000 11.5000\""), "{}", &map[..90]);
        assert!(!svg(&[], &areas).contains("area-dead"), "it would cross the whole map");
    }

    #[test]
    fn kinds_are_told_apart_by_shape() {
        let places = [(16.0, 48.0)];
        let layer = |mark, name| MarkerLayer { mark, name, places: &places, records: 1 };
        let layers = [
            layer(MarkerShape::Dot, "matched"),
            layer(MarkerShape::Ring, "no match"),
            layer(MarkerShape::Cross, "failed"),
        ];
        let map = svg(&layers, &[]);
        for class in ["class=\"dot\"", "class=\"ring-at\"", "class=\"cross\""] {
            assert_eq!(map.matches(class).count(), 1, "{class}");
        }
        assert!(map.contains("1 matched, 1 no match, 1 failed"));
    }
}
