//! Atomic, durable replacement of small files.
//!
//! The new content is written to a temporary file in the same directory, flushed and renamed over
//! the file. A rename within a directory is atomic, so a reader sees the old content or the new.
//! Only the owner can read the file. Only one process may write it at a time: the temporary name is
//! fixed, so that the next process overwrites what a killed one left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the content of a file and flushes both the content and the directory entry.
///
/// # Errors
/// When it cannot be written. The file then has its old or its new content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_unsynced_name(path, bytes)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    sync_dir(dir.unwrap_or(Path::new(".")))
}

/// The same, but flushes only the content: after a power failure the file may have its old content.
/// For files that are replaced often and whose old content is acceptable.
///
/// # Errors
/// When it cannot be written. The file then has its old or its new content.
pub fn replace_unsynced_name(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push(".new");
    let mut file = private(new.as_ref())?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Opens a file for writing at its beginning without truncating it. A new file is readable by its
/// owner only.
///
/// # Errors
/// When it cannot be opened.
pub fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Flushes the entries of a directory.
///
/// # Errors
/// When the directory cannot be opened or flushed.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // Windows does not support it and does not need it.
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_replaced_whole_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        replace(&path, b"the first").unwrap();
        fs::write(dir.path().join("a.json.new"), "left by a killed process").unwrap();
        replace(&path, b"2nd").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2nd");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            let private = dir.path().join("b.json");
            replace(&private, b"").unwrap();
            let mode = fs::metadata(&private).unwrap().permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        }
        assert!(replace(&dir.path().join("none/a.json"), b"").is_err());
    }
}
