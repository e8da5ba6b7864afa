//! The JSON Schema of the manifest, derived from the types of [`form`](super::form).
//!
//! There are two. [`bare`] is derived from the types, and the checker enforces it. [`published`] is
//! for people and editors: the same, with a twin for every `_seconds` key (`deadline: 2m` beside
//! `deadline_seconds: 120`). The checker handles twins by a rule, so that no type has to mention
//! them.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::duration;
use super::form::Manifest;

/// The suffix of a key with a duration in seconds.
pub(super) const SECONDS: &str = "_seconds";

/// The schema of the types, without references.
pub(super) fn bare() -> &'static Value {
    static BARE: LazyLock<Value> = LazyLock::new(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        settings.into_generator().into_root_schema_for::<Manifest>().to_value()
    });
    &BARE
}

/// The JSON Schema (draft 2020-12) of the manifest.
#[must_use]
pub fn published() -> Value {
    let mut schema = bare().clone();
    add_twins(&mut schema);
    schema
}

/// Adds the twins of `_seconds` keys to every object, and that only one of both may be given.
fn add_twins(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for within in ["additionalProperties", "items"] {
        if let Some(entries) = object.get_mut(within) {
            add_twins(entries);
        }
    }
    let mut rules = Vec::new();
    let mut required: Vec<Value> = match object.get("required") {
        Some(Value::Array(required)) => required.clone(),
        _ => Vec::new(),
    };
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(add_twins);
        for name in properties.keys().cloned().collect::<Vec<_>>() {
            let Some(twin) = name.strip_suffix(SECONDS) else { continue };
            let mandatory = required.iter().any(|key| key.as_str() == Some(&name));
            required.retain(|key| key.as_str() != Some(&name));
            rules.push(rule(&name, twin, mandatory));
            let property = twin_of(&name, properties.get(&name));
            properties.insert(twin.to_owned(), property);
        }
    }
    if !rules.is_empty() {
        object.insert("required".to_owned(), Value::Array(required));
        object.insert("allOf".to_owned(), Value::Array(rules));
    }
}

/// Exactly one of the two keys if it is mandatory, else at most one.
fn rule(name: &str, twin: &str, mandatory: bool) -> Value {
    if mandatory {
        json!({ "oneOf": [{ "required": [name] }, { "required": [twin] }] })
    } else {
        json!({ "not": { "required": [name, twin] } })
    }
}

/// The property for the duration with a unit.
fn twin_of(name: &str, property: Option<&Value>) -> Value {
    let mut twin = Map::new();
    twin.insert("description".to_owned(), format!("`{name}` as a human duration, such as `1m30s`.").into());
    twin.insert("type".to_owned(), "string".into());
    twin.insert("pattern".to_owned(), duration::PATTERN.into());
    if let Some(default) = property.and_then(|property| property.get("default")).and_then(Value::as_f64) {
        twin.insert("default".to_owned(), duration::human(default).into());
    }
    Value::Object(twin)
}
