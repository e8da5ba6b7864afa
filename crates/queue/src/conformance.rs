//! The suite that every transport passes, against a real server.
//!
//! A test of a transport implements [`Broker`] and calls the macro [`conformance!`](crate::conformance!),
//! which makes one test of each case. A case returns what it found wrong, as a sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::error::QueueError;
use crate::message::{Delivery, Message, now_ms};
use crate::transport::{QueueDepth, Transport};

pub use crate::promise_page::promises_what_is_documented;

/// A server with an empty queue that belongs to one test.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Another worker on the queue, with this lease. The name was not used before.
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError>;

    /// Another queue on the same server, for dead letters.
    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError>;

    /// Stops the server without warning and starts it again with what it has stored. `false` if
    /// the server is shared with others and cannot be restarted.
    async fn restart(&self) -> Result<bool, QueueError>;
}

/// What a case found wrong.
pub type CaseResult = Result<(), String>;

/// The lease in the cases that wait for its end. Pub/Sub has none below 10 s.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long a case waits for a message that must come.
const SOON: Duration = Duration::from_secs(30);
/// How long a server may take to start on a busy machine.
const RESTART: Duration = Duration::from_secs(180);

fn say(error: QueueError) -> String {
    error.to_string()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> CaseResult {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn keys(messages: &[Delivery]) -> BTreeSet<String> {
    messages.iter().map(|delivery| delivery.message.key.clone()).collect()
}

fn numbered(range: std::ops::Range<u32>) -> Vec<Message> {
    range.map(|n| Message::new(format!("task-{n}"), format!("{{\"n\":{n}}}"))).collect()
}

/// Receives until `count` messages have come.
async fn collect(queue: &dyn Transport, count: usize) -> Result<Vec<Delivery>, String> {
    let end = Instant::now() + SOON;
    let mut all = Vec::new();
    while all.len() < count {
        if Instant::now() > end {
            return Err(format!("only {} of {count} messages came", all.len()));
        }
        let most = count - all.len();
        let some = queue.receive(most, Duration::from_secs(1)).await.map_err(say)?;
        if some.len() > most {
            return Err(format!("asked for {most} messages, received {}", some.len()));
        }
        all.extend(some);
    }
    Ok(all)
}

/// Where workers own partitions (ordering without leases), one receives what another has left when
/// that one has gone.
fn leave_partitions(queue: Arc<dyn Transport>) -> Option<Arc<dyn Transport>> {
    let promises = queue.promises();
    (!promises.ordering || promises.leases).then_some(queue)
}

async fn nothing(queue: &dyn Transport, wait: Duration) -> CaseResult {
    let some = queue.receive(10, wait).await.map_err(say)?;
    same("messages", &keys(&some), &BTreeSet::new())
}

async fn acknowledge(queue: &dyn Transport, deliveries: &[Delivery]) -> CaseResult {
    let receipts: Vec<_> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
    queue.acknowledge(&receipts).await.map_err(say)
}

/// What is published is delivered as it was, once, and is gone when it was acknowledged.
pub async fn carries_messages(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    let mut headers = BTreeMap::new();
    headers.insert("submitted-by".to_owned(), "Zoë".to_owned());
    let body: Vec<u8> = "{\"name\":\"Straße 京\",\"n\":1}".into();
    let special = Message { headers, ..Message::new("Parzelle 12/3 ü", body) };
    let mut messages = numbered(0..25);
    messages.push(special.clone());
    same("added", &queue.publish(&messages).await.map_err(say)?, &26)?;
    let received = collect(queue.as_ref(), 26).await?;
    same("keys", &keys(&received), &messages.iter().map(|m| m.key.clone()).collect())?;
    let found = received.iter().find(|delivery| delivery.message.key == special.key);
    let found = found.ok_or("the special message did not come")?;
    same("body", &found.message.body, &special.body)?;
    same("headers", &found.message.headers, &special.headers)?;
    same("deliveries", &found.deliveries, &1)?;
    acknowledge(queue.as_ref(), &received).await?;
    nothing(queue.as_ref(), Duration::from_secs(1)).await
}

/// No more is received than was asked for, and what is not received can be received by another.
pub async fn receives_a_bounded_number(broker: &dyn Broker) -> CaseResult {
    let (a, b) =
        (broker.worker("a", LEASE).await.map_err(say)?, broker.worker("b", LEASE).await.map_err(say)?);
    a.publish(&numbered(0..20)).await.map_err(say)?;
    let first = collect(a.as_ref(), 3).await?;
    if a.promises().ordering && !a.promises().leases {
        acknowledge(a.as_ref(), &first).await?;
    }
    let a = leave_partitions(a);
    let rest = collect(b.as_ref(), 17).await?;
    let all: BTreeSet<String> = keys(&first).union(&keys(&rest)).cloned().collect();
    same("number of different messages", &all.len(), &20)?;
    if let Some(a) = a {
        acknowledge(a.as_ref(), &first).await?;
    }
    acknowledge(b.as_ref(), &rest).await
}

/// An empty queue answers after the wait, not much later, and a message that comes while waiting is
/// received.
pub async fn waits_for_messages(broker: &dyn Broker) -> CaseResult {
    let (a, b) =
        (broker.worker("a", LEASE).await.map_err(say)?, broker.worker("b", LEASE).await.map_err(say)?);
    nothing(a.as_ref(), Duration::from_millis(300)).await?;
    let waiting = tokio::spawn(async move { (a.receive(5, SOON).await, a) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    b.publish(&numbered(0..1)).await.map_err(say)?;
    let (received, a) = waiting.await.map_err(|e| e.to_string())?;
    let received = received.map_err(say)?;
    same("messages", &received.len(), &1)?;
    acknowledge(a.as_ref(), &received).await
}

/// A message with a time is not delivered before it, and does not hold up others.
pub async fn delays_messages(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    let at = now_ms() + 3000;
    let late = Message { not_before: Some(at), ..Message::new("late", "{}") };
    queue.publish(&[late, Message::new("now", "{}")]).await.map_err(say)?;
    let first = collect(queue.as_ref(), 1).await?;
    same("first", &first[0].message.key, &"now".to_owned())?;
    acknowledge(queue.as_ref(), &first).await?;
    let second = collect(queue.as_ref(), 1).await?;
    if now_ms() < at {
        return Err("a message was delivered before its time".into());
    }
    same("second", &second[0].message.key, &"late".to_owned())?;
    acknowledge(queue.as_ref(), &second).await
}

/// What is given back comes again after the delay, for anybody.
pub async fn requeues(broker: &dyn Broker) -> CaseResult {
    let (a, b) =
        (broker.worker("a", LEASE).await.map_err(say)?, broker.worker("b", LEASE).await.map_err(say)?);
    a.publish(&numbered(0..2)).await.map_err(say)?;
    let received = collect(a.as_ref(), 2).await?;
    let began = Instant::now();
    a.requeue(&received[..1], Duration::ZERO).await.map_err(say)?;
    a.requeue(&received[1..], Duration::from_secs(2)).await.map_err(say)?;
    let _a = leave_partitions(a);
    let first = collect(b.as_ref(), 1).await?;
    same("first", &first[0].message.key, &received[0].message.key)?;
    acknowledge(b.as_ref(), &first).await?;
    let second = collect(b.as_ref(), 1).await?;
    if began.elapsed() < Duration::from_secs(2) {
        return Err("a message came before its delay was over".into());
    }
    same(
        "second",
        &second[0].message,
        &Message { not_before: second[0].message.not_before, ..received[1].message.clone() },
    )?;
    acknowledge(b.as_ref(), &second).await?;
    nothing(b.as_ref(), Duration::from_secs(1)).await
}

/// A lease that is extended holds; one that is not ends, and another worker receives the message.
/// The late acknowledgement of the first worker does not harm the second.
pub async fn leases_hold_and_end(broker: &dyn Broker) -> CaseResult {
    let (a, b) =
        (broker.worker("a", LEASE).await.map_err(say)?, broker.worker("b", LEASE).await.map_err(say)?);
    if !a.promises().leases {
        return Ok(());
    }
    a.publish(&numbered(0..1)).await.map_err(say)?;
    let held = collect(a.as_ref(), 1).await?;
    let end = Instant::now() + LEASE + LEASE / 2;
    while Instant::now() < end {
        tokio::time::sleep(LEASE / 4).await;
        let still = a.extend(&[held[0].receipt.clone()]).await.map_err(say)?;
        same("held", &still, &vec![true])?;
        nothing(b.as_ref(), Duration::from_millis(100)).await?;
    }
    // Now the worker stops: no extension any more.
    let second = collect(b.as_ref(), 1).await?;
    same("key", &second[0].message.key, &held[0].message.key)?;
    if b.promises().counts_deliveries && second[0].deliveries < 2 {
        return Err(format!("the second delivery says {} deliveries", second[0].deliveries));
    }
    acknowledge(b.as_ref(), &second).await?;
    nothing(b.as_ref(), Duration::from_secs(1)).await
}

/// A worker that disappears loses nothing: after the lease others receive what it held.
pub async fn survives_a_crash(broker: &dyn Broker) -> CaseResult {
    let a = broker.worker("a", LEASE).await.map_err(say)?;
    a.publish(&numbered(0..10)).await.map_err(say)?;
    let held = collect(a.as_ref(), 4).await?;
    same("held", &held.len(), &4)?;
    drop(a);
    let b = broker.worker("b", LEASE).await.map_err(say)?;
    // Acknowledged as they come: the last ones come after the lease of the first.
    let mut all = BTreeSet::new();
    for _ in 0..10 {
        let one = collect(b.as_ref(), 1).await?;
        acknowledge(b.as_ref(), &one).await?;
        all.extend(keys(&one));
    }
    same("number of different messages", &all.len(), &10)?;
    nothing(b.as_ref(), Duration::from_secs(1)).await
}

/// Messages with the same ordering key come in order, one after the other, where that is promised.
pub async fn keeps_the_order_of_a_key(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    if !queue.promises().ordering {
        return Ok(());
    }
    let ordered = |n: u32| Message {
        ordering_key: Some(format!("parcel-{}", n % 2)),
        ..Message::new(format!("edit-{n}"), format!("{{\"n\":{n}}}"))
    };
    let messages: Vec<Message> = (0..8).map(ordered).collect();
    queue.publish(&messages).await.map_err(say)?;
    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut left = 8;
    while left > 0 {
        let some = collect(queue.as_ref(), 1).await?;
        for delivery in &some {
            let of = delivery.message.ordering_key.clone().ok_or("the ordering key is lost")?;
            order.entry(of).or_default().push(delivery.message.key.clone());
        }
        left -= some.len();
        acknowledge(queue.as_ref(), &some).await?;
    }
    let expected = |from: u32| (0..4).map(|n| format!("edit-{}", from + 2 * n)).collect::<Vec<_>>();
    let expected =
        BTreeMap::from([("parcel-0".to_owned(), expected(0)), ("parcel-1".to_owned(), expected(1))]);
    same("order", &order, &expected)
}

/// Higher priorities come first where that is promised.
pub async fn prefers_higher_priorities(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    if !queue.promises().priority {
        return Ok(());
    }
    let with = |n: u8| Message { priority: n, ..Message::new(format!("p{n}"), "{}") };
    queue.publish(&[with(1), with(9), with(5)]).await.map_err(say)?;
    let mut order = Vec::new();
    for _ in 0..3 {
        let one = collect(queue.as_ref(), 1).await?;
        order.push(one[0].message.key.clone());
        acknowledge(queue.as_ref(), &one).await?;
    }
    same("order", &order, &["p9", "p5", "p1"].map(str::to_owned).to_vec())
}

/// A key that is still queued is not added twice where that is promised.
pub async fn is_unique_while_queued(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    if !queue.promises().unique {
        return Ok(());
    }
    same("added", &queue.publish(&numbered(0..3)).await.map_err(say)?, &3)?;
    same("added", &queue.publish(&numbered(0..5)).await.map_err(say)?, &2)?;
    let all = collect(queue.as_ref(), 5).await?;
    acknowledge(queue.as_ref(), &all).await?;
    nothing(queue.as_ref(), Duration::from_secs(1)).await
}

/// A dead letter is in the dead queue with its reason, and no longer in the queue.
pub async fn dead_letters_with_a_reason(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    let dead = broker.dead_queue().await.map_err(say)?;
    queue.publish(&numbered(0..1)).await.map_err(say)?;
    let received = collect(queue.as_ref(), 1).await?;
    let reason = ("PAYLOAD_INVALID", "line 1: expected an object");
    queue.dead_letter(&received[0], reason, dead.as_ref()).await.map_err(say)?;
    nothing(queue.as_ref(), Duration::from_secs(1)).await?;
    let found = collect(dead.as_ref(), 1).await?;
    let header = |name: &str| found[0].message.headers.get(name).cloned().unwrap_or_default();
    same("code", &header("reason-code"), &reason.0.to_owned())?;
    same("reason", &header("reason"), &reason.1.to_owned())?;
    same("body", &found[0].message.body, &received[0].message.body)?;
    acknowledge(dead.as_ref(), &found).await
}

/// The depth is what the server holds, if it tells; peek shows and takes nothing; purge removes all.
pub async fn tells_its_depth(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    queue.publish(&numbered(0..10)).await.map_err(say)?;
    let shown = queue.peek(3).await.map_err(say)?;
    same("shown", &shown.len(), &3)?;
    let held = collect(queue.as_ref(), 4).await?;
    if let Some(depth) = depth_with_lag(queue.as_ref(), 10).await? {
        same("leased", &depth.leased.unwrap_or(4), &4)?;
    }
    acknowledge(queue.as_ref(), &held).await?;
    depth_with_lag(queue.as_ref(), 6).await?;
    queue.purge().await.map_err(say)?;
    depth_with_lag(queue.as_ref(), 0).await?;
    nothing(queue.as_ref(), Duration::from_secs(1)).await
}

/// The depth when it has this lag; `None` if the server does not tell.
async fn depth_with_lag(queue: &dyn Transport, lag: u64) -> Result<Option<QueueDepth>, String> {
    if let Err(QueueError::Unsupported(_)) = queue.depth().await {
        return Ok(None);
    }
    let depth = eventually(|| queue.depth(), |depth| depth.lag() == lag).await?;
    same("lag", &depth.lag(), &lag)?;
    Ok(Some(depth))
}

/// Asks until the answer is as expected, for servers whose counts come later; returns the last answer.
async fn eventually<F, A>(mut ask: impl FnMut() -> F, is_good: impl Fn(&A) -> bool) -> Result<A, String>
where
    F: Future<Output = Result<A, QueueError>>,
{
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = ask().await.map_err(say)?;
        if is_good(&answer) || Instant::now() > end {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A message that is too large is refused with its size, and does not end the connection.
pub async fn refuses_what_is_too_large(broker: &dyn Broker) -> CaseResult {
    let queue = broker.worker("a", LEASE).await.map_err(say)?;
    let max = queue.promises().body_max;
    if max < 32 << 20 {
        let large = Message::new("large", vec![b' '; max + 1]);
        match queue.publish(&[large]).await {
            Err(QueueError::TooLarge { .. }) => {}
            other => return Err(format!("expected TooLarge, found {other:?}")),
        }
    }
    queue.publish(&numbered(0..1)).await.map_err(say)?;
    let received = collect(queue.as_ref(), 1).await?;
    acknowledge(queue.as_ref(), &received).await
}

/// The server is restarted while messages are published and received: nothing is lost.
pub async fn survives_a_restart(broker: &dyn Broker) -> CaseResult {
    let a = broker.worker("a", LEASE).await.map_err(say)?;
    let b = broker.worker("b", LEASE).await.map_err(say)?;
    let publisher = tokio::spawn(async move {
        for batch in 0..40 {
            let messages = numbered(batch * 10..batch * 10 + 10);
            let end = Instant::now() + RESTART;
            while let Err(e) = a.publish(&messages).await {
                if !e.is_transient() || Instant::now() > end {
                    return Err(e.to_string());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    });
    let restart = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        broker.restart().await
    };
    let mut seen = BTreeSet::new();
    let consume = async {
        let end = Instant::now() + RESTART;
        while seen.len() < 400 {
            if Instant::now() > end {
                return Err(format!("only {} of 400 messages came", seen.len()));
            }
            match b.receive(16, Duration::from_millis(500)).await {
                Ok(some) => {
                    let receipts: Vec<_> = some.iter().map(|delivery| delivery.receipt.clone()).collect();
                    match b.acknowledge(&receipts).await {
                        Ok(()) => seen.extend(keys(&some)),
                        Err(e) if e.is_transient() => tokio::time::sleep(Duration::from_millis(100)).await,
                        Err(e) => return Err(say(e)),
                    }
                }
                Err(e) if e.is_transient() => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(e) => return Err(say(e)),
            }
        }
        Ok(())
    };
    let (restarted, consumed) = tokio::join!(restart, consume);
    restarted.map_err(say)?;
    if publisher.is_finished() {
        publisher.await.map_err(|e| e.to_string())??;
        return consumed;
    }
    consumed?;
    publisher.await.map_err(|e| e.to_string())?
}

/// Makes one test of each case: `conformance!(|| async { Ok(MyBroker::start().await?) });`. Each
/// test gets a broker of its own.
#[macro_export]
macro_rules! conformance {
    ($start:expr) => {
        $crate::conformance!(@each $start;
            carries_messages, receives_a_bounded_number, waits_for_messages, delays_messages, requeues,
            leases_hold_and_end, survives_a_crash, keeps_the_order_of_a_key, prefers_higher_priorities,
            is_unique_while_queued, dead_letters_with_a_reason, tells_its_depth, refuses_what_is_too_large,
            survives_a_restart, promises_what_is_documented);
    };
    (@each $start:expr; $($case:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() -> Result<(), String> {
                let broker = ($start)().await?;
                $crate::conformance::$case(&broker).await
            }
        )*
    };
}
