//! Values for shell completion: profiles, layers, codes of dead letters.
//!
//! The scripts of `tidegate completions` ask the command itself what fits, with the words of the line
//! in its arguments. Why not scripts with everything in them: a script cannot know the layers of a
//! file. Nothing is asked of a network here, and what cannot be read offers nothing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::{CompleteEnv, CompletionCandidate};
use tidegate_client::profile::Profiles;
use tidegate_core::taxonomy::KNOWN;
use tidegate_geo::format::{self, Format, geojson::ReadOptions};
use tidegate_pipeline::manifest;

/// The variable in which a script names its shell.
pub(crate) const VARIABLE: &str = "TIDEGATE_COMPLETE";
/// The most manifests that are read for their layers.
const MANIFESTS_MAX: usize = 50;

/// Answers a completion script, if one asks.
pub(crate) fn answers() -> bool {
    let env = CompleteEnv::with_factory(crate::Args::command).var(VARIABLE).completer("tidegate");
    // A shell that asks for something unknown is offered nothing.
    std::env::var_os(VARIABLE).is_some()
        && env.try_complete(crate::words(), std::env::current_dir().ok().as_deref()).unwrap_or(true)
}

/// The names of the profiles, with those of `--profiles`.
pub(crate) fn profiles() -> Vec<CompletionCandidate> {
    let words: Vec<OsString> = crate::words().collect();
    let more = words.iter().position(|word| word == "--profiles").and_then(|at| words.get(at + 1));
    let Ok(embedded) = Profiles::embedded() else { return Vec::new() };
    let all = match more {
        Some(path) => embedded.clone().with(Path::new(path)).unwrap_or(embedded),
        None => embedded,
    };
    all.names().into_iter().map(CompletionCandidate::new).collect()
}

/// The codes of dead letters, with their meanings.
pub(crate) fn codes() -> Vec<CompletionCandidate> {
    let each = KNOWN.iter().map(|(code, meaning)| {
        CompletionCandidate::new(code.as_str().to_owned()).help(Some((*meaning).into()))
    });
    each.collect()
}

/// The layers of the files on the line; without such a file, those that the pipelines of this
/// directory read.
pub(crate) fn layers() -> Vec<CompletionCandidate> {
    let files: Vec<PathBuf> = crate::words()
        .skip(1)
        .map(PathBuf::from)
        .filter(|path| path.is_file() && Format::of_path(path).is_some())
        .collect();
    let mut names: Vec<String> = files
        .iter()
        .flat_map(|file| format::layers(file, &ReadOptions::default()).unwrap_or_default())
        .collect();
    if files.is_empty() {
        names = of_pipelines();
    }
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The layers that the manifests in this directory read.
fn of_pipelines() -> Vec<String> {
    let Ok(entries) = fs::read_dir(".") else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    paths
        .filter(is_yaml)
        .take(MANIFESTS_MAX)
        .filter_map(|path| manifest::load(&path).ok()?.pipeline.source?.layer)
        .collect()
}
