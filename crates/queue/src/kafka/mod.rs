//! Kafka: a consumer group on a topic.
//!
//! Kafka hands out partitions, not messages: a message belongs to the worker that owns its
//! partition. A message that is returned or delayed is copied to the end of the topic, because a
//! position cannot go back for one message.

mod group;
mod positions;
mod server;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use krafka::consumer::AutoOffsetReset;
use url::Url;

use self::group::KafkaMember;
use self::server::{ANSWER, BODY_MAX, KafkaServer, within};
use self::wire::{message, record};
use crate::address::QueueOptions;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::transport::{Promises, QueueDepth, Transport};

/// A topic, read by a group.
pub(crate) struct KafkaQueue {
    server: Arc<KafkaServer>,
    group: Arc<KafkaMember>,
}

/// The extent of a partition, and where the group is in it.
struct PartitionExtent {
    partition: i32,
    position: i64,
    end: i64,
}

impl KafkaQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<KafkaQueue, QueueError> {
        let server = Arc::new(KafkaServer::connect(url, &options.worker).await?);
        let group = KafkaMember::new(server.clone(), &options.group, options.lease).await?;
        Ok(KafkaQueue { server, group })
    }

    async fn extents(&self) -> Result<Vec<PartitionExtent>, QueueError> {
        let topic = self.server.topic.as_str();
        let ids: Vec<i32> = self.server.partitions().await?.into_iter().map(|(id, _)| id).collect();
        let consumer = &self.group.consumer;
        let named: Vec<(&str, i32)> = ids.iter().map(|id| (topic, *id)).collect();
        let committed = within(ANSWER, consumer.committed(&named)).await?;
        let committed: HashMap<i32, i64> =
            committed.into_iter().map(|((_, id), at)| (id, at.offset)).collect();
        let mut extents = Vec::with_capacity(ids.len());
        for partition in ids {
            let (start, end) = within(ANSWER, consumer.fetch_watermarks(topic, partition)).await?;
            let committed = committed.get(&partition).copied().unwrap_or(start).max(start);
            let own = self.group.with(|positions| positions.position(partition)).unwrap_or(committed);
            extents.push(PartitionExtent { partition, position: own.max(committed).min(end), end });
        }
        Ok(extents)
    }
}

impl Drop for KafkaQueue {
    fn drop(&mut self) {
        self.group.leave();
    }
}

fn lag(extents: &[PartitionExtent]) -> u64 {
    extents.iter().map(|extent| u64::try_from(extent.end - extent.position).unwrap_or(0)).sum()
}

#[async_trait]
impl Transport for KafkaQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "Kafka",
            ordering: true,
            priority: false,
            unique: false,
            counts_deliveries: false,
            leases: false,
            groups: true,
            delay_max: None,
            body_max: BODY_MAX,
        }
    }

    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError> {
        if let Some(message) = messages.iter().find(|message| message.body.len() > BODY_MAX) {
            return Err(QueueError::TooLarge { bytes: message.body.len(), max: BODY_MAX });
        }
        let records = messages.iter().map(|message| record(&self.server.topic, message, None)).collect();
        self.server.publish(records).await?;
        Ok(messages.len() as u64)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        self.group.receive(most, wait).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        Ok(self.group.with(|positions| receipts.iter().map(|receipt| positions.holds(receipt)).collect()))
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        self.group.finish(receipts).await
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        let not_before = (delay > 0).then(|| now_ms().saturating_add(delay));
        self.group.replace(deliveries, not_before).await
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let extents = self.extents().await?;
        let counts = self.group.with(|positions| positions.counts(now_ms()));
        let ready = lag(&extents).saturating_sub(counts.leased + counts.waiting + counts.ahead);
        Ok(QueueDepth { ready, leased: Some(counts.leased), waiting: Some(counts.waiting), oldest_ms: None })
    }

    /// Reads from the position of the group, outside the group: also what a worker holds.
    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        let (topic, extents) = (self.server.topic.as_str(), self.extents().await?);
        let wanted = usize::try_from(lag(&extents)).unwrap_or(usize::MAX).min(most);
        let builder = self.server.kafka.consumer_without_group().auto_offset_reset(AutoOffsetReset::Earliest);
        let consumer = within(ANSWER, builder.build()).await?;
        let ids = extents.iter().map(|extent| extent.partition).collect();
        within(ANSWER, consumer.assign(topic, ids)).await?;
        for extent in &extents {
            within(ANSWER, consumer.seek(topic, extent.partition, extent.position)).await?;
        }
        let (mut shown, end) = (Vec::new(), Instant::now() + ANSWER / 2);
        while shown.len() < wanted && Instant::now() < end {
            let records = within(ANSWER, consumer.poll(Duration::from_millis(200))).await?;
            shown.extend(records.iter().map(|record| message(record).0).take(wanted - shown.len()));
        }
        let _ = tokio::time::timeout(ANSWER, consumer.close()).await;
        Ok(shown)
    }

    /// Moves the group's position to the end. The messages stay in the log until they expire.
    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        // Only a member may move the position while the group has others.
        self.group.join().await?;
        let end = Instant::now() + ANSWER * 2;
        while self.group.consumer.group_metadata().await.is_none_or(|member| member.generation_id() < 0) {
            if Instant::now() > end {
                return Err(QueueError::Unreachable(
                    "Kafka: the group did not accept a member in time".into(),
                ));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let extents = self.extents().await?;
        let ends: Vec<(i32, i64)> = extents.iter().map(|extent| (extent.partition, extent.end)).collect();
        self.group.commit_to(&ends).await?;
        let own = self.group.consumer.assignment().await.remove(&self.server.topic).unwrap_or_default();
        for (partition, end) in ends.into_iter().filter(|(id, _)| own.contains(id)) {
            self.group.with(|positions| positions.skip_to(partition, end));
            within(ANSWER, self.group.consumer.seek(&self.server.topic, partition, end)).await?;
        }
        Ok(Some(lag(&extents)))
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        let partitions = self.server.partitions().await?;
        let single = partitions.iter().filter(|(_, replicas)| *replicas < 2).count();
        let mut warnings = Vec::new();
        if single > 0 {
            warnings.push(format!(
                "{single} of {} partitions of the topic {} have one replica: a lost broker loses messages; use three replicas and min.insync.replicas=2",
                partitions.len(),
                self.server.topic
            ));
        }
        Ok(warnings)
    }
}
