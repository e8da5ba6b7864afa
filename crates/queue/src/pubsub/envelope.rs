//! A message as Pub/Sub carries it: the body is its data, everything else is in attributes.
//!
//! An attribute has at most 1024 bytes. A longer value is split over `name`, `name/1`, `name/2`; no
//! header has a slash in its name.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_client::tidegate_core::Wall;
use tidegate_client::tidegate_core::hint::date;

use super::api::PulledMessage;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt};

/// The largest body: with its encoding it has to fit into a request of 10 MB.
pub(super) const BODY_MAX: usize = 7 << 20;
/// The largest request, without a margin for what is around the messages.
pub(super) const REQUEST_BYTES_MAX: usize = 9_900_000;
/// The limits of attributes.
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 1024;
const ATTRIBUTES_MAX: usize = 100;
const ORDERING_KEY_BYTES_MAX: usize = 1024;

const KEY: &str = "tidegate-key";
const NOT_BEFORE: &str = "tidegate-not-before";
const PRIORITY: &str = "tidegate-priority";

/// The message as it is sent, and its size.
pub(super) fn entry(message: &Message) -> Result<(Value, usize), QueueError> {
    if message.body.len() > BODY_MAX {
        return Err(QueueError::TooLarge { bytes: message.body.len(), max: BODY_MAX });
    }
    let mut attributes = serde_json::Map::new();
    let own = [
        Some((KEY, message.key.clone())),
        message.not_before.map(|at| (NOT_BEFORE, at.to_string())),
        (message.priority > 0).then(|| (PRIORITY, message.priority.to_string())),
    ];
    let headers = message.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let mut bytes = 0;
    for (name, value) in own.into_iter().flatten().chain(headers) {
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX - 4
            || name.contains('/')
            || name.starts_with("goog")
        {
            return Err(QueueError::Refused(format!(
                "Pub/Sub does not carry a header with the name {name:?}; use short lower-case names"
            )));
        }
        for (n, part) in split(&value).into_iter().enumerate() {
            bytes += name.len() + part.len() + 16;
            let name = if n == 0 { name.to_owned() } else { format!("{name}/{n}") };
            attributes.insert(name, part.into());
        }
    }
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(QueueError::Refused(format!(
            "the headers of the message need {} attributes, but Pub/Sub carries {ATTRIBUTES_MAX}",
            attributes.len()
        )));
    }
    let data = STANDARD.encode(&message.body);
    bytes += data.len() + 64;
    let mut entry = json!({ "data": data, "attributes": attributes });
    if let (Some(key), Some(entry)) = (&message.ordering_key, entry.as_object_mut()) {
        if key.len() > ORDERING_KEY_BYTES_MAX {
            return Err(QueueError::Refused(format!(
                "the ordering key has {} bytes, but Pub/Sub accepts {ORDERING_KEY_BYTES_MAX}",
                key.len()
            )));
        }
        bytes += key.len();
        entry.insert("orderingKey".into(), key.clone().into());
    }
    Ok((entry, bytes))
}

/// A value in parts that fit.
fn split(value: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = value;
    while rest.len() > VALUE_BYTES_MAX {
        let (part, behind) = rest.split_at(rest.floor_char_boundary(VALUE_BYTES_MAX));
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}

/// The whole values of attributes.
fn join(attributes: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let (parts, mut whole): (BTreeMap<_, _>, BTreeMap<_, _>) =
        attributes.into_iter().partition(|(name, _)| {
            name.rsplit_once('/').is_some_and(|(_, number)| number.parse::<usize>().is_ok())
        });
    let mut parts: Vec<(String, usize, String)> = parts
        .into_iter()
        .filter_map(|(name, value)| {
            let (name, number) = name.rsplit_once('/')?;
            Some((name.to_owned(), number.parse().ok()?, value))
        })
        .collect();
    parts.sort();
    for (name, _, value) in parts {
        whole.entry(name).or_default().push_str(&value);
    }
    whole
}

/// Reads a message. One of another program has no key; its identity is that of the broker.
pub(super) fn delivery(pulled: PulledMessage) -> Delivery {
    let carried = pulled.message;
    let mut headers = join(carried.attributes);
    let message = Message {
        key: headers.remove(KEY).unwrap_or(carried.message_id),
        not_before: headers.remove(NOT_BEFORE).and_then(|at| at.parse().ok()),
        priority: headers.remove(PRIORITY).and_then(|priority| priority.parse().ok()).unwrap_or(0),
        ordering_key: Some(carried.ordering_key).filter(|key| !key.is_empty()),
        body: STANDARD.decode(&carried.data).unwrap_or_default(),
        headers,
    };
    let published = date::parse(carried.publish_time.as_bytes(), Wall::from_millis(0)).map(Wall::millis);
    Delivery { message, receipt: Receipt(pulled.ack_id), deliveries: 1, published }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(message: &Message) -> Message {
        let (mut entry, _) = entry(message).unwrap();
        entry["messageId"] = "7".into();
        entry["publishTime"] = "2026-11-17T18:08:01.655Z".into();
        let found = delivery(serde_json::from_value(json!({ "ackId": "a", "message": entry })).unwrap());
        assert_eq!(found.published, Some(1_794_938_881_655));
        found.message
    }

    #[test]
    fn every_message_is_carried_as_it_is() {
        let headers = [("reason", "ü".repeat(1000)), ("empty", String::new())];
        let odd = Message {
            headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
            not_before: Some(5),
            priority: 9,
            ordering_key: Some("parcel 1".into()),
            ..Message::new("k".repeat(3000), vec![0, 159, 146, 150])
        };
        assert_eq!(carried(&odd), odd);
        assert_eq!(carried(&Message::new("", "")), Message::new("", ""));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let large = Message::new("k", vec![b'x'; BODY_MAX + 1]);
        let expected = QueueError::TooLarge { bytes: BODY_MAX + 1, max: BODY_MAX };
        assert_eq!(entry(&large).err(), Some(expected));
        for name in ["", "goog-x", "a/b"] {
            let headers = [(name.to_owned(), "v".to_owned())].into();
            assert!(entry(&Message { headers, ..Message::new("k", "") }).is_err(), "{name}");
        }
        let (_, bytes) = entry(&Message::new("k", vec![b'x'; BODY_MAX])).unwrap();
        assert!(bytes < REQUEST_BYTES_MAX);
    }
}
