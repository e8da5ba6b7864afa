//! CloudEvents 1.0 as geotasks.
//!
//! | CloudEvents | geotask |
//! |---|---|
//! | `type` | `kind` |
//! | `id` | `key` |
//! | `source` | `submitted_by` |
//! | `data` | `payload` |
//! | `traceparent` | `traceparent` |
//! | `partitionkey` | `ordering_key` |
//! | `tgobject`, `tgcrs`, `tgexpires` | `object`, `crs`, `expires` |
//! | `tgnotbefore`, `tgpriority`, `tgattempt` | `not_before`, `priority`, `attempt` |
//! | `tgbbox` (`16.1,48.1,16.6,48.4`), `tgafter` (`a,b`) | `bbox`, `after` |
//!
//! The names of extension attributes are letters and digits only, and their values are single, so
//! lists are texts with commas. `time`, `subject`, `dataschema` and the attributes of others do not
//! change a task, as the standard asks of a receiver; an unknown one that starts with `tg` is an
//! error, because it can only be a mistyped one of these.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tidegate_core::Code;

use crate::geotask::{Geotask, NotATask, not_json};

/// The prefixes of attributes in headers: of HTTP, NATS and SQS, of Kafka, and of AMQP.
const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudevents:", "cloudevents_"];

fn wrong(message: impl Into<String>) -> NotATask {
    NotATask::new(Code::TASK_INVALID, message)
}

/// The task of an event in structured mode; `None` if the body is not an event.
pub(crate) fn from_envelope(body: &[u8]) -> Option<Result<Geotask, NotATask>> {
    let probe: EventProbe = serde_json::from_slice(body).ok()?;
    probe.specversion.as_ref()?;
    let EventMembers(attributes) = match serde_json::from_slice(body) {
        Ok(members) => members,
        Err(error) => return Some(Err(not_json(&error))),
    };
    Some((|| {
        let mut event = CloudEvent::default();
        for (name, value) in &attributes {
            match name.as_str() {
                "data" => event.data = (value.get() != "null").then(|| value.clone()),
                "data_base64" => {
                    return Err(wrong("`data_base64` is not supported; the data must be JSON in `data`"));
                }
                name => {
                    if let Some(text) = scalar(name, value.get())? {
                        event.set(name, &text)?;
                    }
                }
            }
        }
        event.task()
    })())
}

/// The most members of an event.
const MEMBERS_MAX: usize = 1000;

/// Whether a message is an event, found without keeping anything of it.
#[derive(serde::Deserialize)]
struct EventProbe {
    specversion: Option<serde::de::IgnoredAny>,
}

/// The members of an event by their names. A message of a million members is not one, and must not become a tree.
struct EventMembers(BTreeMap<String, Box<RawValue>>);

impl<'de> serde::Deserialize<'de> for EventMembers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<EventMembers, D::Error> {
        struct MembersVisitor;
        impl<'de> serde::de::Visitor<'de> for MembersVisitor {
            type Value = EventMembers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<EventMembers, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    members.insert(name, value);
                    if members.len() > MEMBERS_MAX {
                        let what = format!("the event has more than {MEMBERS_MAX} attributes");
                        return Err(serde::de::Error::custom(what));
                    }
                }
                Ok(EventMembers(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The task of an event in binary mode: attributes in the headers, data in the body. `None` if the
/// headers are not those of an event.
pub(crate) fn from_headers(
    headers: &BTreeMap<String, String>,
    body: &[u8],
) -> Option<Result<Geotask, NotATask>> {
    let attribute = |header: &str| {
        let lower = header.to_ascii_lowercase();
        PREFIXES.iter().find_map(|prefix| lower.strip_prefix(prefix).map(ToOwned::to_owned))
    };
    let attributes: BTreeMap<String, &str> = headers
        .iter()
        .filter_map(|(header, value)| attribute(header).map(|name| (name, value.as_str())))
        .collect();
    attributes.contains_key("specversion").then(|| {
        let mut event = CloudEvent::default();
        for (name, value) in &attributes {
            event.set(name, value)?;
        }
        if let Some(content_type) = headers.get("content-type") {
            event.set("datacontenttype", content_type)?;
        }
        if !body.iter().all(u8::is_ascii_whitespace) {
            event.data = Some(serde_json::from_slice(body).map_err(|e| not_json(&e))?);
        }
        event.task()
    })
}

/// The value of an attribute as text; `None` if it is null. Lists and objects are not allowed.
fn scalar(name: &str, json: &str) -> Result<Option<String>, NotATask> {
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).map(Some).map_err(|e| not_json(&e)),
        Some(b'{' | b'[') => Err(wrong(format!("the attribute `{name}` must be a single value"))),
        _ => Ok((json != "null").then(|| json.to_owned())),
    }
}

#[derive(Default)]
struct CloudEvent {
    version: String,
    data: Option<Box<RawValue>>,
    task: Geotask,
}

impl CloudEvent {
    fn set(&mut self, name: &str, text: &str) -> Result<(), NotATask> {
        let owned = || Some(text.to_owned());
        let task = &mut self.task;
        match name {
            "specversion" => self.version = text.to_owned(),
            "type" => task.kind = text.to_owned(),
            "id" => task.key = text.to_owned(),
            "source" => task.submitted_by = owned(),
            "datacontenttype" => json_type(text)?,
            "traceparent" => task.traceparent = owned(),
            "partitionkey" => task.ordering_key = owned(),
            "tgobject" => task.object = owned(),
            "tgcrs" => task.crs = owned(),
            "tgnotbefore" => task.not_before = owned(),
            "tgexpires" => task.expires = owned(),
            "tgpriority" => task.priority = number(name, text)?,
            "tgattempt" => task.attempt = number(name, text)?,
            "tgafter" => task.after = text.split(',').map(|key| key.trim().to_owned()).collect(),
            "tgbbox" => {
                let numbers: Result<Vec<f64>, _> = text.split(',').map(|n| n.trim().parse()).collect();
                let four = numbers.ok().and_then(|numbers| numbers.try_into().ok());
                task.bbox = Some(four.ok_or_else(|| wrong("`tgbbox` must be west,south,east,north"))?);
            }
            name if name.starts_with("tg") => {
                return Err(wrong(format!("unknown attribute `{name}`")));
            }
            _ => {}
        }
        Ok(())
    }

    fn task(self) -> Result<Geotask, NotATask> {
        let CloudEvent { version, data, mut task } = self;
        if version != "1.0" {
            let shown: String = version.chars().take(20).collect();
            return Err(wrong(format!("`specversion` is {shown:?}; expected 1.0")));
        }
        for (name, value) in [
            ("id", task.key.as_str()),
            ("type", &task.kind),
            ("source", task.submitted_by.as_deref().unwrap_or_default()),
        ] {
            if value.is_empty() {
                return Err(wrong(format!("the event has no `{name}`")));
            }
        }
        task.payload = data;
        if task.payload.is_none() && task.object.is_none() {
            return Err(wrong("the event has neither `data` nor `tgobject`"));
        }
        task.check().map(|()| task)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, NotATask> {
    text.trim().parse().map_err(|_| wrong(format!("the attribute `{name}` must be a whole number in range")))
}

/// Checks that the data is JSON.
fn json_type(text: &str) -> Result<(), NotATask> {
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence.ends_with("/json") || essence.ends_with("+json");
    if is_json {
        return Ok(());
    }
    let shown: String = essence.chars().take(60).collect();
    Err(wrong(format!("`datacontenttype` is {shown:?}; the data must be JSON")))
}
