//! From a manifest to parts that are ready to run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};
use tidegate_geo::{Batch, Crs};

use super::source::{FileSource, Source};
use super::table::TableSource;
use crate::gate::Gates;
use crate::manifest::{self, Manifest};
use crate::sink::Spec;
use crate::step::{self, Aside, Flow, Services, Step, Tools};

/// A step with its name in the manifest.
pub struct Named {
    /// `steps[1] coerce`.
    pub label: String,
    /// What it does.
    pub step: Box<dyn Step>,
    /// The system of the records that reach it, if it is known.
    pub crs: Option<Crs>,
}

/// The parts of a pipeline.
pub struct Parts {
    /// The name of the pipeline.
    pub id: String,
    /// Which source, steps and sink: a checkpoint of others is refused.
    pub fingerprint: String,
    /// Where records come from.
    pub source: Box<dyn Source>,
    /// What happens to them.
    pub steps: Vec<Named>,
    /// What must hold.
    pub gates: Gates,
    /// Where they go.
    pub sink: Spec,
    /// What is known of them at the end.
    pub flow: Flow,
    /// The services that steps ask.
    pub services: Services,
    /// Which steps ask services.
    pub remote: Vec<String>,
}

/// Opens a source.
///
/// # Errors
/// Why it cannot be read, in a sentence.
pub(super) fn open_source(form: &manifest::Source, folder: &Path) -> Result<Box<dyn Source>, String> {
    let rows = form.batch_size as usize;
    match (&form.file, &form.postgis) {
        (Some(file), _) => {
            Ok(Box::new(FileSource::open(&step::path(folder, file), form.layer.clone(), rows)?))
        }
        (None, Some(table)) => Ok(Box::new(TableSource::open(table, rows)?)),
        (None, None) => Err("`source` says neither `file` nor `postgis`".into()),
    }
}

/// Builds the parts of a pipeline. Nothing is written.
///
/// # Errors
/// Why it cannot work, in a sentence.
pub fn build(
    manifest: &Manifest,
    folder: &Path,
    cache: Option<PathBuf>,
    stop: Arc<AtomicBool>,
) -> Result<Parts, String> {
    let pipeline = &manifest.pipeline;
    let (Some(from), Some(to)) = (&pipeline.source, &pipeline.sink) else {
        return Err(
            "the manifest holds policies only; add `source` and `sink` to `pipeline` to make it run".into()
        );
    };
    let source = open_source(from, folder).map_err(|e| format!("source: {e}"))?;
    let services = Services::new(manifest, cache, stop);
    let mut flow = start(from, source.as_ref())?;
    let mut steps: Vec<Named> = Vec::new();
    let mut remote = Vec::new();
    for (at, form) in pipeline.steps.iter().enumerate() {
        let label = format!("steps[{at}] {}", form.name());
        let before = pipeline.steps.get(..at).unwrap_or_default();
        let pass = |look: &mut dyn FnMut(&Batch)| first_pass(from, folder, before, look);
        let tools = Tools { folder, services: &services, pass: &pass };
        let crs = flow.crs.clone();
        let scope = u16::try_from(at).unwrap_or(u16::MAX).min(crate::gate::SCOPE - 1);
        if let Some(step) =
            step::build(form, scope, &mut flow, &tools).map_err(|e| format!("{label}: {e}"))?
        {
            if form.geocode.is_some() || form.http.is_some() {
                remote.push(label.clone());
            }
            steps.push(Named { label, step, crs });
        }
    }
    let gates = Gates::new(manifest, &flow)?;
    let sink = Spec::new(&pipeline.id, to, &flow, folder)?;
    let fingerprint = fingerprint(manifest);
    Ok(Parts { id: pipeline.id.clone(), fingerprint, source, steps, gates, sink, flow, services, remote })
}

/// What is known of the records before the first step.
fn start(form: &manifest::Source, source: &dyn Source) -> Result<Flow, String> {
    let layer = source.layer();
    let named = form.crs.as_deref().map(step::crs).transpose().map_err(|e| format!("source.crs: {e}"))?;
    Ok(Flow::new(layer.schema.clone(), layer.crs.clone().or(named)))
}

/// Takes all records through the steps so far, for a step that has to look at them first. `None`
/// if one of those steps asks a service.
fn first_pass(
    from: &manifest::Source,
    folder: &Path,
    steps: &[manifest::Step],
    look: &mut dyn FnMut(&Batch),
) -> Option<Result<(), String>> {
    if steps.iter().any(|form| form.geocode.is_some() || form.http.is_some()) {
        return None;
    }
    Some((|| {
        let mut source = open_source(from, folder)?;
        let mut flow = start(from, source.as_ref())?;
        let none: Manifest = serde_json::from_value(serde_json::json!({ "pipeline": {
            "id": "pass", "retry_policy": { "max_attempts": 1, "base_delay_seconds": 1.0, "retryable_status_codes": [] },
            "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false } } }))
        .map_err(|e| e.to_string())?;
        let services = Services::new(&none, None, Arc::default());
        let mut ready = Vec::new();
        for (at, form) in steps.iter().enumerate() {
            let before = steps.get(..at).unwrap_or_default();
            let pass = |look: &mut dyn FnMut(&Batch)| first_pass(from, folder, before, look);
            let tools = Tools { folder, services: &services, pass: &pass };
            ready.extend(step::build(form, 0, &mut flow, &tools)?);
        }
        while let Some(page) = source.next()? {
            let mut aside = Aside::default();
            let mut batch = page.batch;
            for step in &mut ready {
                batch = step.apply(batch, &mut aside).map_err(|e| format!("{e:?}"))?;
            }
            look(&batch);
        }
        Ok(())
    })())
}

/// Of what a checkpoint is: the source, the steps and the sink, but not the policies and gates,
/// which may change between a halt and its resume.
fn fingerprint(manifest: &Manifest) -> String {
    let pipeline = &manifest.pipeline;
    let json = serde_json::json!([pipeline.source, pipeline.steps, pipeline.sink]);
    let hash: [u8; 32] = Sha256::digest(json.to_string().as_bytes()).into();
    hash.iter().take(16).map(|b| format!("{b:02x}")).collect()
}
