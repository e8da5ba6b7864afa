//! The desk of a pipeline: its tasks between the queue and the commit.
//!
//! The feed puts deliveries in, the source takes them and makes pages of them, the commit asks which
//! tasks a page ends, and afterwards gives them to the feed to be acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_geo::Problem;
use tidegate_queue::{Delivery, Geotask, Message, NotATask, Receipt};

use crate::lock::lock;
use crate::sink::{TaskEnd, TaskState, TaskTable};
use crate::step::Reject;

/// A message that was received, and what it says.
pub(super) struct ReceivedTask {
    pub(super) delivery: Delivery,
    pub(super) task: Result<Geotask, NotATask>,
}

/// A task that a worker has claimed, and what it is or why it is dead already.
pub(super) struct ClaimedTask {
    pub(super) delivery: Delivery,
    pub(super) token: i64,
    pub(super) content: Result<Geotask, Problem>,
}

/// A task in work.
#[derive(Clone, Debug)]
pub(super) struct RunningTask {
    pub(super) delivery: Delivery,
    /// Proves the claim.
    pub(super) token: i64,
    /// The numbers of its records.
    pub(super) records: Range<u64>,
}

/// A task whose end is in the sink.
pub(super) struct CommittedTask {
    pub(super) delivery: Delivery,
    /// Why it is dead, if it is: a code and a sentence.
    pub(super) dead: Option<(String, String)>,
}

impl CommittedTask {
    /// The message for the dead queue, if the task is dead.
    pub(super) fn dead_message(&self) -> Option<Message> {
        let (code, reason) = self.dead.as_ref()?;
        Some(self.delivery.dead_message(code, reason))
    }
}

/// The numbers of a worker for one pipeline.
#[derive(Default)]
pub struct DeskCounts {
    /// Tasks received.
    pub received: AtomicU64,
    /// Of those, tasks that were delivered before.
    pub redelivered: AtomicU64,
    /// Tasks committed.
    pub done: AtomicU64,
    /// Tasks that became dead letters.
    pub dead: AtomicU64,
    /// Deliveries of tasks that had ended before; they changed nothing.
    pub repeated: AtomicU64,
    /// Tasks that another worker had taken over before the commit.
    pub lost: AtomicU64,
    /// Tasks returned to the queue.
    pub requeued: AtomicU64,
}

#[derive(Default)]
struct DeskState {
    inbox: VecDeque<ReceivedTask>,
    /// The pages in work, by position.
    pages: BTreeMap<u64, Vec<RunningTask>>,
    /// Committed tasks that are not yet acknowledged.
    committed: Vec<CommittedTask>,
    /// Claims that could not be released, because the sink was down.
    unreleased: Vec<(String, i64)>,
    /// Tasks on which a worker has died: each is claimed when its turn comes, and becomes a page of its
    /// own.
    suspects: VecDeque<(Delivery, Geotask)>,
    /// The receipts of tasks that were taken out of the inbox and are not yet in work.
    taken: Vec<Receipt>,
    next_page: u64,
    next_record: u64,
    /// The bytes of the messages in the inbox.
    inbox_bytes: usize,
    /// Nothing more will come.
    is_closed: bool,
    /// A run works on its tasks.
    is_open: bool,
}

/// The tasks of one pipeline.
pub struct TaskDesk {
    pub(super) kinds: Vec<String>,
    pub(super) worker: String,
    /// The most tasks in the inbox, and on a page.
    pub(super) capacity: usize,
    /// The most tasks in work.
    pub(super) work_max: usize,
    bounds: DeskBytes,
    /// Whether a dead task is published to a second queue, for which its message is kept.
    publishes_dead: bool,
    state: Mutex<DeskState>,
    changed: Condvar,
    table: Mutex<Option<Box<dyn TaskTable>>>,
    /// The numbers.
    pub counts: DeskCounts,
}

/// How the bytes of messages are shared out that a desk may hold (`limits.in_flight_bytes`). A record of a page is
/// copied a few times on its way, so that pages are small.
#[derive(Clone, Copy, Debug)]
struct DeskBytes {
    inbox_max: usize,
    work_max: usize,
    page_max: usize,
}

impl DeskBytes {
    fn of(in_flight: usize) -> DeskBytes {
        DeskBytes { inbox_max: in_flight / 2, work_max: in_flight / 2, page_max: in_flight / 4 }
    }
}

/// What a desk can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeskRoom {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// How a desk is set up.
pub(super) struct DeskSetup<'a> {
    pub(super) kinds: Vec<String>,
    pub(super) worker: &'a str,
    /// The most tasks in the inbox, and on a page.
    pub(super) capacity: usize,
    /// The most tasks in work.
    pub(super) work_max: usize,
    /// The bytes of messages that it may hold.
    pub(super) in_flight_bytes: usize,
    pub(super) publishes_dead: bool,
}

/// How long a wait lasts before the reason to wait is looked at again.
const SLICE: Duration = Duration::from_millis(100);

impl TaskDesk {
    pub(super) fn new(setup: DeskSetup<'_>) -> Arc<TaskDesk> {
        let DeskSetup { kinds, worker, capacity, work_max, in_flight_bytes, publishes_dead } = setup;
        Arc::new(TaskDesk {
            kinds,
            worker: worker.to_owned(),
            capacity,
            work_max,
            bounds: DeskBytes::of(in_flight_bytes),
            publishes_dead,
            state: Mutex::default(),
            changed: Condvar::new(),
            table: Mutex::default(),
            counts: DeskCounts::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, DeskState> {
        lock(&self.state)
    }

    /// Sets the table of tasks of the sink, which the run has opened.
    pub(crate) fn set_table(&self, table: Box<dyn TaskTable>) {
        *lock(&self.table) = Some(table);
        self.state().is_open = true;
    }

    /// Uses the table of tasks.
    pub(super) fn with_table<T>(&self, work: impl FnOnce(&mut dyn TaskTable) -> T) -> Option<T> {
        lock(&self.table).as_mut().map(|table| work(table.as_mut()))
    }

    /// What it can take.
    pub(super) fn room(&self) -> DeskRoom {
        let state = self.state();
        let bytes = self.bounds.inbox_max.saturating_sub(state.inbox_bytes);
        if !state.is_open || bytes == 0 {
            return DeskRoom { messages: 0, bytes: 0 };
        }
        let late = state.committed.len().saturating_sub(self.work_max);
        DeskRoom { messages: self.capacity.saturating_sub(state.inbox.len() + late), bytes }
    }

    /// The number of tasks that it can take.
    pub(super) fn free(&self) -> usize {
        self.room().messages
    }

    /// Puts a task into the inbox; returns it if nobody works here any more.
    pub(super) fn put(&self, received: ReceivedTask) -> Option<Delivery> {
        let mut state = self.state();
        if !state.is_open {
            return Some(received.delivery);
        }
        self.counts.received.fetch_add(1, Ordering::Relaxed);
        if received.delivery.deliveries > 1 {
            self.counts.redelivered.fetch_add(1, Ordering::Relaxed);
        }
        state.inbox_bytes += received.delivery.message.body.len();
        state.inbox.push_back(received);
        self.changed.notify_all();
        None
    }

    /// Nothing more will be received.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Takes tasks out of the inbox, as many as may be in work; waits a moment for the first. `None` if
    /// nothing more will come.
    pub(super) fn take(&self) -> Option<Vec<ReceivedTask>> {
        let state = self.state();
        let in_work = |state: &DeskState| state.pages.values().map(Vec::len).sum::<usize>();
        let bytes_in_work = |state: &DeskState| {
            let bodies = state.pages.values().flatten().map(|task| task.delivery.message.body.len());
            bodies.sum::<usize>()
        };
        let room = |state: &DeskState| {
            if bytes_in_work(state) >= self.bounds.work_max {
                return 0;
            }
            self.capacity.min(self.work_max.saturating_sub(in_work(state)))
        };
        let empty = |state: &mut DeskState| {
            (state.inbox.is_empty() && !state.is_closed) || (!state.inbox.is_empty() && room(state) == 0)
        };
        let (mut state, _) = match self.changed.wait_timeout_while(state, SLICE, empty) {
            Ok(waited) => waited,
            Err(poisoned) => poisoned.into_inner(),
        };
        let (mut count, mut bytes) = (0, 0);
        for task in state.inbox.iter().take(room(&state)) {
            bytes += task.delivery.message.body.len();
            if count > 0 && bytes > self.bounds.page_max {
                break;
            }
            count += 1;
        }
        if state.inbox.is_empty() && state.is_closed {
            return None;
        }
        let taken: Vec<ReceivedTask> = state.inbox.drain(..count).collect();
        let bytes: usize = taken.iter().map(|task| task.delivery.message.body.len()).sum();
        state.inbox_bytes = state.inbox_bytes.saturating_sub(bytes);
        state.taken = taken.iter().map(|task| task.delivery.receipt.clone()).collect();
        self.changed.notify_all();
        Some(taken)
    }

    /// Puts aside tasks on which a worker has died. Their claims are released, so that only the attempt
    /// counts at which each is alone.
    pub(super) fn suspect(&self, tasks: Vec<(Delivery, i64, Geotask)>) {
        let claims: Vec<(String, i64)> =
            tasks.iter().map(|(delivery, token, _)| (delivery.message.key.clone(), *token)).collect();
        self.state().suspects.extend(tasks.into_iter().map(|(delivery, _, task)| (delivery, task)));
        self.release(&claims);
    }

    /// Whether there are some.
    pub(super) fn has_suspects(&self) -> bool {
        !self.state().suspects.is_empty()
    }

    /// The next of them.
    pub(super) fn next_suspect(&self) -> Option<(Delivery, Geotask)> {
        let mut state = self.state();
        let next = state.suspects.pop_front();
        state.taken = next.iter().map(|(delivery, _)| delivery.receipt.clone()).collect();
        next
    }

    /// The number for the first record of the next page.
    pub(super) fn next_record(&self) -> u64 {
        self.state().next_record
    }

    /// Puts tasks into work as a page; returns its position.
    pub(super) fn begin(&self, tasks: Vec<RunningTask>) -> String {
        let mut state = self.state();
        state.next_page += 1;
        let page = state.next_page;
        state.next_record =
            tasks.iter().map(|task| task.records.end).max().unwrap_or(0).max(state.next_record);
        state.pages.insert(page, tasks);
        state.taken.clear();
        page.to_string()
    }

    /// The task in work that has this record: its key, and the number of the record in it.
    pub(super) fn task_of(&self, record: u64) -> Option<(String, u64)> {
        let state = self.state();
        state.pages.values().find_map(|tasks| {
            let task = tasks.get(tasks.partition_point(|task| task.records.end <= record))?;
            let number = record.checked_sub(task.records.start)?;
            Some((task.delivery.message.key.clone(), number))
        })
    }

    /// Waits a moment until no page is in work; `false` if one still is.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        let busy = |state: &mut DeskState| !state.pages.is_empty();
        match self.changed.wait_timeout_while(state, SLICE, busy) {
            Ok((state, _)) => state.pages.is_empty(),
            Err(poisoned) => poisoned.into_inner().0.pages.is_empty(),
        }
    }

    /// The ends of the tasks of a page: dead, if one of its records is.
    pub(crate) fn ends(&self, position: &str, rejected: &[Reject]) -> Vec<TaskEnd> {
        let state = self.state();
        let page = position.parse().ok().and_then(|page: u64| state.pages.get(&page));
        let mut reasons: BTreeMap<u64, (&Reject, u32)> = BTreeMap::new();
        for reject in rejected {
            reasons.entry(reject.record).or_insert((reject, 0)).1 += 1;
        }
        let end = |task: &RunningTask| {
            let mut dead = reasons.range(task.records.clone()).map(|(_, dead)| *dead);
            let (reject, first) = dead.next().map_or((None, 0), |(reject, count)| (Some(reject), count));
            let dead_records = dead.map(|(_, count)| count).fold(first, u32::saturating_add);
            let reason = reject.map(|reject| {
                reject
                    .problems
                    .first()
                    .map_or_else(|| "UNKNOWN".to_owned(), |p| format!("{}: {}", p.code, p.message))
            });
            TaskEnd {
                key: task.delivery.message.key.clone(),
                token: task.token,
                state: if reason.is_some() { TaskState::Dead } else { TaskState::Done },
                reason,
                dead_records,
            }
        };
        page.map(|tasks| tasks.iter().map(end).collect()).unwrap_or_default()
    }

    /// Takes tasks out of a page that another worker has taken over. The attempt does not count, because
    /// this worker lives.
    pub(super) fn lose(&self, position: &str, keys: &[String]) -> Vec<RunningTask> {
        let mut state = self.state();
        let Some(page) = position.parse().ok().and_then(|page: u64| state.pages.get_mut(&page)) else {
            return Vec::new();
        };
        let is_lost = |task: &RunningTask| keys.contains(&task.delivery.message.key);
        let (lost, held): (Vec<_>, Vec<_>) = std::mem::take(page).into_iter().partition(is_lost);
        *page = held;
        let claims = lost.iter().map(|task| (task.delivery.message.key.clone(), task.token));
        state.unreleased.extend(claims);
        self.counts.lost.fetch_add(lost.len() as u64, Ordering::Relaxed);
        lost
    }

    /// The page is in the sink: its tasks may be acknowledged.
    pub(crate) fn committed(&self, position: &str, ends: Vec<TaskEnd>) {
        let mut state = self.state();
        let Some(tasks) = position.parse().ok().and_then(|page: u64| state.pages.remove(&page)) else {
            return;
        };
        let dead: BTreeMap<String, Option<String>> = ends
            .into_iter()
            .filter(|end| end.state == TaskState::Dead)
            .map(|end| (end.key, end.reason))
            .collect();
        for mut task in tasks {
            let reason = dead.get(&task.delivery.message.key).map(|reason| split(reason.as_deref()));
            if reason.is_none() || !self.publishes_dead {
                // The receipt is enough for the acknowledgement.
                task.delivery.message.body = Vec::new();
            }
            let count = if reason.is_some() { &self.counts.dead } else { &self.counts.done };
            count.fetch_add(1, Ordering::Relaxed);
            state.committed.push(CommittedTask { delivery: task.delivery, dead: reason });
        }
        self.changed.notify_all();
    }

    /// Tasks that had ended before: only the acknowledgement was missing.
    pub(super) fn ended_before(&self, tasks: Vec<(Delivery, Option<String>)>) {
        self.counts.repeated.fetch_add(tasks.len() as u64, Ordering::Relaxed);
        let committed = tasks.into_iter().map(|(delivery, reason)| {
            // The process may have died before it published the dead letter.
            CommittedTask { delivery, dead: reason.map(|reason| split(Some(&reason))) }
        });
        self.state().committed.extend(committed);
        self.changed.notify_all();
    }

    /// Takes what may be acknowledged.
    pub(super) fn take_committed(&self) -> Vec<CommittedTask> {
        std::mem::take(&mut self.state().committed)
    }

    /// Puts back what could not be acknowledged.
    pub(super) fn not_acknowledged(&self, tasks: Vec<CommittedTask>) {
        self.state().committed.extend(tasks);
    }

    /// The receipts of all tasks that are not acknowledged.
    pub(super) fn receipts(&self) -> Vec<Receipt> {
        let state = self.state();
        let inbox = state.inbox.iter().map(|task| &task.delivery);
        let pages = state.pages.values().flatten().map(|task| &task.delivery);
        let committed = state.committed.iter().map(|task| &task.delivery);
        let suspects = state.suspects.iter().map(|(delivery, _)| delivery);
        let held = inbox.chain(pages).chain(committed).chain(suspects).map(|delivery| &delivery.receipt);
        held.chain(&state.taken).cloned().collect()
    }

    /// Removes tasks from the inbox whose leases have ended: another worker has them.
    pub(super) fn expire(&self, lost: &[Receipt]) {
        let mut state = self.state();
        state.inbox.retain(|task| !lost.contains(&task.delivery.receipt));
        state.inbox_bytes = state.inbox.iter().map(|task| task.delivery.message.body.len()).sum();
        self.changed.notify_all();
    }

    /// Ends the work on everything that is not committed: the claims are released, so that the attempt
    /// does not count. Returns what goes back to the queue.
    pub(super) fn abandon(&self) -> Vec<Delivery> {
        let mut state = self.state();
        (state.is_open, state.inbox_bytes) = (false, 0);
        let mut deliveries: Vec<Delivery> = state.inbox.drain(..).map(|task| task.delivery).collect();
        for task in std::mem::take(&mut state.pages).into_values().flatten() {
            state.unreleased.push((task.delivery.message.key.clone(), task.token));
            deliveries.push(task.delivery);
        }
        deliveries.extend(std::mem::take(&mut state.suspects).into_iter().map(|(delivery, _)| delivery));
        state.taken.clear();
        drop(state);
        self.release(&[]);
        deliveries
    }

    /// Releases claims in the sink; what cannot be released now is tried again with the next.
    pub(super) fn release(&self, claims: &[(String, i64)]) {
        let mut all = std::mem::take(&mut self.state().unreleased);
        all.extend_from_slice(claims);
        if all.is_empty() {
            return;
        }
        if let Some(Ok(())) = self.with_table(|table| table.release(&all)) {
            return;
        }
        self.state().unreleased.extend(all);
    }
}

/// The code and the sentence of a reason.
fn split(reason: Option<&str>) -> (String, String) {
    let reason = reason.unwrap_or("UNKNOWN: ");
    let (code, sentence) = reason.split_once(": ").unwrap_or((reason, ""));
    (code.to_owned(), sentence.to_owned())
}
