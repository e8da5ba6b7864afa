//! Membership in the consumer group: reads in the background, because a member that does not ask
//! for records for minutes loses its partitions.
//!
//! The group is joined with the first call that receives. What is read and not handed out is not
//! leased: if the partition moves to another worker, that one reads it anew.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use krafka::consumer::{
    AutoOffsetReset, Consumer, ConsumerRebalanceListener, GroupProtocol, OffsetAndMetadata,
    PartitionAssignmentStrategy, TopicPartition,
};
use krafka::error::KrafkaError;
use tokio::sync::Notify;

use super::positions::{OwnedPositions, ReadRecord};
use super::server::{ANSWER, KafkaServer, fault, within};
use super::wire::{message, record};
use crate::error::QueueError;
use crate::message::{Delivery, Receipt, now_ms};

/// Records that are read ahead.
const READ_AHEAD: u64 = 1000;
/// Records that wait here for their time. If there are more, nothing is read until some are due.
const WAITING_MAX: u64 = 10_000;
/// How long a record waits here until it is copied to the end of the topic.
const HOLD_MS: i64 = 30_000;
/// A record that is due so soon is not copied.
const SOON_MS: i64 = 5_000;
/// How long one look for records takes.
const POLL: Duration = Duration::from_millis(250);
/// Servers refuse shorter sessions by default.
const SESSION_MIN: Duration = Duration::from_secs(6);

/// How soon a member notices that another has come or gone.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the group waits for a member that does not come back. We ask for records all the time,
/// so it need not be as long as a task.
const REJOIN: Duration = Duration::from_secs(45);

/// Numbers the assignments of this process.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

/// A member of the group.
pub(super) struct KafkaMember {
    pub(super) server: Arc<KafkaServer>,
    pub(super) consumer: Consumer,
    positions: Mutex<OwnedPositions>,
    /// There may be something to hand out.
    arrived: Notify,
    /// Held while committing: a lower position must not overtake a higher one.
    committing: tokio::sync::Mutex<()>,
    fault: Mutex<Option<QueueError>>,
    is_joined: AtomicBool,
    is_ended: AtomicBool,
}

/// Commits before partitions go to another worker, and forgets them.
struct PartitionHandoff(Arc<OnceLock<Weak<KafkaMember>>>);

impl PartitionHandoff {
    fn group(&self) -> Option<Arc<KafkaMember>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl ConsumerRebalanceListener for PartitionHandoff {
    async fn on_partitions_assigned(&self, _: &[TopicPartition]) {}

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        if let Some(group) = self.group() {
            // If it fails, the next worker does again what was finished.
            let _ = group.commit_once().await;
            group.with(|positions| positions.forget(partitions.iter().map(TopicPartition::partition)));
        }
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        if let Some(group) = self.group() {
            group.with(|positions| positions.forget(partitions.iter().map(TopicPartition::partition)));
        }
    }
}

impl KafkaMember {
    pub(super) async fn new(
        server: Arc<KafkaServer>,
        name: &str,
        lease: Duration,
    ) -> Result<Arc<KafkaMember>, QueueError> {
        let session = lease.max(SESSION_MIN);
        let handoff = Arc::new(OnceLock::new());
        let protocol =
            if server.is_consumer_protocol { GroupProtocol::Consumer } else { GroupProtocol::Classic };
        let builder = server
            .kafka
            .consumer(name)
            .enable_auto_commit(false)
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .session_timeout(session)
            .heartbeat_interval(HEARTBEAT)
            .group_protocol(protocol)
            .max_poll_interval(session.max(REJOIN))
            .partition_assignment_strategy(PartitionAssignmentStrategy::CooperativeSticky)
            .fetch_max_wait(POLL)
            .max_poll_records(500)
            .rebalance_listener(PartitionHandoff(handoff.clone()));
        let consumer = within(ANSWER * 2, builder.build()).await?;
        // Far apart, so that the numbers of two workers of one process do not meet.
        let epochs = EPOCHS.fetch_add(1 << 32, Ordering::Relaxed);
        let group = Arc::new(KafkaMember {
            server,
            consumer,
            positions: Mutex::new(OwnedPositions::new(epochs)),
            arrived: Notify::new(),
            committing: tokio::sync::Mutex::default(),
            fault: Mutex::default(),
            is_joined: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        });
        let _ = handoff.set(Arc::downgrade(&group));
        Ok(group)
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut OwnedPositions) -> T) -> T {
        change(&mut self.positions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, fault: Option<QueueError>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn noted(&self) -> Option<QueueError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Joins the group, once.
    pub(super) async fn join(self: &Arc<KafkaMember>) -> Result<(), QueueError> {
        if self.is_joined.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        if let Err(e) = within(ANSWER * 2, self.consumer.subscribe([&self.server.topic])).await {
            self.is_joined.store(false, Ordering::SeqCst);
            return Err(e);
        }
        tokio::spawn(self.clone().read());
        Ok(())
    }

    /// Leaves the group soon.
    pub(super) fn leave(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.consumer.wakeup();
    }

    async fn read(self: Arc<KafkaMember>) {
        let mut is_paused = false;
        while !self.is_ended.load(Ordering::SeqCst) {
            let counts = self.with(|positions| positions.counts(now_ms()));
            let is_full = counts.ready >= READ_AHEAD || counts.waiting >= WAITING_MAX;
            // Also when it was full before: partitions may have been added.
            if is_full || is_paused {
                for (topic, partitions) in self.consumer.assignment().await {
                    match is_full {
                        true => self.consumer.pause(&topic, &partitions).await,
                        false => self.consumer.resume(&topic, &partitions).await,
                    }
                }
            }
            is_paused = is_full;
            let wait = if is_full { POLL / 25 } else { POLL };
            match self.consumer.poll(wait).await {
                Ok(records) => {
                    self.note(None);
                    let now = now_ms();
                    let any = !records.is_empty();
                    self.with(|positions| {
                        for found in &records {
                            let (message, published) = message(found);
                            let (partition, offset) = (found.partition, found.offset);
                            positions.add(ReadRecord { partition, offset, message, published }, now);
                        }
                    });
                    if any {
                        self.arrived.notify_waiters();
                    }
                }
                Err(KrafkaError::Wakeup) => {}
                Err(e) => {
                    self.note(Some(fault(&e)));
                    self.arrived.notify_waiters();
                    tokio::time::sleep(POLL).await;
                }
            }
            let now = now_ms();
            let waiting = self.with(|positions| positions.take_waiting(now - HOLD_MS, now + SOON_MS));
            if !waiting.is_empty()
                && let Err(e) = self.replace(&waiting, None).await
            {
                self.note(Some(e));
            }
        }
        let _ = tokio::time::timeout(ANSWER, self.consumer.close()).await;
    }

    /// Hands out what is read, or waits for it.
    pub(super) async fn receive(
        self: &Arc<KafkaMember>,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        self.join().await?;
        let end = Instant::now() + wait;
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let now = now_ms();
            let (taken, due) = self.with(|positions| (positions.take(most, now), positions.next_due()));
            let left = end.saturating_duration_since(Instant::now());
            if !taken.is_empty() {
                return Ok(taken);
            }
            match self.noted() {
                Some(QueueError::Refused(why)) => return Err(QueueError::Refused(why)),
                Some(fault) if left.is_zero() => return Err(fault),
                None if left.is_zero() => return Ok(taken),
                _ => {}
            }
            let until_due =
                due.map_or(left, |at| Duration::from_millis(u64::try_from(at - now).unwrap_or(0) + 1));
            let _ = tokio::time::timeout(left.min(until_due), arrived).await;
        }
    }

    /// Finishes records, and commits the positions that have moved.
    pub(super) async fn finish(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        self.with(|positions| receipts.iter().for_each(|receipt| positions.finish(receipt)));
        // The next of an ordering key may be free.
        self.arrived.notify_waiters();
        self.commit().await
    }

    /// Commits the positions that have moved, and tries again while the group has no coordinator or
    /// changes its members. What cannot be committed in time is committed with the next call.
    async fn commit(&self) -> Result<(), QueueError> {
        let end = Instant::now() + ANSWER;
        loop {
            match self.commit_once().await {
                Err(e) if e.is_transient() && Instant::now() < end => tokio::time::sleep(POLL).await,
                done => return done,
            }
        }
    }

    async fn commit_once(&self) -> Result<(), QueueError> {
        let _committing = self.committing.lock().await;
        let moved = self.with(|positions| positions.uncommitted());
        if moved.is_empty() {
            return Ok(());
        }
        self.commit_to(&moved).await?;
        self.with(|positions| positions.committed(&moved));
        Ok(())
    }

    /// Commits positions as they are given.
    pub(super) async fn commit_to(&self, positions: &[(i32, i64)]) -> Result<(), QueueError> {
        let topic = self.server.topic.as_str();
        let offsets = positions
            .iter()
            .map(|(id, offset)| (TopicPartition::new(topic, *id), OffsetAndMetadata::new(*offset)));
        within(ANSWER, self.consumer.commit_offsets(offsets)).await
    }

    /// Publishes copies, and finishes the originals when the copies are confirmed.
    pub(super) async fn replace(
        &self,
        deliveries: &[Delivery],
        not_before: Option<i64>,
    ) -> Result<(), QueueError> {
        let is_held = |delivery: &&Delivery| self.with(|positions| positions.holds(&delivery.receipt));
        let held: Vec<&Delivery> = deliveries.iter().filter(is_held).collect();
        let copy = |delivery: &&Delivery| {
            let mut message = delivery.message.clone();
            message.not_before = not_before.or(message.not_before);
            record(&self.server.topic, &message, delivery.published)
        };
        self.server.publish(held.iter().map(copy).collect()).await?;
        let receipts: Vec<Receipt> = held.iter().map(|delivery| delivery.receipt.clone()).collect();
        self.finish(&receipts).await
    }
}
