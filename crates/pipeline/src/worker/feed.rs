//! The threads of one queue: receive, extend leases, acknowledge.
//!
//! A feed serves the desks of all pipelines of a worker that share a queue and a group. No more is
//! received than every desk can take, whatever kinds come. A desk that is closed for a while (its
//! provider throttles) does not hold up the others: its tasks go back to the queue with a delay.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tidegate_core::Code;
use tidegate_core::hex::hex;
use tidegate_queue::{Delivery, Geotask, NotATask, QueueDepth, QueueError, Receipt, Transport, now_ms};
use tokio::runtime::Runtime;
use tracing::{info, warn};

use super::desk::{CommittedTask, DeskRoom, ReceivedTask, TaskDesk};
use crate::lock::lock;

/// How long one call waits for messages.
const WAIT: Duration = Duration::from_millis(500);
/// The same when nothing has come for [`IDLE`]: some servers bill each call.
const IDLE_WAIT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);
/// How long a full desk holds up the others.
const BLOCKED: Duration = Duration::from_secs(2);
/// How long a task of a blocked desk waits in the queue.
const SIDELINE: Duration = Duration::from_secs(5);
const SIDELINE_MAX: Duration = Duration::from_secs(900);
/// The longest pause after an error of the queue.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A task that is returned for no longer than this comes again while a worker runs once.
const MOMENT: Duration = Duration::from_secs(10);
/// How long a worker that runs once waits for a queue that is down.
const ONCE_PATIENCE: Duration = Duration::from_secs(60);
/// How long acknowledgements are tried after the end.
const SETTLE_MAX: Duration = Duration::from_secs(5);
/// How often the depth of the queue is read.
const LOOK: Duration = Duration::from_secs(5);
/// The most messages of one call.
const BATCH_MAX: usize = 1000;
/// The bytes of a message before one came.
const MESSAGE_BYTES: usize = 1 << 20;

/// A desk in a feed.
pub(super) struct FedDesk {
    pub(super) desk: Arc<TaskDesk>,
    /// Where its dead letters are published, too.
    dead: DeadQueue,
    /// Until when its pipeline takes nothing, in milliseconds since 1970.
    parked_until: AtomicI64,
    /// Since when it is full.
    full_since: Mutex<Option<Instant>>,
}

/// A queue and the desks that it serves.
pub(crate) struct Feed {
    transport: Arc<dyn Transport>,
    runtime: Arc<Runtime>,
    desks: Vec<FedDesk>,
    lease: Duration,
    /// The largest message.
    bytes_max: u64,
    /// Whether it ends when the queue is empty.
    is_once: bool,
    stop: Arc<AtomicBool>,
    /// Set when all pipelines have ended: what is committed is acknowledged, then it ends.
    is_over: AtomicBool,
    depth: Mutex<Option<QueueDepth>>,
    /// The bytes that the next message is expected to have.
    message_bytes: AtomicUsize,
    /// Until when a task is in the queue that was returned for a moment, in milliseconds since 1970.
    returned_until: AtomicI64,
    /// Why a feed that runs once could not go on.
    failure: Mutex<Option<String>>,
}

/// The queue to which dead letters are published, too.
pub(super) type DeadQueue = Option<Arc<dyn Transport>>;

/// How a feed is set up.
pub(super) struct FeedSetup {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) runtime: Arc<Runtime>,
    /// The desks, each with its dead queue.
    pub(super) desks: Vec<(Arc<TaskDesk>, DeadQueue)>,
    pub(super) lease: Duration,
    pub(super) bytes_max: u64,
    pub(super) is_once: bool,
    pub(super) stop: Arc<AtomicBool>,
}

impl Feed {
    pub(super) fn new(setup: FeedSetup) -> Arc<Feed> {
        let FeedSetup { transport, runtime, desks, lease, bytes_max, is_once, stop } = setup;
        let fed = |(desk, dead)| {
            let (parked_until, full_since) = (AtomicI64::new(0), Mutex::default());
            FedDesk { desk, dead, parked_until, full_since }
        };
        let desks = desks.into_iter().map(fed).collect();
        let (is_over, depth) = (AtomicBool::new(false), Mutex::default());
        let (returned_until, failure) = (AtomicI64::new(0), Mutex::default());
        let message_bytes = AtomicUsize::new(MESSAGE_BYTES);
        Arc::new(Feed {
            transport,
            runtime,
            desks,
            lease,
            bytes_max,
            is_once,
            stop,
            is_over,
            depth,
            message_bytes,
            returned_until,
            failure,
        })
    }

    /// The last reading of the depth.
    pub(super) fn depth(&self) -> Option<QueueDepth> {
        *lock(&self.depth)
    }

    /// Whether receiving is to end.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed)
    }

    /// All pipelines have ended.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The pipeline of a desk takes nothing until a time, in milliseconds since 1970.
    pub(super) fn park(&self, desk: &TaskDesk, until: i64) {
        if let Some(fed) = self.desks.iter().find(|fed| std::ptr::eq(fed.desk.as_ref(), desk)) {
            fed.parked_until.store(until, Ordering::Relaxed);
        }
    }

    /// Returns deliveries to the queue. If that fails, their leases end and they come again.
    pub(super) fn requeue(&self, desk: &TaskDesk, deliveries: Vec<Delivery>, delay: Duration) {
        if deliveries.is_empty() {
            return;
        }
        desk.counts.requeued.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        if delay <= MOMENT {
            let until = now_ms().saturating_add(i64::try_from(delay.as_millis()).unwrap_or(0));
            self.returned_until.fetch_max(until, Ordering::Relaxed);
        }
        if let Err(e) = self.runtime.block_on(self.transport.requeue(&deliveries, delay)) {
            warn!(target: "tidegate::queue", count = deliveries.len(), "cannot return tasks, they come again when their leases end: {e}");
        }
    }

    /// Receives until it is told to stop, or the queue is empty and it runs once.
    pub(super) fn receive(&self) {
        let mut pause = Duration::from_millis(100);
        let (mut came, mut failed): (Instant, Option<Instant>) = (Instant::now(), None);
        let mut progress = (0, Instant::now());
        while !self.is_stopped() {
            let room = self.room();
            if room.messages == 0 {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            // A queue is asked for a number of messages, and they may be large.
            let by_bytes = room.bytes / self.message_bytes.load(Ordering::Relaxed).max(1);
            let most = room.messages.min(BATCH_MAX).min(by_bytes.max(1));
            let wait = if came.elapsed() > IDLE { IDLE_WAIT } else { WAIT };
            match self.runtime.block_on(self.transport.receive(most, wait)) {
                Ok(deliveries) if deliveries.is_empty() && self.is_once && self.is_empty() => {
                    // What was returned for a moment comes again, unless it waits for what never comes.
                    let ended = self.ended();
                    if ended != progress.0 {
                        progress = (ended, Instant::now());
                    }
                    let is_waiting = now_ms() < self.returned_until.load(Ordering::Relaxed) + 500;
                    if !is_waiting || progress.1.elapsed() > MOMENT {
                        break;
                    }
                    self.sleep(Duration::from_millis(100));
                }
                Ok(deliveries) => {
                    failed = None;
                    pause = Duration::from_millis(100);
                    if !deliveries.is_empty() {
                        came = Instant::now();
                    }
                    self.expect(&deliveries);
                    self.route(deliveries);
                }
                Err(e) if self.is_once && failed.is_some_and(|at| at.elapsed() > ONCE_PATIENCE) => {
                    *lock(&self.failure) = Some(e.to_string());
                    break;
                }
                Err(e) => {
                    failed.get_or_insert_with(Instant::now);
                    warn!(target: "tidegate::queue", "{e}; trying again in {pause:?}");
                    self.sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        self.desks.iter().for_each(|fed| fed.desk.close());
    }

    /// Why it could not go on, if it runs once.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// The number of tasks that have ended.
    fn ended(&self) -> u64 {
        let count = |fed: &FedDesk| {
            let counts = &fed.desk.counts;
            [&counts.done, &counts.dead, &counts.repeated]
                .map(|n| n.load(Ordering::Relaxed))
                .iter()
                .sum::<u64>()
        };
        self.desks.iter().map(count).sum()
    }

    /// Whether nothing can be delivered now, as the server says.
    fn is_empty(&self) -> bool {
        match self.runtime.block_on(self.transport.depth()) {
            Ok(depth) => depth.ready == 0,
            // A queue that cannot tell its depth delivered nothing.
            Err(QueueError::Unsupported(_)) => true,
            Err(_) => false,
        }
    }

    /// What every desk can take.
    fn room(&self) -> DeskRoom {
        let mut least: Option<DeskRoom> = None;
        for fed in &self.desks {
            if fed.is_parked() || fed.is_blocked() {
                continue;
            }
            let room = fed.desk.room();
            let both = |least: DeskRoom| DeskRoom {
                messages: least.messages.min(room.messages),
                bytes: least.bytes.min(room.bytes),
            };
            least = Some(least.map_or(room, both));
        }
        least.unwrap_or(DeskRoom { messages: 0, bytes: 0 })
    }

    /// The next messages are expected to be like the largest of these, and half as large as before at least: a few
    /// small ones say little about the next thousand.
    fn expect(&self, deliveries: &[Delivery]) {
        let Some(largest) = deliveries.iter().map(|delivery| delivery.message.body.len()).max() else {
            return;
        };
        let before = self.message_bytes.load(Ordering::Relaxed);
        self.message_bytes.store(largest.max(before / 2).max(1), Ordering::Relaxed);
    }

    /// Gives each message to the desk of its kind.
    fn route(&self, deliveries: Vec<Delivery>) {
        for mut delivery in deliveries {
            let task = Geotask::read(&delivery.message, self.bytes_max);
            // Who publishes without our program need not know how a transport carries the key.
            match &task {
                Ok(task) => delivery.message.key.clone_from(&task.key),
                // The key may be that of a task: a bad message must not stand for it.
                Err(_) => {
                    let mut hash = Sha256::new_with_prefix(delivery.message.key.as_bytes());
                    hash.update([0]);
                    hash.update(&delivery.message.body);
                    let hash: [u8; 32] = hash.finalize().into();
                    delivery.message.key = format!("message {}", hex(&hash[..8]));
                }
            }
            let found = match &task {
                Ok(task) => self.desks.iter().find(|fed| fed.desk.kinds.contains(&task.kind)),
                Err(_) => self.desks.first(),
            };
            let (fed, task) = match (found, task) {
                (Some(fed), task) => (fed, task),
                (None, Ok(task)) => {
                    let known: Vec<&str> =
                        self.desks.iter().flat_map(|fed| fed.desk.kinds.iter().map(String::as_str)).collect();
                    let message =
                        format!("unknown kind {:?}; this worker knows {}", task.kind, known.join(", "));
                    let Some(fed) = self.desks.first() else { continue };
                    (fed, Err(NotATask { code: Code::TASK_KIND_UNKNOWN, message }))
                }
                (None, Err(_)) => continue,
            };
            let returned = if fed.is_parked() || fed.desk.free() == 0 {
                Some(delivery)
            } else {
                fed.desk.put(ReceivedTask { delivery, task })
            };
            if let Some(delivery) = returned {
                let wait = fed.parked_for().clamp(SIDELINE, SIDELINE_MAX);
                self.requeue(&fed.desk, vec![delivery], wait);
            }
        }
    }

    /// Acknowledges what is committed, until the end.
    pub(super) fn settle_all(&self) {
        let mut pause = Duration::ZERO;
        let mut over: Option<Instant> = None;
        loop {
            let is_over = self.is_over.load(Ordering::Relaxed);
            match self.acknowledge() {
                Ok(0) if is_over => {
                    self.look();
                    return;
                }
                Ok(0) => std::thread::sleep(Duration::from_millis(5)),
                Ok(_) => pause = Duration::ZERO,
                Err(e) => {
                    pause = (pause * 2).clamp(Duration::from_millis(100), PAUSE_MAX);
                    warn!(target: "tidegate::queue", "cannot acknowledge: {e}; trying again in {pause:?}");
                    if is_over && over.get_or_insert_with(Instant::now).elapsed() > SETTLE_MAX {
                        info!(target: "tidegate::queue", "committed tasks were not acknowledged; they come again and change nothing");
                        return;
                    }
                    std::thread::sleep(if is_over { pause.min(Duration::from_millis(500)) } else { pause });
                }
            }
        }
    }

    /// Extends the leases of everything that is held, and looks at the queue, until the end.
    pub(super) fn keep(&self) {
        let (mut extended, mut looked): (Instant, Option<Instant>) = (Instant::now(), None);
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            if extended.elapsed() >= self.lease / 3 {
                extended = Instant::now();
                self.extend();
            }
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                self.look();
            }
        }
    }

    /// Reads the depth of the queue. If it cannot be read, none is known.
    fn look(&self) {
        *lock(&self.depth) = self.runtime.block_on(self.transport.depth()).ok();
    }

    fn extend(&self) {
        for fed in &self.desks {
            let receipts = fed.desk.receipts();
            for some in receipts.chunks(BATCH_MAX) {
                match self.runtime.block_on(self.transport.extend(some)) {
                    Ok(held) => {
                        let lost =
                            some.iter().zip(held).filter(|(_, held)| !held).map(|(one, _)| one.clone());
                        let lost: Vec<Receipt> = lost.collect();
                        if !lost.is_empty() {
                            fed.desk.expire(&lost);
                        }
                    }
                    Err(e) => warn!(target: "tidegate::queue", "cannot extend leases: {e}"),
                }
            }
        }
    }

    /// Acknowledges what is committed; returns how many. A dead task is published to the dead queue first.
    fn acknowledge(&self) -> Result<usize, QueueError> {
        let mut count = 0;
        for fed in &self.desks {
            let (dead, done): (Vec<_>, Vec<_>) = fed
                .desk
                .take_committed()
                .into_iter()
                .partition(|task| task.dead.is_some() && fed.dead.is_some());
            for (tasks, to) in [(done, None), (dead, fed.dead.as_deref())] {
                if tasks.is_empty() {
                    continue;
                }
                if let Err(e) = self.runtime.block_on(self.settle(&tasks, to)) {
                    fed.desk.not_acknowledged(tasks);
                    return Err(e);
                }
                count += tasks.len();
            }
        }
        Ok(count)
    }

    async fn settle(&self, tasks: &[CommittedTask], dead: Option<&dyn Transport>) -> Result<(), QueueError> {
        if let Some(dead) = dead {
            for letter in tasks.iter().filter_map(CommittedTask::dead_message) {
                match dead.publish(std::slice::from_ref(&letter)).await {
                    Err(e) if e.is_transient() => return Err(e),
                    Err(e) => {
                        warn!(target: "tidegate::queue", key = letter.key, "the dead queue does not take a letter, which is in the store: {e}");
                    }
                    Ok(_) => {}
                }
            }
        }
        let receipts: Vec<Receipt> = tasks.iter().map(|task| task.delivery.receipt.clone()).collect();
        for some in receipts.chunks(BATCH_MAX) {
            self.transport.acknowledge(some).await?;
        }
        Ok(())
    }

    fn sleep(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(50).min(pause));
        }
    }
}

impl FedDesk {
    fn parked_for(&self) -> Duration {
        let left = self.parked_until.load(Ordering::Relaxed).saturating_sub(now_ms());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    fn is_parked(&self) -> bool {
        !self.parked_for().is_zero()
    }

    /// Whether it has been full for so long that others need not wait for it.
    fn is_blocked(&self) -> bool {
        let mut since = lock(&self.full_since);
        if self.desk.free() > 0 {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() > BLOCKED
    }
}
