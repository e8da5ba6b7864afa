//! Messages as Kafka records: the ordering key is the record's key, because it chooses the partition.

use std::collections::BTreeMap;

use krafka::Record;
use krafka::consumer::ConsumerRecord;

use crate::message::{Message, now_ms};

const KEY: &str = "tidegate-key";
const NOT_BEFORE: &str = "tidegate-not-before";
const PRIORITY: &str = "tidegate-priority";
const PUBLISHED: &str = "tidegate-published";
const PREFIX: &str = "tidegate-";

/// A record for a message. `published` is the time of the first copy.
pub(super) fn record(topic: &str, message: &Message, published: Option<i64>) -> Record {
    let mut record = Record::new(topic, message.body.clone()).header(KEY, message.key.clone());
    record = record.header(PUBLISHED, published.unwrap_or_else(now_ms).to_string());
    if let Some(key) = &message.ordering_key {
        record = record.key(key.clone());
    }
    if let Some(at) = message.not_before {
        record = record.header(NOT_BEFORE, at.to_string());
    }
    if message.priority > 0 {
        record = record.header(PRIORITY, message.priority.to_string());
    }
    for (name, value) in message.headers.iter().filter(|(name, _)| !name.starts_with(PREFIX)) {
        record = record.header(name.clone(), value.clone());
    }
    record
}

/// The message of a record, also of one that another program wrote, and when it was published.
pub(super) fn message(record: &ConsumerRecord) -> (Message, Option<i64>) {
    let number = |name: &str| record.header_str(name).and_then(|text| text.parse::<i64>().ok());
    let ordering_key = record.key_str().map(str::to_owned);
    let key = record.header_str(KEY).map(str::to_owned).or_else(|| ordering_key.clone());
    let mut headers = BTreeMap::new();
    for (name, value) in &record.headers {
        if let (false, Some(value)) = (name.starts_with(PREFIX), value) {
            headers.insert(name.clone(), String::from_utf8_lossy(value).into_owned());
        }
    }
    let message = Message {
        key: key.unwrap_or_default(),
        body: record.value.as_ref().map(|value| value.to_vec()).unwrap_or_default(),
        not_before: number(NOT_BEFORE),
        priority: number(PRIORITY).and_then(|n| u8::try_from(n).ok()).unwrap_or(0),
        ordering_key,
        headers,
    };
    let published = number(PUBLISHED).or((record.timestamp > 0).then_some(record.timestamp));
    (message, published)
}
