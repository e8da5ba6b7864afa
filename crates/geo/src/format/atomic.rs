//! A file that appears complete or not at all.
//!
//! It is written under a hidden name in the same folder, flushed to disk and renamed: a rename within one
//! directory is atomic. The directory is flushed as well, so that the rename survives a power failure. If
//! it is dropped before, the hidden file is removed. The hidden file of a killed process is removed by the
//! next writer of the same target, which sees that its lock is free.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that has not got its name yet.
pub struct Pending {
    file: File,
    hidden: PathBuf,
    target: PathBuf,
    done: bool,
}

impl Pending {
    /// A new, empty file beside `target`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(target: &Path) -> io::Result<Pending> {
        let name = target
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
        sweep(target, name);
        let mut tries = 0u32;
        loop {
            let mut hidden_name = std::ffi::OsString::from(".");
            hidden_name.push(name);
            hidden_name.push(format!(".{}-{tries}.part", std::process::id()));
            let hidden = target.with_file_name(hidden_name);
            match OpenOptions::new().write(true).create_new(true).open(&hidden) {
                Ok(file) => {
                    hold(&file);
                    return Ok(Pending { file, hidden, target: target.into(), done: false });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Path of the hidden file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.hidden
    }

    /// Flushes the file and renames it to its target.
    ///
    /// # Errors
    /// If it cannot be stored; then the target is what it was.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.hidden, &self.target)?;
        self.done = true;
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Locks the file while it is written. On Unix only: elsewhere the lock would also keep SQLite from
/// writing.
fn hold(file: &File) {
    #[cfg(unix)]
    // Where locks do not work, no file is removed either.
    let _ = file.try_lock();
    #[cfg(not(unix))]
    let _ = file;
}

/// Removes hidden files of the same target that killed processes have left.
fn sweep(target: &Path, name: &std::ffi::OsStr) {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(entries), Some(name)) = (fs::read_dir(folder), name.to_str()) else { return };
    for entry in entries.flatten() {
        let is_part = |n: &str| {
            let middle = n.strip_prefix('.')?.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".part")?;
            middle.bytes().all(|b| b.is_ascii_digit() || b == b'-').then_some(())
        };
        if entry.file_name().to_str().and_then(is_part).is_none() {
            continue;
        }
        let left = File::open(entry.path()).is_ok_and(|file| cfg!(unix) && file.try_lock().is_ok());
        if left {
            // Another process may have removed it already.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl io::Seek for Pending {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.hidden);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shows_before_the_end_and_nothing_stays_after_giving_up() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.txt");
        fs::write(&target, "old").unwrap();
        let mut given_up = Pending::new(&target).unwrap();
        given_up.write_all(b"half").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        if cfg!(unix) {
            fs::write(dir.path().join(".a.txt.1-0.part"), "of a killed process").unwrap();
            drop(Pending::new(&target).unwrap());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "one is gone, one is being written");
        }
        drop(given_up);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mut whole = Pending::new(&target).unwrap();
        whole.write_all(b"new").unwrap();
        whole.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
