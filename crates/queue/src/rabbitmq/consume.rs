//! Receiving: never more than was asked for.
//!
//! Each call is a consumer of its own with a prefetch of what was asked for. When all have come, the
//! consumer is cancelled without waiting, before anything of it is acknowledged; so nothing else can
//! come, and a call costs one round trip. When fewer have come, messages may still be under way when
//! the server confirms the cancellation. The client library keeps those for the next consumer with
//! the same tag; so one is opened on a queue that is always empty, and receives them.
//!
//! Why not `basic.get`: one message per round trip and per entry in the log of the quorum.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amqprs::channel::{
    BasicAckArguments, BasicCancelArguments, BasicConsumeArguments, BasicNackArguments, BasicQosArguments,
    ConsumerMessage, QueueDeclareArguments,
};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use super::link::{RabbitLink, RabbitServer, lost};
use super::wire::incoming;
use crate::error::QueueError;
use crate::message::{Delivery, Receipt};

/// The most that one call receives.
const MOST: usize = 4096;
/// How long a call waits for the next of several messages.
const LINGER: Duration = Duration::from_millis(3);
/// Numbers of messages that never came. The connection is opened anew when there are more.
const GAPS: usize = 100_000;

/// Numbers the connections of this process, so that a receipt belongs to one of them.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// What was delivered over a channel and is not settled.
#[derive(Default)]
struct Unsettled {
    tags: BTreeSet<u64>,
    /// All numbers up to this have come. Only up to here can several be acknowledged at once: a
    /// later one may be on its way to another call.
    seen: u64,
    ahead: BTreeSet<u64>,
}

impl Unsettled {
    fn came(&mut self, tag: u64) {
        self.tags.insert(tag);
        self.ahead.insert(tag);
        while self.ahead.remove(&(self.seen + 1)) {
            self.seen += 1;
        }
    }

    /// Takes out the numbers that are unsettled. Returns up to which number all can be settled at
    /// once, and the others.
    fn settle(&mut self, tags: &[u64]) -> (Option<u64>, Vec<u64>) {
        let mut taken: BTreeSet<u64> = tags.iter().copied().filter(|tag| self.tags.remove(tag)).collect();
        let first_left = self.tags.first().copied().unwrap_or(u64::MAX);
        let end = first_left.min(self.seen + 1);
        let singles = taken.split_off(&end);
        (taken.last().copied(), singles.into_iter().collect())
    }
}

/// A connection over which messages are received.
pub(super) struct RabbitConsumer {
    pub(super) link: RabbitLink,
    queue: String,
    idle: String,
    session: u64,
    unsettled: Mutex<Unsettled>,
    /// The prefetch that is set. Held during requests, because the client library has one place for
    /// the answer to each kind of request.
    requests: Mutex<u16>,
    next_tag: AtomicU64,
}

impl RabbitConsumer {
    pub(super) async fn open(server: &RabbitServer, worker: &str) -> Result<RabbitConsumer, QueueError> {
        let link = server.connect().await?;
        server.declare(&link).await?;
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let idle = format!("{}.idle.{worker}.{}.{session}", server.queue, std::process::id());
        let declare = QueueDeclareArguments::new(&idle).exclusive(true).auto_delete(false).finish();
        link.channel()?.queue_declare(declare).await.map_err(|e| link.fault(&e))?;
        Ok(RabbitConsumer {
            link,
            queue: server.queue.clone(),
            idle,
            session,
            unsettled: Mutex::default(),
            requests: Mutex::new(0),
            next_tag: AtomicU64::new(1),
        })
    }

    /// Receives up to `most` messages, as they come.
    pub(super) async fn receive(&self, most: usize, end: Instant) -> Result<Vec<Delivery>, QueueError> {
        let most = most.clamp(1, MOST);
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed).to_string();
        let mut messages = self.start(&tag, u16::try_from(most).unwrap_or(u16::MAX)).await?;
        let mut received = Vec::new();
        while received.len() < most {
            let until = if received.is_empty() { end } else { Instant::now() + LINGER };
            match tokio::time::timeout_at(until.into(), messages.recv()).await {
                Ok(Some(message)) => received.push(message),
                Ok(None) => return Err(self.broken()),
                Err(_) => break,
            }
        }
        let channel = self.link.channel()?;
        if received.len() == most {
            let cancel = BasicCancelArguments::new(&tag).no_wait(true).finish();
            channel.basic_cancel(cancel).await.map_err(|e| self.link.fault(&e))?;
        } else {
            let requests = self.requests.lock().await;
            for queue in [None, Some(&self.idle)] {
                if let Some(queue) = queue {
                    let consume = BasicConsumeArguments::new(queue, &tag).manual_ack(true).finish();
                    let opened = channel.basic_consume_rx(consume).await;
                    messages = opened.map_err(|e| self.link.fault(&e))?.1;
                }
                let cancel = BasicCancelArguments::new(&tag);
                channel.basic_cancel(cancel).await.map_err(|e| self.link.fault(&e))?;
                while let Some(message) = messages.recv().await {
                    received.push(message);
                }
            }
            drop(requests);
        }
        let mut unsettled = self.unsettled.lock().await;
        let deliveries = received.into_iter().filter_map(|message| {
            let tag = message.deliver?.delivery_tag();
            unsettled.came(tag);
            let found = incoming(&message.basic_properties?, message.content?);
            Some(Delivery {
                message: found.message,
                receipt: Receipt(format!("{}:{tag}", self.session)),
                deliveries: found.deliveries,
                published: found.published,
            })
        });
        let deliveries = deliveries.collect();
        if unsettled.ahead.len() > GAPS || !self.link.is_open() {
            return Err(self.broken());
        }
        Ok(deliveries)
    }

    async fn start(&self, tag: &str, most: u16) -> Result<UnboundedReceiver<ConsumerMessage>, QueueError> {
        let channel = self.link.channel()?;
        let mut prefetch = self.requests.lock().await;
        if *prefetch != most {
            let qos = BasicQosArguments::new(0, most, false);
            channel.basic_qos(qos).await.map_err(|e| self.link.fault(&e))?;
            *prefetch = most;
        }
        let consume = BasicConsumeArguments::new(&self.queue, tag).manual_ack(true).no_wait(true).finish();
        Ok(channel.basic_consume_rx(consume).await.map_err(|e| self.link.fault(&e))?.1)
    }

    fn broken(&self) -> QueueError {
        lost(&self.link.confirms.closed().unwrap_or_else(|| "the connection was lost".into()))
    }

    fn tag(&self, receipt: &Receipt) -> Option<u64> {
        let (session, tag) = receipt.0.split_once(':')?;
        (session.parse() == Ok(self.session)).then_some(())?;
        tag.parse().ok()
    }

    /// Which of the receipts are held.
    pub(super) async fn holds(&self, receipts: &[Receipt]) -> Vec<bool> {
        let (unsettled, is_open) = (self.unsettled.lock().await, self.link.is_open());
        let holds = |receipt| self.tag(receipt).is_some_and(|tag| is_open && unsettled.tags.contains(&tag));
        receipts.iter().map(holds).collect()
    }

    /// How many messages are held.
    pub(super) async fn held(&self) -> u64 {
        if self.link.is_open() { self.unsettled.lock().await.tags.len() as u64 } else { 0 }
    }

    /// Acknowledges what is held of these, and returns when the server has read it.
    pub(super) async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        let tags: Vec<u64> = receipts.iter().filter_map(|receipt| self.tag(receipt)).collect();
        let channel = self.link.channel()?;
        let fault = |e| self.link.fault(&e);
        {
            // Held while sending: to settle a number twice closes the channel.
            let mut unsettled = self.unsettled.lock().await;
            let (all_to, singles) = unsettled.settle(&tags);
            if all_to.is_none() && singles.is_empty() {
                return Ok(());
            }
            if let Some(tag) = all_to {
                channel.basic_ack(BasicAckArguments::new(tag, true)).await.map_err(fault)?;
            }
            for tag in singles {
                channel.basic_ack(BasicAckArguments::new(tag, false)).await.map_err(fault)?;
            }
        }
        let prefetch = self.requests.lock().await;
        channel.basic_qos(BasicQosArguments::new(0, *prefetch, false)).await.map_err(fault)
    }

    /// Gives back what is held of these, at once. The server counts it as a delivery.
    pub(super) async fn return_unread(&self, receipts: &[Receipt]) {
        let tags: Vec<u64> = receipts.iter().filter_map(|receipt| self.tag(receipt)).collect();
        let mut unsettled = self.unsettled.lock().await;
        for tag in tags {
            if let (true, Ok(channel)) = (unsettled.tags.remove(&tag), self.link.channel()) {
                let _ = channel.basic_nack(BasicNackArguments::new(tag, false, true)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_settled_at_once_only_where_all_have_come_and_all_are_meant() {
        let mut unsettled = Unsettled::default();
        for tag in [1, 2, 3, 4, 6] {
            unsettled.came(tag);
        }
        assert_eq!(unsettled.settle(&[1, 2, 4, 6, 6, 9]), (Some(2), vec![4, 6]));
        assert_eq!(unsettled.settle(&[1, 2]), (None, vec![]), "settled twice");
        unsettled.came(7);
        // 5 is on its way to another call.
        assert_eq!(unsettled.settle(&[3, 7]), (Some(3), vec![7]));
        unsettled.came(5);
        unsettled.came(8);
        assert_eq!(unsettled.settle(&[5, 8]), (Some(8), vec![]));
    }
}
