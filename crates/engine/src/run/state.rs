//! What a run keeps on disk besides the sink: a lock, its result, rejects and the response cache.
//!
//! The lock is the operating system's, held on a file for as long as the process lives. So a run
//! that was killed leaves none, and two runs of one pipeline cannot be.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tidegate_core::hex::hex;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::counts::Counts;
use super::kept::Kept;
use super::trail::Pending;
use crate::gate::Tally;
use crate::letter::now_ms;

/// What is committed with each batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Of which source, steps and sink.
    pub pipeline: String,
    /// Of which state of the source.
    pub stamp: String,
    /// Where the source stands.
    pub position: String,
    /// What became of the records so far.
    pub counts: Counts,
    /// What the gates counted so far.
    pub gates: Vec<Tally>,
    /// Up to which mark rejects count.
    pub rejects: u64,
    /// The source has no more.
    pub ended: bool,
    /// Which run it is, in the audit.
    #[serde(default)]
    pub run: String,
    /// Batches so far, over all resumes.
    #[serde(default)]
    pub batch: u64,
    /// Entries of the audit that are durable here and not yet there.
    #[serde(default)]
    pub audit: Vec<Pending>,
}

/// The directory of a pipeline's state.
pub struct State {
    dir: PathBuf,
    _lock: File,
}

/// The status of the last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is running, or was killed.
    Running,
    /// It is complete.
    Done,
    /// A gate ended it.
    Halted,
    /// It was stopped from outside.
    Stopped,
    /// The other side asked for more patience than there was.
    TryLater,
    /// An incident ended it.
    Suspended,
    /// It failed.
    Failed,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 7] = [
        Status::Running,
        Status::Done,
        Status::Halted,
        Status::Stopped,
        Status::TryLater,
        Status::Suspended,
        Status::Failed,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Done => "done",
            Status::Halted => "halted",
            Status::Stopped => "stopped",
            Status::TryLater => "try_later",
            Status::Suspended => "suspended",
            Status::Failed => "failed",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Known {
    status: Status,
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

impl State {
    /// The directory of a pipeline's state, without opening it.
    #[must_use]
    pub fn dir_of(state: &Path, pipeline: &str) -> PathBuf {
        state.join(folder(pipeline))
    }

    /// Opens the state of a pipeline and takes its lock.
    ///
    /// # Errors
    /// When another run holds it, or it cannot be made.
    pub fn open(state: &Path, pipeline: &str) -> Result<State, String> {
        let dir = State::dir_of(state, pipeline);
        let fail = |e: std::io::Error| format!("the state {} cannot be used: {e}", dir.display());
        fs::create_dir_all(&dir).map_err(fail)?;
        let lock = File::create(dir.join("lock")).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => Ok(State { dir, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(format!(
                "another run of {pipeline} is under way; it holds {}",
                dir.join("lock").display()
            )),
            Err(fs::TryLockError::Error(e)) => Err(fail(e)),
        }
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

    /// How the last run ended; `None` if there was none.
    #[must_use]
    pub fn last(&self) -> Option<Status> {
        let text = fs::read(self.file("run.json")).ok()?;
        serde_json::from_slice::<Known>(&text).ok().map(|known| known.status)
    }

    /// What the source said of itself when the last run began.
    #[must_use]
    pub fn kept(&self) -> Option<Kept> {
        serde_json::from_slice(&fs::read(self.file("source.json")).ok()?).ok()
    }

    /// Keeps what the source says of itself.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep_source(&self, kept: &Kept) -> Result<(), String> {
        self.write("source.json", &serde_json::to_value(kept).map_err(|e| e.to_string())?)
    }

    /// Keeps the result of a run, and when that was.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep(&self, mut result: serde_json::Value) -> Result<(), String> {
        if let Some(fields) = result.as_object_mut() {
            fields.insert("at_ms".into(), now_ms().into());
        }
        self.write("run.json", &result)
    }

    /// Writes a file whole or not at all.
    fn write(&self, name: &str, value: &serde_json::Value) -> Result<(), String> {
        let (new, old) = (self.file(&format!("{name}.new")), self.file(name));
        let write = || -> std::io::Result<()> {
            fs::write(&new, format!("{value:#}\n"))?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, &old)
        };
        write().map_err(|e| format!("{}: {e}", old.display()))
    }
}
