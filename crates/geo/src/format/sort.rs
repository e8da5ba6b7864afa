//! External merge sort of small items of a fixed size.
//!
//! What fits is sorted in memory. The rest is written to unnamed files in sorted runs, which are merged,
//! so memory does not grow with the number of items.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Most items in memory before a run is written to a file.
pub(super) const IN_MEMORY_MAX: usize = 1 << 20;

/// An item with a fixed size in bytes.
pub(super) trait Item: Copy + 'static {
    fn write(&self, out: &mut impl Write) -> io::Result<()>;
    fn read(from: &mut impl Read) -> io::Result<Self>;
}

/// Reads a number's bytes.
pub(super) fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Collects items and sorts them.
pub(super) struct Sorter<T> {
    held: Vec<T>,
    held_max: usize,
    spilled: Option<BufWriter<File>>,
    count: usize,
}

impl<T: Item> Sorter<T> {
    /// With at most this many items in memory.
    pub(super) fn new(held_max: usize) -> Sorter<T> {
        Sorter { held: Vec::new(), held_max: held_max.max(1), spilled: None, count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds an item. Full runs go to an unnamed file in the folder of `near`.
    pub(super) fn push(&mut self, item: T, near: &Path) -> io::Result<()> {
        self.count += 1;
        self.held.push(item);
        if self.held.len() < self.held_max {
            return Ok(());
        }
        if self.spilled.is_none() {
            self.spilled = Some(BufWriter::with_capacity(1 << 18, unnamed_file(near)?));
        }
        if let Some(file) = &mut self.spilled {
            self.held.iter().try_for_each(|item| item.write(file))?;
        }
        self.held.clear();
        Ok(())
    }

    /// All items by a key. The sort is stable.
    pub(super) fn sorted<K: Fn(&T) -> u64 + 'static>(
        mut self,
        key: K,
        near: &Path,
    ) -> io::Result<Box<dyn Iterator<Item = io::Result<T>>>> {
        let Some(spilled) = self.spilled.take() else {
            self.held.sort_by_cached_key(key);
            return Ok(Box::new(self.held.into_iter().map(Ok)));
        };
        let mut unsorted = rewound(spilled, 1 << 18)?;
        let mut runs = Vec::new();
        let mut left = self.count - self.held.len();
        let last = std::mem::take(&mut self.held);
        while left > 0 {
            let mut part = Vec::with_capacity(left.min(self.held_max));
            for _ in 0..left.min(self.held_max) {
                part.push(T::read(&mut unsorted)?);
            }
            left -= part.len();
            runs.push(run(part, &key, near)?);
        }
        runs.push(run(last, &key, near)?);
        let mut merge = Merge { runs, key, least: BinaryHeap::new() };
        for at in 0..merge.runs.len() {
            merge.advance(at)?;
        }
        Ok(Box::new(merge))
    }
}

fn rewound(file: BufWriter<File>, buffer: usize) -> io::Result<BufReader<File>> {
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(BufReader::with_capacity(buffer, file))
}

/// A sorted run in a file.
struct SortedRun<T> {
    file: BufReader<File>,
    left: usize,
    next: Option<T>,
}

fn run<T: Item>(mut part: Vec<T>, key: impl Fn(&T) -> u64, near: &Path) -> io::Result<SortedRun<T>> {
    part.sort_by_cached_key(key);
    let mut file = BufWriter::with_capacity(1 << 16, unnamed_file(near)?);
    part.iter().try_for_each(|item| item.write(&mut file))?;
    Ok(SortedRun { file: rewound(file, 1 << 15)?, left: part.len(), next: None })
}

/// The merged runs.
struct Merge<T, K> {
    runs: Vec<SortedRun<T>>,
    key: K,
    /// The key of the next item of each run, and the index of the run.
    least: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<T: Item, K: Fn(&T) -> u64> Merge<T, K> {
    fn advance(&mut self, at: usize) -> io::Result<()> {
        if let Some(run) = self.runs.get_mut(at).filter(|run| run.left > 0) {
            run.left -= 1;
            let item = T::read(&mut run.file)?;
            run.next = Some(item);
            self.least.push(Reverse(((self.key)(&item), at)));
        }
        Ok(())
    }
}

impl<T: Item, K: Fn(&T) -> u64> Iterator for Merge<T, K> {
    type Item = io::Result<T>;
    fn next(&mut self) -> Option<io::Result<T>> {
        let Reverse((_, at)) = self.least.pop()?;
        let item = self.runs.get_mut(at)?.next.take()?;
        Some(self.advance(at).map(|()| item))
    }
}

/// A file without a name, which disappears with its handle, even after a crash.
pub(super) fn unnamed_file(near: &Path) -> io::Result<File> {
    tempfile::tempfile_in(
        near.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Item for (u32, u32) {
        fn write(&self, out: &mut impl Write) -> io::Result<()> {
            out.write_all(&self.0.to_le_bytes())?;
            out.write_all(&self.1.to_le_bytes())
        }
        fn read(from: &mut impl Read) -> io::Result<(u32, u32)> {
            Ok((u32::from_le_bytes(bytes(from)?), u32::from_le_bytes(bytes(from)?)))
        }
    }

    #[test]
    fn what_outgrows_memory_comes_back_in_the_same_order() {
        let near = std::env::temp_dir().join("x");
        for count in [0u32, 1, 99, 100, 101, 1000] {
            let sorted = |held_max: usize| -> Vec<(u32, u32)> {
                let mut all = Sorter::new(held_max);
                // Many share a key.
                (0..count).for_each(|n| all.push((n * 7919 % 31, n), &near).unwrap());
                assert_eq!(all.len(), count as usize);
                all.sorted(|item| u64::from(item.0), &near).unwrap().map(Result::unwrap).collect()
            };
            let mut wanted: Vec<(u32, u32)> = (0..count).map(|n| (n * 7919 % 31, n)).collect();
            wanted.sort();
            assert_eq!(sorted(IN_MEMORY_MAX), wanted);
            assert_eq!(sorted(100), wanted, "{count}");
            assert_eq!(sorted(7), wanted, "{count}");
        }
    }
}
