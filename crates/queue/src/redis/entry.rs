//! Messages as entries of a stream.
//!
//! The fields of an entry are `key` and `body` and, if they say something, `headers` (JSON),
//! `not_before`, `priority`, `ordering_key`, `published` and `deliveries` (before this entry). Another
//! program that adds entries needs `key` and `body` only.

use redis::Value;

use crate::message::{Delivery, Message, Receipt};

/// The names and values of the fields of a message.
pub(super) fn fields(message: &Message, now: i64) -> Vec<Vec<u8>> {
    let mut fields: Vec<Vec<u8>> = Vec::with_capacity(6);
    let mut add = |name: &str, value: Vec<u8>| fields.extend([name.into(), value]);
    add("key", message.key.clone().into());
    add("body", message.body.clone());
    if !message.headers.is_empty() {
        add("headers", serde_json::to_vec(&message.headers).unwrap_or_default());
    }
    if let Some(at) = message.not_before {
        add("not_before", at.to_string().into());
        // The id of the entry says when it became due.
        add("published", now.to_string().into());
    }
    if message.priority > 0 {
        add("priority", message.priority.to_string().into());
    }
    if let Some(key) = &message.ordering_key {
        add("ordering_key", key.clone().into());
    }
    fields
}

/// A message from the server, with what only this transport knows about it.
pub(super) struct StreamEntry {
    pub(super) id: String,
    pub(super) message: Message,
    pub(super) published: Option<i64>,
    /// Deliveries of earlier entries of the same message.
    before: u32,
}

impl StreamEntry {
    /// Reads `{id, fields}`. Anything unexpected becomes an empty field, so that a foreign entry
    /// becomes a dead letter and not an endless redelivery.
    pub(super) fn read(id: &Value, fields: Value) -> Option<StreamEntry> {
        let id = text(id)?;
        let mut entry = StreamEntry {
            message: Message::default(),
            published: id.split('-').next().and_then(|ms| ms.parse().ok()),
            before: 0,
            id,
        };
        let Value::Array(values) = fields else { return Some(entry) };
        let mut values = values.into_iter();
        while let (Some(name), Some(value)) = (values.next(), values.next()) {
            let message = &mut entry.message;
            match text(&name).as_deref() {
                Some("key") => message.key = text(&value).unwrap_or_default(),
                Some("body") => message.body = bytes(value),
                Some("headers") => {
                    message.headers = serde_json::from_slice(&bytes(value)).unwrap_or_default();
                }
                Some("not_before") => message.not_before = number(&value),
                Some("priority") => message.priority = number(&value).unwrap_or_default(),
                Some("ordering_key") => message.ordering_key = text(&value),
                Some("published") => entry.published = number(&value).or(entry.published),
                Some("deliveries") => entry.before = number(&value).unwrap_or_default(),
                _ => {}
            }
        }
        Some(entry)
    }

    /// The delivery, when the server has delivered this entry `count` times.
    pub(super) fn delivery(self, count: u32) -> Delivery {
        let receipt = Receipt(format!("{}:{count}:{}", self.id, self.message.key));
        let deliveries = self.before.saturating_add(count).max(1);
        Delivery { message: self.message, receipt, deliveries, published: self.published }
    }
}

/// The deliveries in the answer of `take.lua`, and the time until the next waiting message.
pub(super) fn taken(answer: Value) -> (Vec<Delivery>, Option<u64>) {
    let Some([entries, next]) = items(answer) else { return (Vec::new(), None) };
    let Value::Array(entries) = entries else { return (Vec::new(), None) };
    let read = |entry| {
        let [id, count, fields] = items(entry)?;
        Some(StreamEntry::read(&id, fields)?.delivery(number(&count)?))
    };
    (entries.into_iter().filter_map(read).collect(), number(&next))
}

/// The deliveries in the answer of `XREADGROUP` for one stream. They are the first of their entries.
pub(super) fn read(answer: Value) -> Vec<Delivery> {
    let stream = match answer {
        Value::Array(streams) => streams.into_iter().next(),
        _ => None,
    };
    let Some([_, entries]) = stream.and_then(items) else { return Vec::new() };
    self::entries(entries).map(|entry| entry.delivery(1)).collect()
}

/// A list of `{id, fields}`.
pub(super) fn entries(list: Value) -> impl Iterator<Item = StreamEntry> {
    let list = if let Value::Array(list) = list { list } else { Vec::new() };
    list.into_iter().filter_map(|entry| {
        let [id, fields] = items(entry)?;
        StreamEntry::read(&id, fields)
    })
}

/// The id, the number of deliveries and the key of a receipt.
pub(super) fn parts(receipt: &Receipt) -> Option<(&str, &str, &str)> {
    let (id, rest) = receipt.0.split_once(':')?;
    let (count, key) = rest.split_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (ms, sequence) = id.split_once('-')?;
    (is_number(ms) && is_number(sequence) && is_number(count)).then_some((id, count, key))
}

fn items<const N: usize>(value: Value) -> Option<[Value; N]> {
    if let Value::Array(values) = value { values.try_into().ok() } else { None }
}

fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) => text.into(),
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

fn number<T: TryFrom<i64> + std::str::FromStr>(value: &Value) -> Option<T> {
    match value {
        Value::Int(number) => T::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_stream() {
        let headers = std::collections::BTreeMap::from([("reason".to_owned(), "a\nb".to_owned())]);
        let message = Message {
            headers,
            not_before: Some(1_700_000_000_500),
            priority: 3,
            ordering_key: Some("north".into()),
            ..Message::new("12/3: ü", "{}")
        };
        let values = fields(&message, 1_700_000_000_000).into_iter().map(Value::BulkString).collect();
        let entry =
            StreamEntry::read(&Value::BulkString(b"1700000000600-0".to_vec()), Value::Array(values)).unwrap();
        assert_eq!(entry.message, message);
        let delivery = entry.delivery(2);
        assert_eq!((delivery.deliveries, delivery.published), (2, Some(1_700_000_000_000)));
        assert_eq!(parts(&delivery.receipt), Some(("1700000000600-0", "2", "12/3: ü")));
    }

    #[test]
    fn foreign_answers_and_receipts_are_not_believed() {
        let id = Value::BulkString(b"5-1".to_vec());
        let odd = Value::Array(vec![Value::Int(1), Value::Nil, Value::SimpleString("body".into())]);
        let delivery = StreamEntry::read(&id, odd).unwrap().delivery(1);
        assert_eq!((delivery.message, delivery.published), (Message::default(), Some(5)));
        assert_eq!(taken(Value::Nil), (Vec::new(), None));
        assert_eq!(read(Value::Array(vec![Value::Nil])), Vec::new());
        for receipt in ["", "1-1", "1-1:2", "x-1:2:k", "1-1:-2:k", "*:1:k"] {
            assert_eq!(parts(&Receipt(receipt.into())), None, "{receipt}");
        }
    }
}
