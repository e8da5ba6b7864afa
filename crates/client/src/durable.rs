//! Small files that are replaced whole, and are on the disk when the call returns.
//!
//! The new content is written beside the file, flushed and renamed over it: a rename within one
//! directory is atomic, so a reader sees the old content or the new one. Only the owner can read
//! such a file. One process writes it at a time: the name beside it is always the same, so that
//! what a killed process has left is overwritten by the next.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the content of a file, and waits until both the content and the name are on the disk.
///
/// # Errors
/// When it cannot be written; the file has its old content or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_unsynced_name(path, bytes)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    sync_dir(dir.unwrap_or(Path::new(".")))
}

/// The same, and waits for the content alone: after a power cut the file may have its old content.
/// For a file that is replaced often and whose old content is good too.
///
/// # Errors
/// When it cannot be written; the file has its old content or the new one.
pub fn replace_unsynced_name(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push(".new");
    let mut file = private(new.as_ref())?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Opens a file for writing at its beginning, its content kept. If it is new, only its owner can read it.
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

/// Waits until the names in a directory are on the disk.
///
/// # Errors
/// When the directory cannot be opened or flushed.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // Windows has no such thing, and needs none.
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
