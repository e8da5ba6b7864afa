//! Where rejected records go: a file of lines, or the store of dead letters (`letters`).
//!
//! A reject is durable before the batch that it belongs to is committed. A run that is killed in
//! between resumes at the batch before, and would write it a second time; so a checkpoint holds
//! the mark up to which lines count, and a resumed run takes back what lies behind it. A store
//! knows a letter again instead.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::counts::RecordCounts;
use crate::step::Reject;

/// Why nothing of a batch may be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchRefused {
    /// Its rejects could not be stored.
    Failed(String),
    /// It fails as a whole: an incident was opened, which suspends the pipeline.
    Incident(String),
}

/// What was not successful in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Unsuccessful<'a> {
    /// Records given up.
    pub rejected: &'a [Reject],
    /// Records that failed and are in the sink all the same.
    pub failed: &'a [Reject],
    /// Records in the batch.
    pub records: u64,
}

/// Takes rejected records.
pub trait Rejects: Send {
    /// Takes those of a batch in and makes them durable; the mark after them.
    ///
    /// # Errors
    /// Nothing of the batch may be committed.
    fn put(&mut self, batch: &Unsuccessful<'_>) -> Result<u64, BatchRefused>;

    /// Begins anew: what an earlier run gave up is no longer of this one.
    ///
    /// # Errors
    /// When it cannot be put away.
    fn begin(&mut self) -> Result<(), String>;

    /// Takes back what lies behind a mark.
    ///
    /// # Errors
    /// When that failed.
    fn rewind(&mut self, mark: u64) -> Result<(), String>;

    /// Which store this is; a resumed run must find the same. Empty where the mark tells enough.
    ///
    /// # Errors
    /// When it cannot be asked.
    fn identity(&mut self) -> Result<String, String> {
        Ok(String::new())
    }

    /// Asks at the end of a run whether all of them are there: those up to the mark, as counted.
    ///
    /// # Errors
    /// When some are missing, or it cannot be asked.
    fn verify(&mut self, mark: u64, counts: &RecordCounts) -> Result<(), String>;

    /// Where they are, for people.
    fn place(&self) -> String;
}

/// One JSON object per line.
pub struct NdjsonRejects {
    path: PathBuf,
    file: Option<File>,
    len: u64,
    pipeline: String,
}

impl NdjsonRejects {
    /// Rejects of a pipeline in this file, which is made with the first of them.
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

/// A reject as one line.
fn line(pipeline: &str, reject: &Reject) -> String {
    let problems: Vec<_> = reject
        .problems
        .iter()
        .map(|problem| json!({ "code": problem.code.as_str(), "message": problem.message, "field": problem.path }))
        .collect();
    let feature: serde_json::Value = serde_json::from_str(&reject.feature).unwrap_or_default();
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
        // What is in the sink need not be here too.
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
            None => OpenOptions::new().create(true).append(true).open(&self.path).map_err(failed)?,
        };
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        self.file = Some(file);
        self.len += text.len() as u64;
        Ok(self.len)
    }

    fn begin(&mut self) -> Result<(), String> {
        if self.len > 0 {
            let before = self.path.with_extension("previous.ndjson");
            std::fs::rename(&self.path, before).map_err(|e| self.fail(&e))?;
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
