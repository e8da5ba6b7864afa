//! A task as it is given: in a line, a row or a feature, with what the options add.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_core::time::calendar::{parse_rfc3339, rfc3339_ms};
use tidegate_ledger::letter::RecordKeys;
use tidegate_ledger::letter::feature::FeaturePayload;
use tidegate_pipeline::manifest::duration;
use tidegate_queue::Geotask;

/// A task as it is given. What is missing comes from the options.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TaskDraft {
    pub(super) kind: Option<String>,
    pub(super) key: Option<String>,
    pub(super) payload: Option<Box<RawValue>>,
    pub(super) object: Option<String>,
    pub(super) crs: Option<String>,
    pub(super) bbox: Option<[f64; 4]>,
    pub(super) not_before: Option<String>,
    pub(super) expires: Option<String>,
    pub(super) ttl: Option<String>,
    pub(super) after: Vec<String>,
    pub(super) priority: Option<u8>,
    pub(super) ordering_key: Option<String>,
    pub(super) traceparent: Option<String>,
    pub(super) submitted_by: Option<String>,
}

/// What the options say about every task.
#[derive(Clone, Debug)]
pub(super) struct TaskDefaults {
    /// The kinds that the pipeline works on.
    pub(super) kinds: Vec<String>,
    pub(super) kind: Option<String>,
    /// The fields of a feature that make its key; none: its content.
    pub(super) key: Vec<String>,
    pub(super) ordering_key: Option<String>,
    pub(super) not_before_ms: Option<i64>,
    pub(super) ttl_ms: Option<i64>,
    pub(super) after: Vec<String>,
    pub(super) priority: u8,
    pub(super) submitted_by: Option<String>,
    /// The time of the command, in milliseconds since 1970.
    pub(super) now_ms: i64,
}

/// Reads a time: RFC 3339, or a duration from now.
pub(super) fn moment(text: &str, now_ms: i64) -> Result<i64, String> {
    parse_rfc3339(text).or_else(|| Some(now_ms.saturating_add(millis(text)?))).ok_or_else(|| {
        format!("invalid time {text:?}; expected a time of RFC 3339 such as 2026-11-17T18:00:00Z, or a duration from now such as 30m")
    })
}

/// Reads a duration in milliseconds.
fn millis(text: &str) -> Option<i64> {
    duration::parse(text).and_then(|time| i64::try_from(time.as_millis()).ok())
}

impl TaskDefaults {
    /// The task of a draft.
    pub(super) fn task(&self, draft: TaskDraft) -> Result<Geotask, String> {
        let kind = match draft.kind.or_else(|| self.kind.clone()) {
            Some(kind) => kind,
            None if self.kinds.len() == 1 => self.kinds.first().cloned().unwrap_or_default(),
            None => {
                return Err(format!(
                    "the task has no `kind`; choose one with --kind: {}",
                    self.kinds.join(", ")
                ));
            }
        };
        let from_now = |text: Option<String>| text.map(|text| moment(&text, self.now_ms)).transpose();
        let not_before = from_now(draft.not_before).map_err(|e| format!("`not_before`: {e}"))?;
        let not_before = not_before.or(self.not_before_ms);
        let ttl = match &draft.ttl {
            Some(text) => Some(
                millis(text).ok_or_else(|| format!("`ttl` is {text:?}; expected a duration such as 12h"))?,
            ),
            None => self.ttl_ms,
        };
        let expires = match (draft.expires, ttl) {
            (Some(_), Some(_)) if draft.ttl.is_some() => {
                return Err("`expires` and `ttl` are both given; keep one".into());
            }
            (Some(text), _) => Some(moment(&text, self.now_ms).map_err(|e| format!("`expires`: {e}"))?),
            (None, Some(ttl)) => Some(not_before.unwrap_or(self.now_ms).saturating_add(ttl)),
            (None, None) => None,
        };
        let key = match (draft.key, &draft.object, &draft.payload) {
            (Some(key), ..) => key,
            (None, Some(object), _) => object.clone(),
            (None, None, Some(payload)) => self.key_of(payload.get())?,
            (None, None, None) => String::new(),
        };
        let ordering_key = match (draft.ordering_key, &self.ordering_key, &draft.payload) {
            (Some(key), ..) => Some(key),
            (None, Some(field), Some(payload)) => {
                Some(self.field_of(payload.get(), field, "--ordering-key")?)
            }
            (None, ..) => None,
        };
        let after = if draft.after.is_empty() { self.after.clone() } else { draft.after };
        let task = Geotask {
            kind,
            key,
            payload: draft.payload,
            object: draft.object,
            crs: draft.crs,
            bbox: draft.bbox,
            not_before: not_before.map(rfc3339_ms),
            expires: expires.map(rfc3339_ms),
            after,
            priority: draft.priority.unwrap_or(self.priority),
            ordering_key,
            attempt: 0,
            traceparent: draft.traceparent,
            submitted_by: draft.submitted_by.or_else(|| self.submitted_by.clone()),
        };
        self.checked(task)
    }

    /// The task, if it is valid and the pipeline works on its kind.
    fn checked(&self, task: Geotask) -> Result<Geotask, String> {
        task.check().map_err(|e| e.message)?;
        if !self.kinds.contains(&task.kind) {
            let kinds = self.kinds.join(", ");
            return Err(format!(
                "the pipeline does not work on the kind {:?}; it works on {kinds}",
                task.kind
            ));
        }
        Ok(task)
    }

    /// The task of a line: a task, a GeoJSON feature or collection, or a CloudEvent.
    pub(super) fn line(&self, line: &[u8]) -> Result<Geotask, String> {
        /// What the line is.
        #[derive(Deserialize)]
        struct LineProbe {
            #[serde(default)]
            r#type: Option<String>,
            #[serde(default)]
            specversion: Option<Value>,
        }
        let text = str::from_utf8(line).map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to()))?;
        let probe = serde_json::from_str::<LineProbe>(text).ok();
        let is = |probe: &LineProbe, names: &[&str]| {
            probe.r#type.as_deref().is_some_and(|name| names.contains(&name))
        };
        match probe {
            Some(probe) if probe.specversion.is_some() => {
                Geotask::parse(line).map_err(|e| e.message).and_then(|task| self.checked(task))
            }
            Some(probe) if is(&probe, &["Feature", "FeatureCollection"]) => {
                let payload = RawValue::from_string(text.trim().to_owned()).map_err(|e| e.to_string())?;
                self.task(TaskDraft { payload: Some(payload), ..TaskDraft::default() })
            }
            _ => {
                if !text.trim_start().starts_with('{') {
                    return Err("not a JSON object".into());
                }
                let draft = serde_json::from_str(text).map_err(|e| place(&e))?;
                self.task(draft)
            }
        }
    }

    /// The key of a payload: the values of the fields of `--key`, or its content.
    fn key_of(&self, payload: &str) -> Result<String, String> {
        if self.key.is_empty() {
            return content_key(payload);
        }
        let values: Result<Vec<String>, String> =
            self.key.iter().map(|field| self.field_of(payload, field, "--key")).collect();
        Ok(values?.join("/"))
    }

    /// The value of a field of a feature, or of an object with the fields.
    fn field_of(&self, payload: &str, field: &str, option: &str) -> Result<String, String> {
        let value: Value = serde_json::from_str(payload).map_err(|e| place(&e))?;
        let fields = value.get("properties").unwrap_or(&value);
        match fields.get(field) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
            Some(Value::Null) => Err(format!("the field `{field}` of {option} is null")),
            Some(_) => Err(format!("the field `{field}` of {option} is a list or an object")),
            None => Err(format!("there is no field `{field}`, which {option} names")),
        }
    }
}

/// The error of a line: its number is said elsewhere.
fn place(error: &serde_json::Error) -> String {
    error.to_string().replace("line 1 column", "column")
}

/// The key of a payload by its content: the same however it is spelled.
fn content_key(payload: &str) -> Result<String, String> {
    let mut keys = RecordKeys::default();
    let key = match FeaturePayload::parse(payload.as_bytes()) {
        Ok(feature) => keys.of_feature("", &feature, 0),
        Err(_) => {
            // An object with the fields is the feature with these properties.
            let value: Value = serde_json::from_str(payload).map_err(|e| place(&e))?;
            let is_collection = value.get("type").is_some_and(|name| name == "FeatureCollection");
            if is_collection {
                keys.of_bytes("", value.to_string().as_bytes(), 0)
            } else {
                let feature = serde_json::json!({ "type": "Feature", "properties": value, "geometry": null });
                let feature =
                    FeaturePayload::parse(feature.to_string().as_bytes()).map_err(|e| e.to_string())?;
                keys.of_feature("", &feature, 0)
            }
        }
    };
    Ok(key.rsplit_once(':').map_or_else(|| key.clone(), |(_, hash)| hash.to_owned()))
}
