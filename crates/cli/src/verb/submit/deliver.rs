//! Publishes tasks in batches: asks the sink what is known, publishes, registers.
//!
//! A new task is published first and registered as queued then. A process that dies in between leaves
//! a message whose task the sink does not know: the worker registers it, and the same command
//! publishes it once more, which has no second effect. The other order would leave a task that is
//! queued for ever. A task that is to be done once more must be open before its message arrives, or
//! the worker would drop it; so it is reopened first.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::json;
use tidegate_pipeline::sink::TaskState;
use tidegate_queue::{Geotask, Message};

use super::wait::KeySpool;
use crate::exit::CommandFailure;
use crate::out;
use crate::verb::queue::open::{OpenTaskQueue, StateCounts};

/// The most tasks that are published at once.
const TASKS_MAX: usize = 500;
/// The most bytes that are published at once.
const BYTES_MAX: usize = 8 << 20;

/// What became of the tasks of a command.
#[derive(Clone, Debug, Default)]
pub(super) struct SubmitCounts {
    /// New tasks, published and registered.
    pub(super) submitted: u64,
    /// Ended tasks that are queued once more.
    pub(super) resubmitted: u64,
    /// Queued tasks that were published once more.
    pub(super) republished: u64,
    /// Tasks that were left alone, by the state that the sink knows.
    pub(super) known: StateCounts,
    /// Tasks with the key of another one of this command.
    pub(super) repeated: u64,
}

impl SubmitCounts {
    /// All tasks that were offered.
    pub(super) fn all(&self) -> u64 {
        self.published() + self.known.iter().sum::<u64>() + self.repeated
    }

    /// The tasks that were published.
    pub(super) fn published(&self) -> u64 {
        self.submitted + self.resubmitted + self.republished
    }
}

/// What to do with tasks that are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownTasks {
    /// Do those that have ended once more.
    pub(super) resubmit: bool,
    /// Publish those that are queued once more.
    pub(super) republish: bool,
    /// Publish and register nothing.
    pub(super) dry_run: bool,
    /// Print a line for each task.
    pub(super) lines: bool,
}

/// Collects tasks and publishes them in batches.
pub(super) struct TaskPublisher<'a> {
    tasks: &'a mut OpenTaskQueue,
    how: KnownTasks,
    batch: Vec<(String, Message)>,
    bytes: usize,
    seen: KeyFilter,
    pub(super) counts: SubmitCounts,
    /// The keys, if their ends are waited for.
    pub(super) spool: Option<KeySpool>,
}

impl<'a> TaskPublisher<'a> {
    pub(super) fn new(
        tasks: &'a mut OpenTaskQueue,
        how: KnownTasks,
        spool: Option<KeySpool>,
    ) -> TaskPublisher<'a> {
        TaskPublisher {
            tasks,
            how,
            batch: Vec::new(),
            bytes: 0,
            seen: KeyFilter::new(),
            counts: SubmitCounts::default(),
            spool,
        }
    }

    /// The message of a task, or why the queue cannot carry it.
    pub(super) fn message(task: &Geotask, body_max: Option<usize>) -> Result<Message, String> {
        let message = task.message().map_err(|e| e.message)?;
        match body_max {
            Some(max) if message.body.len() > max => {
                Err(tidegate_queue::QueueError::TooLarge { bytes: message.body.len(), max }.to_string())
            }
            _ => Ok(message),
        }
    }

    /// Adds a task.
    pub(super) fn add(&mut self, key: String, message: Message) -> Result<(), CommandFailure> {
        self.bytes += message.body.len();
        self.batch.push((key, message));
        if self.batch.len() >= TASKS_MAX || self.bytes >= BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Publishes what is left.
    pub(super) fn flush(&mut self) -> Result<(), CommandFailure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let keys: Vec<String> = batch.iter().map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let rows = self.tasks.table(|table| table.rows(&keys))?.unwrap_or_else(|| vec![None; keys.len()]);
        let (mut new, mut open) = (Vec::new(), Vec::new());
        let mut messages = Vec::with_capacity(batch.len());
        let mut here = HashSet::new();
        let mut lines = String::new();
        for ((key, message), row) in batch.into_iter().zip(rows) {
            let state = row.map(|row| row.state);
            // A key of this command that the sink knows, or that comes twice before the sink knows it.
            let is_repeated = !here.insert(key.clone())
                || (self.seen.contains(&key) && (state.is_some() || self.how.dry_run));
            self.seen.insert(&key);
            let (word, publish) = if is_repeated {
                self.counts.repeated += 1;
                ("repeated", false)
            } else {
                self.judge(state)
            };
            if self.how.lines {
                lines.push_str(&format!("{}\n", json!({ "key": key, "outcome": word })));
            }
            if let (Some(spool), false) = (&mut self.spool, is_repeated) {
                spool.add(&key)?;
            }
            if publish {
                messages.push(message);
                if word == "submitted" { new.push(key) } else { open.push(key) }
            }
        }
        if !self.how.dry_run && !messages.is_empty() {
            if !open.is_empty() {
                self.tasks.table(|table| table.reopen(&open))?;
            }
            self.tasks.publish(&messages)?;
            if !new.is_empty() {
                self.tasks.table(|table| table.submit(&new))?;
            }
        }
        out::data(&lines)?;
        Ok(())
    }

    /// What happens to a task in this state: the word for it, and whether it is published.
    fn judge(&mut self, state: Option<TaskState>) -> (&'static str, bool) {
        let counts = &mut self.counts;
        match state {
            None => {
                counts.submitted += 1;
                ("submitted", true)
            }
            Some(state) if state.is_end() && self.how.resubmit => {
                counts.resubmitted += 1;
                ("resubmitted", true)
            }
            Some(TaskState::Queued) if self.how.republish => {
                counts.republished += 1;
                ("republished", true)
            }
            Some(state) => {
                let at = TaskState::ALL.iter().position(|other| *other == state);
                if let Some(count) = at.and_then(|at| counts.known.get_mut(at)) {
                    *count += 1;
                }
                (state.word(), false)
            }
        }
    }
}

/// Which keys a command has had: a Bloom filter, because a million keys must not need memory. A key
/// that it takes for another one is only counted differently, as long as the sink knows it.
struct KeyFilter(Vec<u64>);

/// The number of words: 4 MiB, for a million keys one error in ten million.
const FILTER_WORDS: usize = 1 << 19;
const FILTER_HASHES: u64 = 7;

impl KeyFilter {
    fn new() -> KeyFilter {
        KeyFilter(vec![0; FILTER_WORDS])
    }

    fn bits(key: &str) -> impl Iterator<Item = (usize, u64)> {
        let hash = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, key).hash(&mut hasher);
            hasher.finish()
        };
        let (first, step) = (hash(1), hash(2) | 1);
        (0..FILTER_HASHES).map(move |n| {
            let bit = first.wrapping_add(step.wrapping_mul(n)) % (FILTER_WORDS as u64 * 64);
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn contains(&self, key: &str) -> bool {
        KeyFilter::bits(key).all(|(word, bit)| self.0.get(word).is_some_and(|bits| bits & bit != 0))
    }

    fn insert(&mut self, key: &str) {
        for (word, bit) in KeyFilter::bits(key) {
            if let Some(bits) = self.0.get_mut(word) {
                *bits |= bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_what_it_had_and_hardly_anything_else() {
        let mut filter = KeyFilter::new();
        for n in 0..100_000 {
            filter.insert(&format!("12/{n}"));
        }
        assert!((0..100_000).all(|n| filter.contains(&format!("12/{n}"))));
        assert_eq!((0..100_000).filter(|n| filter.contains(&format!("13/{n}"))).count(), 0);
    }
}
