//! What every transport does, and what only some promise.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt};

/// What a transport promises beyond carrying messages at least once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// Its name in docs and errors, such as `Redis Streams`.
    pub name: &'static str,
    /// Whether messages with the same ordering key are delivered one after the other.
    pub ordering: bool,
    /// Whether a higher priority is delivered first.
    pub priority: bool,
    /// Whether `publish` of a key that is still queued adds nothing.
    pub unique: bool,
    /// Whether it counts deliveries across crashes of workers.
    pub counts_deliveries: bool,
    /// Whether a lease must be extended; otherwise the connection is the lease.
    pub leases: bool,
    /// Whether several groups each receive every message.
    pub groups: bool,
    /// The longest delay that one message may have, if the server limits it. A longer one is split.
    pub delay_max: Option<Duration>,
    /// The largest body in bytes.
    pub body_max: usize,
}

/// The state of a queue. `None` means that the server does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages that can be delivered now.
    pub ready: u64,
    /// Messages that are delivered and not yet acknowledged.
    pub leased: Option<u64>,
    /// Messages that wait for their time.
    pub waiting: Option<u64>,
    /// The age of the oldest message that can be delivered, in milliseconds.
    pub oldest_ms: Option<u64>,
}

impl QueueDepth {
    /// The lag: all messages that are not acknowledged.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.ready + self.leased.unwrap_or(0) + self.waiting.unwrap_or(0)
    }
}

/// A queue on a server, or in a file. All operations may be called at once by several tasks.
///
/// An operation that returns `Ok` was confirmed by the server. Each has an end: a server that does
/// not answer is [`QueueError::Unreachable`] after some seconds. After a lost connection the next
/// operation connects again.
#[async_trait]
pub trait Transport: Send + Sync {
    /// What it promises.
    fn promises(&self) -> Promises;

    /// Publishes messages. `Ok` means that the server has confirmed all of them as durably as it is
    /// configured. After an error some may have been published: publish all of them again.
    /// Returns the number of messages that were added; with [`Promises::unique`] a key that is
    /// still queued adds none.
    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError>;

    /// Receives up to `most` messages. Waits up to `wait` for the first one, not for further ones.
    /// Never delivers a message before its `not_before`.
    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// Extends the leases by the whole lease time. Returns, for each receipt, whether the lease is
    /// still held, as far as the server tells.
    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError>;

    /// Acknowledges: the messages are removed for this group. A receipt whose lease has ended is
    /// ignored where the server can tell.
    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError>;

    /// Returns messages without having worked on them. They are delivered again after `delay`.
    /// Nothing is lost if the process dies within.
    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError>;

    /// The state of the queue.
    async fn depth(&self) -> Result<QueueDepth, QueueError>;

    /// Shows up to `most` of the next messages without receiving them.
    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError>;

    /// Deletes all messages, including those that wait. Returns how many, if the server tells.
    async fn purge(&self) -> Result<Option<u64>, QueueError>;

    /// Settings of the server that lose messages, each as a sentence with what to do.
    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        Ok(Vec::new())
    }

    /// Moves a message to a dead queue: a confirmed publish with the reason in the headers
    /// `reason-code` and `reason`, then the acknowledgement.
    async fn dead_letter(
        &self,
        delivery: &Delivery,
        (code, reason): (&str, &str),
        dead: &dyn Transport,
    ) -> Result<(), QueueError> {
        let message = delivery.dead_message(code, reason);
        dead.publish(std::slice::from_ref(&message)).await?;
        self.acknowledge(std::slice::from_ref(&delivery.receipt)).await
    }
}
