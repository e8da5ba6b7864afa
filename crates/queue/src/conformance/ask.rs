//! What the cases have in common.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{CaseResult, SOON};
use crate::error::QueueError;
use crate::message::{Delivery, Message};
use crate::transport::Transport;

pub(super) fn say(error: QueueError) -> String {
    error.to_string()
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> CaseResult {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

pub(super) fn keys(messages: &[Delivery]) -> BTreeSet<String> {
    messages.iter().map(|delivery| delivery.message.key.clone()).collect()
}

pub(super) fn numbered(range: std::ops::Range<u32>) -> Vec<Message> {
    range.map(|n| Message::new(format!("task-{n}"), format!("{{\"n\":{n}}}"))).collect()
}

/// Receives until `count` messages have come.
pub(super) async fn collect(queue: &dyn Transport, count: usize) -> Result<Vec<Delivery>, String> {
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
pub(super) fn leave_partitions(queue: Arc<dyn Transport>) -> Option<Arc<dyn Transport>> {
    let promises = queue.promises();
    (!promises.ordering || promises.leases).then_some(queue)
}

pub(super) async fn nothing(queue: &dyn Transport, wait: Duration) -> CaseResult {
    let some = queue.receive(10, wait).await.map_err(say)?;
    same("messages", &keys(&some), &BTreeSet::new())
}

pub(super) async fn acknowledge(queue: &dyn Transport, deliveries: &[Delivery]) -> CaseResult {
    let receipts: Vec<_> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
    queue.acknowledge(&receipts).await.map_err(say)
}
