//! Which files may be read as parts of a manifest, and which are none.
//!
//! A manifest may come from a stranger, in a pull request that a machine with secrets checks. So an
//! `include` stays below the repository of the manifest, or below its folder where there is no
//! repository, after all links are followed; and of a file that is no manifest, nothing is quoted.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::{BYTES_MAX, unreadable};

/// The directories below which a manifest may include files, without links.
#[derive(Clone, Debug)]
pub(super) struct IncludeRoots {
    roots: Vec<PathBuf>,
}

impl IncludeRoots {
    /// Those of a manifest that a person named, and those that they allowed besides.
    pub(super) fn of(manifest: &Path, allowed: &[PathBuf]) -> IncludeRoots {
        let folder = manifest.parent().filter(|folder| !folder.as_os_str().is_empty());
        let own = folder.unwrap_or(Path::new(".")).canonicalize().ok().map(|folder| {
            let repository = folder.ancestors().find(|above| above.join(".git").exists());
            repository.map_or_else(|| folder.clone(), Path::to_owned)
        });
        let allowed = allowed.iter().filter_map(|folder| folder.canonicalize().ok());
        IncludeRoots { roots: own.into_iter().chain(allowed).collect() }
    }

    /// The file that a name in a manifest means, without links.
    fn file(&self, path: &Path) -> Result<PathBuf, String> {
        let outside = || "it is outside the repository, or the folder, of the manifest".to_owned();
        let inside = |path: &Path| self.roots.iter().any(|root| path.starts_with(root));
        match path.canonicalize() {
            Ok(found) if inside(&found) => Ok(found),
            Ok(_) => Err(outside()),
            // Whether a file exists elsewhere is nobody's business.
            Err(error) if inside(&plain(path)) => Err(unreadable(&error).message),
            Err(_) => Err(outside()),
        }
    }
}

/// The file that a name on the command line means, where the file may be a stranger's: a link does not lead out of
/// the repository, and a pipe or a device does not keep the check waiting.
///
/// # Errors
/// When it is such a link, or no file.
pub fn named(path: &Path, allowed: &[PathBuf]) -> Result<PathBuf, String> {
    let found = IncludeRoots::of(path, allowed).file(path)?;
    match fs::metadata(&found) {
        Ok(about) if about.is_file() => Ok(found),
        Ok(_) => Err("not a file".to_owned()),
        Err(error) => Err(unreadable(&error).message),
    }
}

/// The path without `..` and without links in the part that exists.
fn plain(path: &Path) -> PathBuf {
    let start = std::env::current_dir().unwrap_or_default();
    let mut plain = PathBuf::new();
    for part in start.join(path).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
        if let Ok(found) = plain.canonicalize() {
            plain = found;
        }
    }
    plain
}

/// The text of an included file. `roots` is `None` for a file that a person named.
pub(super) fn read(path: &Path, roots: Option<&IncludeRoots>) -> Result<String, String> {
    let path = roots.map_or_else(|| Ok(path.to_owned()), |roots| roots.file(path))?;
    let unread = |error: &std::io::Error| unreadable(error).message;
    // Before it is opened: opening a pipe waits for its other end.
    if !fs::metadata(&path).map_err(|error| unread(&error))?.is_file() {
        return Err("not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(|error| unread(&error))?;
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() > BYTES_MAX {
        return Err(format!("larger than {BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "not valid UTF-8".to_owned())?;
    if !is_manifest(&text) && !is_empty(&text) {
        return Err(format!("it is no manifest: {NO_KEY}"));
    }
    Ok(text)
}

/// What every manifest has.
pub(super) const NO_KEY: &str = "no line begins with `pipeline:`, `include:` or `expect:`";

/// Whether a text is meant to be a manifest, right or wrong: then it may be quoted.
pub(super) fn is_manifest(text: &str) -> bool {
    if text.contains('\0') {
        return false;
    }
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        return has_flow_key(text, &["pipeline", "expect"]);
    }
    let starts = |line: &str| {
        let line = line.trim_start_matches(['"', '\'']);
        let key = ["pipeline", "include", "expect"].into_iter().find_map(|key| line.strip_prefix(key));
        key.is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ', '\t']).starts_with(':'))
            // Of other formats it is a text, or another number.
            || line.trim_end() == "version: 1"
    };
    text.lines().any(starts)
}

/// Whether a text in braces, such as JSON, has one of these keys.
#[must_use]
pub fn has_flow_key(text: &str, keys: &[&str]) -> bool {
    let key =
        |piece: &str| piece.split_once(':').map(|(key, _)| key.trim().trim_matches(['"', '\'']).to_owned());
    text.split(['{', '}', ',', '\n']).filter_map(key).any(|key| keys.contains(&key.as_str()))
}

/// Whether a text has nothing but spaces and comments.
pub(super) fn is_empty(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_known_by_its_first_words() {
        for text in [
            "pipeline:\n",
            "# x\nversion: 1\n",
            "\u{feff}pipeline : {",
            "\"pipeline\": {}",
            "{\"pipeline\":{}}",
            "{\n  \"version\": 1,\n  \"pipeline\": {",
            "{version: 1, pipeline: {id: x}}",
            "include: [a]",
            "pipeline:\r\n  id: x",
        ] {
            assert!(is_manifest(text), "{text:?}");
        }
        for text in [
            "",
            "root:x:0:0:root:/root:/bin/sh\n",
            "A=1\0pipeline: x\0",
            "A=1\0\npipeline:\n",
            "version: \"3\"\nservices:\n  x: y\n",
            "apiVersion: v1\n",
            "jobs:\n  pipeline: secret\n",
            "pipelines: x",
            "[pipeline]\nx = 1\n",
            "{\"type\": \"pipeline\", \"token\": \"x\"}",
        ] {
            assert!(!is_manifest(text), "{text:?}");
        }
    }
}
