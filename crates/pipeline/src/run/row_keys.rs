//! Finds the rows that rejected records have in the sink.

use super::build::step_label;
use crate::manifest::Manifest;
use crate::sink::Spec;
use crate::step::Reject;

/// How the row of a rejected record is found in the sink.
#[derive(Clone, Debug)]
pub(super) struct RowKeys {
    /// The fields of the key.
    key: Vec<String>,
    /// The stages at which they have the values that they have in the sink.
    stages: Vec<String>,
}

impl RowKeys {
    /// `None` if the rows of earlier runs do not stay, or have no key.
    pub(super) fn of(manifest: &Manifest, sink: &Spec) -> Option<RowKeys> {
        if !sink.mode.is_keyed() || sink.key.is_empty() {
            return None;
        }
        let mut stages = vec!["gate".to_owned(), "sink".to_owned()];
        for (at, step) in manifest.pipeline.steps.iter().enumerate().rev() {
            // Behind these a name may stand for another value.
            if step.rename.is_some() || step.constant.is_some() {
                break;
            }
            stages.push(step_label(at, step));
        }
        Some(RowKeys { key: sink.key.clone(), stages })
    }

    /// The key of a rejected record in the sink, if it is known.
    pub(super) fn key(&self, reject: &Reject) -> Option<Vec<String>> {
        match values_of(reject, &self.key) {
            RejectKey::Known(key) if self.stages.contains(&reject.stage) => Some(key),
            _ => None,
        }
    }
}

/// The key of a rejected record in the sink.
pub(super) enum RejectKey {
    Known(Vec<String>),
    /// It cannot have a row: its key is null, or the sink has seen it.
    None,
    Unknown,
}

/// Only a record that went through all steps has the fields of the sink.
pub(super) fn key_of(reject: &Reject, key: &[String]) -> RejectKey {
    if reject.stage == "sink" {
        return RejectKey::None;
    }
    if reject.stage != "gate" {
        return RejectKey::Unknown;
    }
    values_of(reject, key)
}

/// The values of these fields of a rejected record.
fn values_of(reject: &Reject, key: &[String]) -> RejectKey {
    let Ok(feature) = serde_json::from_str::<serde_json::Value>(reject.feature()) else {
        return RejectKey::Unknown;
    };
    let mut values = Vec::new();
    for name in key {
        match feature.get("properties").and_then(|properties| properties.get(name)) {
            Some(serde_json::Value::String(text)) => values.push(text.clone()),
            Some(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => {
                values.push(value.to_string());
            }
            Some(serde_json::Value::Null) => return RejectKey::None,
            _ => return RejectKey::Unknown,
        }
    }
    RejectKey::Known(values)
}
