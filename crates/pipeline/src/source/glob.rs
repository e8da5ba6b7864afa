//! File names with `*` and `?`, for shells that do not expand them and for lists that are too long.

use std::path::{Component, Path, PathBuf};

/// The files that the patterns name, each pattern's in order. A name without `*` and `?` is taken as it is.
///
/// # Errors
/// When a pattern names no file, or a directory cannot be read.
pub fn expand(patterns: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    for pattern in patterns {
        let text = pattern.to_string_lossy();
        if !text.contains(['*', '?']) || text.contains("://") || pattern.exists() {
            all.push(pattern.clone());
            continue;
        }
        let mut found = matches(pattern)?;
        if found.is_empty() {
            return Err(format!("{text}: no file has such a name"));
        }
        found.sort();
        all.append(&mut found);
    }
    Ok(all)
}

/// Whether a pattern names this path, without looking at the disk.
#[must_use]
pub fn names(pattern: &Path, path: &Path) -> bool {
    let mut parts = path.components();
    pattern.components().all(|own| match (own, parts.next()) {
        (Component::Normal(own), Some(Component::Normal(part))) => {
            let (own, part) = (own.to_string_lossy(), part.to_string_lossy());
            own == part
                || (fits(own.as_bytes(), part.as_bytes()) && (own.starts_with('.') || !part.starts_with('.')))
        }
        (own, part) => Some(own) == part,
    }) && parts.next().is_none()
}

/// The files that a pattern names, one part of the path after the other.
fn matches(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let Component::Normal(name) = part else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let name = name.to_string_lossy();
        if !name.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(&*name));
            found.retain(|path| path.exists());
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            if !here.is_dir() {
                continue;
            }
            let failed = |e: std::io::Error| format!("{}: {e}", here.display());
            for entry in std::fs::read_dir(here).map_err(failed)? {
                let file = entry.map_err(failed)?.file_name();
                let text = file.to_string_lossy();
                // As in a shell, a star does not name hidden files.
                if fits(name.as_bytes(), text.as_bytes()) && (name.starts_with('.') || !text.starts_with('.'))
                {
                    next.push(folder.join(&file));
                }
            }
        }
        found = next;
    }
    found.retain(|path| path.is_file());
    Ok(found)
}

/// Whether a name fits a pattern. A star that was too short is lengthened; only the last one can be.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                n += 1;
            }
            Some(byte) if name.get(n) == Some(byte) => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, is) in [
            ("*.tif", "a.tif", true),
            ("*.tif", "a.tiff", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?.tif", "a.tif", true),
            ("?.tif", ".tif", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
    }

    #[test]
    fn a_path_is_judged_without_the_disk() {
        for (pattern, path, is) in [
            ("/data/*.tif", "/data/a.tif", true),
            ("/data/*.tif", "/data/b/a.tif", false),
            ("/data/*.tif", "/data/../etc/a.tif", false),
            ("/data/*.tif", "/data/.a.tif", false),
            ("/data/*/x.tif", "/data/../x.tif", false),
            ("/data", "/data/a.tif", false),
            ("/data/*/a.tif", "/data", false),
            ("../b/a.tif", "../b/a.tif", true),
        ] {
            assert_eq!(names(Path::new(pattern), Path::new(path)), is, "{pattern} {path}");
        }
    }

    #[test]
    fn files_in_several_directories() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/1.tif", "a/2.tif", "b/1.tif", "b/x.txt", "b/.h.tif"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let names = |pattern: &str| {
            let found = expand(&[dir.path().join(pattern)]);
            found.map(|paths| {
                let short = |path: &PathBuf| path.strip_prefix(dir.path()).unwrap().display().to_string();
                paths.iter().map(short).collect::<Vec<_>>()
            })
        };
        assert_eq!(names("*/*.tif").unwrap(), ["a/1.tif", "a/2.tif", "b/1.tif"]);
        assert_eq!(names("a/2.tif").unwrap(), ["a/2.tif"]);
        assert!(names("c/*.tif").unwrap_err().contains("no file has such a name"));
    }
}
