//! `include`: other files that provide defaults for the keys of the manifest.
//!
//! The texts of all files are concatenated, so that a position is still one byte range and every
//! error, in whichever file, is shown at its own line ([`Texts`]).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::origin::{self, IncludeRoots};
use super::problem::{ManifestProblem, Texts, quoted};
use super::schema::SECONDS;
use super::tree::{self, YamlNode, YamlValue};

/// The most included files in total.
const FILES_MAX: usize = 16;

/// Who named the files that a manifest includes.
#[derive(Clone, Copy)]
pub(super) enum Includer {
    /// The manifest did.
    Manifest,
    /// A person did, on the command line.
    Person,
}

/// A file to include.
#[derive(Clone)]
struct WantedFile {
    path: PathBuf,
    place: tree::ByteRange,
    /// Where it may be; anywhere if a person named it.
    roots: Option<Rc<IncludeRoots>>,
}

/// Merges the included files below the manifest. `file` is the name of the manifest.
pub(super) fn resolve(
    mut root: YamlNode,
    file: &str,
    (includer, allowed): (Includer, &[PathBuf]),
    texts: &mut Texts,
    problems: &mut Vec<ManifestProblem>,
) -> YamlNode {
    if root.at(&["include"]).is_none() {
        return root;
    }
    let mut open: Vec<PathBuf> = vec![PathBuf::from(file)];
    let roots = match includer {
        Includer::Manifest => Some(Rc::new(IncludeRoots::of(Path::new(file), allowed))),
        Includer::Person => None,
    };
    let mut wanted = names(&root, Path::new(file), roots.as_ref());
    let mut at = 0;
    while at < wanted.len() {
        let Some(WantedFile { path, place, roots }) = wanted.get(at).cloned() else { break };
        at += 1;
        let same = |known: &PathBuf| {
            known == &path || matches!((known.canonicalize(), path.canonicalize()), (Ok(a), Ok(b)) if a == b)
        };
        if open.iter().any(same) || open.len() > FILES_MAX {
            let message = format!("{} is included twice", quoted(&path.display().to_string()));
            problems.push(ManifestProblem::new("include", place, message).help("include each file once"));
            continue;
        }
        let text = match origin::read(&path, roots.as_deref()) {
            Ok(text) => text,
            Err(why) => {
                let message = format!("cannot include {}: {why}", quoted(&path.display().to_string()));
                let help = if why.starts_with("it is outside") {
                    "move it below the folder of the manifest, or allow its directory with `--allow-include DIR`"
                } else {
                    "check the path"
                };
                problems.push(ManifestProblem::new("include", place, message).help(help));
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
                let own = || Rc::new(IncludeRoots::of(&path, allowed));
                let roots = roots.unwrap_or_else(own);
                wanted.extend(names(&node, &path, Some(&roots)));
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
fn names(root: &YamlNode, file: &Path, roots: Option<&Rc<IncludeRoots>>) -> Vec<WantedFile> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let list = root.at(&["include"]).map(YamlNode::items).unwrap_or_default();
    let wanted = |item: &YamlNode| {
        Some(WantedFile { path: folder.join(item.text()?), place: item.place.clone(), roots: roots.cloned() })
    };
    list.iter().filter_map(wanted).collect()
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
