//! A message as SQS carries it.
//!
//! SQS carries text and at most ten attributes. What it has no place for is in the attribute
//! `tidegate`, as JSON. Headers are attributes of their own as long as they fit, so that other
//! programs see them; otherwise they are in the JSON. A body that is not text is encoded. A message
//! of another program has no such attribute; its identity is that of the broker.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_client::tidegate_core::hex::hex;

use super::api::ReceivedMessage;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt};

/// The largest message with its attributes, in bytes. AWS accepts 1 MiB since August 2025, but a
/// queue, a region or an endpoint may still have the old limit, so the old one is kept.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// The largest body, so that there is room for the attributes.
pub(super) const BODY_MAX: usize = 240 << 10;
/// The attribute of our own.
const OWN: &str = "tidegate";
/// The most headers that are attributes.
const HEADERS_MAX: usize = 9;
/// The longest group of SQS.
const GROUP_CHARS_MAX: usize = 128;

/// What SQS has no place for.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct SqsEnvelope {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<String>,
    /// The deliveries of the message of which this is a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    base64: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

/// A message that is ready to be sent.
pub(super) struct SqsEntry {
    pub(super) body: String,
    pub(super) attributes: Value,
    /// Its size as SQS counts it.
    pub(super) bytes: usize,
}

/// Whether SQS accepts the text: that of XML 1.0.
fn is_text(text: &str) -> bool {
    let is_char =
        |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
    text.chars().all(is_char)
}

fn is_attribute((name, value): (&String, &String)) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let reserved = ["aws.", "amazon.", OWN].iter().any(|start| name.to_ascii_lowercase().starts_with(start));
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    !name.is_empty()
        && name.len() <= 256
        && name.bytes().all(plain)
        && !reserved
        && !dots
        && !value.is_empty()
        && is_text(value)
}

/// The message as it is sent; `deliveries` are those of the message of which it is a copy.
pub(super) fn entry(message: &Message, deliveries: u32) -> Result<SqsEntry, QueueError> {
    let too_large = |bytes, max| Err(QueueError::TooLarge { bytes, max });
    if message.body.len() > BODY_MAX {
        return too_large(message.body.len(), BODY_MAX);
    }
    // An empty body is refused by SQS.
    let text = std::str::from_utf8(&message.body).ok().filter(|text| !text.is_empty() && is_text(text));
    let fits = message.headers.len() <= HEADERS_MAX && message.headers.iter().all(is_attribute);
    let own = SqsEnvelope {
        key: message.key.clone(),
        not_before: message.not_before,
        priority: (message.priority > 0).then_some(message.priority),
        ordering_key: message.ordering_key.clone(),
        deliveries: (deliveries > 0).then_some(deliveries),
        base64: text.is_none(),
        headers: if fits { BTreeMap::new() } else { message.headers.clone() },
    };
    let own = serde_json::to_string(&own).map_err(|e| QueueError::Refused(e.to_string()))?;
    let own = own.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff");
    let body = match text {
        Some(text) => text.to_owned(),
        // One character more than none.
        None if message.body.is_empty() => "=".to_owned(),
        None => STANDARD.encode(&message.body),
    };
    let mut bytes = body.len();
    let mut attributes = serde_json::Map::new();
    let headers = message.headers.iter().filter(|_| fits).map(|(name, value)| (name.as_str(), value));
    for (name, value) in std::iter::once((OWN, &own)).chain(headers) {
        bytes += name.len() + value.len() + "String".len();
        attributes.insert(name.to_owned(), json!({ "DataType": "String", "StringValue": value }));
    }
    if bytes > MESSAGE_BYTES_MAX {
        return too_large(bytes, MESSAGE_BYTES_MAX);
    }
    Ok(SqsEntry { body, attributes: Value::Object(attributes), bytes })
}

/// The group of a message in a FIFO queue: its ordering key, or its key. What SQS does not accept as
/// the name of a group is hashed.
pub(super) fn group(message: &Message) -> String {
    use sha2::Digest as _;
    let name = message.ordering_key.as_ref().unwrap_or(&message.key);
    let plain =
        !name.is_empty() && name.len() <= GROUP_CHARS_MAX && name.bytes().all(|b| b.is_ascii_graphic());
    if plain { name.clone() } else { hex(&sha2::Sha256::digest(name.as_bytes())) }
}

/// A message that was received.
pub(super) struct SqsDelivery {
    pub(super) delivery: Delivery,
    pub(super) handle: SqsHandle,
}

/// The receipt handle, and when the message was received for the first time: SQS lets a message be
/// held for 12 hours from then.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SqsHandle {
    pub(super) first_received: i64,
    pub(super) handle: String,
}

impl SqsHandle {
    fn receipt(&self) -> Receipt {
        Receipt(format!("{}:{}", self.first_received, self.handle))
    }

    pub(super) fn of(receipt: &Receipt) -> Option<SqsHandle> {
        let (first, handle) = receipt.0.split_once(':')?;
        Some(SqsHandle { first_received: first.parse().ok()?, handle: handle.to_owned() })
    }
}

/// Reads a message. `delay_max` is the longest delay of the server: a message with a longer one was
/// received and parked by us at least once, which does not count.
pub(super) fn delivery(received: ReceivedMessage, delay_max_ms: i64, now: i64) -> SqsDelivery {
    let mut values: BTreeMap<String, String> = received.texts().collect();
    let own: Option<SqsEnvelope> = values.remove(OWN).and_then(|own| serde_json::from_str(&own).ok());
    let system = |name: &str| received.attributes.get(name).and_then(|value| value.parse::<i64>().ok());
    let count = u32::try_from(system("ApproximateReceiveCount").unwrap_or(1)).unwrap_or(1);
    let published = system("SentTimestamp");
    let handle = SqsHandle {
        first_received: system("ApproximateFirstReceiveTimestamp").unwrap_or(now),
        handle: received.receipt_handle,
    };
    let mut message = Message {
        key: received.message_id,
        headers: values,
        body: received.body.into(),
        ..Message::default()
    };
    let mut before = 0;
    if let Some(own) = own {
        let was_parked = published.zip(own.not_before).is_some_and(|(sent, at)| at - sent > delay_max_ms);
        before = i64::from(own.deliveries.unwrap_or(0)) - i64::from(was_parked);
        message.key = own.key;
        message.not_before = own.not_before;
        message.priority = own.priority.unwrap_or(0);
        message.ordering_key = own.ordering_key;
        message.headers.extend(own.headers);
        if own.base64 {
            message.body = STANDARD.decode(&message.body).unwrap_or_default();
        }
    }
    let deliveries = u32::try_from(i64::from(count).saturating_add(before)).unwrap_or(0).max(1);
    let receipt = handle.receipt();
    SqsDelivery { delivery: Delivery { message, receipt, deliveries, published }, handle }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(message: &Message) -> Message {
        let sent = entry(message, 0).unwrap();
        let received: ReceivedMessage = serde_json::from_value(json!({
            "MessageId": "id", "ReceiptHandle": "h", "Body": sent.body,
            "MessageAttributes": sent.attributes, "Attributes": { "ApproximateReceiveCount": "1" },
        }))
        .unwrap();
        delivery(received, 900_000, 0).delivery.message
    }

    #[test]
    fn every_message_is_carried_as_it_is() {
        let headers = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let plain = Message { headers: headers(&[("submitted-by", "Zoë")]), ..Message::new("a/ü", "{}") };
        assert_eq!(carried(&plain), plain);
        assert_eq!(entry(&plain, 0).unwrap().attributes["submitted-by"]["StringValue"], "Zoë");
        let odd = Message {
            headers: headers(&[("empty", ""), ("aws.x", "1"), ("tidegate", "\u{1}\u{ffff}")]),
            not_before: Some(5),
            priority: 9,
            ordering_key: Some("\u{fffe}".into()),
            ..Message::new("\u{ffff}", vec![0, 159, 146, 150])
        };
        assert_eq!(carried(&odd), odd);
        let empty = Message::new("k", "");
        assert_eq!(carried(&empty), empty);
        let many = (0..12).map(|n| (format!("h{n}"), "v".to_owned())).collect();
        let many = Message { headers: many, ..Message::new("k", "{}") };
        assert_eq!(carried(&many), many);
    }

    #[test]
    fn what_is_too_large_is_told_with_its_size() {
        let large = Message::new("k", vec![b'x'; BODY_MAX + 1]);
        let found = entry(&large, 0).err();
        assert_eq!(found, Some(QueueError::TooLarge { bytes: BODY_MAX + 1, max: BODY_MAX }));
        // Encoded, it has a third more.
        assert!(matches!(
            entry(&Message::new("k", vec![255; BODY_MAX]), 0),
            Err(QueueError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_park_is_not_a_delivery_and_a_copy_goes_on_counting() {
        let count = |not_before: Option<i64>, deliveries: u32, count: u32| {
            let sent = entry(&Message { not_before, ..Message::new("k", "{}") }, deliveries).unwrap();
            let received = serde_json::from_value(json!({
                "MessageId": "id", "ReceiptHandle": "h", "Body": sent.body, "MessageAttributes": sent.attributes,
                "Attributes": { "ApproximateReceiveCount": count.to_string(), "SentTimestamp": "1000" },
            }));
            delivery(received.unwrap(), 900_000, 0).delivery.deliveries
        };
        assert_eq!((count(None, 0, 1), count(None, 0, 3), count(None, 2, 1)), (1, 3, 3));
        assert_eq!(
            (count(Some(5_000), 0, 2), count(Some(901_001), 0, 2), count(Some(901_001), 1, 2)),
            (2, 1, 2)
        );
    }

    #[test]
    fn a_group_is_the_ordering_key_or_the_key_in_plain_letters() {
        let with = |key: &str, ordering: Option<&str>| {
            group(&Message { ordering_key: ordering.map(str::to_owned), ..Message::new(key, "") })
        };
        assert_eq!(with("a/1", None), "a/1");
        assert_eq!(with("a/1", Some("b")), "b");
        assert_eq!(with("a b", None).len(), 64);
        assert_ne!(with("a b", None), with("a ü", None));
    }
}
