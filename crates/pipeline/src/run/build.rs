//! Builds the parts of a pipeline from a manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};
use tidegate_core::Code;
use tidegate_core::hex::hex;
use tidegate_geo::crs::Grids;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::limits::RecordLimits;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs};

use super::answers;
use super::assets;
use super::csv_rows::RowSource;
use super::described::{Described, ReplaySource};
use super::fetched::{DIR, FetchFailure, Fetched, Scratch, fetch, fetch_written, is_remote};
use super::paged::{Make, Paged};
use super::patience::patiently;
use super::plausible;
use super::rasters;
use super::service;
use super::source::{FileSource, Source};
use super::spooled::spool;
use super::table;
use crate::gate::Gates;
use crate::manifest::{self, Manifest, Policy, objects};
use crate::objects::ObjectAddress;
use crate::sink::{SinkFolders, Spec};
use crate::step::content_key::{self, CONTENT_KEY};
use crate::step::{self, Aside, Flow, Services, Step, StepError, Tools};
use crate::traffic::Traffic;
use crate::worker::{QueueSource, TaskLink, layer_of};

/// A step with its name in the manifest.
pub struct Named {
    /// Its label, such as `steps[1] coerce`.
    pub label: String,
    /// The records that reach it.
    pub before: Flow,
    /// The step.
    pub step: Box<dyn Step>,
    /// The coordinate reference system of the records that reach it, if known.
    pub crs: Option<Crs>,
}

/// The parts of a pipeline.
pub struct PipelineParts {
    /// The name of the pipeline.
    pub id: String,
    /// The fingerprint of source, steps and sink: a checkpoint with another one is refused.
    pub fingerprint: String,
    /// The source.
    pub source: Box<dyn Source>,
    /// The source, for people.
    pub from: String,
    /// The records before the first step.
    pub start: Flow,
    /// The steps.
    pub steps: Vec<Named>,
    /// The gates.
    pub gates: Gates,
    /// The sink.
    pub sink: Spec,
    /// The records after the last step.
    pub flow: Flow,
    /// The calls of source, steps and sink.
    pub traffic: Traffic,
    /// The labels of the steps that call services.
    pub remote: Vec<String>,
    /// The temporary directory of a file that was fetched only to be examined.
    _scratch: Option<Scratch>,
}

/// What a run starts from.
pub(super) enum Start<'a> {
    /// A new run.
    New,
    /// The position of an earlier run, with its description of the source.
    Resumed(Option<&'a Described>),
    /// A new run that reads only changes, with the last run's description of the source.
    Changes(Option<&'a Described>),
    /// Letters, without a source.
    Replay(&'a Described),
}

/// Opens a source that is a local file or a table.
///
/// # Errors
/// The reason why it cannot be read.
fn open_source(
    form: &manifest::SourceSpec,
    SourceFiles { folder, fetched, limits }: SourceFiles<'_>,
) -> Result<Box<dyn Source>, StepError> {
    let rows = form.batch_size as usize;
    let tolerance = service::tolerance(form)?;
    if let Some(Fetched { path, stamp, told, features: Some(features), extent }) = fetched {
        let source =
            FileSource::open(path, ReadOptions { batch_rows_max: rows, limits, ..ReadOptions::default() })?
                .stamped(stamp.clone())
                .brought(told.clone());
        let source = source.declared_at(*extent);
        let found = source.layer().records;
        if found != Some(*features) {
            return Err(format!(
                "{features} records were received, but {} holds {}; please report this bug",
                path.display(),
                found.unwrap_or(0)
            )
            .into());
        }
        return Ok(Box::new(source));
    }
    match (&form.file, &form.postgis) {
        (Some(file), _) => {
            let path = fetched.map_or_else(|| step::path(folder, file), |fetched| fetched.path.clone());
            if let Some(csv) = &form.csv {
                return Ok(Box::new(RowSource::open(&path, csv, rows)?));
            }
            let options = ReadOptions {
                format: form.format.map(manifest::InputFormat::format),
                layer: form.layer.clone(),
                crs: named(form)?,
                batch_rows_max: rows,
                limits,
                ..ReadOptions::default()
            };
            let source = FileSource::open(&path, options)?;
            let stamp = fetched.and_then(|fetched| fetched.stamp.clone());
            let told = fetched.and_then(|fetched| fetched.told.clone());
            Ok(Box::new(source.tolerating(tolerance).stamped(stamp).brought(told)))
        }
        (None, Some(named)) => table::open(named, rows, (tolerance, form.since.as_ref())),
        (None, None) => Err(StepError::Broken("`source` has none of `file`, `postgis`, `service`".into())),
    }
}

/// A description of the source, for people.
fn describe(manifest: &Manifest, form: &manifest::SourceSpec, folder: &Path) -> String {
    if let Some(queue) = &form.queue {
        return tidegate_queue::QueueAddress::parse(queue)
            .map_or_else(|_| "queue".to_owned(), |a| a.to_string());
    }
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

/// Opens only the source of a manifest, to examine it.
///
/// # Errors
/// The reason why it cannot be read.
pub fn look(manifest: &Manifest, folder: &Path) -> Result<Box<dyn Source>, StepError> {
    let Some(from) = &manifest.pipeline.source else { return Err(String::from("no source").into()) };
    let context =
        RunContext { stop: Arc::default(), traffic: Traffic::new(manifest, None, None), tasks: None };
    let files = SourceFiles { folder, fetched: None, limits: manifest.pipeline.limits.record() };
    open(manifest, from, files, &context, &Start::New)
}

/// Builds the parts of a pipeline. Writes nothing.
///
/// # Errors
/// The reason why it cannot work.
pub fn build(
    manifest: &Manifest,
    folder: &Path,
    cache: Option<PathBuf>,
    stop: Arc<AtomicBool>,
) -> Result<PipelineParts, StepError> {
    let traffic = Traffic::new(manifest, None, None);
    let folders = Folders { manifest: folder, answers: cache.clone(), state: cache, run: 0 };
    build_from(manifest, folders, RunContext { stop, traffic, tasks: None }, &Start::New)
}

/// The label of a step, as the stage in rejects and letters.
pub(crate) fn step_label(at: usize, form: &manifest::StepSpec) -> String {
    format!("steps[{at}] {}", form.name())
}

/// The directories of a run.
pub(super) struct Folders<'a> {
    /// The directory that paths in the manifest are relative to.
    pub(super) manifest: &'a Path,
    /// The state directory of the pipeline.
    pub(super) state: Option<PathBuf>,
    /// The response cache, shared by all pipelines of a state directory.
    pub(super) answers: Option<PathBuf>,
    /// The number of the run, under which failures are cached; with 0 failures are not cached.
    pub(super) run: u64,
}

/// What all parts of a run share: the stop flag and the connections.
#[derive(Clone)]
pub(super) struct RunContext {
    /// Set when the run is to stop.
    pub(super) stop: Arc<AtomicBool>,
    /// The runtime and the lanes.
    pub(super) traffic: Traffic,
    /// The desk of a worker, if the source is a queue.
    pub(super) tasks: Option<TaskLink>,
}

/// The files of a source.
#[derive(Clone, Copy)]
struct SourceFiles<'a> {
    /// The directory that paths in the manifest are relative to.
    folder: &'a Path,
    /// The downloaded or spooled file, if the source is remote.
    fetched: Option<&'a Fetched>,
    /// What one record may cost.
    limits: RecordLimits,
}

/// The number of the run with this id.
pub(super) fn run_number(id: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    hash.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

/// Builds the parts of a pipeline from what is known already.
///
/// # Errors
/// The reason why it cannot work.
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
    let is_listed = !from.rasters.is_empty() || !from.assets.is_empty();
    let scratch = if (afar || is_listed) && cache.is_none() { Some(Scratch::new()?) } else { None };
    let dir = cache.as_deref().or(scratch.as_ref().map(Scratch::path)).unwrap_or(folder).join(DIR);
    let resume = matches!(begin, Start::Resumed(_));
    let fetched = match (from.file.as_deref(), &from.service) {
        _ if matches!(begin, Start::Replay(_)) => None,
        _ if !from.rasters.is_empty() => {
            Some(rasters::list(from, folder, &dir, resume, &context).map_err(of_source)?)
        }
        (None, Some(name)) if !from.assets.is_empty() => {
            let make = job(manifest, from, name, &context.traffic);
            let listing = assets::AssetListing { manifest, from, name, dir: &dir };
            Some(listing.list(&make, (resume, cache.is_some()), &context).map_err(of_source)?)
        }
        (Some(address), _) if is_remote(address) => {
            let fetched = fetch_written(manifest, from, address, &dir, resume, &context);
            Some(fetched.map_err(|e| of_source(e.into()))?)
        }
        // The fields of changes are known from the last run.
        (None, Some(_)) if reads_changes(from) => None,
        // To examine a source, the first page is enough.
        (None, Some(name)) if from.spool && cache.is_some() => {
            let make = job(manifest, from, name, &context.traffic);
            Some(spool(&make, &dir, resume, &context).map_err(of_source)?)
        }
        _ => None,
    };
    let files = SourceFiles { folder, fetched: fetched.as_ref(), limits: pipeline.limits.record() };
    let objects_dir = cache.as_deref().unwrap_or(folder).join("objects");
    let source = match begin {
        Start::Replay(described) => Box::new(ReplaySource::new(described)?),
        Start::New | Start::Resumed(_) | Start::Changes(_) if from.queue.is_some() => {
            queue(manifest, from, (folder, &objects_dir), &context).map_err(of_source)?
        }
        Start::New | Start::Resumed(_) | Start::Changes(_) => {
            open(manifest, from, files, &context, begin).map_err(of_source)?
        }
    };
    let RunContext { stop, traffic, .. } = context;
    let answers = answers.map(|dir| answers::place(manifest, folder, dir)).transpose()?;
    let services = Services::new(manifest, answers, stop, traffic.clone(), run);
    let mut flow = start(from, source.as_ref())?;
    flow.limits = pipeline.limits.record();
    let source = plausible::watched(source, pipeline, flow.crs.as_ref())?;
    flow.grids = grids(pipeline, folder)?;
    let first = flow.clone();
    let mut steps: Vec<Named> = Vec::new();
    let mut remote = Vec::new();
    for (at, form) in pipeline.steps.iter().enumerate() {
        let label = step_label(at, form);
        let earlier = pipeline.steps.get(..at).unwrap_or_default();
        let pass = |look: &mut dyn FnMut(&Batch)| first_pass(pipeline, files, earlier, look);
        let objects = objects::of_step(pipeline, at, folder).map_err(|e| format!("{label}: objects: {e}"))?;
        let tools = Tools { folder, services: &services, objects: &objects, pass: &pass };
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
    if to.key.iter().any(|name| name == CONTENT_KEY) {
        let (before, crs) = (flow.clone(), flow.crs.clone());
        let step = content_key::build(&mut flow)?;
        steps.push(Named { label: "sink.key".into(), before, step, crs });
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

/// The datum shift grids of a manifest.
///
/// # Errors
/// When a directory does not exist: ignoring it would silently reduce accuracy.
pub(crate) fn grids(pipeline: &manifest::Pipeline, folder: &Path) -> Result<Grids, String> {
    let folders: Vec<PathBuf> = pipeline.grids.iter().map(|name| step::path(folder, name)).collect();
    match folders.iter().find(|path| !path.is_dir()) {
        Some(path) => Err(format!("grids: directory {} does not exist", path.display())),
        None => Ok(Grids::in_folders(folders)),
    }
}

/// Opens the source of a manifest, local or remote.
fn open(
    manifest: &Manifest,
    from: &manifest::SourceSpec,
    files: SourceFiles<'_>,
    RunContext { stop, traffic, .. }: &RunContext,
    begin: &Start<'_>,
) -> Result<Box<dyn Source>, StepError> {
    let paged = from.file.is_none() && files.fetched.is_none();
    let Some(name) = from.service.as_ref().filter(|_| paged) else {
        let policy = Policy::from(manifest).call;
        return patiently(&policy, stop, || open_source(from, files));
    };
    let described = match begin {
        Start::Resumed(described) | Start::Changes(described) => *described,
        Start::New | Start::Replay(_) => None,
    };
    let make = job(manifest, from, name, traffic);
    Ok(Box::new(Paged::new(make, (described, reads_changes(from)), stop.clone(), traffic)?))
}

/// A queue as the source. Without a desk it only describes what its tasks are.
fn queue(
    manifest: &Manifest,
    from: &manifest::SourceSpec,
    (folder, objects_dir): (&Path, &Path),
    context: &RunContext,
) -> Result<Box<dyn Source>, StepError> {
    let Some(tasks) = &from.tasks else {
        return Err(StepError::Broken("`source.queue` requires `source.tasks`".into()));
    };
    let layer = layer_of(from, tasks, &manifest.pipeline.id)?;
    let (all, form) = (manifest.clone(), from.clone());
    let (own, dir) = (context.clone(), objects_dir.to_owned());
    let none = manifest::ServiceSpec::default();
    let bring = Box::new(move |address: &ObjectAddress| {
        match fetch(&all, (&form, &none), address, &dir, false, &own) {
            Ok(fetched) => Ok(fetched.path),
            Err(FetchFailure::Address(said)) => Err(StepError::Failed { code: Code::NOT_FOUND, said }),
            Err(FetchFailure::Step(error)) => Err(error),
        }
    });
    let policy = Policy::from(manifest).call;
    let allowed = objects::of_tasks(tasks, folder).map_err(|e| format!("source.tasks.objects: {e}"))?;
    let around = (allowed, policy, context.stop.clone());
    // An explicit coordinate reference system overrides that of the source.
    let steps = &manifest.pipeline.steps;
    let first = steps.iter().find(|form| form.set_crs.is_some() || form.reproject.is_some());
    let plausible = match first.and_then(|form| form.set_crs.as_deref()) {
        _ if from.trust_crs => None,
        Some(name) => Some(step::crs(name)?),
        None => layer.crs.clone(),
    };
    Ok(Box::new(QueueSource::new(tasks, layer, context.tasks.clone(), around, (bring, plausible))))
}

/// Whether only changes are read.
fn reads_changes(from: &manifest::SourceSpec) -> bool {
    from.since.as_ref().is_some_and(|since| since.from.is_some())
}

/// Opens the layer of a service; can be called more than once.
fn job(manifest: &Manifest, from: &manifest::SourceSpec, name: &str, traffic: &Traffic) -> Make {
    let (manifest, form, name) = (manifest.clone(), from.clone(), name.to_owned());
    let traffic = traffic.clone();
    Box::new(move || service::job(&manifest, &form, &name, &traffic))
}

/// The system that the manifest names for a source that declares none.
fn named(form: &manifest::SourceSpec) -> Result<Option<Crs>, String> {
    form.crs.as_deref().map(step::crs).transpose().map_err(|e| format!("source.crs: {e}"))
}

/// The records before the first step.
fn start(form: &manifest::SourceSpec, source: &dyn Source) -> Result<Flow, String> {
    let layer = source.layer();
    let crs = match (&layer.crs, named(form)?) {
        (Some(said), Some(named)) if *said != named && !(said.is_wgs84() && named.is_wgs84()) => {
            return Err(format!(
                "the source says that it is in {said}, and `source.crs` says {named}; remove `source.crs`, or \
                 add a step `set_crs` if the source is wrong"
            ));
        }
        (Some(said), _) => Some(said.clone()),
        (None, named) => named,
    };
    let mut flow = Flow::new(layer.schema.clone(), crs);
    flow.multi = source.shape().map(Shape::multi);
    Ok(flow)
}

/// Reads all records through the preceding steps, for a step that has to examine them first. `None`
/// if the source or one of those steps is a service.
fn first_pass(
    pipeline: &manifest::Pipeline,
    files @ SourceFiles { folder, fetched, .. }: SourceFiles<'_>,
    steps: &[manifest::StepSpec],
    look: &mut dyn FnMut(&Batch),
) -> Option<Result<(), String>> {
    let from = pipeline.source.as_ref()?;
    let afar = from.file.is_none() && from.service.is_some() && fetched.is_none();
    if afar || from.queue.is_some() || steps.iter().any(|form| form.geocode.is_some() || form.http.is_some())
    {
        return None;
    }
    Some((|| {
        let mut source = open_source(from, files)?;
        let mut flow = start(from, source.as_ref())?;
        let none: Manifest = serde_json::from_value(serde_json::json!({ "pipeline": {
            "id": "pass", "retry_policy": { "max_attempts": 1, "base_delay_seconds": 1.0, "retryable_status_codes": [] },
            "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false } } }))
        .map_err(|e| e.to_string())?;
        let services = Services::new(&none, None, Arc::default(), Traffic::new(&none, None, None), 0);
        let mut ready = Vec::new();
        for (at, form) in steps.iter().enumerate() {
            let before = steps.get(..at).unwrap_or_default();
            let pass = |look: &mut dyn FnMut(&Batch)| first_pass(pipeline, files, before, look);
            let objects = objects::of_step(pipeline, at, folder).map_err(|e| e.to_string())?;
            let tools = Tools { folder, services: &services, objects: &objects, pass: &pass };
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

/// The fingerprint of a pipeline: source, steps and sink, but not policies and gates, which may
/// change between a halt and its resume. The patience with the source, the tolerance of its counts and
/// what may be opened are policies too.
pub(super) fn fingerprint(manifest: &Manifest) -> String {
    let pipeline = &manifest.pipeline;
    let mut source = pipeline.source.clone();
    if let Some(source) = &mut source {
        (source.tolerate, source.patience_seconds) = (None, manifest::SourceSpec::PATIENCE_SECONDS);
        if let Some(paging) = &mut source.paging {
            paging.at_once = None;
        }
        if let Some(tasks) = &mut source.tasks {
            tasks.objects = None;
        }
    }
    let mut steps = pipeline.steps.clone();
    steps.iter_mut().filter_map(|step| step.raster.as_mut()).for_each(|form| form.objects = None);
    let mut json = serde_json::json!([source, steps, pipeline.sink]);
    if let (Some(list), false) = (json.as_array_mut(), pipeline.grids.is_empty()) {
        list.push(serde_json::json!(pipeline.grids));
    }
    let hash: [u8; 32] = Sha256::digest(json.to_string().as_bytes()).into();
    hex(&hash[..16])
}
