//! Pulls that outlive the wait of their caller.
//!
//! A pull waits at the server until there is a message. A server that does not notice that its
//! client has gone delivers to nobody, and the message comes again only after its deadline. So a
//! pull is never cut off: it runs in a task, and if its caller stops waiting, the next caller gets
//! what it brings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::api::{PubsubApi, PulledMessage};
use crate::error::QueueError;

type PullResult = Result<Vec<PulledMessage>, QueueError>;

/// The pull of one worker.
#[derive(Default)]
pub(super) struct RunningPull {
    task: Option<JoinHandle<(PullResult, Instant)>>,
    /// What was pulled and not yet asked for, and the time at which it came.
    left: VecDeque<(PulledMessage, Instant)>,
}

impl RunningPull {
    /// Up to `most` messages with the times at which they came; empty if none came within `wait`.
    /// What came longer ago than `deadline` belongs to nobody any more.
    pub(super) async fn next(
        &mut self,
        api: &Arc<PubsubApi>,
        most: usize,
        (wait, deadline): (Duration, Duration),
    ) -> Result<Vec<(PulledMessage, Instant)>, QueueError> {
        self.left.retain(|(_, came)| came.elapsed() < deadline);
        if self.left.is_empty() {
            let task = self.task.get_or_insert_with(|| {
                let api = api.clone();
                tokio::spawn(async move { (api.pull(most, true).await, Instant::now()) })
            });
            let Ok(ended) = tokio::time::timeout(wait, task).await else { return Ok(Vec::new()) };
            self.task = None;
            // The task of a runtime that ends.
            let (pulled, came) = ended.map_err(|e| QueueError::Unreachable(e.to_string()))?;
            self.left.extend(pulled?.into_iter().map(|message| (message, came)));
            self.left.retain(|(_, came)| came.elapsed() < deadline);
        }
        let count = self.left.len().min(most);
        Ok(self.left.drain(..count).collect())
    }

    /// What was pulled and not yet asked for.
    pub(super) fn clear(&mut self) -> Vec<String> {
        self.left.drain(..).map(|(message, _)| message.ack_id).collect()
    }
}

impl Drop for RunningPull {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
