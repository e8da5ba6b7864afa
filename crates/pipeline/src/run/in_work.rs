//! Which records were in work when the process died.
//!
//! A small file of the state directory holds the number of records that are done and the number
//! that were read. It is written with each page and each commit, in one write and without flushing:
//! it survives the death of the process, and a power failure is no fault of a record. A run that ends
//! in any other way removes it. So a run that finds it knows that the process died, and where.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Mutex;

use super::state::StateDir;
use crate::durable;
use crate::lock::lock;

const FILE: &str = "in_work";

/// The records in work.
pub(super) struct InWork {
    state: Mutex<(File, u64, u64)>,
    run: String,
}

impl InWork {
    /// Starts after this many records.
    pub(super) fn begin(state: &StateDir, run: &str, read: u64) -> Result<InWork, String> {
        let path = state.file(FILE);
        let fail = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = durable::private(&path).map_err(fail)?;
        file.set_len(0).map_err(fail)?;
        let own = InWork { state: Mutex::new((file, read, read)), run: run.to_owned() };
        own.write(|_, _| {});
        Ok(own)
    }

    /// This many records were read.
    pub(super) fn reached(&self, read: u64) {
        self.write(|_, reached| *reached = read);
    }

    /// This many records are done.
    pub(super) fn landed(&self, read: u64) {
        self.write(|landed, _| *landed = read);
    }

    fn write(&self, change: impl FnOnce(&mut u64, &mut u64)) {
        let mut state = lock(&self.state);
        let (file, landed, reached) = &mut *state;
        change(landed, reached);
        // Always of the same length, so that one write replaces it. If the disk is full, a crash
        // now has no suspects; the run itself does not need the file.
        let line = format!("{} {landed:020} {reached:020}\n", self.run);
        let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(line.as_bytes()));
    }

    /// The run ends, and the process lives.
    pub(super) fn end(self, state: &StateDir) {
        // If it stays, the next run tries some records alone for nothing.
        let _ = std::fs::remove_file(state.file(FILE));
    }

    /// The records in work when the process of this run died, if it died: done and read.
    pub(super) fn found(state: &StateDir, run: &str) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(state.file(FILE)).ok()?;
        let mut words = text.split_whitespace();
        let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
        (words.next() == Some(run)).then_some(())?;
        Some((number(words.next())?, number(words.next())?))
    }

    /// Removes what a dead process left, once it is noted elsewhere.
    pub(super) fn forget(state: &StateDir) {
        let _ = std::fs::remove_file(state.file(FILE));
    }
}
