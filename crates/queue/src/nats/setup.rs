//! The stream and the consumer of a queue, which are created if needed.

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, ConsumerErrorKind, DiscardPolicy, Info, RetentionPolicy, StorageType, Stream,
};

use super::NatsQueue;
use super::connect::{connected, described, later, refusal};
use crate::error::QueueError;

/// Leased messages and messages that wait for their time, of all workers together.
const LEASED_MAX: i64 = 1_000_000;

impl NatsQueue {
    /// The stream, which is created if needed.
    pub(super) async fn stream(&self) -> Result<Stream<Info>, QueueError> {
        connected(&self.client).await?;
        let stream = match self.jetstream.get_stream(&self.stream).await {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(e) if e.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    self.create().await?
                }
                GetStreamErrorKind::JetStream(e) => return Err(refusal("the stream", &e)),
                _ => return Err(later(described(&error))),
            },
        };
        let config = &stream.cached_info().config;
        if config.retention != RetentionPolicy::WorkQueue || config.subjects != [self.subject.as_str()] {
            return Err(QueueError::Refused(format!(
                "the stream {} exists, but is not a queue of its own (work-queue retention, only the subject {})",
                self.stream, self.subject
            )));
        }
        Ok(stream)
    }

    async fn create(&self) -> Result<Stream<Info>, QueueError> {
        let config = Config {
            name: self.stream.clone(),
            subjects: vec![self.subject.clone()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            // A stream with a limit refuses; it does not drop the oldest.
            discard: DiscardPolicy::New,
            num_replicas: self.replicas,
            ..Config::default()
        };
        self.jetstream.create_stream(config).await.map_err(|error| match error.kind() {
            CreateStreamErrorKind::JetStream(e) => refusal("the stream cannot be created", &e),
            _ => later(described(&error)),
        })
    }

    /// The consumer of the group, which is created if needed.
    pub(super) async fn consumer(&self) -> Result<PullConsumer, QueueError> {
        connected(&self.client).await?;
        let mut consumer = self.consumer.lock().await;
        if let Some(consumer) = &*consumer {
            return Ok(consumer.clone());
        }
        let config = pull::Config {
            durable_name: Some(self.group.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.lease,
            // With a limit the message would stay in the stream for ever, undelivered.
            max_deliver: -1,
            max_ack_pending: LEASED_MAX,
            max_waiting: 4096,
            ..pull::Config::default()
        };
        let made = self.stream().await?.create_consumer(config).await.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(e) if e.error_code() == ErrorCode::CONSUMER_WQ_MULTIPLE_UNFILTERED => {
                QueueError::Refused(format!("the stream {} belongs to another group; NATS deletes a message when it is acknowledged, so a second group needs a queue of its own", self.stream))
            }
            ConsumerErrorKind::JetStream(e) => refusal("the consumer cannot be created", &e),
            _ => later(described(&error)),
        })?;
        Ok(consumer.insert(made).clone())
    }
}
