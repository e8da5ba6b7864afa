//! The queue of a pipeline, and the table of its tasks, as the manifest names them.
//!
//! `submit` and `queue` start here, and mean the same queue, group and table as a worker. Neither the source nor the steps are set up: whoever submits a task needs no
//! service and no key.

use std::path::Path;
use std::sync::Arc;

use tidegate_geo::{Crs, Schema};
use tidegate_queue::QueueAddress;

use crate::error::SetupError;
use crate::manifest::{Manifest, SinkSpec, TaskSource};
use crate::sink::{SinkError, SinkFolders, SinkTarget, Spec, TaskTable};
use crate::step::Flow;
use crate::traffic::Traffic;
use crate::worker::address_of;

/// What a manifest says about its queue.
#[derive(Clone, Debug)]
pub struct TaskQueue {
    /// The id of the pipeline.
    pub pipeline: String,
    /// Where the queue is.
    pub address: QueueAddress,
    /// The group of workers.
    pub group: String,
    /// The kinds of tasks that the pipeline works on.
    pub kinds: Vec<String>,
    /// The coordinate reference system of the records.
    pub crs: Crs,
    /// What the tasks are.
    pub tasks: TaskSource,
}

impl TaskQueue {
    /// The queue of a manifest. A relative path of a SQLite file is relative to `folder`.
    ///
    /// # Errors
    /// When the source is no queue, or its URL cannot be read.
    pub fn new(manifest: &Manifest, folder: &Path) -> Result<TaskQueue, SetupError> {
        let pipeline = &manifest.pipeline;
        let source = pipeline.source.as_ref();
        let (Some(url), Some(tasks)) = (
            source.and_then(|source| source.queue.as_deref()),
            source.and_then(|source| source.tasks.as_ref()),
        ) else {
            let what = format!(
                "the source of pipeline `{}` is not a queue; set `source: {{ queue: tasks.db, tasks: {{ fields: … }} }}`",
                pipeline.id
            );
            return Err(what.into());
        };
        let address = address_of(url, folder).map_err(|e| format!("source.queue: {e}"))?;
        let crs = source.and_then(|source| source.crs.as_deref());
        let crs = crs.map_or_else(|| Ok(Crs::wgs84()), str::parse);
        let crs = crs.map_err(|problem| format!("source.crs: {}", problem.message))?;
        let kinds = if tasks.kinds.is_empty() { vec![pipeline.id.clone()] } else { tasks.kinds.clone() };
        let group = source.and_then(|source| source.group.clone()).unwrap_or_else(|| pipeline.id.clone());
        Ok(TaskQueue { pipeline: pipeline.id.clone(), address, group, kinds, crs, tasks: tasks.clone() })
    }
}

/// The sink of a manifest, as far as its table of tasks needs it.
fn sink(manifest: &Manifest, folder: &Path) -> Result<Spec, SinkError> {
    let pipeline = &manifest.pipeline;
    let Some(form) = &pipeline.sink else {
        return Err(SinkError::Fatal(format!("pipeline `{}` has no sink", pipeline.id)));
    };
    // The fields and the reference system of the records do not matter for the tasks.
    let form = SinkSpec { key: Vec::new(), ..form.clone() };
    let flow = Flow::new(Arc::new(Schema::default()), Some(Crs::wgs84()));
    let folders = SinkFolders { manifest: folder, scratch: folder };
    Ok(Spec::new(&pipeline.id, &form, &flow, folders, Traffic::new(manifest, None, None))?)
}

/// Opens the table of tasks in the sink of a manifest, and creates it if it is missing.
///
/// # Errors
/// When the sink has none, or cannot be written.
pub fn open_tasks(manifest: &Manifest, folder: &Path) -> Result<Box<dyn TaskTable>, SinkError> {
    sink(manifest, folder)?.open_tasks()
}

/// Whether the sink of a manifest may have tasks: a file that does not exist has none. Creates nothing.
///
/// # Errors
/// When the sink is invalid.
pub fn may_have_tasks(manifest: &Manifest, folder: &Path) -> Result<bool, SinkError> {
    Ok(match sink(manifest, folder)?.target {
        SinkTarget::GeoPackage(path, _) => path.exists(),
        SinkTarget::File(..) | SinkTarget::Object(..) | SinkTarget::Table(_) => true,
    })
}
