//! The bytes of the file under repair, read by position and never written.
//!
//! A file that was wrapped (gzip, an HTTP head) is read through the same window, so that nothing
//! after the unwrapping needs to know.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::SystemTime;

use super::report::{RepairError, broken};

/// A window on a file.
pub(super) struct RepairInput {
    file: File,
    base: u64,
    len: u64,
    /// The length and the time of the last change of the whole file, when it was opened.
    opened: (u64, Option<SystemTime>),
}

fn state(file: &File) -> io::Result<(u64, Option<SystemTime>)> {
    let now = file.metadata()?;
    Ok((now.len(), now.modified().ok()))
}

impl RepairInput {
    /// The whole file.
    pub(super) fn new(file: File) -> io::Result<RepairInput> {
        let opened = state(&file)?;
        Ok(RepairInput { file, base: 0, len: opened.0, opened })
    }

    /// The same file from a byte on, of this length.
    pub(super) fn window(self, from: u64, len: u64) -> RepairInput {
        let base = self.base.saturating_add(from);
        let len = len.min(self.len.saturating_sub(from));
        RepairInput { base, len, ..self }
    }

    /// Whether the file is still what was opened.
    pub(super) fn unchanged(&self) -> Result<(), RepairError> {
        if state(&self.file)? == self.opened {
            return Ok(());
        }
        Err(broken("the input was changed while it was read; nothing was written"))
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes from a place; fewer if the file ends there.
    pub(super) fn up_to(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        let len = len.min(self.len.saturating_sub(at));
        let mut bytes = Vec::new();
        if len == 0 {
            return Ok(bytes);
        }
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.base.saturating_add(at)))?;
        file.take(len).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Bytes from a place, all of them; nothing if the file ends before.
    pub(super) fn exact(&self, at: u64, len: u64) -> io::Result<Option<Vec<u8>>> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        let bytes = self.up_to(at, len)?;
        Ok((bytes.len() as u64 == len).then_some(bytes))
    }

    /// A reader of all of it.
    pub(super) fn reader(&self) -> io::Result<impl Read + '_> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.base))?;
        Ok(file.take(self.len))
    }
}
