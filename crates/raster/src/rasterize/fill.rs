//! Which pixels a geometry covers, by the rules of `gdal_rasterize`.
//!
//! - An area covers the pixels whose centre lies in it. Along each row the crossings of the edges with the
//!   line through the centres are rounded to pixels and paired; of an edge that runs along that line, one
//!   that goes west is filled. All rings of a geometry are paired together, so that holes stay free.
//! - A line covers the pixels of Bresenham's algorithm between the pixels of its positions.
//! - A point covers the pixel that it lies in.
//! - All touched: an area also covers, and a line instead covers, every pixel that its edges pass through.
//!   An edge that is less than 0.01 pixels wide or high counts as vertical or horizontal, and one that an
//!   area has along the border of pixels covers none of them.
//!
//! Every function gives runs of pixels within a window, in order of nothing, and may give one twice.

use std::ops::Range;

/// A position in pixels.
pub(crate) type Spot = [f64; 2];

/// A part of the raster: columns and rows.
#[derive(Clone, Debug)]
pub(crate) struct PixelFrame {
    pub(crate) columns: Range<i64>,
    pub(crate) rows: Range<i64>,
}

impl PixelFrame {
    /// Hands on the part of a run that lies inside.
    #[inline]
    fn emit(&self, row: i64, columns: Range<i64>, see: &mut impl FnMut(i64, Range<i64>)) {
        let (start, end) = (columns.start.max(self.columns.start), columns.end.min(self.columns.end));
        if start < end && self.rows.contains(&row) {
            see(row, start..end);
        }
    }
}

/// Beyond this a position is as far away as at it. Coordinates of pixels are 31 bits.
const FAR: f64 = 2_147_483_647.0;

#[inline]
fn rounded(x: f64) -> i64 {
    // A cast stays within the limits.
    (x + 0.5).floor().clamp(-FAR, FAR) as i64
}

/// Row and column as one number, which is sorted twice as fast: the row above, and a column of 33 bits that begins
/// at -2^31.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Crossing(u64);

impl Crossing {
    const COLUMN_BITS: u32 = 33;

    /// Rows are those of a frame, which are never below 0, columns of 31 bits and a sign.
    #[inline]
    fn new(row: i64, column: i64) -> Crossing {
        Crossing((row as u64) << Crossing::COLUMN_BITS | (column + (1 << 31)) as u64)
    }

    #[inline]
    fn row(self) -> i64 {
        (self.0 >> Crossing::COLUMN_BITS) as i64
    }

    #[inline]
    fn column(self) -> i64 {
        (self.0 & ((1 << Crossing::COLUMN_BITS) - 1)) as i64 - (1 << 31)
    }
}

/// The pixels whose centres lie within the rings. `crossings` is room that is used again.
pub(crate) fn fill_area<'a>(
    rings: impl Iterator<Item = &'a [Spot]>,
    frame: &PixelFrame,
    crossings: &mut Vec<Crossing>,
    mut see: impl FnMut(i64, Range<i64>),
) {
    crossings.clear();
    for ring in rings {
        let Some(last) = ring.last() else { continue };
        let mut before = last;
        for here in ring {
            let ([x1, y1], [x2, y2]) = (*before, *here);
            before = here;
            if y1 == y2 {
                // Along the line through the centres, to the west.
                let row = y1 - 0.5;
                if x1 > x2 && row.fract() == 0.0 {
                    frame.emit(row as i64, rounded(x2)..rounded(x1), &mut see);
                }
                continue;
            }
            let (low, high) = if y1 < y2 { ([x1, y1], [x2, y2]) } else { ([x2, y2], [x1, y1]) };
            // Rows whose centre is at or below the upper end, and above the lower one.
            let first = ((low[1] - 0.5).ceil().max(frame.rows.start as f64)) as i64;
            let end = ((high[1] - 0.5).ceil().min(frame.rows.end as f64)) as i64;
            for row in first..end {
                let y = row as f64 + 0.5;
                let x = (y - low[1]) * (high[0] - low[0]) / (high[1] - low[1]) + low[0];
                crossings.push(Crossing::new(row, rounded(x)));
            }
        }
    }
    crossings.sort_unstable();
    let mut rest = crossings.as_slice();
    while let [start, end, after @ ..] = rest {
        if start.row() == end.row() {
            frame.emit(start.row(), start.column()..end.column(), &mut see);
            rest = after;
        } else {
            // An odd one: the ring is not closed by its numbers.
            rest = rest.get(1..).unwrap_or_default();
        }
    }
}

/// The pixel that a point lies in.
pub(crate) fn fill_point([x, y]: Spot, frame: &PixelFrame, mut see: impl FnMut(i64, Range<i64>)) {
    if x.is_finite() && y.is_finite() {
        let column = x.floor().clamp(-FAR, FAR) as i64;
        frame.emit(y.floor().clamp(-FAR, FAR) as i64, column..column + 1, &mut see);
    }
}

fn is_near([x, y]: Spot) -> bool {
    x.abs() <= FAR && y.abs() <= FAR
}

/// Bresenham's pixels of a line. Only those within the frame are computed, each from the start of its
/// segment, so that the frame does not matter. Positions beyond 31 bits are left out, as in GDAL.
pub(crate) fn fill_line(line: &[Spot], frame: &PixelFrame, mut see: impl FnMut(i64, Range<i64>)) {
    for pair in line.windows(2) {
        let [a, b] = *pair else { continue };
        if !is_near(a) || !is_near(b) {
            continue;
        }
        let [(x, y), (to_x, to_y)] = [a, b].map(|[x, y]| (x.floor() as i64, y.floor() as i64));
        let (dx, dy) = ((to_x - x).abs(), (to_y - y).abs());
        let (step_x, step_y) = (if x > to_x { -1 } else { 1 }, if y > to_y { -1 } else { 1 });
        let flat = dx >= dy;
        let (long, short) = if flat { (dx, dy) } else { (dy, dx) };
        // The steps at which the longer side is inside.
        let (from, step, range) = if flat { (x, step_x, &frame.columns) } else { (y, step_y, &frame.rows) };
        let (first, last) = if step > 0 {
            (range.start - from, range.end - 1 - from)
        } else {
            (from - (range.end - 1), from - range.start)
        };
        for k in first.max(0)..=last.min(long) {
            // The shorter side after k steps.
            let aside = if long == 0 || k == 0 {
                0
            } else {
                let (k, short, long) = (i128::from(k), i128::from(short), i128::from(long));
                let above = 2 * short * k - long;
                if above > 0 { ((above + 2 * long - 1) / (2 * long)) as i64 } else { 0 }
            };
            let (column, row) = if flat {
                (x + step_x * k, y + step_y * aside)
            } else {
                (x + step_x * aside, y + step_y * k)
            };
            frame.emit(row, column..column + 1, &mut see);
        }
    }
}

/// Every pixel that a line passes through; `of_area` tells that it is the edge of an area.
pub(crate) fn fill_touched(
    line: &[Spot],
    of_area: bool,
    frame: &PixelFrame,
    mut see: impl FnMut(i64, Range<i64>),
) {
    const NARROW: f64 = 0.01;
    const SLACK: f64 = 1e-4;
    let on_border =
        |a: f64, b: f64| of_area && (a - a.round()).abs() < SLACK && (b - b.round()).abs() < SLACK;
    for pair in line.windows(2) {
        let [mut a, mut b] = *pair else { continue };
        if !is_near(a) || !is_near(b) {
            continue;
        }
        if a[0] > b[0] {
            (a, b) = (b, a);
        }
        if (a[0] - b[0]).abs() < NARROW {
            if !on_border(a[0], b[0]) {
                let column = b[0].floor() as i64;
                let (top, bottom) = (a[1].min(b[1]), a[1].max(b[1]));
                let first = (top.floor() as i64).max(frame.rows.start);
                let last = ((bottom - SLACK).floor() as i64).min(frame.rows.end - 1);
                for row in first..=last {
                    frame.emit(row, column..column + 1, &mut see);
                }
            }
            continue;
        }
        if (a[1] - b[1]).abs() < NARROW {
            if !on_border(a[1], b[1]) {
                let end = (b[0] - SLACK).floor() as i64 + 1;
                frame.emit(a[1].floor() as i64, a[0].floor() as i64..end, &mut see);
            }
            continue;
        }
        sloped(a, b, frame, &mut see);
    }
}

/// The pixels of a sloped segment, column by column: those between the rows at which it enters and leaves.
fn sloped(a: Spot, b: Spot, frame: &PixelFrame, see: &mut impl FnMut(i64, Range<i64>)) {
    let slope = (b[1] - a[1]) / (b[0] - a[0]);
    let first = (a[0].floor() as i64).max(frame.columns.start);
    let last = (b[0].ceil() as i64 - 1).min(frame.columns.end - 1);
    for column in first..=last {
        let enter = if column as f64 <= a[0] { a[1] } else { a[1] + (column as f64 - a[0]) * slope };
        let leave =
            if (column + 1) as f64 >= b[0] { b[1] } else { a[1] + ((column + 1) as f64 - a[0]) * slope };
        let (top, bottom) = if slope > 0.0 {
            // What only ends on a border does not enter the next row.
            (enter.floor() as i64, (leave.ceil() as i64 - 1).max(enter.floor() as i64))
        } else {
            (leave.floor() as i64, enter.floor() as i64)
        };
        for row in top.max(frame.rows.start)..=bottom.min(frame.rows.end - 1) {
            frame.emit(row, column..column + 1, see);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> PixelFrame {
        PixelFrame { columns: 0..8, rows: 0..6 }
    }

    /// The pixels, drawn.
    fn drawn(paint: impl FnOnce(&mut dyn FnMut(i64, Range<i64>))) -> Vec<String> {
        let mut rows = vec![vec!['.'; 8]; 6];
        paint(&mut |row, columns| columns.for_each(|x| rows[row as usize][x as usize] = '#'));
        rows.into_iter().map(|row| row.into_iter().collect()).collect()
    }

    #[test]
    fn crossings_keep_their_order_to_the_limits() {
        let far = FAR as i64;
        let all = [(0, -far), (0, -1), (0, 0), (0, far), (1, -far), (far, -7), (far, far)];
        let made = all.map(|(row, column)| Crossing::new(row, column));
        assert!(made.is_sorted());
        assert_eq!(made.map(|one| (one.row(), one.column())), all);
    }

    #[test]
    fn an_area_covers_the_centres_within_it() {
        let outer: &[Spot] = &[[1.0, 1.0], [6.4, 1.0], [6.4, 5.0], [1.0, 5.0], [1.0, 1.0]];
        let hole: &[Spot] = &[[2.0, 2.0], [2.0, 4.0], [4.6, 4.0], [4.6, 2.0], [2.0, 2.0]];
        let got = drawn(|see| fill_area([outer, hole].into_iter(), &whole(), &mut Vec::new(), see));
        assert_eq!(got, ["........", ".#####..", ".#...#..", ".#...#..", ".#####..", "........"]);
    }

    #[test]
    fn lines_are_those_of_bresenham_and_do_not_depend_on_the_frame() {
        let line: &[Spot] = &[[0.5, 0.5], [7.5, 3.5], [2.5, 5.5]];
        let got = drawn(|see| fill_line(line, &whole(), see));
        assert_eq!(got[..3], ["##......", "..##....", "....##.."]);
        // Tile by tile the same pixels come.
        for size in [1, 2, 3] {
            let parts = drawn(|see| {
                for top in (0..6).step_by(size) {
                    for left in (0..8).step_by(size) {
                        let frame = PixelFrame {
                            columns: left as i64..(left + size).min(8) as i64,
                            rows: top as i64..(top + size).min(6) as i64,
                        };
                        fill_line(line, &frame, &mut *see);
                    }
                }
            });
            assert_eq!(parts, got);
        }
    }

    #[test]
    fn touched_pixels_are_all_that_a_line_passes() {
        let got = drawn(|see| fill_touched(&[[0.2, 0.5], [3.8, 2.6]], false, &whole(), see));
        assert_eq!(got, ["##......", ".##.....", "..##....", "........", "........", "........"]);
        let got = drawn(|see| fill_touched(&[[5.0, 0.0], [5.0, 3.0]], true, &whole(), see));
        assert_eq!(
            got,
            [".".repeat(8), ".".repeat(8), ".".repeat(8), ".".repeat(8), ".".repeat(8), ".".repeat(8)]
        );
        let got = drawn(|see| fill_touched(&[[5.0, 0.0], [5.0, 3.0]], false, &whole(), see));
        assert_eq!(got[2], ".....#..");
    }

    #[test]
    fn far_away_and_unnumbered_positions_cost_nothing() {
        let line: &[Spot] = &[[-1e9, -1e9], [1e9, 1e9], [f64::NAN, 3.0], [1e300, 0.0]];
        assert_eq!(drawn(|see| fill_line(line, &whole(), see))[3], "...#....");
        assert_eq!(drawn(|see| fill_touched(line, false, &whole(), see))[3], "...#....");
        let ring: &[Spot] = &[[-1e300, -1e300], [1e300, -1e300], [1e300, 1e300], [f64::NAN, 1e300]];
        drawn(|see| fill_area([ring].into_iter(), &whole(), &mut Vec::new(), see));
        drawn(|see| fill_point([f64::NAN, 1.0], &whole(), see));
    }
}
