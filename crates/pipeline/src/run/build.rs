//! From a manifest to parts that are ready to run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;
use tidegate_geo::crs::Grids;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs};

use super::csv_rows::RowSource;
use super::described::{Described, ReplaySource};
use super::fetched::{DIR, Fetched, Scratch, fetch, is_remote};
use super::paged::{Make, Paged};
use super::plausible;
use super::service;
use super::source::{FileSource, Source};
use super::spooled::spool;
#[cfg(feature = "postgres")]
use super::table::TableSource;
use crate::gate::Gates;
use crate::manifest::{self, Manifest};
use crate::sink::{SinkFolders, Spec};
use crate::step::{self, Aside, Flow, Services, Step, StepError, Tools};
use crate::traffic::Traffic;

/// A step with its name in the manifest.
pub struct Named {
    /// `steps[1] coerce`.
    pub label: String,
    /// What reaches it.
    pub before: Flow,
    /// What it does.
    pub step: Box<dyn Step>,
    /// The system of the records that reach it, if it is known.
    pub crs: Option<Crs>,
}

/// The parts of a pipeline.
pub struct PipelineParts {
    /// The name of the pipeline.
    pub id: String,
    /// Which source, steps and sink: a checkpoint of others is refused.
    pub fingerprint: String,
    /// Where records come from.
    pub source: Box<dyn Source>,
    /// The same, for people.
    pub from: String,
    /// What is known of the records as they come.
    pub start: Flow,
    /// What happens to them.
    pub steps: Vec<Named>,
    /// What must hold.
    pub gates: Gates,
    /// Where they go.
    pub sink: Spec,
    /// What is known of them at the end.
    pub flow: Flow,
    /// What source, steps and sink send.
    pub traffic: Traffic,
    /// Which steps ask services.
    pub remote: Vec<String>,
    /// Where a file was fetched to that only had to be looked at.
    _scratch: Option<Scratch>,
}

/// From what a run starts.
pub(super) enum Start<'a> {
    /// From nothing.
    New,
    /// From where an earlier run stopped, with what it knew of the source.
    Resumed(Option<&'a Described>),
    /// From letters, without a source.
    Replay(&'a Described),
}

/// Opens a source that is on this machine, or a table.
///
/// # Errors
/// Why it cannot be read, in a sentence.
fn open_source(
    form: &manifest::SourceSpec,
    folder: &Path,
    fetched: Option<&Fetched>,
) -> Result<Box<dyn Source>, String> {
    let rows = form.batch_size as usize;
    let tolerance = service::tolerance(form)?;
    if let Some(Fetched { path, stamp, told, features: Some(features), extent }) = fetched {
        let source = FileSource::open(path, None, rows)?.stamped(stamp.clone()).brought(told.clone());
        let source = source.declared_at(*extent);
        let found = source.layer().records;
        if found != Some(*features) {
            return Err(format!(
                "{features} records were received, but {} holds {}; please report this bug",
                path.display(),
                found.unwrap_or(0)
            ));
        }
        return Ok(Box::new(source));
    }
    match (&form.file, &form.postgis) {
        (Some(file), _) => {
            let path = fetched.map_or_else(|| step::path(folder, file), |fetched| fetched.path.clone());
            if let Some(csv) = &form.csv {
                return Ok(Box::new(RowSource::open(&path, csv, rows)?));
            }
            let source = FileSource::open(&path, form.layer.clone(), rows)?;
            let stamp = fetched.and_then(|fetched| fetched.stamp.clone());
            let told = fetched.and_then(|fetched| fetched.told.clone());
            Ok(Box::new(source.tolerating(tolerance).stamped(stamp).brought(told)))
        }
        #[cfg(not(feature = "postgres"))]
        (None, Some(_)) => Err(crate::sink::NO_POSTGRES.into()),
        #[cfg(feature = "postgres")]
        (None, Some(table)) => Ok(Box::new(TableSource::open(table, rows, tolerance)?)),
        (None, None) => Err("`source` has none of `file`, `postgis`, `service`".into()),
    }
}

/// Where records come from, for people.
fn describe(manifest: &Manifest, form: &manifest::SourceSpec, folder: &Path) -> String {
    match (&form.file, &form.postgis, &form.service) {
        (Some(file), _, _) if file.contains("://") => file.clone(),
        (Some(file), _, _) => step::path(folder, file).display().to_string(),
        (None, Some(table), _) => format!("table {}.{}", table.schema, table.table),
        (None, None, Some(name)) => {
            let url = manifest.pipeline.services.get(name).and_then(|service| service.url.as_deref());
            let layer = form.layer.as_deref().unwrap_or_default();
            format!("{} {layer}", url.unwrap_or(name)).trim_end().to_owned()
        }
        (None, None, None) => String::new(),
    }
}

/// Opens the source of a manifest alone, to look at it.
///
/// # Errors
/// Why it cannot be read, in a sentence.
pub fn look(manifest: &Manifest, folder: &Path) -> Result<Box<dyn Source>, StepError> {
    let Some(from) = &manifest.pipeline.source else { return Err(String::from("no source").into()) };
    let context = RunContext { stop: Arc::default(), traffic: Traffic::new(manifest, None, None) };
    open(manifest, from, SourceFiles { folder, fetched: None }, &context, &Start::New)
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
) -> Result<PipelineParts, StepError> {
    let traffic = Traffic::new(manifest, None, None);
    let folders = Folders { manifest: folder, answers: cache.clone(), state: cache, run: 0 };
    build_from(manifest, folders, RunContext { stop, traffic }, &Start::New)
}

/// The name of a step as a stage, in rejects and letters.
pub(super) fn step_label(at: usize, form: &manifest::StepSpec) -> String {
    format!("steps[{at}] {}", form.name())
}

/// Where a run finds its files and leaves them.
pub(super) struct Folders<'a> {
    /// Relative paths of the manifest start here.
    pub(super) manifest: &'a Path,
    /// The state of the pipeline.
    pub(super) state: Option<PathBuf>,
    /// The response cache, which all pipelines of a state directory share.
    pub(super) answers: Option<PathBuf>,
    /// The number of the run, under which failures are cached; 0 caches none.
    pub(super) run: u64,
}

/// What all that a run asks shares: when to stop, and the connections.
#[derive(Clone)]
pub(super) struct RunContext {
    /// Set when a person stops the run.
    pub(super) stop: Arc<AtomicBool>,
    /// The runtime and the lanes.
    pub(super) traffic: Traffic,
}

/// Where the file of a source is.
#[derive(Clone, Copy)]
struct SourceFiles<'a> {
    /// Relative paths of the manifest start here.
    folder: &'a Path,
    /// What was fetched or spooled, if the source is elsewhere.
    fetched: Option<&'a Fetched>,
}

/// The number of a run of this id.
pub(super) fn run_number(id: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    hash.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

/// Builds the parts of a pipeline on what is known already.
///
/// # Errors
/// Why it cannot work, in a sentence.
pub(super) fn build_from(
    manifest: &Manifest,
    Folders { manifest: folder, state: cache, answers, run }: Folders<'_>,
    context: RunContext,
    begin: &Start<'_>,
) -> Result<PipelineParts, StepError> {
    let pipeline = &manifest.pipeline;
    let (Some(from), Some(to)) = (&pipeline.source, &pipeline.sink) else {
        let what = "the manifest contains only policies; add `source` and `sink` to `pipeline`";
        return Err(StepError::Broken(what.into()));
    };
    let of_source = |e| match e {
        StepError::Broken(what) => StepError::Broken(format!("source: {what}")),
        StepError::Failed { code, said } => StepError::Failed { code, said: format!("source: {said}") },
        other => other,
    };
    let afar = from.file.as_deref().is_some_and(is_remote);
    let scratch = if afar && cache.is_none() { Some(Scratch::new()?) } else { None };
    let dir = cache.as_deref().or(scratch.as_ref().map(Scratch::path)).unwrap_or(folder).join(DIR);
    let resume = matches!(begin, Start::Resumed(_));
    let fetched = match (from.file.as_deref(), &from.service) {
        _ if matches!(begin, Start::Replay(_)) => None,
        (Some(address), _) if is_remote(address) => {
            Some(fetch(manifest, from, address, &dir, resume, &context).map_err(of_source)?)
        }
        // Whoever only looks takes the first page.
        (None, Some(name)) if from.spool && cache.is_some() => {
            let make = job(manifest, from, name, &context.traffic);
            Some(spool(&make, &dir, resume, &context).map_err(of_source)?)
        }
        _ => None,
    };
    let files = SourceFiles { folder, fetched: fetched.as_ref() };
    let source = match begin {
        Start::Replay(described) => Box::new(ReplaySource::new(described)?),
        Start::New | Start::Resumed(_) => open(manifest, from, files, &context, begin).map_err(of_source)?,
    };
    let RunContext { stop, traffic } = context;
    let services = Services::new(manifest, answers, stop, traffic.clone(), run);
    let mut flow = start(from, source.as_ref())?;
    let source = plausible::watched(source, pipeline, flow.crs.as_ref())?;
    flow.grids = grids(pipeline, folder)?;
    let first = flow.clone();
    let mut steps: Vec<Named> = Vec::new();
    let mut remote = Vec::new();
    for (at, form) in pipeline.steps.iter().enumerate() {
        let label = step_label(at, form);
        let earlier = pipeline.steps.get(..at).unwrap_or_default();
        let pass = |look: &mut dyn FnMut(&Batch)| first_pass(from, files, earlier, look);
        let tools = Tools { folder, services: &services, pass: &pass };
        let crs = flow.crs.clone();
        let scope = u16::try_from(at).unwrap_or(u16::MAX).min(crate::gate::SCOPE - 1);
        let before = flow.clone();
        if let Some(step) =
            step::build(form, scope, &mut flow, &tools).map_err(|e| format!("{label}: {e}"))?
        {
            if form.geocode.is_some() || form.http.is_some() {
                remote.push(label.clone());
            }
            steps.push(Named { label, before, step, crs });
        }
    }
    let gates = Gates::new(manifest, &flow)?;
    let sink =
        Spec::new(&pipeline.id, to, &flow, SinkFolders { manifest: folder, scratch: &dir }, traffic.clone())?;
    Ok(PipelineParts {
        id: pipeline.id.clone(),
        fingerprint: fingerprint(manifest),
        from: describe(manifest, from, folder),
        source,
        start: first,
        steps,
        gates,
        sink,
        flow,
        traffic,
        remote,
        _scratch: scratch,
    })
}

/// The grids of a manifest.
///
/// # Errors
/// If a folder is not there: what was asked for and is not used would be a silent loss of accuracy.
pub(crate) fn grids(pipeline: &manifest::Pipeline, folder: &Path) -> Result<Grids, String> {
    let folders: Vec<PathBuf> = pipeline.grids.iter().map(|name| step::path(folder, name)).collect();
    match folders.iter().find(|path| !path.is_dir()) {
        Some(path) => Err(format!("grids: directory {} does not exist", path.display())),
        None => Ok(Grids::in_folders(folders)),
    }
}

/// Opens the source of a manifest, wherever it is.
fn open(
    manifest: &Manifest,
    from: &manifest::SourceSpec,
    SourceFiles { folder, fetched }: SourceFiles<'_>,
    RunContext { stop, traffic }: &RunContext,
    begin: &Start<'_>,
) -> Result<Box<dyn Source>, StepError> {
    let paged = from.file.is_none() && fetched.is_none();
    let Some(name) = from.service.as_ref().filter(|_| paged) else {
        return Ok(open_source(from, folder, fetched)?);
    };
    let described = match begin {
        Start::Resumed(described) => *described,
        Start::New | Start::Replay(_) => None,
    };
    let make = job(manifest, from, name, traffic);
    Ok(Box::new(Paged::new(make, described, stop.clone(), traffic)?))
}

/// How the layer of a service is opened, as often as it has to be.
fn job(manifest: &Manifest, from: &manifest::SourceSpec, name: &str, traffic: &Traffic) -> Make {
    let (manifest, form, name) = (manifest.clone(), from.clone(), name.to_owned());
    let traffic = traffic.clone();
    Box::new(move || service::job(&manifest, &form, &name, &traffic))
}

/// What is known of the records before the first step.
fn start(form: &manifest::SourceSpec, source: &dyn Source) -> Result<Flow, String> {
    let layer = source.layer();
    let named = form.crs.as_deref().map(step::crs).transpose().map_err(|e| format!("source.crs: {e}"))?;
    let mut flow = Flow::new(layer.schema.clone(), layer.crs.clone().or(named));
    flow.multi = source.shape().map(Shape::multi);
    Ok(flow)
}

/// Takes all records through the steps so far, for a step that has to look at them first. `None`
/// if the source or one of those steps is a service.
fn first_pass(
    from: &manifest::SourceSpec,
    SourceFiles { folder, fetched }: SourceFiles<'_>,
    steps: &[manifest::StepSpec],
    look: &mut dyn FnMut(&Batch),
) -> Option<Result<(), String>> {
    let afar = from.file.is_none() && from.service.is_some() && fetched.is_none();
    if afar || steps.iter().any(|form| form.geocode.is_some() || form.http.is_some()) {
        return None;
    }
    Some((|| {
        let mut source = open_source(from, folder, fetched)?;
        let mut flow = start(from, source.as_ref())?;
        let none: Manifest = serde_json::from_value(serde_json::json!({ "pipeline": {
            "id": "pass", "retry_policy": { "max_attempts": 1, "base_delay_seconds": 1.0, "retryable_status_codes": [] },
            "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false } } }))
        .map_err(|e| e.to_string())?;
        let services = Services::new(&none, None, Arc::default(), Traffic::new(&none, None, None), 0);
        let mut ready = Vec::new();
        for (at, form) in steps.iter().enumerate() {
            let before = steps.get(..at).unwrap_or_default();
            let pass = |look: &mut dyn FnMut(&Batch)| {
                first_pass(from, SourceFiles { folder, fetched }, before, look)
            };
            let tools = Tools { folder, services: &services, pass: &pass };
            ready.extend(step::build(form, 0, &mut flow, &tools)?);
        }
        while let Some(page) = source.next().map_err(String::from)? {
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
/// which may change between a halt and its resume. How patient and how tolerant a run is with its
/// source are policies too.
pub(super) fn fingerprint(manifest: &Manifest) -> String {
    let pipeline = &manifest.pipeline;
    let mut source = pipeline.source.clone();
    if let Some(source) = &mut source {
        (source.tolerate, source.patience_seconds) = (None, manifest::SourceSpec::PATIENCE_SECONDS);
        if let Some(paging) = &mut source.paging {
            paging.at_once = None;
        }
    }
    let mut json = serde_json::json!([source, pipeline.steps, pipeline.sink]);
    if let (Some(list), false) = (json.as_array_mut(), pipeline.grids.is_empty()) {
        list.push(serde_json::json!(pipeline.grids));
    }
    let hash: [u8; 32] = Sha256::digest(json.to_string().as_bytes()).into();
    hex(&hash[..16])
}
