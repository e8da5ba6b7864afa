//! Cases of what only some transports promise, and of the server as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::ask::*;
use super::*;
use crate::message::Message;
use crate::transport::QueueDepth;

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
                    // Not only once it is acknowledged: the server may have noted that and ended before its reply,
                    // and then they do not come again.
                    seen.extend(keys(&some));
                    let receipts: Vec<_> = some.iter().map(|delivery| delivery.receipt.clone()).collect();
                    match b.acknowledge(&receipts).await {
                        Ok(()) => {}
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
