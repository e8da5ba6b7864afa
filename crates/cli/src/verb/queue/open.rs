//! The queue and the table of tasks of a manifest, both open, for `submit` and `queue`.
//!
//! The queue is asynchronous and the table is not, so each call of the queue is waited for here. What
//! may work later is tried again for a few seconds; both sides bear a repetition.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tidegate_pipeline::manifest::Manifest;
use tidegate_pipeline::queue::{TaskQueue, may_have_tasks, open_tasks};
use tidegate_pipeline::sink::{SinkError, TaskState, TaskTable};
use tidegate_queue::{Message, QueueDepth, QueueError, QueueOptions, Transport};
use tokio::runtime::Runtime;

use crate::exit::{CommandFailure, Exit, failure, usage};
use crate::verb::plan::{self, ManifestArg};

/// The waits before further attempts.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(2)];

/// The number of tasks in each state, in the order of [`TaskState::ALL`].
pub(in crate::verb) type StateCounts = [u64; 5];

/// The queue and the table of tasks of a manifest.
pub(in crate::verb) struct OpenTaskQueue {
    pub(in crate::verb) queue: TaskQueue,
    transport: Option<Arc<dyn Transport>>,
    table: Option<Box<dyn TaskTable>>,
    runtime: Runtime,
}

/// What is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::verb) enum QueueAccess {
    /// The queue and the table, which are created if they are missing.
    Write,
    /// The queue, and the table if the sink is there.
    Ask,
    /// Only the table, and only if the sink is there. Nothing is created.
    Look,
}

impl OpenTaskQueue {
    pub(in crate::verb) fn open(
        named: &ManifestArg,
        what: QueueAccess,
    ) -> Result<OpenTaskQueue, CommandFailure> {
        let file = named.manifest.as_path();
        let Some(manifest) = named.load() else {
            return Err(usage(format!("{} is not a valid manifest", file.display())));
        };
        let folder = plan::folder(file);
        let queue = TaskQueue::new(&manifest, &folder).map_err(|e| usage(e.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let table = table(&manifest, &folder, what)?;
        let mut tasks = OpenTaskQueue { queue, transport: None, table, runtime };
        if what != QueueAccess::Look {
            tasks.transport = Some(tasks.connect()?);
        }
        Ok(tasks)
    }

    fn connect(&self) -> Result<Arc<dyn Transport>, CommandFailure> {
        // Never used again, and never a worker: it receives nothing.
        let name = tidegate_pipeline::worker::worker_name();
        let options = QueueOptions::new(&self.queue.group, &name);
        let open = || self.runtime.block_on(tidegate_queue::open(&self.queue.address, &options));
        let named =
            |CommandFailure(exit, why)| CommandFailure(exit, format!("{}: {why}", self.queue.address));
        patient(open, QueueError::is_transient).map_err(|e| named(e.into()))
    }

    /// Asks the queue something.
    pub(in crate::verb) fn ask<T>(
        &self,
        question: impl AsyncFn(&dyn Transport) -> Result<T, QueueError>,
    ) -> Result<T, CommandFailure> {
        let transport = self.transport.as_deref().ok_or_else(|| failure("the queue is not open"))?;
        let named =
            |CommandFailure(exit, why)| CommandFailure(exit, format!("{}: {why}", self.queue.address));
        patient(|| self.runtime.block_on(question(transport)), QueueError::is_transient)
            .map_err(|e| named(e.into()))
    }

    /// Publishes messages; all are confirmed.
    pub(in crate::verb) fn publish(&self, messages: &[Message]) -> Result<u64, CommandFailure> {
        self.ask(async |transport| transport.publish(messages).await)
    }

    /// The state of the queue.
    pub(in crate::verb) fn depth(&self) -> Result<QueueDepth, CommandFailure> {
        self.ask(async |transport| transport.depth().await)
    }

    /// The number of messages that are not acknowledged; `None` if the server does not tell.
    pub(in crate::verb) fn lag(&self) -> Result<Option<u64>, CommandFailure> {
        self.ask(async |transport| match transport.depth().await {
            Ok(depth) => Ok(Some(depth.lag())),
            Err(QueueError::Unsupported(_)) => Ok(None),
            Err(e) => Err(e),
        })
    }

    /// The largest message in bytes, if the queue is open.
    pub(in crate::verb) fn body_max(&self) -> Option<usize> {
        self.transport.as_ref().map(|transport| transport.promises().body_max)
    }

    /// Asks the table something; `None` if there is no table yet.
    pub(in crate::verb) fn table<T>(
        &mut self,
        mut question: impl FnMut(&mut dyn TaskTable) -> Result<T, SinkError>,
    ) -> Result<Option<T>, CommandFailure> {
        let Some(table) = &mut self.table else { return Ok(None) };
        let transient = |e: &SinkError| matches!(e, SinkError::Transient { .. });
        Ok(Some(patient(|| question(table.as_mut()), transient)?))
    }

    /// The number of tasks in each state.
    pub(in crate::verb) fn counts(&mut self) -> Result<StateCounts, CommandFailure> {
        Ok(self.table(|table| table.counts())?.unwrap_or_default())
    }
}

/// The table, or nothing if nothing may be created and there is no sink.
fn table(
    manifest: &Manifest,
    folder: &Path,
    what: QueueAccess,
) -> Result<Option<Box<dyn TaskTable>>, CommandFailure> {
    // What is wrong before anything was written is wrong in the manifest.
    let wrong = |error: SinkError| match error.into() {
        CommandFailure(Exit::Failure, why) => usage(why),
        other => other,
    };
    if what != QueueAccess::Write && !may_have_tasks(manifest, folder).map_err(wrong)? {
        return Ok(None);
    }
    let transient = |e: &SinkError| matches!(e, SinkError::Transient { .. });
    patient(|| open_tasks(manifest, folder), transient).map(Some).map_err(wrong)
}

/// Does something that may work later a few times.
fn patient<T, E>(mut work: impl FnMut() -> Result<T, E>, is_transient: impl Fn(&E) -> bool) -> Result<T, E> {
    for pause in PAUSES {
        match work() {
            Err(error) if is_transient(&error) => std::thread::sleep(pause),
            done => return done,
        }
    }
    work()
}

/// The number of tasks in each state, as JSON.
pub(in crate::verb) fn counts_json(counts: &StateCounts) -> Value {
    let pairs = TaskState::ALL.iter().zip(counts);
    Value::Object(pairs.map(|(state, n)| (state.word().to_owned(), (*n).into())).collect::<Map<_, _>>())
}
