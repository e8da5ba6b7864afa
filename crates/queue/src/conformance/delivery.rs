//! Cases of delivery: messages, delays, leases, crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::ask::*;
use super::*;
use crate::message::{Message, now_ms};

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
