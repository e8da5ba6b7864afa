//! `include`: other files that provide defaults for the keys of the manifest.
//!
//! The texts of all files are concatenated, so that a position is still one byte range and every
//! error, in whichever file, is shown at its own line ([`Texts`]).

use std::fs;
use std::path::{Path, PathBuf};

use super::problem::{ManifestProblem, Texts, quoted};
use super::schema::SECONDS;
use super::tree::{self, YamlNode, YamlValue};
use super::{BYTES_MAX, unreadable};

/// The most included files in total.
const FILES_MAX: usize = 16;

/// Merges the included files below the manifest. `file` is the name of the manifest.
pub(super) fn resolve(
    mut root: YamlNode,
    file: &str,
    texts: &mut Texts,
    problems: &mut Vec<ManifestProblem>,
) -> YamlNode {
    let mut open: Vec<PathBuf> = vec![PathBuf::from(file)];
    let mut wanted = names(&root, Path::new(file));
    let mut at = 0;
    while at < wanted.len() {
        let Some((path, place)) = wanted.get(at).cloned() else { break };
        at += 1;
        let same = |known: &PathBuf| {
            known == &path || matches!((known.canonicalize(), path.canonicalize()), (Ok(a), Ok(b)) if a == b)
        };
        if open.iter().any(same) || open.len() > FILES_MAX {
            let message = format!("{} is included twice", quoted(&path.display().to_string()));
            problems.push(ManifestProblem::new("include", place, message).help("include each file once"));
            continue;
        }
        let text = match read(&path) {
            Ok(text) => text,
            Err(why) => {
                let message = format!("cannot include {}: {why}", quoted(&path.display().to_string()));
                problems.push(ManifestProblem::new("include", place, message).help("check the path"));
                continue;
            }
        };
        let start = texts.add(&path.display().to_string(), &text);
        open.push(path.clone());
        match tree::parse(&text) {
            Ok(mut node) => {
                node.shift(start);
                if !matches!(node.value, YamlValue::Map(_)) {
                    let message = "an included file must be a mapping (`key: value`)".to_owned();
                    problems.push(
                        ManifestProblem::new("include", node.place, message).help("start with `pipeline:`"),
                    );
                    continue;
                }
                wanted.extend(names(&node, &path));
                beneath(&mut root, node);
            }
            Err(mut problem) => {
                problem.place = problem.place.map(|place| place.start + start..place.end + start);
                problems.push(problem);
            }
        }
    }
    root
}

/// The files that a file includes, relative to its directory.
fn names(root: &YamlNode, file: &Path) -> Vec<(PathBuf, tree::ByteRange)> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let list = root.at(&["include"]).map(YamlNode::items).unwrap_or_default();
    list.iter().filter_map(|item| Some((folder.join(item.text()?), item.place.clone()))).collect()
}

fn read(path: &Path) -> Result<String, String> {
    let about = fs::metadata(path).map_err(|error| unreadable(&error).message)?;
    if !about.is_file() {
        return Err("not a file".to_owned());
    }
    if about.len() > BYTES_MAX as u64 {
        return Err(format!("larger than {BYTES_MAX} bytes"));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(&error).message)?;
    String::from_utf8(bytes).map_err(|_| "not valid UTF-8".to_owned())
}

/// Adds the keys of `base` that `over` lacks. A duration in seconds and one with a unit are the
/// same key.
fn beneath(over: &mut YamlNode, base: YamlNode) {
    let (YamlValue::Map(over), YamlValue::Map(base)) = (&mut over.value, base.value) else { return };
    let plain = |name: &str| name.strip_suffix(SECONDS).unwrap_or(name).to_owned();
    for (key, node) in base {
        if key.name == "include" || key.name == "version" {
            continue;
        }
        match over.iter_mut().find(|(known, _)| plain(&known.name) == plain(&key.name)) {
            Some((_, known)) => beneath(known, node),
            None => over.push((key, node)),
        }
    }
}
