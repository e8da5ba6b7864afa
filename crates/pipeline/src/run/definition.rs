//! What a letter store says of a pipeline, and the pipeline that a person named.
//!
//! A run stores its definition beside its letters: the manifest with its variables filled in, its
//! directories, the fields of its source. Whoever can write letters can write that, too. So a
//! [`StoredDefinition`] is shown and compared, and never run: it has no way to a [`Manifest`], to a
//! path or to an address. What is done with letters comes from a [`NamedPipeline`], whose manifest a
//! person named on the command line. Of the stored definition a replay takes only what is data, and
//! what it cannot ask the source for: the names and types of the fields that the records came with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::build::PipelineParts;
use super::described::{Described, without_source};
use super::drive::RunOptions;
use super::source::Source;
use crate::error::SetupError;
use crate::letter::{LetterError, LetterStore};
use crate::manifest::{Cast, Manifest};

/// The kind of the definition of a manifest.
const MANIFEST: &str = "manifest";
/// The kind of the definition that `dlq capture` stores.
const FEATURES: &str = "features";

/// A pipeline that a person named, in a file, on standard input or by options.
#[derive(Clone, Debug)]
pub struct NamedPipeline {
    /// Its manifest.
    pub manifest: Manifest,
    /// The name of the manifest, for messages.
    pub name: String,
    /// The directory that paths in the manifest are relative to.
    pub folder: PathBuf,
    /// The state directory.
    pub state: PathBuf,
}

impl NamedPipeline {
    /// The pipeline of a run.
    #[must_use]
    pub fn of_run(manifest: &Manifest, options: &RunOptions) -> NamedPipeline {
        NamedPipeline {
            manifest: manifest.clone(),
            name: "the manifest of this run".into(),
            folder: options.folder.clone(),
            state: options.state.clone(),
        }
    }

    /// The id of the pipeline.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.manifest.pipeline.id
    }
}

/// What kind of pipeline a definition is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionKind {
    /// A manifest.
    Manifest,
    /// A file of features, by `dlq capture`.
    Features,
    /// Of another version.
    Unknown,
}

/// What a store says of a pipeline. It can be shown and compared.
#[derive(Clone, Debug)]
pub struct StoredDefinition {
    // Private, and without a method that gives it away: what leaves this type is words for people,
    // names of fields, and their types.
    stored: Value,
}

impl StoredDefinition {
    /// Reads the definition of a pipeline from a store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn read(store: &mut LetterStore, pipeline: &str) -> Result<Option<StoredDefinition>, LetterError> {
        #[expect(clippy::disallowed_methods, reason = "this is the place that the others are sent to")]
        let text = store.definition(pipeline)?;
        // One that is not JSON is of no kind.
        Ok(text.map(|text| StoredDefinition { stored: serde_json::from_str(&text).unwrap_or_default() }))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.stored.get(name)?.as_str()
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> DefinitionKind {
        match self.text("kind") {
            Some(MANIFEST) => DefinitionKind::Manifest,
            Some(FEATURES) => DefinitionKind::Features,
            _ => DefinitionKind::Unknown,
        }
    }

    /// The output of a capture, for people.
    #[must_use]
    pub fn output(&self) -> &str {
        self.text("output").unwrap_or("an unknown file")
    }

    /// Whether the output of a capture is this file.
    #[must_use]
    pub fn is_output(&self, file: &Path) -> bool {
        self.text("output").is_some_and(|output| is_same(Path::new(output), file))
    }

    /// The state directory, for people.
    #[must_use]
    pub fn state(&self) -> &str {
        self.text("state").unwrap_or("an unknown directory")
    }

    /// Whether the state directory is this one. A definition that names none is of any.
    #[must_use]
    pub fn is_state(&self, dir: &Path) -> bool {
        self.text("state").is_none_or(|state| is_same(Path::new(state), dir))
    }

    fn steps(&self) -> &[Value] {
        let steps = self.stored.pointer("/manifest/pipeline/steps").and_then(Value::as_array);
        steps.map(Vec::as_slice).unwrap_or_default()
    }

    /// The fields of records that hold addresses to be geocoded.
    #[must_use]
    pub fn address_fields(&self) -> Vec<String> {
        let fields = self.steps().iter().filter_map(|step| step.pointer("/geocode/address")?.as_array());
        fields.flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// The field of records that names a raster.
    #[must_use]
    pub fn raster_field(&self) -> Option<String> {
        if let Some(raster) = self.steps().iter().rev().find_map(|step| step.get("raster")?.as_object()) {
            let named = raster.get("field").and_then(Value::as_str);
            return Some(named.unwrap_or("path").to_owned());
        }
        let list = self.stored.pointer("/manifest/pipeline/source/rasters").and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty()).then(|| "path".to_owned())
    }

    /// The description of the source.
    pub(super) fn source(&self) -> Result<Described, SetupError> {
        let source = self.stored.get("source").cloned().unwrap_or_default();
        serde_json::from_value(source)
            .map_err(|e| format!("cannot read what the store says of the fields of the source: {e}").into())
    }

    /// A manifest with the fields that `flatten` found in the source, where it names none.
    pub(super) fn with_found_fields(&self, manifest: &Manifest) -> Manifest {
        let mut manifest = manifest.clone();
        for (step, stored) in manifest.pipeline.steps.iter_mut().zip(self.steps()) {
            let Some(flatten) = step.flatten.as_mut().filter(|flatten| flatten.fields.is_empty()) else {
                continue;
            };
            let found = stored.pointer("/flatten/fields").cloned().unwrap_or_default();
            if let Ok(found) = serde_json::from_value::<BTreeMap<String, Cast>>(found) {
                flatten.fields = found;
            }
        }
        manifest
    }

    /// The sections of the manifest that differ from those of a named one, in alphabetical order.
    #[must_use]
    pub fn differences(&self, named: &NamedPipeline) -> Vec<String> {
        let stored = self.stored.get("manifest").cloned().unwrap_or_default();
        // Written anew, so that a key that has come since then is on both sides. It is compared, and
        // then gone.
        let stored = match serde_json::from_value::<Manifest>(stored.clone()) {
            Ok(read) => sections(&read),
            Err(_) => sections_of(&stored),
        };
        let named = sections(&self.with_found_fields(&named.manifest));
        let mut names: Vec<&String> = stored.keys().chain(named.keys()).collect();
        names.sort();
        names.dedup();
        let differ = names.into_iter().filter(|name| stored.get(*name) != named.get(*name));
        differ.cloned().collect()
    }

    /// One sentence if it differs from a named pipeline.
    #[must_use]
    pub fn contradicts(&self, named: &NamedPipeline) -> Option<String> {
        let differ = self.differences(named);
        let (id, name) = (named.id(), &named.name);
        (!differ.is_empty()).then(|| {
            format!(
                "the definition of {id} in the store differs from {name} in {}; {name} applies",
                differ.join(", ")
            )
        })
    }
}

/// The sections of a manifest by name, without those that are not set.
fn sections(manifest: &Manifest) -> BTreeMap<String, Value> {
    sections_of(&json!(manifest))
}

fn sections_of(manifest: &Value) -> BTreeMap<String, Value> {
    let pipeline = manifest.get("pipeline").and_then(Value::as_object);
    let set = pipeline.into_iter().flatten().filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether two paths are of one file or directory.
fn is_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| absolute(path));
    whole(a) == whole(b)
}

/// Absolute, so that people can find it from another directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The definition of a pipeline, as a run stores it.
pub(super) fn of_run(manifest: &Manifest, parts: &PipelineParts, (folder, state): (&Path, &Path)) -> String {
    let source: &dyn Source = parts.source.as_ref();
    json!({
        "kind": MANIFEST,
        "manifest": without_source(manifest, parts),
        "folder": absolute(folder),
        "state": absolute(state),
        "source": Described::of(source),
    })
    .to_string()
}

/// The definition that a capture into a file stores.
#[must_use]
pub fn of_capture(output: &Path) -> String {
    json!({ "kind": FEATURES, "output": absolute(output).display().to_string() }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> StoredDefinition {
        StoredDefinition { stored: serde_json::from_str(text).unwrap_or_default() }
    }

    fn named(text: &str) -> NamedPipeline {
        let text = format!(
            "pipeline:\n  id: parcels\n  retry_policy: {{ max_attempts: 3, base_delay: 1s, retryable_status_codes: [503] }}\n  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\n{text}"
        );
        NamedPipeline {
            manifest: crate::manifest::from_bytes("m.yaml", text.as_bytes()).unwrap(),
            name: "m.yaml".into(),
            folder: PathBuf::new(),
            state: PathBuf::from(".tidegate"),
        }
    }

    fn as_stored(named: &NamedPipeline) -> Value {
        json!({ "kind": "manifest", "manifest": named.manifest, "state": absolute(&named.state) })
    }

    const FILES: &str = "  source: { file: in.csv }\n  sink: { file: out.gpkg, key: [id] }\n";

    #[test]
    fn sections_that_differ_are_named_and_equal_ones_are_not() {
        let own = named(FILES);
        let same = StoredDefinition { stored: as_stored(&own) };
        assert_eq!((same.differences(&own), same.contradicts(&own)), (Vec::new(), None));
        let other = named(&format!(
            "{}  services: {{ geo: {{ url: \"http://127.0.0.1:1/\" }} }}\n",
            FILES.replace("out.gpkg", "elsewhere.gpkg")
        ));
        assert_eq!(same.differences(&other), ["services", "sink"]);
        let said = same.contradicts(&other).unwrap();
        assert!(said.ends_with("differs from m.yaml in services, sink; m.yaml applies"), "{said}");
        assert!(!stored("nonsense").differences(&own).is_empty());
    }

    #[test]
    fn a_key_of_a_newer_version_is_no_difference() {
        let own = named(FILES);
        let mut older = as_stored(&own);
        assert!(older["manifest"]["pipeline"].as_object_mut().unwrap().remove("rate_limit").is_some());
        let older = StoredDefinition { stored: older };
        assert_eq!(older.differences(&own), Vec::<String>::new());
    }

    #[test]
    fn fields_that_flatten_found_are_taken_and_nothing_else_of_the_step() {
        let own = named(&format!("{FILES}  steps: [{{ flatten: {{ field: tags }} }}]\n"));
        let mut changed = as_stored(&own);
        let step = &mut changed["manifest"]["pipeline"]["steps"][0]["flatten"];
        step["fields"] = json!({ "tags.a": "int" });
        step["field"] = "other".into();
        let made = StoredDefinition { stored: changed }.with_found_fields(&own.manifest);
        let flatten = made.pipeline.steps[0].flatten.as_ref().unwrap();
        assert_eq!((flatten.field.as_str(), flatten.fields.get("tags.a")), ("tags", Some(&Cast::Int)));
    }

    #[test]
    fn rasters_and_addresses_are_known_by_the_names_of_their_fields() {
        let of = |pipeline: &str| stored(&format!(r#"{{"manifest":{{"pipeline":{pipeline}}}}}"#));
        let step = of(r#"{"steps":[{"raster":{"field":"scene"}},{"rename":{}}]}"#);
        assert_eq!(step.raster_field().as_deref(), Some("scene"));
        assert_eq!(of(r#"{"source":{"rasters":["*.tif"]}}"#).raster_field().as_deref(), Some("path"));
        assert_eq!(of(r#"{"source":{"file":"a.csv"}}"#).raster_field(), None);
        let asked = of(r#"{"steps":[{"rename":{}},{"geocode":{"address":["street","city"]}}]}"#);
        assert_eq!(asked.address_fields(), ["street", "city"]);
        let none = stored("nonsense");
        assert_eq!((none.kind(), none.raster_field()), (DefinitionKind::Unknown, None));
        assert!(
            none.address_fields().is_empty()
                && none.is_state(Path::new("."))
                && !none.is_output(Path::new("."))
        );
    }
}
