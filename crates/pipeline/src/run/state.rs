//! What a run keeps on disk besides the sink: a lock, its identity and result (`lifecycle`),
//! rejects and the response cache.
//!
//! The lock is the operating system's, held on a file for as long as the process lives. So a run
//! that was killed leaves none, and two runs of one pipeline cannot be.

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

/// What is committed with each batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunCheckpoint {
    /// Of which source, steps and sink.
    pub pipeline: String,
    /// Of which state of the source.
    pub stamp: String,
    /// Where the source stands.
    pub position: String,
    /// What became of the records so far.
    pub counts: RecordCounts,
    /// What the gates counted so far.
    pub gates: Vec<GateTally>,
    /// Up to which mark rejects count.
    pub rejects: u64,
    /// The source has no more.
    pub ended: bool,
    /// The id of the run.
    #[serde(default)]
    pub run: String,
    /// The sink after this batch: which one it is, and how many rows it holds at least.
    #[serde(default)]
    pub sink: Standing,
    /// Which store the rejects are in.
    #[serde(default)]
    pub rejects_in: String,
    /// Batches so far, over all resumes.
    #[serde(default)]
    pub batch: u64,
    /// Entries of the audit that are durable here and not yet there.
    #[serde(default)]
    pub audit: Vec<PendingEntries>,
}

/// Why the state of a pipeline cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// Another run of the pipeline holds the lock.
    Locked(String),
    /// The disk, or a permission.
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
    _lock: File,
}

/// A name that every file system takes, still telling.
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
    /// The directory of a pipeline's state, without opening it.
    #[must_use]
    pub fn dir_of(state: &Path, pipeline: &str) -> PathBuf {
        state.join(folder(pipeline))
    }

    /// Opens the state of a pipeline and takes its lock.
    ///
    /// # Errors
    /// When another run holds it, or it cannot be made.
    pub fn open(state: &Path, pipeline: &str) -> Result<StateDir, StateError> {
        let dir = StateDir::dir_of(state, pipeline);
        let fail = |e: &std::io::Error| format!("cannot use the state directory {}: {e}", dir.display());
        make_dir(&dir).map_err(|e| StateError::Failed(fail(&e)))?;
        let lock = File::create(dir.join("lock")).map_err(|e| StateError::Failed(fail(&e)))?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDir { dir, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(StateError::Locked(format!(
                "another run of {pipeline} is active; it holds the lock {}",
                dir.join("lock").display()
            ))),
            Err(fs::TryLockError::Error(e)) => Err(StateError::Failed(fail(&e))),
        }
    }

    /// The last run.
    ///
    /// # Errors
    /// When what is written down of it cannot be read.
    pub fn last(&self) -> Result<Last, SetupError> {
        Ok(Last::read(self)?)
    }

    /// A file of the state.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file whole or not at all, and waits until both it and its name are on the disk.
    pub(super) fn write(&self, name: &str, value: &serde_json::Value) -> Result<(), String> {
        let path = self.file(name);
        durable::replace(&path, format!("{value:#}\n").as_bytes())
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Makes a directory and those above it, durably.
fn make_dir(dir: &Path) -> std::io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_dir(above)?;
    }
    match fs::create_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    durable::sync_dir(above.unwrap_or(Path::new(".")))
}
