//! Messages as AMQP properties and headers.
//!
//! The key is a header and not only the property `message_id`, because a property holds 255 bytes.

use std::collections::BTreeMap;

use amqprs::{BasicProperties, DELIVERY_MODE_PERSISTENT, FieldTable, FieldValue, ShortStr};

use crate::error::QueueError;
use crate::message::{Message, now_ms};

const KEY: &str = "x-tidegate-key";
const NOT_BEFORE: &str = "x-tidegate-not-before";
const PRIORITY: &str = "x-tidegate-priority";
const ORDERING_KEY: &str = "x-tidegate-ordering-key";
const PUBLISHED: &str = "x-tidegate-published";
/// Deliveries of earlier copies of the message: the server counts those of one copy.
const DELIVERIES: &str = "x-tidegate-deliveries";
/// What the server writes into quorum queues.
const COUNT: &str = "x-delivery-count";
/// Headers that are not the message's own.
const NOT_OURS: [&str; 5] = ["x-tidegate-", "x-delivery-count", "x-death", "x-first-death", "x-last-death"];

/// The longest name in AMQP, in bytes.
pub(super) const SHORT: usize = 255;

/// What is to be published: where, with what.
pub(super) struct AmqpOutgoing {
    pub(super) queue: String,
    pub(super) properties: BasicProperties,
    pub(super) body: Vec<u8>,
}

/// What was found in a message that came.
pub(super) struct AmqpIncoming {
    pub(super) message: Message,
    pub(super) deliveries: u32,
    pub(super) published: Option<i64>,
}

fn put(table: &mut FieldTable, name: &str, value: FieldValue) -> Result<(), QueueError> {
    let name = ShortStr::try_from(name)
        .map_err(|_| QueueError::Refused(format!("a header has a name of more than {SHORT} bytes")))?;
    table.insert(name, value);
    Ok(())
}

fn text(value: &str) -> Result<FieldValue, QueueError> {
    let long = value.try_into().map_err(|_| QueueError::Refused("a header is longer than 4 GiB".into()))?;
    Ok(FieldValue::S(long))
}

/// A message for a queue. `earlier` are the deliveries of earlier copies.
pub(super) fn outgoing(
    queue: String,
    message: &Message,
    earlier: u32,
    published: Option<i64>,
) -> Result<AmqpOutgoing, QueueError> {
    let mut table = FieldTable::new();
    for (name, value) in &message.headers {
        if !NOT_OURS.iter().any(|prefix| name.starts_with(prefix)) {
            put(&mut table, name, text(value)?)?;
        }
    }
    put(&mut table, KEY, text(&message.key)?)?;
    put(&mut table, PUBLISHED, FieldValue::l(published.unwrap_or_else(now_ms)))?;
    if let Some(at) = message.not_before {
        put(&mut table, NOT_BEFORE, FieldValue::l(at))?;
    }
    if message.priority > 0 {
        put(&mut table, PRIORITY, FieldValue::l(message.priority.into()))?;
    }
    if let Some(key) = &message.ordering_key {
        put(&mut table, ORDERING_KEY, text(key)?)?;
    }
    if earlier > 0 {
        put(&mut table, DELIVERIES, FieldValue::l(earlier.into()))?;
    }
    let mut properties = BasicProperties::default();
    properties
        .with_content_type("application/json")
        .with_delivery_mode(DELIVERY_MODE_PERSISTENT)
        .with_headers(table);
    if message.key.len() <= SHORT {
        properties.with_message_id(&message.key);
    }
    Ok(AmqpOutgoing { queue, properties, body: message.body.clone() })
}

fn number(value: &FieldValue) -> Option<i64> {
    match value {
        FieldValue::b(n) => Some((*n).into()),
        FieldValue::B(n) => Some((*n).into()),
        FieldValue::s(n) => Some((*n).into()),
        FieldValue::u(n) => Some((*n).into()),
        FieldValue::I(n) => Some((*n).into()),
        FieldValue::i(n) => Some((*n).into()),
        FieldValue::l(n) => Some(*n),
        _ => None,
    }
}

/// Reads a message, also one of another program that knows nothing of these headers.
pub(super) fn incoming(properties: &BasicProperties, body: Vec<u8>) -> AmqpIncoming {
    let mut message = Message { body, ..Message::default() };
    message.key = properties.message_id().cloned().unwrap_or_default();
    let (mut earlier, mut counted, mut published) = (0_i64, 0_i64, None);
    let mut headers = BTreeMap::new();
    if let Some(table) = properties.headers() {
        for (name, value) in table.as_ref() {
            let name = name.as_ref().as_str();
            match (name, value) {
                (KEY, FieldValue::S(key)) => message.key = key.to_string(),
                (ORDERING_KEY, FieldValue::S(key)) => message.ordering_key = Some(key.to_string()),
                (NOT_BEFORE, at) => message.not_before = number(at),
                (PUBLISHED, at) => published = number(at),
                (PRIORITY, n) => {
                    message.priority = number(n).and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
                }
                (DELIVERIES, n) => earlier = number(n).unwrap_or(0),
                (COUNT, n) => counted = number(n).unwrap_or(0),
                (_, FieldValue::S(value)) if !NOT_OURS.iter().any(|prefix| name.starts_with(prefix)) => {
                    headers.insert(name.to_owned(), value.to_string());
                }
                _ => {}
            }
        }
    }
    message.headers = headers;
    let deliveries = earlier.saturating_add(counted).saturating_add(1).clamp(1, i64::from(u32::MAX));
    AmqpIncoming { message, deliveries: u32::try_from(deliveries).unwrap_or(1), published }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_headers() {
        let message = Message {
            not_before: Some(7),
            priority: 3,
            ordering_key: Some("parcel ü".into()),
            headers: BTreeMap::from([("reason".to_owned(), "京".to_owned())]),
            ..Message::new("k".repeat(300), "{}")
        };
        let out = outgoing("q".into(), &message, 4, Some(5)).unwrap();
        let found = incoming(&out.properties, out.body);
        assert_eq!((found.message, found.deliveries, found.published), (message, 5, Some(5)));
        let mut long = Message::new("a", "{}");
        long.headers.insert("n".repeat(256), String::new());
        assert!(outgoing("q".into(), &long, 0, None).is_err());
    }
}
