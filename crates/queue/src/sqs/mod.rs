//! AWS SQS, standard and FIFO.
//!
//! What SQS does not offer is made of what it offers:
//! - A delay above 15 minutes, or any delay in a FIFO queue: the message carries its time. A worker
//!   that receives it too early hides it until then, and its caller does not see it.
//! - Returning a message: a copy is sent and the message is deleted, so that the broker does not
//!   count a delivery on which nobody worked, neither for us nor for a redrive policy. In a FIFO
//!   queue a copy would lose its place, so a message with an ordering key is hidden instead.
//! - Holding a message for more than 12 hours is not possible. An extension then says that the lease
//!   is lost.
//!
//! In a FIFO queue messages are received one by one. A batch may hold several of one group, and
//! workers would process them at the same time.
//!
//! | file | holds |
//! |---|---|
//! | `api` | requests |
//! | `envelope` | a message as SQS carries it |

mod api;
mod envelope;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tidegate_client::store::CloudService;
use tidegate_client::tidegate_core::hex::hex;
use url::Url;

use crate::address::QueueOptions;
use crate::cloud;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::transport::{Promises, QueueDepth, Transport};
use api::{BATCH_MAX, SqsApi};
use envelope::{BODY_MAX, MESSAGE_BYTES_MAX, SqsDelivery, SqsEntry, SqsHandle};

/// The longest delay of a standard queue, in seconds.
const DELAY_MAX: i64 = 900;
/// The longest time that a message can be hidden after its first receipt, with a minute to spare, in
/// seconds.
const HIDDEN_MAX: i64 = 12 * 3600 - 60;
/// The longest poll, in seconds.
const WAIT_MAX: u64 = 20;
/// How long messages that are not due are parked beyond the wait of a caller.
const PARKING_MAX: Duration = Duration::from_secs(2);
/// How often SQS purges a queue.
const PURGE_EVERY: Duration = Duration::from_secs(61);
/// The most requests at once.
const AT_ONCE: usize = 8;
/// The most messages that are shown.
const PEEK_MAX: usize = 100;

/// A queue of SQS.
pub(crate) struct SqsQueue {
    api: SqsApi,
    fifo: bool,
    /// In seconds.
    lease: u64,
}

/// Seconds, rounded up: nothing comes too early.
fn seconds_up(ms: i64) -> i64 {
    ms.max(0).saturating_add(999) / 1000
}

impl SqsQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<SqsQueue, QueueError> {
        let refused = |what: String| QueueError::Refused(what);
        let cloud::CloudParameters { mut settings, mut others } = cloud::parameters(url, &["region"])?;
        settings.region = others.remove("region");
        let host = url.host_str().unwrap_or_default();
        let parts: Vec<&str> = url.path().trim_matches('/').split('/').collect();
        let [account, name] = parts[..] else {
            return Err(refused(
                "expected sqs://HOST/ACCOUNT/QUEUE, such as \
                 sqs://sqs.eu-central-1.amazonaws.com/123456789012/geotasks"
                    .into(),
            ));
        };
        let scheme = if url.scheme() == "sqs+http" { "http" } else { "https" };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let endpoint = Url::parse(&format!("{scheme}://{host}{port}/"))
            .map_err(|e| refused(format!("the host of the queue is invalid: {e}")))?;
        // sqs.REGION.amazonaws.com
        let region = host.strip_prefix("sqs.").and_then(|rest| rest.split('.').next());
        let region = region.or((scheme == "http").then_some("us-east-1"));
        let service = CloudService::aws(&endpoint, "sqs", region, &settings, api::error)
            .map_err(|e| refused(e.to_string()))?;
        let queue_url = format!("{scheme}://{host}{port}/{account}/{name}");
        let lease = u64::try_from(seconds_up(options.lease.as_millis().try_into().unwrap_or(i64::MAX)));
        let mut queue = SqsQueue {
            api: SqsApi { service, queue_url },
            fifo: name.ends_with(".fifo"),
            lease: lease.unwrap_or(1).clamp(1, 12 * 3600),
        };
        // An emulator names its queues as it likes.
        if scheme == "http" {
            queue.api.queue_url = queue.api.url_of(name, account).await?;
        }
        queue.api.attributes().await?;
        Ok(queue)
    }

    /// Sends messages, each with the deliveries of the message of which it is a copy.
    async fn send(&self, messages: &[(&Message, u32)]) -> Result<(), QueueError> {
        let now = now_ms();
        let mut batches: Vec<(usize, Vec<Value>)> = vec![(0, Vec::new())];
        for (message, deliveries) in messages {
            let SqsEntry { body, attributes, bytes } = envelope::entry(message, *deliveries)?;
            let mut entry = json!({ "MessageBody": body, "MessageAttributes": attributes });
            if let Some(entry) = entry.as_object_mut() {
                if self.fifo {
                    entry.insert("MessageGroupId".into(), envelope::group(message).into());
                    // One for each message: a request that is sent again adds nothing, but the same
                    // task may be submitted again.
                    entry.insert("MessageDeduplicationId".into(), unique()?.into());
                } else {
                    let delay = message.not_before.map_or(0, |at| seconds_up(at.saturating_sub(now)));
                    entry.insert("DelaySeconds".into(), delay.min(DELAY_MAX).into());
                }
            }
            match batches.last_mut() {
                Some((sum, entries)) if entries.len() < BATCH_MAX && *sum + bytes <= MESSAGE_BYTES_MAX => {
                    *sum += bytes;
                    entries.push(entry);
                }
                _ => batches.push((bytes, vec![entry])),
            }
        }
        let mut batches: Vec<Vec<Value>> =
            batches.into_iter().map(|(_, entries)| entries).filter(|entries| !entries.is_empty()).collect();
        // One after the other where the order counts.
        let at_once = if self.fifo { 1 } else { AT_ONCE };
        while !batches.is_empty() {
            let some = batches.drain(..batches.len().min(at_once));
            let sent = try_join_all(some.map(|entries| self.api.batch("SendMessageBatch", entries))).await?;
            if let Some(code) = sent.into_iter().flatten().flatten().next() {
                return Err(QueueError::Refused(format!("SQS does not accept the message ({code})")));
            }
        }
        Ok(())
    }

    /// Runs a batch action for each handle; `None` is a handle that is not one. Returns for each
    /// whether it was done.
    async fn each(&self, action: &str, entries: Vec<Option<Value>>) -> Result<Vec<bool>, QueueError> {
        let mut done = vec![false; entries.len()];
        let all: Vec<(usize, Value)> =
            entries.into_iter().enumerate().filter_map(|(n, entry)| Some((n, entry?))).collect();
        for some in all.chunks(BATCH_MAX * AT_ONCE) {
            let batches = some.chunks(BATCH_MAX).map(|batch| async move {
                let values = batch.iter().map(|(_, entry)| entry.clone()).collect();
                Ok::<_, QueueError>((batch, self.api.batch(action, values).await?))
            });
            for (batch, refused) in try_join_all(batches).await? {
                for ((n, _), refused) in batch.iter().zip(refused) {
                    if let Some(place) = done.get_mut(*n) {
                        *place = refused.is_none();
                    }
                }
            }
        }
        Ok(done)
    }

    /// Hides messages from now on for these seconds, as long as SQS allows.
    async fn hide(&self, handles: &[(Option<SqsHandle>, i64)]) -> Result<Vec<bool>, QueueError> {
        let now = now_ms();
        let entry = |(handle, seconds): &(Option<SqsHandle>, i64)| {
            let handle = handle.as_ref()?;
            let left = hidden_left(handle, now);
            (left > 0 || *seconds == 0).then(
                || json!({ "ReceiptHandle": handle.handle, "VisibilityTimeout": (*seconds).min(left.max(0)) }),
            )
        };
        self.each("ChangeMessageVisibilityBatch", handles.iter().map(entry).collect()).await
    }

    async fn delete(&self, handles: &[Option<SqsHandle>]) -> Result<(), QueueError> {
        let entry = |handle: &Option<SqsHandle>| Some(json!({ "ReceiptHandle": handle.as_ref()?.handle }));
        // A handle that is refused belongs to a lease that has ended.
        self.each("DeleteMessageBatch", handles.iter().map(entry).collect()).await.map(drop)
    }

    /// Receives once. Messages that are not due are hidden until then. The flag says whether the
    /// server had none.
    async fn poll(&self, most: usize, wait: u64) -> Result<(Vec<SqsDelivery>, bool), QueueError> {
        let attempt = if self.fifo { Some(unique()?) } else { None };
        let most = if self.fifo { 1 } else { most };
        let received = self.api.receive((most, self.lease), wait, attempt).await?;
        let none = received.is_empty();
        let now = now_ms();
        let delay_max_ms = if self.fifo { 0 } else { DELAY_MAX * 1000 };
        let all = received.into_iter().map(|message| envelope::delivery(message, delay_max_ms, now));
        let (due, early): (Vec<_>, Vec<_>) =
            all.partition(|one| one.delivery.message.not_before.is_none_or(|at| at <= now));
        let parked = self.park(early, now).await;
        // What could not be hidden comes back after the lease.
        if due.is_empty() { parked.map(|()| (due, none)) } else { Ok((due, none)) }
    }

    /// Hides messages until they are due, or sends a copy of those that were hidden for too long.
    async fn park(&self, early: Vec<SqsDelivery>, now: i64) -> Result<(), QueueError> {
        let until = |one: &SqsDelivery| {
            seconds_up(one.delivery.message.not_before.unwrap_or(now).saturating_sub(now))
        };
        let (hidden, copied): (Vec<_>, Vec<_>) = early.into_iter().partition(|one| {
            // As far as it goes, if it goes far.
            until(one) <= hidden_left(&one.handle, now) || hidden_left(&one.handle, now) > 3600
        });
        let hidden: Vec<_> = hidden.into_iter().map(|one| (Some(one.handle.clone()), until(&one))).collect();
        self.hide(&hidden).await?;
        self.copy(copied.into_iter().map(|one| one.delivery).collect()).await
    }

    /// Sends copies, and deletes the messages. After a crash in between there are both.
    async fn copy(&self, deliveries: Vec<Delivery>) -> Result<(), QueueError> {
        let copies: Vec<(&Message, u32)> =
            deliveries.iter().map(|one| (&one.message, one.deliveries.saturating_sub(1))).collect();
        self.send(&copies).await?;
        let handles: Vec<_> = deliveries.iter().map(|one| SqsHandle::of(&one.receipt)).collect();
        self.delete(&handles).await
    }
}

/// How long a message can still be hidden, in seconds.
fn hidden_left(handle: &SqsHandle, now: i64) -> i64 {
    HIDDEN_MAX - seconds_up(now.saturating_sub(handle.first_received))
}

/// An identifier that nobody else has.
fn unique() -> Result<String, QueueError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| QueueError::Refused(format!("no random numbers: {e}")))?;
    Ok(hex(&bytes))
}

#[async_trait]
impl Transport for SqsQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: if self.fifo { "AWS SQS FIFO" } else { "AWS SQS" },
            ordering: self.fifo,
            priority: false,
            unique: false,
            counts_deliveries: true,
            leases: true,
            groups: false,
            delay_max: Some(Duration::from_secs(if self.fifo { 0 } else { 900 })),
            body_max: BODY_MAX,
        }
    }

    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError> {
        let all: Vec<(&Message, u32)> = messages.iter().map(|message| (message, 0)).collect();
        self.send(&all).await?;
        Ok(messages.len() as u64)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let end = Instant::now() + wait;
        let mut due: Vec<Delivery> = Vec::new();
        if most == 0 {
            return Ok(due);
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            let (some, none) = self.poll(most, wait.min(WAIT_MAX)).await?;
            due.extend(some.into_iter().map(|one| one.delivery));
            // Behind messages that are not due there may be others, but the wait has an end.
            let over = if none { end } else { end + PARKING_MAX };
            if !due.is_empty() || Instant::now() >= over {
                break;
            }
        }
        // There is one; whatever else there is now comes along.
        while !due.is_empty() && due.len() < most {
            let size = if self.fifo { 1 } else { BATCH_MAX };
            let polls: Vec<usize> = (due.len()..most).step_by(size).take(AT_ONCE).collect();
            let polls = polls.into_iter().map(|from| self.poll((most - from).min(size), 0));
            let mut is_last = false;
            for answer in join_all(polls).await {
                // After a failure the caller gets what there is, and the next call tells.
                let (some, none) = answer.unwrap_or((Vec::new(), true));
                is_last |= none;
                due.extend(some.into_iter().map(|one| one.delivery));
            }
            if is_last {
                break;
            }
        }
        Ok(due)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        let lease = i64::try_from(self.lease).unwrap_or(i64::MAX);
        let handles: Vec<_> = receipts.iter().map(|receipt| (SqsHandle::of(receipt), lease)).collect();
        self.hide(&handles).await
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        let handles: Vec<_> = receipts.iter().map(SqsHandle::of).collect();
        self.delete(&handles).await
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let now = now_ms();
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        let is_hidden = |one: &&Delivery| {
            let handle = SqsHandle::of(&one.receipt);
            self.fifo
                && one.message.ordering_key.is_some()
                && handle.is_some_and(|handle| seconds_up(delay_ms) <= hidden_left(&handle, now))
        };
        let (hidden, copied): (Vec<&Delivery>, Vec<&Delivery>) = deliveries.iter().partition(is_hidden);
        let hidden: Vec<_> =
            hidden.iter().map(|one| (SqsHandle::of(&one.receipt), seconds_up(delay_ms))).collect();
        self.hide(&hidden).await?;
        let not_before = (delay_ms > 0).then(|| now.saturating_add(delay_ms));
        let copied = copied.into_iter().cloned().map(|mut one| {
            one.message.not_before = not_before;
            one
        });
        self.copy(copied.collect()).await
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let attributes = self.api.attributes().await?;
        let number = |name: &str| attributes.get(name).and_then(|value| value.parse::<u64>().ok());
        Ok(QueueDepth {
            ready: number("ApproximateNumberOfMessages").unwrap_or(0),
            leased: number("ApproximateNumberOfMessagesNotVisible"),
            waiting: number("ApproximateNumberOfMessagesDelayed"),
            oldest_ms: None,
        })
    }

    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        // SQS has no look without a receipt: the messages are received and shown again at once.
        let shown = self.receive(most.min(PEEK_MAX), Duration::ZERO).await?;
        let handles: Vec<_> = shown.iter().map(|one| (SqsHandle::of(&one.receipt), 0)).collect();
        self.hide(&handles).await?;
        Ok(shown.into_iter().map(|one| one.message).collect())
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        if self.api.purge().await? {
            return Ok(None);
        }
        let began = Instant::now();
        while began.elapsed() < PURGE_EVERY {
            let received = self.api.receive((BATCH_MAX, self.lease), 1, None).await?;
            if received.is_empty() {
                return Ok(None);
            }
            let handles =
                received.into_iter().map(|message| json!({ "ReceiptHandle": message.receipt_handle }));
            self.each("DeleteMessageBatch", handles.map(Some).collect()).await?;
        }
        // Now it does it again.
        self.api.purge().await.map(|_| None)
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        Ok(api::warnings(&self.api.attributes().await?))
    }
}
