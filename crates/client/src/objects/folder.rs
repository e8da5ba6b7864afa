//! Paths that come in data, and the folders that a person allowed for them.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::address::ObjectPlace;
use super::refusal::ObjectRefusal;

/// Extensions of files that readers look for in place of a file's own one.
const INSTEAD: [&str; 11] = ["shx", "SHX", "dbf", "DBF", "cpg", "CPG", "prj", "PRJ", "tfw", "tifw", "wld"];
/// Endings of files that readers look for behind a file's whole name.
const BEHIND: [&str; 5] = [".aux.xml", ".msk", "-wal", "-shm", "-journal"];

/// A folder, as a person allowed it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AllowedFolder {
    /// As it was written.
    text: String,
    path: PathBuf,
}

impl AllowedFolder {
    pub(super) fn new(text: &str, base: &Path) -> AllowedFolder {
        AllowedFolder { text: text.to_owned(), path: base.join(text) }
    }
}

impl fmt::Display for AllowedFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "folder {}", self.text)
    }
}

/// The file that a text names.
///
/// Nothing outside of the folders is looked at without its being refused in the same words, whether it exists
/// or not: an error must not tell what else is on this machine.
pub(super) fn place(
    folders: &[AllowedFolder],
    base: &Path,
    text: &str,
) -> Result<ObjectPlace, ObjectRefusal> {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == '\\') {
        return Err(ObjectRefusal::Characters);
    }
    if text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:")) {
        return Err(ObjectRefusal::Scheme("file".to_owned()));
    }
    let named = Path::new(text);
    if named.components().any(|part| part == Component::ParentDir) {
        return Err(ObjectRefusal::Dots);
    }
    if folders.is_empty() {
        return Err(ObjectRefusal::Folder);
    }
    // The base of a manifest in the working directory is empty.
    let asked = std::path::absolute(base.join(named)).map_err(|_| ObjectRefusal::Characters)?;
    let roots: Vec<PathBuf> =
        folders.iter().filter_map(|folder| fs::canonicalize(real_or_here(&folder.path)).ok()).collect();
    let root_of = |path: &Path| roots.iter().find(|root| path.starts_with(root));
    let real = match fs::canonicalize(&asked) {
        Ok(real) => real,
        Err(error) => return Err(unreachable(&asked, error.kind(), &|path| root_of(path).is_some())),
    };
    let Some(root) = root_of(&real) else { return Err(ObjectRefusal::Folder) };
    match fs::metadata(&real) {
        Ok(about) if about.is_file() => {}
        Ok(_) => return Err(ObjectRefusal::NotAFile),
        Err(error) => return Err(ObjectRefusal::Unreadable(error.kind())),
    }
    match beside(&real).into_iter().find(|path| leads_out(path, root)) {
        Some(path) => {
            Err(ObjectRefusal::Beside(path.file_name().unwrap_or_default().to_string_lossy().into()))
        }
        None => Ok(ObjectPlace::File(real)),
    }
}

fn real_or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Why a path that cannot be followed to its end is refused. It may only be said of a file that would be in a
/// folder: a link that leads nowhere is refused as one that leads out.
fn unreachable(asked: &Path, kind: ErrorKind, is_inside: &dyn Fn(&Path) -> bool) -> ObjectRefusal {
    for part in asked.ancestors() {
        if let Ok(real) = fs::canonicalize(part) {
            return if is_inside(&real) { ObjectRefusal::Unreadable(kind) } else { ObjectRefusal::Folder };
        }
        if fs::symlink_metadata(part).is_ok_and(|about| about.is_symlink()) {
            return ObjectRefusal::Folder;
        }
    }
    ObjectRefusal::Folder
}

/// The files that readers may look for beside a file, and beside its mask.
fn beside(path: &Path) -> Vec<PathBuf> {
    let behind = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let of = |path: &Path| -> Vec<PathBuf> {
        let instead = INSTEAD.iter().map(|extension| path.with_extension(extension));
        instead.chain(BEHIND.iter().map(|end| behind(path, end))).collect()
    };
    [of(path), of(&behind(path, ".msk"))].concat()
}

/// Whether a file beside another one exists and is not a regular file of the same folder.
fn leads_out(path: &Path, root: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Err(_) => false,
        Ok(about) if about.is_file() => false,
        Ok(about) if about.is_symlink() => !fs::canonicalize(path).is_ok_and(|real| {
            real.starts_with(root) && fs::metadata(&real).is_ok_and(|about| about.is_file())
        }),
        Ok(_) => true,
    }
}
