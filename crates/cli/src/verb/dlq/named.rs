//! The pipelines that a person names for a command on letters.
//!
//! A store knows what ran when its letters were made. Whoever can write letters can write that, too,
//! so no command calls, opens or writes what a store says: a person names the manifest, and what the
//! store says is compared with it.

use std::path::{Path, PathBuf};

use tidegate_ledger::letter::LetterStoreLocation;
use tidegate_ledger::letter::replay::{IntoFile, Rerun};
use tidegate_pipeline::manifest::Manifest;
use tidegate_pipeline::run::{DefinitionKind, ManifestReplay, NamedPipeline, StoredDefinition};

use super::{CommandFailure, OpenLetterStore, usage};
use crate::out;
use crate::verb::calls;
use crate::verb::plan::{self, VariableArgs};
use tidegate_core::quote::shell;

/// What pipelines are named.
#[derive(clap::Args)]
pub(super) struct NamedArgs {
    /// Manifest of the pipeline; `-` for standard input, may be repeated. What is called and written
    /// comes from it, never from the store. `geocode` and `fetch` write theirs with --print-manifest
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,

    #[command(flatten)]
    variables: VariableArgs,

    /// State directory of the runs of the manifest [default: that of the store, else .tidegate]
    #[arg(long, value_name = "DIR", value_parser = calls::state_dir())]
    state_dir: Option<PathBuf>,
}

/// The pipelines that a person named.
#[derive(Default)]
pub(super) struct NamedManifests {
    manifests: Vec<(PathBuf, Manifest)>,
    state_dir: Option<PathBuf>,
    /// The file of a capture.
    into: Option<PathBuf>,
}

impl NamedArgs {
    /// Reads the manifests.
    pub(super) fn load(&self) -> Result<NamedManifests, CommandFailure> {
        let mut manifests: Vec<(PathBuf, Manifest)> = Vec::new();
        let options = self.variables.options();
        for file in &self.manifest {
            let manifest = plan::load(file, &options)
                .ok_or_else(|| usage(format!("{} is not a valid manifest", file.display())))?;
            if let Some((other, _)) = manifests.iter().find(|(_, m)| m.pipeline.id == manifest.pipeline.id) {
                let (a, b, id) = (other.display(), file.display(), &manifest.pipeline.id);
                return Err(usage(format!("{a} and {b} are both manifests of {id}; name one of them")));
            }
            manifests.push((file.clone(), manifest));
        }
        Ok(NamedManifests { manifests, state_dir: self.state_dir.clone(), into: None })
    }

    /// The same options, to be pasted.
    pub(super) fn words(&self) -> String {
        let path = |path: &Path| shell(&path.display().to_string()).into_owned();
        let mut text: String =
            self.manifest.iter().map(|file| format!(" --manifest {}", path(file))).collect();
        text.push_str(&self.variables.words());
        text.extend(self.state_dir.as_deref().map(|dir| format!(" --state-dir {}", path(dir))));
        text
    }
}

impl NamedManifests {
    /// With the file that a capture wrote into.
    pub(super) fn into_file(self, into: Option<&PathBuf>) -> NamedManifests {
        NamedManifests { into: into.cloned(), ..self }
    }

    /// Whether nothing was named.
    pub(super) fn is_empty(&self) -> bool {
        self.manifests.is_empty() && self.into.is_none()
    }

    /// The named manifests.
    pub(super) fn manifests(&self) -> impl Iterator<Item = (&Path, &Manifest)> {
        self.manifests.iter().map(|(file, manifest)| (file.as_path(), manifest))
    }

    fn manifest(&self, pipeline: &str) -> Option<(&Path, &Manifest)> {
        self.manifests().find(|(_, manifest)| manifest.pipeline.id == pipeline)
    }

    /// Whether the letters of a pipeline can be replayed with what was named.
    pub(super) fn has(&self, pipeline: &str, stored: Option<&StoredDefinition>) -> bool {
        match stored.map(StoredDefinition::kind) {
            Some(DefinitionKind::Features) => self.into.is_some(),
            _ => self.manifest(pipeline).is_some(),
        }
    }

    /// The replay of the letters of a pipeline. Says what the store says otherwise.
    pub(super) fn replay(
        &self,
        desk: &mut OpenLetterStore,
        pipeline: &str,
        stored: &StoredDefinition,
        rate_max: Option<f64>,
    ) -> Result<Box<dyn Rerun>, CommandFailure> {
        if let Some(why) = desk.store.check_definition(pipeline)? {
            let verify = format!("tidegate audit verify --store {}", shell(&desk.place.to_string()));
            out::say(&format!(
                "tidegate dlq: {why}; only the fields of its source are taken from it. Look with `{verify}`"
            ));
        }
        match stored.kind() {
            DefinitionKind::Features => {
                let output = self.into.clone().ok_or_else(|| unnamed(pipeline, Some(stored)))?;
                if !stored.is_output(&output) {
                    out::say(&format!(
                        "tidegate dlq: {pipeline} was captured into {} according to the store; {} applies",
                        stored.output(),
                        output.display()
                    ));
                }
                Ok(Box::new(IntoFile { output }))
            }
            DefinitionKind::Manifest => {
                let (file, manifest) =
                    self.manifest(pipeline).ok_or_else(|| unnamed(pipeline, Some(stored)))?;
                let named = NamedPipeline {
                    manifest: manifest.clone(),
                    name: file.display().to_string(),
                    folder: plan::folder(file),
                    state: self.state(desk, pipeline, stored)?,
                };
                if let Some(why) = stored.contradicts(&named) {
                    out::say(&format!("tidegate dlq: {why}"));
                }
                let replay = ManifestReplay::new(named, stored, rate_max);
                Ok(Box::new(
                    replay.map_err(|why| usage(format!("{pipeline}: {why}; run the pipeline again")))?,
                ))
            }
            DefinitionKind::Unknown => Err(usage(format!(
                "the definition of {pipeline} in the store is not one of this version; run the pipeline again"
            ))),
        }
    }

    /// The state directory of a pipeline: the one that was named, or one of the usual ones if the store
    /// says the same. Its lock keeps a replay and a run apart, so a wrong one is no state directory.
    fn state(
        &self,
        desk: &OpenLetterStore,
        pipeline: &str,
        stored: &StoredDefinition,
    ) -> Result<PathBuf, CommandFailure> {
        if let Some(dir) = &self.state_dir {
            if !stored.is_state(dir) {
                out::say(&format!(
                    "tidegate dlq: the last run of {pipeline} used the state directory {} according to the store; {} applies",
                    stored.state(),
                    dir.display()
                ));
            }
            return Ok(dir.clone());
        }
        let beside = match &desk.place {
            LetterStoreLocation::File(path) => path.parent().map(Path::to_owned),
            LetterStoreLocation::Url(_) => None,
        };
        let usual = beside.into_iter().chain([PathBuf::from(".tidegate")]);
        let usual = usual.map(|dir| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir });
        usual.into_iter().find(|dir| stored.is_state(dir)).ok_or_else(|| {
            usage(format!(
                "the last run of {pipeline} used the state directory {}; name it with --state-dir",
                stored.state()
            ))
        })
    }
}

/// Why letters of a pipeline cannot be replayed: nobody named it.
pub(super) fn unnamed(pipeline: &str, stored: Option<&StoredDefinition>) -> CommandFailure {
    usage(match stored.map(StoredDefinition::kind) {
        Some(DefinitionKind::Features) => format!(
            "{pipeline} was captured: name the file that its features go into with --into FILE (the store says {})",
            stored.map(StoredDefinition::output).unwrap_or_default()
        ),
        _ => format!(
            "name the manifest of {pipeline} with --manifest FILE: what a store says is not executed (geocode and fetch write theirs with --print-manifest)"
        ),
    })
}
