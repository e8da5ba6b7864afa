//! The state of a pipeline on disk besides the sink: a lock, identity and result of the last run
//! (`lifecycle`), rejects and the response cache.
//!
//! The lock is an operating system lock on a file, held while the process lives. So a killed run
//! leaves none, and two runs of one pipeline cannot overlap.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;

use super::counts::RecordCounts;
use super::lifecycle::Last;
use super::trail::PendingEntries;
use crate::durable;
use crate::error::SetupError;
use crate::gate::GateTally;
use crate::sink::Standing;
use crate::source::ChangeMark;

/// The checkpoint that is committed with each batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunCheckpoint {
    /// The fingerprint of source, steps and sink.
    pub pipeline: String,
    /// The stamp of the source.
    pub stamp: String,
    /// The position of the source.
    pub position: String,
    /// The outcomes of the records so far.
    pub counts: RecordCounts,
    /// The counts of the gates so far.
    pub gates: Vec<GateTally>,
    /// The mark up to which rejects count.
    pub rejects: u64,
    /// Whether the source has ended.
    pub ended: bool,
    /// The id of the run.
    #[serde(default)]
    pub run: String,
    /// The sink after this batch: its identity, and the number of rows it holds at least.
    #[serde(default)]
    pub sink: Standing,
    /// The identity of the store of the rejects.
    #[serde(default)]
    pub rejects_in: String,
    /// The number of batches so far, over all resumes.
    #[serde(default)]
    pub batch: u64,
    /// The highest value that was read of the field of `since`.
    #[serde(default)]
    pub highest: Option<ChangeMark>,
    /// Rejected records whose key is unknown, for `mode: sync`.
    #[serde(default)]
    pub unknown_keys: u64,
    /// Audit entries that are durable here and not yet in the audit log.
    #[serde(default)]
    pub audit: Vec<PendingEntries>,
}

/// Why the state of a pipeline cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// Another run of the pipeline holds the lock.
    Locked(String),
    /// A disk or permission error.
    Failed(String),
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::Locked(what) | StateError::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StateError {}

/// The directory of a pipeline's state.
pub struct StateDir {
    dir: PathBuf,
    /// The directory of the pipeline, if this is the one of a worker.
    home: Option<PathBuf>,
    _lock: File,
}

/// A readable directory name that every file system accepts.
fn folder(pipeline: &str) -> String {
    let safe: String = pipeline
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' })
        .take(80)
        .collect();
    if safe == pipeline {
        return safe;
    }
    let hash: [u8; 32] = Sha256::digest(pipeline.as_bytes()).into();
    let short = hex(&hash[..4]);
    format!("{safe}-{short}")
}

impl StateDir {
    /// The path of a pipeline's state directory.
    #[must_use]
    pub fn dir_of(state: &Path, pipeline: &str) -> PathBuf {
        state.join(folder(pipeline))
    }

    /// Opens the state of a pipeline and takes its lock.
    ///
    /// # Errors
    /// When another run holds the lock, or the directory cannot be created.
    pub fn open(state: &Path, pipeline: &str) -> Result<StateDir, StateError> {
        let dir = StateDir::dir_of(state, pipeline);
        let fail = |e: &std::io::Error| format!("cannot use the state directory {}: {e}", dir.display());
        durable::make_dir(&dir).map_err(|e| StateError::Failed(fail(&e)))?;
        let lock = durable::private(&dir.join("lock")).map_err(|e| StateError::Failed(fail(&e)))?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDir { dir, home: None, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(StateError::Locked(format!(
                "another run of {pipeline} is active; it holds the lock {}",
                dir.join("lock").display()
            ))),
            Err(fs::TryLockError::Error(e)) => Err(StateError::Failed(fail(&e))),
        }
    }

    /// Opens the state of a worker of a pipeline: many may run at once. The audit log is that of the
    /// pipeline.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn of_worker(state: &Path, pipeline: &str, worker: &str) -> Result<StateDir, StateError> {
        let home = StateDir::dir_of(state, pipeline);
        let fail = |e: std::io::Error| format!("cannot use the state directory {}: {e}", home.display());
        durable::make_dir(&home).map_err(|e| StateError::Failed(fail(e)))?;
        let own = StateDir::open(&home.join("workers"), worker)?;
        Ok(StateDir { home: Some(home), ..own })
    }

    /// The directory of the audit log.
    #[must_use]
    pub fn audit_dir(&self) -> &Path {
        self.home.as_deref().unwrap_or(&self.dir)
    }

    /// Deletes the state of a worker that has ended.
    pub(crate) fn remove_worker(state: &Path, pipeline: &str, worker: &str) {
        let dir = StateDir::dir_of(&StateDir::dir_of(state, pipeline).join("workers"), worker);
        // What is left over does no harm.
        let _unused = fs::remove_dir_all(dir);
    }

    /// The last run.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub fn last(&self) -> Result<Last, SetupError> {
        Ok(Last::read(self)?)
    }

    /// The path of a file of the state.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Replaces a file atomically, and flushes both its content and its directory entry.
    pub(super) fn write(&self, name: &str, value: &serde_json::Value) -> Result<(), String> {
        let path = self.file(name);
        durable::replace(&path, format!("{value:#}\n").as_bytes())
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}
