//! Geometries in pixels of a grid, ready to be filled in any window of it.

use tidegate_geo::crs::Transform;
use tidegate_geo::wkb::{Cursor, Event, Shape};

use super::fill::{PixelFrame, Spot, fill_area, fill_line, fill_point, fill_touched};
use crate::error::RasterError;
use crate::grid::{Affine, PixelWindow};
use crate::warp::apply;

/// Rows that share a list of what touches them.
const BUCKET: i64 = 512;
/// Positions of all geometries: 384 MB of memory.
const SPOTS_MAX: usize = 24 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShapeForm {
    Point,
    Line,
    Area,
}

/// Twice the area of a ring, greater than 0 if it runs against the clock with y upwards.
fn doubled_area(ring: &[Spot]) -> f64 {
    let Some([x0, y0]) = ring.first() else { return 0.0 };
    ring.windows(2)
        .map(|pair| match pair {
            [[x1, y1], [x2, y2]] => (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0),
            _ => 0.0,
        })
        .sum()
}

/// How near to a border of pixels, in pixels, a position lies on it: what rounding of coordinates leaves.
const BORDER: f64 = 1e-6;

/// A geometry that is filled at once.
struct ShapePiece {
    form: ShapeForm,
    /// Its parts: rings, lines or points.
    first: usize,
    end: usize,
    /// Smallest and largest column and row that it touches.
    columns: (i64, i64),
    rows: (i64, i64),
    feature: u32,
}

/// Geometries in pixels of a grid.
pub(crate) struct PixelShapes {
    to_pixels: Affine,
    height: i64,
    spots: Vec<Spot>,
    /// Where each part ends among the spots.
    ends: Vec<usize>,
    pieces: Vec<ShapePiece>,
    buckets: Vec<Vec<u32>>,
    features: u32,
}

impl PixelShapes {
    /// None yet, in the pixels of a grid of this height; `to_pixels` is from x and y to column and row.
    pub(crate) fn new(to_pixels: Affine, height: u32) -> PixelShapes {
        let buckets = (i64::from(height) + BUCKET - 1) / BUCKET;
        PixelShapes {
            to_pixels,
            height: i64::from(height),
            spots: Vec::new(),
            ends: Vec::new(),
            pieces: Vec::new(),
            buckets: (0..buckets).map(|_| Vec::new()).collect(),
            features: 0,
        }
    }

    /// Adds the geometry of a feature; whether it was added. One of whose positions has no place in the
    /// system of the grid is not.
    ///
    /// # Errors
    /// If there are too many positions.
    pub(crate) fn add(&mut self, wkb: &[u8], systems: Option<&Transform>) -> Result<bool, RasterError> {
        let (spots, ends, pieces) = (self.spots.len(), self.ends.len(), self.pieces.len());
        self.walk(wkb);
        if self.spots.len() > SPOTS_MAX {
            return Err(RasterError::too_large(format!(
                "the geometries have more than {SPOTS_MAX} positions; choose features with --where"
            )));
        }
        if !self.place(spots, systems) {
            self.spots.truncate(spots);
            self.ends.truncate(ends);
            self.pieces.truncate(pieces);
            return Ok(false);
        }
        for at in pieces..self.pieces.len() {
            self.settle(at);
        }
        self.features += 1;
        Ok(true)
    }

    fn walk(&mut self, wkb: &[u8]) {
        let mut cursor = Cursor::default();
        // The piece that is open, and how many geometries inside it.
        let (mut open, mut depth): (Option<(ShapeForm, usize)>, usize) = (None, 0);
        while let Ok(Some(event)) = cursor.next(wkb) {
            match event {
                Event::Begin { shape, .. } => {
                    if open.is_some() {
                        depth += 1;
                        continue;
                    }
                    let form = match shape {
                        Shape::Point | Shape::MultiPoint => ShapeForm::Point,
                        Shape::LineString | Shape::MultiLineString => ShapeForm::Line,
                        Shape::Polygon | Shape::MultiPolygon => ShapeForm::Area,
                        Shape::GeometryCollection => continue,
                    };
                    open = Some((form, self.ends.len()));
                }
                Event::Coords(run) => {
                    let from = self.spots.len();
                    self.spots.extend(run.xy(wkb).map(|(x, y)| [x, y]));
                    let added = self.spots.get_mut(from..).unwrap_or_default();
                    // GDAL takes lines from their end and rings clockwise, which decides ties.
                    match open {
                        Some((ShapeForm::Line, _)) => added.reverse(),
                        Some((ShapeForm::Area, _)) if doubled_area(added) > 0.0 => added.reverse(),
                        _ => {}
                    }
                    self.ends.push(self.spots.len());
                }
                Event::End(_) if depth > 0 => depth -= 1,
                Event::End(_) => {
                    if let Some((form, first)) = open.take() {
                        let (end, feature) = (self.ends.len(), self.features);
                        self.pieces.push(ShapePiece {
                            form,
                            first,
                            end,
                            columns: (0, 0),
                            rows: (0, 0),
                            feature,
                        });
                    }
                }
            }
        }
    }

    /// Brings the spots from one on to pixels; whether all have a place. An empty point has none and needs none.
    fn place(&mut self, from: usize, systems: Option<&Transform>) -> bool {
        let spots = self.spots.get_mut(from..).unwrap_or_default();
        let (mut x, mut y): (Vec<f64>, Vec<f64>) = spots.iter().map(|[x, y]| (*x, *y)).unzip();
        if let Some(systems) = systems {
            systems.positions(&mut x, &mut y);
        }
        apply(&self.to_pixels, &mut x, &mut y);
        let mut all = true;
        for (spot, (x, y)) in spots.iter_mut().zip(x.into_iter().zip(y)) {
            let is_empty = spot[0].is_nan() && spot[1].is_nan();
            all &= is_empty || (x.is_finite() && y.is_finite());
            *spot = [x, y];
        }
        all
    }

    /// Finds out what a piece touches.
    fn settle(&mut self, at: usize) {
        let Some(piece) = self.pieces.get(at) else { return };
        let start = piece.first.checked_sub(1).and_then(|i| self.ends.get(i)).copied().unwrap_or(0);
        let end = self.ends.get(piece.end.wrapping_sub(1)).copied().unwrap_or(start);
        let mut found: Option<[f64; 4]> = None;
        for [x, y] in self.spots.get(start..end).unwrap_or_default() {
            if x.is_nan() || y.is_nan() {
                continue;
            }
            let [left, top, right, bottom] = found.get_or_insert([*x, *y, *x, *y]);
            (*left, *right) = (left.min(*x), right.max(*x));
            (*top, *bottom) = (top.min(*y), bottom.max(*y));
        }
        // A border of pixels belongs to what lies before it. One pixel more, for what is drawn beyond it.
        let span = |low: f64, high: f64| {
            let first = (low + BORDER).floor();
            let last = ((high - BORDER).ceil() - 1.0).max(first);
            (first as i64 - 1, last as i64 + 1)
        };
        let (columns, rows) = match found {
            Some([left, top, right, bottom]) => (span(left, right), span(top, bottom)),
            None => ((0, -1), (0, -1)),
        };
        if let Some(piece) = self.pieces.get_mut(at) {
            (piece.columns, piece.rows) = (columns, rows);
        }
        if rows.1 >= 0 && rows.0 < self.height && rows.0 <= rows.1 {
            let (first, last) = (rows.0.max(0) / BUCKET, rows.1.min(self.height - 1) / BUCKET);
            for bucket in first..=last {
                if let Some(list) = self.buckets.get_mut(bucket as usize) {
                    list.push(at as u32);
                }
            }
        }
    }

    /// The columns and rows that the geometries touch, within a grid of this size; nothing if none.
    pub(crate) fn touched(&self, width: u32) -> Option<PixelWindow> {
        let mut found: Option<[i64; 4]> = None;
        for piece in &self.pieces {
            if piece.rows.0 > piece.rows.1 {
                continue;
            }
            // Without the pixel more.
            let here = [piece.columns.0 + 1, piece.rows.0 + 1, piece.columns.1 - 1, piece.rows.1 - 1];
            let all = found.get_or_insert(here);
            *all = [all[0].min(here[0]), all[1].min(here[1]), all[2].max(here[2]), all[3].max(here[3])];
        }
        let [left, top, right, bottom] = found?;
        let whole = |low: i64, high: i64, len: i64| {
            let (low, high) = (low.max(0), high.min(len - 1));
            (low <= high).then_some((low as u32, (high - low + 1) as u32))
        };
        let (x, width) = whole(left, right, i64::from(width))?;
        let (y, height) = whole(top, bottom, self.height)?;
        Some(PixelWindow { x, y, width, height })
    }

    /// Calls a function with each run of pixels in a window: feature, row and columns of the window. The
    /// features come in their order; one may come twice for a pixel.
    pub(crate) fn fill(
        &self,
        window: PixelWindow,
        all_touched: bool,
        mut see: impl FnMut(u32, usize, std::ops::Range<usize>),
    ) {
        let frame = PixelFrame {
            columns: i64::from(window.x)..i64::from(window.right()),
            rows: i64::from(window.y)..i64::from(window.bottom()),
        };
        let (first, last) = (frame.rows.start / BUCKET, (frame.rows.end - 1).max(0) / BUCKET);
        let lists = (first..=last).filter_map(|bucket| self.buckets.get(bucket as usize));
        let mut wanted: Vec<u32> = lists.flatten().copied().collect();
        if first != last {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let mut crossings = Vec::new();
        for piece in wanted.into_iter().filter_map(|at| self.pieces.get(at as usize)) {
            let apart = piece.columns.1 < frame.columns.start
                || piece.columns.0 >= frame.columns.end
                || piece.rows.1 < frame.rows.start
                || piece.rows.0 >= frame.rows.end;
            if apart {
                continue;
            }
            let feature = piece.feature;
            let mut run = |row: i64, columns: std::ops::Range<i64>| {
                let at = |column: i64| (column - frame.columns.start) as usize;
                see(feature, (row - frame.rows.start) as usize, at(columns.start)..at(columns.end));
            };
            let parts = || (piece.first..piece.end).map(|part| self.part(part));
            match piece.form {
                ShapeForm::Point => parts().flatten().for_each(|spot| fill_point(*spot, &frame, &mut run)),
                ShapeForm::Line if all_touched => {
                    parts().for_each(|line| fill_touched(line, false, &frame, &mut run));
                }
                ShapeForm::Line => parts().for_each(|line| fill_line(line, &frame, &mut run)),
                ShapeForm::Area => {
                    fill_area(parts(), &frame, &mut crossings, &mut run);
                    if all_touched {
                        parts().for_each(|ring| fill_touched(ring, true, &frame, &mut run));
                    }
                }
            }
        }
    }

    fn part(&self, part: usize) -> &[Spot] {
        let start = part.checked_sub(1).and_then(|i| self.ends.get(i)).copied().unwrap_or(0);
        self.ends.get(part).and_then(|end| self.spots.get(start..*end)).unwrap_or_default()
    }
}
