//! A file that appears whole or not at all.
//!
//! It is written under a hidden name beside its place, flushed to the disk and then renamed: a
//! rename within one directory is atomic. The directory is flushed too, because a rename that
//! lives only in the cache does not survive a power cut. Dropped before that, it is removed. A
//! process that is killed cannot do that: its hidden file is removed by the next one that writes
//! to the same place, which can tell by the lock that nobody holds any more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(crate) struct Pending {
    file: File,
    hidden: PathBuf,
    target: PathBuf,
    done: bool,
}

impl Pending {
    /// A new, empty file beside `target`.
    pub(crate) fn new(target: &Path) -> io::Result<Pending> {
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

    /// Where the bytes lie meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.hidden
    }

    /// Puts the file in its place.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.hidden, &self.target)?;
        self.done = true;
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Shows others that the file is being written. Elsewhere than on Unix a lock would also keep
/// SQLite from writing.
fn hold(file: &File) {
    #[cfg(unix)]
    // Where locks do not work, nothing is swept either.
    let _ = file.try_lock();
    #[cfg(not(unix))]
    let _ = file;
}

/// Removes what killed processes have left of the same target.
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
            // Somebody else may have been quicker.
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
