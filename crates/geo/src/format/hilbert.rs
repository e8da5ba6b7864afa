//! Boxes in the order of a Hilbert curve, however many there are.
//!
//! The packed indexes of GeoPackage and FlatGeobuf both want their boxes sorted so that neighbours
//! in the plane are neighbours in the list. Why Hilbert and not sort-tile-recursive: it needs one
//! sort by one number, which an external merge can do when the boxes outgrow memory. Past a
//! million they go to unnamed files.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::bounds::Bounds;

const ENTRY_LEN: usize = 24;
/// How many entries stay in memory before they go to a file: 32 MB.
const IN_MEMORY_MAX: usize = 1 << 20;

/// A box of single precision around a row or node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) id: i64,
    /// min x, max x, min y, max y.
    pub(super) bounds: [f32; 4],
}

/// The bounds of all rows, collected until the tree is packed.
pub(super) struct Collector {
    held: Vec<Entry>,
    held_max: usize,
    spilled: Option<BufWriter<File>>,
    count: usize,
    total: Option<Bounds>,
}

impl Collector {
    pub(super) fn new() -> Collector {
        Collector { held: Vec::new(), held_max: IN_MEMORY_MAX, spilled: None, count: 0, total: None }
    }

    /// How many boxes there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The bounds of everything.
    pub(super) fn total(&self) -> Option<Bounds> {
        self.total
    }

    /// Adds a row; past a million rows they go to an unnamed file beside `near`.
    pub(super) fn push(&mut self, id: i64, bounds: Bounds, near: &Path) -> io::Result<()> {
        self.total = Some(self.total.map_or(bounds, |total| total.union(bounds)));
        self.count += 1;
        self.held.push(Entry {
            id,
            bounds: [down(bounds.min_x), up(bounds.max_x), down(bounds.min_y), up(bounds.max_y)],
        });
        if self.held.len() < self.held_max {
            return Ok(());
        }
        if self.spilled.is_none() {
            self.spilled = Some(BufWriter::with_capacity(1 << 18, unnamed_file(near)?));
        }
        if let Some(file) = &mut self.spilled {
            write_entries(file, &self.held)?;
        }
        self.held.clear();
        Ok(())
    }

    /// All entries along the Hilbert curve.
    pub(super) fn sorted(
        mut self,
        total: Bounds,
        near: &Path,
    ) -> io::Result<Box<dyn Iterator<Item = io::Result<Entry>>>> {
        let key = |entry: &Entry| hilbert(entry, total);
        let Some(spilled) = self.spilled.take() else {
            self.held.sort_by_cached_key(key);
            return Ok(Box::new(self.held.into_iter().map(Ok)));
        };
        let mut spilled = spilled.into_inner().map_err(io::IntoInnerError::into_error)?;
        spilled.seek(SeekFrom::Start(0))?;
        let mut unsorted = BufReader::with_capacity(1 << 18, spilled);
        let mut runs = Vec::new();
        let mut left = self.count - self.held.len();
        let mut chunk = std::mem::take(&mut self.held);
        loop {
            if chunk.is_empty() {
                for _ in 0..left.min(self.held_max) {
                    chunk.push(read_entry(&mut unsorted)?);
                }
                left -= chunk.len();
            }
            chunk.sort_by_cached_key(key);
            let mut run = BufWriter::with_capacity(1 << 16, unnamed_file(near)?);
            write_entries(&mut run, &chunk)?;
            let mut run = run.into_inner().map_err(io::IntoInnerError::into_error)?;
            run.seek(SeekFrom::Start(0))?;
            runs.push(Run { file: BufReader::with_capacity(1 << 16, run), left: chunk.len(), next: None });
            chunk.clear();
            if left == 0 {
                break;
            }
        }
        Ok(Box::new(Merge { runs, total, started: false }))
    }
}

/// A sorted part that lies in a file.
struct Run {
    file: BufReader<File>,
    left: usize,
    next: Option<(u32, Entry)>,
}

impl Run {
    fn advance(&mut self, total: Bounds) -> io::Result<()> {
        self.next = None;
        if self.left > 0 {
            self.left -= 1;
            let entry = read_entry(&mut self.file)?;
            self.next = Some((hilbert(&entry, total), entry));
        }
        Ok(())
    }
}

/// The sorted parts as one. There is a part per million rows, so that looking at all of them for
/// each entry is cheap enough.
struct Merge {
    runs: Vec<Run>,
    total: Bounds,
    started: bool,
}

impl Merge {
    fn step(&mut self) -> io::Result<Option<Entry>> {
        if !self.started {
            self.started = true;
            for run in &mut self.runs {
                run.advance(self.total)?;
            }
        }
        let least =
            self.runs.iter_mut().filter(|run| run.next.is_some()).min_by_key(|run| run.next.map(|n| n.0));
        let Some(run) = least else { return Ok(None) };
        let entry = run.next.map(|(_, entry)| entry);
        run.advance(self.total)?;
        Ok(entry)
    }
}

impl Iterator for Merge {
    type Item = io::Result<Entry>;
    fn next(&mut self) -> Option<io::Result<Entry>> {
        self.step().transpose()
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

/// The place of a box's centre along a Hilbert curve through a grid of 65,536 by 65,536.
fn hilbert(entry: &Entry, total: Bounds) -> u32 {
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

fn write_entries(file: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    for entry in entries {
        let mut bytes = [0; ENTRY_LEN];
        let (id, bounds) = bytes.split_at_mut(8);
        id.copy_from_slice(&entry.id.to_le_bytes());
        for (slot, number) in bounds.chunks_exact_mut(4).zip(entry.bounds) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        file.write_all(&bytes)?;
    }
    Ok(())
}

fn read_entry(file: &mut impl Read) -> io::Result<Entry> {
    let mut id = [0; 8];
    file.read_exact(&mut id)?;
    let mut bounds = [0.0; 4];
    for slot in &mut bounds {
        let mut number = [0; 4];
        file.read_exact(&mut number)?;
        *slot = f32::from_le_bytes(number);
    }
    Ok(Entry { id: i64::from_le_bytes(id), bounds })
}

/// A file without a name, which vanishes with its handle, even after a crash.
pub(super) fn unnamed_file(near: &Path) -> io::Result<File> {
    tempfile::tempfile_in(
        near.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )
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
    fn what_outgrows_memory_comes_back_in_the_same_order() {
        let near = std::env::temp_dir().join("x");
        let sorted = |held_max: usize, count: i64| -> Vec<i64> {
            let mut all = Collector { held_max, ..Collector::new() };
            for id in 0..count {
                let (x, y) = ((id * 7919 % 1009) as f64, (id * 104_729 % 997) as f64);
                all.push(id, Bounds { min_x: x, min_y: y, max_x: x + 1.0, max_y: y + 1.0 }, &near).unwrap();
            }
            let total = all.total().unwrap();
            all.sorted(total, &near).unwrap().map(|entry| entry.unwrap().id).collect()
        };
        for count in [99, 100, 101, 1000] {
            let in_memory = sorted(IN_MEMORY_MAX, count);
            assert_eq!(in_memory.len() as i64, count);
            assert_eq!(sorted(100, count), in_memory, "{count}");
        }
    }

    #[test]
    fn neighbours_on_the_curve_are_neighbours_on_the_grid() {
        let total = Bounds { min_x: 0.0, min_y: 0.0, max_x: 65_535.0, max_y: 65_535.0 };
        let at = |x: f32, y: f32| hilbert(&Entry { id: 0, bounds: [x, x, y, y] }, total);
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
