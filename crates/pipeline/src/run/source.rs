//! Sources: where pages of records come from.
//!
//! The trait is what a run needs of a source: pages, each with the position after it, and a stamp
//! that tells whether the source is still in the state that the position refers to. Files are read
//! here; remote sources implement the same trait.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use tidegate_geo::format::{self, Layer, Reader, Rejected, geojson::ReadOptions};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Bounds};

use crate::error::SetupError;
use crate::source::file::FilePosition;
use crate::source::{Agreement, CountTolerance, FeatureTally, IdentifierHash, Wire};
use crate::step::StepError;

/// The scope under which a sink stores the marks of a source. Those of steps and gates are below.
pub const SCOPE: u16 = u16::MAX;

/// A page of records, and the position after it.
#[derive(Debug)]
pub struct Page {
    /// The readable records; may be empty.
    pub batch: Batch,
    /// The unreadable records.
    pub rejected: Vec<Rejected>,
    /// The position after this page, in the source's own format.
    pub position: String,
    /// Hashes of ids received that the position does not include. They are committed with the page,
    /// and all of them are passed back with a position.
    pub marks: Vec<IdentifierHash>,
}

/// The counts of a remote source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// The name of the layer or file.
    pub layer: String,
    /// The number of records that the service declared at the start.
    pub declared: Option<u64>,
    /// The number of records that it declared last.
    pub declared_last: Option<u64>,
    /// The number of different records received.
    pub received: u64,
    /// Of those, the number received before this run was resumed.
    pub resumed: u64,
    /// The number of duplicate records skipped.
    pub repeated: u64,
    /// The number of pages received.
    pub pages: u64,
    /// The number of times that the layer was read from its start.
    pub passes: u32,
    /// The number of times that the position was lost and found again earlier in the layer.
    pub steps_back: u64,
    /// The bytes received of a file; `None` for a layer.
    pub bytes: Option<u64>,
    /// The size of the file in bytes, if its server declares it.
    pub bytes_declared: Option<u64>,
    /// The number of calls of this run.
    pub calls: u64,
    /// Of those, the number of retries.
    pub retries: u64,
    /// The number of throttled responses.
    pub throttled: u64,
    /// How declared and received compare: `exact`, `changed`, `undeclared`, `tolerated`,
    /// `mismatch`; `None` before the end.
    pub verdict: Option<Cow<'static, str>>,
    /// The difference in records that changes of the layer do not explain.
    pub difference: u64,
}

impl Told {
    /// Sets the counts of a pager and its result at the end.
    pub(super) fn tally(&mut self, tally: &FeatureTally, agreement: Option<Agreement>) {
        (self.declared, self.declared_last) = (tally.declared, tally.latest);
        (self.received, self.repeated) = (tally.received, tally.repeated);
        (self.pages, self.passes, self.steps_back) = (tally.pages, tally.passes, tally.steps_back);
        let (word, difference) = match agreement {
            None => return,
            Some(Agreement::Exact) => ("exact", 0),
            Some(Agreement::Changed) => ("changed", 0),
            Some(Agreement::Undeclared) => ("undeclared", 0),
            Some(Agreement::Tolerated(off)) => ("tolerated", off),
            Some(Agreement::Mismatch(off)) => ("mismatch", off),
        };
        (self.verdict, self.difference) = (Some(word.into()), difference);
    }

    /// Sets the progress of a file.
    pub(super) fn bytes(&mut self, at: &FilePosition) {
        (self.bytes, self.bytes_declared) = (Some(at.bytes), at.total);
    }

    /// Sets the counts of its calls.
    pub(super) fn sent(&mut self, wire: &Wire) {
        let calls = &wire.line().calls;
        (self.calls, self.retries) = (calls.attempts(), calls.retries());
        self.throttled = wire.lane().snapshot().counts.throttled;
    }
}

/// A source of pages of records.
pub trait Source: Send {
    /// Name, fields, coordinate reference system and declared number of records.
    fn layer(&self) -> &Layer;

    /// The geometry type that the records seem to have. Unless the schema has it too, others may
    /// come.
    fn shape(&self) -> Option<Shape> {
        self.layer().schema.shape
    }

    /// The stamp of the current state of the source: a resumed run refuses a position with another
    /// stamp.
    fn stamp(&self) -> String;

    /// Seeks to a position that this source has returned, with all marks of the pages up to it.
    ///
    /// # Errors
    /// When it is not one of its positions, or reading cannot continue from there.
    fn seek(&mut self, position: &str, marks: Vec<IdentifierHash>) -> Result<(), StepError>;

    /// The next page; `None` after the last, if as many records came as were declared.
    ///
    /// # Errors
    /// When it cannot continue. The last position stays valid.
    fn next(&mut self) -> Result<Option<Page>, StepError>;

    /// Whether it has no end of its own: its pages are committed as they come.
    fn is_endless(&self) -> bool {
        false
    }

    /// The extent of the layer, in degrees on WGS 84, as the source declares it.
    fn extent(&self) -> Option<Bounds> {
        None
    }

    /// The counts, if the source is remote.
    fn told(&self) -> Option<Told> {
        None
    }

    /// The remaining requests, if the source is paged.
    fn left(&self) -> Option<Left> {
        None
    }
}

/// The remaining requests of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The number of requests; `None` if the number of records is unknown.
    pub requests: Option<u64>,
    /// The number of records on a page.
    pub page: u64,
}

/// Checks that a source returned as many records as it declared.
///
/// # Errors
/// When it did not.
pub(super) fn whole(declared: Option<u64>, read: u64, tolerance: CountTolerance) -> Result<(), StepError> {
    match declared {
        Some(declared) if declared.abs_diff(read) > tolerance.of(declared) => {
            Err(StepError::Broken(format!(
                "the source declared {declared} records but returned {read}; set `source.tolerate` to accept a difference"
            )))
        }
        _ => Ok(()),
    }
}

/// The stamp of the current state of a file.
pub(super) fn file_stamp(path: &Path) -> String {
    let about = std::fs::metadata(path);
    let changed =
        about.as_ref().ok().and_then(|about| about.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    format!(
        "{} bytes, changed {}",
        about.map_or(0, |about| about.len()),
        changed.map_or(0, |at| at.as_nanos())
    )
}

/// A file as a source.
pub struct FileSource {
    path: PathBuf,
    reader: Box<dyn Reader>,
    options: ReadOptions,
    /// The number of records to skip.
    from: u64,
    /// The number of records read so far.
    read: u64,
    ended: bool,
    tolerance: CountTolerance,
    stamp: Option<String>,
    layer: Layer,
    told: Option<Told>,
    extent: Option<Bounds>,
}

impl FileSource {
    /// Opens a file. Its records are kept as they are for dead letters.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn open(path: &Path, options: ReadOptions) -> Result<FileSource, SetupError> {
        let options = ReadOptions { keep_raw: true, ..options };
        let reader = open(path, &options)?;
        let tolerance = CountTolerance::default();
        Ok(FileSource {
            path: path.into(),
            layer: reader.layer().clone(),
            told: None,
            extent: None,
            reader,
            options,
            from: 0,
            read: 0,
            ended: false,
            tolerance,
            stamp: None,
        })
    }

    /// Sets the stamp.
    #[must_use]
    pub fn stamped(mut self, stamp: Option<String>) -> FileSource {
        self.stamp = stamp;
        self
    }

    /// Sets the declared extent, in degrees on WGS 84.
    #[must_use]
    pub fn declared_at(mut self, extent: Option<Bounds>) -> FileSource {
        self.extent = extent;
        self
    }

    /// Sets the counts of its download.
    #[must_use]
    pub fn brought(mut self, told: Option<Told>) -> FileSource {
        // A downloaded file names its own layers.
        if let Some(told) = told.as_ref().filter(|told| told.bytes.is_none()) {
            self.layer.name.clone_from(&told.layer);
        }
        self.told = told;
        self
    }

    /// Sets the tolerance for missing records.
    #[must_use]
    pub fn tolerating(mut self, tolerance: CountTolerance) -> FileSource {
        self.tolerance = tolerance;
        self
    }
}

fn open(path: &Path, options: &ReadOptions) -> Result<Box<dyn Reader>, String> {
    if !path.exists() {
        return Err(format!("{}: no such file", path.display()));
    }
    format::open(path, options).map_err(|e| format!("{}: {e}", path.display()))
}

impl Source for FileSource {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn extent(&self) -> Option<Bounds> {
        self.extent
    }

    fn told(&self) -> Option<Told> {
        self.told.clone()
    }

    fn stamp(&self) -> String {
        if let Some(stamp) = &self.stamp {
            return stamp.clone();
        }
        file_stamp(&self.path)
    }

    fn seek(&mut self, position: &str, _: Vec<IdentifierHash>) -> Result<(), StepError> {
        let no = || StepError::Broken(format!("invalid file position {position:?}"));
        self.from = position.parse().map_err(|_| no())?;
        if self.read > self.from {
            self.reader = open(&self.path, &self.options).map_err(StepError::Broken)?;
            self.read = 0;
        }
        self.ended = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        while !self.ended {
            let mut rejected = Vec::new();
            let broken = |e| StepError::Broken(format!("{}: {e}", self.path.display()));
            let batch = self.reader.next_batch(&mut rejected).map_err(broken)?;
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
            let (batch, position) = (batch.filter(&keep), self.read.to_string());
            return Ok(Some(Page { batch, rejected, position, marks: Vec::new() }));
        }
        whole(self.reader.layer().records, self.read, self.tolerance)?;
        Ok(None)
    }
}
