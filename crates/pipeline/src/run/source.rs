//! Where pages of records come from.
//!
//! The trait is what a run needs of a source and no more: pages, each with the position after it,
//! and a stamp that tells whether the source is still the one that the position is of. Files are
//! read here; whatever reads from afar implements the same trait.

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

/// The scope under which a sink keeps the marks of a source. Those of steps and gates lie below.
pub const SCOPE: u16 = u16::MAX;

/// Some records, and where the source stands after them.
#[derive(Debug)]
pub struct Page {
    /// The records that could be read; may be empty.
    pub batch: Batch,
    /// Those that could not.
    pub rejected: Vec<Rejected>,
    /// Where to go on after this page, in the source's own words.
    pub position: String,
    /// What the position does not say of the records received up to it. It is committed with the
    /// page, and whoever goes on from a position brings all of it back.
    pub marks: Vec<IdentifierHash>,
}

/// What a remote source counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// The layer or the file.
    pub layer: String,
    /// Records that the service declared at the start.
    pub declared: Option<u64>,
    /// Records that it declared last.
    pub declared_last: Option<u64>,
    /// Different records received.
    pub received: u64,
    /// Of those, received before this run was resumed.
    pub resumed: u64,
    /// Records that came again and were left out.
    pub repeated: u64,
    /// Pages received.
    pub pages: u64,
    /// How often the layer was read from its start.
    pub passes: u32,
    /// How often the place was lost and found again further up.
    pub steps_back: u64,
    /// Bytes received of a file, and in all as far as its server says; nothing of a layer.
    pub bytes: Option<u64>,
    /// See `bytes`.
    pub bytes_declared: Option<u64>,
    /// Calls of this run.
    pub calls: u64,
    /// Of those, repeats.
    pub retries: u64,
    /// Answers that asked for fewer calls.
    pub throttled: u64,
    /// How declared and received compare: `exact`, `changed`, `undeclared`, `tolerated`,
    /// `mismatch`; nothing before the end.
    pub verdict: Option<Cow<'static, str>>,
    /// By how many records they differ beyond what the changes of the layer explain.
    pub difference: u64,
}

impl Told {
    /// What a pager has counted, and what it takes as the end.
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

    /// How far a file is.
    pub(super) fn bytes(&mut self, at: &FilePosition) {
        (self.bytes, self.bytes_declared) = (Some(at.bytes), at.total);
    }

    /// What was sent for it.
    pub(super) fn sent(&mut self, wire: &Wire) {
        let calls = &wire.line().calls;
        (self.calls, self.retries) = (calls.attempts(), calls.retries());
        self.throttled = wire.lane().snapshot().counts.throttled;
    }
}

/// Where pages of records come from.
pub trait Source: Send {
    /// Name, fields, system and declared number of what is read.
    fn layer(&self) -> &Layer;

    /// The shape that the records seem to have. If the schema does not say it too, others may come.
    fn shape(&self) -> Option<Shape> {
        self.layer().schema.shape
    }

    /// What tells this state of the source from another: a resumed run refuses a position of
    /// another state.
    fn stamp(&self) -> String;

    /// Goes to a position that this source has given, with all marks of the pages up to it.
    ///
    /// # Errors
    /// When it is not one of its positions, or cannot be gone on from.
    fn seek(&mut self, position: &str, marks: Vec<IdentifierHash>) -> Result<(), StepError>;

    /// The next page; `None` after the last, when as many records came as were declared.
    ///
    /// # Errors
    /// When it cannot go on. The last position stays good.
    fn next(&mut self) -> Result<Option<Page>, StepError>;

    /// Where the layer is, in degrees on WGS 84, as the source declares it.
    fn extent(&mut self) -> Option<Bounds> {
        None
    }

    /// What was counted, if the source is a remote one.
    fn told(&self) -> Option<Told> {
        None
    }

    /// What is still to be asked for, if that is done page by page.
    fn left(&self) -> Option<Left> {
        None
    }
}

/// What a source has still to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Requests; `None` if nobody says how many records there are.
    pub requests: Option<u64>,
    /// Records on a page.
    pub page: u64,
}

/// Whether a source gave as many records as it declared.
///
/// # Errors
/// If not.
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

/// What tells one state of a file from another.
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
    tolerance: CountTolerance,
    stamp: Option<String>,
    layer: Layer,
    told: Option<Told>,
    extent: Option<Bounds>,
}

impl FileSource {
    /// Opens a file in the format of its name.
    ///
    /// # Errors
    /// Why it cannot be read, in a sentence.
    pub fn open(path: &Path, layer: Option<String>, batch_rows_max: usize) -> Result<FileSource, SetupError> {
        let options = ReadOptions { layer, batch_rows_max, keep_raw: true, ..ReadOptions::default() };
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

    /// The same file, known by a stamp of those who made it.
    #[must_use]
    pub fn stamped(mut self, stamp: Option<String>) -> FileSource {
        self.stamp = stamp;
        self
    }

    /// The same file, of a layer that is declared to be here, in degrees on WGS 84.
    #[must_use]
    pub fn declared_at(mut self, extent: Option<Bounds>) -> FileSource {
        self.extent = extent;
        self
    }

    /// The same file, with what was counted when it was brought here.
    #[must_use]
    pub fn brought(mut self, told: Option<Told>) -> FileSource {
        // A file names its layers itself.
        if let Some(told) = told.as_ref().filter(|told| told.bytes.is_none()) {
            self.layer.name.clone_from(&told.layer);
        }
        self.told = told;
        self
    }

    /// The same file, of which so many records may be missing.
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

    fn extent(&mut self) -> Option<Bounds> {
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
