//! From the pixels of the result to those of the source.
//!
//! A position goes through the affine transform of the result, the change of the system and the inverse
//! affine transform of the source. The middle step costs a hundred times more than the others, so it is
//! replaced by linear interpolation where that is accurate enough. The result is divided into cells of
//! [`CELL`] pixels. A cell is interpolated if at its middle and in the middle of its four sides the error
//! is at most half the tolerance, and if it does not cross the edge of the source; otherwise every pixel
//! of it is computed. The cells are fixed to the result, so that neither tiles nor threads change a pixel.
//!
//! Why control points on a lattice and not along each line, as GDAL does it: one exact position serves 256
//! pixels and not 20, and the error is checked in both directions.

use tidegate_geo::crs::Transform;

use crate::grid::{Affine, PixelWindow};

/// Pixels along the side of a cell.
const CELL: i64 = 32;
const HALF: i64 = CELL / 2;
/// Columns of half a cell.
const STEPS: [f64; HALF as usize] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Transforms positions in place.
pub(crate) fn apply(affine: &Affine, x: &mut [f64], y: &mut [f64]) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = affine.apply(*x, *y);
    }
}

/// The box around the positions that lie in a picture of this size, or not further than `room` outside: left,
/// top, right, bottom. If there are none, its left is infinite, and its right infinite the other way.
///
/// Without branches, so that several positions are compared at once. NaN lies nowhere.
pub(super) fn box_around(x: &[f64], y: &[f64], (width, height): (f64, f64), room: (f64, f64)) -> [f64; 4] {
    let (right_most, lowest) = (width + room.0, height + room.1);
    let (mut left, mut right) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut top, mut bottom) = (left, right);
    for (x, y) in x.iter().copied().zip(y.iter().copied()) {
        let inside = (x >= -room.0) & (y >= -room.1) & (x <= right_most) & (y <= lowest);
        let (low_x, low_y) = if inside { (x, y) } else { (f64::INFINITY, f64::INFINITY) };
        let (high_x, high_y) = if inside { (x, y) } else { (f64::NEG_INFINITY, f64::NEG_INFINITY) };
        left = if low_x < left { low_x } else { left };
        top = if low_y < top { low_y } else { top };
        right = if high_x > right { high_x } else { right };
        bottom = if high_y > bottom { high_y } else { bottom };
    }
    [left, top, right, bottom]
}

/// From pixels of the result to pixels of the source.
pub struct PixelMapping {
    /// From pixels of the result to its system.
    pub result: Affine,
    /// From the system of the source to its pixels.
    pub source: Affine,
    /// From the system of the result to that of the source, if they differ.
    pub systems: Option<Transform>,
    /// Width and height of the source.
    pub size: (u32, u32),
    /// The largest error of an interpolated position, in pixels of the source; 0 computes every pixel.
    pub tolerance: f64,
}

impl PixelMapping {
    /// Transforms positions in place, exactly. A position that has no place in the source becomes NaN.
    pub fn exact(&self, x: &mut [f64], y: &mut [f64]) {
        apply(&self.result, x, y);
        if let Some(systems) = &self.systems {
            systems.positions(x, y);
        }
        apply(&self.source, x, y);
    }

    /// The position of one pixel.
    #[must_use]
    pub fn one(&self, x: f64, y: f64) -> (f64, f64) {
        let (mut x, mut y) = ([x], [y]);
        self.exact(&mut x, &mut y);
        (x[0], y[0])
    }

    /// The positions in the source of all pixels of a part, row by row; `offset` is 0.5 for their centres
    /// and 0 for their upper left corners.
    pub(crate) fn fill(&self, part: PixelArea, offset: f64, x: &mut Vec<f64>, y: &mut Vec<f64>) {
        let len = part.width * part.height;
        if self.systems.is_none() || self.tolerance <= 0.0 {
            x.clear();
            y.clear();
            x.reserve(len);
            y.reserve(len);
            for row in 0..part.height {
                let at = (part.top + row as i64) as f64 + offset;
                x.extend((0..part.width).map(|column| (part.left + column as i64) as f64 + offset));
                y.extend(std::iter::repeat_n(at, part.width));
            }
            self.exact(x, y);
            return;
        }
        // What is left of another part is overwritten: each position is in a cell.
        x.resize(len, f64::NAN);
        y.resize(len, f64::NAN);
        let lattice = Lattice::new(self, part, offset);
        for cell_row in 0..lattice.cells.1 {
            for cell in 0..lattice.cells.0 {
                let at = lattice.place(cell, cell_row);
                if lattice.is_smooth(self, cell, cell_row) {
                    lattice.interpolate(part, at, (cell, cell_row), x, y);
                } else {
                    self.exact_cell(part, at, offset, x, y);
                }
            }
        }
    }

    /// Computes every pixel of a cell.
    fn exact_cell(
        &self,
        part: PixelArea,
        (left, top): (i64, i64),
        offset: f64,
        x: &mut [f64],
        y: &mut [f64],
    ) {
        let Some(span) = CellSpan::of(part, left, top, CELL) else { return };
        let (mut cx, mut cy) = (Vec::with_capacity(span.len()), Vec::with_capacity(span.len()));
        for row in span.rows.clone() {
            for column in span.columns.clone() {
                cx.push((part.left + column as i64) as f64 + offset);
                cy.push((part.top + row as i64) as f64 + offset);
            }
        }
        self.exact(&mut cx, &mut cy);
        let width = span.columns.len();
        for (i, row) in span.rows.enumerate() {
            let from = row * part.width + span.columns.start;
            let (to, cell) = (from..from + width, i * width..(i + 1) * width);
            if let (Some(to), Some(cell)) = (x.get_mut(to.clone()), cx.get(cell.clone())) {
                to.copy_from_slice(cell);
            }
            if let (Some(to), Some(cell)) = (y.get_mut(to), cy.get(cell)) {
                to.copy_from_slice(cell);
            }
        }
    }
}

/// A window with signed corners, and one more column and row where corners of pixels are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PixelArea {
    pub(crate) left: i64,
    pub(crate) top: i64,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl PixelArea {
    /// A window, larger by this many columns and rows.
    pub(crate) fn of(window: PixelWindow, more: usize) -> PixelArea {
        PixelArea {
            left: i64::from(window.x),
            top: i64::from(window.y),
            width: window.width as usize + more,
            height: window.height as usize + more,
        }
    }
}

/// Where a part of a window lies in it.
#[derive(Clone, Copy)]
pub(super) struct PartPlace {
    pub(super) window: PixelWindow,
    pub(super) part: PixelWindow,
    /// Positions in a row.
    pub(super) stride: usize,
}

impl PartPlace {
    /// The first pixel of a row of the part.
    pub(super) fn start(&self, row: usize) -> usize {
        ((self.part.y - self.window.y) as usize + row) * self.window.width as usize
            + (self.part.x - self.window.x) as usize
    }
}

/// The halves of a window, across its longer side.
pub(super) fn halves(window: PixelWindow) -> [PixelWindow; 2] {
    let PixelWindow { x, y, width, height } = window;
    if width >= height {
        let half = width / 2;
        [PixelWindow::new(x, y, half, height), PixelWindow::new(x + half, y, width - half, height)]
    } else {
        let half = height / 2;
        [PixelWindow::new(x, y, width, half), PixelWindow::new(x, y + half, width, height - half)]
    }
}

/// The columns and rows of a part that a square covers.
struct CellSpan {
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
}

impl CellSpan {
    fn of(part: PixelArea, left: i64, top: i64, side: i64) -> Option<CellSpan> {
        let clamp = |at: i64, start: i64, len: usize| (at - start).clamp(0, len as i64) as usize;
        let columns =
            clamp(left, part.left, part.width)..clamp(left.saturating_add(side), part.left, part.width);
        let rows = clamp(top, part.top, part.height)..clamp(top.saturating_add(side), part.top, part.height);
        (!columns.is_empty() && !rows.is_empty()).then_some(CellSpan { columns, rows })
    }

    fn len(&self) -> usize {
        self.columns.len() * self.rows.len()
    }
}

/// Exact positions at every half cell.
struct Lattice {
    /// First column and row, multiples of [`CELL`].
    start: (i64, i64),
    cells: (usize, usize),
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Lattice {
    fn new(mapping: &PixelMapping, part: PixelArea, offset: f64) -> Lattice {
        let start = (part.left.div_euclid(CELL) * CELL, part.top.div_euclid(CELL) * CELL);
        let count = |first: i64, at: i64, len: usize| {
            usize::try_from((at + len as i64 - first + CELL - 1) / CELL).unwrap_or(0)
        };
        let cells = (count(start.0, part.left, part.width), count(start.1, part.top, part.height));
        let (columns, rows) = (2 * cells.0 + 1, 2 * cells.1 + 1);
        let (mut x, mut y) = (Vec::with_capacity(columns * rows), Vec::with_capacity(columns * rows));
        for row in 0..rows {
            for column in 0..columns {
                x.push((start.0 + column as i64 * HALF) as f64 + offset);
                y.push((start.1 + row as i64 * HALF) as f64 + offset);
            }
        }
        mapping.exact(&mut x, &mut y);
        Lattice { start, cells, x, y }
    }

    fn place(&self, cell: usize, row: usize) -> (i64, i64) {
        (self.start.0 + cell as i64 * CELL, self.start.1 + row as i64 * CELL)
    }

    fn node(&self, column: usize, row: usize) -> (f64, f64) {
        let at = row * (2 * self.cells.0 + 1) + column;
        let number = |all: &[f64]| all.get(at).copied().unwrap_or(f64::NAN);
        (number(&self.x), number(&self.y))
    }

    /// Whether interpolation between the corners is accurate, and the cell lies on one side of each edge
    /// of the source.
    fn is_smooth(&self, mapping: &PixelMapping, cell: usize, row: usize) -> bool {
        let (column, row) = (2 * cell, 2 * row);
        let [a, b, c, d] = [(0, 0), (2, 0), (0, 2), (2, 2)].map(|(i, j)| self.node(column + i, row + j));
        let middle = |p: (f64, f64), q: (f64, f64)| ((p.0 + q.0) / 2.0, (p.1 + q.1) / 2.0);
        let checks = [
            ((1, 0), middle(a, b)),
            ((0, 1), middle(a, c)),
            ((2, 1), middle(b, d)),
            ((1, 2), middle(c, d)),
            ((1, 1), middle(middle(a, b), middle(c, d))),
        ];
        let near = checks.into_iter().all(|((i, j), guess)| {
            let (x, y) = self.node(column + i, row + j);
            // A comparison with NaN is false.
            (x - guess.0).abs().max((y - guess.1).abs()) <= mapping.tolerance / 2.0
                && (x - guess.0).is_finite()
                && (y - guess.1).is_finite()
        });
        near && {
            let one_side = |p: [f64; 4], edge: f64| {
                let slack = mapping.tolerance;
                p.iter().all(|p| *p < edge - slack) || p.iter().all(|p| *p > edge + slack)
            };
            let (width, height) = (f64::from(mapping.size.0), f64::from(mapping.size.1));
            let (xs, ys) = ([a.0, b.0, c.0, d.0], [a.1, b.1, c.1, d.1]);
            one_side(xs, 0.0) && one_side(xs, width) && one_side(ys, 0.0) && one_side(ys, height)
        }
    }

    /// Interpolates the four quarters of a cell, each between its own exact corners.
    fn interpolate(
        &self,
        part: PixelArea,
        (left, top): (i64, i64),
        (cell, cell_row): (usize, usize),
        x: &mut [f64],
        y: &mut [f64],
    ) {
        for (i, j) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let (qx, qy) = (left + i as i64 * HALF, top + j as i64 * HALF);
            let Some(span) = CellSpan::of(part, qx, qy, HALF) else { continue };
            let (column, row) = (2 * cell + i, 2 * cell_row + j);
            let [a, b, c, d] = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(i, j)| self.node(column + i, row + j));
            for at_row in span.rows.clone() {
                let v = (part.top + at_row as i64 - qy) as f64 / HALF as f64;
                let (x0, x1) = (a.0 + (c.0 - a.0) * v, b.0 + (d.0 - b.0) * v);
                let (y0, y1) = (a.1 + (c.1 - a.1) * v, b.1 + (d.1 - b.1) * v);
                let (step_x, step_y) = ((x1 - x0) / HALF as f64, (y1 - y0) / HALF as f64);
                let from = at_row * part.width;
                let run = from + span.columns.start..from + span.columns.end;
                let (Some(xs), Some(ys)) = (x.get_mut(run.clone()), y.get_mut(run)) else { continue };
                let first = usize::try_from(part.left + span.columns.start as i64 - qx).unwrap_or(0);
                for ((x, y), u) in xs.iter_mut().zip(ys).zip(STEPS.iter().skip(first)) {
                    *x = x0 + step_x * u;
                    *y = y0 + step_y * u;
                }
            }
        }
    }
}
