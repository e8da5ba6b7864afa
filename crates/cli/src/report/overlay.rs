//! What lies over the map: a small map of the world that shows where the view is, and the number of
//! records where several are drawn as one.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::map::{MapView, WORLD};

/// The share of the world's width from which on a map needs no inset.
const INSET_BELOW: f64 = 0.5;
/// The width of the inset, as a share of the map.
const INSET_WIDTH: f64 = 0.2;
/// The smallest frame that can be seen in the inset, in its own units.
const FRAME_MIN: f64 = 60.0;
/// The most counts on a map; more would hide it.
const COUNTS_MAX: usize = 60;

/// The world in the corner with the fewest points, with a frame where the view is. The land is that
/// of the map, drawn a second time.
pub(super) fn inset(view: &MapView, places: &[(f64, f64)]) -> String {
    if view.width > WORLD.0 * INSET_BELOW {
        return String::new();
    }
    let (width, margin) = (view.width * INSET_WIDTH, view.width * 0.012);
    let height = width / 2.0;
    let left = view.x + margin;
    let right = view.x + view.width - margin - width;
    let top = view.y + margin;
    // The degrees are named along the lower edge.
    let bottom = view.y + view.height - 2.5 * margin - height;
    let covered = |(x, y): (f64, f64)| {
        let inside = |p: &&(f64, f64)| p.0 >= x && p.0 <= x + width && p.1 >= y && p.1 <= y + height;
        places.iter().filter(inside).count()
    };
    let corners = [(right, bottom), (right, top), (left, top), (left, bottom)];
    let (x, y) = corners.into_iter().min_by_key(|corner| covered(*corner)).unwrap_or((right, bottom));
    let (wide, high) = (view.width.max(FRAME_MIN), view.height.max(FRAME_MIN));
    let (frame_x, frame_y) = (view.x + (view.width - wide) / 2.0, view.y + (view.height - high) / 2.0);
    format!(
        "<svg class=\"inset\" aria-hidden=\"true\" x=\"{x:.4}\" y=\"{y:.4}\" width=\"{width:.4}\" height=\"{height:.4}\" viewBox=\"0 0 {0} {1}\">\
         <rect class=\"sea\" width=\"{0}\" height=\"{1}\"/><use href=\"#land\"/>\
         <rect class=\"frame\" x=\"{frame_x:.1}\" y=\"{frame_y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"/>\
         <rect class=\"edge\" width=\"{0}\" height=\"{1}\"/></svg>",
        WORLD.0, WORLD.1
    )
}

/// The number of records at positions where several are drawn as one, the largest first, each where
/// it covers no other number. `about` says that the points are only a part of the records.
pub(super) fn counts(view: &MapView, cells: &BTreeMap<(i64, i64), f64>, cell: f64, about: bool) -> String {
    let size = view.width / 80.0;
    let mut many: Vec<((i64, i64), u64)> =
        cells.iter().map(|(at, n)| (*at, n.round() as u64)).filter(|(_, n)| *n > 1).collect();
    many.sort_by_key(|(at, n)| (std::cmp::Reverse(*n), *at));
    let mut drawn: Vec<(f64, f64, f64)> = Vec::new();
    let mut texts = String::new();
    for ((across, down), n) in many {
        if drawn.len() == COUNTS_MAX {
            break;
        }
        let text = if about { format!("≈{n}") } else { n.to_string() };
        let x = view.x + (across as f64 + 5.0) * cell;
        let y = view.y + (down as f64 - 4.0) * cell;
        let width = size * 0.62 * text.chars().count() as f64;
        let near = |(a, b, w): &(f64, f64, f64)| x < a + w && *a < x + width && (y - b).abs() < size;
        if !drawn.iter().any(near) {
            let _ = write!(texts, "<text x=\"{x:.4}\" y=\"{y:.4}\">{text}</text>");
            drawn.push((x, y, width));
        }
    }
    if texts.is_empty() {
        return texts;
    }
    format!("<g class=\"counts\" font-size=\"{size:.4}\" stroke-width=\"{:.4}\">{texts}</g>", size / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inset_is_where_no_data_is() {
        let view = MapView { x: 1900.0, y: 400.0, width: 100.0, height: 50.0 };
        assert!(inset(&view, &[]).contains("x=\"1978.8000\""), "{}", inset(&view, &[]));
        let lower_right = [(1990.0, 440.0), (1991.0, 441.0)];
        assert!(inset(&view, &lower_right).contains("x=\"1978.8000\" y=\"401.2000\""));
        let world = MapView { x: 0.0, y: 0.0, width: WORLD.0, height: WORLD.1 };
        assert_eq!(inset(&world, &[]), "");
    }

    #[test]
    fn numbers_do_not_cover_each_other() {
        let view = MapView { x: 0.0, y: 0.0, width: 900.0, height: 450.0 };
        let cells = BTreeMap::from([((10, 10), 7.0), ((11, 10), 3.0), ((400, 200), 2.0), ((500, 200), 1.0)]);
        let text = counts(&view, &cells, 1.0, false);
        assert!(text.contains(">7<") && text.contains(">2<") && !text.contains(">3<"), "{text}");
        assert!(!text.contains(">1<"), "one record is its own number: {text}");
        assert!(counts(&view, &cells, 1.0, true).contains(">≈7<"));
        assert_eq!(counts(&view, &BTreeMap::new(), 1.0, false), "");
    }
}
