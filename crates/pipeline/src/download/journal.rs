//! What was downloaded, so that each object is downloaded once.
//!
//! A line of JSON per object, appended and synced when the object is in its place. A line that a
//! crash cut off is not valid JSON and does not count. The target is asked as well: an object that
//! was removed since is downloaded anew.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::lock::lock;

/// An object that is in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    pub(super) key: String,
    pub(super) url: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// The list of what was downloaded.
#[derive(Debug)]
pub(super) struct Journal {
    file: Mutex<File>,
    entries: HashMap<String, JournalEntry>,
}

impl Journal {
    /// Opens the journal in a directory, which belongs to this process as long as it is open.
    pub(super) fn open(dir: &Path) -> io::Result<Journal> {
        durable::make_dir(dir)?;
        let path = dir.join("downloaded.ndjson");
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path)?;
        if file.try_lock().is_err() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the same download is active"));
        }
        durable::sync_parent(&path)?;
        let text = fs::read(&path)?;
        let lines = text.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let entries = lines.map(|entry: JournalEntry| (entry.key.clone(), entry)).collect();
        if !text.is_empty() && !text.ends_with(b"\n") {
            (&file).write_all(b"\n")?;
        }
        Ok(Journal { file: Mutex::new(file), entries })
    }

    /// What was downloaded to this key from this URL.
    pub(super) fn find(&self, key: &str, url: &str) -> Option<&JournalEntry> {
        self.entries.get(key).filter(|entry| entry.url == url)
    }

    /// Notes that an object is in its place.
    pub(super) fn note(&self, entry: &JournalEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = lock(&self.file);
        file.write_all(&line)?;
        file.sync_data()
    }
}
