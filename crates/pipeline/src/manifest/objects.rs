//! What a manifest allows to be opened by paths and addresses that come in data.
//!
//! Most of it is written in a key `objects`. The rest follows from what a person wrote elsewhere in the same
//! manifest, so that nobody has to say it twice: a step `raster` may open what `source.rasters` names.

use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use tidegate_core::bucket::BucketAddress;
use url::Url;

use super::form::{Pipeline, RasterStep, RemedyRule, SourceSpec, YamlScalar};
use super::{Manifest, TaskSource};
use crate::objects::{AllowedObjects, ObjectsError, ObjectsKey};

/// The extensions of rasters, of which a directory or a bucket is listed.
pub(crate) const RASTER_EXTENSIONS: [&str; 4] = [".tif", ".tiff", ".TIF", ".TIFF"];

/// What the `object` of a task may name.
///
/// # Errors
/// The entry that cannot be used.
pub fn of_tasks(tasks: &TaskSource, folder: &Path) -> Result<AllowedObjects, ObjectsError> {
    let mut allowed = AllowedObjects::nothing(ObjectsKey::Manifest("source.tasks".into()), folder);
    tasks.objects.iter().try_for_each(|form| form.add_to(&mut allowed))?;
    Ok(allowed)
}

/// What the records that reach a step `raster` may name.
///
/// # Errors
/// The entry that cannot be used.
pub fn of_step(pipeline: &Pipeline, at: usize, folder: &Path) -> Result<AllowedObjects, ObjectsError> {
    let key = ObjectsKey::Manifest(format!("steps[{at}].raster"));
    let mut allowed = AllowedObjects::nothing(key, folder);
    if let Some(form) = pipeline.steps.get(at).and_then(|step| step.raster.as_ref()) {
        of_form(form, &mut allowed)?;
        of_manifest(pipeline, (at, &form.field), folder, &mut allowed)?;
    }
    Ok(allowed)
}

/// What any record of the pipeline may name, and all results: for pages about records that have gone through.
///
/// # Errors
/// The entry that cannot be used.
pub fn of_rasters(pipeline: &Pipeline, folder: &Path) -> Result<AllowedObjects, ObjectsError> {
    let key = ObjectsKey::Manifest("steps[].raster".into());
    let mut allowed = AllowedObjects::nothing(key, folder);
    let steps = pipeline.steps.iter().filter_map(|step| step.raster.as_ref());
    let mut field = "path";
    for form in steps {
        field = &form.field;
        of_form(form, &mut allowed)?;
    }
    of_manifest(pipeline, (pipeline.steps.len(), field), folder, &mut allowed)?;
    Ok(allowed)
}

/// What `source.rasters` names.
///
/// # Errors
/// The entry that cannot be used.
pub(crate) fn of_list(source: &SourceSpec, folder: &Path) -> Result<AllowedObjects, ObjectsError> {
    let mut allowed = AllowedObjects::nothing(ObjectsKey::None, folder);
    source.rasters.iter().try_for_each(|name| listed(name, folder, &mut allowed))?;
    Ok(allowed)
}

/// What a step names itself.
fn of_form(form: &RasterStep, allowed: &mut AllowedObjects) -> Result<(), ObjectsError> {
    if form.allow_private {
        allowed.private();
    }
    form.objects.iter().try_for_each(|form| form.add_to(allowed))
}

/// What the manifest names for a field before a step.
fn of_manifest(
    pipeline: &Pipeline,
    (at, field): (usize, &str),
    folder: &Path,
    allowed: &mut AllowedObjects,
) -> Result<(), ObjectsError> {
    if let Some(source) = &pipeline.source {
        source.rasters.iter().try_for_each(|name| listed(name, folder, allowed))?;
        of_assets(pipeline, source, allowed);
    }
    for step in pipeline.steps.iter().take(at) {
        for values in step.constant.iter().chain(&step.default) {
            if let Some(YamlScalar::Text(text)) = values.get(field) {
                allowed.written(text);
            }
        }
        step.raster.iter().filter_map(|form| form.output.as_deref()).for_each(|dir| allowed.folder(dir));
    }
    let remedies = pipeline.dead_letters.iter().flat_map(|form| &form.remedies);
    let repaired = remedies.filter(|remedy| remedy.rule == RemedyRule::RepairRaster);
    repaired.filter_map(|remedy| remedy.output.as_deref()).for_each(|dir| allowed.folder(dir));
    Ok(())
}

/// What a name in `source.rasters` stands for: itself, or what is found in a directory or a bucket.
fn listed(name: &str, folder: &Path, allowed: &mut AllowedObjects) -> Result<(), ObjectsError> {
    if BucketAddress::is_one(name) && !RASTER_EXTENSIONS.iter().any(|end| name.ends_with(end)) {
        return allowed.bucket(name);
    }
    if name.contains("://") {
        allowed.written(name);
        return Ok(());
    }
    let path = folder.join(name);
    if path.is_dir() {
        allowed.folder(name);
    } else if name.contains(['*', '?']) && !path.exists() {
        allowed.folder(&fixed(name).display().to_string());
    } else {
        allowed.written(name);
        allowed.written(&listed_path(folder, name));
    }
    Ok(())
}

/// A raster of the list as its record names it: so that it is found from any directory, and without `..`,
/// which would not be followed.
pub(crate) fn listed_path(folder: &Path, name: &str) -> String {
    let Ok(path) = std::path::absolute(folder.join(name)) else { return name.to_owned() };
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let parent = path.parent().filter(|_| climbs).and_then(|parent| std::fs::canonicalize(parent).ok());
    let found = match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        // The name ends with `..`.
        (Some(_), None) => std::fs::canonicalize(&path).unwrap_or(path),
        (None, _) => path,
    };
    found.display().to_string()
}

/// The directory of a pattern, up to the first part with a wildcard.
fn fixed(pattern: &str) -> PathBuf {
    let parts = Path::new(pattern).components();
    let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?']);
    let fixed: PathBuf = parts.take_while(is_plain).collect();
    if fixed.as_os_str().is_empty() { PathBuf::from(".") } else { fixed }
}

/// The assets of a catalogue, under the rules for the links of its service.
fn of_assets(pipeline: &Pipeline, source: &SourceSpec, allowed: &mut AllowedObjects) {
    let service = source.service.as_ref().and_then(|name| pipeline.services.get(name));
    if let (false, Some(service)) = (source.assets.is_empty(), service)
        && let Some(Ok(url)) = service.url.as_deref().map(Url::parse)
    {
        allowed.service(&url, service.allow_private, &service.allow_hosts);
    }
}

/// What may be opened by the data that comes to one part of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectsLine {
    /// The section with the key `objects`.
    pub section: String,
    /// What is allowed, in words.
    pub allowed: String,
}

impl std::fmt::Display for ObjectsLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.allowed, self.section)
    }
}

/// What may be opened by data, for each part of a pipeline that opens anything.
#[must_use]
pub fn told(manifest: &Manifest, folder: &Path) -> Vec<ObjectsLine> {
    let pipeline = &manifest.pipeline;
    let line = |section: String, allowed: Result<AllowedObjects, ObjectsError>| ObjectsLine {
        section,
        allowed: allowed.map_or_else(|why| why.to_string(), |allowed| allowed.to_string()),
    };
    let tasks = pipeline.source.as_ref().and_then(|source| source.tasks.as_ref());
    let tasks = tasks.map(|tasks| line("source.tasks".into(), of_tasks(tasks, folder)));
    let steps = pipeline.steps.iter().enumerate().filter(|(_, step)| step.raster.is_some());
    let steps = steps.map(|(at, _)| line(format!("steps[{at}].raster"), of_step(pipeline, at, folder)));
    tasks.into_iter().chain(steps).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn pipeline(parts: serde_json::Value) -> Pipeline {
        let mut all = serde_json::json!({
            "id": "p",
            "retry_policy": { "max_attempts": 1, "base_delay_seconds": 1.0, "retryable_status_codes": [] },
            "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false },
        });
        all.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_step_may_open_what_the_manifest_names() {
        let pipeline = pipeline(serde_json::json!({
            "source": { "rasters": ["archive/*.tif", "one.tif", "http://h.test/a.tif", "s3://b/2026/"] },
            "steps": [
                { "constant": { "path": "scene.tif", "other": "secret.tif" } },
                { "raster": { "cog": true, "output": "cogs" } },
                { "raster": { "survey": true, "objects": { "folder": "more" } } },
            ],
        }));
        let names = |at| of_step(&pipeline, at, Path::new("/data")).unwrap().parts();
        let source = ["folder archive", "s3://b/2026", "one.tif", "/data/one.tif", "http://h.test/a.tif"];
        assert_eq!(names(1), [&source[..], &["scene.tif"]].concat());
        assert_eq!(
            names(2),
            [&["folder more", "folder archive", "folder cogs"][..], &source[1..], &["scene.tif"]].concat()
        );
    }

    #[test]
    fn a_pattern_has_a_directory() {
        for (pattern, dir) in
            [("a/*.tif", "a"), ("*.tif", "."), ("/d/*/x?.tif", "/d"), ("a/b.tif", "a/b.tif")]
        {
            assert_eq!(fixed(pattern), Path::new(dir), "{pattern}");
        }
    }
}
