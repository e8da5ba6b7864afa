//! Messages on their way, and deliveries of them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The identity of the task. Two messages with the same key are the same task.
    pub key: String,
    /// The task, as JSON.
    pub body: Vec<u8>,
    /// The time before which it is not delivered, in milliseconds since 1970.
    pub not_before: Option<i64>,
    /// From 0 to 9; a higher one is delivered first, if the transport promises it.
    pub priority: u8,
    /// Messages with the same ordering key are delivered one after the other, if the transport
    /// promises it.
    pub ordering_key: Option<String>,
    /// Further attributes, such as the reason of a dead letter. Names in lower case with hyphens.
    pub headers: BTreeMap<String, String>,
}

impl Message {
    /// A message with a key and a body.
    #[must_use]
    pub fn new(key: impl Into<String>, body: impl Into<Vec<u8>>) -> Message {
        Message { key: key.into(), body: body.into(), ..Message::default() }
    }
}

/// The handle of a delivery, in the transport's own format. It belongs to one delivery: the next
/// delivery of the same message has another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// A message that was delivered. Until the end of its lease nobody else receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The handle by which it is extended, acknowledged or returned.
    pub receipt: Receipt,
    /// How many times the message was delivered, including this time, as far as the transport
    /// counts; at least 1.
    pub deliveries: u32,
    /// When it was published, in milliseconds since 1970, if the transport knows.
    pub published: Option<i64>,
}

impl Delivery {
    /// The message for a dead queue, with the reason in its headers.
    #[must_use]
    pub fn dead_message(&self, code: &str, reason: &str) -> Message {
        let mut message = self.message.clone();
        message.not_before = None;
        message.headers.insert("reason-code".into(), code.into());
        message.headers.insert("reason".into(), reason.chars().take(1000).collect());
        message.headers.insert("deliveries".into(), self.deliveries.to_string());
        message
    }
}

/// The current time in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
