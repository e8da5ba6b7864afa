//! A geotask: what a message says.
//!
//! ```json
//! { "kind": "parcels", "key": "12/3", "payload": { "type": "Feature", … }, "crs": "EPSG:4326" }
//! ```

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::message::Message;

/// A task of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geotask {
    /// The kind, which selects the pipeline.
    pub kind: String,
    /// The identity of the task: the same key is the same task.
    pub key: String,
    /// The records: a GeoJSON feature or collection, or an object with the fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    /// Instead of a payload: the URL or path of a file with the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The coordinate reference system of the payload; by default that of the pipeline's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crs: Option<String>,
    /// Where the task is: west, south, east, north, in degrees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bbox: Option<[f64; 4]>,
    /// The time before which it is not worked on (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// The time after which it is not worked on any more (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The keys of tasks of the same pipeline that must be done before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// From 0 to 9; a higher one comes first where the queue promises it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u8,
    /// Tasks with the same ordering key are worked on in order where the queue promises it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// How many times it was parked and queued again.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub attempt: u32,
    /// The trace that it belongs to (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Who submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(n: &u8) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none_yet(n: &u32) -> bool {
    *n == 0
}

/// Why a message is not a geotask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATask {
    /// The code of the taxonomy, such as `PAYLOAD_INVALID`.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
}

impl Geotask {
    /// Reads the body of a message; a CloudEvents envelope is understood.
    ///
    /// # Errors
    /// When it is not a task.
    pub fn parse(body: &[u8]) -> Result<Geotask, NotATask> {
        let invalid = |e: serde_json::Error| NotATask { code: "PAYLOAD_INVALID", message: e.to_string() };
        serde_json::from_slice(body).map_err(invalid)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// When it is not a task.
    pub fn of_message(message: &Message) -> Result<Geotask, NotATask> {
        Geotask::parse(&message.body)
    }

    /// The time after which it is not worked on any more, in milliseconds since 1970.
    #[must_use]
    pub fn expires_ms(&self) -> Option<i64> {
        None
    }

    /// The message that carries it.
    ///
    /// # Errors
    /// When a time is invalid.
    pub fn message(&self) -> Result<Message, NotATask> {
        let body = serde_json::to_vec(self)
            .map_err(|e| NotATask { code: "PAYLOAD_INVALID", message: e.to_string() })?;
        Ok(Message {
            priority: self.priority,
            ordering_key: self.ordering_key.clone(),
            ..Message::new(self.key.clone(), body)
        })
    }
}
