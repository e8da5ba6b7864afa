//! Bounding boxes in the order of a Hilbert curve.
//!
//! The packed indexes of GeoPackage and FlatGeobuf need boxes sorted so that neighbours in the plane are
//! neighbours in the list. Why Hilbert and not sort-tile-recursive: it needs one sort by one number, which
//! [`sort`](super::sort) does with files when the boxes exceed memory.

use std::io::{self, Read, Write};
use std::path::Path;

use super::sort::{self, IN_MEMORY_MAX, Item, Sorter};
use crate::bounds::Bounds;

/// The bounding box of a row or node, in single precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BoxEntry {
    pub(super) id: i64,
    /// min x, max x, min y, max y.
    pub(super) bounds: [f32; 4],
}

impl Item for BoxEntry {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; 24];
        let (id, bounds) = bytes.split_at_mut(8);
        id.copy_from_slice(&self.id.to_le_bytes());
        for (slot, number) in bounds.chunks_exact_mut(4).zip(self.bounds) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        out.write_all(&bytes)
    }

    fn read(from: &mut impl Read) -> io::Result<BoxEntry> {
        let id = i64::from_le_bytes(sort::bytes(from)?);
        let mut bounds = [0.0; 4];
        for slot in &mut bounds {
            *slot = f32::from_le_bytes(sort::bytes(from)?);
        }
        Ok(BoxEntry { id, bounds })
    }
}

/// The bounds of all rows, collected until the tree is packed.
pub(super) struct Collector {
    boxes: Sorter<BoxEntry>,
    total: Option<Bounds>,
}

impl Collector {
    pub(super) fn new() -> Collector {
        Collector { boxes: Sorter::new(IN_MEMORY_MAX), total: None }
    }

    /// Number of boxes.
    pub(super) fn len(&self) -> usize {
        self.boxes.len()
    }

    /// The union of all boxes.
    pub(super) fn total(&self) -> Option<Bounds> {
        self.total
    }

    /// Adds a row. What exceeds memory goes to an unnamed file in the folder of `near`.
    pub(super) fn push(&mut self, id: i64, bounds: Bounds, near: &Path) -> io::Result<()> {
        self.total = Some(self.total.map_or(bounds, |total| total.union(bounds)));
        let bounds = [down(bounds.min_x), up(bounds.max_x), down(bounds.min_y), up(bounds.max_y)];
        self.boxes.push(BoxEntry { id, bounds }, near)
    }

    /// All entries along the Hilbert curve.
    pub(super) fn sorted(
        self,
        total: Bounds,
        near: &Path,
    ) -> io::Result<Box<dyn Iterator<Item = io::Result<BoxEntry>>>> {
        self.boxes.sorted(move |entry| u64::from(hilbert(entry, total)), near)
    }
}

fn down(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) > x { near.next_down() } else { near }
}

fn up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }
}

/// The index of a box's centre on a Hilbert curve over a grid of 65,536 by 65,536.
fn hilbert(entry: &BoxEntry, total: Bounds) -> u32 {
    let [min_x, max_x, min_y, max_y] = entry.bounds.map(f64::from);
    let cell = |middle: f64, low: f64, high: f64| -> u32 {
        let share = (middle - low) / (high - low);
        if share.is_finite() { (share * 65_535.0).clamp(0.0, 65_535.0) as u32 } else { 0 }
    };
    let mut x = cell((min_x + max_x) / 2.0, total.min_x, total.max_x);
    let mut y = cell((min_y + max_y) / 2.0, total.min_y, total.max_y);
    let mut place = 0;
    let mut side = 1u32 << 15;
    while side > 0 {
        let (right, top) = (u32::from(x & side > 0), u32::from(y & side > 0));
        place = (place << 2) | ((3 * right) ^ top);
        if top == 0 {
            if right == 1 {
                x = !x & 0xFFFF;
                y = !y & 0xFFFF;
            }
            std::mem::swap(&mut x, &mut y);
        }
        side >>= 1;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_round_outwards() {
        for x in [0.1, -0.1, 1.0 / 3.0, 179.999_999_99, -1e-300, 16_777_217.0] {
            assert!(f64::from(down(x)) <= x && x <= f64::from(up(x)), "{x}");
        }
        assert_eq!((down(1.5), up(1.5)), (1.5, 1.5));
    }

    #[test]
    fn neighbours_on_the_curve_are_neighbours_on_the_grid() {
        let total = Bounds { min_x: 0.0, min_y: 0.0, max_x: 65_535.0, max_y: 65_535.0 };
        let at = |x: f32, y: f32| hilbert(&BoxEntry { id: 0, bounds: [x, x, y, y] }, total);
        let mut places: Vec<(u32, i32, i32)> = Vec::new();
        for x in 0..16 {
            for y in 0..16 {
                places.push((at(x as f32, y as f32), x, y));
            }
        }
        places.sort_unstable();
        for (n, pair) in places.windows(2).enumerate() {
            assert_eq!(pair[1].0, n as u32 + 1);
            assert_eq!((pair[0].1 - pair[1].1).abs() + (pair[0].2 - pair[1].2).abs(), 1);
        }
    }
}
