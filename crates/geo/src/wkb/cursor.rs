//! A walk through canonical well-known binary that borrows nothing.

use std::ops::Range;

use tidegate_core::Code;

use super::{DEPTH_MAX, Dim, Shape};
use crate::error::Problem;

/// A run of positions, by its place in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    start: usize,
    /// How many positions.
    pub count: usize,
    /// What each holds.
    pub dim: Dim,
}

impl Run {
    /// The only run of a point, a line or a polygon without holes, in two dimensions. Most
    /// geometries are one, and need no walk.
    #[inline]
    pub(crate) fn only(wkb: &[u8]) -> Option<Run> {
        let (start, count) = match wkb {
            [1, 1, 0, 0, 0, ..] => (5, 1),
            [1, 2, 0, 0, 0, a, b, c, d, ..] => (9, u32::from_le_bytes([*a, *b, *c, *d])),
            [1, 3, 0, 0, 0, 1, 0, 0, 0, a, b, c, d, ..] => (13, u32::from_le_bytes([*a, *b, *c, *d])),
            _ => return None,
        };
        let run = Run { start, count: count as usize, dim: Dim::Xy };
        (run.range().end == wkb.len()).then_some(run)
    }

    /// The bytes of the run.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start..self.start + self.count * self.dim.size() * 8
    }

    /// The positions, x and y.
    #[inline]
    pub fn xy(self, wkb: &[u8]) -> impl DoubleEndedIterator<Item = (f64, f64)> + ExactSizeIterator {
        let size = self.dim.size() * 8;
        wkb.get(self.range()).unwrap_or_default().chunks_exact(size).map(|position| {
            let (x, rest) = position.split_first_chunk().unwrap_or((&[0; 8], &[]));
            let (y, _) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
            (f64::from_le_bytes(*x), f64::from_le_bytes(*y))
        })
    }

    /// The positions with all their numbers; the unused ones are NaN.
    pub fn all(self, wkb: &[u8]) -> impl DoubleEndedIterator<Item = [f64; 4]> + ExactSizeIterator {
        let size = self.dim.size() * 8;
        wkb.get(self.range()).unwrap_or_default().chunks_exact(size).map(|position| {
            let mut numbers = [f64::NAN; 4];
            for (slot, bytes) in numbers.iter_mut().zip(position.chunks_exact(8)) {
                *slot = f64::from_le_bytes(bytes.try_into().unwrap_or_default());
            }
            numbers
        })
    }
}

/// A step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A geometry begins. The count is of members (multi and collection), rings (polygon) or
    /// runs (point and line: 1).
    Begin {
        /// Its type.
        shape: Shape,
        /// Its dimensions.
        dim: Dim,
        /// How many members, rings or runs follow.
        count: usize,
    },
    /// The position of a point, the positions of a line, or one ring of a polygon.
    Coords(Run),
    /// The geometry begun last and not ended yet ends.
    End(Shape),
}

#[derive(Clone, Copy, Debug)]
struct Level {
    shape: Shape,
    dim: Dim,
    left: usize,
}

/// The walk. It must be given the same bytes at every step.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    at: usize,
    now: Option<Level>,
    outer: Vec<Level>,
    done: bool,
}

pub(super) fn broken(at: usize, message: impl Into<String>) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message).at(at as u64)
}

impl Cursor {
    /// The next step; `None` after the end.
    ///
    /// # Errors
    /// If the bytes are not canonical; bytes out of a batch always are.
    #[inline]
    pub fn next(&mut self, wkb: &[u8]) -> Result<Option<Event>, Problem> {
        let Some(level) = &mut self.now else {
            return if self.done { Ok(None) } else { self.begin(wkb).map(Some) };
        };
        if level.left == 0 {
            let shape = level.shape;
            self.now = self.outer.pop();
            self.done = self.now.is_none();
            return Ok(Some(Event::End(shape)));
        }
        level.left -= 1;
        let (shape, dim) = (level.shape, level.dim);
        match shape {
            Shape::Point => self.run(wkb, 1, dim).map(Some),
            Shape::LineString | Shape::Polygon => {
                let count = self.u32(wkb)?;
                self.run(wkb, count, dim).map(Some)
            }
            _ => self.begin(wkb).map(Some),
        }
    }

    fn run(&mut self, wkb: &[u8], count: usize, dim: Dim) -> Result<Event, Problem> {
        let run = Run { start: self.at, count, dim };
        let len = count.saturating_mul(dim.size() * 8);
        if len > wkb.len().saturating_sub(self.at) {
            return Err(broken(self.at, format!("{count} positions do not fit into what is left")));
        }
        self.at += len;
        Ok(Event::Coords(run))
    }

    fn u32(&mut self, wkb: &[u8]) -> Result<usize, Problem> {
        let bytes = wkb.get(self.at..).and_then(|rest| rest.first_chunk());
        let Some(bytes) = bytes else {
            return Err(broken(self.at, "the bytes end before the geometry does"));
        };
        self.at += 4;
        Ok(u32::from_le_bytes(*bytes) as usize)
    }

    fn begin(&mut self, wkb: &[u8]) -> Result<Event, Problem> {
        if wkb.get(self.at) != Some(&1) {
            return Err(broken(self.at, "not the start of a little-endian geometry"));
        }
        self.at += 1;
        let kind = self.u32(wkb)?;
        let dim = match kind / 1000 {
            0 => Dim::Xy,
            1 => Dim::Xyz,
            2 => Dim::Xym,
            3 => Dim::Xyzm,
            _ => return Err(broken(self.at, format!("type {kind} is unknown"))),
        };
        let shape = Shape::from_number((kind % 1000) as u32)
            .ok_or_else(|| broken(self.at, format!("type {kind} is unknown")))?;
        let count = match shape {
            Shape::Point | Shape::LineString => 1,
            _ => {
                let count = self.u32(wkb)?;
                let least = if shape == Shape::Polygon { 4 } else { 9 };
                if count.saturating_mul(least) > wkb.len().saturating_sub(self.at) {
                    return Err(broken(self.at, format!("{count} members do not fit into what is left")));
                }
                count
            }
        };
        if let Some(outer) = self.now.replace(Level { shape, dim, left: count }) {
            if self.outer.len() >= DEPTH_MAX {
                return Err(broken(self.at, format!("collections nest deeper than {DEPTH_MAX}")));
            }
            if outer.dim != dim || outer.shape.member().is_some_and(|member| member != shape) {
                return Err(broken(
                    self.at,
                    format!("a {} cannot hold this {}", outer.shape.name(), shape.name()),
                ));
            }
            self.outer.push(outer);
        }
        Ok(Event::Begin { shape, dim, count })
    }

    /// Where the walk stands in the bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }
}
