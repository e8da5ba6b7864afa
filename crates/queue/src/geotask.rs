//! A geotask: what a message says.
//!
//! ```json
//! { "kind": "parcels", "key": "12/3", "payload": { "type": "Feature", … }, "crs": "EPSG:4326" }
//! ```
//!
//! Reading is strict, because a mistyped key that is ignored turns an option into its default and
//! nobody notices. Whatever the bytes are, the answer is a task or a sentence that says what is
//! wrong and where: a message of another program must not end a worker.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::Code;
use tidegate_core::time::calendar::parse_rfc3339;

use crate::cloud_event;
use crate::message::Message;

/// The longest kind, key, ordering key, name of a submitter, CRS or trace, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// The longest URL or path of an object, in bytes.
pub const OBJECT_BYTES_MAX: usize = 4096;
/// The most tasks that one task can wait for.
pub const AFTER_MAX: usize = 1000;
/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;

/// The JSON Schema of a geotask.
pub const GEOTASK_SCHEMA: &str = include_str!("geotask.schema.json");

/// A task of a queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// A counter for the program that publishes; Tidegate does not use it.
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

/// Equal if the texts are: a payload is compared by its bytes.
impl PartialEq for Geotask {
    fn eq(&self, other: &Geotask) -> bool {
        let text = |task: &Geotask| serde_json::to_string(task).ok();
        text(self) == text(other)
    }
}

/// Why a message is not a geotask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATask {
    /// The code of the taxonomy, such as `TASK_INVALID` or `PAYLOAD_TOO_LARGE`.
    pub code: Code,
    /// What is wrong, and where.
    pub message: String,
}

impl NotATask {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> NotATask {
        NotATask { code, message: message.into() }
    }
}

impl std::fmt::Display for NotATask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NotATask {}

/// The error of the parser, with line and column.
pub(crate) fn not_json(error: &serde_json::Error) -> NotATask {
    let lead = if error.is_data() { "" } else { "the message is not JSON: " };
    NotATask::new(Code::TASK_INVALID, format!("{lead}{error}"))
}

impl Geotask {
    /// Reads a message: its body is a task or a CloudEvents envelope, or its headers are those of a
    /// CloudEvent and its body is the data.
    ///
    /// # Errors
    /// When it is not a task, or its body has more than `bytes_max` bytes.
    pub fn read(message: &Message, bytes_max: u64) -> Result<Geotask, NotATask> {
        let bytes = message.body.len() as u64;
        if bytes > bytes_max {
            let what = format!(
                "the message has {bytes} bytes, but `tasks.bytes_max` is {bytes_max}; put the payload into an object store and refer to it with `object`"
            );
            return Err(NotATask::new(Code::PAYLOAD_TOO_LARGE, what));
        }
        match cloud_event::from_headers(&message.headers, &message.body) {
            Some(task) => task,
            None => Geotask::parse(&message.body),
        }
    }

    /// Reads the body of a message; a CloudEvents envelope is understood.
    ///
    /// # Errors
    /// When it is not a task.
    pub fn parse(body: &[u8]) -> Result<Geotask, NotATask> {
        // A list would be taken for the fields in their order.
        match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => {}
            Some(_) => {
                return Err(NotATask::new(
                    Code::TASK_INVALID,
                    "the message is not a JSON object; it must start with `{`",
                ));
            }
            None => return Err(NotATask::new(Code::TASK_INVALID, "the message is empty")),
        }
        match serde_json::from_slice::<Geotask>(body) {
            Ok(task) => task.check().map(|()| task),
            Err(error) if error.is_data() => match cloud_event::from_envelope(body) {
                Some(task) => task,
                None => Err(not_json(&error)),
            },
            Err(error) => Err(not_json(&error)),
        }
    }

    /// Checks everything that the types do not say.
    ///
    /// # Errors
    /// What is wrong, with the key.
    pub fn check(&self) -> Result<(), NotATask> {
        name("kind", &self.kind, NAME_BYTES_MAX)?;
        name("key", &self.key, NAME_BYTES_MAX)?;
        match (&self.payload, &self.object) {
            (Some(payload), None) if payload.get().starts_with('{') => {}
            (Some(_), None) => {
                return Err(mismatch(
                    "`payload` must be a GeoJSON feature or collection, or an object with the fields",
                ));
            }
            (None, Some(object)) => name("object", object, OBJECT_BYTES_MAX)?,
            (Some(_), Some(_)) => {
                return Err(mismatch("`payload` and `object` are both given; keep one of them"));
            }
            (None, None) => return Err(mismatch("neither `payload` nor `object` is given; add one of them")),
        }
        let texts = [
            ("crs", &self.crs),
            ("ordering_key", &self.ordering_key),
            ("traceparent", &self.traceparent),
            ("submitted_by", &self.submitted_by),
        ];
        for (key, text) in texts {
            text.as_ref().map_or(Ok(()), |text| name(key, text, NAME_BYTES_MAX))?;
        }
        self.bbox.map_or(Ok(()), bbox)?;
        let (not_before, expires) = (time("not_before", &self.not_before)?, time("expires", &self.expires)?);
        if let (Some(not_before), Some(expires)) = (not_before, expires)
            && expires <= not_before
        {
            return Err(mismatch(
                "`expires` is not after `not_before`, so the task could never be worked on",
            ));
        }
        if self.after.len() > AFTER_MAX {
            let what = format!("`after` has {} keys; at most {AFTER_MAX} are allowed", self.after.len());
            return Err(mismatch(what));
        }
        for key in &self.after {
            name("after", key, NAME_BYTES_MAX)?;
            if *key == self.key {
                return Err(mismatch("`after` contains the key of the task itself"));
            }
        }
        if self.priority > PRIORITY_MAX {
            return Err(mismatch(format!("`priority` is {}; expected 0 to {PRIORITY_MAX}", self.priority)));
        }
        Ok(())
    }

    /// The message that carries it. [`Geotask::read`] gives back the same task.
    ///
    /// # Errors
    /// When it is not a valid task.
    pub fn message(&self) -> Result<Message, NotATask> {
        self.check()?;
        let body = serde_json::to_vec(self).map_err(|e| not_json(&e))?;
        Ok(Message {
            not_before: self.not_before_ms(),
            priority: self.priority,
            ordering_key: self.ordering_key.clone(),
            ..Message::new(self.key.clone(), body)
        })
    }

    /// The time before which it is not worked on, in milliseconds since 1970.
    #[must_use]
    pub fn not_before_ms(&self) -> Option<i64> {
        self.not_before.as_deref().and_then(parse_rfc3339)
    }

    /// The time after which it is not worked on any more, in milliseconds since 1970.
    #[must_use]
    pub fn expires_ms(&self) -> Option<i64> {
        self.expires.as_deref().and_then(parse_rfc3339)
    }

    /// Whether it is too late to work on it.
    #[must_use]
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms().is_some_and(|expires| expires <= now_ms)
    }
}

fn mismatch(message: impl Into<String>) -> NotATask {
    NotATask::new(Code::TASK_INVALID, message)
}

/// Checks a text that names something.
fn name(key: &str, text: &str, bytes_max: usize) -> Result<(), NotATask> {
    if text.is_empty() {
        return Err(mismatch(format!("`{key}` is empty")));
    }
    if text.len() > bytes_max {
        return Err(mismatch(format!("`{key}` has {} bytes; at most {bytes_max} are allowed", text.len())));
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => {
            Err(mismatch(format!("`{key}` has a control character (U+{:04X}) at byte {at}", u32::from(c))))
        }
        None => Ok(()),
    }
}

/// Checks a time.
fn time(key: &str, text: &Option<String>) -> Result<Option<i64>, NotATask> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        mismatch(format!("`{key}` is {shown:?}; expected a time of RFC 3339 such as 2026-11-17T18:00:00Z"))
    };
    parse_rfc3339(text).map(Some).ok_or_else(wrong)
}

/// Checks a box. Its west may be east of its east: then it crosses the antimeridian.
fn bbox(bbox: [f64; 4]) -> Result<(), NotATask> {
    let [west, south, east, north] = bbox;
    let is_in = |value: f64, most: f64| value.is_finite() && value.abs() <= most;
    if !(is_in(west, 180.0) && is_in(east, 180.0) && is_in(south, 90.0) && is_in(north, 90.0)) {
        let what = format!("`bbox` is {bbox:?}; expected west, south, east, north in degrees");
        return Err(NotATask::new(Code::TASK_INVALID, what));
    }
    if south > north {
        let what = format!("`bbox` is {bbox:?}; its south is north of its north");
        return Err(NotATask::new(Code::TASK_INVALID, what));
    }
    Ok(())
}

#[cfg(test)]
#[path = "geotask_tests.rs"]
mod tests;
