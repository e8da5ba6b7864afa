//! A queue in NATS JetStream: a stream with work-queue retention and one durable pull consumer.
//!
//! The lease is the consumer's `ack_wait`. A message with a time is delivered by the server at once;
//! this transport gives it back until its time, unseen by the caller. Messages are given back as a confirmed
//! copy, then the original is acknowledged: a negative acknowledgement would count as a delivery, and a
//! task that waited for a throttled provider would look like one that crashed its workers. Between the two the
//! process can die; then the message comes twice, which changes nothing in the sink.
//!
//! Why no `Nats-Msg-Id` for new messages: a task may be submitted again after it ended, which the
//! server would drop silently within its window.

mod connect;
mod leases;
mod setup;
mod wire;

use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{Info as GroupInfo, PullConsumer};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{AckKind, PublishMessage};
use async_nats::jetstream::stream::{Info, RawMessageErrorKind, StorageType, Stream};
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use tokio::sync::Mutex;
use url::Url;

use self::connect::{ANSWER, connected, later};
use self::leases::HeldLeases;
use self::wire::Label;
use crate::address::QueueOptions;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::parameters::{parameter, queue_name};
use crate::transport::{Promises, QueueDepth, Transport};

/// The most messages that are on their way at once.
const BATCH_MAX: usize = 256;
/// How long the server is asked to wait, at most.
const SLICE: Duration = Duration::from_secs(1);
/// The room for the header in the largest message.
const HEADER_MAX: usize = 16 << 10;

/// A queue in NATS JetStream.
pub(crate) struct NatsQueue {
    client: Client,
    jetstream: Context,
    subject: String,
    stream: String,
    group: String,
    lease: Duration,
    replicas: usize,
    is_synced: bool,
    leases: HeldLeases,
    /// Made when something is received.
    consumer: Mutex<Option<PullConsumer>>,
}

impl NatsQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<NatsQueue, QueueError> {
        let subject = queue_name(url)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if !subject.split('.').all(|part| !part.is_empty() && part.chars().all(is_plain)) {
            return Err(QueueError::Refused(format!(
                "the name of the queue, {subject}, is not possible in NATS; use letters, digits, - and _, with single dots between"
            )));
        }
        let replicas = parameter(url, "replicas").map_or(Ok(1), |count| count.parse());
        let replicas = replicas
            .map_err(|_| QueueError::Refused("replicas in the URL of the queue is not a number".into()))?;
        let client = connect::connect(url, &options.worker).await?;
        let queue = NatsQueue {
            jetstream: connect::jetstream(client.clone()),
            client,
            stream: subject.replace('.', "_"),
            subject,
            group: options.group.replace(|c| !is_plain(c), "_"),
            lease: options.lease,
            replicas,
            is_synced: parameter(url, "sync").is_some_and(|sync| sync == "always"),
            leases: HeldLeases::new(options.lease, Instant::now()),
            consumer: Mutex::new(None),
        };
        queue.stream().await?;
        Ok(queue)
    }

    /// Pulls once: what is there now, or one message that comes in time. Returns what is due, and
    /// whether anything came.
    async fn pull(&self, most: usize, wait: Duration) -> Result<(Vec<Delivery>, bool), QueueError> {
        let consumer = self.consumer().await?;
        let mut due = Vec::new();
        let mut any = false;
        let pull = async {
            let mut messages = if wait.is_zero() {
                consumer.fetch().max_messages(most).messages().await.map_err(later)?
            } else {
                consumer.batch().max_messages(1).expires(wait).messages().await.map_err(later)?
            };
            while let Some(message) = messages.try_next().await.map_err(later)? {
                any = true;
                let Ok(info) = message.info() else { continue };
                let Some(receipt) = message.reply.as_deref() else { continue };
                let label = Label::read(message.headers.as_ref());
                match label.not_before.map(|at| at - now_ms()) {
                    Some(ms) if ms > 0 => {
                        let delay = Duration::from_millis(ms.unsigned_abs() + 5);
                        message.ack_with(AckKind::Nak(Some(delay))).await.map_err(later)?;
                    }
                    _ => {
                        self.leases.hold(receipt, Instant::now());
                        let stored =
                            i64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
                        due.push(label.delivery(&message.payload, receipt, info.delivered, stored));
                    }
                }
            }
            Ok(())
        };
        let ended = tokio::time::timeout(wait + ANSWER, pull).await;
        match ended.unwrap_or_else(|_| Err(later("NATS does not answer"))) {
            // What came is held, whatever happened then.
            Err(_) if !due.is_empty() => Ok((due, any)),
            Err(error) => {
                // It may be gone.
                *self.consumer.lock().await = None;
                Err(error)
            }
            Ok(()) => Ok((due, any)),
        }
    }

    /// Publishes some messages and waits for all confirmations.
    async fn send(&self, messages: Vec<PublishMessage>) -> Result<u64, QueueError> {
        let count = messages.len() as u64;
        let mut confirmations = Vec::with_capacity(messages.len());
        for message in messages {
            let sent = self.jetstream.send_publish(self.subject.clone(), message).await;
            confirmations.push(sent.map_err(|error| self.unpublished(&error))?.into_future());
        }
        for confirmed in join_all(confirmations).await {
            confirmed.map_err(|error| self.unpublished(&error))?;
        }
        Ok(count)
    }

    fn unpublished(&self, error: &async_nats::jetstream::context::PublishError) -> QueueError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let max = self.client.max_payload();
                QueueError::TooLarge { bytes: max + 1, max }
            }
            _ => later(connect::described(error)),
        }
    }

    /// Sends a word about each delivery and waits for all answers; returns those that answered.
    async fn request_all<'a>(
        &self,
        receipts: &[&'a str],
        word: &'static str,
    ) -> Result<Vec<&'a str>, QueueError> {
        let mut told = Vec::with_capacity(receipts.len());
        let mut error = None;
        for some in receipts.chunks(BATCH_MAX) {
            connected(&self.client).await?;
            let word = Bytes::from_static(word.as_bytes());
            let requests =
                some.iter().map(|receipt| self.client.request((*receipt).to_owned(), word.clone()));
            for (receipt, answer) in some.iter().zip(join_all(requests).await) {
                match answer {
                    Ok(_) => told.push(*receipt),
                    Err(e) => error = Some(later(connect::described(&e))),
                }
            }
        }
        error.map_or(Ok(told), Err)
    }

    /// The consumer of the queue, whatever group it belongs to.
    async fn group(&self, stream: &Stream<Info>) -> Result<Option<GroupInfo>, QueueError> {
        tokio::time::timeout(ANSWER, stream.consumers().try_next()).await.map_err(later)?.map_err(later)
    }

    /// Up to `most` messages that were not delivered yet, with the time when they were stored.
    async fn next(
        &self,
        stream: &Stream<Info>,
        from: u64,
        most: usize,
    ) -> Result<Vec<(Label, Bytes, i64)>, QueueError> {
        let mut shown = Vec::new();
        let mut from = from;
        while shown.len() < most {
            let next =
                stream.raw_message_builder().sequence(from).next_by_subject(self.subject.clone()).send();
            match tokio::time::timeout(ANSWER, next).await.map_err(later)? {
                Ok(message) => {
                    from = message.sequence + 1;
                    let stored = i64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
                    shown.push((Label::read(Some(&message.headers)), message.payload, stored));
                }
                Err(error) => match error.kind() {
                    RawMessageErrorKind::NoMessageFound => break,
                    RawMessageErrorKind::JetStream(e) if e.code() == 404 => break,
                    _ => return Err(later(connect::described(&error))),
                },
            }
        }
        Ok(shown)
    }
}

fn outgoing(headers: HeaderMap, body: &[u8]) -> PublishMessage {
    PublishMessage::build().payload(Bytes::copy_from_slice(body)).headers(headers)
}

#[async_trait]
impl Transport for NatsQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "NATS JetStream",
            ordering: false,
            priority: false,
            unique: false,
            counts_deliveries: true,
            leases: true,
            groups: false,
            delay_max: None,
            body_max: self.client.max_payload().saturating_sub(HEADER_MAX),
        }
    }

    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError> {
        let max = self.promises().body_max;
        if let Some(message) = messages.iter().find(|message| message.body.len() > max) {
            return Err(QueueError::TooLarge { bytes: message.body.len(), max });
        }
        let mut added = 0;
        for batch in messages.chunks(BATCH_MAX) {
            connected(&self.client).await?;
            let batch = batch.iter().map(|message| outgoing(Label::new(message).headers(), &message.body));
            match self.send(batch.collect()).await {
                Ok(count) => added += count,
                Err(error) => {
                    // If somebody deleted the stream, the next attempt finds it again.
                    self.stream().await?;
                    return Err(error);
                }
            }
        }
        Ok(added)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let most = most.min(BATCH_MAX);
        if most == 0 {
            return Ok(Vec::new());
        }
        let end = Instant::now() + wait;
        loop {
            let (deliveries, any) = self.pull(most, Duration::ZERO).await?;
            let left = end.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || (left.is_zero() && !any) {
                return Ok(deliveries);
            }
            if any {
                continue;
            }
            let (mut deliveries, _) = self.pull(1, left.min(SLICE).max(Duration::from_millis(1))).await?;
            if !deliveries.is_empty() {
                if most > 1
                    && let Ok((more, _)) = self.pull(most - 1, Duration::ZERO).await
                {
                    deliveries.extend(more);
                }
                return Ok(deliveries);
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        let now = Instant::now();
        for receipt in self.request_all(&self.leases.held(receipts, now), "+WPI").await? {
            self.leases.hold(receipt, now);
        }
        Ok(receipts.iter().map(|receipt| self.leases.is_held(&receipt.0, Instant::now())).collect())
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        for receipt in self.request_all(&self.leases.held(receipts, Instant::now()), "+ACK").await? {
            self.leases.release(receipt);
        }
        Ok(())
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        for some in deliveries.chunks(BATCH_MAX) {
            connected(&self.client).await?;
            let now = Instant::now();
            let held: Vec<&Delivery> =
                some.iter().filter(|delivery| self.leases.is_held(&delivery.receipt.0, now)).collect();
            let due = (delay > 0).then(|| now_ms().saturating_add(delay));
            let copy = |delivery: &&Delivery| {
                // Sent twice, it is stored once.
                outgoing(Label::copy_of(delivery, due).headers(), &delivery.message.body)
                    .message_id(&delivery.receipt.0)
            };
            self.send(held.iter().map(copy).collect()).await?;
            let receipts: Vec<Receipt> = held.iter().map(|delivery| delivery.receipt.clone()).collect();
            self.acknowledge(&receipts).await?;
        }
        Ok(())
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let stream = self.stream().await?;
        let total = stream.cached_info().state.messages;
        let group = self.group(&stream).await?;
        let leased = group.as_ref().map_or(0, |group| group.num_ack_pending as u64);
        let from = group.map_or(0, |group| group.delivered.stream_sequence) + 1;
        let oldest = self.next(&stream, from, 1).await?.into_iter().next();
        let oldest_ms = oldest.map(|(_, _, stored)| u64::try_from(now_ms() - stored).unwrap_or(0));
        // The server does not tell leased messages from those that wait.
        Ok(QueueDepth { ready: total.saturating_sub(leased), leased: Some(leased), waiting: None, oldest_ms })
    }

    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        let stream = self.stream().await?;
        let from = self.group(&stream).await?.map_or(0, |group| group.delivered.stream_sequence) + 1;
        let shown = self.next(&stream, from, most.min(BATCH_MAX)).await?;
        Ok(shown.into_iter().map(|(label, body, _)| label.message(&body)).collect())
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        let purged = self.stream().await?.purge().await.map_err(later)?;
        Ok(Some(purged.purged))
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        let stream = self.stream().await?;
        let config = &stream.cached_info().config;
        let mut warnings = Vec::new();
        if config.storage == StorageType::Memory {
            warnings.push(format!("The NATS stream {} is in memory: a restart loses its messages. Delete it when it is empty; it is created again with file storage.", self.stream));
        } else if config.num_replicas < 3 && !self.is_synced {
            warnings.push("NATS syncs its files every two minutes by default: if the machine fails, confirmed messages are lost. Set sync_interval: always in the jetstream block of the server, then add sync=always to the URL (the server does not tell), or use replicas=3 in a cluster.".to_owned());
        }
        Ok(warnings)
    }
}
