//! RabbitMQ: quorum queues, publisher confirms, and the connection as the lease.
//!
//! Two connections: the server stops reading from one that publishes when it is short of memory or
//! disk, and acknowledgements must not wait behind that.

mod confirm;
mod consume;
mod link;
mod waiting;
mod wire;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqprs::channel::{
    BasicPublishArguments, ConfirmSelectArguments, QueueDeclareArguments, QueuePurgeArguments,
};
use async_trait::async_trait;
use tokio::sync::{Mutex, oneshot};
use url::Url;

use self::consume::RabbitConsumer;
use self::link::{ANSWER, RabbitLink, RabbitServer, lost, refusal, whole};
use self::waiting::{WAITS, declare_waiting, wait_for, waiting_queue};
use self::wire::{AmqpOutgoing, outgoing};
use crate::address::QueueOptions;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::transport::{Promises, QueueDepth, Transport};

/// The limit of RabbitMQ 4; earlier versions accept more.
const BODY_MAX: usize = 16 << 20;
/// Messages on their way without a confirmation.
const UNCONFIRMED: usize = 4096;

/// A connection that publishes.
struct RabbitPublisher {
    link: RabbitLink,
    /// Held while sending: the server numbers messages in the order in which they come.
    sending: Mutex<()>,
    /// The waiting times whose queues were declared.
    declared: Mutex<HashSet<i64>>,
}

struct RabbitInner {
    server: RabbitServer,
    worker: String,
    publisher: Mutex<Option<Arc<RabbitPublisher>>>,
    consumer: Mutex<Option<Arc<RabbitConsumer>>>,
}

/// A queue on a RabbitMQ server.
pub(crate) struct RabbitQueue(Arc<RabbitInner>);

/// Deliveries on their way to the caller. If the caller is gone, they go back.
struct RabbitHandover {
    deliveries: Vec<Delivery>,
    consumer: Arc<RabbitConsumer>,
}

impl Drop for RabbitHandover {
    fn drop(&mut self) {
        if self.deliveries.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (receipts, consumer) = (receipts(&self.deliveries), self.consumer.clone());
        tokio::spawn(async move { consumer.return_unread(&receipts).await });
    }
}

fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

impl RabbitInner {
    async fn publisher(&self) -> Result<Arc<RabbitPublisher>, QueueError> {
        let mut slot = self.publisher.lock().await;
        if let Some(publisher) = slot.as_ref().filter(|publisher| publisher.link.is_open()) {
            return Ok(publisher.clone());
        }
        let link = self.server.connect().await?;
        self.server.declare(&link).await?;
        let select = link.channel()?.confirm_select(ConfirmSelectArguments::default()).await;
        select.map_err(|e| link.fault(&e))?;
        let publisher =
            Arc::new(RabbitPublisher { link, sending: Mutex::default(), declared: Mutex::default() });
        *slot = Some(publisher.clone());
        Ok(publisher)
    }

    async fn consumer(&self) -> Result<Arc<RabbitConsumer>, QueueError> {
        let mut slot = self.consumer.lock().await;
        if let Some(consumer) = slot.as_ref().filter(|consumer| consumer.link.is_open()) {
            return Ok(consumer.clone());
        }
        let consumer = Arc::new(RabbitConsumer::open(&self.server, &self.worker).await?);
        *slot = Some(consumer.clone());
        Ok(consumer)
    }

    /// Where a message goes: into the queue, or, if its time has not come, into a waiting queue.
    fn route(&self, message: &Message) -> (String, Option<i64>) {
        let left = message.not_before.map_or(0, |at| at - now_ms());
        if left <= 0 {
            return (self.server.queue.clone(), None);
        }
        let wait = wait_for(left);
        (waiting_queue(&self.server.queue, wait), Some(wait))
    }

    /// Publishes and waits for the confirmations. After an error the connection is opened anew.
    async fn publish(&self, messages: Vec<(AmqpOutgoing, Option<i64>)>) -> Result<(), QueueError> {
        let publisher = self.publisher().await?;
        let published = publisher.publish(&self.server.queue, messages).await;
        if published.is_err() {
            *self.publisher.lock().await = None;
        }
        published
    }

    /// Publishes copies, and acknowledges the originals when the copies are confirmed.
    async fn replace(
        &self,
        consumer: &RabbitConsumer,
        deliveries: &[Delivery],
        not_before: Option<i64>,
    ) -> Result<(), QueueError> {
        let mut receipts = receipts(deliveries);
        let holds = consumer.holds(&receipts).await;
        let mut copies = Vec::new();
        for (delivery, _) in deliveries.iter().zip(&holds).filter(|(_, holds)| **holds) {
            let mut message = delivery.message.clone();
            message.not_before = not_before.or(message.not_before);
            let (queue, wait) = self.route(&message);
            // Nobody worked on it: this delivery does not count.
            let earlier = delivery.deliveries.saturating_sub(1);
            copies.push((outgoing(queue, &message, earlier, delivery.published)?, wait));
        }
        self.publish(copies).await?;
        let mut holds = holds.into_iter();
        receipts.retain(|_| holds.next().unwrap_or(false));
        consumer.acknowledge(&receipts).await
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<RabbitHandover, QueueError> {
        let end = Instant::now() + wait;
        loop {
            let consumer = self.consumer().await?;
            let came = match consumer.receive(most, end).await {
                Ok(came) => came,
                Err(e) => {
                    *self.consumer.lock().await = None;
                    return Err(e);
                }
            };
            let now = now_ms();
            let is_early = |delivery: &Delivery| delivery.message.not_before.is_some_and(|at| at > now);
            let (early, due): (Vec<_>, Vec<_>) = came.into_iter().partition(is_early);
            let handover = RabbitHandover { deliveries: due, consumer };
            if !early.is_empty() {
                self.replace(&handover.consumer, &early, None).await?;
            }
            if !handover.deliveries.is_empty() || Instant::now() >= end {
                return Ok(handover);
            }
        }
    }
}

impl RabbitPublisher {
    async fn publish(
        &self,
        queue: &str,
        messages: Vec<(AmqpOutgoing, Option<i64>)>,
    ) -> Result<(), QueueError> {
        let waits: HashSet<i64> = messages.iter().filter_map(|(_, wait)| *wait).collect();
        for wait in waits {
            let mut declared = self.declared.lock().await;
            if !declared.contains(&wait) {
                let answer = self.link.declare(declare_waiting(queue, wait)).await?;
                answer.map_err(|why| refusal(&why))?;
                declared.insert(wait);
            }
        }
        let channel = self.link.channel()?;
        let mut messages = messages.into_iter().map(|(message, _)| message).peekable();
        while messages.peek().is_some() {
            let batch: Vec<AmqpOutgoing> = messages.by_ref().take(UNCONFIRMED).collect();
            let confirmed = {
                let _sending = self.sending.lock().await;
                let confirmed = self.link.confirms.expect(batch.len());
                for message in batch {
                    let target = BasicPublishArguments::new("", &message.queue).mandatory(true).finish();
                    let sent = channel.basic_publish(message.properties, message.body, target).await;
                    sent.map_err(|e| self.link.fault(&e))?;
                }
                confirmed
            };
            match confirmed.await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return Err(lost(&why)),
                Err(_) => return Err(lost("the connection was lost")),
            }
        }
        Ok(())
    }
}

impl RabbitQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<RabbitQueue, QueueError> {
        let queue = RabbitQueue(Arc::new(RabbitInner {
            server: RabbitServer::new(url, options)?,
            worker: options.worker.clone(),
            publisher: Mutex::default(),
            consumer: Mutex::default(),
        }));
        queue.run(|inner| async move { inner.consumer().await.map(drop) }).await?;
        Ok(queue)
    }

    /// Runs an operation to its end, even if the caller goes away.
    async fn run<T, F>(&self, operation: impl FnOnce(Arc<RabbitInner>) -> F) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueueError>> + Send + 'static,
    {
        // Connecting and one answer.
        let done = whole(ANSWER * 3, operation(self.0.clone())).await;
        if done.is_err() {
            *self.0.publisher.lock().await = None;
            *self.0.consumer.lock().await = None;
        }
        done?
    }
}

#[async_trait]
impl Transport for RabbitQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "RabbitMQ",
            ordering: false,
            priority: false,
            unique: false,
            counts_deliveries: true,
            leases: false,
            groups: false,
            delay_max: None,
            body_max: BODY_MAX,
        }
    }

    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError> {
        let mut all = Vec::with_capacity(messages.len());
        for message in messages {
            if message.body.len() > BODY_MAX {
                return Err(QueueError::TooLarge { bytes: message.body.len(), max: BODY_MAX });
            }
            let (queue, wait) = self.0.route(message);
            all.push((outgoing(queue, message, 0, None)?, wait));
        }
        self.run(|inner| async move { inner.publish(all).await }).await?;
        Ok(messages.len() as u64)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let inner = self.0.clone();
        let (sender, handed) = oneshot::channel();
        tokio::spawn(async move {
            let _ = sender.send(inner.receive(most, wait).await);
        });
        match tokio::time::timeout(wait + ANSWER * 3, handed).await {
            Ok(Ok(handed)) => Ok(std::mem::take(&mut handed?.deliveries)),
            _ => {
                *self.0.consumer.lock().await = None;
                Err(lost("no answer"))
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        let receipts = receipts.to_vec();
        self.run(|inner| async move { Ok(inner.consumer().await?.holds(&receipts).await) }).await
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        let receipts = receipts.to_vec();
        self.run(|inner| async move {
            let consumer = inner.consumer().await?;
            consumer.acknowledge(&receipts).await
        })
        .await
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let deliveries = deliveries.to_vec();
        let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        let not_before = (delay > 0).then(|| now_ms().saturating_add(delay));
        self.run(|inner| async move {
            let consumer = inner.consumer().await?;
            inner.replace(&consumer, &deliveries, not_before).await
        })
        .await
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        self.run(|inner| async move {
            let consumer = inner.consumer().await?;
            let count =
                |queue: &str| consumer.link.declare(QueueDeclareArguments::new(queue).passive(true).finish());
            let ready = count(&inner.server.queue).await?.map_err(|why| lost(&why))?;
            let mut waiting = 0;
            for wait in WAITS {
                waiting += count(&waiting_queue(&inner.server.queue, wait)).await?.unwrap_or(0);
            }
            let leased = consumer.held().await;
            Ok(QueueDepth { ready, leased: Some(leased), waiting: Some(waiting), oldest_ms: None })
        })
        .await
    }

    /// Receives them and puts them at the end of the queue, because the server would count a return
    /// as a delivery.
    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        let shown = self.receive(most, Duration::from_millis(200)).await?;
        self.requeue(&shown, Duration::ZERO).await?;
        Ok(shown.into_iter().map(|delivery| delivery.message).collect())
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        self.run(|inner| async move {
            let consumer = inner.consumer().await?;
            let mut purged = 0;
            let waiting = WAITS.iter().map(|wait| waiting_queue(&inner.server.queue, *wait));
            for queue in waiting.chain([inner.server.queue.clone()]) {
                let is_main = queue == inner.server.queue;
                let arguments = QueuePurgeArguments::new(&queue);
                let answer = consumer.link.ask(|channel| async move { channel.queue_purge(arguments).await });
                match answer.await? {
                    Ok(count) => purged += u64::from(count.unwrap_or(0)),
                    Err(why) if is_main => return Err(lost(&why)),
                    // Nothing ever waited that long.
                    Err(_) => {}
                }
            }
            Ok(Some(purged))
        })
        .await
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        self.run(|inner| async move {
            let consumer = inner.consumer().await?;
            inner.server.declare(&consumer.link).await
        })
        .await
    }
}
