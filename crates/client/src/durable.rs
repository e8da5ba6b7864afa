//! Files that survive a power failure, and that only their owner can read.
//!
//! A file is durable when its content and its name are: the content is flushed with the file, the
//! name with its directory. Everything that counts is created, appended to, replaced and renamed
//! here, so that no caller can forget one of the two, and the mode is 0600 whatever the umask.
//!
//! A replacement is written to a temporary file in the same directory, flushed and renamed over the
//! file: a reader sees the old content or the new. Only one process may write it at a time: the
//! temporary name is fixed, so that the next process overwrites what a killed one left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the content of a file and flushes both the content and the directory entry.
///
/// # Errors
/// When it cannot be written. The file then has its old or its new content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push(".new");
    let new = Path::new(&new);
    let mut options = owned();
    let mut file = options.create(true).truncate(true).write(true).open(new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    rename(new, path)
}

/// Renames a file whose content is flushed, and flushes the directory entry.
///
/// # Errors
/// When it cannot be renamed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Opens a file for writing at its beginning without truncating it. A new file is readable by its
/// owner only, and its name is durable.
///
/// # Errors
/// When it cannot be opened.
pub fn private(path: &Path) -> io::Result<File> {
    open(path, |options| options.write(true))
}

/// Opens a file for appending, like [`private`].
///
/// # Errors
/// When it cannot be opened.
pub fn append(path: &Path) -> io::Result<File> {
    open(path, |options| options.append(true))
}

fn open(path: &Path, how: impl Fn(&mut OpenOptions) -> &mut OpenOptions) -> io::Result<File> {
    match how(&mut owned()).create_new(true).open(path) {
        Ok(file) => {
            sync_parent(path)?;
            Ok(file)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => how(&mut OpenOptions::new()).open(path),
        Err(e) => Err(e),
    }
}

fn owned() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a directory and its parents, and flushes their names.
///
/// # Errors
/// When it cannot be created.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    make_dir(dir.parent().unwrap_or(Path::new("")))?;
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    sync_parent(dir)
}

/// Flushes the name of a file or directory.
///
/// # Errors
/// When its directory cannot be opened or flushed.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
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
        make_dir(&dir.path().join("x/y")).unwrap();
        let file = dir.path().join("x/y/log");
        for line in ["one\n", "two\n"] {
            append(&file).unwrap().write_all(line.as_bytes()).unwrap();
        }
        private(&file).unwrap().write_all(b"1").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"1ne\ntwo\n");
    }
}
