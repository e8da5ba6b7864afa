//! The waiting queues: where messages wait for their time.
//!
//! A queue with messages of different waiting times blocks behind its first one. So each waiting
//! queue has one time, and hands its messages to the main queue when it is over (dead-lettering,
//! at least once: quorum, and no message is dropped from a full queue). A message that comes too
//! early waits once more, in a queue with a shorter time; so it is late by the shortest time at most.

use amqprs::channel::QueueDeclareArguments;
use amqprs::{FieldTable, FieldValue, ShortStr};

/// The waiting times in milliseconds.
pub(super) const WAITS: [i64; 6] = [250, 1_000, 5_000, 30_000, 300_000, 3_600_000];
/// The longest name of a waiting queue is this much longer than that of its queue.
pub(super) const SUFFIX: usize = ".wait.3600000".len();

/// The time to wait for a message that has to wait that long: the longest that is not too long.
pub(super) fn wait_for(left_ms: i64) -> i64 {
    WAITS.iter().copied().rev().find(|wait| *wait <= left_ms).unwrap_or(WAITS[0])
}

/// The name of the waiting queue of a queue.
pub(super) fn waiting_queue(queue: &str, wait: i64) -> String {
    format!("{queue}.wait.{wait}")
}

fn table(entries: Vec<(&str, FieldValue)>) -> FieldTable {
    let mut table = FieldTable::new();
    for (name, value) in entries {
        if let Ok(name) = ShortStr::try_from(name) {
            table.insert(name, value);
        }
    }
    table
}

/// How a waiting queue is declared.
pub(super) fn declare_waiting(queue: &str, wait: i64) -> QueueDeclareArguments {
    let arguments = table(vec![
        ("x-queue-type", "quorum".into()),
        ("x-message-ttl", FieldValue::l(wait)),
        ("x-dead-letter-exchange", "".into()),
        ("x-dead-letter-routing-key", queue.into()),
        ("x-dead-letter-strategy", "at-least-once".into()),
        ("x-overflow", "reject-publish".into()),
    ]);
    QueueDeclareArguments::durable_client_named(&waiting_queue(queue, wait)).arguments(arguments).finish()
}

/// How a queue is declared. With a delivery limit that is never reached, because RabbitMQ 4 drops
/// messages after 20 deliveries by default.
pub(super) fn declare_quorum(queue: &str, has_limit: bool) -> QueueDeclareArguments {
    let mut entries = vec![("x-queue-type", FieldValue::from("quorum"))];
    if has_limit {
        entries.push(("x-delivery-limit", FieldValue::l(1_000_000)));
    }
    QueueDeclareArguments::durable_client_named(queue).arguments(table(entries)).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_never_waits_too_long_by_more_than_the_shortest_time() {
        for left in [1, 250, 999, 1_000, 4_321, 29_999, 3_599_000, 86_400_000] {
            let (mut at, mut hops) = (0, 0);
            while at < left {
                at += wait_for(left - at);
                hops += 1;
            }
            assert!(at < left + WAITS[0] && hops < 60, "{left}: {at} after {hops}");
        }
        assert_eq!(waiting_queue("q", WAITS[5]).len(), 1 + SUFFIX);
    }
}
