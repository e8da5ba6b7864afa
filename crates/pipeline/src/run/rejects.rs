//! Stores rejected records: in an NDJSON file, or in the store of dead letters (`letters`).
//!
//! A reject is durable before its batch is committed. A run that is killed in between resumes at
//! that batch and would write the reject again. So a checkpoint holds the mark up to which lines
//! count, and a resumed run truncates the rest. The letter store recognizes repeated letters
//! instead.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::counts::RecordCounts;
use crate::durable;
use crate::step::Reject;

/// Why nothing of a batch may be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchRefused {
    /// Its rejects could not be stored.
    Failed(String),
    /// The store of the rejects is down: try again later.
    Unavailable(String),
    /// It fails as a whole: an incident was opened, which suspends the pipeline.
    Incident(String),
}

/// The unsuccessful records of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Unsuccessful<'a> {
    /// Records rejected.
    pub rejected: &'a [Reject],
    /// Records that failed and are written nevertheless.
    pub failed: &'a [Reject],
    /// The number of records in the batch.
    pub records: u64,
}

/// Stores rejected records.
pub trait Rejects: Send {
    /// Stores the rejects of a batch durably; returns the mark after them.
    ///
    /// # Errors
    /// When nothing of the batch may be committed.
    fn put(&mut self, batch: &Unsuccessful<'_>) -> Result<u64, BatchRefused>;

    /// Which of these records were repaired before, and their repaired form put into the sink by a
    /// replay.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn repaired(&mut self, rejects: &[Reject]) -> Result<Vec<bool>, BatchRefused> {
        Ok(vec![false; rejects.len()])
    }

    /// Sets the run that the rejects belong to; a resumed run has the id that it began with.
    fn of_run(&mut self, _run: &str) {}

    /// Starts a new run: rejects of earlier runs no longer count.
    ///
    /// # Errors
    /// When they cannot be removed.
    fn begin(&mut self) -> Result<(), String>;

    /// Removes everything after a mark.
    ///
    /// # Errors
    /// When that fails.
    fn rewind(&mut self, mark: u64) -> Result<(), String>;

    /// The identity of the store; a resumed run must find the same. Empty if the mark is
    /// sufficient.
    ///
    /// # Errors
    /// When it cannot be read.
    fn identity(&mut self) -> Result<String, String> {
        Ok(String::new())
    }

    /// Verifies at the end of a run that all rejects up to the mark are there.
    ///
    /// # Errors
    /// When some are missing, or the store cannot be read.
    fn verify(&mut self, mark: u64, counts: &RecordCounts) -> Result<(), String>;

    /// The location, for people.
    fn place(&self) -> String;
}

/// Rejects as one JSON object per line.
pub struct NdjsonRejects {
    path: PathBuf,
    file: Option<File>,
    /// The length of the file, in bytes: the mark.
    len: u64,
    pipeline: String,
}

impl NdjsonRejects {
    /// The rejects of a pipeline in this file, which is created with the first one.
    #[must_use]
    pub fn new(path: &Path, pipeline: &str) -> NdjsonRejects {
        let len = std::fs::metadata(path).map_or(0, |about| about.len());
        NdjsonRejects { path: path.into(), file: None, len, pipeline: pipeline.into() }
    }

    fn shortened(&self, mark: u64) -> String {
        format!(
            "{} has {} bytes instead of {mark}: rejected records were lost after they were written",
            self.path.display(),
            self.len
        )
    }

    fn fail(&self, e: &std::io::Error) -> String {
        format!("{}: {e}", self.path.display())
    }
}

/// A reject as one line of JSON.
fn line(pipeline: &str, reject: &Reject) -> String {
    let problems: Vec<_> = reject
        .problems
        .iter()
        .map(|problem| json!({ "code": problem.code.as_str(), "message": problem.message, "field": problem.path }))
        .collect();
    let feature: serde_json::Value = serde_json::from_str(reject.feature()).unwrap_or_default();
    json!({
        "pipeline": pipeline,
        "record": reject.record,
        "stage": reject.stage,
        "problems": problems,
        "feature": feature,
        "raw": String::from_utf8_lossy(&reject.raw),
    })
    .to_string()
}

impl Rejects for NdjsonRejects {
    fn put(&mut self, batch: &Unsuccessful<'_>) -> Result<u64, BatchRefused> {
        // Failed records are in the sink already.
        if batch.rejected.is_empty() {
            return Ok(self.len);
        }
        let mut text = String::new();
        for reject in batch.rejected {
            text.push_str(&line(&self.pipeline, reject));
            text.push('\n');
        }
        let known = self.file.take();
        let failed = |e: std::io::Error| BatchRefused::Failed(self.fail(&e));
        let mut file = match known {
            Some(file) => file,
            None => durable::append(&self.path).map_err(failed)?,
        };
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        self.file = Some(file);
        self.len += text.len() as u64;
        Ok(self.len)
    }

    fn begin(&mut self) -> Result<(), String> {
        if self.len > 0 {
            let before = self.path.with_extension("previous.ndjson");
            durable::rename(&self.path, &before).map_err(|e| self.fail(&e))?;
        }
        self.file = None;
        self.len = 0;
        Ok(())
    }

    fn rewind(&mut self, mark: u64) -> Result<(), String> {
        if self.len < mark {
            return Err(self.shortened(mark));
        }
        if self.len == mark {
            return Ok(());
        }
        let cut = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(mark)?;
            file.seek(SeekFrom::End(0))?;
            file.sync_all()
        };
        cut().map_err(|e| self.fail(&e))?;
        self.file = None;
        self.len = mark;
        Ok(())
    }

    fn verify(&mut self, mark: u64, counts: &RecordCounts) -> Result<(), String> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(self.fail(&e)),
        };
        if (text.len() as u64) < mark {
            self.len = text.len() as u64;
            return Err(self.shortened(mark));
        }
        let lines = memchr::memchr_iter(b'\n', &text).count() as u64;
        let rejected = counts.dead();
        if lines != rejected {
            return Err(format!(
                "{} holds {lines} records, but {rejected} were rejected",
                self.path.display()
            ));
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}
