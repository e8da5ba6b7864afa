//! Points over an outline of the land.
//!
//! The outline is drawn once at a tenth of a degree, from Natural Earth (public domain), as the
//! data of one SVG path; the view is cut out around the points. Points that fall on one pixel are
//! one point, so that a page with a million matches stays small.

use std::collections::BTreeSet;
use std::fmt::Write;

/// In tenths of a degree from 180° W, 90° N.
pub(crate) const LAND: &str = include_str!("land.path");
/// Points are told apart on a grid this wide.
const GRID: f64 = 900.0;
const WORLD: (f64, f64) = (3600.0, 1800.0);

/// The map.
pub(super) fn svg(points: &[(f64, f64)]) -> String {
    let places: Vec<(f64, f64)> = points
        .iter()
        .filter(|(lon, lat)| lon.abs() <= 180.0 && lat.abs() <= 90.0)
        .map(|(lon, lat)| ((lon + 180.0) * 10.0, (90.0 - lat) * 10.0))
        .collect();
    let view = View::around(&places);
    let cell = view.width / GRID;
    let mut seen = BTreeSet::new();
    let mut dots = String::new();
    for (x, y) in &places {
        let place = (((x - view.x) / cell) as i64, ((y - view.y) / cell) as i64);
        if seen.insert(place) {
            let at = |n: i64, from: f64| from + (n as f64 + 0.5) * cell;
            let _ = write!(dots, "M{:.2} {:.2}h0", at(place.0, view.x), at(place.1, view.y));
        }
    }
    let View { x, y, width, height } = view;
    format!(
        "<svg viewBox=\"{x:.2} {y:.2} {width:.2} {height:.2}\" role=\"img\" aria-labelledby=\"map-t map-d\">\
         <title id=\"map-t\">Map of the matches</title>\
         <desc id=\"map-d\">{} points between longitude {:.2} and {:.2}, latitude {:.2} and {:.2}</desc>\
         <path class=\"land\" d=\"{}\"/><path class=\"dots\" d=\"{dots}\"/></svg>",
        places.len(),
        x / 10.0 - 180.0,
        (x + width) / 10.0 - 180.0,
        90.0 - (y + height) / 10.0,
        90.0 - y / 10.0,
        LAND.trim_end(),
    )
}

/// Lines in degrees over the land, with defects on top.
pub(crate) fn on_land(lines: &[Vec<(f64, f64)>], defects: &[(f64, f64)]) -> String {
    let turn = |(lon, lat): (f64, f64)| {
        (lon.abs() <= 180.0 && lat.abs() <= 90.0).then_some(((lon + 180.0) * 10.0, (90.0 - lat) * 10.0))
    };
    let places: Vec<(f64, f64)> = lines.iter().flatten().copied().filter_map(turn).collect();
    let view = View::close(&places);
    let land = format!("<path class=\"land\" d=\"{}\"/>", LAND.trim_end());
    drawing(&view, &land, lines, defects, turn)
}

/// Lines of any plane, with defects on top.
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
    let view = View { x: -20.0, y: -20.0, width: 1040.0, height: height + 40.0 };
    drawing(&view, "", lines, defects, turn)
}

fn drawing(
    view: &View,
    under: &str,
    lines: &[Vec<(f64, f64)>],
    defects: &[(f64, f64)],
    turn: impl Fn((f64, f64)) -> Option<(f64, f64)>,
) -> String {
    let cell = view.width / GRID;
    // A tenth of a pixel.
    let decimals = (1.0 - cell.log10()).ceil().clamp(0.0, 12.0) as usize;
    let mut seen = BTreeSet::new();
    let (mut paths, mut dots, mut marks) = (String::new(), String::new(), String::new());
    // Positions that fall on one pixel are one, so that the page stays small.
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
    let View { x, y, width, height } = view;
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

struct View {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl View {
    /// Twice as wide as high, with room around the points, never smaller than two degrees.
    fn around(places: &[(f64, f64)]) -> View {
        View::at_least(places, 20.0)
    }

    /// The same, as close as a hundredth of a degree.
    fn close(places: &[(f64, f64)]) -> View {
        View::at_least(places, 0.1)
    }

    fn at_least(places: &[(f64, f64)], least: f64) -> View {
        let fold = |get: fn(&(f64, f64)) -> f64| {
            places
                .iter()
                .map(get)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), x| (lo.min(x), hi.max(x)))
        };
        let ((left, right), (top, bottom)) = (fold(|p| p.0), fold(|p| p.1));
        if left > right {
            return View { x: 0.0, y: 0.0, width: WORLD.0, height: WORLD.1 };
        }
        let width = ((right - left) * 1.15).max((bottom - top) * 2.3).clamp(least, WORLD.0);
        let height = width / 2.0;
        let x = (f64::midpoint(left, right) - width / 2.0).clamp(0.0, WORLD.0 - width);
        let y = (f64::midpoint(top, bottom) - height / 2.0).clamp(0.0, WORLD.1 - height);
        View { x, y, width, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_holds_the_points_and_equal_points_are_one() {
        let map = svg(&[(16.37, 48.21), (16.37, 48.21), (15.44, 47.07)]);
        assert_eq!(map.matches("h0").count(), 2);
        assert!(map.contains("viewBox=\"19"), "{}", &map[..80]);
        let world = svg(&[(-179.0, -80.0), (179.0, 80.0)]);
        assert!(world.contains("viewBox=\"0.00 0.00 3600.00 1800.00\""), "{}", &world[..80]);
        for odd in [vec![], vec![(f64::NAN, 1.0)], vec![(500.0, 0.0)], vec![(180.0, -90.0)]] {
            assert!(svg(&odd).contains("viewBox"));
        }
    }
}
