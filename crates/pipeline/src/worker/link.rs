//! What a run knows of its desk.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::desk::TaskDesk;
use super::feed::Feed;
use crate::sink::{TaskEnd, TaskTable};
use crate::step::Reject;

/// How long a task stays in the queue that another worker has taken over.
const RETURNED: Duration = Duration::from_secs(2);

/// The desk of a pipeline, and the queue that feeds it.
#[derive(Clone)]
pub struct TaskLink {
    pub(super) desk: Arc<TaskDesk>,
    pub(super) feed: Arc<Feed>,
}

impl fmt::Debug for TaskLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskLink({})", self.desk.worker)
    }
}

impl TaskLink {
    /// The name of the worker.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.desk.worker
    }

    pub(crate) fn set_table(&self, table: Box<dyn TaskTable>) {
        self.desk.set_table(table);
    }

    /// The ends of the tasks of a page.
    pub(crate) fn ends(&self, position: &str, rejected: &[Reject]) -> Vec<TaskEnd> {
        self.desk.ends(position, rejected)
    }

    /// The task in work that has this record: its key, and the number of the record in it.
    pub(crate) fn task_of(&self, record: u64) -> Option<(String, u64)> {
        self.desk.task_of(record)
    }

    /// Takes tasks out of a page; returns the numbers of their records.
    pub(crate) fn lose(&self, position: &str, keys: &[String]) -> Vec<Range<u64>> {
        let lost = self.desk.lose(position, keys);
        let records = lost.iter().map(|task| task.records.clone()).collect();
        // They come again and are known as done, or their worker has died.
        self.feed.requeue(&self.desk, lost.into_iter().map(|task| task.delivery).collect(), RETURNED);
        records
    }

    /// A page is in the sink.
    pub(crate) fn committed(&self, position: &str, rejected: &[Reject]) {
        let ends = self.desk.ends(position, rejected);
        self.desk.committed(position, ends);
    }
}
