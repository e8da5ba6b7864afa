//! The tasks of a queue, as the sink knows them.
//!
//! No queue knows whether a task was done, and none keeps a worker that was stopped for a minute
//! from writing when it wakes. So both are kept in the sink, beside the rows, in a table
//! `tidegate_task`. A worker claims a task before it works on it and gets a token; each claim of the
//! same task has a higher one. The end of the task is written in the transaction of its rows, and
//! only if its token is still the current one. So a task has one effect, however often it is
//! delivered.
//!
//! A token is the time of its claim in milliseconds, or one more than the token before, whichever is
//! higher. So it is not used again after its row was forgotten.
//!
//! ```text
//!   queued ─claim─▶ running ─finish─▶ done | dead ─resolve─▶ done
//!     ▲                │                            cancelled: instead of queued or running
//!     └────release─────┘
//! ```

#[cfg(feature = "postgres")]
pub(super) mod postgres;
pub(super) mod sqlite;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;

use super::SinkError;

/// The longest key in bytes that is stored as it is.
const KEY_BYTES_MAX: usize = 1024;

/// The key in the table. A key comes from outside; one that a database cannot hold, or that is empty,
/// is replaced by its hash.
fn stored_key(key: &str) -> Cow<'_, str> {
    if !key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains('\0') {
        return Cow::Borrowed(key);
    }
    let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    Cow::Owned(format!("sha256:{}", hex(&hash)))
}

/// The keys of a call, as they are in the table.
fn stored(keys: &[String]) -> Vec<String> {
    keys.iter().map(|key| stored_key(key).into_owned()).collect()
}

/// The state of a task in the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskState {
    /// Submitted; not yet claimed, or released.
    Queued,
    /// Claimed by a worker.
    Running,
    /// Committed.
    Done,
    /// Given up; a dead letter.
    Dead,
    /// Cancelled by a person before it was done.
    Cancelled,
}

impl TaskState {
    /// All states.
    pub const ALL: [TaskState; 5] =
        [TaskState::Queued, TaskState::Running, TaskState::Done, TaskState::Dead, TaskState::Cancelled];

    /// Its name in the table and on screens.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            TaskState::Queued => "queued",
            TaskState::Running => "running",
            TaskState::Done => "done",
            TaskState::Dead => "dead",
            TaskState::Cancelled => "cancelled",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, TaskState::Done | TaskState::Dead | TaskState::Cancelled)
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// The key of the task.
    pub key: String,
    /// Its state.
    pub state: TaskState,
    /// The token of the last claim; 0 before the first.
    pub token: i64,
    /// The number of claims that were not released: crashes, and the last one.
    pub attempts: u32,
    /// The worker that claimed it last.
    pub worker: String,
    /// Why it is dead: a code of the taxonomy and a sentence.
    pub reason: Option<String>,
    /// The time of the last change, in milliseconds since 1970.
    pub changed_ms: i64,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The worker may work on it, with this token.
    Granted {
        /// Proves the claim when the task is finished.
        token: i64,
        /// The number of attempts that were neither finished nor released, including this one.
        attempts: u32,
    },
    /// There is nothing to do: it is in this state, which is an end.
    Ended(TaskState),
    /// The same key is earlier in the same call, and was granted there.
    Repeated,
}

/// The end of a task, written in the transaction of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    /// The key of the task.
    pub key: String,
    /// The token of the claim.
    pub token: i64,
    /// Done or dead.
    pub state: TaskState,
    /// Why it is dead.
    pub reason: Option<String>,
    /// How many of its records are dead letters. It is done when all of them were replayed.
    pub dead_records: u32,
}

/// The different keys, in the order in which all workers lock their rows.
fn distinct(keys: &[String]) -> Vec<&str> {
    let keys: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
    keys.into_iter().collect()
}

/// The different ends, in the same order.
fn distinct_ends(ends: &[TaskEnd]) -> Result<Vec<&TaskEnd>, SinkError> {
    let mut all: BTreeMap<(&str, i64), &TaskEnd> = BTreeMap::new();
    for end in ends {
        if !matches!(end.state, TaskState::Done | TaskState::Dead) {
            return Err(SinkError::Fatal(format!("a task cannot end as {}", end.state.word())));
        }
        all.entry((&end.key, end.token)).or_insert(end);
    }
    Ok(all.into_values().collect())
}

/// The answers in the order of the keys of the call. A task is granted once.
fn in_order(keys: &[String], mut claims: BTreeMap<String, Claim>) -> Result<Vec<Claim>, SinkError> {
    let mut answer = |key: &String| {
        let claim = claims.get_mut(key).ok_or_else(|| gone(key))?;
        let now = *claim;
        if matches!(now, Claim::Granted { .. }) {
            *claim = Claim::Repeated;
        }
        Ok(now)
    };
    keys.iter().map(&mut answer).collect()
}

/// The error when a row that was just locked is not there.
fn gone(key: &str) -> SinkError {
    SinkError::Fatal(format!("the row of the task {key} in tidegate_task is gone; was it deleted by hand?"))
}

/// The state of this name, as read from the table.
fn read_state(word: &str) -> Result<TaskState, SinkError> {
    TaskState::of_word(word)
        .ok_or_else(|| SinkError::Fatal(format!("tidegate_task has the unknown state {word:?}")))
}

/// The table of tasks of one pipeline, on a connection of its own. Each operation is one transaction.
/// In a GeoPackage it waits for the transaction of a sink, so do not call it while one is open on
/// the same thread.
pub trait TaskTable: Send {
    /// Registers tasks as queued, if there is no row for them. Returns for each the state it had
    /// before, `None` if it is new.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn submit(&mut self, keys: &[String]) -> Result<Vec<Option<TaskState>>, SinkError>;

    /// Claims tasks for a worker, also those that another worker holds: its token is then no longer
    /// current. A task without a row gets one.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn claim(&mut self, keys: &[String], worker: &str) -> Result<Vec<Claim>, SinkError>;

    /// Releases claims whose work was not finished: queued again, and the attempt does not count.
    /// With a token that is no longer current, only the attempt is taken back: its worker lives.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn release(&mut self, claims: &[(String, i64)]) -> Result<(), SinkError>;

    /// Ends tasks that have no rows (a dead letter before any step), if their tokens are current.
    /// Returns the keys that are not.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn finish(&mut self, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError>;

    /// Cancels tasks that have not ended, also those that were never seen. A worker that holds one
    /// cannot commit it any more. Returns for each the state it had before.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn cancel(&mut self, keys: &[String]) -> Result<Vec<Option<TaskState>>, SinkError>;

    /// Makes ended tasks queued again, so that they may be done once more. Returns how many.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn reopen(&mut self, keys: &[String]) -> Result<u64, SinkError>;

    /// The rows of these tasks.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn rows(&mut self, keys: &[String]) -> Result<Vec<Option<TaskRow>>, SinkError>;

    /// The number of tasks in each state, in the order of [`TaskState::ALL`].
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn counts(&mut self) -> Result<[u64; 5], SinkError>;

    /// Up to `most` tasks with keys after `after`, in the order of their keys; of one state, if given.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn list(
        &mut self,
        state: Option<TaskState>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<TaskRow>, SinkError>;

    /// Deletes tasks that ended before this time, in milliseconds since 1970. Returns how many.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn forget(&mut self, before_ms: i64) -> Result<u64, SinkError>;
}
