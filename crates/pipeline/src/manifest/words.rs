//! Describes what a schema requires and what a value is, for messages.

use serde_json::Value as Json;

use super::problem::quoted;
use super::tree::YamlValue;

/// The kind of a schema: a JSON type, "choice" for a list of fixed values, "map" for arbitrary
/// keys, or "scalar" for any scalar.
pub(super) fn kind(schema: &Json) -> &str {
    if schema.get("type").is_some_and(Json::is_array) {
        return "scalar";
    }
    if schema.get("additionalProperties").is_some_and(Json::is_object) {
        return "map";
    }
    schema.get("type").and_then(Json::as_str).filter(|_| options(schema).is_none()).unwrap_or("choice")
}

/// The fixed strings of a choice.
pub(super) fn options(schema: &Json) -> Option<Vec<&str>> {
    if let Some(Json::Array(texts)) = schema.get("enum") {
        return Some(texts.iter().filter_map(Json::as_str).collect());
    }
    if let Some(Json::String(text)) = schema.get("const") {
        return Some(vec![text]);
    }
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    Some(branches.iter().filter_map(options).flatten().collect())
}

/// Whether a choice also accepts `true` or `false`.
pub(super) fn takes_switch(schema: &Json) -> bool {
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Json::as_array);
    branches.is_some_and(|branches| branches.iter().any(|branch| kind(branch) == "boolean"))
}

/// The mapping that a schema also takes beside fixed texts, if there is one.
pub(super) fn mapping(schema: &Json) -> Option<&Json> {
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    branches.iter().find(|branch| kind(branch) == "object")
}

/// The free text that a schema also takes beside a mapping, if there is one.
pub(super) fn free_text(schema: &Json) -> Option<&Json> {
    let branches = schema.get("anyOf")?.as_array()?;
    branches.iter().find(|branch| kind(branch) == "string")
}

/// Whether a value is one of the choices.
pub(super) fn chosen(value: &YamlValue, schema: &Json) -> bool {
    match value {
        YamlValue::Bool(_) => takes_switch(schema),
        YamlValue::Text(text) | YamlValue::Env(text) => {
            options(schema).is_some_and(|options| options.contains(&text.as_str()))
        }
        _ => false,
    }
}

/// A chosen value as JSON.
pub(super) fn scalar(value: &YamlValue) -> Option<Json> {
    match value {
        YamlValue::Bool(value) => Some(Json::Bool(*value)),
        YamlValue::Text(text) | YamlValue::Env(text) => Some(Json::String(text.clone())),
        _ => None,
    }
}

/// Any scalar as JSON.
pub(super) fn any_scalar(value: &YamlValue) -> Option<Json> {
    match value {
        YamlValue::Null => Some(Json::Null),
        YamlValue::Integer(number) => i64::try_from(*number).ok().map(Json::from),
        YamlValue::Float(number) => serde_json::Number::from_f64(*number).map(Json::Number),
        other => scalar(other),
    }
}

/// A description of what a schema requires.
pub(super) fn expected(schema: &Json) -> String {
    let noun = match kind(schema) {
        "object" | "map" => "a mapping (`key: value`)".to_owned(),
        "scalar" => "a string, a number, `true`, `false` or `null`".to_owned(),
        "array" => "a list such as `[a, b]`".to_owned(),
        "string" => "a string".to_owned(),
        "integer" => "an integer".to_owned(),
        "number" => "a number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        _ => {
            let switch = if takes_switch(schema) { "`true`, `false` or " } else { "" };
            let names: Vec<_> =
                options(schema).into_iter().flatten().map(|option| format!("`{option}`")).collect();
            let keys = mapping(schema).and_then(|mapping| mapping.get("properties")?.as_object());
            let keys = keys.into_iter().flatten().map(|(key, _)| format!(", or `{{ {key}: … }}`"));
            let text = match free_text(schema) {
                Some(_) => "a string".to_owned(),
                None => format!("one of {}", names.join(", ")),
            };
            format!("{switch}{text}{}", keys.collect::<String>())
        }
    };
    format!("{noun}{}", bounds(schema, |bound| bound.to_string()))
}

/// The bounds of a schema as text, with a space before them; `show` formats a bound.
pub(super) fn bounds(schema: &Json, show: impl Fn(f64) -> String) -> String {
    let bound = |word: &str| schema.get(word).and_then(Json::as_f64);
    let (min, max) = (bound("minimum"), bound("maximum").filter(|max| *max < f64::from(u32::MAX)));
    if let (Some(min), Some(max)) = (min, max)
        && min == max
    {
        return format!(": only {} is supported", show(min));
    }
    let words = [
        min.map(|min| format!("≥ {}", show(min))),
        bound("exclusiveMinimum").map(|min| format!("> {}", show(min))),
        max.map(|max| format!("≤ {}", show(max))),
        bound("maxLength").map(|max| format!("of 1 to {max} characters")),
    ];
    let words: Vec<_> = words.into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" {}", words.join(" and ")) }
}

/// A description of a value.
pub(super) fn found(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "nothing".to_owned(),
        YamlValue::Bool(value) => format!("`{value}`"),
        YamlValue::Integer(number) => format!("the number {number}"),
        YamlValue::Float(number) => format!("the number {number:?}"),
        YamlValue::Text(text) | YamlValue::Env(text) => format!("the string {}", quoted(text)),
        YamlValue::Open(text) => format!("the value of {}", quoted(text)),
        YamlValue::List(_) => "a list".to_owned(),
        YamlValue::Map(_) => "a mapping".to_owned(),
    }
}

/// Whether a string would be a number without its quotes, where a number is required.
pub(super) fn numeric(text: &str, schema: &Json) -> bool {
    matches!(kind(schema), "integer" | "number") && text.trim().parse::<f64>().is_ok()
}

/// Whether a string is a boolean in YAML 1.1.
pub(super) fn yes_or_no(text: &str) -> bool {
    ["yes", "no", "on", "off", "y", "n", "true", "false"].contains(&text.to_ascii_lowercase().as_str())
}

/// The first sentence of a description.
pub(super) fn summary(schema: &Json) -> String {
    let text = schema.get("description").and_then(Json::as_str).unwrap_or_default();
    let text = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    match text.find(". ") {
        Some(end) => text.get(..=end).unwrap_or_default().trim_end_matches('.').to_owned(),
        None => text.trim_end_matches('.').to_owned(),
    }
}
