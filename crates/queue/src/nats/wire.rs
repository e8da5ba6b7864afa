//! Messages as JetStream carries them: the body is the payload, everything else one header in JSON.
//!
//! Why one header: names and values of headers may not contain everything that ours do.

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::message::{Delivery, Message, Receipt};

/// The name of the header.
pub(super) const HEADER: &str = "Tidegate-Message";

/// What the header says.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Label {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_before: Option<i64>,
    priority: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// When the message was published first, if this is a copy of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<i64>,
    /// Deliveries of earlier copies.
    deliveries: u32,
}

impl Label {
    /// The label of a new message.
    pub(super) fn new(message: &Message) -> Label {
        Label {
            key: message.key.clone(),
            not_before: message.not_before,
            priority: message.priority,
            ordering_key: message.ordering_key.clone(),
            headers: message.headers.clone(),
            published: None,
            deliveries: 0,
        }
    }

    /// The label of a copy that is delivered after `due`. The delivery does not count: nobody
    /// worked on it.
    pub(super) fn copy_of(delivery: &Delivery, due: Option<i64>) -> Label {
        Label {
            not_before: due,
            published: delivery.published,
            deliveries: delivery.deliveries.saturating_sub(1),
            ..Label::new(&delivery.message)
        }
    }

    /// Reads the header. A message of another program has none; it has no key then.
    pub(super) fn read(headers: Option<&HeaderMap>) -> Label {
        let text = headers.and_then(|headers| headers.get(HEADER));
        text.and_then(|text| serde_json::from_str(text.as_str()).ok()).unwrap_or_default()
    }

    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        // JSON has no raw line breaks, which is all that a header refuses.
        if let Ok(value) = serde_json::to_string(self).unwrap_or_default().parse::<async_nats::HeaderValue>()
        {
            headers.insert(HEADER, value);
        }
        headers
    }

    pub(super) fn message(self, body: &[u8]) -> Message {
        Message {
            key: self.key,
            body: body.to_vec(),
            not_before: self.not_before,
            priority: self.priority,
            ordering_key: self.ordering_key,
            headers: self.headers,
        }
    }

    /// The delivery of a message that the server stored at `stored` and delivered `count` times.
    pub(super) fn delivery(self, body: &[u8], receipt: &str, count: i64, stored: i64) -> Delivery {
        // The first delivery of a message with a time was given back unseen.
        let unseen = u32::from(self.not_before.is_some_and(|at| at > stored));
        let count = u32::try_from(count).unwrap_or(1).saturating_sub(unseen).max(1);
        let deliveries = self.deliveries.saturating_add(count);
        let published = self.published.unwrap_or(stored);
        Delivery {
            message: self.message(body),
            receipt: Receipt(receipt.to_owned()),
            deliveries,
            published: Some(published),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_header() {
        let headers = BTreeMap::from([("reason".to_owned(), "Zoë\r\nb".to_owned())]);
        let message = Message {
            headers,
            not_before: Some(5000),
            priority: 3,
            ordering_key: Some("north".into()),
            ..Message::new("12/3: ü", "{}")
        };
        let first = Label::read(Some(&Label::new(&message).headers())).delivery(b"{}", "r", 2, 1000);
        assert_eq!((&first.message, first.deliveries, first.published), (&message, 1, Some(1000)));
        let second = Label::read(Some(&Label::new(&message).headers())).delivery(b"{}", "r", 3, 1000);
        assert_eq!(second.deliveries, 2);
        let copy = Label::read(Some(&Label::copy_of(&second, None).headers())).delivery(b"{}", "r", 1, 9000);
        assert_eq!((copy.deliveries, copy.published, copy.message.not_before), (2, Some(1000), None));
    }

    #[test]
    fn foreign_messages_have_no_key() {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, "{broken");
        for headers in [None, Some(&headers)] {
            let delivery = Label::read(headers).delivery(b"x", "r", -1, 7);
            assert_eq!((delivery.message, delivery.deliveries), (Message::new("", "x"), 1));
        }
    }
}
