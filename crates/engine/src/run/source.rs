//! Where pages of records come from.
//!
//! The trait is what a run needs of a source and no more: pages, each with the position after it,
//! and a stamp that tells whether the source is still the one that the position is of. Files are
//! read here; whatever reads from afar implements the same trait.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use tidegate_geo::Batch;
use tidegate_geo::format::{self, Layer, Reader, Rejected, geojson::ReadOptions};

/// Some records, and where the source stands after them.
#[derive(Debug)]
pub struct Page {
    /// The records that could be read; may be empty.
    pub batch: Batch,
    /// Those that could not.
    pub rejected: Vec<Rejected>,
    /// Where to go on after this page, in the source's own words.
    pub position: String,
}

/// Where pages of records come from.
pub trait Source: Send {
    /// Name, fields, system and declared number of what is read.
    fn layer(&self) -> &Layer;

    /// What tells this state of the source from another: a resumed run refuses a position of
    /// another state.
    fn stamp(&self) -> String;

    /// Goes to a position that this source has given.
    ///
    /// # Errors
    /// When it is not one of its positions.
    fn seek(&mut self, position: &str) -> Result<(), String>;

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// When it cannot go on. The last position stays good.
    fn next(&mut self) -> Result<Option<Page>, String>;
}

/// A file.
pub struct FileSource {
    path: PathBuf,
    reader: Box<dyn Reader>,
    options: ReadOptions,
    /// Records before this one are passed over.
    from: u64,
    /// Records read so far.
    read: u64,
    ended: bool,
}

impl FileSource {
    /// Opens a file in the format of its name.
    ///
    /// # Errors
    /// Why it cannot be read, in a sentence.
    pub fn open(path: &Path, layer: Option<String>, batch_rows_max: usize) -> Result<FileSource, String> {
        let options = ReadOptions { layer, batch_rows_max, keep_raw: true, ..ReadOptions::default() };
        let reader = open(path, &options)?;
        Ok(FileSource { path: path.into(), reader, options, from: 0, read: 0, ended: false })
    }
}

fn open(path: &Path, options: &ReadOptions) -> Result<Box<dyn Reader>, String> {
    if !path.exists() {
        return Err(format!("{}: there is no such file", path.display()));
    }
    format::open(path, options).map_err(|e| format!("{}: {e}", path.display()))
}

impl Source for FileSource {
    fn layer(&self) -> &Layer {
        self.reader.layer()
    }

    fn stamp(&self) -> String {
        let about = std::fs::metadata(&self.path);
        let changed =
            about.as_ref().ok().and_then(|about| about.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        format!(
            "{} bytes, changed {}",
            about.map_or(0, |about| about.len()),
            changed.map_or(0, |at| at.as_nanos())
        )
    }

    fn seek(&mut self, position: &str) -> Result<(), String> {
        self.from = position.parse().map_err(|_| format!("{position:?} is not a position in a file"))?;
        if self.read > self.from {
            self.reader = open(&self.path, &self.options)?;
            self.read = 0;
        }
        self.ended = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Page>, String> {
        while !self.ended {
            let mut rejected = Vec::new();
            let batch =
                self.reader.next_batch(&mut rejected).map_err(|e| format!("{}: {e}", self.path.display()))?;
            self.ended = batch.is_none();
            let batch = batch.unwrap_or_else(|| Batch::new(self.reader.layer().schema.clone()));
            let last_row = batch.len().checked_sub(1).map(|row| batch.record(row));
            let last_rejected = rejected.iter().map(|rejected| rejected.record).max();
            let Some(last) = last_row.max(last_rejected) else { continue };
            self.read = self.read.max(last + 1);
            if self.read <= self.from {
                continue;
            }
            let keep: Vec<bool> = (0..batch.len()).map(|row| batch.record(row) >= self.from).collect();
            rejected.retain(|rejected| rejected.record >= self.from);
            return Ok(Some(Page { batch: batch.filter(&keep), rejected, position: self.read.to_string() }));
        }
        Ok(None)
    }
}
