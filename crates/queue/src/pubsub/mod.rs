//! Google Pub/Sub.
//!
//! A queue is a topic, a group is a subscription of it. What Pub/Sub does not offer is made of what
//! it offers:
//! - A delay: the message carries its time. A worker that receives it too early sets its deadline to
//!   that time, at most ten minutes at once, and its caller does not see it.
//! - Returning a message for longer than ten minutes: a copy with its time, then an acknowledgement.
//!
//! Pub/Sub counts deliveries only with a dead-letter policy, which is best effort and stalls ordering
//! keys; so there is none, and deliveries are not counted. It tells the number of messages only
//! through another service, Cloud Monitoring, and minutes later; so the depth is not supported.
//!
//! | file | holds |
//! |---|---|
//! | `api` | requests |
//! | `envelope` | a message as Pub/Sub carries it |
//! | `order` | one message of an ordering key at a time |
//! | `pull` | pulls that outlive the wait of their caller |

mod api;
mod envelope;
mod order;
mod pull;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use tidegate_client::store::CloudService;
use tidegate_client::tidegate_core::time::calendar::rfc3339;
use tokio::sync::Notify;
use url::Url;

use crate::address::QueueOptions;
use crate::cloud;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::transport::{Promises, QueueDepth, Transport};
use api::{PubsubApi, Subscription};
use envelope::{BODY_MAX, REQUEST_BYTES_MAX};
use order::OrderGate;
use pull::RunningPull;

/// The API, and the audience of tokens for it.
const ENDPOINT: &str = "https://pubsub.googleapis.com/";
/// The deadlines of Pub/Sub, in seconds.
const DEADLINE_MIN: u64 = 10;
const DEADLINE_MAX: u64 = 600;
/// The most messages of one request.
const MESSAGES_MAX: usize = 1000;
/// The most messages that are kept because of their order.
const KEPT_MAX: usize = 1000;
/// The most messages that are shown.
const PEEK_MAX: usize = 100;

/// A server that is asked for what it has now may say nothing although it has messages; so it is
/// asked this often, with pauses, before that is believed.
const EMPTY_TRIES: u32 = 4;
const EMPTY_PAUSE: Duration = Duration::from_millis(250);

/// How long a queue is purged by receiving, while others publish.
const PURGE_MAX: Duration = Duration::from_secs(60);

/// A subscription of a topic.
pub(crate) struct PubsubQueue {
    api: Arc<PubsubApi>,
    /// In seconds.
    lease: u64,
    subscription: Subscription,
    pull: tokio::sync::Mutex<RunningPull>,
    gate: Mutex<OrderGate>,
    /// Tells that a message of the gate may be delivered.
    freed: Notify,
}

/// Seconds of a deadline, rounded up: nothing comes too early.
fn deadline(ms: i64) -> i64 {
    (ms.max(0).saturating_add(999) / 1000).min(600)
}

/// A time with its milliseconds: without them, what was published in this second would remain.
fn with_millis(at: i64) -> String {
    format!("{}.{:03}Z", rfc3339(at).trim_end_matches('Z'), at.rem_euclid(1000))
}

/// The endpoint: given, that of the emulator in the environment, or Google's.
fn endpoint(given: Option<String>) -> Result<Url, QueueError> {
    let emulator = || std::env::var("PUBSUB_EMULATOR_HOST").ok().filter(|host| !host.is_empty());
    let text = given.or_else(|| emulator().map(|host| format!("http://{host}/")));
    let text = text.as_deref().unwrap_or(ENDPOINT);
    Url::parse(text).map_err(|e| QueueError::Refused(format!("the endpoint of Pub/Sub is invalid: {e}")))
}

/// Checks a name, which becomes a part of a path.
fn named(what: &str, name: &str) -> Result<(), QueueError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+');
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.starts_with("goog");
    if starts && (3..=255).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(QueueError::Refused(format!(
        "{name:?} cannot be the {what}: it has 3 to 255 letters, digits, `-`, `.`, `_`, `~` or `+`, begins with \
         a letter and not with goog"
    )))
}

impl PubsubQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<PubsubQueue, QueueError> {
        let refused = |what: String| QueueError::Refused(what);
        let cloud::CloudParameters { settings, mut others } =
            cloud::parameters(url, &["subscription", "endpoint", "ordering"])?;
        let (project, topic) = (url.host_str().unwrap_or_default(), url.path().trim_matches('/'));
        let name = others.remove("subscription").unwrap_or_else(|| format!("{topic}.{}", options.group));
        named("project", project)?;
        named("topic", topic)?;
        named("subscription", &name)?;
        let endpoint = endpoint(others.remove("endpoint"))?;
        let is_ordered = others.remove("ordering").is_some_and(|value| value == "true");
        let service = CloudService::google(&endpoint, ENDPOINT, &settings, api::error)
            .map_err(|e| refused(e.to_string()))?;
        let api = PubsubApi {
            service,
            topic: format!("projects/{project}/topics/{topic}"),
            subscription: format!("projects/{project}/subscriptions/{name}"),
        };
        let lease = options.lease.as_millis().div_ceil(1000);
        let lease = u64::try_from(lease).unwrap_or(DEADLINE_MAX).clamp(DEADLINE_MIN, DEADLINE_MAX);
        let subscription = match api.subscription().await? {
            Some(found) => found,
            None => {
                api.create(lease, is_ordered).await?;
                let created = api.subscription().await?;
                created.ok_or_else(|| refused(format!("{} cannot be created", api.subscription)))?
            }
        };
        if subscription.topic != api.topic {
            return Err(refused(format!(
                "{} is a subscription of {}, not of {}; name another one as subscription=NAME",
                api.subscription, subscription.topic, api.topic
            )));
        }
        if is_ordered && !subscription.enable_message_ordering {
            return Err(refused(format!(
                "{} exists without message ordering, which cannot be changed; name another one as \
                 subscription=NAME, or leave out ordering=true",
                api.subscription
            )));
        }
        Ok(PubsubQueue {
            api: Arc::new(api),
            lease,
            subscription,
            pull: tokio::sync::Mutex::default(),
            gate: Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn gate(&self) -> MutexGuard<'_, OrderGate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The messages that came, and when. With no time to wait the server is asked for what it has.
    async fn pulled(&self, most: usize, wait: Duration) -> Result<Vec<(Delivery, Instant)>, QueueError> {
        let deadline = Duration::from_secs(self.subscription.ack_deadline_seconds.max(DEADLINE_MIN));
        let most = most.min(MESSAGES_MAX);
        let pulled = if wait.is_zero() {
            let pulled = self.api.pull(most, false).await?;
            let now = Instant::now();
            pulled.into_iter().map(|message| (message, now)).collect()
        } else {
            let Ok(mut running) = tokio::time::timeout(wait, self.pull.lock()).await else {
                return Ok(Vec::new());
            };
            running.next(&self.api, most, (wait, deadline)).await?
        };
        Ok(pulled.into_iter().map(|(message, came)| (envelope::delivery(message), came)).collect())
    }

    /// Sorts out what was pulled: messages that are not due are parked, those behind another of
    /// their ordering key are kept.
    async fn admit(&self, pulled: Vec<(Delivery, Instant)>) -> Result<Vec<Delivery>, QueueError> {
        let now = now_ms();
        let own = self.subscription.ack_deadline_seconds;
        let is_ordered = self.subscription.enable_message_ordering;
        // Those behind a message that is parked wait as long as it.
        let mut parked: Vec<(Delivery, i64)> = Vec::new();
        let mut due: Vec<(Delivery, Instant)> = Vec::new();
        for (delivery, came) in pulled {
            let key = delivery.message.ordering_key.as_ref().filter(|_| is_ordered);
            let behind = parked
                .iter()
                .filter(|(other, _)| key.is_some() && other.message.ordering_key.as_ref() == key)
                .map(|(_, wait)| *wait)
                .max();
            let wait =
                delivery.message.not_before.map_or(0, |at| at.saturating_sub(now)).max(behind.unwrap_or(0));
            if wait > 0 { parked.push((delivery, wait)) } else { due.push((delivery, came)) }
        }
        let mut by_deadline: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (delivery, wait) in parked {
            by_deadline.entry(deadline(wait)).or_default().push(delivery.receipt.0);
        }
        for (seconds, receipts) in by_deadline {
            self.api.set_deadline(&receipts, seconds).await?;
        }
        let receipts: Vec<String> = due.iter().map(|(delivery, _)| delivery.receipt.0.clone()).collect();
        if self.lease != own && !receipts.is_empty() {
            self.api.set_deadline(&receipts, i64::try_from(self.lease).unwrap_or(600)).await?;
        }
        if !is_ordered {
            return Ok(due.into_iter().map(|(delivery, _)| delivery).collect());
        }
        let now = Instant::now();
        let mut gate = self.gate();
        let admit = |(delivery, came): (Delivery, Instant)| {
            gate.admit(delivery, now, came + Duration::from_secs(self.lease))
        };
        Ok(due.into_iter().filter_map(admit).collect())
    }

    /// Returns messages after a deadline, with those that are kept behind them.
    async fn release(&self, mut receipts: Vec<String>, seconds: i64) -> Result<(), QueueError> {
        let behind = self.gate().release(&receipts);
        receipts.extend(behind);
        self.api.set_deadline(&receipts, seconds).await
    }
}

#[async_trait]
impl Transport for PubsubQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "Google Pub/Sub",
            ordering: self.subscription.enable_message_ordering,
            priority: false,
            unique: false,
            counts_deliveries: false,
            leases: true,
            groups: true,
            delay_max: Some(Duration::from_secs(DEADLINE_MAX)),
            body_max: BODY_MAX,
        }
    }

    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError> {
        let mut batch: Vec<Value> = Vec::new();
        let mut sum = 0;
        // All of them are checked before the first one is sent.
        let entries = messages.iter().map(envelope::entry).collect::<Result<Vec<_>, _>>()?;
        for (entry, bytes) in entries {
            if batch.len() >= MESSAGES_MAX || sum + bytes > REQUEST_BYTES_MAX {
                self.api.publish(&std::mem::take(&mut batch)).await?;
                sum = 0;
            }
            sum += bytes;
            batch.push(entry);
        }
        if !batch.is_empty() {
            self.api.publish(&batch).await?;
        }
        Ok(messages.len() as u64)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let end = Instant::now() + wait;
        loop {
            let due = self.gate().free(most, Instant::now());
            if !due.is_empty() || most == 0 {
                return Ok(due);
            }
            let left = end.saturating_duration_since(Instant::now());
            let is_full = self.gate().waiting() >= KEPT_MAX;
            let pulled = if wait.is_zero() && !is_full {
                self.pulled(most, wait).await?
            } else if !is_full {
                tokio::select! {
                    pulled = self.pulled(most, left) => pulled?,
                    () = self.freed.notified() => continue,
                }
            } else {
                // No more until some are done.
                let _ = tokio::time::timeout(left, self.freed.notified()).await;
                Vec::new()
            };
            let due = self.admit(pulled).await?;
            if !due.is_empty() || Instant::now() >= end {
                return Ok(due);
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        let mut all: Vec<String> = receipts.iter().map(|receipt| receipt.0.clone()).collect();
        let until = Instant::now() + Duration::from_secs(self.lease);
        self.api.set_deadline(&all, i64::try_from(self.lease).unwrap_or(600)).await?;
        all = self.gate().extend(&all, until);
        self.api.set_deadline(&all, i64::try_from(self.lease).unwrap_or(600)).await?;
        // Pub/Sub does not tell whether a lease had ended.
        Ok(vec![true; receipts.len()])
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        let receipts: Vec<String> = receipts.iter().map(|receipt| receipt.0.clone()).collect();
        self.api.acknowledge(&receipts).await?;
        if self.gate().acknowledge(&receipts) {
            self.freed.notify_one();
        }
        Ok(())
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let receipts: Vec<String> = deliveries.iter().map(|one| one.receipt.0.clone()).collect();
        if delay <= Duration::from_secs(DEADLINE_MAX) {
            let ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
            return self.release(receipts, deadline(ms)).await;
        }
        let not_before = now_ms().saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
        let copies: Vec<Message> = deliveries
            .iter()
            .map(|one| Message { not_before: Some(not_before), ..one.message.clone() })
            .collect();
        self.publish(&copies).await?;
        let receipts: Vec<Receipt> = receipts.into_iter().map(Receipt).collect();
        self.acknowledge(&receipts).await
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        Err(QueueError::Unsupported(format!(
            "counting messages; ask Cloud Monitoring for \
             pubsub.googleapis.com/subscription/num_undelivered_messages of {}",
            self.api.subscription
        )))
    }

    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        // There is no look without a receipt: the messages are received and returned at once.
        let most = most.min(PEEK_MAX);
        let mut shown: Vec<Delivery> = Vec::new();
        let mut tries = EMPTY_TRIES;
        while shown.len() < most && tries > 0 {
            let some = self.receive(most - shown.len(), Duration::ZERO).await?;
            if some.is_empty() {
                tries -= 1;
                tokio::time::sleep(EMPTY_PAUSE).await;
            }
            shown.extend(some);
        }
        self.release(shown.iter().map(|one| one.receipt.0.clone()).collect(), 0).await?;
        Ok(shown.into_iter().map(|one| one.message).collect())
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        let mut held = self.pull.lock().await.clear();
        *self.gate() = OrderGate::default();
        if self.api.seek(&with_millis(now_ms())).await? {
            return Ok(None);
        }
        // The emulator cannot with ordering: everything that can be delivered is acknowledged.
        let (mut tries, began) = (EMPTY_TRIES, Instant::now());
        while tries > 0 && began.elapsed() < PURGE_MAX {
            self.api.acknowledge(&held).await?;
            let pulled = self.api.pull(MESSAGES_MAX, false).await?;
            if pulled.is_empty() {
                tries -= 1;
                tokio::time::sleep(EMPTY_PAUSE).await;
            }
            held = pulled.into_iter().map(|message| message.ack_id).collect();
        }
        Ok(None)
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        Ok(self.api.subscription().await?.unwrap_or_default().warnings(&self.api.subscription))
    }
}
